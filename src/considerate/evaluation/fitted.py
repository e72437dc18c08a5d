"""Evaluation of a fitted model on test data by the data's own ids: rankings and calibration of p(like)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions, ReaderOptions, read_dated_likes
from considerate.data.graph import Graph, Run, run_serially
from considerate.data.sources import is_sparse
from considerate.data.vocabulary import match_rows, union_ids
from considerate.errors import ConsiderateError, DataError, UsageError
from considerate.evaluation.calibration import reliability
from considerate.evaluation.considered import considered_report, judged_split
from considerate.evaluation.metrics import metric_named
from considerate.evaluation.protocol import Protocol, make_protocol, with_test_users
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.recalibration import JudgedPairs, chosen_fit, held_out_logits
from considerate.evaluation.report import evaluate, plain_table
from considerate.evaluation.result import BOOTSTRAP, Bootstrap
from considerate.evaluation.scorer import FunctionScorer, ModelScorer
from considerate.evaluation.split import Mask, Rows, is_among, one_per_user, only_users, pair_keys, rows_in
from considerate.model.liking import sigmoid
from considerate.model.model import Model
from considerate.model.reliability import EACH, EQUAL

REASONS = {
    "unknown_users": "of new users with no earlier like",
    "unknown_items": "of items without a like in training",
    "in_training": "that are also in training",
    "duplicates": "duplicates",
}
HIDDEN_LIKES = 0x5C0E  # stream of random numbers that chooses the hidden like of each user


@dataclass(frozen=True)
class KnownPairs:
    """Pairs of test data by the model's rows, without those that cannot be tested.

    `counts` has the rows that were read, the pairs tested, and the rows left out: of users without likes in the model,
    of unknown items, of pairs in the model's training, and duplicates.
    """

    users: Rows
    items: Rows
    counts: dict[str, int]


def known_pairs(model: Model, data: Interactions) -> KnownPairs:
    """Find the pairs of test data that a model can be tested on: known, of users with likes, not trained on."""
    (users, items), people = rows_in(model, data), model.users.whole()
    known = users >= 0
    known[known] = people.degree[users[known]] > 0
    both = known & (items >= 0)
    keys = pair_keys(users[both], items[both], model.item_count)
    trained = is_among(keys, pair_keys(people.liked.edge_rows, people.liked.indices, model.item_count))
    once = np.unique(keys[~trained])
    counts = {
        "tested": len(once),
        "rows": len(users),
        "unknown_users": int((~known).sum()),
        "unknown_items": int((known & (items < 0)).sum()),
        "in_training": int(trained.sum()),
        "duplicates": int((~trained).sum()) - len(once),
    }
    return KnownPairs(once // model.item_count, once % model.item_count, counts)


def evaluate_model(
    scorer: ModelScorer,
    liked: Interactions,
    not_liked: Interactions | None = None,
    k: tuple[int, ...] = (10, 20),
    *,
    bootstrap: Bootstrap = BOOTSTRAP,
    run: Run[Any, Any] = run_serially,
    equal_classes: bool = False,
) -> dict[str, Any]:
    """Report on a model and test likes: `report.evaluate`, the metrics of popularity, and classification errors.

    With pairs that were considered and not liked, the report also has the calibration of p(like) and the test of H.
    Users that the model does not know are folded in from all their likes but the last.
    """
    if not_liked is not None:  # users who liked nothing of the test have a row, too
        user_ids = union_ids([liked.user_ids, not_liked.user_ids])
        rows = match_rows(liked.user_ids, user_ids)[liked.users].astype(np.int32)
        liked = replace(liked, user_ids=user_ids, users=rows)
    seed = bootstrap.seed
    protocol = make_protocol(liked, "test", seed, [scorer.model])
    model = with_test_users(scorer.model, protocol)
    people = model.users.whole()
    held = replace(protocol.held, degrees=(people.degree, model.item_degree))
    options: dict[str, Any] = vars(bootstrap) | {"run": run}
    p = p_like(model, held.users, held.items)
    report = evaluate(scorer.of_model(model), held, k, p_like=p, **options)
    popular = FunctionScorer(lambda users: np.tile(model.item_degree, (len(users), 1)), "popularity")
    report["popularity"] = evaluate(popular, held, k, **options)["metrics"]
    report["test"] = test_counts(protocol, liked)
    if not_liked is not None:
        users, items, truth, counts = judged_pairs(model, (held.users, held.items), not_liked)
        tables = calibration_tables(model, users, items, truth, seed, equal_classes) if counts["tested"] else None
        report |= {"not_liked": counts, "calibration": tables, "considered": None}
        report["weights"] = EQUAL if equal_classes else EACH
        judged = judged_split(held, users[~truth], items[~truth], seed) if model.users.knows_likes else None
        if judged is not None:
            report["considered"] = considered_report(model, judged, **options)
    return report


def test_counts(protocol: Protocol, liked: Interactions) -> dict[str, int]:
    """Count the rows of test data that were read, tested, folded in and left out."""
    tested = len(protocol.held.users)
    return {
        "tested": tested,
        "rows": liked.rows_kept,
        "new_users": len(protocol.new),
        "folded_in": liked.rows_kept - tested - sum(protocol.left_out.values()),
        **{name: protocol.left_out[reason] for name, reason in REASONS.items()},
    }


def judged_pairs(
    model: Model, liked: tuple[Rows, Rows], not_liked: Interactions
) -> tuple[Rows, Rows, Mask, dict[str, int]]:
    """(users, items, liked or not) of all considered pairs, and the counts of those that were not liked.

    A pair that is in both groups is a like.
    """
    pairs = known_pairs(model, not_liked)
    likes = np.sort(pair_keys(*liked, model.item_count))
    alone = ~is_among(pair_keys(pairs.users, pairs.items, model.item_count), likes)
    users, items = pairs.users[alone], pairs.items[alone]
    doubles = len(alone) - len(users)
    counts = pairs.counts | {"tested": len(users), "duplicates": pairs.counts["duplicates"] + doubles}
    truth = np.repeat([True, False], [len(likes), len(users)])
    return np.append(liked[0], users), np.append(liked[1], items), truth, counts


def calibration_tables(
    model: Model,
    users: Rows,
    items: Rows,
    truth: Mask,
    seed: int,
    equal_classes: bool = False,
) -> dict[str, Any]:
    """Reliability tables of p(like): raw, and as the model reports it; every pair weighs the same by default."""
    weights = EQUAL if equal_classes else None
    tables = {"raw": plain_table(reliability(p_like(model, users, items, recalibrated=False), truth, weights))}
    if not model.recalibration.changes_nothing:
        tables["recalibrated"] = plain_table(reliability(p_like(model, users, items), truth, weights))
    with suppress(ConsiderateError):  # too few pairs to fit a line to
        judged = JudgedPairs.of(model, users, items, truth)
        crossed = held_out_logits(chosen_fit(judged, weights, seed), judged, judged.users, weights, seed)
        tables["recalibrated by other users"] = plain_table(reliability(sigmoid(crossed), judged.liked, weights))
    return tables


def considered(model: Model, liked: Interactions, not_liked: Interactions) -> tuple[Rows, Rows, Mask]:
    """(users, items, liked or not) of the considered pairs of test data, by the model's rows."""
    pairs = known_pairs(model, liked)
    return judged_pairs(model, (pairs.users, pairs.items), not_liked)[:3]


