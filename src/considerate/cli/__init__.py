"""The shell: `considerate fit | recommend | find | similar | index | add-items | evaluate | inspect | study | ...`.

program.py         the program: its commands, its errors as one sentence, its exit codes
options.py         options that several commands share; those of a fit are made from `Parameters`
screen.py          what is printed where; bars and sparklines
fit.py, recommend.py, find.py, index.py, evaluate.py, inspect.py, study.py, serve.py, refit.py, simulate.py, demo.py
features.py        add-items, and where features are
describe.py        data, a fit and a model as plain values
demo_catalogue.py  the made-up catalogue of the demo

Heavy imports happen inside commands, so that `considerate --help` answers at once.
"""

from __future__ import annotations

import io
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from considerate.cli.program import app

__all__ = ["app", "main"]

INTERRUPTED = "interrupted; no file was left half-written."
NO_MEMORY = "there is not enough memory for this; free some, or use less data or fewer factors."


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from considerate.cli.program import app

    return app


def interrupt_once(*_: object) -> None:
    """The first Ctrl-C stops the program; later ones would interrupt how it saves what is finished and cleans up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    """The entry point. Nothing is imported before it, so that Ctrl-C is one line at any time."""
    signal.signal(signal.SIGINT, interrupt_once)
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a terminal that lacks a letter shows a question mark
        from considerate.cli.program import app

        app(prog_name="considerate")
    except KeyboardInterrupt:
        print(f"considerate: {INTERRUPTED}", file=sys.stderr)
        sys.exit(130)
    except MemoryError:  # while the program itself is imported
        print(f"considerate: {NO_MEMORY}", file=sys.stderr)
        sys.exit(1)
