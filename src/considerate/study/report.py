"""The report of a study: all numbers as JSON, the figures, and one page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from considerate.errors import OutputError
from considerate.storage.files import atomic_write, check_writable
from considerate.study.results import Results, results_to_json

PathLike = str | os.PathLike[str]
CACHE = ".cache"  # stages, within the report's folder


@contextmanager
def open_report(folder: PathLike) -> Iterator[Path]:
    """The report's folder, made if need be; OutputError where it cannot be written, before any work is done.

    What was made is removed again if nothing came to be in it: bad input leaves nothing behind.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise OutputError(f"{path}: is a file; a report is a folder: give another name.")
    new = [one for one in (path, *path.parents) if not one.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{path}: the folder cannot be made ({error.strerror}); choose another place.") from error
    try:
        check_writable(path / "results.json")
        yield path
    except BaseException:
        for one in new:
            with suppress(OSError):  # it is not empty
                one.rmdir()
        raise


def write_report(results: Results, folder: Path) -> dict[str, str]:
    """Write results.json, figures/ and index.html; (what: where). Without matplotlib there are no figures."""
    with atomic_write(folder / "results.json") as file:
        file.write(results_to_json(results).encode())
    written = {"numbers": str(folder / "results.json")}
    drawn: dict[str, Path] = {}
    if can_draw():
        from considerate.study.figures import draw_all

        drawn = draw_all(results, folder / "figures")
        written["figures"] = str(folder / "figures")
    from considerate.study.page import write_page

    write_page(results, drawn, folder / "index.html")
    return written | {"page": str(folder / "index.html")}


def can_draw() -> bool:
    """Whether matplotlib is there."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True
