"""Ids that a Number of JavaScript would round, on the page in a real browser."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from considerate import Recommender
from tests.helpers.browsers import PATIENCE
from tests.helpers.likes import planted
from tests.helpers.service_fixtures import Client, running

FIRST = 2**53  # each Number from here on is that of two ids or more
COUNT = 12


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    users, items = planted(120, 60, seed=3).nonzero()
    path: Path = tmp_path_factory.mktemp("page") / "model"
    likes = {"user": users.astype("int64") + FIRST, "item": -FIRST - items.astype("int64")}
    Recommender(factors=4, sweeps=4, opening=2, threads=1).fit(likes).save(path)
    return path


@pytest.fixture(scope="module")
def client(model_path: Path) -> Iterator[Client]:
    with running(model_path) as client:
        yield client


def listed(page: Any) -> list[int]:
    rows = page.eval_on_selector_all("#list li", "rows => rows.map(row => row.dataset.item)")
    return [int(row) for row in rows]


def opened(browser: Any, client: Client, state: str) -> Any:
    page = browser.new_page(reduced_motion="reduce")
    page.set_default_timeout(PATIENCE)
    page.goto(f"{client.base_url}/{state}")
    page.wait_for_selector("#list li")
    return page


def test_the_model_says_that_its_ids_are_integers(client: Client) -> None:
    answer = client.get("/v1/model").json()
    assert (answer["integer_users"], answer["integer_items"]) == (True, True)


@pytest.mark.parametrize("user", [FIRST + 20, FIRST + 21])
def test_each_of_two_users_of_one_number_gets_the_own_list(browser: Any, client: Client, user: int) -> None:
    page = opened(browser, client, f"#user={user}")
    expected = client.recommendations(str(user), n=COUNT)["items"]
    assert listed(page) == [item["item"] for item in expected]
    page.click("#list li:nth-child(2) .title")
    page.wait_for_selector(".reasons li")
    assert page.text_content("#why strong") == str(expected[1]["item"])
    page.close()


def test_the_lines_name_likes_as_the_model_does(browser: Any, client: Client, model_path: Path) -> None:
    likes = [-FIRST - 7, -FIRST - 12]
    page = opened(browser, client, f"#like={likes[0]}&like={likes[1]}")
    expected = client.post("/v1/recommendations", json={"likes": likes, "n": COUNT}).json()
    assert listed(page) == [item["item"] for item in expected["items"]]
    *before, last = page.text_content("#python").replace("model.safetensors", str(model_path)).splitlines()
    code = "\n".join([*before, f"print(*{last}['item'].to_pylist(), sep='\\n')"])
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [int(line) for line in ran.stdout.splitlines()] == listed(page)
    if shutil.which("curl") is not None:
        shell = subprocess.run(page.text_content("#curl"), shell=True, capture_output=True, text=True, check=True)
        assert [item["item"] for item in json.loads(shell.stdout)["items"]] == listed(page)
    page.close()
