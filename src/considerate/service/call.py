"""A request, with its headers, query and body checked and within the limits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope

from considerate.service.limits import deadline
from considerate.service.problems import Problem, shortened
from considerate.service.routes import Route
from considerate.service.settings import ServiceSettings

Struct = TypeVar("Struct", bound=msgspec.Struct)
JSON = "application/json"
LISTS = ("allow", "deny")  # query parameters that may be repeated


@dataclass
class Call:
    """A request, for the handlers."""

    scope: Scope
    receive: Receive
    settings: ServiceSettings
    headers: dict[bytes, bytes]
    route: Route
    path: dict[str, str]  # parameters in the path

    def header(self, name: str) -> str | None:
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1")

    def query(self, kind: type[Struct]) -> Struct:
        """Parse and check the query string."""
        values: dict[str, Any] = {}
        try:
            pairs = parse_qsl(self.scope["query_string"].decode(), keep_blank_values=True, errors="strict")
        except ValueError:
            raise Problem("unreadable", "The query is not UTF-8; percent-encode the bytes of UTF-8 text.") from None
        for name, value in pairs:
            if name in LISTS:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise Problem("invalid", f"The parameter {shortened(name)} is given twice; give it once.")
            else:
                values[name] = value
        try:
            return msgspec.convert(values, kind, strict=False)
        except msgspec.ValidationError as error:
            raise Problem("invalid", f"The query is not valid: {error}. See /docs.") from None

    async def body(self, kind: type[Struct]) -> Struct:
        """Read the body within the limits of size and time, and check it."""
        media = (self.header("content-type") or "").partition(";")[0].strip().lower()
        if media != JSON:  # also if missing: browsers let any page send such a request
            raise Problem("wrong-type", f"The Content-Type is {shortened(media)}; send {JSON}.")
        try:
            return msgspec.json.decode(await self._read(), type=kind)
        except msgspec.ValidationError as error:
            raise Problem("invalid", f"The body is not valid: {error}. See /docs.") from None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise Problem("unreadable", "The body is not JSON; see /docs for what is expected.") from None

    async def _read(self) -> bytes:
        most, parts, size, more = self.settings.max_body, [], 0, True
        length = self.header("content-length") or "0"
        if length.isdecimal() and int(length) > most:
            raise _too_large(most)
        try:
            async with asyncio.timeout(deadline(self.settings.timeout)):
                while more:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        raise Problem("unreadable", "The body ended early.")
                    parts.append(message.get("body", b""))
                    size, more = size + len(parts[-1]), message.get("more_body", False)
                    if size > most:
                        raise _too_large(most)
        except TimeoutError:
            detail = f"The body did not come in time, at most {self.settings.timeout:g} seconds; send it faster."
            raise Problem("slow-body", detail, {"Connection": "close"}) from None
        return b"".join(parts)

    def user(self, query: Any) -> str:
        """Id of the user, from the path or the query."""
        if "user" in self.path and query.user is not None:
            raise Problem("invalid", "A user is named in the path and as ?user=; name one once.")
        name = self.path.get("user", query.user)
        if not name:
            raise Problem("invalid", "No user is named; give an id in the path, or as ?user=.")
        return str(name)


def _too_large(most: int) -> Problem:
    return Problem("too-large", f"The body has more than {most} bytes; send less at once.", {"Connection": "close"})
