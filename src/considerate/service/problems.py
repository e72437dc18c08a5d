"""Errors as problem+json (RFC 9457). The detail has what was seen and what to do, and no path of this machine."""

from __future__ import annotations

from typing import Any

import msgspec

PROBLEM = "application/problem+json"

# kind: (status, title). The type of a problem is its anchor in /docs.
KINDS = {
    "unreadable": (400, "The request cannot be read"),
    "no-key": (401, "An API key is needed"),
    "wrong-scope": (403, "This key is for other addresses"),
    "wrong-origin": (403, "A page of another origin may not do this"),
    "no-admin": (403, "Administration needs an API key"),
    "unknown-route": (404, "There is nothing at this address"),
    "unknown-user": (404, "The service knows nothing about this user"),
    "unknown-item": (404, "The model does not know this item"),
    "events-off": (404, "This service stores no events"),
    "wrong-method": (405, "This address needs another method"),
    "slow-body": (408, "The body of the request came too slowly"),
    "refused-model": (409, "The new model is refused, and the old one is still served"),
    "too-large": (413, "The body of the request is too large"),
    "wrong-type": (415, "The body of the request has another type"),
    "wrong-host": (421, "The service does not answer to this name"),
    "invalid": (422, "The request asks for something impossible"),
    "too-many": (429, "Too many requests"),
    "failed": (500, "The service failed"),
    "busy": (503, "The service is busy"),
    "no-model": (503, "There is no model yet"),
    "no-events": (503, "Events cannot be stored or read now"),
}


class ProblemDetails(msgspec.Struct, kw_only=True):
    """An error (RFC 9457)."""

    type: str  # an anchor in /docs
    title: str
    status: int
    detail: str  # what was seen, and what to do
    request: str | None = None  # the id of the request, also in the header X-Request-ID


class Problem(Exception):
    """An error that the application answers as problem+json."""

    def __init__(self, kind: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(kind)  # not the detail: it may name a user, and logs must not
        self.kind, self.detail, self.headers = kind, detail, headers or {}
        self.status, self.title = KINDS[kind]

    def details(self, request: str | None = None) -> ProblemDetails:
        """Body of the answer."""
        return ProblemDetails(
            type=f"/docs#{self.kind}", title=self.title, status=self.status, detail=self.detail, request=request
        )


def shortened(value: Any, most: int = 80) -> str:
    """Quote a value of a client, shortened."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def busy(detail: str) -> Problem:
    """Problem of a service with too much work, which asks to try again in a second."""
    return Problem("busy", detail, {"Retry-After": "1"})
