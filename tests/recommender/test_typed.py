"""Results are typed: tables with typed rows, and no Any from a public function, as mypy --strict sees it."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import considerate
from considerate import Recommender, read_interactions
from considerate.errors import UsageError
from considerate.model.tables import Recommendation, Recommendations
from tests.helpers.likes import as_table, planted
from tests.helpers.paths import ROOT


@pytest.fixture(scope="module")
def model() -> Recommender:
    titles = pa.table({"item": ["i1", "i2"], "title": ["One", "Two"]})
    return Recommender(factors=3, sweeps=3).fit(read_interactions(as_table(planted()), titles=titles))


# --- Tables ---


def test_rows_are_typed(model: Recommender) -> None:
    table = model.recommend_table(["u1", "nobody"], 3, cold="popular")
    assert isinstance(table, Recommendations)
    rows = list(table)
    assert len(rows) == len(table) == table.num_rows == 6
    assert [row._asdict() for row in rows] == table.to_pylist()
    hints = typing.get_type_hints(Recommendation)
    for row in [*rows, *model.recommend_for(["i1"], 2)]:
        for name, value in row._asdict().items():
            assert isinstance(value, typing.get_args(hints[name]) or hints[name]), name
    assert [row.cold for row in rows] == [False] * 3 + [True] * 3
    untitled = Recommender(factors=2, sweeps=2).fit(planted()).recommend_table([1], 1)
    assert "title" not in untitled.column_names
    assert next(iter(untitled)).title is None


def test_columns_are_documented(model: Recommender) -> None:
    """By name and by type."""
    documented = inspect.getdoc(Recommendations) or ""
    for field in model.recommend_table(["u1"], 1).schema:
        assert field.name in Recommendation._fields
        name = {"float": "float32", "double": "float64"}.get(str(field.type), str(field.type))
        assert name in documented, field


def test_data_frames(model: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    table = model.recommend_table(["u1", "u2"], 3)
    arrow = table.to_arrow()
    pd.testing.assert_frame_equal(table.to_pandas(), arrow.to_pandas())
    assert table.to_polars().equals(pl.DataFrame(arrow))
    assert pl.DataFrame(table).equals(pl.DataFrame(arrow))
    assert pa.table(table).equals(arrow)
    for package in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UsageError, match=rf"needs {package}; .*: pip install 'considerate\[{package}\]'"):
            getattr(table, f"to_{package}")()


def test_a_table_of_rows_is_an_arrow_table(model: Recommender) -> None:
    table, other = model.recommend_table(["u1"], 3), model.recommend_table(["u2"], 3)
    assert table == model.recommend_table(["u1"], 3) == table.to_arrow()
    assert table != other
    assert table != "u1"
    assert table["item"].to_pylist() == table.to_pydict()["item"]
    assert table.slice(0, 1).num_rows == 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = table.no_such_thing  # type: ignore[attr-defined]


def test_a_table_of_rows_prints_well(model: Recommender) -> None:
    lines = repr(model.recommend_table(["u1"], 3)).splitlines()
    assert lines[0].split() == model.recommend_table(["u1"], 3).column_names
    assert len(lines) == 4
    assert lines[1].startswith("u1")
    many = repr(model.recommend_table(N=3))
    assert many.splitlines()[-1] == "... 580 rows more"
    assert "None" not in many


# --- No Any ---

ANSWERS_ANY = {
    "Recommender.get_params": "scikit-learn's: Recommender(**model.get_params()) must pass",
    "GraphRecommender.get_params": "the same",
}
FOREIGN = ("pandas", "polars", "pyarrow", "matplotlib")  # their classes are typed where their stubs are installed


def public_functions() -> dict[str, Any]:
    """The functions of the package, and the methods of its classes and of the results that they give."""
    found = {}
    for name in considerate.__all__:
        value = getattr(considerate, name)
        if inspect.isfunction(value):
            found[name] = value
    results = (considerate.model.names.Ranked, Recommendations, considerate.model.find.FoundItem)
    for kind in (
        Recommender,
        considerate.GraphRecommender,
        considerate.Interactions,
        considerate.RankingOptions,
        *results,
    ):
        for name, value in inspect.getmembers(kind):
            if not name.startswith("_") and getattr(value, "__module__", "").startswith("considerate"):
                found[f"{kind.__name__}.{name}"] = inspect.unwrap(getattr(value, "__func__", value))
            elif isinstance(inspect.getattr_static(kind, name), property):
                found[f"{kind.__name__}.{name}"] = inspect.getattr_static(kind, name).fget
    return found


def has_any(hint: Any) -> bool:
    """Whether Any is in a type, but as the shape of an array."""
    if hint is Any or hint is inspect.Parameter.empty:
        return True
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is np.ndarray:
        arguments = arguments[1:]
    return any(has_any(argument) for argument in arguments if argument is not Ellipsis)


def test_no_public_function_returns_any() -> None:
    functions = public_functions()
    assert len(functions) > 50
    for name, function in functions.items():
        if name in ANSWERS_ANY:
            continue
        returned = inspect.signature(function).return_annotation
        assert returned is not inspect.Parameter.empty, name
        if isinstance(returned, str):
            foreign = any(f"{module}." in returned for module in FOREIGN)
            scope = vars(typing) | vars(sys.modules[function.__module__])
            returned = object if foreign else eval(returned, scope)
        assert not has_any(returned), f"{name} returns {returned}"


SCRIPT = """
from considerate import Recommender, evaluate, read_interactions

model = Recommender(factors=8).fit("ratings.parquet", where="rating >= 4", titles="items.parquet")
likes = read_interactions("ratings.parquet", where="rating >= 4")
for row in model.recommend_table(["ann"], N=10, popularity=0.0):
    reveal_type(row.p_like)
    reveal_type(row.item)
ids, scores = model.recommend("ann")
reveal_type(ids)
reveal_type(scores)
reveal_type(model.predict_proba("ann", "dune"))
reveal_type(model.predict_proba("ann", ["dune", "solaris"]))
reveal_type(model.predict_logit(7, 8))
reveal_type(model.find("dune")[0].title)
reveal_type(model.similar_items("dune").scores)
reveal_type(model.explain("ann", "dune").liked_because)
reveal_type(model.item_ids())
reveal_type(model.titles(["dune"]))
reveal_type(model.score(likes))
reveal_type(model.partial_fit_users(["eve"], [["dune"]]))
reveal_type(Recommender.load("model.safetensors"))
reveal_type(evaluate(model, likes)["popularity"].metrics["NDCG@20"].mean)
"""


@pytest.mark.slow
def test_a_users_script_under_mypy_strict(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    options = ["--strict", "--cache-dir", str(ROOT / ".mypy_cache" / "script"), "--no-error-summary"]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={"MYPYPATH": str(Path(considerate.__file__).parents[1]), "PATH": ""},
    )
    said = ran.stdout.replace("tuple[Any, ...]", "shape")  # numpy's arrays have no typed shape
    assert ran.returncode == 0, said + ran.stderr
    assert said.count("Revealed type") == SCRIPT.count("reveal_type")
    assert "Any" not in said, said
