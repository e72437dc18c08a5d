"""The shell: `considerate fit | recommend | find | similar | index | add-items | evaluate | inspect | study | ...`.

program.py         the program: its commands, its one-line errors, its exit codes
options.py         options that several commands share, and how groups of options become parameters
screen.py          printing; bars and sparklines
describe.py        data, a fit and a model as plain values
demo_catalogue.py  the simulated catalogue of the demo
Every other file has one command or two.

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
    """Stop the program at the first Ctrl-C, and ignore later ones: they would interrupt saving and cleaning up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    """Run the program. Nothing is imported before, so that Ctrl-C prints one line at any time."""
    signal.signal(signal.SIGINT, interrupt_once)
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # a question mark in place of a letter that the terminal has not
        from considerate.cli.program import app

        app(prog_name="considerate")
    except KeyboardInterrupt:
        print(f"considerate: {INTERRUPTED}", file=sys.stderr)
        sys.exit(130)
    except MemoryError:  # during the import of the program
        print(f"considerate: {NO_MEMORY}", file=sys.stderr)
        sys.exit(1)
