"""HTTP/1.1 for uvicorn, with a deadline for requests that come byte by byte, and a limit of their headers."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SECONDS = 20.0  # from a connection, or the first byte of a request, to its last byte
MOST_HEAD = 65_536  # bytes of a request line and headers


class DeadlineProtocol(HttpToolsProtocol):
    """uvicorn's own, with an end to its patience: it closes connections that idle between requests, but would wait for
    ever for the rest of a request."""

    _deadline: asyncio.TimerHandle | None = None
    _is_whole = False  # whether the request that was begun has come to its end
    _head = 0  # bytes of the request so far, while its headers are incomplete
    _in_head = True

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(SECONDS, self._give_up)

    def data_received(self, data: bytes) -> None:
        self._is_whole = False
        super().data_received(data)
        if self._in_head and not self._is_whole:
            self._head += len(data)
            if self._head > MOST_HEAD and not self.transport.is_closing():
                self.send_400_response("The headers are too long.")
        if self._is_whole:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
        elif self._deadline is None:
            self._deadline = self.loop.call_later(SECONDS, self._give_up)

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_whole, self._in_head, self._head = True, True, 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        self._deadline = None
        self.transport.abort()


# What uvicorn is started with, by the shell and by the tests.
SERVER_OPTIONS: dict[str, Any] = {
    "http": DeadlineProtocol,
    "ws": "none",
    "lifespan": "on",
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "date_header": False,
    "timeout_graceful_shutdown": 30,
}
