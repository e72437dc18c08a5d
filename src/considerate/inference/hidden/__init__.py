"""q(H), the hidden graph of considered pairs: its popularity histogram, and the estimators of averages over it.

`Sampled` draws H and sums over its edges (the paper's Algorithm 1). `DRAWERS` has other ways to draw it.
`Expected` takes the expectation in closed form. `Opening` begins with `Expected` and goes on with `Sampled`. Each gives
a pass over the rows of one side its `Terms`. All respect known pairs (data/known.py): considered pairs are edges of
every H, and impossible pairs are never drawn. `Observed` has no unliked edges but the known ones.
"""

from considerate.inference.hidden.consideration import Consideration
from considerate.inference.hidden.estimator import Estimator, Terms
from considerate.inference.hidden.expected import Expected, Shares
from considerate.inference.hidden.groups import Grouping, ItemGroups, ItemSums, UserGroups
from considerate.inference.hidden.observed import Observed
from considerate.inference.hidden.offsets import expected_unliked, user_offset
from considerate.inference.hidden.opening import Opening
from considerate.inference.hidden.popularity import (
    correct_head,
    correct_head_by,
    popularity_exponent,
    popularity_weights,
)
from considerate.inference.hidden.sampled import Draws, Sampled, positives_to_negatives
from considerate.inference.hidden.saturation import Inclusion, Masses

__all__ = [
    "Consideration",
    "Draws",
    "Estimator",
    "Expected",
    "Grouping",
    "Inclusion",
    "ItemGroups",
    "ItemSums",
    "Masses",
    "Observed",
    "Opening",
    "Sampled",
    "Shares",
    "Terms",
    "UserGroups",
    "correct_head",
    "correct_head_by",
    "expected_unliked",
    "popularity_exponent",
    "popularity_weights",
    "positives_to_negatives",
    "user_offset",
]
