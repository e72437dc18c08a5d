"""Printing: results on stdout, notes, warnings and progress on stderr."""

from __future__ import annotations

import json
import logging
import math
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_CONTROL = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)), "?")  # all but tabs and new lines


def printable(text: str) -> str:
    """Replace control characters by question marks: a title may hold a command for the terminal."""
    return text.translate(_CONTROL)


def complain(message: str, code: int) -> int:
    """Print one line on stderr; return the exit code."""
    print(f"considerate: {printable(' '.join(message.split()))}", file=sys.stderr)
    return code


@cache
def _console() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class Screen(Console):
        """A console that prints text without control characters and otherwise as it is."""

        def render_str(self, text: str, **options: Any) -> Any:
            return super().render_str(printable(text), **options)  # before rich measures its width

        def render(self, renderable: Any, options: Any = None) -> Iterator[Any]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            raise  # the error that rich has caught: the program decides the exit code

    return Screen


def stderr() -> Console:
    return _console()(stderr=True, highlight=False, markup=False)


def show(*renderables: Any, style: str | None = None, wrap: bool = True) -> None:
    """Print on stdout."""
    _console()(highlight=False, markup=False).print(*renderables, style=style, soft_wrap=not wrap)


def show_facts(facts: Mapping[str, Any], values: Mapping[str, Any] | None = None, title: str | None = None) -> None:
    """Print names and facts in two columns, without facts that are None.

    With values, a fact is a template such as "{users:,}".
    """
    from rich.table import Table

    if title is not None:
        show(title, style="bold", wrap=False)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, fact in facts.items():
        if fact is not None:
            grid.add_row(name, fact if values is None or not isinstance(fact, str) else fact.format_map(values))
    show(grid)


def show_table(
    columns: Mapping[str, str],
    rows: Iterable[Mapping[str, Any]],
    title: str | None = None,
    caption: str | None = None,
) -> None:
    """Print a light table. Each column has a name and a template for a row's values, such as "{count:,}".

    A name that begins with > makes a column flush right, < makes it a chart. A row {"heading": text} begins a section.
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left", title_style="bold")
    table.caption, table.caption_justify = caption, "left"
    for name in columns:
        right, style = name.startswith(">"), "cyan" if name.startswith("<") else None
        table.add_column(
            name.lstrip("<>"), justify="right" if right else "left", no_wrap=right, overflow="fold", style=style
        )
    for row in rows:
        if "heading" in row:
            table.add_section()
            table.add_row(row["heading"], style="bold")
        else:
            table.add_row(*(template.format_map(row) for template in columns.values()))
    show(table)


def span(low: int, high: int) -> str:
    """Format a range of degrees, such as `3 – 4`."""
    return f"{low:,}" if low == high else f"{low:,} – {high:,}"


def styled(*parts: str | tuple[str, str]) -> Any:
    """Join parts of text, some with a style."""
    from rich.text import Text

    return Text.assemble(*parts)


def say(kind: str, message: str) -> None:
    """Print a note or a warning: one line on stderr, however long."""
    style = "yellow" if kind == "warning" else "dim"
    stderr().print(styled((f"{kind}: ", style), " ".join(message.split())), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as one JSON document; in ASCII if the terminal has no Unicode."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    print_json_text(json.dumps(value, ensure_ascii=not unicode, indent=2, allow_nan=False) + "\n")


def print_json_text(text: str) -> None:
    """Print a JSON document, and escape the control characters that JSON allows in strings."""
    print(text.translate({code: f"\\u{code:04x}" for code in range(127, 160)}), end="")


@contextmanager
def library_messages(quiet: bool = False) -> Iterator[None]:
    """Print what the library logs and warns of inside the block, a line each on stderr; if quiet, only warnings."""
    logger = logging.getLogger("considerate")
    handler = _Lines(quiet)
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: say("warning", str(message))
            yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


class _Lines(logging.Handler):
    def __init__(self, quiet: bool) -> None:
        super().__init__(logging.WARNING)
        self.quiet, self.seen = quiet, set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        repeated = getattr(record, "once", False) and record.msg in self.seen  # many fits give the same advice
        self.seen.add(record.msg)
        if not self.quiet and not repeated:
            say("note", record.getMessage())


def precisions(values: Mapping[str, float]) -> str:
    """Format expected precisions by name."""
    return ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in values.items())


# --- Small charts made of letters ---

_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"


def bar(value: float, largest: float, width: int) -> str:
    """Draw a bar of at most `width` letters; a value above zero shows at least a sliver."""
    if largest <= 0 or value <= 0:
        return ""
    eighths = max(1, round(min(1.0, value / largest) * width * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Draw the course of some values; of more than `width`, an even choice that keeps the first and the last."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    if len(finite) > width:
        finite = [finite[round(i * (len(finite) - 1) / (width - 1))] for i in range(width)]
    low, span = min(finite), max(finite) - min(finite)
    return "".join(_LEVELS[round((value - low) / span * 7) if span > 0 else 0] for value in finite)
