"""Thirty things that a new user does, each in at most three lines. `python newcomer.py` runs them all.

It needs the installed package and nothing else: no pytest, no extras. What needs an extra is left out where that is not
installed. `tests/recommender/test_newcomer.py` runs every thing as a test, and all of them against a wheel.
"""

from __future__ import annotations

import random
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MOST_LINES = 3
THINGS = """
# fit a model to a CSV file
from considerate import Recommender
model = Recommender(factors=8, threads=1).fit("ratings.csv", where="rating >= 4", titles="books.csv")
assert list(model.user_ids([0])) == [1000]

# recommend to a user, by the id of the data
ids, scores = model.recommend(1003, N=3)
assert len(ids) == 3 and set(ids) <= BOOKS and sorted(scores, reverse=True) == list(scores)

# recommend to several users
ids, scores = model.recommend([1003, 1004, 1005], N=3)
assert ids.shape == (3, 3)

# see titles, p(like), its interval and p(considered)
table = model.recommend_table([1003], N=3)
assert table.column_names[:5] == ["user", "rank", "item", "title", "p_like"]
assert {"low", "high", "p_considered", "score"} <= set(table.column_names)

# get it as a data frame of pandas (needs pandas)
frame = model.recommend_table([1003], N=3).to_pandas()
assert list(frame["rank"]) == [1, 2, 3]

# rank by liking alone, then by popularity too
liking = model.recommend(1003, N=5, popularity=0, lift=0)
popular = model.recommend(1003, N=5, popularity=3)
assert list(liking.ids) != list(popular.ids)

# ask how likely a user is to like an item, if they consider it
p = model.predict_proba(1003, 507)
assert 0 < p < 1

# ask it of many pairs at once
p = model.predict_proba([1003, 1004], [507, 514])
assert p.shape == (2,)

# find an item by its title, whatever the case and accents
found = model.find("emile")
assert [hit for hit in found][0].title == "Émile"

# find what is like it
ids, scores = model.similar_items(507, N=4)
assert set(ids) <= BOOKS

# find users of the same taste
ids, scores = model.similar_users(1003, N=4)
assert set(ids) <= USERS

# ask why an item is recommended
explanation = model.explain(1003, 507)
assert set(liked for liked, _ in explanation[1]) <= BOOKS

# recommend to someone who is not in the data
table = model.recommend_for([500, 514], N=3)
assert not {500, 514} & set(table["item"].to_pylist())

# add a user, by id
model.partial_fit_users(["9001"], [[500, 514]])
ids, scores = model.recommend(9001, N=3)
assert set(ids) <= BOOKS

# do not recommend some items
ids, scores = model.recommend(1003, N=3, filter_items=[507, 521])
assert not {507, 521} & set(ids)

# choose among some items only
ids, scores = model.recommend(1003, N=3, items=[507, 521, 535, 549])
assert set(ids) <= {507, 521, 535, 549}

# recommend things that differ
plain = model.recommend(1003, N=5)
varied = model.recommend(1003, N=5, diversity=0.9)
assert plain.ids[0] == varied.ids[0]

# save and load
model.save("model.safetensors")
model = Recommender.load("model.safetensors")
assert model.titles([500]) == ["Dune"]

# fit to a matrix of scipy, as with implicit
import scipy.sparse as sp
matrix = sp.random(30, 20, 0.3, "csr", random_state=0).ceil()
ids, scores = Recommender(factors=4, threads=1, sweeps=3).fit(matrix).recommend(0, matrix[0], N=4)
assert ids.max() < 20

# fit to two arrays
likes = {"user": ["ann", "ann", "bob", "bob"], "item": ["tea", "rum", "tea", "gin"]}
small = Recommender(factors=2, threads=1, sweeps=3).fit(likes)
assert small.recommend("ann", N=1).ids[0] == "gin"

# fit to a data frame of pandas (needs pandas)
import pandas
frame = pandas.read_csv("ratings.csv")
model_of_frame = Recommender(factors=8, threads=1, sweeps=3).fit(frame, where="rating >= 4")
assert set(model_of_frame.recommend(1003, N=3).ids) <= BOOKS

# hold out everyone's latest like and see how well it ranks, beside popularity
from considerate import evaluate
how = {"split": "latest", "where": "rating >= 4", "time_column": "when"}
result = evaluate(Recommender(factors=8, threads=1), "ratings.csv", **how)
assert "NDCG@20" in str(result) and "popularity" in str(result)

# let held-out likes choose the knobs
tuned = Recommender(factors=8, threads=1, popularity="auto").fit("ratings.csv", where="rating >= 4")
assert tuned.chosen_ is not None

# keep part of the data for the next step, and score on it
before = Recommender(factors=8, threads=1).fit("ratings.csv", where="rating >= 4 and when < 1605000000")
score = before.score("ratings.csv", where="rating >= 4 and when >= 1605000000")
assert 0 <= score <= 1

# fit in the shell
$ considerate fit ratings.csv --where "rating >= 4" --titles books.csv --factors 8 -o shell.safetensors

# recommend in the shell
$ considerate recommend shell.safetensors 1003 -n 3

# look for a title in the shell
$ considerate find shell.safetensors dune

# and for what is similar, by title
$ considerate similar shell.safetensors Émile

# write everyone's recommendations to a file
$ considerate recommend shell.safetensors --all-users -n 5 -o everyone.parquet
assert Path("everyone.parquet").stat().st_size > 1000

# look at what is in a file
$ considerate inspect shell.safetensors
"""


