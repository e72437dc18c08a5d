"""Expected over observed likes on the training graph, by degree: a consistency check of a model.

Over all pairs of a user and an item of the training graph, without impossible pairs and items without likes,

    expected likes = sum of p(g = 1),    p(g = 1) = sigma(mean logit + log w')          model/considered.py

without any recalibration. A like has the w' that it would have if its pair were open. Expected and observed likes
should agree for items of few and of many likes, and for users.

The likes are those of the fit, so this is no evidence that H is right: a wrong H leads to other logits and also to
ratios near 1. A ratio far from 1 means that logits and p(considered) do not belong together, or that the prior shrinks
the logits of these users or items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.data.known import Known
from considerate.errors import UsageError
from considerate.inference.posterior import Side
from considerate.kernels.threads import LocalBackend
from considerate.model.considered import weights_of_all
from considerate.model.liking import sigmoid
from considerate.model.model import Model

MOST_PAIRS = 1 << 26  # pairs to count; above this, the seed draws the users
LEAST_USERS = 32  # users to draw, however many items there are
BLOCK_PAIRS = 1 << 21  # pairs in memory at once, for each thread
LEAST_LIKES = 200  # likes in a row of the table
STREAM = 0xE11C
CAUTION = "a check of consistency on the likes of the fit, not evidence that H is right"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ExpectedLikesRow:
    """Expected and observed likes of the items, or of the users, of some degrees."""

    side: str  # "items" or "users"
    degree: str  # such as "10-31"
    likes: int  # observed
    expected: float
    ratio: float  # expected over observed
    error: float  # standard error of the ratio from the draw of users; 0 if all are counted


@dataclass(frozen=True)
class ExpectedLikes:
    """Expected and observed likes by the degree of the item and by the degree of the user."""

    rows: tuple[ExpectedLikesRow, ...]
    users: int  # users counted
    population: int  # users of the model

    def to_list(self) -> list[dict[str, Any]]:
        """The rows as plain values."""
        return [asdict(row) for row in self.rows]

    def __str__(self) -> str:
        lines = [f"{'':5} {'degree':>13} {'likes':>11} {'expected':>13} {'ratio':>7} {'error':>7}"]
        for row in self.rows:
            numbers = f"{row.likes:>11,} {row.expected:>13,.1f} {row.ratio:>7.3f} {row.error:>7.3f}"
            lines.append(f"{row.side:5} {row.degree:>13} {numbers}")
        return "\n".join([*lines, f"{self.users:,} of {self.population:,} users; {CAUTION}"])


@dataclass(frozen=True)
class UsersBlock:
    """A block of users whose pairs with all items are counted."""

    model: Model
    side: Side
    rows: NDArray[np.int64]  # of the side
    liked: Adjacency
    limits: Known | None

    @property
    def mean(self) -> NDArray[np.float32]:
        """[users, items] mean logits."""
        return self.model.columns.means(self.side, self.rows)

    @property
    def weights(self) -> Floats:
        """[users, items] w'."""
        return weights_of_all(self.model, self.liked, self.limits)


def like_chances(block: UsersBlock) -> Floats:
    """[users, items] p(g = 1) at the mean logit."""
    weights = block.weights
    with np.errstate(divide="ignore"):
        return np.asarray(sigmoid(block.mean + np.log(weights, out=weights)))


