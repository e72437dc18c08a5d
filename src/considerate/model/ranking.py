"""Scores of items, the options of a ranking, and the best k with deterministic ties.

All positives are in H, and a pair without a like is in H with probability w_mn, so logit p(g = 1) = a + log w_mn
exactly (eq. 4 with the odds of liking): with w proportional to pi_n that ranks by a + log pi_n. The knob, the
*popularity weight*, is the factor of log pi_n: 0 ranks by liking alone, 1 by the odds of a like being observed.

With the walk, w is the user's own. log w_mn = log pi_n + log(w_mn / pi_n), popularity and *lift*, and lift has a weight
of its own: a + popularity * log pi_n + lift * log(w_mn / pi_n). At 1 and 1 these are the odds of an observed like,
unless the rows of the walk were sharpened for lift (`sharpness`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from considerate.data.categories import read_categories
from considerate.errors import UsageError
from considerate.inference.hidden.offsets import UNBOUNDED
from considerate.inference.plan import FitPlan
from considerate.model.liking import STRUCTURAL, check_interval, like_probability
from considerate.model.names import check_count, id_list

if TYPE_CHECKING:
    from considerate.model.index import ItemIndex

SCORES = ("like", "popularity", "popularity_x_like", "p_like")  # the paper's three, and the reported p(like)


@dataclass(frozen=True)
class RankingOptions:
    """Options of the score, and of the items that may be recommended. Checked when made; can be pickled."""

    popularity: float | None = None  #: weight of log pi in the score; None: the model's own
    score: str | None = None  #: one of SCORES in place of the logit
    cold: str = "error"  #: for users who are unknown or liked nothing: "error", or "popular" items
    filter_already_liked_items: bool = True
    allow_impossible: bool = False  #: True if items that are impossible for a user may be recommended
    allow: Sequence[Any] | None = None  #: ids of the only items that may be recommended
    deny: Sequence[Any] | None = None  #: ids of items that may not
    explore_kappa: float = 0.0  #: standard deviations of the logit that are added to it
    thompson_seed: int | None = None  #: draws the logits
    lift: float | None = None  #: weight of log lift in the score; None: the model's own
    index: ItemIndex | None = None  #: index that finds the candidates; None: all items are candidates
    diversity: float = 0.0  #: from 0, by the scores alone, to 1, items as different as possible
    categories: Any = None  #: of items by id: a dict, or a table with a column of items and one of categories
    most_per_category: int | None = None  #: items of one category in a list
    interval: str = STRUCTURAL  #: kind of interval of p(like): "structural", or "posterior" as in the paper

    def __post_init__(self) -> None:
        if self.score is not None and self.score not in SCORES:
            raise UsageError(f"score is {self.score!r}; it may be one of {', '.join(SCORES)}.")
        if self.score is not None and self.popularity is not None:
            raise UsageError("score and popularity do not go together: these scores have no popularity weight.")
        if self.score is not None and self.lift is not None:
            raise UsageError("score and lift do not go together: these scores have no weight of lift.")
        if self.score is not None and self.explores:
            raise UsageError("score does not go with explore_kappa or thompson_seed: exploring is about the logit.")
        if self.index is not None and (self.score or self.explores):
            raise UsageError("index does not go with score, explore_kappa or thompson_seed: it is of the logit.")
        if self.index is not None and self.allow is not None:
            raise UsageError("index does not go with a list of allowed items: they are ranked without one.")
        check_interval(self.interval)
        if self.cold not in ("error", "popular"):
            raise UsageError(f"cold is {self.cold!r}; it must be 'error' or 'popular'.")
        seed = self.thompson_seed
        if seed is not None and (not isinstance(seed, int | np.integer) or isinstance(seed, bool)):
            raise UsageError(f"thompson_seed is {seed!r}; it must be None or a whole number.")
        for name in ("popularity", "lift"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, finite(name, getattr(self, name)))
        object.__setattr__(self, "diversity", finite("diversity", self.diversity, 0, 1))
        if (self.categories is None) != (self.most_per_category is None):
            raise UsageError("categories and most_per_category go together: what items are, and how many of each.")
        if self.categories is not None:
            object.__setattr__(self, "most_per_category", check_count(self.most_per_category, "most_per_category"))
            object.__setattr__(self, "categories", read_categories(self.categories))
        object.__setattr__(self, "explore_kappa", finite("explore_kappa", self.explore_kappa))
        for name in ("allow", "deny"):
            ids = getattr(self, name)
            object.__setattr__(self, name, None if ids is None else tuple(id_list(ids, name)))

    @property
    def explores(self) -> bool:
        """True if logits are drawn, or deviations added to them."""
        return bool(self.explore_kappa) or self.thompson_seed is not None

    @classmethod
    def choose(cls, options: RankingOptions | None, **fields: Any) -> RankingOptions:
        """Return `options` if given, else options of these fields; raise UsageError if both are given."""
        own = cls(**fields)
        if options is not None and own != cls():
            raise UsageError("options came with other keywords of ranking; put them all into options.")
        return own if options is None else options


class RankingKeywords(TypedDict, total=False):
    """Fields of `RankingOptions`, as keywords."""

    popularity: float | None
    lift: float | None
    score: str | None
    cold: str
    filter_already_liked_items: bool
    allow_impossible: bool
    allow: Sequence[Any] | None
    deny: Sequence[Any] | None
    explore_kappa: float
    thompson_seed: int | None
    index: ItemIndex | None
    diversity: float
    categories: Any
    most_per_category: int | None
    interval: str


def finite(name: str, value: Any, low: float = -1e6, high: float = 1e6) -> float:
    """Check that a number is in a range; raise UsageError if not."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not low <= number <= high:
        limits = "-1e6 to 1e6" if low < 0 else f"{low} to {high}"
        raise UsageError(f"{name} is {value!r}; it must be a number from {limits}.")
    return number


