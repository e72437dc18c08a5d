"""Logs: one JSON object per line on stderr, with routes, numbers and request ids, but nothing about users or items."""

from __future__ import annotations

import json
import logging
import os
import sys
import time

# Messages of uvicorn that are left out; "Application startup complete." and "Shutting down" stay.
CHATTER = (
    *("Started server process", "Waiting for application", "Uvicorn running on", "Finished server process"),
    *("Started parent process", "Waiting for child process", "Terminated child process", "Stopping parent process"),
)


class JsonLines(logging.Formatter):
    """Formats a record as JSON, with further fields from `extra={"fields": {...}}`."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        head = {"time": f"{stamp}.{int(record.msecs):03d}Z", "level": record.levelname.lower(), "process": os.getpid()}
        error = {"error": record.exc_info[0].__name__} if record.exc_info and record.exc_info[0] else {}
        message = record.getMessage()
        if message.startswith("Traceback"):  # a failed start, or a second Ctrl-C
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
