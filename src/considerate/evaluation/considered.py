"""Test of H: per user, the AUC of considered pairs without a like against pairs that were never rated.

A rating below the rule is an edge of H without a like. Each score ranks the judged items of a user among the items that
the user never rated: pi (considered by anyone), w (considered by this user), a (the logit of liking).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, Graph, Run, run_serially
from considerate.evaluation.bootstrap import RESAMPLES
from considerate.evaluation.ranks import Ranks, held_ranks
from considerate.evaluation.report import mean_figures
from considerate.evaluation.scorer import FunctionScorer, Scorer, Users
from considerate.evaluation.split import HeldOut, edge_keys, is_among, pair_keys
from considerate.model.model import Model

Floats = NDArray[np.float64]
MOST_SCORES = 1 << 28  # users times items; above this, the seed draws the users
STREAM = 0x15A1


def judged_split(
    held: HeldOut, users: NDArray[Any], items: NDArray[Any], seed: int = 0, most: int = MOST_SCORES
) -> HeldOut | None:
    """Hold out the pairs that were considered and not liked, with all likes as training.

    None if no user has both such a pair and a pair that was never rated. The likes of `held`, trained on or held out,
    are in neither group. If users times items is more than `most`, the seed draws the users.
    """
    count, (trained, liked) = held.train.item_count, held.train.pairs()
    likes = np.append(trained, held.users), np.append(liked, held.items)
    known = Graph.from_adjacency(Adjacency.of_pairs(*likes, held.train.user_count, count), count)
    keys = np.unique(pair_keys(users, items, count))
    keys = keys[~is_among(keys, edge_keys(known))]
    judged = np.bincount(keys // count, minlength=known.user_count)
    able = np.flatnonzero((judged > 0) & (known.by_user.degrees + judged < count))
    wanted = max(1, most // count)
    if len(able) > wanted:
        able = np.random.Generator(np.random.Philox(key=[seed, STREAM])).permutation(able)[:wanted]
    keys = keys[np.isin(keys // count, able)]
    return HeldOut(known, keys // count, keys % count) if len(keys) else None


def auc_by_user(ranks: Ranks) -> Floats:
    """[people] share of (judged, never rated) pairs in which the judged one has the higher score; ties count half.

    The candidates are J judged pairs and C - J that were never rated. A judged pair wins C - 1 - above - ties / 2 times
    against the other candidates; J (J - 1) / 2 of all wins are over other judged pairs, whatever the scores.
    """
    candidates, J = np.empty(len(ranks.people)), ranks.held
    candidates[ranks.user_index] = ranks.candidates
    lost = np.bincount(ranks.user_index, ranks.above + 0.5 * ranks.ties)
    wins = J * (candidates - 1.0) - lost - 0.5 * J * (J - 1.0)
    return np.asarray(wins / (J * (candidates - J)))


def consideration_scorers(model: Model) -> list[Scorer]:
    """Scorers by pi and a, and if the model has a table of w, by w and a + log w."""
    log_pi, side, table = model.log_popularity, model.posterior.users, model.consideration
    likes = model.users.whole().liked

    def logits(rows: Users) -> Any:
        return model.columns.means(side, rows)

    def popularity(rows: Users) -> Any:
        return np.tile(log_pi, (len(rows), 1))

    if table is None:
        return [FunctionScorer(popularity, "pi"), FunctionScorer(logits, "a")]

    def walk(rows: Users) -> Any:
        return table.log_ratios(likes.take(rows)) + log_pi

    scores = {"pi": popularity, "w": walk, "a": logits, "a + log w": lambda rows: logits(rows) + walk(rows)}
    return [FunctionScorer(score, name) for name, score in scores.items()]


def considered_aucs(model: Model, judged: HeldOut, run: Run[Any, Any] = run_serially) -> dict[str, Floats]:
    """AUC of every user with judged pairs, by score; users ascend."""
    return {scorer.name: auc_by_user(held_ranks(scorer, judged, run)) for scorer in consideration_scorers(model)}


def considered_report(
    model: Model, judged: HeldOut, *, seed: int = 0, resamples: int = RESAMPLES, run: Run[Any, Any] = run_serially
) -> dict[str, Any]:
    """Number of users and pairs, and by score the mean AUC over users with its 95 % bootstrap interval."""
    aucs = considered_aucs(model, judged, run)
    figures = mean_figures(aucs, seed, resamples)
    return {"users": len(aucs["pi"]), "pairs": len(judged.users), "auc": figures}
