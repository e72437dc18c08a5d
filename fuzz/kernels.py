"""The compiled kernels against their twins in Python, with every instruction set of the machine.

Draws and ranks must have the bits of `tests/helpers/naive_*.py`. What is computed in float32 must be within rounding of
the same in float64 (`passes.py` has the bounds), unless its numbers leave float32.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, run_serially
from considerate.inference.hidden import Consideration
from considerate.inference.hidden.saturation import Saturation
from considerate.inference.posterior import Side
from considerate.kernels import compiled, reference
from considerate.model.predict import ItemColumns, logit_moments
from fuzz import closed, full, passes
from fuzz.base import Check, Choices, Place, Target
from fuzz.passes import LARGE, ROUNDING, TINY, near
from tests.helpers import naive_draws, naive_ranking

Array = NDArray[Any]
LEAST_LIFT = 2.0**-60  # a ratio below this counts as this
RATES = [1.0, 0.3, 2.5, 7.0, 1000.0, 1e-3]
WEIGHTS = [1.0, 1.0, 2.0, 3.5, 0.0, 1e-9, 1e9, 1e-100, 1e100]
SCORES = [0.0, -0.0, 1.0, -1.5, 0.25, 1e-45, -1e-40, 3e38, np.inf, -np.inf]


def _prepare(place: Place) -> Check:
    place.exits.callback(compiled.use_instruction_set, compiled.instruction_set())

    def check(data: bytes) -> str:
        choices = Choices(data)
        return choices.pick(KINDS)(choices)

    return check


def _with_every_set(function: Callable[[], None]) -> None:
    for name in compiled.instruction_sets():
        compiled.use_instruction_set(name)
        function()


# --- Functions of one number ---


def _check_functions(choices: Choices) -> str:
    """lambda(xi), log sigma(xi) - xi / 2 and the logarithm, of numbers that the input holds as they are."""
    raw = choices.rest()
    x = np.abs(np.frombuffer(raw[: len(raw) // 4 * 4], np.float32))
    x = x[np.isfinite(x)]
    if not len(x):
        return "refused"
    xi, normal = np.sqrt(x.astype(np.float64)), x[x >= np.float32(2.0**-126)]
    height, logarithm = -np.logaddexp(0.0, -xi) - xi / 2, np.log(normal.astype(np.float64))
    twice = 2.0 * reference.logistic_curvature(xi)

    def check() -> None:
        found, heights = compiled.logistic(x)
        near("2 lambda", found, twice, 6e-7 * twice)
        near("height", heights, height, 4e-7 * np.abs(height))
        exact, below = compiled.logarithms(normal)
        near("log", exact, logarithm, 1.5 * np.spacing(np.abs(logarithm).astype(np.float32)) + 1e-9)
        assert ((below < logarithm) & (logarithm < below + 0.0601)).all(), (normal, below)

    _with_every_set(check)
    return "read"


# --- Draws ---


def _check_draws(choices: Choices) -> str:
    """Draws of H and their number: the same bits. The alias table and temperatures: what they are made for."""
    seed, sweep, rate = choices.integer() & naive_draws.MASK, choices.below(256), choices.pick(RATES)
    numbers = np.random.default_rng(choices.below(256))
    items = 1 + choices.below(40)
    kinds = WEIGHTS[: choices.pick([2, 5, 7, 9])]
    weights = np.array([choices.pick(kinds) if n < 8 else numbers.choice(kinds) for n in range(items)])
    if not weights.any():
        return "refused"
    liked = _some_items(choices, numbers, items)
    thresholds, aliases = compiled.alias_table(weights)
    kept = thresholds.astype(np.float64) / 2.0**64
    chance = (kept + np.bincount(aliases, 1.0 - kept, minlength=items)) / items
    near("alias table", chance, weights / weights.sum(), 1e-12)
    assert not chance[weights == 0].any(), (weights, thresholds, aliases)
    pi = (thresholds, aliases)
    drawn, starts, _ = _drawn(seed, sweep, rate, weights, pi, liked)
    open_items = np.array([np.delete(weights > 0, liked.row(user)).sum() for user in range(liked.rows)])
    wanted = rate * liked.degrees
    near(
        "expected",
        compiled.expected_negatives(rate, weights, liked.starts, liked.indices),
        np.minimum(wanted, open_items),
        1e-9,
    )
    for user in range(liked.rows):
        expected = naive_draws.draw_negatives(seed, sweep, rate, weights, *pi, user, liked.row(user).tolist())
        found = drawn[starts[user] : starts[user + 1]].tolist()
        assert found == expected, (user, found, expected)
    found = Saturation(weights).inclusion.temperatures(liked, np.array([0, liked.rows]), rate, run_serially)
    for user in np.flatnonzero((wanted > 0) & (wanted < open_items - 1e-6)):
        mass = -np.expm1(-found[user] * np.delete(weights, liked.row(user))).sum()
        near("mass at the temperature", mass, wanted[user], 1e-3 * wanted[user])
    return "read"


def _drawn(
    seed: int, sweep: int, rate: float, weights: Array, pi: tuple[Array, Array], liked: Adjacency, walk: Any = None
) -> tuple[Array, Array, tuple[int, int, int]]:
    """(items drawn, where each user's begin, draws that were discarded, from a tree, and from pi for a walk)."""
    key = (seed, sweep, rate, weights, *pi, liked.starts, liked.indices, 0, liked.rows)
    starts = np.zeros(liked.rows + 1, np.int64)
    compiled.count_negatives(*key, starts[1:])
    starts = np.cumsum(starts)
    out = np.full(int(starts[-1]), -1, np.int32)
    return out, starts, compiled.draw_negatives(*key, starts, out, walk=walk)


def _some_items(choices: Choices, numbers: np.random.Generator, items: int) -> Adjacency:
    """Likes of a few users: of none, of all, of one item, and of some."""
    rows = []
    for _ in range(1 + choices.below(5)):
        kind = choices.below(6)
        chance = [0.0, 1.0, 0.0, 0.1, 0.4, 0.9][kind]
        row = np.flatnonzero(numbers.random(items) < chance)
        rows.append((row if kind != 2 else numbers.integers(0, items, 1)).astype(np.int32))
    return Adjacency.of_rows(rows)


def _check_walk(choices: Choices) -> str:
    """Draws by the walk, where no user runs out of items: the same bits. The lift: NumPy's."""
    seed, rate = choices.integer() & naive_draws.MASK, choices.pick(RATES)
    table, liked = _table(choices)
    items = table.item_count
    pi = compiled.alias_table(table.weights)
    drawn, starts, counts = _drawn(seed, 3, rate, table.weights, pi, liked, table.draw_table)
    slots = compiled.walk_slots(table.starts, table.items, table.shares, table.rest, table.mix)
    for user in range(liked.rows):
        own, found = liked.row(user).tolist(), drawn[starts[user] : starts[user + 1]].tolist()
        assert len(set(found)) == len(found), found
        assert not set(found) & set(own), (found, own)
        assert (table.weights[found] > 0).all(), found
        open_items = [n for n in range(items) if table.weights[n] > 0 and n not in own]
        if len(found) == len(open_items):
            assert found == open_items, (found, open_items)
        elif found and counts[1:] == (0, 0):
            stream = naive_draws.WalkStream(
                naive_draws.SplitMix64(naive_draws.key64(seed, 6, user)), table, slots, pi, own
            )
            expected: list[int] = []
            while len(expected) < len(found):
                item = stream.next(len(found) - len(expected))
                if item not in own and item not in expected:
                    expected.append(item)
            assert found == expected, (user, found, expected)
    return "read"


def _table(choices: Choices) -> tuple[Consideration, Adjacency]:
    """A table of the walk, whose rows may be empty or nearly nothing, and likes of its items."""
    numbers = np.random.default_rng(choices.below(256))
    items, mix = 2 + choices.below(40), choices.pick([0.1, 0.0, 1.0, 1e-6])
    weights = numbers.choice(WEIGHTS[: choices.pick([2, 5, 7, 9])], items)
    weights[0] = 1.0
    liked = _some_items(choices, numbers, items)
    rows, shares, scale = [], [], choices.pick([1.0, 1.0, 1e-3, 1e-20, 1e-40])
    for _ in range(items):
        to = np.flatnonzero((numbers.random(items) < choices.pick([0.0, 0.3, 1.0])) & (weights > 0))
        rows.append(to.astype(np.int32))
        shares.append((scale * numbers.dirichlet(np.ones(len(to) + 1))[:-1]).astype(np.float32))
    shares = [np.maximum(row, np.float32(1e-45)) for row in shares]
    rest = np.array([max(0.0, 1.0 - row.sum(dtype=np.float64)) for row in shares], np.float32)
    adjacency = Adjacency.of_rows(rows)
    unknown = np.flatnonzero(numbers.random(items) < 0.1).astype(np.int32) if choices.below(2) else None
    table = Consideration(adjacency.starts, adjacency.indices, np.concatenate(shares), rest, weights, mix, unknown)
    return table, liked


# --- Ranks ---


def _check_ranks(choices: Choices) -> str:
    """Ranks of held-out items and best lists, where scores tie, are infinite or NaN."""
    numbers = np.random.default_rng(choices.below(256))
    rows, items = choices.below(5), 1 + choices.pick([0, 7, 15, 16, 40, 100])
    kind = choices.pick([np.float32, np.float64])
    scores = numbers.choice([choices.pick(SCORES) for _ in range(5)], (rows, items)).astype(kind)
    if choices.below(8) == 1 and rows:
        scores[choices.below(rows), choices.below(items)] = np.nan
    seen, held = [], []
    for _ in range(rows):
        order = numbers.permutation(items)
        cut = choices.pick([0, items // 2, items])
        seen.append(np.sort(order[:cut]).astype(np.int32))
        held.append(order[cut : cut + choices.below(10)].astype(np.int32))
    lists, k = (*_laid_out(held), *_laid_out(seen)), 1 + choices.below(items + 3)
    above, ties, bad = naive_ranking.count_ranks(scores, *lists)
    best, bad_row = naive_ranking.best_of_rows(scores, k, *lists[2:])
    pairs = np.array([[choices.pick([0.0, 1.0, -1.0, 0.25, 16.0]) for _ in range(2)] for _ in range(3)], np.float32)
    small = [numbers.integers(-4, 5, shape).astype(np.float32) for shape in ((rows, items), items, (rows, items))]

    def check() -> None:
        found = compiled.count_ranks(scores, *lists)
        assert found[2] == bad, (found, bad)
        if bad < 0:
            np.testing.assert_array_equal(found[0], above)
            np.testing.assert_array_equal(found[1], ties)
        ids, row = compiled.best_of_rows(scores, k, *lists[2:])
        assert row == bad_row, (row, bad_row)
        np.testing.assert_array_equal(ids[: row if row >= 0 else None], best[: row if row >= 0 else None])
        weighted = compiled.count_weighted_ranks(*small, pairs, *lists)
        for number, (kappa, theta) in enumerate(pairs):
            one = naive_ranking.count_ranks(small[0] + kappa * small[1] + theta * small[2], *lists)
            np.testing.assert_array_equal(weighted[0][number], one[0])
            np.testing.assert_array_equal(weighted[1][number], one[1])

    _with_every_set(check)
    return "read" if bad < 0 else "refused"


def _laid_out(lists: list[Array]) -> tuple[Array, Array]:
    starts = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    return starts, np.concatenate([np.empty(0, np.int32), *lists]).astype(np.int32)


# --- Scores ---


def _check_scores(choices: Choices) -> str:
    """Best items by base + u'v + lift log(w / p), lifts alone, and moments of logits."""
    table, liked = _table(choices)
    numbers, items, users = np.random.default_rng(choices.below(256)), table.item_count, liked.rows
    factors, k = choices.pick(passes.FACTORS), 1 + choices.below(items + 3)
    scale = 10.0 ** choices.pick([0, 0, 2, -20, 15, 18])
    side = Side.of(scale * numbers.normal(size=(items, factors)), scale * numbers.uniform(0.1, 1.0, (items, factors)))
    people = Side.of(numbers.normal(size=(users, factors)), numbers.uniform(0.1, 1.0, (users, factors)))
    base = np.full(-(-items // 16) * 16, -np.inf, np.float32)
    base[:items] = np.where(numbers.random(items) < 0.2, -np.inf, numbers.normal(size=items))
    lift, sharpness = choices.pick([0.0, 1.0, -2.0, 1e6, 1e-6]), choices.pick([1, 1, 2, 5, 8])
    with np.errstate(all="ignore"):
        ratios = [table.ratios(liked.row(user), sharpness) for user in range(users)]
        lifts = np.log(np.maximum(np.array(ratios), LEAST_LIFT))
    exact, slack = _lift_slack(table, liked, np.array(ratios), sharpness)
    excluded = np.zeros((users, items), np.bool_)
    for user in range(users):
        excluded[user, liked.row(user)] = True
    u, v = people.mean.astype(np.float64), side.mean.astype(np.float64)
    expected = u @ v.T + base[:items]
    size = np.abs(u) @ np.abs(v).T + np.abs(np.where(np.isfinite(base[:items]), base[:items], 0.0))
    pairs = [part.ravel() for part in np.indices((users, items))]
    vectors = np.ascontiguousarray(people.mean)
    asked = factors, vectors, factors, np.arange(users), ItemColumns(side).strips, base, k, liked.starts, liked.indices
    fits = size.max() < LARGE

    def check() -> None:
        found = table.log_ratios(liked, sharpness)
        near("lift", found[exact], lifts[exact], slack[exact])
        some = table.log_ratios_of(liked, *pairs, sharpness).reshape(users, items)
        np.testing.assert_array_equal(some, found, "lifts of pairs")
        mean, variance = logit_moments(people, side, *pairs)
        if not fits:
            return
        near("E[a]", mean.reshape(users, items), u @ v.T, ROUNDING * (factors + 20) * size + factors * TINY)
        spread = (u**2 + people.variance) @ side.variance.T.astype(np.float64) + people.variance @ (v**2).T
        near("var[a]", variance.reshape(users, items), spread, ROUNDING * (factors + 20) * spread + factors * TINY)
        rounding = ROUNDING * (factors + 20) * size + factors * TINY
        _check_lists(*compiled.top_items(*asked), expected, rounding, excluded)
        if lift and exact.all():
            rows = table.lift_table(liked.indices, sharpness)
            lists = compiled.top_items(*asked, rows, lift, liked.starts, liked.indices)
            total = rounding + abs(lift) * (slack + 4 * ROUNDING * np.abs(lifts))
            _check_lists(*lists, expected + lift * lifts, total + ROUNDING * np.abs(expected), excluded)

    _with_every_set(check)
    return "read" if fits else "refused"


def _lift_slack(table: Consideration, liked: Adjacency, ratios: Array, sharpness: int) -> tuple[Array, Array]:
    """(where a ratio is within float32 on the way, how far its logarithm may be off)."""
    powers = table.shares.astype(np.float64) ** sharpness
    spans = zip(table.starts, table.starts[1:])
    fits = np.array([powers[first:last].max(initial=0.0) > 1e-25 or first == last for first, last in spans])
    exact = (ratios < LARGE) & np.array([fits[liked.row(user)].all() for user in range(liked.rows)])[:, None]
    inverse = np.where(table.inverse > 0, table.inverse, 0.0)[: table.item_count].astype(np.float64)
    off = ROUNDING * (60 + liked.degrees)[:, None] + TINY * inverse * 1e3 / np.maximum(ratios, LEAST_LIFT)
    logs = np.abs(np.log(np.clip(ratios, LEAST_LIFT, LARGE)))
    return exact, off + 3 * ROUNDING * logs + 1e-9


def _check_lists(ids: Array, scores: Array, expected: Array, slack: Array, excluded: Array) -> None:
    """Lists in falling order of the expected scores, as far as those are apart, of all that may be in them."""
    for user in range(len(ids)):
        found, open_items = ids[user][ids[user] >= 0], ~excluded[user] & (expected[user] > -np.inf)
        assert len(found) == min(ids.shape[1], open_items.sum()), (found, open_items)
        assert len(np.unique(found)) == len(found), found
        assert open_items[found].all(), (found, open_items)
        assert (ids[user, len(found) :] == -1).all(), ids[user]
        near("score", scores[user, : len(found)], expected[user, found], slack[user, found])
        assert (np.diff(scores[user, : len(found)]) <= 0).all(), scores[user]
        left = open_items.copy()
        left[found] = False
        if left.any() and len(found):
            worst, best = scores[user, len(found) - 1], (expected[user] - slack[user])[left].max()
            assert best <= worst, (worst, best)


KINDS = [
    *(passes.check, passes.check, _check_functions, _check_draws, _check_walk, _check_ranks, _check_scores),
    *(closed.check, full.check),
]


def _seeds() -> list[bytes]:
    choice = random.Random(6)
    return [bytes([kind]) + choice.randbytes(80) for kind in range(len(KINDS)) for _ in range(10)]


TARGET = Target("kernels", _seeds, _prepare)