def log_popularity(weights: NDArray[np.float64], gamma: float) -> NDArray[np.float32]:
    """log pi_n of items. One that nobody liked counts as of degree 1/2, so that it comes last and is not lost."""
    floor = 0.5**gamma if gamma > 0 else float(np.min(weights[weights > 0], initial=np.inf))
    return np.asarray(np.log(np.where(weights > 0, weights, floor)), np.float32)


def paper_score(name: str, mean: NDArray[Any], variance: NDArray[Any], weights: NDArray[Any]) -> NDArray[Any]:
    """Compute one of the paper's scores: *like* (eq. 22), *popularity* pi_n, or *popularity x like* (eq. 4)."""
    if name == "like":
        return like_probability(mean, variance)
    if name == "popularity":
        return np.broadcast_to(weights, mean.shape)
    if name == "popularity_x_like":
        return np.asarray(weights * like_probability(mean, variance))
    raise UsageError(f"score is {name!r}; it may be one of {', '.join(SCORES)}.")


def utility(mean: NDArray[Any], log_pi: NDArray[Any], popularity: float) -> NDArray[Any]:
    """Compute the mean logit + popularity * log pi. A weight of zero leaves popularity out."""
    return mean if popularity == 0.0 else mean + np.float32(popularity) * log_pi


def tilt_term(mean: NDArray[Any], plan: FitPlan, offset: NDArray[Any]) -> NDArray[Any]:
    """Term of a tilt t in the score: log(r / w) up to a constant, as H was drawn.

    It is t log(1 - s), or -t log s if t < 0; s is sigma of the mean logit with the offset of its user.
    """
    bounded = np.where(np.asarray(offset) > 0.5 * UNBOUNDED, plan.offset, offset)  # a user who likes all draws nothing
    a = np.asarray(mean, np.float32) + bounded.astype(np.float32)[:, None]
    return np.asarray(np.float32(-abs(plan.tilt)) * np.logaddexp(np.float32(0.0), a if plan.tilt > 0 else -a))


def explore(
    scores: NDArray[Any], variance: NDArray[Any], kappa: float, seed: int | None, keys: NDArray[np.int64]
) -> NDArray[Any]:
    """Compute scores for exploration: draws of all logits (Thompson) if there is a seed, plus kappa deviations.

    A draw is a function of the seed and the user's key.
    """
    if seed is not None:
        drawn = np.empty(scores.shape, np.float32)
        for i, user in enumerate(keys.tolist()):
            key = np.array([int(seed) & (2**64 - 1), user & (2**64 - 1)], np.uint64)
            drawn[i] = np.random.Generator(np.random.Philox(key=key)).standard_normal(scores.shape[1], np.float32)
        scores = scores + np.sqrt(variance) * drawn
    return scores if kappa == 0.0 else scores + np.float32(kappa) * np.sqrt(variance)


def best(scores: NDArray[Any], k: int, excluded: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Places of the k best scores, highest first; of a tie, the lower place. Fewer if fewer remain."""
    values = np.asarray(scores, np.float64)
    if excluded is not None:
        values = np.where(excluded, -np.inf, values)
    k = min(k, int((values > -np.inf).sum()))
    if k <= 0:
        return np.empty(0, np.int64)
    threshold = np.partition(values, len(values) - k)[len(values) - k]
    chosen = np.flatnonzero(values > threshold)
    chosen = np.concatenate([chosen, np.flatnonzero(values == threshold)[: k - len(chosen)]])
    return chosen[np.lexsort((chosen, -values[chosen]))].astype(np.int64)
