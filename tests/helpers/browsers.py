"""A real browser, Debian's chromium, for tests of pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PATIENCE = 600_000  # milliseconds: a busy machine may be ten times slower


def missing(what: str) -> None:
    if os.environ.get("CONSIDERATE_REQUIRE_BROWSER") == "1":
        pytest.fail(f"{what}, and CONSIDERATE_REQUIRE_BROWSER is 1")
    pytest.skip(what)


@contextmanager
def launched(*arguments: str) -> Iterator[Any]:
    """A browser with some arguments. A test that finds none is skipped, or fails where one is required."""
    found = [path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))]
    if not found:
        missing("no chromium is installed (apt-get install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed (pip install playwright axe-playwright-python)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found[0], args=["--no-sandbox", *arguments], timeout=PATIENCE
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


def serious_faults(page: Any) -> list[tuple[str, str]]:
    """What axe-core finds: (rule, the first element that breaks it)."""
    from axe_playwright_python.sync_playwright import Axe

    faults = Axe().run(page).response["violations"]
    return [(fault["id"], fault["nodes"][0]["html"]) for fault in faults if fault["impact"] in ("serious", "critical")]
