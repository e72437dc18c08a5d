"""Metrics over full rankings, never sampled.

A metric of rankings is one number for each tested user, in the order of `Ranks.people`, so that users can be averaged,
resampled and paired; a figure is the mean over users. The candidates of a held-out item are all items that its user did
not like in training; the user's other held-out items are among them.

If scores tie, a metric is its exact expectation over a random order of the tied items. So it depends on the scores
alone, not on a draw or the numbering of the items, and a constant score is as good as guessing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.errors import UsageError
from considerate.evaluation.ranks import Ranks

Floats = NDArray[np.float64]


def rank_score(scores: NDArray[Any], held_out: int, seen: NDArray[Any]) -> float:
    """S_rank (eq. 23) of one held-out item: the share of the items not seen in training that it is ranked above.

    The held-out item is in its own denominator, as in the paper. A tie counts half (the paper's strict inequality would
    count it as a loss), so random guessing gives 1/2 up to 1/(2 n). `Ranks.scores` computes this for many items.
    """
    free = np.ones(len(scores), bool)
    free[seen] = False
    free[held_out] = True
    others, own = scores[free], scores[held_out]
    below, ties = int((others < own).sum()), int((others == own).sum()) - 1
    return (below + 0.5 * ties) / len(others)


def rank_scores(ranks: Ranks) -> Floats:
    """S_rank (eq. 23) of each user: the mean over the user's held-out items.

    Denominator: for an item, its candidates, itself among them; for a user, the held-out items. Ties count half.
    """
    return _sum_by_user(ranks, ranks.scores) / ranks.held


def recall(ranks: Ranks, k: int) -> Floats:
    """Recall@k: held-out items among the k best.

    Denominator: all held-out items of the user, even if they are more than k (LightGCN's convention).
    """
    group = _Groups.of(ranks, k)
    return _sum_by_user(ranks, group.slots / group.size) / ranks.held


def hit_rate(ranks: Ranks, k: int) -> Floats:
    """Hit rate@k: 1 if at least one held-out item is among the k best, else 0. Denominator: 1, the user."""
    group = _Groups.of(ranks, k)
    # the chance that no held-out item of a tied group is above the cut that goes through the group
    missed = np.maximum(group.size - group.slots - group.index, 0) / (group.size - group.index)
    none = np.ones(len(ranks.people))
    np.multiply.at(none, ranks.user_index, missed)
    return 1.0 - none


def ndcg(ranks: Ranks, k: int) -> Floats:
    """NDCG@k: the sum over held-out items among the k best of 1 / log2(1 + position).

    Denominator: that sum for the best possible list, whose first min(k, held-out) positions are held-out items.
    """
    group = _Groups.of(ranks, k)
    discount = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2, k + 2)))])
    first = np.minimum(ranks.above, k)
    gains = (discount[first + group.slots] - discount[first]) / group.size
    return np.asarray(_sum_by_user(ranks, gains) / discount[np.minimum(ranks.held, k)])


def mean_average_precision(ranks: Ranks, k: int) -> Floats:
    """MAP@k: the average precision of each user.

    It is the sum over held-out items among the k best of the share of held-out items down to its position.
    Denominator: min(k, held-out items of the user), the most that can be among the k best.
    """
    group = _Groups.of(ranks, k)
    harmonic = _harmonic(k)
    first = np.minimum(ranks.above, k)
    inverse = harmonic[first + group.slots] - harmonic[first]  # sum of 1 / position over the slots
    # a share (j - 1) / (T - 1) of the H - 1 other held-out items of the group is expected before slot j
    before = np.divide(group.held - 1, group.size - 1, out=np.zeros(len(first)), where=group.size > 1)
    precision = (group.better + 1) * inverse + before * (group.slots - (ranks.above + 1) * inverse)
    return _sum_by_user(ranks, precision / group.size) / np.minimum(ranks.held, k)


def mrr(ranks: Ranks, k: int | None = None) -> Floats:
    """MRR: 1 / position of the user's best held-out item, 0 if that is beyond k. Denominator: 1, the user.

    Without k the whole ranking counts.
    """
    longest = int(ranks.candidates.max())
    group = _Groups.of(ranks, longest if k is None else k)
    harmonic = _harmonic(longest)
    answer = np.zeros(len(ranks.people))
    best = (group.better == 0) & (group.index == 0)  # one edge of each user's best group
    edges = np.flatnonzero(best)
    first = ranks.above[edges]
    inverse = harmonic[first + group.slots[edges]] - harmonic[first]
    answer[ranks.user_index[edges]] = inverse / group.size[edges]
    for edge in edges[group.held[edges] > 1]:  # several in one tie: the first of H among T
        T, H, a = int(group.size[edge]), int(group.held[edge]), int(ranks.above[edge])
        j = np.arange(1, T - H + 2)
        chance = H / T * np.concatenate([[1.0], np.cumprod((T - j[:-1] - H + 1) / (T - j[:-1]))])
        inside = j <= int(group.slots[edge])
        answer[ranks.user_index[edge]] = float((chance[inside] / (a + j[inside])).sum())
    return answer


WHOLE = {"S_rank": rank_scores, "MRR": mrr}  # metrics of whole rankings
AT_K = {"Recall": recall, "NDCG": ndcg, "MAP": mean_average_precision, "hit rate": hit_rate}  # metrics of lists of k


def user_metrics(ranks: Ranks, k: tuple[int, ...] = (10, 20)) -> dict[str, Floats]:
    """[tested users] every metric of rankings, by name ("S_rank", "MRR", "Recall@20", ...)."""
    at_k = {f"{name}@{cut}": metric(ranks, cut) for cut in k for name, metric in AT_K.items()}
    return {name: metric(ranks) for name, metric in WHOLE.items()} | at_k


def metric_named(name: str) -> Callable[[Ranks], Floats]:
    """Find a metric by a name such as "ndcg@20", in capitals or not."""
    word, at, cut = str(name).lower().replace("_", " ").partition("@")
    whole = {known.lower().replace("_", " "): metric for known, metric in WHOLE.items()}
    lists = {known.lower(): metric for known, metric in AT_K.items()}
    if word in whole and not at:
        return whole[word]
    if word in lists and cut.isdecimal() and int(cut) > 0:
        return lambda ranks: lists[word](ranks, int(cut))
    known = [*(f"{known.lower()}@20" for known in AT_K), *(known.lower() for known in WHOLE)]
    raise UsageError(f"there is no metric {name!r}; expected one such as {', '.join(map(repr, known))}.")


# --- Metrics of lists: [users, k] item rows, -1 for none ---


def coverage(lists: NDArray[Any], item_count: int) -> float:
    """Share of the catalogue that is in at least one list. Denominator: all items."""
    return float((_recommended(lists, item_count) > 0).sum()) / item_count


def gini(lists: NDArray[Any], item_count: int) -> float:
    """Gini coefficient of how often each item is recommended: 0 if all equally often, near 1 if only a few.

    Denominator: all items, including those never recommended.
    """
    counts = np.sort(_recommended(lists, item_count))
    total = int(counts.sum())
    if total == 0:
        raise UsageError("nothing is recommended to anyone; there is no Gini coefficient of empty lists.")
    weights = 2.0 * np.arange(1, item_count + 1) - item_count - 1.0
    return float((weights * counts).sum() / (item_count * total))


def list_metrics(lists: NDArray[Any], item_degree: NDArray[Any], user_count: int) -> dict[str, Floats]:
    """[tested users] mean popularity and novelty of each list, by names such as "popularity@20"."""
    k = lists.shape[1]
    return {
        f"popularity@{k}": mean_popularity(lists, item_degree),
        f"novelty@{k}": novelty(lists, item_degree, user_count),
    }


def mean_popularity(lists: NDArray[Any], item_degree: NDArray[Any]) -> Floats:
    """Mean degree in training of the items recommended to each user. Denominator: the user's list; NaN if empty."""
    return _mean_of_lists(lists, np.asarray(item_degree, np.float64))


def novelty(lists: NDArray[Any], item_degree: NDArray[Any], user_count: int) -> Floats:
    """Mean of -log2(degree / users) of the items recommended to each user: surprise in bits.

    An item that nobody liked has degree 1/2. Denominator: the user's list; NaN if empty.
    """
    share = np.maximum(np.asarray(item_degree, np.float64), 0.5) / user_count
    return _mean_of_lists(lists, -np.log2(share))


@dataclass(frozen=True)
class _Groups:
    """[test edges] the group of candidates that tie with each held-out item, itself among them, and the cut at k."""

    size: NDArray[np.int64]  # T, candidates in the group
    slots: NDArray[np.int64]  # positions of the group among the k best
    held: NDArray[np.int64]  # H, the user's held-out items in the group
    index: NDArray[np.int64]  # 0 to H - 1 within the group
    better: NDArray[np.int64]  # the user's held-out items in better groups

    @classmethod
    def of(cls, ranks: Ranks, k: int) -> _Groups:
        if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
            raise UsageError(f"k is {k!r}; it must be a whole number at least 1.")
        size = ranks.ties + 1
        order = np.lexsort((ranks.above, ranks.user_index))
        user, above = ranks.user_index[order], ranks.above[order]
        new_user = np.append(True, user[1:] != user[:-1])
        new_group = new_user | np.append(True, above[1:] != above[:-1])
        at = np.arange(len(order))
        first_of_group = np.maximum.accumulate(np.where(new_group, at, 0))
        first_of_user = np.maximum.accumulate(np.where(new_user, at, 0))
        number = np.cumsum(new_group) - 1
        counts = np.bincount(number)
        held, index, better = np.empty((3, len(order)), np.int64)
        held[order] = counts[number]
        index[order] = at - first_of_group
        better[order] = first_of_group - first_of_user
        return cls(size, np.clip(k - ranks.above, 0, size), held, index, better)


def _sum_by_user(ranks: Ranks, values: NDArray[Any]) -> Floats:
    return np.bincount(ranks.user_index, np.asarray(values, np.float64), minlength=len(ranks.people)).astype(np.float64)


def _harmonic(count: int) -> Floats:
    """Harmonic numbers H_0 to H_count."""
    return np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, count + 1))])


def _recommended(lists: NDArray[Any], item_count: int) -> NDArray[np.int64]:
    return np.bincount(lists[lists >= 0], minlength=item_count)


def _mean_of_lists(lists: NDArray[Any], values: Floats) -> Floats:
    there = lists >= 0
    totals = np.where(there, values[np.where(there, lists, 0)], 0.0).sum(axis=1)
    counts = there.sum(axis=1)
    return np.asarray(np.divide(totals, counts, out=np.full(len(lists), np.nan), where=counts > 0))
