"""Items by their titles: `find`, `considerate find`, `considerate similar`, and titles where an item is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from considerate import Recommender, read_interactions
from considerate.cli import app
from considerate.errors import UnknownIdError, UsageError
from considerate.model.find import item_called
from tests.helpers.likes import as_table, planted

TITLES = {
    1: "Dune",
    2: "Dune Messiah",
    3: "Children of Dune",
    4: "Sanddunes",
    5: "The Dunes of Mars",
    6: "DUNE: part two",
    7: "Amélie",
    8: "El Niño",
    9: "WALL·E",
    10: "Der Große Wagen",
    11: "Red",
    12: "Red",
}


@pytest.fixture(scope="module")
def model() -> Recommender:
    titles = pa.table({"item": [f"i{n}" for n in TITLES], "title": list(TITLES.values())})
    return Recommender(factors=3, sweeps=3).fit(read_interactions(as_table(planted()), titles=titles))


@pytest.fixture(scope="module")
def path(model: Recommender, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("find") / "model"
    model.save(file)
    return str(file)


def run(*arguments: object) -> object:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"], prog_name="considerate")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refusal(*arguments: object) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)), prog_name="considerate")
    assert result.exit_code == 2
    assert result.stdout == ""
    return result.stderr


def test_the_best_match_comes_first_and_then_the_most_liked(model: Recommender) -> None:
    found = model.find("dune")
    degree = dict(zip(model.item_ids().tolist(), model.model_.item_degree.tolist()))
    assert [match.likes for match in found] == [degree[match.item] for match in found]
    by_likes = [sorted(group, key=lambda item: -degree[item]) for group in (["i2", "i6"], ["i3", "i5"])]
    assert [match.item for match in found] == ["i1", *by_likes[0], *by_likes[1], "i4"]
    assert found[0] == ("i1", "Dune", degree["i1"])
    assert model.find("dune", N=2) == found[:2]


@pytest.mark.parametrize(
    ("text", "item"),
    [
        ("amelie", "i7"),
        ("AMÉLIE", "i7"),
        ("amélie", "i7"),
        ("nino", "i8"),
        ("el  nino", "i8"),
        ("wall-e", "i9"),
        ("GROSSE", "i10"),
        ("große wag", "i10"),
        ("dune part two", "i6"),
        ("I39", "i39"),
    ],
)
def test_case_accents_and_punctuation_do_not_matter(model: Recommender, text: str, item: str) -> None:
    """An item without a title is found by its id."""
    assert [match.item for match in model.find(text)] == [item]


def test_nothing_and_no_text(model: Recommender) -> None:
    assert model.find("no such film") == []
    for wrong in ("", " ?! ", 7, None):
        with pytest.raises(UsageError, match="give some letters or digits of a title"):
            model.find(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="N is 0"):
        model.find("dune", 0)


def test_one_item_by_id_title_or_a_part_of_it(model: Recommender) -> None:
    fitted = model.model_
    for text, item in (("i4", "i4"), ("dune", "i1"), ("messiah", "i2"), ("Amelie", "i7"), ("i39", "i39")):
        assert item_called(fitted, text) == item
    with pytest.raises(UsageError, match=r"item 'red' may be one of 2: i1[12] \(Red\), i1[12] \(Red\); give an id"):
        item_called(fitted, "red")
    with pytest.raises(UsageError, match=r"item 'dun' may be one of 6: .*i1 \(Dune\)"):
        item_called(fitted, "dun")
    with pytest.raises(UsageError, match=r"item 'i' may be one of \d+: .*, and \d+ more; give an id"):
        item_called(fitted, "i")
    for text in ("no such film", "?"):
        with pytest.raises(UnknownIdError, match="is not in the model, which knows 40 items, and no title has it"):
            item_called(fitted, text)


def test_find_in_the_shell(model: Recommender, path: str) -> None:
    assert run("find", path, "dune", "-n", 3) == [match._asdict() for match in model.find("dune", 3)]
    assert run("find", path, "no", "such", "film") == []
    shown = CliRunner().invoke(app, ["find", path, "el", "nino"], prog_name="considerate")
    assert "El Niño" in shown.stdout
    shown = CliRunner().invoke(app, ["find", path, "no such film"], prog_name="considerate")
    assert (shown.exit_code, shown.stdout) == (0, "no title has 'no such film'.\n")
    assert "letters or digits" in refusal("find", path, "?")


def test_similar_in_the_shell(model: Recommender, path: str) -> None:
    found = run("similar", path, "messiah", "-n", 4)
    assert isinstance(found, list)
    ids, cosines = model.similar_items("i2", 5)
    assert [row["item"] for row in found] == ids[1:].tolist()
    assert [row["rank"] for row in found] == [1, 2, 3, 4]
    assert [row["title"] for row in found] == model.titles(ids[1:])
    np.testing.assert_allclose([row["cosine"] for row in found], cosines[1:], rtol=1e-6)
    assert found == run("similar", path, "i2", "-n", 4)
    shown = CliRunner().invoke(app, ["similar", path, "i2"], prog_name="considerate")
    assert "like Dune Messiah" in shown.stdout
    assert "item 'red' may be one of 2: " in refusal("similar", path, "red")


def test_titles_where_the_shell_asks_for_an_item(path: str, tmp_path: Path) -> None:
    liked = tmp_path / "liked.txt"
    liked.write_text("Amélie\nmessiah\n")
    assert run("recommend", path, "--items", f"@{liked}") == run("recommend", path, "--items", "i7", "--items", "i2")
    allowed = run("recommend", path, "u1", "--allow", "amelie", "--allow", "wall e", "--include-liked")
    assert isinstance(allowed, list)
    assert {row["item"] for row in allowed} == {"i7", "i9"}
    assert run("recommend", path, "u1", "--deny", "amelie") == run("recommend", path, "u1", "--deny", "i7")
    explained = run("recommend", path, "--items", "messiah", "--explain")
    assert isinstance(explained, list)
    assert explained[0]["because"][0]["title"] == "Dune Messiah"
    for option in ("--items", "--allow", "--deny"):
        who = [] if option == "--items" else ["u1"]
        assert "item 'red' may be one of 2: " in refusal("recommend", path, *who, option, "red")
        assert "item 'x y' is not in the model" in refusal("recommend", path, *who, option, "x y")
