"""Symmetric scores of pairs of vertices, which rank hidden links.

score = a_mn + popularity (log pi_m + log pi_n) + lift (log r_mn + log r_nm) / 2,    r_mn = w_mn / p_n
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.inference.hidden.consideration import Lift
from considerate.model.model import Model

TOGETHER = 8192  # pairs whose lift is computed together
LEAST_RATIO = 2.0**-60

Rows = NDArray[np.int64]


def link_parts(model: Model, first: Rows, second: Rows) -> tuple[NDArray[np.float64], ...]:
    """Mean logit, sum of log pi and mean log lift of pairs; lift is 0 if the model has no walk."""
    logit = np.asarray(model.pair_logits(first, second)[0], np.float64)
    log_pi = model.log_popularity.astype(np.float64)
    lift = np.zeros(len(first))
    if model.lift is not None:
        ratios = Ratios(model.lift, model.users.whole().liked)
        lift = 0.5 * (np.log(ratios.of(first, second)) + np.log(ratios.of(second, first)))
    return logit, log_pi[first] + log_pi[second], lift


class Ratios:
    """Ratios w_mn / p_n of pairs, like `Lift.ratios` for one user and all items."""

    def __init__(self, lift: Lift, linked: Adjacency) -> None:
        from scipy.sparse import csr_matrix

        shape, lengths = (linked.rows, linked.rows), np.diff(lift.walk.starts)
        walk, powers = lift.walk, lift.powers()
        rows = np.repeat(np.arange(linked.rows), lengths)
        powers *= ((1.0 - walk.rest) / np.maximum(np.bincount(rows, powers, linked.rows), 1e-300))[rows]
        degrees = np.maximum(linked.degrees, 1).astype(np.float64)
        self.linked = csr_matrix((np.repeat(1.0 / degrees, linked.degrees), linked.indices, linked.starts), shape)
        self.leading = csr_matrix((powers, walk.items, walk.starts), shape).T.tocsr()  # by end of the step
        self.walk = walk
        background = walk.mix + (1.0 - walk.mix) * (self.linked @ walk.rest.astype(np.float64))
        self.background = np.where(linked.degrees > 0, background, 1.0)

    def of(self, from_: Rows, to: Rows) -> NDArray[np.float64]:
        """Ratio of each pair; ratios below 2^-60 count as 2^-60."""
        ratios = np.empty(len(from_))
        for start in range(0, len(from_), TOGETHER):
            m, n = from_[start : start + TOGETHER], to[start : start + TOGETHER]
            walked = np.asarray(self.linked[m].multiply(self.leading[n]).sum(axis=1)).reshape(-1)
            p = self.walk.p[n]
            per_p = np.divide(walked, p, out=np.zeros(len(m)), where=p > 0)
            ratios[start : start + TOGETHER] = self.background[m] + (1.0 - self.walk.mix) * per_p
        return np.maximum(ratios, LEAST_RATIO)


def link_scores(
    model: Model, first: Rows, second: Rows, popularity: float | None, lift: float | None
) -> NDArray[np.float64]:
    """Score of each pair; the default weights are the model's own."""
    logit, log_pi, log_lift = link_parts(model, first, second)
    weight = model.plan.popularity if popularity is None else popularity
    return np.asarray(logit + weight * log_pi + model.lift_weight(lift) * log_lift)
