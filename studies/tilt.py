"""What tilted draws follow: the law of draws one after the other, without replacement, measured.

    python -m studies.tilt

One user draws a share of the items that they have not liked, many times, with a tilt and without. With r and w the
shares of the draws that have an item, the table has the slopes on t B of

    log(-log(1 - r)) - log(-log(1 - w))     the complementary log-log: draws by weights w_n exp(t B) have 1
    logit r - logit w                       the exact step of q(h): 1 only where few of the items are drawn
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.inference.hidden import Draws, Sampled
from considerate.inference.posterior import Side
from considerate.kernels import reference

ITEMS, USERS, LIKES = 121, 20_000, 1  # users are the same one, many times
SHARES = (0.09, 0.33, 0.71)  # of the open items that are drawn
Floats = NDArray[np.float64]


def shares_drawn(negatives: float, tilt: float, sides: tuple[Side, Side], weights: Floats) -> Floats:
    """[items] the share of users who draw each item."""
    liked = Adjacency(np.arange(USERS + 1), np.zeros(USERS, np.int32))
    sampled = Sampled(liked, np.array([0, USERS]), Draws.of(weights, tilt=tilt), negatives, 3)
    return np.bincount(sampled.draw(1, sides=sides).indices, minlength=len(weights)) / USERS


def slope(y: Floats, x: Floats, weight: Floats) -> float:
    """Slope of the weighted regression line of y on x."""
    x = x - np.average(x, weights=weight)
    return float((weight * x * y).sum() / (weight * x * x).sum())


def slopes(share: float, tilt: float = 1.0, seed: int = 0) -> tuple[float, float]:
    """(complementary log-log, logit): slopes on t B where this share of the open items is drawn."""
    random = np.random.default_rng(seed)
    weights, negatives = np.exp(random.normal(0, 0.5, ITEMS)), round(share * (ITEMS - LIKES)) / LIKES
    user = Side.of(random.normal(0, 1, (1, 3)), np.full((1, 3), 0.1))
    items = Side.of(
        random.normal(0, 1, (ITEMS, 3)),
        np.full((ITEMS, 3), 0.1),
        (random.normal(math.log(negatives), 0.5, ITEMS), np.full(ITEMS, 0.1)),
    )
    sides = user.take(np.zeros(USERS, np.int64)), items
    r, w = (shares_drawn(negatives, strength, sides, weights) for strength in (tilt, 0.0))
    mean = (user.mean @ items.mean.T)[0] + items.biases[0] - math.log(negatives)
    variance = (user.mean**2 @ items.variance.T + user.variance @ (items.mean**2 + items.variance).T)[0]
    square = mean**2 + variance + items.biases[1]
    liked = float(tilt < 0)
    x = abs(tilt) * reference.log_logistic_bound(mean, square, liked, np.sqrt(square))
    kept = (np.minimum(r, w) > 0.005) & (np.maximum(r, w) < 0.995)
    r, w, x = r[kept], w[kept], x[kept]
    trust = r * (1 - r)
    by_log_log = np.log(-np.log1p(-r)) - np.log(-np.log1p(-w))
    by_logit = np.log(r / (1 - r)) - np.log(w / (1 - w))
    return slope(by_log_log, x, trust), slope(by_logit, x, trust)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("| share of the open items that is drawn | complementary log-log | logit |\n|---|---|---|")
    for share in SHARES:
        log_log, logit = slopes(share)
        print(f"| {share:.0%} | {log_log:.2f} | {logit:.2f} |", flush=True)


if __name__ == "__main__":
    main()
