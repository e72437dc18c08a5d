"""Logs: one JSON object a line on stderr. They have routes, numbers and ids of requests; nothing of users or items."""

from __future__ import annotations

import json
import logging
import os
import sys
import time

# What uvicorn says of its start and end, beside "Application startup complete." and "Shutting down".
CHATTER = (
    *("Started server process", "Waiting for application", "Uvicorn running on", "Finished server process"),
    *("Started parent process", "Waiting for child process", "Terminated child process", "Stopping parent process"),
)


class JsonLines(logging.Formatter):
    """A record as JSON. Its own fields are in `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        head = {"time": f"{stamp}.{int(record.msecs):03d}Z", "level": record.levelname.lower(), "process": os.getpid()}
        error = {"error": record.exc_info[0].__name__} if record.exc_info and record.exc_info[0] else {}
        message = record.getMessage()
        if message.startswith("Traceback"):  # of a start that failed, or of a second Ctrl-C
            message = message.rstrip().rpartition("\n")[2]
        return json.dumps(head | {"message": message} | getattr(record, "fields", {}) | error)


def configure_logs() -> None:
    """Write the logs of the service, of the library and of uvicorn as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(lambda record: not str(record.msg).startswith(CHATTER))
    levels = {"considerate": logging.WARNING, "considerate.service": logging.INFO, "uvicorn.error": logging.INFO}
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
