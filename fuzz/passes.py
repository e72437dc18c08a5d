"""Passes over the rows of a side against `kernels/reference.py`: sums, steps, the bound, and parts added along a tree.

A kernel works in float32, the reference in float64. An error is held against what rounding may do: 2^-24 for each
operation, times the magnitudes that were added (`Slack`). A step is judged by its residual P eta - z, which is small
however ill-conditioned P is. A row whose numbers leave float32, or whose P is singular in it, may be refused. It is
named as bad if and only if its new values are not finite.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, ranges
from considerate.inference.hidden import Terms
from considerate.inference.posterior import Side
from considerate.inference.prior import Prior
from considerate.inference.sums import CoordinateBlock, EdgeSums, PassConstants, add_blocks, edge_sums, side_pass
from considerate.inference.updates import Moments
from considerate.kernels import compiled, reference
from considerate.kernels.reference import Row, RowSums
from fuzz.base import Choices

Array = NDArray[Any]
ROUNDING, TINY, LARGE = 2.0**-24, 1e-37, 1e36  # of float32: half a unit, about its least number, well below its largest
FEW_EDGES = 16  # rows of up to so many may be solved in the dual, by a system of as many equations
FACTORS = [1, 2, 3, 7, 8, 9, 16, 17, 24, 31, 32, 33, 40, 63, 64, 65, 70]
OFFSETS = [0.0, -1.6, -6.9, 0.7, 20.0, -1e3, 2.0**40, 1e15]
FAR = 15_000  # rows of eight factors that are larger than the caches


@dataclass(frozen=True)
class Case:
    """One pass: both sides, the edges and the constants."""

    own: Side
    other: Side
    liked: Adjacency
    unliked: Adjacency
    constants: PassConstants
    own_is_user: bool
    splits: NDArray[np.int64] | None

    @property
    def rho(self) -> float:
        return float(np.float32(self.constants.likelihood_weight))

    @property
    def epsilon(self) -> float:
        return float(np.float32(self.constants.epsilon))

    def reading(self) -> compiled.Pass:
        terms, user = Terms(unliked=self.unliked), self.own_is_user
        return side_pass(self.own, self.other, self.liked, terms, self.constants, own_is_user=user, splits=self.splits)

    def edges(self, row: int) -> tuple[NDArray[np.int32], list[bool], list[float]]:
        """(other rows, whether each is liked, weights) of a row's edges."""
        liked = self.liked.between(row, row + 1)
        unliked = self.unliked.row(row)
        weights = [1.0] * liked.edges if liked.weights is None else liked.weights.astype(np.float64).tolist()
        likes = [True] * liked.edges + [False] * len(unliked)
        return np.append(liked.indices, unliked), likes, weights + [1.0] * len(unliked)

    def offset(self, row: int) -> float:
        extra = self.constants.user_offset
        return self.constants.offset + (float(extra[row]) if extra is not None and self.own_is_user else 0.0)

    def ends(self, others: NDArray[np.int32]) -> list[Row]:
        """The rows at the other ends of edges; what users add to a logit counts as part of their bias."""
        rows, extra = [row_of(self.other, int(n)) for n in others], self.constants.user_offset
        if extra is None or self.own_is_user:
            return rows
        return [Row(r.mean, r.variance, r.bias + float(extra[n]), r.bias_variance) for r, n in zip(rows, others)]


def row_of(side: Side, row: int) -> Row:
    bias, variance = side.biases
    mean, spread = (part[row].astype(np.float64) for part in (side.mean, side.variance))
    return Row(mean, spread, float(bias[row]), float(variance[row]))


# --- Cases ---


