"""Errors as answers: problem+json (RFC 9457). A detail says what was seen and what to do, and names no path."""

from __future__ import annotations

from typing import Any

import msgspec

PROBLEM = "application/problem+json"

# kind: (status, title). The type of a problem is its place in /docs.
KINDS = {
    "unreadable": (400, "The request cannot be read"),
    "no-key": (401, "An API key is needed"),
    "wrong-scope": (403, "This key is for other addresses"),
    "wrong-origin": (403, "A page of another origin may not do this"),
    "no-admin": (403, "There is no administration without an API key"),
    "unknown-route": (404, "There is nothing at this address"),
    "unknown-user": (404, "Nothing is known of this user"),
    "unknown-item": (404, "The model does not know this item"),
    "events-off": (404, "This service keeps no events"),
    "wrong-method": (405, "This address takes other methods"),
    "slow-body": (408, "The body of the request came too slowly"),
    "refused-model": (409, "The new model is refused, and the old one is served"),
    "too-large": (413, "The body of the request is too large"),
    "wrong-type": (415, "The body of the request is of another type"),
    "wrong-host": (421, "The service does not go by this name"),
    "invalid": (422, "The request asks for something that cannot be"),
    "too-many": (429, "Too many requests"),
    "failed": (500, "The service failed"),
    "busy": (503, "The service is busy"),
    "no-model": (503, "There is no model yet"),
    "no-events": (503, "Events are not taken now"),
}


class ProblemDetails(msgspec.Struct, kw_only=True):
    """An error (RFC 9457)."""

    type: str  # a place in /docs
    title: str
    status: int
    detail: str  # what was seen, and what to do
    request: str | None = None  # the id of the request, as the header X-Request-ID has it


class Problem(Exception):
    """Raised anywhere, answered by the application."""

    def __init__(self, kind: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(kind)  # not the detail: it may name a user, and logs do not
        self.kind, self.detail, self.headers = kind, detail, headers or {}
        self.status, self.title = KINDS[kind]

    def details(self, request: str | None = None) -> ProblemDetails:
        """What is sent."""
        return ProblemDetails(
            type=f"/docs#{self.kind}", title=self.title, status=self.status, detail=self.detail, request=request
        )


def shortened(value: Any, most: int = 80) -> str:
    """What a client sent, to be shown to it again."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def busy(waiting: int) -> Problem:
    """There are so many requests that no more may wait."""
    detail = f"{waiting} requests wait, and no more may; try again in a moment."
    return Problem("busy", detail, {"Retry-After": "1"})
