"""Graphs of one kind of vertex: draws of both ends that merge, their offset, p(considered), expected links."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from considerate import GraphRecommender
from considerate.data import ReaderOptions
from considerate.data.edges import read_edges, symmetric
from considerate.data.graph import Adjacency
from considerate.data.known import Known
from considerate.errors import ModelFileError
from considerate.evaluation.links import edge_pairs
from considerate.fitting.resume import chosen_settings
from considerate.inference.hidden import Draws, Sampled, merged
from considerate.inference.hidden.merged import VertexDraws
from considerate.inference.hidden.pair_chances import PairChances
from considerate.inference.hidden.paths import vertex_consideration
from considerate.inference.hidden.saturation import Saturation
from considerate.inference.plan import FitPlan
from considerate.kernels.threads import LocalBackend
from considerate.model.considered import consideration_weights, considered_probability
from considerate.model.liking import sigmoid
from considerate.storage.container import open_tensors, write_tensors
from studies.graphs import expected_links
from tests.helpers.randomised import LONG

kinds = pytest.mark.parametrize("walk", [False, True], ids=["popularity", "walk"])
SETTINGS = {"factors": 4, "sweeps": 15, "likelihood_weight": 1.5, "threads": 1}


def hubs(vertices: int = 60, seed: int = 0, mean: float = 0.15) -> Adjacency:
    """Links with some vertices of many: these run out, and draw what draws them."""
    random = np.random.default_rng(seed)
    pull, (low, high) = np.exp(random.normal(0, 0.8, vertices)), np.triu_indices(vertices, 1)
    linked = random.random(len(low)) < np.minimum(0.95, mean * pull[low] * pull[high])
    return symmetric(low[linked].astype(np.int32), high[linked].astype(np.int32), vertices)


def matrix(edges: Adjacency) -> sp.csr_matrix:
    return sp.csr_matrix((np.ones(edges.edges), edges.indices, edges.starts), (edges.rows, edges.rows))


def draws_of(edges: Adjacency, negatives: float, walk: bool) -> tuple[VertexDraws, Sampled]:
    """The expected links, and those that are drawn."""
    degrees = edges.degrees.astype(float)
    table = vertex_consideration(edges, 500, None) if walk else None
    itself = Known(impossible=Adjacency(np.arange(edges.rows + 1), np.arange(edges.rows, dtype=np.int32)))
    blocks = np.array([0, edges.rows])
    sampled = Sampled(edges, blocks, Draws.of(degrees, table), negatives / 2, 0, known=itself)
    return VertexDraws(edges, PairChances(Saturation(degrees), table), negatives, itself), sampled


# --- The expected number of pairs without a link ---


@kinds
@pytest.mark.parametrize("negatives", [1.0, 3.3, 10.0])
def test_pairs_without_a_link_are_as_many_as_the_draws_of_both_ends_leave(walk: bool, negatives: float) -> None:
    edges = hubs()
    draws, sampled = draws_of(edges, negatives, walk)
    found, left = draws.unlinked_per_link(0), []
    for sweep in range(200):
        drawn = sampled.draw(sweep)
        left.append(symmetric(drawn.edge_rows.astype(np.int32), drawn.indices, edges.rows).edges / edges.edges)
    assert found == pytest.approx(np.mean(left), rel=0.02)
    assert found < 0.97 * negatives, "pairs merge here"
    w = draws.all_chances(np.arange(edges.rows))
    np.testing.assert_allclose(w.sum(axis=1), draws.counts, rtol=1e-6)
    r = np.triu(1 - (1 - w) * (1 - w.T), 1)
    assert found == pytest.approx(r.sum() / (edges.edges / 2), rel=1e-7)


@kinds
def test_a_sample_of_vertices_stands_for_a_large_graph(walk: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draws, _ = draws_of(hubs(400, mean=0.02), 5.0, walk)
    exact = draws.unlinked_per_link(0)
    monkeypatch.setattr(merged, "MOST_PAIRS", 100)
    monkeypatch.setattr(merged, "AT_ONCE", 5_000)
    found = [draws.unlinked_per_link(seed) for seed in range(5)]
    assert len(set(found)) == 5
    np.testing.assert_allclose(found, exact, rtol=0.01)
    with LocalBackend(3) as backend:
        assert draws.unlinked_per_link(2, backend.map) == found[2]


@kinds
def test_where_nothing_merges_there_are_c(walk: bool) -> None:
    vertices = np.arange(2000, dtype=np.int32)
    ends = [(vertices, (vertices + step) % 2000) for step in (1, 5, 25)]
    ring = symmetric(*(np.concatenate(rows).astype(np.int32) for rows in zip(*ends)), 2000)
    found = draws_of(ring, 0.5, walk)[0].unlinked_per_link(0)
    assert 0.97 * 0.5 < found < 0.5


# --- A fit ---


def test_the_offset_of_a_fit_counts_the_pairs_that_there_are() -> None:
    edges = hubs()
    for consideration in ("popularity", "walk"):
        plan = GraphRecommender(**SETTINGS, negatives=8.0, consideration=consideration).fit(matrix(edges)).model_.plan
        expected = draws_of(edges, 8.0, consideration == "walk")[0].unlinked_per_link(0)
        assert plan.offset == pytest.approx(-math.log(expected))
        assert plan.unlinked == pytest.approx(expected)
        assert plan.negatives == 8.0


def test_logits_have_the_level_of_the_truth() -> None:
    """Pairs are considered, then linked by a fair coin and taste; where most are considered, c cannot be had."""
    random, vertices = np.random.default_rng(0), 120
    vectors = 0.8 * random.standard_normal((vertices, 3))
    low, high = np.triu_indices(vertices, 1)
    truth = (vectors[low] * vectors[high]).sum(axis=1)
    considered = random.random(len(low)) < 0.8
    linked = considered & (random.random(len(low)) < sigmoid(truth))
    edges = symmetric(low[linked].astype(np.int32), high[linked].astype(np.int32), vertices)
    settings = SETTINGS | {"sweeps": 30, "consideration": "popularity"}
    model = GraphRecommender(**settings, negatives=5.0).fit(matrix(edges)).model_
    assert abs((model.pair_logits(low, high)[0] - truth)[considered].mean()) < 0.25


def test_a_graph_of_all_pairs_says_nothing() -> None:
    everything = sp.csr_matrix(1.0 - np.eye(12))
    model = GraphRecommender(**SETTINGS).fit(everything)
    assert abs(model.predict_logit(0, 1)[0]) < 0.1
    assert np.isfinite(model.predict_interval(0, 1)).all()


# --- p(considered) ---


@kinds
def test_p_considered_counts_the_draws_of_both_ends(walk: bool) -> None:
    edges = hubs()
    consideration = "walk" if walk else "popularity"
    fitted = GraphRecommender(**SETTINGS, negatives=3.0, consideration=consideration).fit(matrix(edges))
    model, vertices = fitted.model_, np.arange(edges.rows)
    w = draws_of(edges, 3.0, walk)[0].all_chances(vertices)
    r = 1 - (1 - w) * (1 - w.T)
    ids = np.tile(vertices.astype(np.int32), (edges.rows, 1))
    found = consideration_weights(model, edges, ids, model.limits_of(vertices)).reshape(edges.rows, -1)
    linked, able = matrix(edges).toarray() > 0, edges.degrees > 0
    apart = ~linked & able & able[:, None]
    np.testing.assert_allclose(found[apart], (r / model.plan.unlinked)[apart], rtol=1e-5, atol=1e-9)
    assert (found[linked] == 1.0).all()
    assert np.isnan(found[~able][:, able]).all(), "nothing says how much a vertex without links considers"
    table = fitted.recommend_table(N=5)
    pairs = {(row["user"], row["item"]): row["p_considered"] for row in table.to_pylist()}
    both = [(pairs[m, n], pairs[n, m]) for m, n in pairs if (n, m) in pairs and m < n]
    assert len(both) > 10
    np.testing.assert_allclose(*zip(*both), rtol=1e-5)


def test_both_halves_multiply_to_the_chance_of_a_link() -> None:
    """p(g = 1) of a pair whose odds in H are exp(logit): it is in H without a link with chance r."""
    r, offset, a = np.array([0.01, 0.3, 0.9]), -math.log(4.0), np.array([-1.0, 0.4, 2.0])
    odds = r * np.exp(a + offset)
    product = considered_probability(r * np.exp(offset), a) * sigmoid(a)
    np.testing.assert_allclose(product, odds / (1 + odds), rtol=1e-12)


def test_a_new_vertex_is_drawn_as_it_draws() -> None:
    edges = hubs()
    fitted = GraphRecommender(**SETTINGS, negatives=3.0).fit(matrix(edges))
    for vertex in (5, 17):
        table = fitted.recommend_for(edges.row(vertex).tolist(), N=60)
        new = {row["item"]: row["p_considered"] for row in table.to_pylist() if row["item"] != vertex}
        new = {other: p for other, p in new.items() if p}
        ids = np.array([list(new)], np.int32)
        row = np.array([vertex])
        weights = consideration_weights(fitted.model_, edges.take(row), ids, fitted.model_.limits_of(row))
        mean = fitted.predict_logit(np.full(len(new), vertex), np.array(list(new)))[0]
        known = considered_probability(weights, mean)
        assert np.corrcoef(np.log(list(new.values())), np.log(known))[0, 1] > 0.9
        assert 0.5 < np.mean(list(new.values())) / known.mean() < 1.5


# --- Files and checkpoints of before ---


def test_a_file_records_the_offset_and_one_of_before_keeps_its_rule(tmp_path: Path) -> None:
    edges = hubs()
    fitted = GraphRecommender(**SETTINGS, negatives=8.0).fit(matrix(edges))
    fitted.save(tmp_path / "m")
    plan = GraphRecommender.load(tmp_path / "m").model_.plan
    assert 0 < plan.unlinked < 0.9 * 8.0
    assert (plan.unlinked, plan.offset) == (fitted.model_.plan.unlinked, fitted.model_.plan.offset)
    stored = open_tensors(tmp_path / "m")
    tensors, about = {name: np.array(stored[name]) for name in stored}, dict(stored.metadata)
    settings = {
        name: value for name, value in about["settings"].items() if name not in ("unlinked", "expected_offsets")
    }
    write_tensors(tmp_path / "old", tensors, about | {"settings": settings | {"offset": -math.log(8.0)}})
    old = GraphRecommender.load(tmp_path / "old").model_.plan
    assert old.offset == -math.log(8.0)
    assert not old.expected_offsets
    for lie in ({"unlinked": -1.0}, {"unlinked": 2.0}):
        write_tensors(tmp_path / "bad", tensors, about | {"settings": about["settings"] | lie})
        with pytest.raises(ModelFileError, match="out of range"):
            GraphRecommender.load(tmp_path / "bad")


def test_a_checkpoint_of_before_goes_on_with_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edges, settings = matrix(hubs()), SETTINGS | {"tolerance": 0.0, "negatives": 8.0}
    GraphRecommender(**settings | {"sweeps": 4}).fit(edges, checkpoint=tmp_path, checkpoint_every=2)
    again = GraphRecommender(**settings | {"sweeps": 8}).fit(edges, checkpoint=tmp_path, resume=True).model_
    whole = GraphRecommender(**settings | {"sweeps": 8}).fit(edges).model_
    assert np.array_equal(again.items.rows, whole.items.rows)
    assert again.plan.offset == whole.plan.offset != -math.log(8.0)

    def of_before(saved: object, plan: FitPlan) -> FitPlan:
        about = {"knob": 0.5, "weight": 1.5, "lift": 0.0}
        return chosen_settings(SimpleNamespace(metadata=about, head=SimpleNamespace(path="")), plan)  # type: ignore[arg-type]

    monkeypatch.setattr("considerate.fitting.driver.chosen_settings", of_before)
    old = GraphRecommender(**settings | {"sweeps": 12}).fit(edges, checkpoint=tmp_path, resume=True).model_
    assert old.plan.offset == -math.log(8.0)
    newer = GraphRecommender(**settings | {"sweeps": 12}).fit(edges).model_
    assert old.pair_logits(np.array([0]), np.array([1]))[0] > newer.pair_logits(np.array([0]), np.array([1]))[0]


# --- As many links as there are ---


def expected_by_degree(path: Path, negatives: float, bounds: list[int]) -> np.ndarray:
    """Expected over observed links of a graph, by the degree of the vertex; then of all."""
    data = read_edges(path, ReaderOptions())
    edges = symmetric(data.users, data.items, len(data.item_ids))
    model = GraphRecommender(negatives=negatives, threads=2).fit(matrix(edges)).model_
    expected, place = expected_links(model), np.digitize(edges.degrees, bounds)
    shares = np.bincount(place, expected) / np.bincount(place, edges.degrees)
    return np.append(shares, expected.sum() / edges.edges)


CASES = [("USAir", 1.0), ("USAir", 5.0), ("USAir", 10.0), ("cora", 10.0)]


@pytest.mark.parametrize(("name", "negatives"), CASES if LONG else CASES[2:3])
def test_the_model_expects_as_many_links_as_there_are(name: str, negatives: float, data_dir: Path) -> None:
    shares = expected_by_degree(data_dir / "graphs" / f"{name}.parquet", negatives, [5, 20])
    assert (shares > 0.85).all(), shares
    assert (shares < 1.15).all(), shares


def test_expected_links_are_sums_over_pairs() -> None:
    edges = hubs(30)
    model = GraphRecommender(**SETTINGS, negatives=3.0).fit(matrix(edges)).model_
    draws, _ = draws_of(edges, 3.0, True)
    w = draws.chances.of_all(edges, draws.counts, draws.itself)
    w[edges.degrees == 0] = 0.0
    unlinked = draws.all_chances(np.arange(30))
    np.testing.assert_allclose(w[unlinked > 0], unlinked[unlinked > 0], rtol=1e-4)
    assert (w[edges.edge_rows, edges.indices] > 0).all()
    low, high = np.triu_indices(30, 1)
    r = 1 - (1 - w[low, high]) * (1 - w[high, low])
    odds = r * np.exp(np.asarray(model.pair_logits(low, high)[0], float) + model.plan.offset)
    p = odds / (1 + odds)
    found = expected_links(model)
    np.testing.assert_allclose(found, np.bincount(low, p, 30) + np.bincount(high, p, 30), rtol=1e-4)
    assert len(edge_pairs(edges)[0]) == pytest.approx(found.sum() / 2, rel=0.3)
