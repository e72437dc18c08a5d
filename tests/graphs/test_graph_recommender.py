"""GraphRecommender: edges in, links out; the same from either end of a pair, whatever the threads, and from a file."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from considerate import GraphRecommender, Recommender
from considerate.data import ReaderOptions
from considerate.data.edges import read_edges
from considerate.distributed import OutOfCore
from considerate.errors import DataError, ModelFileError, NotFittedError, UsageError
from considerate.evaluation.links import LinkTest, auc, edge_pairs, hide_edges, hits, sample_pairs
from considerate.inference.hidden.consideration import Lift
from considerate.inference.parts.vertices import GraphParameters
from considerate.inference.plan import Parameters
from considerate.model.links import Ratios
from considerate.storage.container import open_tensors, write_tensors
from tests.helpers import naive
from tests.helpers.shell import run as shell

SMALL = {"factors": 4, "sweeps": 12, "negatives": 3.0, "likelihood_weight": 1.5}


def friends(vertices: int = 60, groups: int = 4, seed: int = 0) -> pd.DataFrame:
    """Friendships within groups, some of them both ways, some twice, and one of a vertex with itself."""
    random = np.random.default_rng(seed)
    low, high = np.triu_indices(vertices, 1)
    linked = random.random(len(low)) < np.where(low % groups == high % groups, 0.5, 0.03)
    pairs = np.stack([low[linked], high[linked]], axis=1)
    pairs = np.concatenate([pairs, pairs[:7, ::-1], pairs[3:5], [[9, 9]]])
    return pd.DataFrame({"src": [f"v{m:02d}" for m in pairs[:, 0]], "dst": [f"v{n:02d}" for n in pairs[:, 1]]})


FRIENDS = friends()


@pytest.fixture(scope="module", params=[False, True], ids=["u'u", "u'Su"])
def model(request: pytest.FixtureRequest) -> GraphRecommender:
    return GraphRecommender(**SMALL, signed=request.param, threads=1).fit(FRIENDS)


# --- Reading ---


def test_edges_are_read_once_whatever_their_direction():
    edges = read_edges(FRIENDS, ReaderOptions())
    distinct = {tuple(sorted(pair)) for pair in FRIENDS.itertuples(index=False) if pair[0] != pair[1]}
    ids = np.array(edges.item_ids.ids_of(range(len(edges.item_ids))))
    assert set(zip(ids[edges.users], ids[edges.items])) == distinct
    assert edges.user_ids is edges.item_ids
    assert any("1 edges from a vertex to itself" in note for note in edges.notes)
    assert any("9 edges came again" in note for note in edges.notes)


@pytest.mark.parametrize("names", [("src", "dst"), ("Source", "Target"), ("from", "to"), ("user_id", "friend_id")])
def test_usual_names_of_the_ends_are_guessed(names):
    table = pd.DataFrame({"since": [1, 2, 3], names[1]: [2, 3, 1], names[0]: [1, 2, 3]})
    assert len(read_edges(table, ReaderOptions()).users) == 3


def test_text_and_number_are_one_id_and_a_matrix_is_its_upper_half_or_all():
    mixed = read_edges({"a": [1, 2, 3], "b": ["2", "3", "1"]}, ReaderOptions())
    assert mixed.item_ids.ids_of(range(3)) == ["1", "2", "3"]
    upper = sp.coo_matrix((np.ones(3), ([0, 1, 0], [1, 3, 3])), (5, 5))
    one, both = (read_edges(matrix, ReaderOptions()) for matrix in (upper, upper + upper.T))
    assert np.array_equal(one.users, both.users)
    assert np.array_equal(one.items, both.items)
    assert len(one.item_ids) == 5


@pytest.mark.parametrize(
    ("edges", "text"),
    [
        (sp.coo_matrix(np.ones((3, 4))), "3 x 4"),
        ({"a": [1, 1], "b": [1, 2]}, "at least three vertices"),
        ({"a": [1, 2], "x": [2, 3], "y": [3, 4]}, "no column looks like"),
    ],
)
def test_what_is_no_graph_is_refused(edges, text):
    with pytest.raises(DataError, match=text):
        GraphRecommender(**SMALL).fit(edges)


def test_columns_can_be_named_and_vertices_have_titles():
    table = FRIENDS.rename(columns={"src": "x", "dst": "y"}).assign(weight=1)
    named = read_edges(
        table, ReaderOptions(user_column="x", item_column="y", titles={"v01": "Ann", "v02": "Bob", "v99": "Zoe"})
    )
    assert named.titles is not None
    assert named.titles.of(named.item_ids.row_of("v02")) == "Bob"


# --- Answers ---


def test_groups_are_found(model: GraphRecommender):
    """Friends of one group that are not linked are likelier to link than others."""
    ids = model.vertex_ids()
    first, second = (ids[ends] for ends in np.triu_indices(len(ids), 1))
    together = np.array([int(a[1:]) % 4 == int(b[1:]) % 4 for a, b in zip(first, second)])
    linked = naive.dense(model.model_.users.whole().liked, len(ids))[np.triu_indices(len(ids), 1)] > 0
    p = model.predict_proba(first, second)
    assert auc(p[together & ~linked], p[~together & ~linked]) > 0.85


def test_answers_are_the_same_from_either_end(model: GraphRecommender):
    ids = model.vertex_ids()
    first, second = ids[:20], ids[20:40]
    assert np.array_equal(model.predict_proba(first, second), model.predict_proba(second, first))
    low, high = model.predict_interval(first, second)
    p = model.predict_proba(first, second)
    assert ((low < p) & (p < high)).all()
    assert np.array_equal(low, model.predict_interval(second, first)[0])
    assert np.array_equal(model.predict_score(first, second), model.predict_score(second, first))
    with pytest.raises(UsageError, match="do not make pairs"):
        model.predict_proba(first, second[:3])
    logit = model.predict_logit(first, second)[0]
    np.testing.assert_allclose(model.predict_score(first, second, popularity=0.0, lift=0.0), logit, rtol=1e-6)


def test_logits_are_those_of_the_vectors_and_signs(model: GraphRecommender):
    side = model.posterior_.items
    signs = np.array([1, 1, -1, -1]) if model.signed else np.ones(4)
    wanted = (side.mean[3] * signs) @ side.mean[8] + side.biases[0][3] + side.biases[0][8]
    assert model.predict_logit(3, 8, by="row")[0] == pytest.approx(float(wanted), rel=1e-5)


def test_recommendations_leave_out_the_vertex_and_its_links(model: GraphRecommender, tmp_path: Path):
    linked = naive.dense(model.model_.users.whole().liked, 60) > 0
    every = model.recommend(range(60), N=60, by="row")
    for row, ids in enumerate(every.ids):
        found = set(ids[ids >= 0].tolist())
        assert found == set(np.flatnonzero(~linked[row]).tolist()) - {row}
    with_links = model.recommend(7, N=60, filter_linked=False, by="row").ids
    assert sorted(with_links.tolist()) == [row for row in range(60) if row != 7]
    table = model.recommend_table(N=60)
    assert not any(row.user == row.item for row in table)
    assert np.array_equal(model.recommend("v07", 5).ids, [row.item for row in table if row.user == "v07"][:5])
    model.save(tmp_path / "m")
    of_likes = Recommender.load(tmp_path / "m")  # as the shell opens it
    for way in ({}, {"score": "like"}, {"explore_kappa": 1.0}):
        assert 7 not in of_likes.recommend(7, N=60, by="row", **way).ids


def test_the_ranking_score_is_logit_popularity_and_lift(model: GraphRecommender):
    found = model.recommend("v07", 8, popularity=0.4, lift=0.7)
    inner = model.model_
    row, others = int(model.vertex_rows("v07")), model.vertex_rows(list(found.ids))
    assert inner.consideration is not None
    ratios = inner.consideration.ratios(inner.users.whole().liked.row(row), inner.plan.sharpness)[others]
    wanted = (
        model.predict_logit("v07", list(found.ids))[0] + 0.4 * np.log(inner.popularity[others]) + 0.7 * np.log(ratios)
    )
    np.testing.assert_allclose(found.scores, wanted, rtol=1e-4)


@pytest.mark.parametrize("sharpness", [1, 2])
def test_the_lift_of_pairs_is_that_of_rows(model: GraphRecommender, sharpness: int):
    walk, liked = model.model_.consideration, model.model_.users.whole().liked
    assert walk is not None
    rows = np.array([walk.ratios(liked.row(row), sharpness) for row in range(60)])
    first, second = np.divmod(np.arange(3600), 60)
    np.testing.assert_allclose(Ratios(Lift(walk, sharpness), liked).of(first, second), rows.reshape(-1), rtol=1e-5)


def test_similar_explain_and_a_vertex_that_is_new(model: GraphRecommender):
    assert model.similar("v07", 3).ids[0] == "v07"
    why = model.explain("v07", "v11")
    assert why.p_like == pytest.approx(model.predict_proba("v07", "v11"))
    linked = model.model_.users.whole().liked.row(int(model.vertex_rows("v07")))
    assert {name for name, _ in why.liked_because} <= set(model.vertex_ids(linked))
    fours = [f"v{m:02d}" for m in range(0, 24, 4)]
    found = [row.item for row in model.recommend_for(fours, 6)]
    assert not set(found) & set(fours)
    assert sum(int(one[1:]) % 4 == 0 for one in found) >= 4


def test_an_unknown_vertex_is_named(model: GraphRecommender):
    with pytest.raises(Exception, match="vertex 'nobody'"):
        model.predict_proba("v07", "nobody")


# --- The same bits ---


@pytest.mark.parametrize("signed", [False, True])
def test_threads_do_not_change_a_bit(signed: bool):
    edges = friends(300, 6)
    one, four = (GraphRecommender(**SMALL, signed=signed, threads=threads).fit(edges) for threads in (1, 4))
    assert np.array_equal(one.posterior_.items.rows, four.posterior_.items.rows)
    assert np.array_equal(one.bound_, four.bound_)
    other = GraphRecommender(**SMALL, signed=signed, seed=1).fit(edges)
    assert not np.array_equal(one.posterior_.items.rows, other.posterior_.items.rows)


def test_the_order_and_direction_of_edges_do_not_change_a_bit():
    turned = FRIENDS.iloc[::-1].rename(columns={"src": "dst", "dst": "src"})
    one, two = (GraphRecommender(**SMALL).fit(edges) for edges in (FRIENDS, turned))
    assert np.array_equal(one.posterior_.items.rows, two.posterior_.items.rows)


@pytest.mark.parametrize("signed", [False, True])
def test_a_fit_resumes_to_the_same_bits(signed: bool, tmp_path: Path):
    whole = GraphRecommender(**SMALL, signed=signed, tolerance=0.0).fit(FRIENDS)
    first = GraphRecommender(**SMALL | {"sweeps": 5}, signed=signed, tolerance=0.0)
    first.fit(FRIENDS, checkpoint=tmp_path, checkpoint_every=5)
    rest = GraphRecommender(**SMALL, signed=signed, tolerance=0.0).fit(FRIENDS, checkpoint=tmp_path, resume=True)
    assert np.array_equal(rest.posterior_.items.rows, whole.posterior_.items.rows)
    assert np.array_equal(rest.posterior_.users.rows, whole.posterior_.users.rows)
    assert np.array_equal(rest.bound_, whole.bound_)


# --- Files ---


def test_a_file_has_each_vertex_once_and_gives_the_same_answers(model: GraphRecommender, tmp_path: Path):
    model.save(tmp_path / "m.safetensors")
    stored = open_tensors(tmp_path / "m.safetensors")
    assert "user.rows" not in stored
    for verify in (None, True, False):
        again = GraphRecommender.load(tmp_path / "m.safetensors", verify=verify)
        assert again.get_params() == model.get_params()
        assert again.recommend_table(N=5) == model.recommend_table(N=5)
        assert again.predict_score("v01", "v02") == model.predict_score("v01", "v02")
        assert np.array_equal(again.posterior_.users.rows, model.posterior_.users.rows)
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "m.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"signed": 1}, "signed"),
        ({"users": 59}, "vertices|likes"),
        ({"likes": False}, "one side with biases and links"),
    ],
)
def test_a_file_that_lies_is_refused(change, text, tmp_path: Path):
    GraphRecommender(**SMALL).fit(FRIENDS).save(tmp_path / "m")
    stored = open_tensors(tmp_path / "m")
    tensors = {name: np.array(stored[name]) for name in stored}
    write_tensors(tmp_path / "bad", tensors, stored.metadata | change)
    with pytest.raises(ModelFileError, match=text):
        GraphRecommender.load(tmp_path / "bad")


def test_what_a_graph_has_not_is_refused(model: GraphRecommender, tmp_path: Path):
    model.save(tmp_path / "m")
    likes = Recommender.load(tmp_path / "m")
    with pytest.raises(UsageError, match="one file"):
        likes.save(tmp_path / "s", shards=2)
    with pytest.raises(UsageError, match="save it with them"):
        likes.save(tmp_path / "s", likes=False)
    with pytest.raises(UsageError, match="evaluate-graph"):
        likes.score(FRIENDS)
    with pytest.raises(UsageError, match="graph of vertices"):
        likes.update({"user": ["v07"], "item": ["v08"]})
    with pytest.raises(UsageError, match="graph of vertices"):
        likes.forget(["v07"])
    for change in (likes.partial_fit_users, likes.partial_fit_items):
        with pytest.raises(UsageError, match="graph of vertices"):
            change(["v07"], [["v08"]])
    matrix = sp.random(20, 12, 0.3, "csr", random_state=0)
    Recommender(factors=2, sweeps=2).fit(matrix).save(tmp_path / "two")
    with pytest.raises(ModelFileError, match=r"Recommender\.load"):
        GraphRecommender.load(tmp_path / "two")
    with pytest.raises(NotFittedError):
        GraphRecommender().recommend("v07")


# --- The shell ---


def test_the_shell_fits_recommends_inspects_and_evaluates(tmp_path: Path):
    FRIENDS.iloc[20:].to_csv(tmp_path / "edges.csv", index=False)
    FRIENDS.iloc[:20].to_csv(tmp_path / "later.csv", index=False)
    path, settings = (
        tmp_path / "g.safetensors",
        [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()],
    )
    fitted = shell("fit-graph", tmp_path / "edges.csv", "-o", path, *settings, "--signed", "--json")
    assert fitted.exit_code == 0, fitted.output
    values = json.loads(fitted.stdout)
    model = GraphRecommender.load(path)
    assert values["vertices"] == len(model.vertex_ids()) == 59  # one has its only edges among the later ones
    assert values["edges"] == model.model_.users.edges // 2
    assert values["signed"] is model.signed is True
    here = GraphRecommender(**SMALL, signed=True).fit(FRIENDS.iloc[20:])
    assert np.array_equal(here.posterior_.items.rows, model.posterior_.items.rows)
    listed = json.loads(shell("recommend", path, "v07", "--json").stdout)
    assert [row["item"] for row in listed] == model.recommend("v07").ids.tolist()
    assert "each edge is a like of both its ends. Half of the factors repel" in shell("inspect", path).stdout
    found = json.loads(shell("evaluate-graph", path, tmp_path / "later.csv", "--json").stdout)
    assert found == model.evaluate(FRIENDS.iloc[:20])
    assert "hits@50" in shell("evaluate-graph", path, tmp_path / "later.csv").stdout
    assert "vertices" in shell("fit-graph", tmp_path / "edges.csv", "-o", path, *settings).stdout
    refused = shell("evaluate", path, tmp_path / "later.csv", "--user-column", "src", "--item-column", "dst")
    assert refused.exit_code == 2


def test_ray_is_refused_with_the_reason():
    with pytest.raises(UsageError, match="reads the rows of all others"):
        GraphRecommender(**SMALL).fit(FRIENDS, backend=OutOfCore())


# --- Settings, weights, evaluation ---


def test_settings_are_those_of_parameters_but_for_the_signs():
    names = {field.name for field in fields(GraphParameters)}
    assert names - {field.name for field in fields(Parameters)} == {"signed"}
    for field in fields(GraphParameters):
        assert field.metadata["text"]
        assert field.metadata["reason"]
    plan = GraphRecommender(consideration="popularity", lift=2.0).plan()
    assert (plan.signed, plan.user_bias, plan.opening, plan.lift) == (False, True, 0, 0.0)
    for wrong in ({"factors": 0}, {"negatives": "auto"}, {"signed": 1}, {"lift": "auto"}, {"popularity": "best"}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            GraphRecommender(**wrong).fit(FRIENDS)


@pytest.mark.parametrize(("word", "metric"), [("auto", "auc"), ("auto-top", "hits@50")])
def test_weights_are_chosen_on_edges_held_out(word, metric):
    model = GraphRecommender(**SMALL, popularity=word).fit(FRIENDS)
    chosen = model.chosen_
    assert chosen is not None
    assert set(chosen.settings) == {"popularity", "lift"}
    assert set(chosen.criteria.values()) == {metric}
    plan = model.model_.plan
    assert (plan.popularity, plan.lift) == (chosen.settings["popularity"], chosen.settings["lift"])
    with pytest.raises(UsageError, match="too few to hold some out"):
        GraphRecommender(popularity=word).fit({"a": [1, 2, 3], "b": [2, 3, 1]})


def test_hidden_edges_are_scored(model: GraphRecommender):
    edges = read_edges(FRIENDS, ReaderOptions())
    ids = model.vertex_ids()
    others = [(a, b) for a in ids[:12] for b in ids[12:] if int(a[1:]) % 4 == int(b[1:]) % 4]
    hidden = pd.DataFrame(others, columns=["src", "dst"])
    within, known = model.score(hidden), FRIENDS.iloc[:5]
    assert within > 0.8
    assert model.score(hidden, metric="hits@50") <= 1.0
    assert model.score(pd.concat([hidden, known])) == within  # what was in training does not count
    with pytest.raises(UsageError, match="held out"):
        model.score(FRIENDS)
    with pytest.raises(UsageError, match="'auc' or 'hits@50'"):
        model.score(hidden, metric="ndcg")
    assert len(edges.users) == model.model_.users.edges // 2


def test_metrics_against_brute_force():
    random = np.random.default_rng(0)
    hidden, others = random.integers(0, 9, 40) / 1.0, random.integers(-4, 7, 300) / 1.0
    pairs = [(a > b) + 0.5 * (a == b) for a in hidden for b in others]
    assert auc(hidden, others) == pytest.approx(np.mean(pairs))
    best = sorted(others)[-50]
    assert hits(hidden, others) == pytest.approx(np.mean([one > best for one in hidden]))
    assert hits(hidden, others, 1) == pytest.approx(np.mean(hidden > others.max()))


def test_hidden_and_sampled_pairs_are_apart(model: GraphRecommender):
    edges = model.model_.users.whole().liked
    kept, hidden = hide_edges(edges, 0.1, 3)
    both = sorted([*zip(*kept), *zip(*hidden)])
    assert both == sorted(zip(*edge_pairs(edges)))
    assert len(hidden[0]) == round(0.1 * edges.edges / 2)
    first, second = sample_pairs(edges, 5000, 3)
    assert (first < second).all()
    assert not set(zip(first, second)) & set(both)
    assert len(set(zip(first, second))) > 1000
    test = LinkTest.of(hidden, edges, 3, 1000)
    assert test.value(np.arange(len(test.first), dtype=float)[::-1]) == 1.0
