"""Files of the page, read once, and headers that forbid a browser to load anything else."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from considerate.service.schemas import PAIR_COLUMNS

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class PageFile(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str
    etag: str


@cache
def page_files() -> dict[str, PageFile]:
    """Files of the folder page/ by name, and columns.js, the columns that the page shows of a pair."""
    found = {}
    for path in files(__package__).joinpath("page").iterdir():
        ending = path.name.rpartition(".")[2]
        if ending in TYPES:
            found[path.name] = _page_file(path.read_bytes(), ending)
    columns = [
        {"name": one.name, "heading": one.heading, "cell": one.cell, "format": one.format.page, "help": one.help}
        for one in PAIR_COLUMNS
        if one.values
    ]
    found["columns.js"] = _page_file(f"export const COLUMNS = {json.dumps(columns)};\n".encode(), "js")
    return found


def _page_file(content: bytes, ending: str) -> PageFile:
    return PageFile(content, TYPES[ending], f'"{hashlib.sha256(content).hexdigest()[:24]}"')
