"""The page of a study in a real browser, Debian's chromium: accessible, and readable at any width, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from considerate.study.page import write_page
from considerate.study.results import results_to_json
from tests.helpers.browsers import PATIENCE, serious_faults
from tests.helpers.study_results import drawn_once, plausible_results

VIEWS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


@pytest.fixture(scope="module")
def report() -> str:
    pytest.importorskip("matplotlib")
    figures, results = drawn_once(), plausible_results()
    folder: Path = next(iter(figures.values())).parents[1]
    write_page(results, figures, folder / "index.html")
    (folder / "results.json").write_text(results_to_json(results))
    return (folder / "index.html").as_uri()


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_the_page_fits_and_has_no_serious_fault(browser: Any, report: str, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(report, timeout=PATIENCE)
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page scrolls sideways"
    boxes = page.evaluate(
        "[...document.querySelectorAll('.board, .whole')].map(b => [b.scrollWidth - b.clientWidth,"
        " b.scrollHeight - b.clientHeight])"
    )
    assert len(boxes) == 2
    assert all(max(box) <= 1 for box in boxes), "the rivals or the statements are behind a scroll bar"
    shown = page.evaluate(
        "[...document.querySelectorAll('.plot')].map(p => [...p.children].filter(c => c.offsetHeight > 0)"
        ".map(c => [c.className, c.offsetWidth / p.clientWidth]))"
    )
    assert [[name for name, _ in plot] for plot in shown] == [["page" if width > 736 else "column"]] * len(shown)
    assert all(share > 0.9 for plot in shown for _, share in plot), "a figure does not use the width"
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    page.evaluate(
        "document.querySelectorAll('svg').forEach(svg => svg.replaceChildren())"
    )  # images; axe is slow on them
    faults = serious_faults(page)
    page.close()
    assert faults == []
    assert problems == []


def test_a_figure_is_dark_on_a_dark_page(browser: Any, report: str) -> None:
    grounds = {}
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(report, timeout=PATIENCE)
        grounds[scheme] = page.evaluate("getComputedStyle(document.querySelector('.plot svg path')).fill")
        page.close()
    assert grounds == {"light": "rgb(255, 255, 255)", "dark": "rgb(29, 33, 37)"}


def test_a_column_is_sorted_by_its_button(browser: Any, report: str) -> None:
    page = browser.new_page()
    page.goto(report, timeout=PATIENCE)
    head = page.locator(".board thead th").nth(3)  # Recall@20
    orders = []
    for _ in range(2):
        head.locator("button").click(timeout=PATIENCE)
        orders.append(page.locator(".board tbody th").all_inner_texts())
    sorted_by = head.get_attribute("aria-sort")
    page.close()
    assert orders[0] == orders[1][::-1]
    assert (orders[1][0], sorted_by) == ("EASE", "descending")
