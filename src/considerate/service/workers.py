"""Worker processes, run by uvicorn's supervisor.

On Linux each worker has its own socket at the same port (SO_REUSEPORT), and the system divides the connections among
them. With one socket for all, the worker that wakes first takes a connection, and sometimes one worker takes all.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

import uvicorn
import uvloop
from uvicorn.supervisors import Multiprocess

from considerate.errors import UsageError
from considerate.service.logs import configure_logs
from considerate.service.protocol import SERVER_OPTIONS

APPLICATION = "considerate.service.app:from_environment"


class SharingLoop(uvloop.Loop):
    """An event loop that lets several servers listen at one port."""

    async def create_server(self, *arguments: Any, **options: Any) -> Any:
        return await super().create_server(*arguments, **options | {"reuse_port": True})


def run_workers(host: str, port: int, count: int, application: str = APPLICATION) -> None:
    """Run workers until SIGINT or SIGTERM; restart a worker that dies."""
    configure_logs()
    options = {"factory": True, "host": host, "port": port, "workers": count, **SERVER_OPTIONS}
    if count == 1 or sys.platform != "linux":
        uvicorn.run(application, **options)
    else:
        config = uvicorn.Config(application, loop=f"{__name__}:{SharingLoop.__name__}", **options)
        Multiprocess(config, sockets=None).run()  # type: ignore[arg-type]  # each worker makes its own


def check_address(host: str, port: int) -> None:
    """Raise UsageError if the address cannot be used, or is in use."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            reason = error.strerror or error
            raise UsageError(f"cannot listen at {host}:{port} ({reason}); give another --host or --port.") from error