def make_case(choices: Choices) -> Case:
    """A small pass whose numbers are ordinary, wide or anything that float32 holds."""
    random = np.random.default_rng(choices.below(256))
    wild = choices.pick([0, 0, 1, 1, 2, 3])
    factors, rows, columns = choices.pick(FACTORS), 1 + choices.below(11), choices.pick([1, 2, 5, 15, 30])
    far = choices.below(16) == 1
    if far:
        factors, columns = 8, FAR
    own, other = (_side(choices, random, count, factors, wild) for count in (rows, columns))
    near = np.sort(random.permutation(columns)[:30])
    kind = random.random((rows, len(near)))
    density, liking = choices.pick([0.0, 0.1, 0.5, 1.0]), choices.pick([0.5, 0.0, 1.0])
    considered = kind < density * (random.random(rows) < 0.9)[:, None]  # some rows have no edges
    if choices.below(3) == 0:
        considered[:, 0] = True  # an item that everybody likes
    likes = considered & (random.random(considered.shape) < liking)
    likes[:, 0] |= considered[:, 0]
    liked, unliked = _adjacency(likes, near), _adjacency(considered & ~likes, near)
    if choices.below(3) == 0:
        limit = choices.pick([2.0, 1e4, 1e30])
        weights = random.choice([0.0, 1.0, 0.3, limit, limit * random.random()], liked.edges)
        liked = Adjacency(liked.starts, liked.indices, weights.astype(np.float32))
    is_user = bool(choices.below(2))
    extra = None
    if choices.below(3) == 0:
        extra = random.choice([0.0, 1.5, choices.pick(OFFSETS)], rows if is_user else columns).astype(np.float32)
    constants = PassConstants(
        offset=choices.pick(OFFSETS),
        likelihood_weight=choices.pick([1.0, 1.5, 0.01, 100.0]),
        tau=choices.pick([1.0, 0.3, 1e-3, 1e-6, 1e6]),
        tau_bias=choices.pick([1.0, 0.2, 1e-4, 1e5]),
        epsilon=choices.pick([1.0, 0.5, 0.01]),
        prior=_prior(choices, random, rows, factors),
        user_offset=extra,
    )
    splits = None
    if choices.below(3) == 0:
        inner = random.choice(columns - 1, min(columns - 1, choices.below(4)), replace=False) if columns > 1 else []
        splits = np.array([0, *sorted(int(cut) + 1 for cut in inner), columns], np.int64)
    return Case(own, other, liked, unliked, constants, is_user, splits)


def _side(choices: Choices, random: np.random.Generator, rows: int, factors: int, wild: int) -> Side:
    """Means and variances around one power of ten; `wild` is how far from 1 that may be, and how far they spread."""
    reach = [0, 3, 12, 38][wild]
    means, variances = (10.0 ** (choices.below(2 * reach + 1) - reach) for _ in range(2))
    spread = choices.pick([0, 0, reach])

    def powers(shape: Any) -> Array:
        return 10.0 ** random.integers(-spread, spread + 1, shape)

    def held(values: Array) -> Array:
        return np.clip(values, -3e38, 3e38).astype(np.float32)

    shape = (rows, factors)
    mean = held(means * random.normal(0, 0.7, shape) * powers(shape)) * (random.random(shape) < 0.9)
    variance = np.maximum(held(variances * random.uniform(0.02, 0.6, shape) * powers(shape)), np.float32(1e-45))
    if not choices.below(3):
        return Side.of(mean, variance)
    bias = held(means * random.normal(0, 0.7, rows)), held(variances * random.uniform(0.02, 0.6, rows))
    return Side.of(mean, variance, (bias[0], np.maximum(bias[1], np.float32(1e-45))))


def _prior(choices: Choices, random: np.random.Generator, rows: int, factors: int) -> Prior:
    given = choices.below(32)
    scale = choices.pick([1.0, 100.0])
    arrays = (
        random.normal(0, scale, (rows, factors)),
        random.uniform(0.2, 5.0, (rows, factors)) * scale,
        random.normal(0, scale, rows),
        random.uniform(0.2, 5.0, rows) * scale,
    )
    return Prior.of(*(array if given >> at & 1 and given >= 16 else None for at, array in enumerate(arrays)))


