"""Expected over observed likes on the training graph, by degree: a check that the parts of a model fit together.

Over all pairs of a user and an item of the training graph, without impossible pairs and items that nobody liked,

    expected likes = sum of p(g = 1),    p(g = 1) = sigma(mean logit + log w')          model/considered.py

without any recalibration. They should be as many as there are likes, for items of few likes as for items of many, and
for users. A like counts with the w' that it would have if it were open.

The likes are those of the fit, so this is not evidence that H is right: a wrong H gives other logits, and ratios near 1
just as well. A ratio far from 1 says that logits and p(considered) do not belong together, or that the prior holds the
logits of these users or items back.
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

MOST_PAIRS = 1 << 26  # of which users are taken; where there are more, the seed draws the users
LEAST_USERS = 32  # that are drawn, however many items there are
BLOCK_PAIRS = 1 << 21  # in memory at once, for each thread
LEAST_LIKES = 200  # of a row
STREAM = 0xE11C
CAUTION = "a check of consistency on the likes of the fit, not evidence that H is right"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ExpectedLikesRow:
    """Likes of the items, or of the users, of some degrees."""

    side: str  # "items" or "users"
    degree: str  # such as "10-31"
    likes: int  # in the data
    expected: float  # by the model
    ratio: float  # expected over likes
    error: float  # standard error of the ratio, as users were drawn; 0 where all are counted


@dataclass(frozen=True)
class ExpectedLikes:
    """Expected and observed likes by the degree of the item and by the degree of the user."""

    rows: tuple[ExpectedLikesRow, ...]
    users: int  # that were counted
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
    """Some users, to be held against all items."""

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
    """Expected over observed likes of the training graph, by degree of items and of users.

    Where users times items is more than `most`, the seed draws the users, and `error` says how far their ratio may be
    from that of all. A UsageError where a model has no such number. A tilt is not in it, nor weights of likes, nor
    which pairs were given as considered: p(considered) has none of them. `chances` are added up in place of p(g = 1).
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
    """Why a model has no expected likes; None where it has."""
    if model.one_kind:
        return "this model is of a graph of vertices, whose pairs are drawn from both ends"
    if not model.users.knows_likes:
        return "this model was saved without likes"
    if model.plan.observed:
        return f"considered_are is {model.plan.considered_are!r}, so H has the pairs that were given and no others"
    return None


def _users(model: Model, most: int, seed: int) -> NDArray[np.int64]:
    """The rows of users that are counted, ascending."""
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
    """Rows of both sides; bins with few likes join a neighbour."""
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
    """(first, last) bins of each row: a bin joins the next until there are LEAST_LIKES, and what is left at the end
    joins the row before."""
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
    """The degrees of some bins in words."""
    above = _starts(10 * int(starts[-1]))[1:]
    return f"{starts[first]}-{above[last] - 1}"


def _row(side: str, degree: str, expected: Floats, likes: Floats, population: int) -> ExpectedLikesRow:
    """One row, from the sums of each user."""
    total, observed, users = float(expected.sum()), float(likes.sum()), len(likes)
    ratio, error = total / observed, 0.0
    if users < population and users > 1:
        residual = expected - ratio * likes
        spread = float(np.sqrt(users / (users - 1) * (residual**2).sum()))
        error = spread / observed * np.sqrt(1.0 - users / population)
    return ExpectedLikesRow(side, degree, round(observed), total, ratio, float(error))
