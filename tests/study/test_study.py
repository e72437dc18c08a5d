"""The study: its numbers against brute force, its peers, a given split, and the paper's statements."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate import read_interactions
from considerate.data import ReaderOptions
from considerate.data.graph import Graph, run_serially
from considerate.errors import UsageError
from considerate.evaluation.metrics import ndcg, rank_score
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.scorer import FunctionScorer
from considerate.evaluation.split import HeldOut, edge_keys, one_per_user, validation
from considerate.fitting.tuning import Weights
from considerate.model.model import Model
from considerate.study import fits
from considerate.study.experiment import Study, StudyOptions, run_study
from considerate.study.fits import (
    TIE,
    Compute,
    Ranking,
    SplitResult,
    best_trial,
    fit_ours,
    our_trials,
    some_users,
    try_ours,
)
from considerate.study.material import Material, make_material, read_material
from considerate.study.peers import Snapshot
from considerate.study.results import Results
from considerate.study.statements import make_statements
from considerate.study.summary import Contender
from tests.helpers.study_fixtures import SMALL, studied, table, without_seconds

# --- The numbers ---


def test_the_popularity_row_is_what_brute_force_says(material: Material, results: Results) -> None:
    values, tail, hits = [], [], []
    for seed in range(2):
        held = one_per_user(material.graph, seed)
        degree = held.train.by_item.degrees.astype(float)
        for user, item in zip(held.users, held.items):
            seen = held.train.by_user.row(int(user))
            values.append(rank_score(degree, int(item), seen))
            tail.append(degree[item] < 100)
            free = np.setdiff1d(np.arange(len(degree)), seen)
            above, ties = (degree[free] > degree[item]).sum(), (degree[free] == degree[item]).sum()
            hits.append(np.clip((20 - above) / ties, 0, 1))
    row = next(one for one in results.comparisons if one.name == "popularity")
    assert row.metrics["S_rank"] == pytest.approx(np.mean(values))
    assert row.metrics["S_rank tail"] == pytest.approx(np.mean(np.array(values)[tail]))
    assert row.metrics["Recall@20"] == pytest.approx(np.mean(hits))
    low, high = row.intervals["S_rank"]
    assert low < row.metrics["S_rank"] < high
    assert results.data.held_out == len(one_per_user(material.graph, 0).users)


def test_differences_are_ours_less_theirs(results: Results) -> None:
    rows = {one.name: one for one in results.comparisons}
    ours, liking = rows["considerate"], rows["considerate, for the tail"]
    for one in results.comparisons:
        if one.name != "considerate":
            for metric in ("S_rank", "S_rank tail", "NDCG@20"):
                assert one.difference[metric] == pytest.approx(ours.metrics[metric] - one.metrics[metric], abs=1e-12)
                low, high = one.difference_intervals[metric]
                assert low <= one.difference[metric] + 1e-9
                assert one.difference[metric] <= high + 1e-9
        if one.name != "considerate, for the tail":
            expected = liking.metrics["S_rank tail"] - one.metrics["S_rank tail"]
            assert one.difference["S_rank tail, for the tail"] == pytest.approx(expected, abs=1e-12)
    assert "S_rank" not in ours.difference
    assert rows["popularity"].difference_intervals["S_rank"][0] > 0  # taste was planted


def test_strata_hold_every_held_out_like(results: Results) -> None:
    held_out = results.data.held_out * results.data.splits
    rows = {one.name: one.metrics["S_rank"] for one in results.comparisons}
    for one in results.ranks:
        assert sum(one.count) == held_out
        assert np.average(one.mean, weights=one.count) == pytest.approx(rows[one.score])
    for gap in results.differences:
        assert sum(gap.count[:-1]) == held_out
        assert (gap.low[-1], gap.high[-1]) == (0, 99)
        tail = next(one for one in results.comparisons if one.name == gap.peer)
        key = "S_rank tail" if gap.ours == "considerate" else "S_rank tail, for the tail"
        assert gap.difference[-1] == pytest.approx(tail.difference[key])
    for by_degree in (*results.errors, *results.histograms):
        assert sum(by_degree.count) <= held_out
    for histogram in results.histograms:
        assert all(sum(row) == pytest.approx(1.0) for row in histogram.share)


def test_every_figure_has_its_data(results: Results) -> None:
    assert [(one.side, one.graph) for one in results.degrees] == [
        ("users", "G"),
        ("items", "G"),
        ("users", "H drawn"),
        ("items", "H drawn"),
    ]
    assert [one.name for one in results.balance] == [
        "r = 1",
        "r = 1, head corrected",
        "r = 1/2",
        "r = 1/2, head corrected",
        "r = 1, closed form",
        "r = 1, half-edges",
    ]
    models = ["default", "the paper's, r = 1", "the paper's, r = 1/2"]
    assert [one.name for one in results.errors] == models
    assert [one.name for one in results.histograms] == models
    assert [one.name for one in results.reliability] == [*models, "default, recalibrated"]
    assert [one.name for one in results.traces] == ["considerate", *models[1:]]
    assert [one.name for one in results.times] == ["considerate", *models[1:], "popularity"]
    assert len(results.statements) == 9
    (knob,) = results.knobs
    assert knob.chosen in knob.knob
    assert np.all(np.diff(knob.popularity) > -1e-9)  # more weight, more popular lists
    for trace in results.traces:
        lengths = {len(trace.sweep), len(trace.bound), len(trace.rank), *map(len, trace.taus.values())}
        assert lengths == {trace.sweep[-1]}


def test_examples_are_lists_of_what_their_users_have_not_seen(material: Material, results: Results) -> None:
    held = one_per_user(material.graph, 0)
    assert material.user_ids is not None
    assert material.item_ids is not None
    degrees = held.train.by_item.degrees
    assert len(results.examples) == 3
    assert [example.degree for example in results.examples] == sorted(example.degree for example in results.examples)
    for example in results.examples:
        user = material.user_ids.row_of(int(example.user))
        seen = {str(item) for item in material.item_ids.ids_of(held.train.by_user.row(user))}
        assert example.degree == len(seen)
        assert set(example.liked) <= seen
        assert example.held_out == [str(item) for item in material.item_ids.ids_of(held.items[held.users == user])]
        assert list(example.lists) == ["considerate, first places", "taste alone", "most popular"]
        for items in example.lists.values():
            assert len(items) == len(set(items)) == 8
            assert not seen & set(items)
        assert all(0 < p < 1 for p in example.p_like)
        assert len(example.p_like) == 8
        unseen = sorted(set(map(str, material.item_ids.ids_of(range(len(degrees))))) - seen, key=int)
        by_degree = sorted(unseen, key=lambda item: -degrees[material.item_ids.row_of(int(item))])
        assert example.lists["most popular"] == by_degree[:8]


def test_the_weights_are_the_best_of_validation(material: Material, results: Results) -> None:
    """And validation is part of the first split's training likes: it shares nothing with the test."""
    held = one_per_user(material.graph, 0)
    valid = validation(held, 0)
    tested = held.users * material.graph.item_count + held.items
    validated = valid.users * material.graph.item_count + valid.items
    assert not np.isin(tested, np.concatenate([validated, edge_keys(valid.train)])).any()
    in_tail = valid.train.by_item.degrees[valid.items] < 100

    def ranks(model: Model, weights: Weights) -> Any:
        return held_ranks(Ranking("any", weights).scorer(model), valid)

    trials = [try_ours(valid, settings, Compute(0, 1, run_serially)) for settings in our_trials(SMALL)]
    best = next(at for at, trial in enumerate(trials) if trial["rank"] >= max(one["rank"] for one in trials) - TIE)
    model, _ = fit_ours(valid.train, our_trials(SMALL)[best], Compute(0, 1, run_serially))
    for name, mean in (
        ("rank", lambda ranks: float(ranks.scores.mean())),
        ("top", lambda ranks: float(ndcg(ranks, 20).mean())),
        ("tail", lambda ranks: float(ranks.scores[in_tail].mean())),
    ):
        chosen = mean(ranks(model, Weights(*trials[best][f"{name} weights"])))
        assert trials[best][name] == pytest.approx(chosen, abs=1e-3)
        others = [mean(ranks(model, Weights(knob, lift))) for knob in (0.0, 0.5, 1.0) for lift in (0.0, 1.0, 2.0)]
        assert chosen >= max(others) - 1e-3
    assert results.knobs[0].chosen == trials[best]["rank weights"][0]


