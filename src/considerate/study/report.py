"""The report of a study: all numbers as JSON, the figures, and one page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from os import PathLike
from pathlib import Path

from considerate.errors import OutputError
from considerate.storage.files import atomic_write, check_writable
from considerate.study.results import Results, results_to_json

CACHE = ".cache"  # stages, within the report's folder
PARTS = {"figures": "matplotlib", "page": "jinja2"}  # part of the report -> the package that it needs


@contextmanager
def open_report(folder: str | PathLike[str]) -> Iterator[Path]:
    """The report's folder, created if missing; OutputError where it cannot be written, before any work is done.

    Folders that were created are removed again if they stay empty: bad input leaves nothing behind.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path}: is a file; a report is a folder: give another name.")
    new = [parent for parent in (path, *path.parents) if not parent.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: the folder cannot be made ({error.strerror}); choose another place.") from error
    try:
        check_writable(path / "results.json")
        yield path
    except BaseException:
        for parent in new:
            with suppress(OSError):  # it is not empty
                parent.rmdir()
        raise


def missing_parts() -> dict[str, str]:
    """The parts of a report that cannot be written, each with the package that is not installed."""
    return {part: package for part, package in PARTS.items() if find_spec(package) is None}


def write_report(results: Results, folder: Path) -> dict[str, str]:
    """Write results.json, figures/ and index.html, but for `missing_parts`; (what: where)."""
    missing, drawn = missing_parts(), {}
    with atomic_write(folder / "results.json") as file:
        file.write(results_to_json(results).encode())
    written = {"numbers": str(folder / "results.json")}
    if "figures" not in missing:
        from considerate.study.figures import draw_all

        drawn = draw_all(results, folder / "figures")
        written["figures"] = str(folder / "figures")
    if "page" not in missing:
        from considerate.study.page import write_page

        write_page(results, drawn, folder / "index.html")
        written["page"] = str(folder / "index.html")
    return written
