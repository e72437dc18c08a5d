"""The files of the page, read once, with the headers that keep a browser to them."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

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
    content: bytes
    media_type: str
    etag: str


@cache
def page_files() -> dict[str, PageFile]:
    """name -> file, of the folder page/."""
    found = {}
    for path in files(__package__).joinpath("page").iterdir():
        ending = path.name.rpartition(".")[2]
        if ending in TYPES:
            content = path.read_bytes()
            found[path.name] = PageFile(content, TYPES[ending], f'"{hashlib.sha256(content).hexdigest()[:24]}"')
    return found
