"""What the studies share: where the data is, and the options of their commands."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Iterable
from pathlib import Path


def default_folder() -> Path:
    """CONSIDERATE_DATA, else ../shared/data."""
    return Path(os.environ.get("CONSIDERATE_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))


def study_parser(doc: str | None, sets: Iterable[str] = (), settings: Iterable[str] = ()) -> ArgumentParser:
    """A parser of --data, of --set where a study has several data sets, and of --only where it has several settings."""
    parser = ArgumentParser(description=doc.splitlines()[0] if doc else None)
    parser.add_argument("--data", type=Path, default=default_folder(), help="the folder of the data sets")
    if names := list(sets):
        parser.add_argument("--set", choices=names, action="append", help="this data set alone; may be repeated")
    if names := list(settings):
        parser.add_argument("--only", choices=names, action="append", help="this setting alone; may be repeated")
    return parser
