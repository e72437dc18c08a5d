"""A fitted model on test data in the data's own ids: what it ranks well, and whether its p(like) is honest."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions
from considerate.data.graph import Graph, Run, run_serially
from considerate.errors import ConsiderateError, DataError
from considerate.evaluation.bootstrap import RESAMPLES
from considerate.evaluation.calibration import recalibrated_by_others, reliability
from considerate.evaluation.report import evaluate, plain_table
from considerate.evaluation.scorer import ModelScorer
from considerate.evaluation.split import HeldOut, edge_keys, is_among, pair_keys, rows_in
from considerate.model.model import Model
from considerate.model.predict import UNCHANGED, Recalibration, like_probability, logit_moments


@dataclass(frozen=True)
class KnownPairs:
    """Pairs of test data by the model's rows, without those that cannot be tested; these are counted."""

    users: NDArray[np.int64]
    items: NDArray[np.int64]
    rows: int  # as they were read
    unknown_users: int  # rows whose user the model does not know, or knows no like of
    unknown_items: int  # rows of known users whose item it does not know
    in_training: int  # rows that it was fitted to
    duplicates: int

    def counts(self) -> dict[str, int]:
        names = ("rows", "unknown_users", "unknown_items", "in_training", "duplicates")
        return {"tested": len(self.users)} | {name: getattr(self, name) for name in names}


def known_pairs(model: Model, graph: Graph, data: Interactions) -> KnownPairs:
    """The pairs of test data that a model can be tested on: known, of users with likes, not trained on, each once."""
    users, items = rows_in(model, data)
    known = users >= 0
    known[known] = model.user_degree[users[known]] > 0
    both = known & (items >= 0)
    keys = pair_keys(users[both], items[both], model.item_count)
    trained = is_among(keys, edge_keys(graph))
    once = np.unique(keys[~trained])
    return KnownPairs(
        once // model.item_count,
        once % model.item_count,
        len(users),
        int((~known).sum()),
        int((known & (items < 0)).sum()),
        int(trained.sum()),
        int((~trained).sum()) - len(once),
    )


def evaluate_model(
    model: Model,
    liked: Interactions,
    not_liked: Interactions | None = None,
    k: tuple[int, ...] = (10, 20),
    *,
    popularity: float | None = None,
    score: str | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
    run: Run[Any, Any] = run_serially,
) -> dict[str, Any]:
    """`report.evaluate` for a model and test likes, with the classification error on these; where some pairs are known
    to have been considered and not liked, also how honest p(like) is."""
    graph = Graph.from_adjacency(model.liked, model.item_count)
    pairs = known_pairs(model, graph, liked)
    if len(pairs.users) == 0:
        raise DataError(
            f"{liked.source}: none of its {pairs.rows} likes can be tested: {pairs.unknown_users} of users and "
            f"{pairs.unknown_items} of items that the model does not know, {pairs.in_training} that it was fitted to."
        )
    held = HeldOut(graph, pairs.users, pairs.items, pairs.rows - len(pairs.users))
    report = evaluate(
        ModelScorer(model, popularity, score),
        held,
        k,
        p_like=p_like(model, pairs.users, pairs.items),
        seed=seed,
        resamples=resamples,
        run=run,
        user_degree=model.user_degree,
        item_degree=model.item_degree,
    )
    report["test"] = pairs.counts()
    if not_liked is not None:
        report |= honesty(model, pairs, judged_pairs(model, graph, pairs, not_liked), seed)
    return report


def judged_pairs(model: Model, graph: Graph, liked: KnownPairs, not_liked: Interactions) -> KnownPairs:
    """The pairs that were considered and not liked. One that is also a like, as duplicates may be, is a like."""
    pairs = known_pairs(model, graph, not_liked)
    likes = np.sort(pair_keys(liked.users, liked.items, model.item_count))
    both = is_among(pair_keys(pairs.users, pairs.items, model.item_count), likes)
    duplicates = pairs.duplicates + int(both.sum())
    return replace(pairs, users=pairs.users[~both], items=pairs.items[~both], duplicates=duplicates)


def honesty(model: Model, liked: KnownPairs, not_liked: KnownPairs, seed: int = 0) -> dict[str, Any]:
    """Reliability of p(like), raw and as the model says it, classes weighed equally; None where it cannot be told."""
    counts = {"not_liked": not_liked.counts()}
    if len(not_liked.users) == 0:
        return counts | {"calibration": None}
    users, items, truth = judged(liked, not_liked)
    raw = p_like(model, users, items, UNCHANGED)
    tables = {"raw": plain_table(reliability(raw, truth))}
    if model.recalibration != UNCHANGED:
        tables["recalibrated"] = plain_table(reliability(p_like(model, users, items), truth))
    with suppress(ConsiderateError):  # too few pairs to fit a line to
        crossed = recalibrated_by_others(raw, truth, users, seed)
        tables["recalibrated by other users"] = plain_table(reliability(crossed, truth))
    return counts | {"calibration": tables}


def judged(liked: KnownPairs, not_liked: KnownPairs) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """(users, items, liked or not) of all pairs that were considered."""
    return (
        np.concatenate([liked.users, not_liked.users]),
        np.concatenate([liked.items, not_liked.items]),
        np.repeat([True, False], [len(liked.users), len(not_liked.users)]),
    )


def considered(
    model: Model, liked: Interactions, not_liked: Interactions
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """(users, items, liked or not) by the model's rows, of test data that says who considered and did not like."""
    graph = Graph.from_adjacency(model.liked, model.item_count)
    pairs = known_pairs(model, graph, liked)
    return judged(pairs, judged_pairs(model, graph, pairs, not_liked))


def p_like(
    model: Model, users: NDArray[np.int64], items: NDArray[np.int64], recalibration: Recalibration | None = None
) -> NDArray[np.float64]:
    """p(like) of pairs, as the model says it or with another recalibration."""
    mean, variance = logit_moments(model.posterior.users, model.posterior.items, users, items)
    line = model.recalibration if recalibration is None else recalibration
    return np.asarray(like_probability(mean, model.variance_scale * variance, line), np.float64)
