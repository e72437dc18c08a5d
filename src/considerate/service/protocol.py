"""HTTP/1.1 for uvicorn, with deadlines for slow clients and a limit for headers."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from considerate.service.limits import deadline
from considerate.service.problems import PROBLEM, Problem

SECONDS = 20.0  # longest time from a connection, or the first byte of a request, to its last byte
LEAST_READ = 65_536  # bytes of an answer that a client must read in that time, unless it has read all
MOST_HEAD = 65_536  # largest request line with headers, in bytes
MALFORMED = (
    "This is no HTTP/1.1 request; send one with a Host, with headers of at most 65,536 bytes, and with a body that has "
    "either a Content-Length or chunks."
)


class DeadlineProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with deadlines for the rest of a request and for a client to read an answer.

    Bytes that are no request get a problem as answer.
    """

    _deadline: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None  # checks how much of the answer was read
    _is_whole = False  # whether the current request is complete
    _head = 0  # bytes of the request so far, while its headers are incomplete
    _in_head = True

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(deadline(SECONDS), self._give_up)

    def data_received(self, data: bytes) -> None:
        self._is_whole = False
        super().data_received(data)
        if self._in_head and not self._is_whole:
            self._head += len(data)
            if self._head > MOST_HEAD and not self.transport.is_closing():
                self.send_400_response(MALFORMED)
        if self._is_whole:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
        elif self._deadline is None:
            self._deadline = self.loop.call_later(deadline(SECONDS), self._give_up)

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self.parser.get_http_version() == "1.1" and sum(name == b"host" for name, _ in self.headers) != 1:
            raise ValueError("Host")  # RFC 9112: answered with 400
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_whole, self._in_head, self._head = True, True, 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._deadline, self._reading):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._check_reading_later()

    def resume_writing(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        super().resume_writing()

    def _check_reading_later(self) -> None:
        self._reading = self.loop.call_later(SECONDS, self._check_reading, self.transport.get_write_buffer_size())

    def _check_reading(self, before: int) -> None:
        """Close the connection if the client read too little since the last check."""
        if before - self.transport.get_write_buffer_size() < LEAST_READ:
            self.transport.abort()
        else:
            self._check_reading_later()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no request with a problem; uvicorn would send plain text."""
        problem = Problem("unreadable", MALFORMED)
        content = msgspec.json.encode(problem.details())
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: {PROBLEM}\r\nContent-Length: {len(content)}\r\n"
        self.transport.write(f"{head}Connection: close\r\n\r\n".encode() + content)
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Ignore offers of h2c or a websocket, which some clients send with every request."""

    def _give_up(self) -> None:
        self._deadline = None
        self.transport.abort()


# Options of uvicorn, for the shell and the tests.
SERVER_OPTIONS: dict[str, Any] = {
    "http": DeadlineProtocol,
    "ws": "none",
    "lifespan": "on",
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,  # a client could send a false address and avoid the limit of requests
    "timeout_graceful_shutdown": 5,  # seconds; later, work stops between its steps
}