@dataclass(frozen=True)
class Thing:
    """One thing: what it is, its lines, and what must then be true."""

    what: str
    lines: tuple[str, ...]
    checks: tuple[str, ...]

    @property
    def extra(self) -> str | None:
        """The extra that it needs."""
        return self.what.partition("(needs ")[2].rstrip(")") or None


def things() -> list[Thing]:
    found = []
    for block in THINGS.strip().split("\n\n"):
        first, *lines = block.splitlines()
        uses = tuple(line for line in lines if not line.startswith("assert "))
        checks = tuple(line for line in lines if line.startswith("assert "))
        found.append(Thing(first.removeprefix("# "), uses, checks))
    return found


def write_files() -> None:
    """Readers of two tastes, and the books they rated. No id is a row number."""
    chance = random.Random(0)
    rows = ["reader,book,rating,when"]
    for user in range(120):
        for book in range(40):
            if chance.random() < (0.35 if user % 2 == book % 2 else 0.03):
                when = 1_600_000_000 + chance.randrange(10**7)
                rows.append(f"{1000 + user},{500 + 7 * book},{chance.randint(3, 5)},{when}")
    Path("ratings.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    titles = ["Dune", "Émile", "Dune Messiah", *(f"Book {number}" for number in range(3, 40))]
    lines = [f"{500 + 7 * book},{title}" for book, title in enumerate(titles)]
    Path("books.csv").write_text("\n".join(["book,title", *lines]) + "\n", encoding="utf-8")


def names() -> dict[str, Any]:
    """What the checks know."""
    return {
        "BOOKS": {500 + 7 * book for book in range(40)},
        "USERS": {1000 + user for user in range(120)},
        "Path": Path,
    }


def do(thing: Thing, known: dict[str, Any]) -> None:
    """Its lines, and then its checks."""
    code = []
    for line in thing.lines:
        if line.startswith("$ "):
            shell(line.removeprefix("$ "))
        else:
            code.append(line)
    exec("\n".join(code), known)
    for check in thing.checks:
        exec(check, known)


def shell(line: str) -> None:
    _, *arguments = shlex.split(line)
    program = [sys.executable, "-c", "from considerate.cli import main; main()"]
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    assert done.stdout or "-o" in arguments, f"{line} printed nothing"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        import os

        os.chdir(folder)
        write_files()
        known = names()
        for number, thing in enumerate(things(), 1):
            if thing.extra is not None and find_spec(thing.extra) is None:
                print(f"{number:2} {thing.what}: not installed")
                continue
            do(thing, known)
            print(f"{number:2} {thing.what}")
        os.chdir("/")


if __name__ == "__main__":
    main()
