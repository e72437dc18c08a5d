"""Offsets of logits, from the ratio of unliked edges to likes of each user.

With k_m unliked edges and d_m likes of user m in H, the logit of a pair on H is a_mn - log(k_m / d_m), so that a_mn = 0
means a fair coin. k_m is c d_m, but a user cannot have more unliked edges than there are items left:

    k_m = known_m + min(c d_m - known_m, items that user m may draw)

known_m is the number of known considered pairs; if it exceeds c d_m, k_m = known_m. k_m is an expected number: a coin
rounds c d_m up or down in each draw, and the offset does not depend on it. The closed form gives a user the same mass.
Half-edges are Poisson(c d_m), at most as many as the items that the user has not liked. A tilt changes which items are
drawn, not how many.

All users share the offset -log c. A user's own offset is -log(k_m / (c d_m)), which is 0 unless the user runs out of
items or has more known pairs. With k_m = 0 the offset is infinite: the likes of a user who could not have passed
anything over carry no information.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.data.known import Known
from considerate.inference.hidden.drawers import drawer_of

if TYPE_CHECKING:
    from considerate.inference.plan import FitPlan

Floats = NDArray[np.float64]

# Stands for infinity if k_m = 0. As a power of two far above every logit it makes 2 lambda(xi) xi exactly one half in
# float32, so that a like's pull and its part of the bound are exactly 0, and its precision is below rounding.
UNBOUNDED = 2.0**40


def expected_unliked(likes: Adjacency, weights: Floats, plan: FitPlan, known: Known | None = None) -> Floats:
    """Expected number k_m of unliked edges of each user."""
    return drawer_of(plan.hidden).expected_unliked(likes, weights, plan.negatives, known)


def user_offset(
    likes: Adjacency, weights: Floats, plan: FitPlan, known: Known | None = None, unliked: Floats | None = None
) -> NDArray[np.float32] | None:
    """Offset -log(k_m / (c d_m)) of each user's logits, added to -log c; None if all are 0.

    A user without likes counts like one with one like who does not run out of items. `unliked` is k_m, if known.
    """
    if plan.observed or plan.signed is not None:  # all pairs of vertices of one kind have one offset
        return None
    if not plan.expected_offsets:
        return None if known is None else known.user_offset(likes.degrees, plan.negatives)
    k = expected_unliked(likes, weights, plan, known) if unliked is None else unliked
    ratio = k / (plan.negatives * np.maximum(likes.degrees, 1))
    ratio[likes.degrees == 0] = np.maximum(ratio[likes.degrees == 0], 1.0)
    return None if (ratio == 1.0).all() else offset_of(ratio)


def offset_of(ratio: Floats) -> NDArray[np.float32]:
    """-log of the ratio k_m / (c d_m)."""
    offset = -np.log(ratio, out=np.full(len(ratio), -UNBOUNDED), where=ratio > 0)
    return np.asarray(offset, np.float32) + np.float32(0.0)  # not -0
