"""Data, a fit and a model as plain values, for `considerate inspect` and `considerate fit`."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from considerate.cli.expected_likes import described_expected_likes
from considerate.data import Interactions
from considerate.data.graph import Graph, looks_swapped, row_blocks
from considerate.fitting.session import make_popularity
from considerate.inference.hidden import Draws, Sampled, positives_to_negatives
from considerate.kernels.threads import LocalBackend
from considerate.model.file import open_model
from considerate.model.schema import stored_settings
from considerate.model.shards import ShardedUsers
from considerate.simulation.degrees import (
    DegreeFit,
    degree_histogram,
    fit_power_law,
    fit_power_law_cutoff,
    mean_constraint,
)
from considerate.storage.container import FORMAT_VERSION

if TYPE_CHECKING:
    from considerate.inference.plan import FitPlan
    from considerate.model.model import Model
    from considerate.recommender import Recommender

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
BINS_PER_DECADE = 3
DEGREES = (1, 5, 10, 32, 100, 316, 1000)  # lower ends of the bins in the table of a model's draws
FEATURES = 15  # shown per side: those that move vectors most
MOST_LIKES = 20_000_000  # likes of the users in the table of a model's draws, at most
QUICK_PAIRS = 1 << 22  # pairs in the sum of expected likes: about a second
PathLike = str | os.PathLike[str]


def describe_fit(recommender: Recommender, seconds: float) -> dict[str, Any]:
    """Describe a fit in a few numbers."""
    model, data = recommender.model_, recommender.data_
    bound = float(recommender.bound_[-1])
    return _learned(model) | {
        "source": data.source,
        "rows_read": data.rows_read,
        "duplicates": data.rows_kept - model.users.edges,
        "bound": bound,
        "bound_per_edge": bound / (model.users.edges * (1 + model.plan.negatives)),
        "seconds": seconds,
        "opening": min(model.plan.opening, max(0, len(model.bounds) - 1)),
    }


def describe_model(path: PathLike, *, verify: bool | None = None) -> dict[str, Any]:
    """Describe a model file or a folder of shards: sizes, settings, what it learned, the course of the bound."""
    stored, model = open_model(path, verify=verify)
    shards = model.users.arrays["shards.bytes"] if isinstance(model.users, ShardedUsers) else None
    return _learned(model) | {
        "path": os.fspath(path),
        "megabytes": (stored.size + (0 if shards is None else int(shards.sum()))) / 1e6,
        "shards": None if shards is None else len(shards),
        "format_version": FORMAT_VERSION,
        "library_version": stored.library_version,
        "user_ids": model.user_ids.kind,
        "item_ids": model.item_ids.kind,
        "titles": model.titles is not None,
        "likes": model.users.knows_likes,
        "signed": model.plan.signed,
        "popularity_weight": model.plan.popularity,
        "lift_weight": model.plan.lift,
        "consideration": _consideration(model),
        "bias_popularity_correlation": _bias_correlation(model),
        "draws_per_like": _draws_per_like(model),
        **described_expected_likes(model, QUICK_PAIRS),
        **described_recalibration(model),
        "reliability": None if model.reliability is None else model.reliability.to_dict(),
        "updates": asdict(model.updates),
        "events": asdict(model.events),
        "bound": [math.fsum(terms.values()) for terms in model.bounds],
        "bound_terms": model.bounds[-1] if model.bounds else {},
        "parameters": model.parameters,
        "settings": stored_settings(model.plan),
    }


def described_recalibration(model: Model) -> dict[str, Any]:
    """Describe the correction of p(like) and its interval, in words and numbers."""
    structure = None if model.structure is None else asdict(model.structure)
    interval = "90 %, by the posterior alone"
    if model.structure is not None:
        parts = ", ".join(f"{name} {value:.2g}" for name, value in asdict(model.structure).items() if value)
        interval = f"90 %, with structural variance ({parts}) added to the posterior's"
    return {
        "recalibration": model.recalibration.to_dict(),
        "recalibrated": model.recalibration.sentence(),
        "structure": structure,
        "interval": interval,
    }


def _consideration(model: Model) -> dict[str, Any]:
    """Describe who considers what: the settings, and the share of the walk in the table, averaged over the likes."""
    table, degree = model.consideration, model.item_degree
    kept = None if table is None else 1.0 - float(np.average(table.rest, weights=degree))
    names = ("neighbours", "mixing", "opening")
    return {"kind": model.plan.consideration, "mass_kept": kept} | {name: getattr(model.plan, name) for name in names}


def _bias_correlation(model: Model) -> float | None:
    """Correlation of the items' biases and log degrees; None if either is the same for all items."""
    liked = model.item_degree > 0
    bias, popularity = model.items.biases[0][liked].astype(np.float64), np.log(model.item_degree[liked])
    if len(bias) < 2 or np.ptp(bias) == 0.0 or np.ptp(popularity) == 0.0:
        return None
    return float(np.corrcoef(bias, popularity)[0, 1])