def mean_metric(model: Model, data: Any, metric: str, seed: int = 0, reader: ReaderOptions | None = None) -> float:
    """Mean over users of a metric, at the model's own weights of popularity and lift.

    Every row of a matrix is a new user: one like is hidden, the others are folded in; users with one like are left out.
    Other data has the model's ids. The likes of known users that are not in the model's training are ranked; for a new
    user, the last like is ranked and the others are folded in.
    """
    measure = metric_named(metric)
    if is_sparse(data):
        liked = model.item_names().likes(data)
        users = np.flatnonzero(liked.degrees >= 2)
        if len(users) == 0:
            raise DataError("score needs at least one user with two likes: one to hide and one to fold in.")
        held = one_per_user(only_users(Graph.from_adjacency(liked, model.item_count), users), seed, HIDDEN_LIKES)
        scorer = ModelScorer(model, users=model.fold_in.users(held.seen), liked=held.seen)
    else:
        protocol = make_protocol(read_dated_likes(data, reader or ReaderOptions()), "test", seed, [model])
        held, scorer = protocol.held, ModelScorer(with_test_users(model, protocol))
    return float(measure(held_ranks(scorer, held)).mean())


@dataclass(frozen=True)
class MetricScorer:
    """Metric of a fitted Recommender on data, as a scorer of scikit-learn."""

    metric: str

    def __post_init__(self) -> None:
        metric_named(self.metric)

    def __call__(self, estimator: Any, data: Any, y: Any = None) -> float:
        if not hasattr(estimator, "model_"):
            raise UsageError(f"{type(estimator).__name__} is no fitted Recommender; considerate.scorer is for those.")
        return float(estimator.score(data, metric=self.metric))


def scorer(metric: str) -> MetricScorer:
    """Make a scorer for scikit-learn: `cross_val_score(Recommender(), likes, scoring=considerate.scorer("ndcg@20"))`.

    The metrics are "ndcg@20", "recall@20", "map@20" and "hit rate@20" with any number, "mrr" and "s_rank". Folds of a
    data frame are of likes, folds of a matrix are of users; see `Recommender.score`.
    """
    return MetricScorer(metric)


def p_like(model: Model, users: Rows, items: Rows, recalibrated: bool = True) -> NDArray[np.float64]:
    """p(like) of pairs in double precision, as the model reports it or before any recalibration."""
    return np.asarray(model.pair_probabilities(users, items, recalibrated), np.float64)
