"""Is H right? The AUC of judged pairs against pairs never rated, against brute force; and what evaluate says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from considerate import Recommender
from considerate.cli import app
from considerate.data.graph import Graph
from considerate.evaluation.bootstrap import interval
from considerate.evaluation.considered import (
    auc_by_user,
    consideration_scorers,
    considered_aucs,
    considered_report,
    judged_split,
)
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.scorer import FunctionScorer
from considerate.evaluation.split import HeldOut
from considerate.model.model import Model
from considerate.study.peers import training_matrix
from tests.helpers.likes import skewed

USERS, ITEMS = 60, 24


class Ratings:
    """Likes trained on, likes held out, judged pairs; some pairs twice, and rows where nothing can be compared."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        liked = skewed(USERS, ITEMS, seed).toarray() > 0
        self.held_out = liked & (random.random(liked.shape) < 0.2)
        self.held_out[:, :4] = False  # everyone keeps two likes
        self.train = liked & ~self.held_out
        self.judged = ~liked & (random.random(liked.shape) < 0.3)
        self.judged[3] = False  # a user who judged nothing
        self.judged[5] = ~liked[5]  # one who rated everything
        self.never = ~liked & ~self.judged
        graph = Graph.from_pairs(*(rows.astype(np.int32) for rows in self.train.nonzero()), USERS, ITEMS)
        self.held = HeldOut(graph, *self.held_out.nonzero())

    def split(self, **options: Any) -> HeldOut:
        users, items = self.judged.nonzero()
        a_like = np.argwhere(self.held_out)[0]  # rated low as well: it is a like
        found = judged_split(
            self.held, np.append(users, [users[0], a_like[0]]), np.append(items, [items[0], a_like[1]])
        )
        if options:
            found = judged_split(self.held, users, items, **options)
        assert found is not None
        return found

    def aucs(self, scores: Any) -> dict[int, float]:
        """By brute force: every judged item of a user against every item never rated."""
        found = {}
        for user in range(USERS):
            judged, never = scores[user][self.judged[user]], scores[user][self.never[user]]
            if len(judged) and len(never):
                wins = (judged[:, None] > never) + 0.5 * (judged[:, None] == never)
                found[user] = float(wins.mean())
        return found


@pytest.mark.parametrize("levels", [2, 5, 10**6])
def test_the_auc_is_over_every_judged_and_never_rated_pair(levels: int) -> None:
    ratings = Ratings()
    scores = np.random.default_rng(levels).integers(0, levels, (USERS, ITEMS)).astype(np.float64)
    split = ratings.split()
    found = auc_by_user(held_ranks(FunctionScorer(lambda rows: scores[rows], "scores"), split))
    expected = ratings.aucs(scores)
    assert np.unique(split.users).tolist() == list(expected)
    assert not {3, 5} & set(expected)  # nothing judged, nothing left to judge
    np.testing.assert_allclose(found, list(expected.values()), rtol=1e-12)


def test_scores_that_know_and_scores_that_do_not() -> None:
    ratings = Ratings()
    split = ratings.split()
    for sign, expected in ((1.0, 1.0), (0.0, 0.5), (-1.0, 0.0)):
        scorer = FunctionScorer(lambda rows, sign=sign: sign * ratings.judged[rows], "oracle")
        assert auc_by_user(held_ranks(scorer, split)).tolist() == [expected] * len(np.unique(split.users))


def test_nobody_to_tell_apart() -> None:
    ratings = Ratings()
    nothing = np.empty(0, np.int64)
    assert judged_split(ratings.held, nothing, nothing) is None
    all_of_one = np.flatnonzero(ratings.judged[5])
    assert judged_split(ratings.held, np.full(len(all_of_one), 5), all_of_one) is None


def test_too_many_scores_take_some_users_by_the_seed() -> None:
    ratings = Ratings()
    whole = ratings.split(most=USERS * ITEMS)
    some = [np.unique(ratings.split(seed=seed, most=10 * ITEMS + 1).users) for seed in (0, 0, 1)]
    assert [len(users) for users in some] == [10, 10, 10]
    assert some[0].tolist() == some[1].tolist() != some[2].tolist()
    part = ratings.split(seed=0, most=10 * ITEMS)
    assert np.array_equal(part.items, whole.items[np.isin(whole.users, some[0])])


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    matrix = training_matrix(Ratings().held.train)
    kinds = ("walk", "popularity")
    return {kind: Recommender(factors=3, sweeps=4, consideration=kind).fit(matrix).model_ for kind in kinds}


