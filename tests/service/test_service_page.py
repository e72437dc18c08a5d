"""The page of the service in a real browser."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate import Recommender
from considerate.service import honesty
from tests.helpers.browsers import PATIENCE, serious_faults
from tests.helpers.likes import planted
from tests.helpers.service_fixtures import Client, running

USERS, ITEMS, EVIL = 120, 60, "<img src=x onerror=alert(1)>"
COUNT = 12  # items that the page lists


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows, columns = planted(USERS, ITEMS, seed=3).nonzero()
    likes = {"user": [f"u{row}" for row in rows], "item": [f"i{column}" for column in columns]}
    titles = {
        f"i{row}": EVIL if row == 5 else f"The {'Quiet' if row % 2 else 'Loud'} Film {row}" for row in range(ITEMS)
    }
    path: Path = tmp_path_factory.mktemp("page") / "model"
    Recommender(factors=4, sweeps=4, opening=2, threads=1).fit(likes, titles=titles).save(path)
    return path


@pytest.fixture(scope="module")
def client(model_path: Path) -> Iterator[Client]:
    with running(model_path) as client:
        yield client


@pytest.fixture
def opened(browser: Any, client: Client) -> Iterator[Any]:
    """Opens the page at an address after the #; every request and fault of it is looked at when the test ends."""
    pages: list[Any] = []
    problems: list[str] = []
    asked: list[str] = []

    def open_page(hash: str = "", width: int = 1280, **settings: Any) -> Any:
        page = browser.new_page(viewport={"width": width, "height": 900}, reduced_motion="reduce", **settings)
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{client.base_url}/{hash}")
        page.wait_for_selector("#list li")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert problems == []
    assert {url for url in asked if not url.startswith((str(client.base_url), "data:"))} == set()  # works offline


def listed(page: Any) -> list[str]:
    return list(page.eval_on_selector_all("#list li", "rows => rows.map(row => row.dataset.item)"))


