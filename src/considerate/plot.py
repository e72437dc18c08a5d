"""Plots of a fitted model, with matplotlib: `pip install 'considerate[plot]'`.

Each function draws on `ax`, or on a new figure if it is not given, and returns the Axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from considerate.data import ReaderOptions, read_judged, read_likes
from considerate.data.options import ReaderKeywords
from considerate.data.read import read_dated_likes
from considerate.errors import DataError, UsageError
from considerate.evaluation import calibration
from considerate.evaluation.fitted import considered
from considerate.evaluation.protocol import graph_of, make_protocol, with_test_users
from considerate.kernels.threads import LocalBackend
from considerate.recommender import Recommender
from considerate.study.figures.style import BLUE, GREEN, INK, ORANGE, SOFT, VERMILION, degree_axis, plain
from considerate.study.fits import KNOBS, popularity_curve
from considerate.study.material import degree_law
from considerate.study.names import rounded

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLOUD = "#b3b3b3"
DASHED: Any = (0, (3, 2))
CURVES = {  # curve of the knob -> its label
    "mean_rank": "S_rank",
    "tail_rank": "S_rank of items with under 100 likes",
    "recall": "Recall@20",
    "coverage": "share of the catalogue in lists",
    "popularity": "mean likes of listed items",
}
TICKS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)


def reliability(
    model: Recommender, judged: Any, *, bins: int = 10, ax: Axes | None = None, **reader: Unpack[ReaderKeywords]
) -> Axes:
    """Plot p(like) against the share that liked, on considered pairs; on the diagonal p(like) is calibrated.

    `judged` is data with a rule, such as where="rating >= 4": rows that pass it were liked, rows that fail it were
    considered and not liked. Pairs of the training are left out. Liked and other pairs have the same total weight. The
    size of a point shows its number of pairs.
    """
    liked, not_liked = read_judged(judged, ReaderOptions.of(reader))
    if not_liked is None:
        raise DataError(f"{liked.source}: every row is a like; checking p(like) also needs pairs that were not liked.")
    ax = _axes(ax)
    users, items, truth = considered(model.model_, liked, not_liked)
    p = model.model_.pair_probabilities(users, items, True)
    table = calibration.reliability(p, truth, bins=bins)
    some = table.count > 0
    ax.plot([0, 1], [0, 1], color=SOFT, linestyle=DASHED, linewidth=1, label="calibrated")
    ax.plot(table.predicted[some], table.observed[some], color=BLUE, linewidth=1)
    area = 12 + 120 * table.count[some] / table.count.max()
    label = f"{len(p):,} pairs, calibration error {table.calibration_error:.3f}"
    ax.scatter(table.predicted[some], table.observed[some], area, color=BLUE, label=label, zorder=3)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set(xlabel="p(like | considered)", ylabel="share that liked")
    ax.legend(loc="upper left")
    return ax


def knob_curve(
    model: Recommender,
    test: Any,
    *,
    show: Sequence[str] = ("mean_rank", "tail_rank"),
    weights: Sequence[float] = KNOBS,
    ax: Axes | None = None,
    **reader: Unpack[ReaderKeywords],
) -> Axes:
    """Plot metrics of test likes against the popularity weight; a circle marks the model's own weight.

    `test` are likes outside the training: anything that `read_interactions` reads. `show` names curves: mean_rank and
    tail_rank (the mean share of items that a test like is ranked above; the tail is items with under 100 likes),
    recall (@20), coverage, and popularity (mean likes of the first 20 places). The weight of lift is the model's own.
    """
    unknown = [name for name in show if name not in CURVES]
    if unknown or not show:
        raise UsageError(f"show is {list(show)!r}; it may hold {', '.join(CURVES)}.")
    ax, plan = _axes(ax), model.model_.plan
    protocol = make_protocol(read_dated_likes(test, ReaderOptions.of(reader)), "test", models=[model.model_])
    own = plan.popularity
    with LocalBackend(model.threads) as backend:
        users = with_test_users(model.model_, protocol)
        curve = popularity_curve(users, protocol.held, sorted({*weights, own}), plan.lift, backend.map)
    for name, colour in zip(show, (BLUE, VERMILION, GREEN, ORANGE, INK)):
        ax.plot(curve["knob"], curve[name], color=colour, label=CURVES[name])
        ax.plot([own], [curve[name][curve["knob"].index(own)]], "o", color=colour, markerfacecolor="white")
    ax.set(xlabel="popularity weight", ylabel=CURVES[show[0]] if len(show) == 1 else "on test likes")
    if len(show) > 1:
        ax.legend()
    return ax


def popularity_against_p_like(
    model: Recommender,
    user: Any,
    *,
    N: int = 10,
    rankings: Mapping[str, Mapping[str, Any]] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the items that a user has not liked by popularity and p(like), with the N best of some rankings.

    `user` is an id. `rankings` are keywords of `recommend_table` by name, such as {"by liking": {"popularity": 0.0,
    "lift": 0.0}}; if not given, the model's own weights, and liking alone. Without lift the items of a list lie above
    a line whose slope is the popularity weight.
    """
    if rankings is None:
        rankings = {"the model's weights": {}, "by liking alone": {"popularity": 0.0, "lift": 0.0}}
    ax, fitted = _axes(ax), model.model_
    lists = {name: model.recommend_table([user], N, **weights) for name, weights in rankings.items()}
    items = model.recommend_table([user], fitted.item_count)
    ax.plot(*_place(model, items), ".", color=CLOUD, markersize=3, label="items not liked yet", zorder=1)
    for (name, table), colour, marker in zip(lists.items(), (BLUE, VERMILION, GREEN, ORANGE, INK), "osD^v"):
        ax.plot(*_place(model, table), marker, color=colour, markerfacecolor="none", label=plain(name), zorder=3)
    ax.set_yscale("logit")
    ax.set_yticks(TICKS, labels=[f"{tick:g}" for tick in TICKS])
    ax.minorticks_off()
    p = items["p_like"].to_numpy()
    low, high = np.clip([p.min(), p.max()], 1e-6, 1 - 1e-6)
    ax.set_ylim(low / (1 + low), (1 + high) / 2)
    degree_axis(ax, [int(fitted.item_degree.min())], "likes of the item")
    ax.set_ylabel("p(like | considered)")
    ax.legend(loc="lower right")
    return ax