def expected_likes(
    model: Model,
    *,
    most: int = MOST_PAIRS,
    seed: int = 0,
    threads: int | None = None,
    chances: Callable[[UsersBlock], Floats] = like_chances,
) -> ExpectedLikes:
    """Count expected and observed likes of the training graph, by degree of items and of users.

    If users times items is more than `most`, the seed draws the users, and `error` is the standard error of the ratio.
    UsageError if the model has no such number. A tilt, weights of likes and given considered pairs have no part in it,
    as p(considered) has none of them. `chances` replaces p(g = 1).
    """
    if most < 1 or seed < 0:
        raise UsageError(f"most is {most} and seed is {seed}; give a number of pairs of at least 1, and a seed from 0.")
    if (reason := reason_against(model)) is not None:
        raise UsageError(f"there are no expected likes: {reason}.")
    rows = _users(model, most, seed)
    piece, places = model.users.some(rows)
    some = piece.degree[places] > 0
    rows, places = rows[some], places[some]
    liked = piece.liked.take(places)
    starts = _starts(int(max(model.item_degree.max(), liked.degrees.max(initial=1))))
    item_bin = np.searchsorted(starts, model.item_degree, side="right") - 1
    columns = [np.flatnonzero(item_bin == number) for number in range(len(starts))]

    def expected(block: tuple[int, int]) -> Floats:
        here = slice(*block)
        users = UsersBlock(model, piece.side, places[here], liked.between(*block), model.limits_of(rows[here]))
        p = chances(users)
        return np.stack([p[:, items].sum(axis=1) for items in columns], axis=1)

    height = max(1, BLOCK_PAIRS // model.item_count)
    blocks = [(first, min(first + height, len(rows))) for first in range(0, len(rows), height)]
    with LocalBackend(threads) as backend:
        by_item = np.concatenate([np.zeros((0, len(starts))), *backend.map(expected, blocks)])
    found = _rows(by_item, _likes_by_bin(liked, item_bin, len(starts)), liked.degrees, starts, model.user_count)
    return ExpectedLikes(found, len(rows), model.user_count)


def reason_against(model: Model) -> str | None:
    """The reason why a model has no expected likes; None if it has them."""
    if model.one_kind:
        return "this model is of a graph of vertices, whose pairs are drawn from both ends"
    if not model.users.knows_likes:
        return "this model was saved without likes"
    if model.plan.observed:
        return f"considered_are is {model.plan.considered_are!r}, so H has the pairs that were given and no others"
    return None


def _users(model: Model, most: int, seed: int) -> NDArray[np.int64]:
    """Rows of the users that are counted, ascending."""
    wanted = max(LEAST_USERS, most // model.item_count)
    if wanted >= model.user_count:
        return np.arange(model.user_count)
    random = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
    return np.sort(random.choice(model.user_count, wanted, replace=False, shuffle=False))


def _starts(largest: int) -> NDArray[np.int64]:
    """First degrees of the bins: 1, 5, and half-decades from 10 on, up to the largest degree."""
    halves = [round(10 ** (half / 2)) for half in range(2, 40)]
    return np.array([start for start in (1, 5, *halves) if start <= largest])


def _likes_by_bin(liked: Adjacency, item_bin: NDArray[np.int64], bins: int) -> Floats:
    """[users, bins] likes of each user among the items of each bin."""
    places = liked.edge_rows * np.int64(bins) + item_bin[liked.indices]
    return np.bincount(places, minlength=liked.rows * bins).reshape(liked.rows, bins).astype(np.float64)


def _rows(
    expected: Floats, likes: Floats, degrees: NDArray[np.int64], starts: NDArray[np.int64], population: int
) -> tuple[ExpectedLikesRow, ...]:
    """Rows of the table for both sides; bins with few likes join a neighbour."""
    user_bin = np.searchsorted(starts, degrees, side="right") - 1
    found = []
    for side in ("items", "users"):
        counts = likes.sum(axis=0) if side == "items" else np.bincount(user_bin, degrees, minlength=len(starts))
        for first, last in _merged(counts):
            inside = slice(first, last + 1)
            if side == "items":
                mine = expected[:, inside].sum(axis=1), likes[:, inside].sum(axis=1)
            else:
                here = (user_bin >= first) & (user_bin <= last)
                mine = np.where(here, expected.sum(axis=1), 0.0), np.where(here, degrees, 0).astype(np.float64)
            found.append(_row(side, _degrees(starts, first, last), *mine, population))
    return tuple(found)


def _merged(counts: NDArray[Any]) -> list[tuple[int, int]]:
    """(first, last) bins of each row: bins are joined until they have LEAST_LIKES; a rest joins the row before."""
    found: list[tuple[int, int]] = []
    first, total, counts = 0, 0.0, np.trim_zeros(counts, "b")
    for last, count in enumerate(counts):
        total += count
        if total >= LEAST_LIKES:
            found.append((first, last))
            first, total = last + 1, 0.0
    if first < len(counts) and found:
        found[-1] = found[-1][0], len(counts) - 1
    elif not found and len(counts):
        found = [(0, len(counts) - 1)]
    return found


def _degrees(starts: NDArray[np.int64], first: int, last: int) -> str:
    """Range of the degrees of some bins, such as "10-31"."""
    above = _starts(10 * int(starts[-1]))[1:]
    return f"{starts[first]}-{above[last] - 1}"


def _row(side: str, degree: str, expected: Floats, likes: Floats, population: int) -> ExpectedLikesRow:
    """Make one row of the table from the sums of each user."""
    total, observed, users = float(expected.sum()), float(likes.sum()), len(likes)
    ratio, error = total / observed, 0.0
    if users < population and users > 1:
        residual = expected - ratio * likes
        spread = float(np.sqrt(users / (users - 1) * (residual**2).sum()))
        error = spread / observed * np.sqrt(1.0 - users / population)
    return ExpectedLikesRow(side, degree, round(observed), total, ratio, float(error))