def test_trials_that_cannot_be_told_apart_are_told_by_the_tail() -> None:
    def trial(rank: float, tail: float) -> dict[str, float]:
        return {"rank": rank, "tail": tail}

    assert best_trial([trial(0.95, 0.8), trial(0.94, 0.9)]) == 0
    assert best_trial([trial(0.95, 0.8), trial(0.9496, 0.9)]) == 1
    assert best_trial([trial(0.9496, 0.9), trial(0.95, 0.9)]) == 0
    assert best_trial([trial(0.9, 0.95), trial(0.95, 0.8), trial(0.9497, 0.7)]) == 1


class Watched:
    """A peer that keeps what it was given to learn from; of its two trials the second scores the better, at the end."""

    name, version, one_thread, factors = "watched", None, False, 7
    trials = ({"sign": -1.0}, {"sign": 1.0})

    def __init__(self) -> None:
        self.given: list[tuple[float, Graph]] = []

    def unavailable(self, train: Graph) -> str | None:
        return None

    def snapshots(self, train: Graph, settings: Any, seed: int | None, threads: int) -> Iterator[Snapshot]:
        self.given.append((settings["sign"], train))
        for iterations, sign in ((1, 0.0), (3, settings["sign"])):
            degree = sign * train.by_item.degrees
            scorer = FunctionScorer(lambda users, degree=degree: np.tile(degree, (len(users), 1)), self.name)
            yield Snapshot(scorer, iterations, 0.1 * iterations)


