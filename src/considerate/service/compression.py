"""Gzip for clients that ask for it. Large answers are compressed in the threads that made them."""

from __future__ import annotations

import re
import zlib
from typing import Any

import msgspec
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from considerate.service.threads import Pause

LEAST, LEVEL = 1_400, 4  # bytes of an answer; level of zlib
STEP = 1 << 18  # bytes between two pauses
GZIP = re.compile(rb"gzip(?!\s*;\s*q=0(?:\.0*)?\s*(?:,|$))")  # gzip in Accept-Encoding, without q=0


def asks_gzip(headers: dict[bytes, bytes]) -> bool:
    """Return whether the client accepts gzip."""
    return GZIP.search(headers.get(b"accept-encoding", b"")) is not None


class GzipWhereAsked:
    """Starlette's gzip, only for clients that ask for it; other requests skip it."""

    def __init__(self, app: ASGIApp) -> None:
        self.plain, self.zipped = app, GZipMiddleware(app, minimum_size=LEAST, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and asks_gzip(dict(scope["headers"]))
        await (self.zipped if asked else self.plain)(scope, receive, send)


def packed_response(value: Any, media_type: str, headers: dict[str, str], zipped: bool, pause: Pause) -> Response:
    """Make an answer of bytes, or of a value as JSON; `zipped` compresses it here."""
    content = value if isinstance(value, bytes) else msgspec.json.encode(value)
    if zipped and len(content) >= LEAST:
        packer, parts = zlib.compressobj(LEVEL, wbits=31), []  # 31: gzip
        for start in range(0, len(content), STEP):
            pause()
            parts.append(packer.compress(content[start : start + STEP]))
        content = b"".join([*parts, packer.flush()])
        headers = headers | {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(content, headers=headers, media_type=media_type)