def _draws_per_like(model: Model) -> dict[str, Any] | None:
    """Count the unliked edges per like in one drawn H, by the item's degree: drawn by the walk, and by popularity.

    Without the tilt. Of very many likes only those of the first users count. None if the file has no likes.
    """
    if not model.users.knows_likes:
        return None
    pi, plan = model.fold_in.weights, model.plan
    draws = {"popularity": Draws.of(pi)}
    if model.consideration is not None:
        draws["walk"] = Draws.of(pi, model.consideration)
    edges = {kind: np.zeros(model.item_count, np.int64) for kind in ("likes", *draws)}
    users = 0
    for first, piece in model.users.pieces():
        count = int(np.searchsorted(piece.liked.starts, MOST_LIKES - edges["likes"].sum(), side="right")) - 1
        liked = piece.liked.between(0, count)
        drawn = {"likes": liked}
        with LocalBackend() as backend:
            for kind, draw in draws.items():
                sampled = Sampled(liked, row_blocks(liked.starts), draw, plan.negatives, plan.seed, first_user=first)
                drawn[kind] = sampled.draw(1, backend.map)
        for kind, lists in drawn.items():
            edges[kind] += np.bincount(lists.indices, minlength=model.item_count)
        users += count
        if count < len(piece):
            break
    return {"negatives": plan.negatives, "users": users, "by_degree": _per_like(model.item_degree, **edges)}


def _per_like(degree: NDArray[Any], likes: NDArray[Any], **drawn: NDArray[Any]) -> list[dict[str, Any]]:
    """Drawn edges per like, over the items of each bin of degrees; "walk" is None without a walk."""
    which, rows = np.searchsorted(DEGREES, degree, side="right") - 1, []
    for number, (low, above) in enumerate(zip(DEGREES, [*DEGREES[1:], None])):
        inside = which == number
        total = int(likes[inside].sum())
        if total:
            row = {"first": low, "last": None if above is None else above - 1, "items": int(inside.sum())}
            per_like = {kind: int(edges[inside].sum()) / total for kind, edges in drawn.items()}
            rows.append(row | {"likes": total, "walk": None} | per_like)
    return rows


def _features(model: Model) -> dict[str, Any] | None:
    """Describe the features of items and users that matter most; None without features."""
    sides = {"item": model.item_features, "user": model.user_features}
    if not any(sides.values()):
        return None
    found: dict[str, Any] = {"cold_items": len(model.cold_items)}
    for side, learned in sides.items():
        if learned is not None:
            importance = learned.importance()
            found[side] = {"count": len(importance), "first": [one._asdict() for one in importance[:FEATURES]]}
    return found


def _learned(model: Model) -> dict[str, Any]:
    return {
        "users": model.user_count,
        "items": model.item_count,
        "edges": model.users.edges,
        "factors": model.factors,
        "sweeps": max(0, len(model.bounds) - 1),
        "converged": model.converged,
        "precisions": model.precisions.means(),
        "prior_spread": model.shared.prior_spread(),
        "popularity_exponent": model.gamma,
        "features": _features(model),
        "chosen": None if model.plan.chosen is None else asdict(model.plan.chosen) | {"told": model.plan.chosen.told()},
    }