def test_trials_never_see_a_test_edge_and_the_better_one_is_used(material: Material) -> None:
    peer = Watched()
    found, _ = studied(material, scorers=[peer])
    splits = [one_per_user(material.graph, seed) for seed in range(2)]
    tested = splits[0].users * material.graph.item_count + splits[0].items
    trials, rest = peer.given[:2], peer.given[2:]
    for _, train in trials:
        assert not np.isin(tested, edge_keys(train)).any()
        assert train.edges < splits[0].train.edges
    assert [sign for sign, _ in rest] == [1.0] * 3  # both splits, and quality against time
    assert [train.edges for _, train in rest[:2]] == [split.train.edges for split in splits]
    row = next(one for one in found.comparisons if one.name == "watched")
    assert row.settings == "sign 1, iterations 3, 7 factors"
    assert row.trials == 2
    popular = next(one for one in found.comparisons if one.name == "popularity")
    assert row.metrics["S_rank"] == pytest.approx(popular.metrics["S_rank"])
    assert any(
        "watched was best at its last iteration, 3: more iterations might help it" in note for note in found.data.notes
    )


def test_our_trials_are_six_and_differ() -> None:
    trials = our_trials({"factors": 5, "likelihood_weight": 2.0})
    assert trials[0] == {"factors": 5, "likelihood_weight": 2.0}
    assert len({json.dumps(one, sort_keys=True) for one in trials}) == 6
    assert all(one["factors"] == 5 for one in trials)
    assert len({json.dumps(one, sort_keys=True) for one in our_trials({"likelihood_weight": "auto"})}) == 6


def test_threads_do_not_change_a_figure(material: Material, results: Results) -> None:
    assert without_seconds(studied(material, threads=1)[0]) == without_seconds(results)


def test_some_users_are_a_function_of_the_seed(material: Material) -> None:
    held = one_per_user(material.graph, 0)
    few = some_users(held, 1, 50)
    assert len(np.unique(few.users)) == 50
    assert np.array_equal(few.users, some_users(held, 1, 50).users)
    assert not np.array_equal(few.users, some_users(held, 2, 50).users)
    assert some_users(held, 1) is held