def test_the_scores_are_those_of_the_model(models: dict[str, Model]) -> None:
    ratings, model = Ratings(), models["walk"]
    scorers = {scorer.name: scorer.scores(np.arange(USERS)) for scorer in consideration_scorers(model)}
    assert list(scorers) == ["pi", "w", "a", "a + log w"]
    assert model.consideration is not None
    ratios = np.stack([model.consideration.ratios(np.flatnonzero(row)) for row in ratings.train])  # of training alone
    logits, _ = model.pair_logits(*np.indices((USERS, ITEMS)))
    np.testing.assert_array_equal(scorers["pi"], np.tile(model.log_popularity, (USERS, 1)))
    np.testing.assert_allclose(scorers["w"], model.log_popularity + np.log(ratios), atol=1e-5)
    np.testing.assert_allclose(scorers["a"], logits, atol=1e-5)
    np.testing.assert_allclose(scorers["a + log w"], scorers["w"] + scorers["a"], atol=1e-5)
    assert [scorer.name for scorer in consideration_scorers(models["popularity"])] == ["pi", "a"]


def test_the_report_has_means_and_intervals_over_users(models: dict[str, Model]) -> None:
    ratings = Ratings()
    split = ratings.split()
    said = considered_report(models["walk"], split, seed=2, resamples=50)
    aucs = considered_aucs(models["walk"], split)
    assert said["users"] == len(np.unique(split.users))
    assert said["pairs"] == len(split.users)
    assert list(said["auc"]) == list(aucs)
    for name, values in aucs.items():
        row = said["auc"][name]
        assert row["mean"] == pytest.approx(values.mean())
        assert (row["low"], row["high"]) == pytest.approx(interval(values, 2, resamples=50))


def run(*arguments: object) -> Any:
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(one) for one in arguments], prog_name="considerate")


def test_evaluate_says_how_well_it_knows_who_considers_what(tmp_path: Path) -> None:
    ratings = Ratings()

    def write(name: str, *parts: tuple[Any, int]) -> Path:
        rows = [(user, item, rating) for pairs, rating in parts for user, item in np.argwhere(pairs).tolist()]
        columns = dict(zip(("user", "item", "rating"), map(list, zip(*rows))))
        pq.write_table(pa.table(columns), tmp_path / name)
        return tmp_path / name

    test = write("test.parquet", (ratings.held_out, 5), (ratings.judged, 2))
    matrix = training_matrix(ratings.held.train)
    for kind, shown in (("walk", ["pi", "w", "a", "a + log w"]), ("popularity", ["pi", "a"])):
        recommender = Recommender(factors=3, sweeps=4, consideration=kind).fit(matrix)
        recommender.save(tmp_path / kind)
        options = (tmp_path / kind, test, "--where", "rating >= 4", "--resamples", 20)
        said = json.loads(run("evaluate", *options, "--json").stdout)["considered"]
        expected = considered_report(recommender.model_, ratings.split(), resamples=20)
        assert {key: said[key] for key in ("users", "pairs")} == {key: expected[key] for key in ("users", "pairs")}
        assert list(said["auc"]) == shown
        for name, row in said["auc"].items():
            assert row == pytest.approx(expected["auc"][name], rel=1e-9)
        text = run("evaluate", *options).stdout
        below = text[text.index("considered and not liked: ") :]
        assert f"{said['auc']['a']['mean']:.4f}" in below
        assert ("the walk from the user's likes" in below) == (kind == "walk")
        assert max(map(len, below.splitlines())) <= 80
        bare = tmp_path / f"{kind} bare"
        recommender.save(bare, likes=False)  # who never rated what is not known then
        assert json.loads(run("evaluate", bare, *options[1:], "--json").stdout)["considered"] is None
