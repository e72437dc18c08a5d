"""p(considered): the other half of p(g = 1), beside p(like); and the likes that lead to an item."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from considerate import Recommender, cli
from considerate.cli import describe
from considerate.cli.describe import describe_model
from considerate.data.graph import Adjacency, Graph, row_blocks
from considerate.inference.hidden import Consideration, Draws, Sampled
from considerate.inference.hidden.saturation import GRID_STEP, Saturation
from considerate.kernels import compiled
from considerate.model.considered import consideration_weights, considered_probability
from considerate.model.liking import sigmoid
from considerate.model.model import Model
from tests.helpers.likes import planted, skewed
from tests.helpers.naive_draws import temperature


def fitted(likes: sp.csr_matrix, **settings: object) -> Recommender:
    options = {"consideration": "walk", "factors": 4, "sweeps": 5, "negatives": 2.0, "neighbours": 12, "threads": 1}
    options |= {"mixing": 0.05, "opening": 0}
    return Recommender(**(options | settings)).fit(likes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def walked() -> Recommender:
    return fitted(skewed())


def reference(weights: np.ndarray, shut: np.ndarray, count: float) -> np.ndarray:
    """1 - exp(-T w) of every item, in all `count`: 0 where it is shut, all 1 where no more items have a weight."""
    others = weights.copy()
    others[shut] = 0.0
    if count >= (others > 0).sum():
        return (others > 0).astype(float)
    return -np.expm1(-temperature(weights, shut.tolist(), count) * others)


def reference_weights(model: Model, user: int) -> np.ndarray:
    """w' of every item for a user of the model: 1 of likes."""
    liked, table = model.users.whole().liked.row(user), model.consideration
    own = model.popularity / model.popularity.sum() if table is None else table.ratios(liked) * table.p
    unliked = min(model.plan.negatives * len(liked), (np.delete(model.popularity, liked) > 0).sum())
    weights = reference(own, liked, unliked) * (len(liked) / unliked if unliked else 1.0)
    weights[liked] = 1.0
    return weights