def test_a_large_catalogue_is_judged_by_some_users(material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Study(material, StudyOptions(SMALL, splits=2))
    monkeypatch.setattr(fits, "MOST_SCORES", 40 * material.graph.item_count)
    study = Study(material, StudyOptions(SMALL, splits=2))
    for split, same in zip(study.splits, whole.splits, strict=True):
        assert len(np.unique(split.users)) == 40 < len(np.unique(same.users))
        assert split.train.edges == same.train.edges
    assert len(np.unique(study.valid.users)) <= 40
    assert any(note.startswith("40 of") for note in study.notes)
    assert not any("are judged" in note for note in whole.notes)


def test_held_out_is_a_function_of_the_seed(material: Material) -> None:
    def items(seed: int) -> list[int]:
        held: HeldOut = Study(material, StudyOptions(SMALL, splits=1, seed=seed, peers=False)).splits[0]
        return held.items.tolist()

    assert items(0) == items(0) != items(1)


# --- Peers ---


@pytest.mark.slow
def test_the_peers_take_part(material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cornac")
    pytest.importorskip("implicit")
    monkeypatch.setattr("considerate.study.peers.MOST_EPOCHS", 60)
    found, _ = studied(material, splits=1, peers=True)
    rows = {one.name: one for one in found.comparisons}
    assert [name for name in rows if "considerate" not in name and "like" not in name] == [
        "popularity",
        "BPR-uniform",
        "BPR-popularity",
        *(["BPR-popularity, for the tail"] if "BPR-popularity, for the tail" in rows else []),
        "ALS",
        "EASE",
        "walk",
        "GF-CF",
    ]
    for name in ("BPR-uniform", "ALS", "EASE", "walk", "GF-CF"):
        assert rows[name].metrics["S_rank"] > rows["popularity"].metrics["S_rank"]
        assert rows[name].trials == 6
    assert "3 factors" in rows["ALS"].settings
    assert any("BPR-uniform" in note and "learning_rate" in note for note in found.data.notes)
    assert {(one.ours, one.peer) for one in found.differences} == {
        (ours, peer)
        for ours in ("considerate", "considerate, for the tail")
        for peer in rows
        if "considerate" not in peer and "like" not in peer
    }


def test_a_study_goes_on_without_the_extras(material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cornac", None)
    monkeypatch.setitem(sys.modules, "implicit", None)
    study = Study(material, StudyOptions(SMALL, splits=1, peers=True))
    assert [peer.name for peer in study.peers] == ["popularity", "EASE", "walk", "GF-CF"]
    said = [note for note in study.notes if "left out" in note and "considerate[study]" in note]
    assert [note.split(" ")[0] for note in said] == ["BPR-uniform", "BPR-popularity", "ALS"]


# --- A given split, and what is refused ---


def test_a_given_split_is_used_as_it_is(ratings: Path, tmp_path: Path) -> None:
    likes = read_interactions(ratings, where="rating >= 4")
    random = np.random.default_rng(1)
    chosen = random.random(len(likes.users)) < 0.2
    both = [
        table(tmp_path / f"{name}.parquet", user=likes.users[part].astype(int), item=likes.items[part].astype(int))
        for name, part in (("train", ~chosen), ("test", chosen))
    ]
    found = read_material(both[0], ReaderOptions(), test=both[1])
    results, _ = studied(found)
    assert results.data.splits == 1
    assert results.data.split == "train and test as given"
    assert results.data.held_out > 0.15 * len(likes.users)
    held = found.test
    assert held is not None
    degree = held.train.by_item.degrees.astype(float)
    by_user: dict[int, list[float]] = {}
    for user, item in zip(held.users, held.items):
        seen = held.train.by_user.row(int(user))
        by_user.setdefault(int(user), []).append(rank_score(degree, int(item), seen))
    row = next(one for one in results.comparisons if one.name == "popularity")
    assert row.metrics["S_rank"] == pytest.approx(np.mean([np.mean(values) for values in by_user.values()]))
    assert results.reliability == []
    assert any("cannot be checked" in note for note in results.data.notes)


def test_from_python_with_what_the_reader_reads(ratings: Path) -> None:
    likes = read_interactions(ratings, where="rating >= 4")
    others = read_interactions(ratings, where="rating < 4")
    found = run_study(likes, not_liked=others, title="coins", splits=1, peers=False, **SMALL)
    assert found.data.name == "coins"
    assert found.data.judged > 100
    assert make_material(likes, not_liked=others).judged is not None


def test_options_are_checked() -> None:
    with pytest.raises(UsageError, match="splits is 0"):
        StudyOptions(splits=0)
    with pytest.raises(UsageError, match="factors is 0"):
        StudyOptions(settings={"factors": 0})


# --- The paper's statements ---


def test_statements_follow_the_numbers(material: Material) -> None:
    """The same machinery on numbers that agree with the paper, and on numbers that do not."""
    from considerate.evaluation.ranks import Ranks

    held = one_per_user(material.graph, 0)
    random = np.random.default_rng(0)
    edges = len(held.users)
    degree = held.train.by_item.degrees[held.items]
    user_degree = held.train.by_user.degrees[held.users]

    def contender(name: str, rank: Any) -> Contender:
        candidates = np.full(edges, 1001)
        above = np.clip(np.round((1 - np.broadcast_to(rank, edges)) * 1000), 0, 1000).astype(np.int64)
        ranks = Ranks(held.users, held.items, above, np.zeros(edges, np.int64), candidates)
        return Contender(name, "", 0, [SplitResult(ranks, np.zeros(edges), np.zeros(edges), 0.0, 0.0, 0.0)])

    noise = random.beta(5, 1, edges)
    head = degree >= np.quantile(degree, 0.75)
    like, product = 0.8 * noise, np.where(head, 0.95, 0.7) * noise
    ranks = {"like, r = 1": like, "like, r = 1/2": like, "popularity": 0.5 * product, "considerate": like + 0.01}
    ranks |= {f"popularity x like, {rate}": product for rate in ("r = 1", "r = 1/2")}
    ranks |= {"BPR-uniform": np.where(head, 0.99, 0.75), "BPR-popularity": 0.75 * noise}
    contenders = {name: contender(name, rank) for name, rank in ranks.items()}
    many = (user_degree >= 20) & (user_degree < 80)
    p = np.where(np.arange(edges) % 100 < 17, 0.4, 0.9)
    taus = {rate: np.array([[2.0, 3.5, 0.4]]) for rate in ("r = 1", "r = 1/2")}
    said = make_statements(contenders, {"r = 1": [p], "r = 1/2": [p]}, taus, [held])
    agree = {one.paper.split(" ")[0] + " " + one.paper.split(" ")[1]: one for one in said}
    assert agree["The classification"].agrees is (True if many.sum() >= 50 else None)
    assert agree["For users"].agrees is None  # too few have one item in training
    assert agree["In the"].paper.startswith("In the head")  # the later of the two
    assert agree["In the"].agrees is True
    assert agree["Over all"].agrees is True
    assert agree["E[tau] is"].agrees is True
    assert agree["The median"].agrees is True
    contenders["BPR-uniform"] = contender("BPR-uniform", 0.3 * noise)
    taus = {rate: np.array([[12.0, 12.0, 9.0]]) for rate in taus}
    said = make_statements(contenders, {"r = 1": [1 - p], "r = 1/2": [1 - p]}, taus, [held])
    other = {one.paper.split(" ")[0] + " " + one.paper.split(" ")[1]: one for one in said}
    assert other["The classification"].agrees is (False if many.sum() >= 50 else None)
    assert other["In the"].agrees is False
    assert other["Over all"].agrees is False
    assert other["E[tau] is"].agrees is False
    assert "over-shrinkage" in other["E[tau] is"].why
    assert math.isclose(0.17, np.mean(p < 0.5), abs_tol=0.01)