def wait_until(page: Any, expression: str) -> None:
    """Until an expression is true. Playwright's own wait evaluates a text in the page, which its policy forbids."""
    for _ in range(PATIENCE // 20):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(20)
    pytest.fail(f"{expression} was not true in time")


def wait_until_listed(page: Any, items: list[str]) -> None:
    """Until the list has these items, which the page may draw in its next frame."""
    for _ in range(PATIENCE // 20):
        if listed(page) == items:
            return
        page.wait_for_timeout(20)
    assert listed(page) == items


def expected(client: Client, likes: list[str], **knobs: float) -> list[str]:
    answer = client.post("/v1/recommendations", json={"likes": likes, "n": COUNT, **knobs}).json()
    return [item["item"] for item in answer["items"]]


def slide(page: Any, knob: str, value: float) -> None:
    page.eval_on_selector(
        f"#{knob}", "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", value
    )


def test_three_likes_and_their_recommendations(opened: Any, client: Client) -> None:
    page = opened()
    assert len(listed(page)) == COUNT  # of nobody's likes: a list to begin with
    for number in (7, 12, 21):
        page.fill("#query", f"film {number}")
        page.click(f"#matches li:text-is('The {'Quiet' if number % 2 else 'Loud'} Film {number}')")
        page.wait_for_selector(f"#likes button[aria-label$='Film {number}']")
    likes = ["i7", "i12", "i21"]
    wait_until(page, f"document.querySelector('#list li').dataset.item === '{expected(client, likes)[0]}'")
    assert listed(page) == expected(client, likes)
    again = opened(page.url[len(f"{client.base_url}/") :])  # the address has it all
    again.wait_for_selector("#likes button[aria-label='Remove The Quiet Film 7']")
    assert listed(again) == listed(page)
    page.click("#likes button[aria-label$='Film 12']")
    wait_until(page, "document.querySelectorAll('#likes li').length === 2")
    wait_until(page, f"document.querySelector('#list li').dataset.item === '{expected(client, ['i7', 'i21'])[0]}'")
    assert listed(page) == expected(client, ["i7", "i21"])


@pytest.mark.parametrize(("popularity", "lift"), [(0.0, 0.0), (1.5, 0.0), (0.0, 3.0), (0.55, 1.3)])
def test_the_knobs_the_order_and_the_line_agree_with_the_api(
    opened: Any, client: Client, popularity: float, lift: float
) -> None:
    page, likes = opened("#like=i7&like=i12"), ["i7", "i12"]
    slide(page, "popularity", popularity)
    slide(page, "lift", lift)
    assert listed(page) == expected(client, likes, popularity=popularity, lift=lift)
    land = client.post("/v1/landscape", json={"likes": likes, "popularity": [0, 1.5], "lift": [0, 3]}).json()
    floor = min(land["log_lift"])
    line = page.eval_on_selector(".equal", "line => [Number(line.dataset.threshold), Number(line.dataset.slope)]")
    assert line[1] == -popularity
    columns = ("item", "logit", "log_popularity", "log_lift")
    above = {
        item
        for item, logit, x, log_lift in zip(*(land[name] for name in columns))
        if logit + lift * (log_lift - floor) + popularity * x >= line[0] - 1e-9
    }
    assert above == set(listed(page))  # those above the line are those that are chosen
    assert page.eval_on_selector_all(".picked", "dots => dots.map(dot => dot.dataset.item)") == listed(page)


def test_why_and_what_a_removed_like_changes(opened: Any, client: Client) -> None:
    page = opened("#like=i7&like=i12&like=i21")
    item = listed(page)[1]
    page.click("#list li:nth-child(2) .title")
    page.wait_for_selector(".reasons li")
    reasons = client.post("/v1/explanations", json={"item": item, "likes": ["i7", "i12", "i21"]}).json()["because"]
    shown = page.eval_on_selector_all(".reasons .number", "cells => cells.map(cell => cell.textContent)")
    assert [float(text.replace("\u2212", "-")) for text in shown] == [round(reason["logit"], 2) for reason in reasons]
    page.click(".reasons li:first-child button")
    wait_until(page, "document.querySelectorAll('#likes li').length === 2")
    wait_until(page, "document.querySelectorAll('.reasons li').length === 2")


def test_a_user_of_the_model_and_one_who_is_not(opened: Any, client: Client) -> None:
    page = opened("#user=u3")
    assert listed(page) == [item["item"] for item in client.recommendations("u3", n=COUNT)["items"]]
    assert "v1/users/u3/recommendations" in page.text_content("#curl")
    assert 'recommend_table(["u3"]' in page.text_content("#python")


@pytest.mark.parametrize("state", ["#like=i7&like=i12&popularity=0.55", "#user=u3", "#user=u4&lift=0"])
def test_the_lines_give_what_is_on_the_screen(opened: Any, model_path: Path, state: str) -> None:
    page = opened(state)
    *before, last = page.text_content("#python").replace("model.safetensors", str(model_path)).splitlines()
    code = "\n".join([*before, f"print(*{last}['item'].to_pylist(), sep='\\n')"])
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == listed(page)
    if shutil.which("curl") is not None:
        shell = subprocess.run(page.text_content("#curl"), shell=True, capture_output=True, text=True, check=True)
        assert [item["item"] for item in json.loads(shell.stdout)["items"]] == listed(page)


def test_nobody_has_no_line(opened: Any) -> None:
    page = opened()
    assert page.text_content("#curl").startswith("# Like something first")
    assert page.text_content("#python").startswith("# Like something first")


def test_an_unknown_user_gets_a_sentence(browser: Any, client: Client) -> None:
    page = browser.new_page()
    page.goto(f"{client.base_url}/#user=nobody", timeout=PATIENCE)
    page.wait_for_selector("#problem:not([hidden])", timeout=PATIENCE)
    assert "Nothing is known of user" in page.text_content("#problem")
    page.close()


def test_across_the_plane_is_popularity_or_p_considered(opened: Any, client: Client) -> None:
    page, likes = opened("#like=i7&like=i12"), ["i7", "i12"]
    assert page.is_checked("[name=across][value='']")
    page.check("[name=across][value=considered]")
    assert page.query_selector(".equal") is None  # equal score is no straight line there
    assert "no straight line" in page.text_content("#plane-caption")
    land = client.post("/v1/landscape", json={"likes": likes, "popularity": [0, 1.5], "lift": [0, 3]}).json()
    chances = {item: (land["p_considered"][at], land["logit"][at]) for at, item in enumerate(land["item"])}
    dots = page.eval_on_selector_all(
        ".picked",
        "dots => dots.map(dot => [dot.dataset.item, Number(dot.getAttribute('cx')), Number(dot.getAttribute('cy'))])",
    )
    assert [item for item, _, _ in dots] == listed(page)
    p, logits = np.array([chances[item] for item, _, _ in dots]).T
    x, y = np.array([place for _, *place in dots]).T
    assert np.corrcoef(np.log(p / (1 - p)), x)[0, 1] == pytest.approx(1)  # on a logit scale, to the right
    assert np.corrcoef(logits, y)[0, 1] == pytest.approx(-1)  # and upwards
    assert "across=considered" in page.url
    again = opened(page.url[len(f"{client.base_url}/") :])
    assert again.is_checked("[name=across][value=considered]")
    again.check("[name=across][value='']")
    assert again.query_selector(".equal") is not None
    assert "across" not in again.url
    nobody = opened("#across=considered")  # whose likes say nothing yet
    assert "by popularity" in nobody.text_content("#plane-caption")
    assert nobody.query_selector(".equal") is not None
    assert "seen" not in nobody.text_content("#list .numbers")


def test_is_p_honest(
    browser: Any, opened: Any, client: Client, model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opened()
    page.wait_for_selector("#honest p")
    assert "Nobody has judged" in page.text_content("#honest")
    monkeypatch.setattr(honesty, "FRESH", 0.0)
    random = np.random.default_rng(0)
    with running(model_path, events=str(tmp_path / "events.db")) as service:
        shown = [(f"u{user}", f"i{item}") for user in range(60) for item in random.choice(ITEMS, 6, replace=False)]
        service.post_events(*((*pair, ("like", "considered")[at % 3 > 0]) for at, pair in enumerate(shown)))
        answer = service.get("/v1/reliability").json()
        assert len(answer["bins"]) > 2
        for width, scheme in ((1280, "light"), (390, "dark")):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.set_default_timeout(PATIENCE)
            page.goto(f"{service.base_url}/#user=u3")
            page.wait_for_selector("#honest circle")
            assert f"over {answer['pairs']} judged pairs" in page.text_content("#honest")
            places = page.eval_on_selector_all(
                "#honest circle", "dots => dots.map(dot => ['cx', 'cy'].map(name => Number(dot.getAttribute(name))))"
            )
            ends = page.eval_on_selector(
                "#honest .ideal", "line => ['x1', 'x2', 'y1', 'y2'].map(name => Number(line.getAttribute(name)))"
            )
            for (x, y), bin in zip(places, answer["bins"], strict=True):
                assert (x - ends[0]) / (ends[1] - ends[0]) == pytest.approx(bin["predicted"])
                assert (y - ends[2]) / (ends[3] - ends[2]) == pytest.approx(bin["liked"])
            page.click("#honest summary")
            cells = page.eval_on_selector_all("#honest tbody td:last-child", "cells => cells.map(c => c.textContent)")
            assert cells == [str(bin["pairs"]) for bin in answer["bins"]]
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            box = page.eval_on_selector("#honest svg", "svg => [svg.getBBox().x, svg.getBBox().width, svg.clientWidth]")
            assert box[0] >= 0  # nothing is cut off
            assert box[0] + box[1] <= box[2]
            assert serious_faults(page) == []
            page.wait_for_selector("#list li")
            page.click("#list li:first-child .like")  # of a user with events
            page.wait_for_selector("#likes button")
            assert page.is_hidden("#problem")
            page.close()


def test_by_keyboard_alone(opened: Any, client: Client) -> None:
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    while page.evaluate("document.activeElement.id") != "query":
        page.keyboard.press("Tab")
    page.keyboard.type("film 7")
    page.wait_for_selector("#matches li[aria-selected=true]")
    page.keyboard.press("Enter")
    page.wait_for_selector("#likes button")
    wait_until(page, f"document.querySelector('#list li').dataset.item === '{expected(client, ['i7'])[0]}'")
    while page.evaluate("document.activeElement.id") != "popularity":
        page.keyboard.press("Tab")
    page.keyboard.press("End")
    wait_until_listed(page, expected(client, ["i7"], popularity=1.5))
    while "title" not in page.evaluate("document.activeElement.className"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector(".reasons li")


def test_a_title_is_only_ever_text(opened: Any) -> None:
    page = opened("#like=i5")
    page.wait_for_selector("#likes button")
    assert page.text_content("#likes button") == EVIL
    page.fill("#query", "onerror")
    page.wait_for_selector("#matches li")
    assert page.text_content("#matches li") == EVIL
    assert page.query_selector_all("img") == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_fits_and_has_no_serious_fault(opened: Any, width: int, scheme: str) -> None:
    page = opened("#like=i7&like=i12", width, color_scheme=scheme)
    page.click("#list li:nth-child(2) .title")
    page.wait_for_selector(".reasons li")
    page.evaluate("document.querySelector('details').open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert serious_faults(page) == []


def test_the_page_is_small() -> None:
    folder = files("considerate.service").joinpath("page")
    assert sum(len(gzip.compress(path.read_bytes())) for path in folder.iterdir()) < 60_000