def _adjacency(matrix: NDArray[np.bool_], columns: Array) -> Adjacency:
    starts = np.append(0, np.cumsum(matrix.sum(axis=1))).astype(np.int64)
    return Adjacency(starts, columns[np.nonzero(matrix)[1]].astype(np.int32))


# --- What rounding may do ---


@dataclass(frozen=True)
class Slack:
    """How far the sums of one row may be from those of the reference."""

    P: Array  # [K, K]
    z: Array  # [K]
    bias_P: float
    bias_z: float
    bound: float
    fits: bool  # whether all that is computed on the way is within float32


def slack_of(case: Case, own: Row, others: list[Row], weights: list[float], offset: float) -> Slack:
    """Rounding of each edge's p and pull, times the magnitudes that they multiply.

    p = 2 lambda(xi) falls with xi^2, whose error is that of a^2 and of sums of squares: p is taken at both ends.
    """
    factors, count = len(own.mean), len(others)
    unit = ROUNDING * (factors + count + 40)
    u, u_variance = np.abs(own.mean), own.variance
    v = np.array([other.mean for other in others]).reshape(count, factors)
    v_variance = np.array([other.variance for other in others]).reshape(count, factors)
    biases = np.array([other.bias for other in others])
    spreads = np.array([other.bias_variance for other in others]) + own.bias_variance
    a, a_squared = reference.logit_moments(own.mean, u_variance, v, v_variance, own.bias + biases + offset, spreads)
    size = np.abs(v) @ u + abs(own.bias) + np.abs(biases) + abs(offset)  # of what is added to a logit
    a_error = unit * size + factors * TINY
    square_error = 2.0 * np.abs(a) * a_error + a_error**2 + unit * a_squared + factors * TINY
    low, high = (np.sqrt(np.maximum(a_squared + way * square_error, 0.0)) for way in (-1.0, 1.0))
    p = 2.0 * reference.logistic_curvature(np.sqrt(a_squared))
    p_error = 2.0 * (reference.logistic_curvature(low) - reference.logistic_curvature(high)) + unit * p
    h = case.rho * np.array(weights)
    V = np.abs(v)
    pull = unit * (0.5 + p * size) + p_error * size
    each = h[:, None, None] * (p_error + unit * p)[:, None, None] * V[:, :, None] * V[:, None, :]
    P = each.sum(axis=0) + TINY * (V.T @ V + V.sum(axis=0) + count)
    P[np.diag_indices(factors)] += ((h * (p_error + unit * p)) @ v_variance) + TINY * v_variance.sum(axis=0)
    largest = [
        (V * u).max(initial=0.0),
        (size**2).max(initial=0.0),
        a_squared.max(initial=0.0),
        ((u**2 + u_variance) * v_variance).max(initial=0.0),
        (V**2 * u_variance).max(initial=0.0),
        (u**2 + u_variance).max(initial=0.0),
        (V**2).max(initial=0.0),
        ((h * np.maximum(p, 0.5))[:, None] * np.maximum(V**2, v_variance)).max(initial=0.0) * max(count, 1),
        (h * (1.0 + size + np.sqrt(a_squared))).max(initial=0.0) * max(count, 1),
        (h * (0.5 + p * size) * np.maximum(V.max(axis=1, initial=1.0), 1.0)).max(initial=0.0) * max(count, 1),
    ]
    return Slack(
        P=P,
        z=(h * pull) @ V + TINY * (V.sum(axis=0) + count),
        bias_P=float((h * (p_error + unit * p)).sum()) + count * TINY,
        bias_z=float((h * pull).sum()) + count * TINY,
        bound=float(h @ (high - low + unit * (1.0 + size + np.sqrt(a_squared)))) + count * TINY,
        fits=max(largest) < LARGE,
    )