def describe_data(interactions: Interactions, plan: FitPlan | None = None) -> dict[str, Any]:
    """Describe likes: sizes, degrees and their laws, the mean constraint (eq. 1), whether users and items look swapped.

    With a plan, also describe one drawn H.
    """
    sizes = len(interactions.user_ids), len(interactions.item_ids)
    graph = Graph.from_pairs(interactions.users, interactions.items, *sizes)
    users, items = graph.by_user.degrees, graph.by_item.degrees
    constraint = mean_constraint(float(users.mean()), float(items.mean()), *sizes)
    values = {
        "source": interactions.source,
        "rows_read": interactions.rows_read,
        "rows_kept": interactions.rows_kept,
        "users": graph.user_count,
        "items": graph.item_count,
        "edges": graph.edges,
        "duplicates": graph.duplicates,
        "density": graph.edges / (graph.user_count * graph.item_count),
        "titles": interactions.titles is not None,
        "looks_swapped": looks_swapped(*sizes),
        "user_degrees": _degrees(users, fit_power_law_cutoff(users)),
        "item_degrees": _degrees(items, fit_power_law(items)),
        "mean_constraint": {"mu_over_N": constraint.user_side, "nu_over_M": constraint.item_side},
    }
    return values if plan is None else values | {"hidden": _hidden(graph, plan)}


def _degrees(degrees: NDArray[Any], fit: DegreeFit) -> dict[str, Any]:
    """Describe degrees: quantiles, the fitted law, and in logarithmic bins the counts and those of the law."""
    histogram = degree_histogram(degrees, bins_per_decade=BINS_PER_DECADE)
    columns = (histogram.first, histogram.last, histogram.counts, fit.expected(histogram))
    return {
        "mean": float(np.mean(degrees)),
        "quantiles": {f"{q:g}": float(value) for q, value in zip(QUANTILES, np.quantile(degrees, QUANTILES))},
        "law": {
            "text": fit.law.describe(),
            "exponent": fit.law.exponent,
            "cutoff": None if math.isinf(fit.law.cutoff) else fit.law.cutoff,
            "maximum": fit.law.maximum,
            "log_likelihood": fit.log_likelihood,
            "at_limit": fit.at_limit,
        },
        "histogram": _rows(("first", "last", "count", "law"), columns),
        "zeros": histogram.zeros,
    }


def _hidden(graph: Graph, plan: FitPlan) -> dict[str, Any]:
    """Describe one drawn H: its degree laws (the paper asks whether they are like those of G) and the items' edges."""
    with LocalBackend() as backend:
        popularity = make_popularity(graph, plan, backend)
        sampled = Sampled(graph.by_user, graph.user_blocks, popularity.weights, plan.negatives, plan.seed)
        unliked = sampled.draw(1, backend.map)
    liked_of_item, unliked_of_item = positives_to_negatives(graph, unliked)
    users, items = graph.by_user.degrees + unliked.degrees, liked_of_item + unliked_of_item
    return {
        "negatives": plan.negatives,
        "gamma": popularity.gamma,
        "head_correction": plan.head_correction,
        "seed": plan.seed,
        "edges": graph.edges + unliked.edges,
        "user_degrees": _degrees(users, fit_power_law_cutoff(users)),
        "item_degrees": _degrees(items, fit_power_law(items)),
        "items_by_degree": _by_degree(liked_of_item, unliked_of_item),
    }


def _by_degree(liked: NDArray[Any], unliked: NDArray[Any]) -> list[dict[str, Any]]:
    """Sum the liked and unliked edges over the items of each bin of degrees (the paper's figure 3)."""
    histogram = degree_histogram(liked, bins_per_decade=BINS_PER_DECADE)
    some, which = histogram.counts > 0, histogram.bin_of(liked)
    likes, others = (np.bincount(which, edges)[1:][some].astype(np.int64) for edges in (liked, unliked))
    columns = (histogram.first[some], histogram.last[some], histogram.counts[some], likes, others, others / likes)
    return _rows(("first", "last", "items", "liked", "unliked", "unliked_per_like"), columns)


def _rows(names: Sequence[str], columns: Sequence[NDArray[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(names, row)) for row in zip(*(column.tolist() for column in columns))]
