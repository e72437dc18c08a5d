"""What is printed where: answers on stdout, all that is about them on stderr."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


_CONTROL = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "?")  # all but tabs and new lines


def printable(text: str) -> str:
    """Text whose control characters are question marks: a title may hold what a terminal takes for a command."""
    return text.translate(_CONTROL)


def complain(message: str, code: int) -> int:
    """One line on stderr; returns the exit code."""
    print(f"considerate: {printable(' '.join(message.split()))}", file=sys.stderr)
    return code


@cache
def _console() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class Screen(Console):
        """A console that prints no control character of the data."""

        def render_str(self, text: str, **options: Any) -> Any:
            return super().render_str(printable(text), **options)  # before it is measured

        def render(self, renderable: Any, options: Any = None) -> Iterator[Any]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            raise  # the error that rich has caught: the program decides how to end

    return Screen


def stdout() -> Console:
    return _console()(highlight=False)


def stderr() -> Console:
    return _console()(stderr=True, highlight=False)


def say(kind: str, message: str) -> None:
    """A note or a warning: one line on stderr, however long."""
    from rich.text import Text

    style = "yellow" if kind == "warning" else "dim"
    text = Text.assemble((f"{kind}: ", style), " ".join(message.split()))
    stderr().print(text, soft_wrap=True)


def print_json(value: Any) -> None:
    """Plain JSON, one document; where the terminal knows no Unicode, in ASCII."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    print_json_text(json.dumps(value, ensure_ascii=not unicode, indent=2, allow_nan=False) + "\n")


def print_json_text(text: str) -> None:
    """A JSON document, with the control characters escaped that JSON allows in strings."""
    print(text.translate({code: f"\\u{code:04x}" for code in range(127, 160)}), end="")


@contextmanager
def told(quiet: bool = False) -> Iterator[None]:
    """What the library logs and warns of inside is said as one line each; warnings also when quiet."""
    logger = logging.getLogger("considerate")
    handler = _Lines(logging.WARNING)
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    handler.quiet = quiet
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: say("warning", str(message))
            yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


class _Lines(logging.Handler):
    quiet = False

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        repeated = getattr(record, "once", False) and record.msg in self.said  # many fits, the same advice
        self.said.add(record.msg)
        if not self.quiet and not repeated:
            say("note", record.getMessage())


def table(*columns: str, right: tuple[str, ...] = (), **options: Any) -> Table:
    """A light table; columns named in `right` are flush right."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", title_style="bold", **options)
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", no_wrap=name in right, overflow="fold")
    return made


def facts(title: str | None = None) -> Table:
    """Names and values in two columns."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.title, made.title_justify, made.title_style = title, "left", "bold"
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    return made


def precisions(values: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in values.items())
