"""What the paper says of its experiments, beside what is seen here: all of it computed.

The paper's data, Xbox and Netflix, is not here: a statement that does not hold may be one about its data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from considerate.evaluation.report import TAIL
from considerate.evaluation.split import HeldOut
from considerate.evaluation.strata import Stratum, strata
from considerate.study.results import Statement
from considerate.study.summary import Contender, edges_of, pooled_ranks

Floats = NDArray[np.float64]
ENOUGH = 50  # held-out likes, for a mean to say something
MATTERS = 0.02  # a difference of widths
THE_PAPERS_TAUS = {"user": 2.0, "item": 3.5, "item bias": 0.4}
LIKES = ("like, r = 1", "like, r = 1/2")
PRODUCTS = ("popularity x like, r = 1", "popularity x like, r = 1/2")


def make_statements(
    contenders: Mapping[str, Contender],
    p_held: Mapping[str, Sequence[Floats]],
    taus: Mapping[str, Floats],
    splits: Sequence[HeldOut],
) -> list[Statement]:
    """p_held: p(like) of the held-out likes by split, of "r = 1" and "r = 1/2"; taus: E[tau] of both, [splits, 3]."""
    edges = edges_of(splits)
    p = {name: np.concatenate(parts) for name, parts in p_held.items()}
    ranks = {name: pooled_ranks(one) for name, one in contenders.items()}
    return [
        _settled_error(p, edges["user degree"]),
        _one_item(p, edges["user degree"]),
        _tail(ranks, edges["item degree"]),
        _head(ranks, edges["item degree"]),
        _overall(ranks),
        _medians(ranks, edges),
        _spread(ranks, edges["user degree"]),
        _tighter(ranks, edges["user degree"]),
        _taus(taus),
    ]


def _settled_error(p: Mapping[str, Floats], degree: NDArray[np.int64]) -> Statement:
    parts = {"10 to 19 items": (10, 20), "20 to 79": (20, 80), "80 and more": (80, math.inf)}
    inside = {words: (degree >= low) & (degree < high) for words, (low, high) in parts.items()}
    said, settled, heavy = [], [], []
    for name, values in p.items():
        shown = [f"{_percent(_error(values, some))} ({words})" for words, some in inside.items() if some.any()]
        said.append(f"{name}: {', '.join(shown) or 'no such users'}")
        if inside["20 to 79"].sum() >= ENOUGH:
            settled.append(_error(values, inside["20 to 79"]))
        if inside["80 and more"].sum() >= ENOUGH:
            heavy.append(_error(values, inside["80 and more"]))
    agrees = all(0.15 <= one <= 0.20 for one in settled) if settled else None
    if agrees is None:
        why = "Too few users have twenty items to say."
    elif agrees:
        why = "Within a point of the paper's band for users of 20 to 79 items."
    else:
        side = "lower" if np.mean(settled) < 0.15 else "higher" if np.mean(settled) > 0.20 else "spread wider"
        why = (
            f"For users of 20 to 79 items it is {side}: it depends on how well taste tells a user's likes from other "
            "popular items, which is a property of the catalogue; the paper's band is that of Xbox and Netflix."
        )
    if heavy and not 0.15 <= np.mean(heavy) <= 0.20:
        why += f" It is not stable: for users of 80 and more it is {_percent(float(np.mean(heavy)))}."
    return Statement(
        "The classification error of held-out likes settles at 16-19 % as users view between ten and twenty items.",
        "; ".join(said),
        agrees,
        why,
    )


def _one_item(p: Mapping[str, Floats], degree: NDArray[np.int64]) -> Statement:
    one = degree == 1
    text = "For users of one item p(like) is centred around 50 %, slightly skewed to being less certain."
    if int(one.sum()) < ENOUGH:
        return Statement(
            text,
            f"{int(one.sum())} held-out likes are of users with one other item",
            None,
            "Too few users have one item in training.",
        )
    said = [
        f"{name}: error {_percent(_error(values, one))}, median p(like) {np.median(values[one]):.2f}, "
        f"{_percent(float(((values[one] > 0.4) & (values[one] < 0.6)).mean()))} between 0.4 and 0.6"
        for name, values in p.items()
    ]
    agrees = all(0.35 <= float(np.median(values[one])) <= 0.65 for values in p.values())
    why = (
        "One like moves a user's vector little from its prior, so p(like) stays near that of the item's bias."
        if agrees
        else "The items' biases alone say much here: p(like) of a user of one item is mostly that of the item."
    )
    return Statement(text, "; ".join(said), agrees, why)


def _tail(ranks: Mapping[str, Floats], degree: NDArray[np.int64]) -> Statement:
    text = f"In the tail (here: items of degree under {TAIL}) like is strongest, with BPR-popularity just behind."
    inside = degree < TAIL
    if int(inside.sum()) < ENOUGH:
        return Statement(text, f"{int(inside.sum())} held-out likes are in the tail", None, "Too few to say.")
    means = {name: float(values[inside].mean()) for name, values in ranks.items() if name in _of_the_paper(ranks)}
    first = max(means, key=lambda name: means[name])
    why = "The paper's settings against the peers that it had; r = 1 takes most popularity out."
    if first not in LIKES:
        why = f"{first} is ahead here; it was tuned on a validation split, which like at the paper's settings was not."
    return Statement(text, _listed(means), first in LIKES, why)


def _head(ranks: Mapping[str, Floats], degree: NDArray[np.int64]) -> Statement:
    text = "In the head popularity x like and BPR-uniform are strongest (compared with like and BPR-popularity)."
    cut = float(np.quantile(degree, 0.75))
    inside = degree >= cut
    means = {name: float(values[inside].mean()) for name, values in ranks.items() if name in _of_the_paper(ranks)}
    strong = [means[name] for name in (*PRODUCTS, "BPR-uniform") if name in means]
    weak = [means[name] for name in (*LIKES, "BPR-popularity") if name in means]
    agrees = min(strong) > max(weak)
    why = (
        f"On the quarter of held-out likes of the most popular items, of degree {cut:,.0f} and more."
        if agrees
        else f"Not on the quarter of held-out likes of degree {cut:,.0f} and more: where degrees differ little, "
        "popularity has little to give, and the two kinds come close."
    )
    return Statement(text, _listed(means), agrees, why)


def _overall(ranks: Mapping[str, Floats]) -> Statement:
    means = {name: float(values.mean()) for name, values in ranks.items() if name in _of_the_paper(ranks)}
    text = "Over all held-out likes BPR-uniform is best, as it optimises this rank itself."
    if "BPR-uniform" not in means:
        return Statement(text, _listed(means), None, "BPR was not part of this study.")
    first = max(means, key=lambda name: means[name])
    knob = float(ranks["considerate"].mean())
    why = f"Beyond the paper: the same kind of posterior with a knob chosen on validation has {knob:.4f}."
    return Statement(text, _listed(means), first == "BPR-uniform", why)


def _medians(ranks: Mapping[str, Floats], edges: Mapping[str, NDArray[np.int64]]) -> Statement:
    above = total = 0
    said = []
    for name in (LIKES[1], PRODUCTS[1]):
        said.append(f"{name}: median {np.median(ranks[name]):.3f}, mean {ranks[name].mean():.3f}")
        for by in ("user degree", "item degree"):
            rows = _strata(ranks[name], edges[by])
            above += sum(row.percentiles["50"] > row.mean for row in rows)
            total += len(rows)
    return Statement(
        "The median rank is much higher than the mean: ranks are heavy-tailed.",
        f"{'; '.join(said)}; the median is above in {above} of {total} strata",
        above > total / 2 and all(np.median(ranks[name]) > ranks[name].mean() for name in (LIKES[1], PRODUCTS[1])),
        "A few held-out likes that nobody could guess pull the mean down.",
    )


def _spread(ranks: Mapping[str, Floats], degree: NDArray[np.int64]) -> Statement:
    text = "The spread of ranks (like, r = 1/2) falls as users view a few items, and grows again for heavy users."
    rows = _strata(ranks[LIKES[1]], degree)
    if len(rows) < 3:
        return Statement(text, f"{len(rows)} strata of users have {ENOUGH} held-out likes", None, "Too few to say.")
    widths = [_width(row) for row in rows]
    least = int(np.argmin(widths))
    agrees = widths[0] > widths[least] + MATTERS and widths[-1] > widths[least] + MATTERS
    said = ", ".join(f"{_range(row)}: {width:.2f}" for row, width in zip(rows, widths))
    why = f"The width from the 5th to the 95th percentile is least for users of {_range(rows[least])} items."
    if not agrees and rows[0].low >= 10:
        why += " There are hardly any users of a few items here, for whom it would fall."
    return Statement(text, said, agrees, why)


def _tighter(ranks: Mapping[str, Floats], degree: NDArray[np.int64]) -> Statement:
    text = "With popularity in the ranking the spread is tighter for heavy users."
    rows = [_strata(ranks[name], degree) for name in (LIKES[1], PRODUCTS[1])]
    if not rows[0]:
        return Statement(text, f"no stratum of users has {ENOUGH} held-out likes", None, "Too few to say.")
    like, product = rows[0][-1], rows[1][-1]
    said = f"users of degree {_range(like)}: {_width(like):.2f} for like, {_width(product):.2f} for popularity x like"
    agrees = _width(product) < _width(like)
    why = "From the 5th to the 95th percentile; r = 1/2."
    if not agrees:
        why += " Popularity says little about what the heaviest users take next here."
    return Statement(text, said, agrees, why)


def _taus(taus: Mapping[str, Floats]) -> Statement:
    said, spreads = [], []
    paper = math.sqrt(20 / (THE_PAPERS_TAUS["user"] * THE_PAPERS_TAUS["item"]))
    for name, rows in taus.items():
        means = dict(zip(THE_PAPERS_TAUS, np.nanmean(rows, axis=0)))
        spreads.append(math.sqrt(20 / (means["user"] * means["item"])))
        listed = ", ".join(f"{side} {mean:.2f}" for side, mean in means.items())
        said.append(f"{name}: {listed} ({spreads[-1]:.2f})")
    close = all(abs(math.log(one / paper)) < math.log(1.25) for one in spreads)
    why = "Only the product of the users' and the items' precisions is identified: compare the spread in brackets. "
    if close:
        why += "It is within a quarter of the paper's."
    elif max(spreads) < paper / 2:
        why += "It is far narrower here: with few likes a vertex the posterior is drawn to zero (over-shrinkage)."
    elif max(spreads) < paper:
        why += "It is narrower here: tastes differ less in this data, or its vertices have fewer likes to show them."
    else:
        why += "It is wider here: tastes differ more in this data."
    return Statement(
        "E[tau] is 2.0 for users, 3.5 for items and 0.4 for item biases (prior spread of u'v: 1.69), K = 20.",
        "; ".join(said),
        close,
        why,
    )


def _of_the_paper(ranks: Mapping[str, Floats]) -> list[str]:
    names = (*LIKES, *PRODUCTS, "popularity", "BPR-uniform", "BPR-popularity")
    return [name for name in names if name in ranks]


def _strata(values: Floats, degree: NDArray[np.int64]) -> list[Stratum]:
    """Strata that hold enough; intervals are not used."""
    return [row for row in strata(values, degree, resamples=1) if row.count >= ENOUGH]


def _width(row: Stratum) -> float:
    return row.percentiles["95"] - row.percentiles["5"]


def _range(row: Stratum) -> str:
    return f"{row.low}" if row.low == row.high else f"{row.low}-{row.high}"


def _error(p: Floats, inside: NDArray[np.bool_]) -> float:
    return float((p[inside] < 0.5).mean())


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _listed(means: Mapping[str, float]) -> str:
    order = sorted(means, key=lambda name: -means[name])
    return ", ".join(f"{name} {means[name]:.3f}" for name in order)