def everything(users: int, items: int) -> Adjacency:
    return Adjacency(np.arange(users + 1, dtype=np.int64) * items, np.tile(np.arange(items, dtype=np.int32), users))


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("rate", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("mix", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("shape", [(40, 30, 0.1), (30, 61, 0.5), (12, 8, 0.8), (60, 400, 0.03)])
def test_the_kernel_is_the_definition(shape: tuple[int, int, float], mix: float, rate: float, closed: bool) -> None:
    """Users of one like, of nearly all, of all and of none; items that nobody liked; dense and sparse rows; items that
    are impossible, some of them liked."""
    users, items, density = shape
    random = np.random.default_rng(users)
    likes = random.random((users, items)) < density * random.random(items) * 2
    likes[:, -2:] = False  # nobody's
    likes[0], likes[1], likes[2, :-3] = False, np.arange(items) < items - 2, True
    pairs = np.nonzero(likes)
    graph = Graph.from_pairs(*(side.astype(np.int32) for side in pairs), users, items)
    weights = np.bincount(pairs[1], minlength=items) ** 0.8
    table = Consideration.of_graph(graph.by_user, graph.by_item, weights, 7, mix)
    both = graph.by_user, everything(users, items)
    arrays = (array for lists in both for array in (lists.starts, lists.indices))
    sums = Saturation(weights)
    by_popularity = weights, sums.total, sums.table, sums.grid_start, GRID_STEP
    degrees = graph.by_user.degrees
    shut = Adjacency.of_rows([np.flatnonzero(random.random(items) < 0.2 * closed).astype(np.int32) for _ in likes])
    more = (rate * degrees, shut.starts, shut.indices) if closed else (rate * degrees,)
    chances = compiled.own_inclusion(table.table(table.items), *by_popularity, *arrays, *more).reshape(users, items)
    np.testing.assert_array_equal(np.isnan(chances), np.repeat(degrees[:, None] == 0, items, axis=1))
    for user in np.flatnonzero(degrees):
        liked = graph.by_user.row(user)
        count = rate * len(liked)
        wanted = reference(table.ratios(liked) * table.p, np.union1d(liked, shut.row(user)), count)
        np.testing.assert_allclose(chances[user], wanted, rtol=2e-5, atol=1e-12)
        assert chances[user].sum() == pytest.approx(min(count, (wanted > 0).sum()), rel=2e-6)


def test_the_two_halves_make_the_chance_of_a_like() -> None:
    """p(h = 1) by Bayes' rule over the four cases; and p(h = 1) s has the logit a + log w' (eq. 4)."""
    for mean in (-30.0, -2.0, 0.0, 1.5, 30.0):
        for w in (1e-9, 0.01, 0.4, 1.0):
            half = float(considered_probability(np.array(w), np.array(mean)))
            s = float(sigmoid(np.array(mean)))
            considered_only, liked = half * (1.0 - s), half * s
            assert considered_only / (1.0 - liked + 1e-300) == pytest.approx(w, rel=1e-3)
            if abs(mean) < 10:
                assert np.log(liked) - np.log1p(-liked) == pytest.approx(mean + np.log(w), abs=1e-9)
    assert considered_probability(np.array([1.0, 1.7, 40.0]), np.array([-3.0, 0.0, 3.0])).tolist() == [1.0] * 3


@pytest.mark.parametrize("consideration", ["walk", "popularity"])
@pytest.mark.parametrize("negatives", [0.7, 1.0, 5.0])
def test_the_weights_are_the_definition(consideration: str, negatives: float) -> None:
    """w' = w(c) d / k, of users who run out of items too, and of one who likes all that there are."""
    likes = skewed().tolil()
    likes[9] = 1.0
    model = fitted(likes.tocsr(), consideration=consideration, negatives=negatives, sweeps=2).model_
    liked, everything = model.users.whole().liked, np.tile(np.arange(60, dtype=np.int32), (300, 1))
    found = consideration_weights(model, liked, everything).reshape(300, 60)
    for user in range(300):
        np.testing.assert_allclose(found[user], reference_weights(model, user), rtol=5e-5, atol=1e-12)
    ran_out = (1.0 + negatives) * liked.degrees > 60
    assert ran_out.any()
    open_items = ~np.isin(np.arange(300 * 60), liked.edge_rows * 60 + liked.indices).reshape(300, 60)
    np.testing.assert_allclose((found * open_items).sum(axis=1), liked.degrees * (np.arange(300) != 9), rtol=2e-6)
    some = np.array([9, 3])
    again = consideration_weights(model, liked.take(some), everything[:2]).reshape(2, 60)
    np.testing.assert_array_equal(again, found[some])


@pytest.mark.parametrize("consideration", ["walk", "popularity"])
def test_the_table_has_both_halves(consideration: str) -> None:
    recommender = fitted(skewed(), consideration=consideration)
    model, users = recommender.model_, [3, 0, 250]
    shown = recommender.recommend_table(users, N=60, filter_already_liked_items=False)
    names = ["user", "rank", "item", "p_like", "low", "high", "p_considered", "score", "cold"]
    assert shown.column_names == names
    for user in users:
        rows = shown.to_pandas()[lambda frame, user=user: frame["user"] == user]
        items = rows["item"].to_numpy()
        weight = reference_weights(model, user)[items]
        s = sigmoid(np.asarray(recommender.predict_logit(user, items)[0], np.float64))
        wanted = np.minimum(1.0, weight / (1.0 - s + weight * s))
        np.testing.assert_allclose(rows["p_considered"], wanted, rtol=5e-5, atol=1e-12)
    new = recommender.recommend_for(model.users.whole().liked.row(3).tolist(), N=5)
    side = recommender.fold_in(model.users.whole().liked.row(3))
    mean = side.mean[0] @ recommender.item_factors.T + model.items.biases[0]
    weight, s = reference_weights(model, 3), sigmoid(mean.astype(np.float64))
    wanted = (weight / (1.0 - s + weight * s))[new["item"].to_numpy()]
    np.testing.assert_allclose(new["p_considered"], wanted, rtol=5e-5)


def test_p_considered_is_null_where_nothing_says_how_much_is_considered(walked: Recommender, tmp_path: Path) -> None:
    """Of a user who is unknown, and of everyone in a model without likes; a new user's likes are given."""
    table = walked.recommend_table([3, 9999], N=3, cold="popular")
    assert [value is None for value in table["p_considered"].to_pylist()] == [False] * 3 + [True] * 3
    walked.save(tmp_path / "model.safetensors", likes=False)
    without = Recommender.load(tmp_path / "model.safetensors")
    assert without.recommend_table([3], N=3)["p_considered"].null_count == 3
    assert without.recommend_for([1, 2], N=3)["p_considered"].null_count == 0
    assert without.explain(3, 5, user_items=[]).p_considered is None


@pytest.mark.parametrize("hidden", ["expected", "half-edges"])
def test_p_considered_is_by_popularity_where_h_was(hidden: str) -> None:
    """The closed form and half-edges know pi alone, whatever ranks."""
    by_walk, by_popularity = (
        fitted(skewed(), hidden=hidden, consideration=kind).recommend_table([3, 0, 250], N=5, popularity=1.0, lift=0.0)
        for kind in ("walk", "popularity")
    )
    assert by_walk["item"].equals(by_popularity["item"])
    assert by_walk["p_considered"].equals(by_popularity["p_considered"])


def test_the_order_by_score_is_that_of_the_product() -> None:
    """With both weights 1 the score is a + log w and a constant: the order of p(g = 1), where w is not saturated."""
    recommender = fitted(planted(300, 800, clusters=4, inside=0.03, across=0.002), neighbours=40)
    compared = 0
    table = recommender.recommend_table(N=800, popularity=1.0, lift=1.0).to_pandas()
    for user, rows in table.groupby("user"):
        mean = np.asarray(recommender.predict_logit(user, rows["item"].to_numpy())[0], np.float64)
        half = rows["p_considered"].to_numpy().astype(np.float64)
        product = half * sigmoid(mean)
        w = half * (1.0 - sigmoid(mean)) / (1.0 - product)
        unsaturated = (w < 0.01) & (w > 0)
        falls = product[unsaturated]  # in the order of the scores
        assert (falls[1:] <= falls[:-1] * 1.006).all()  # log(1 - exp(-x)) is log(x) - x / 2
        compared += len(falls)
    assert compared > 0.6 * 300 * 800


def test_threads_and_batches_give_the_same_bits(walked: Recommender) -> None:
    once = walked.recommend_table(N=4)["p_considered"].to_numpy()
    again = Recommender(**walked.get_params() | {"threads": 3})
    again._model = walked.model_
    np.testing.assert_array_equal(again.recommend_table(N=4)["p_considered"].to_numpy(), once)
    batches = [batch["p_considered"].to_numpy() for batch in walked.recommend_batches(N=4, batch=17)]
    np.testing.assert_array_equal(np.concatenate(batches), once)


def test_explain_says_which_likes_lead_to_an_item(walked: Recommender) -> None:
    """The shares of w, by brute force; they and popularity's add up to 1."""
    model, table = walked.model_, walked.model_.consideration
    assert table is not None
    dense = np.zeros((model.item_count, model.item_count))
    for row in range(model.item_count):
        entries = slice(table.starts[row], table.starts[row + 1])
        dense[row, table.items[entries]] = table.shares[entries]
    for user, item in ((3, 1), (10, 0), (10, 55), (77, 30)):
        liked = model.users.whole().liked.row(user)
        led = (1.0 - table.mix) / len(liked) * dense[liked, item]
        total = (table.ratios(liked) * table.p)[item]
        why = walked.explain(user, item, N=60)
        assert dict(why.considered_because) == pytest.approx(
            {int(one): share for one, share in zip(liked, led / total) if share > 0}, rel=1e-6
        )
        assert sum(share for _, share in why.considered_because) + why.by_popularity == pytest.approx(1.0)
        assert why.by_popularity == pytest.approx(1.0 - led.sum() / total, rel=1e-6)
        shares = [share for _, share in why.considered_because]
        assert shares == sorted(shares, reverse=True)
        assert walked.explain(user, item, N=2).considered_because == why.considered_because[:2]
    table_row = walked.recommend_table([3], N=1).to_pylist()[0]
    assert walked.explain(3, table_row["item"]).p_considered == pytest.approx(table_row["p_considered"], rel=1e-6)


def test_an_explanation_is_the_pair_that_it_was(walked: Recommender) -> None:
    why = walked.explain(3, 1)
    probability, reasons = why
    assert (probability, reasons) == (why.p_like, why.liked_because) == why
    copy = pickle.loads(pickle.dumps(why))
    assert copy == why
    assert vars(copy) == vars(why)
    blind = fitted(skewed(), consideration="popularity").explain(3, 50)
    assert (blind.considered_because, blind.by_popularity) == ([], 1.0)
    assert 0.0 < blind.p_considered < 1.0


def test_what_leads_to_an_item_is_of_its_cluster() -> None:
    """Two kinds of users and of items: likes of the item's own kind lead to it."""
    recommender = fitted(planted(across=0.06), neighbours=40)
    for user in range(0, 200, 21):
        item = int(recommender.recommend(user, N=1)[0][0])
        led = recommender.explain(user, item, N=40).considered_because
        same = sum(share for one, share in led if one % 2 == item % 2)
        assert same > 0.7 * sum(share for _, share in led)


# --- considerate inspect on a model ---


@pytest.fixture(scope="module")
def files(walked: Recommender, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    walked.save(folder / "walk.safetensors")
    walked.save(folder / "shards", shards=3)
    walked.save(folder / "without.safetensors", likes=False)
    return folder


@pytest.mark.parametrize("name", ["walk.safetensors", "shards"])
def test_inspect_shows_what_p_like_keeps_of_popularity(walked: Recommender, files: Path, name: str) -> None:
    """The correlation of biases with log degree; draws per like by degree, by the walk and by popularity."""
    said, model = describe_model(files / name), walked.model_
    wanted = np.corrcoef(model.items.biases[0], np.log(model.item_degree))[0, 1]
    assert said["bias_popularity_correlation"] == pytest.approx(wanted)
    table, liked = model.consideration, model.users.whole().liked
    kept = 1.0 - np.mean([table.rest[item] for item in liked.indices])
    assert said["consideration"] == {
        "kind": "walk",
        "neighbours": 12,
        "mixing": 0.05,
        "opening": 0,
        "mass_kept": pytest.approx(kept, rel=1e-5),
    }
    rows = said["draws_per_like"]["by_degree"]
    assert [(row["first"], row["last"]) for row in rows] == [(1, 4), (5, 9), (10, 31), (32, 99), (100, 315)]
    for kind, draws in (("walk", Draws.of(model.popularity, table)), ("popularity", Draws.of(model.popularity))):
        drawn = Sampled(liked, row_blocks(liked.starts), draws, 2.0, 0).draw(1).indices
        for row in rows:
            inside = (model.item_degree >= row["first"]) & (model.item_degree <= row["last"])
            assert row["likes"] == model.item_degree[inside].sum()
            assert row[kind] == pytest.approx(inside[drawn].sum() / row["likes"])
    assert sum(row["walk"] * row["likes"] for row in rows) == pytest.approx(2.0 * liked.edges, rel=0.05)


def test_inspect_fits_the_terminal(files: Path) -> None:
    shown = run("inspect", files / "walk.safetensors", columns=80)
    for words in ("by the walk, 12 neighbours", "mixing 0.05", "lift 1", "with log degree", "unliked edges per like"):
        assert words in " ".join(shown.split())
    assert max(len(line) for line in shown.splitlines()[1:]) <= 80
    assert "the likes were left out of the file" in run("inspect", files / "without.safetensors")
    assert describe_model(files / "without.safetensors")["draws_per_like"] is None


def test_the_draws_of_very_many_likes_are_of_the_first_users(
    files: Path, walked: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe, "MOST_LIKES", 500)
    said = describe_model(files / "shards")["draws_per_like"]
    liked = walked.model_.users.whole().liked
    assert said["users"] == np.searchsorted(liked.starts, 500, side="right") - 1
    assert sum(row["likes"] for row in said["by_degree"]) == liked.starts[said["users"]]
    assert f"of the first {said['users']} users" in run("inspect", files / "shards")


def test_recommend_shows_both_kinds_of_reasons(files: Path) -> None:
    shown = run("recommend", files / "walk.safetensors", 3, "-n", 2, "--explain", columns=80)
    assert max(len(line) for line in shown.splitlines()) <= 80
    for words in ("considered", "popularity", "of the logit of p(like)", "of the chance to consider"):
        assert words in shown
    rows = json.loads(run("recommend", files / "walk.safetensors", 3, "-n", 2, "--explain", "--json"))
    model = Recommender.load(files / "walk.safetensors")
    for row in rows:
        why = model.explain(3, row["item"], N=3)
        assert [(one["item"], one["logit"]) for one in row["because"]] == why.liked_because
        assert [(one["item"], one["share"]) for one in row["considered_because"]] == why.considered_because
        assert row["by_popularity"] == why.by_popularity
        assert 0.0 < row["p_considered"] <= 1.0


def run(*arguments: object, columns: int = 200) -> str:
    environment = {"COLUMNS": str(columns), "TERM": "dumb"}
    result = CliRunner().invoke(cli.app, [str(one) for one in arguments], env=environment)
    assert result.exit_code == 0, result.output
    return result.stdout