@dataclass(frozen=True)
class RowTruth:
    """One row: its edges, and what the reference makes of them."""

    case: Case
    row: int
    own: Row
    others: list[Row]
    likes: list[bool]
    weights: list[float]
    offset: float
    xi: list[float]
    sums: RowSums
    slack: Slack

    @classmethod
    def of(cls, case: Case, row: int) -> RowTruth:
        own, (indices, likes, weights), offset = row_of(case.own, row), case.edges(row), case.offset(row)
        others = case.ends(indices)
        xi = [_xi(own, other, offset) for other in others]
        sums = reference.row_sums(
            own, others, likes, offset=offset, likelihood_weight=case.rho, considered=weights, xi=xi
        )
        slack = slack_of(case, own, others, weights, offset)
        return cls(case, row, own, others, likes, weights, offset, xi, sums, slack)

    def with_bias(self, bias: float) -> RowTruth:
        """The row once its bias is stepped, with xi held: what the blocks of coordinates after the first read."""
        own, case = Row(self.own.mean, self.own.variance, bias, self.own.bias_variance), self.case
        sums = reference.row_sums(
            own,
            self.others,
            self.likes,
            offset=self.offset,
            likelihood_weight=case.rho,
            considered=self.weights,
            xi=self.xi,
        )
        more = slack_of(case, own, self.others, self.weights, self.offset)
        both = {name: np.maximum(one, getattr(more, name)) for name, one in vars(self.slack).items() if name != "fits"}
        return replace(self, sums=sums, slack=Slack(**both, fits=self.slack.fits and more.fits))

    @property
    def is_few(self) -> bool:
        """Whether the row is solved in the dual."""
        return self.case.splits is None and len(self.others) <= min(FEW_EDGES, self.case.own.factors * 4 // 5)

    @cached_property
    def step(self) -> Step:
        """The step that the row should take (eq. 17)."""
        case, own, slack, sums = self.case, self.own, self.slack, self.sums
        prior, factors, epsilon = case.constants.prior, case.own.factors, case.epsilon
        tau: Any = case.constants.tau if prior.precision is None else prior.precision[self.row, :factors].astype(float)
        centre: Any = 0.0 if prior.mean is None else prior.mean[self.row, :factors].astype(float)
        P, z = reference.natural_step(own, sums, tau, epsilon, centre)
        diagonal, old = np.diag(P), (1.0 - epsilon) / own.variance
        root = np.sqrt(np.outer(diagonal, diagonal))
        z_slack = epsilon * slack.z + 40 * ROUNDING * (epsilon * np.abs(tau * centre) + old * np.abs(own.mean))
        P_slack = epsilon * slack.P + 40 * ROUNDING * np.diag(diagonal)
        largest = max(diagonal.max(), np.abs(z).max(), old.max(), (old * np.abs(own.mean)).max())
        fits = slack.fits and largest < LARGE and diagonal.min() > 1e-25
        if case.own.has_bias:  # the kernel divides by its old variance, even where a step of 1 forgets that
            fits &= own.bias_variance * LARGE > 1.0
        if self.is_few and fits and self.others:  # its error grows with the condition, at most 1 + tr S A S in few.hpp
            v = np.array([other.mean for other in self.others])
            p = case.rho * np.array(self.weights) * 2.0 * reference.logistic_curvature(np.array(self.xi))
            D = np.maximum(epsilon * (tau + np.diag(sums.P) - p @ v**2) + old, 1e-300)
            condition = 1.0 + epsilon * float((p @ (v**2 / D)).sum())
            z_slack = condition * (z_slack + 40 * ROUNDING * np.abs(z))
            P_slack = condition * P_slack + 4 * ROUNDING * (condition - 1.0) * root
            # a missing edge is made up by the row itself, with a weight of 0
            fits = condition * ROUNDING * (factors + len(v)) < 0.01 and (own.mean**2 / D).sum() < LARGE
        solvable = False
        if fits:
            least = np.linalg.eigvalsh(P / root)[0]
            solvable = bool(least > 2 * np.linalg.norm(P_slack / root) + 8 * factors * ROUNDING)
            solvable = solvable and bool(np.abs(np.linalg.solve(P, z)).max() < 1e18)
        return Step(P, z, P_slack, z_slack, solvable)


def _xi(own: Row, other: Row, offset: float) -> float:
    """xi = sqrt(E[a^2]) of an edge (eq. 16)."""
    bias, variance = own.bias + other.bias + offset, own.bias_variance + other.bias_variance
    return float(
        np.sqrt(reference.logit_moments(own.mean, own.variance, other.mean, other.variance, bias, variance)[1])
    )


@dataclass(frozen=True)
class Step:
    """The system of one row's step, P eta = z, how far either may be off, and whether float32 can solve it."""

    P: Array
    z: Array
    P_slack: Array
    z_slack: Array
    solvable: bool

    def check(self, mean: Array, block: slice) -> None:
        """The residual P eta - z of a block of coordinates."""
        root, size = np.sqrt(np.diag(self.P)), np.abs(mean)
        most = self.z_slack + self.P_slack @ size + TINY * (1.0 + np.abs(self.P).sum(axis=1))
        most += 4 * ROUNDING * (len(mean) + 10) * (root * (root @ size) + np.abs(self.z))
        near("mean", (self.P @ mean - self.z)[block], 0.0, most[block])


# --- Checks ---


def check(choices: Choices) -> str:
    """A case with every instruction set; "refused" if float32 can step none of its rows."""
    case = make_case(choices)
    with np.errstate(all="ignore"):
        truths = [RowTruth.of(case, row) for row in range(len(case.own))]
        for name in compiled.instruction_sets():
            compiled.use_instruction_set(name)
            check_pass(case, truths)
    return "read" if any(truth.step.solvable for truth in truths) else "refused"


def check_pass(case: Case, truths: list[RowTruth]) -> None:
    rows, kernel_pass, new = len(case.own), case.reading(), case.own.empty_like()
    bound, bad, moments = compiled.update_rows(kernel_pass, 0, rows, *new.arrays())
    everything = np.arange(rows, dtype=np.int32)
    sums = edge_sums(kernel_pass, everything, CoordinateBlock.of(case.own.factors), (0, len(case.other)))
    for truth in truths:
        check_sums(truth, sums.rows(truth.row, truth.row + 1))
        check_step(truth, new, bad)
    broken = [row for row in range(rows) if not is_finite(new, row)]
    assert bad == min(broken, default=-1), (bad, broken)
    if case.own_is_user and all(truth.slack.fits for truth in truths):
        total, slack = sum(truth.sums.bound for truth in truths), sum(truth.slack.bound for truth in truths)
        near("bound", bound, total, slack)
        if case.splits is None:
            near("bound alone", compiled.edge_bound(kernel_pass, 0, rows), total, slack)
    if all(truth.step.solvable for truth in truths):
        width = new.rows.shape[1] // 2
        assert not new.rows[:, new.factors : width].any(), "padding"
        assert not new.rows[:, width + new.factors :].any(), "padding"
        square, log, bias_square, bias_log = vars(Moments.of(new, case.constants.prior)).values()
        slack = np.array([1e-5 * square, 1e-6 * rows * new.factors, 1e-5 * bias_square, 1e-6 * rows])
        near("moments", np.array(moments), np.array([square, log, bias_square, bias_log]), slack)
    if case.splits is not None:
        check_parts(case, kernel_pass, everything, new)


def check_sums(truth: RowTruth, found: EdgeSums) -> None:
    """The sums of the first block of coordinates: its pull has what the others add to the logits."""
    sums, slack, own, size = truth.sums, truth.slack, truth.own, found.first.shape[1]
    if not slack.fits:
        return
    lower, inside, outside = np.tril_indices(size), slice(0, size), slice(size, None)
    near("second", found.second[0], sums.P[inside, inside][lower], slack.P[inside, inside][lower])
    expected = sums.z[inside] - sums.P[inside, outside] @ own.mean[outside]
    near("first", found.first[0], expected, slack.z[inside] + slack.P[inside, outside] @ np.abs(own.mean[outside]))
    near("bias", found.bias[0], np.array([sums.bias_P, sums.bias_z]), np.array([slack.bias_P, slack.bias_z]))


def check_step(truth: RowTruth, new: Side, bad: int) -> None:
    row, step = truth.row, truth.step
    if not step.solvable:
        return
    assert bad != row, ("a row that float32 can step is refused", row)
    mean, stepped, first = truth.own.mean.copy(), new.mean[row].astype(np.float64), 0
    for number, size in enumerate([len(mean)] if truth.is_few else compiled.coordinate_blocks(len(mean))):
        block = slice(first, first + size)
        if number == 1 and truth.case.own.has_bias:
            step = truth.with_bias(float(new.biases[0][row])).step
        mean[block] = stepped[block]
        step.check(mean, block)
        first += size
    diagonal = np.diag(step.P)
    near("variance", new.variance[row] * diagonal, 1.0, 2 * np.diag(step.P_slack) / diagonal + 1e-6)
    if truth.case.own.has_bias:
        check_bias(truth, new)


def check_bias(truth: RowTruth, new: Side) -> None:
    """Eq. 19."""
    own, slack, constants, epsilon = truth.own, truth.slack, truth.case.constants, truth.case.epsilon
    prior, row = constants.prior, truth.row
    tau = constants.tau_bias if prior.bias_precision is None else float(prior.bias_precision[row])
    centre = 0.0 if prior.bias_mean is None else float(prior.bias_mean[row])
    mean, variance = reference.bias_step(own, truth.sums, tau, epsilon, centre)
    old = (1.0 - epsilon) / own.bias_variance
    if not (TINY < variance < LARGE and abs(mean) < LARGE and old < LARGE and old * abs(own.bias) < LARGE):
        return
    off_P = epsilon * slack.bias_P + 40 * ROUNDING / variance
    off_z = epsilon * slack.bias_z + 40 * ROUNDING * (epsilon * abs(tau * centre) + old * abs(own.bias))
    near("bias variance", new.biases[1][row] / variance, 1.0, 2 * off_P * variance)
    near("bias mean", new.biases[0][row], mean, 2 * variance * (off_z + abs(mean) * off_P) + TINY)


def is_finite(side: Side, row: int) -> bool:
    """Whether all values of a row are finite and no variance is negative."""
    mean, variance = np.append(side.mean[row], side.biases[0][row]), np.append(side.variance[row], side.biases[1][row])
    return bool(np.isfinite(mean).all() and np.isfinite(variance).all() and (variance >= 0).all())


def check_parts(case: Case, kernel_pass: compiled.Pass, everything: NDArray[np.int32], new: Side) -> None:
    """Sums over parts of the other side, added along the tree, then solved: the bits of a pass in one go."""
    assert case.splits is not None
    again = case.own.empty_like()
    for number in range(len(compiled.coordinate_blocks(case.own.factors))):
        block = CoordinateBlock.of(case.own.factors, number, again)
        sums = add_blocks([edge_sums(kernel_pass, everything, block, part) for part in ranges(case.splits)])
        compiled.solve_rows(kernel_pass, everything, *sums.arrays(), *again.arrays(), block=number)
    for one, other in zip(new.arrays(), again.arrays()):
        if one is not None:
            np.testing.assert_array_equal(one, other, "parts along the tree")


def near(name: str, found: Any, expected: Any, slack: Any) -> None:
    """Hold a number, or an array of them, to what is expected; the worst is shown."""
    found, expected, slack = np.broadcast_arrays(np.asarray(found, np.float64), expected, slack)
    wrong = np.flatnonzero(~(np.abs(found - expected) <= slack))
    if len(wrong):
        shown = [f"{name}[{at}]: {found.flat[at]!r}, not {expected.flat[at]!r} +- {slack.flat[at]:.3g}" for at in wrong]
        raise AssertionError("; ".join(shown[:3]))