def degree_laws(likes: Any, *, ax: Axes | None = None, **reader: Unpack[ReaderKeywords]) -> Axes:
    """Plot the numbers of users and items by their likes, with fitted power laws, on logarithmic axes.

    `likes` is a fitted Recommender, or anything that `read_interactions` reads. As in the paper, the law of users has
    a cut-off and the law of items has none.
    """
    if isinstance(likes, Recommender):
        degrees = {"users": likes.model_.users.whole().degree, "items": likes.model_.item_degree}
    else:
        graph = graph_of(read_likes(likes, ReaderOptions.of(reader)))
        degrees = {"users": graph.by_user.degrees, "items": graph.by_item.degrees}
    ax = _axes(ax)
    for (side, counts), colour, marker in zip(degrees.items(), (BLUE, VERMILION), "os"):
        law = degree_law(side, "G", counts)
        ax.plot(law.centre, law.density, marker, color=colour, markerfacecolor="none", label=side)
        ax.plot(law.law_degree, law.law_density, color=colour, linewidth=1, label=plain(rounded(law.law)))
    ax.set_yscale("log")
    degree_axis(ax, [1], "likes")
    ax.set_ylabel("number with that many likes")
    ax.legend()
    return ax


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise UsageError("considerate.plot needs matplotlib; install it: pip install 'considerate[plot]'.") from error
    axes: Axes = pyplot.subplots(layout="constrained")[1]
    return axes


def _place(model: Recommender, table: Any) -> tuple[Any, Any]:
    """Coordinates (likes, p(like)) of the items of a table; an item without likes is at 1/2 on the logarithmic axis."""
    rows = model.model_.item_ids.rows_of(table["item"].to_pylist())
    return np.maximum(model.model_.item_degree[rows], 0.5), table["p_like"].to_numpy()


__all__ = ["degree_laws", "knob_curve", "popularity_against_p_like", "reliability"]
