"""Steps of rows with covariances against `full_row_sums` and `full_step`, by the bound and by quadrature."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import USERS, Adjacency, Graph
from considerate.inference.full import FullInMemory
from considerate.inference.hidden import Terms
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Posterior, Side
from considerate.inference.sweep import initial_state
from considerate.inference.wishart import unpack
from considerate.kernels import compiled, reference
from considerate.kernels.reference import FullRow, RowSums
from considerate.kernels.threads import LocalBackend
from fuzz.base import Choices
from fuzz.passes import near

Array = NDArray[Any]
ERROR = 1e-5  # of what was added
WORST = 1e3  # condition of P, each coordinate at its own scale, up to which covariances are compared


def check(choices: Choices) -> str:
    """The users of a small graph with every instruction set; "refused" if there are no likes."""
    numbers = np.random.default_rng(choices.below(256))
    users, items, factors = 1 + choices.below(4), 1 + choices.below(8), choices.pick([1, 2, 3, 8, 9, 17])
    kind = numbers.random((users, items))
    likes, unliked = kind < choices.pick([0.1, 0.5, 1.0]), kind > choices.pick([0.3, 0.8])
    unliked &= ~likes
    if not likes.any():
        return "refused"
    plan = FitPlan.of_paper(
        factors=factors,
        negatives=choices.pick([1.5, 1e-3, 1000.0]),
        likelihood_weight=choices.pick([1.5, 1.0, 0.01, 30.0]),
        user_bias=bool(choices.below(2)),
        posterior=choices.pick(["full", "full-items", "factorised"]),
        logistic=choices.pick(["bound", "quadrature"]),
    )
    graph = Graph.from_pairs(*_pairs(likes), users, items, block_edges=10**6)
    if choices.below(2):
        weights = numbers.choice([0.0, 1.0, 0.3, 1e3], graph.edges).astype(np.float32)
        graph = replace(graph, by_user=replace(graph.by_user, weights=weights))
    extra = numbers.choice([0.0, 1.5, -3.0], users).astype(np.float32) if choices.below(2) else None
    scale, epsilon = choices.pick([1.0, 1.0, 0.01, 10.0]), choices.pick([1.0, 0.5, 0.01])
    q = initial_state(graph, plan).posterior
    q = replace(q, users=_side(numbers, q.users, scale), items=_side(numbers, q.items, scale))
    h = Adjacency.of_pairs(*_pairs(unliked), users, items)
    with LocalBackend(1) as backend, np.errstate(all="ignore"):
        runner = FullInMemory(graph, None, plan, backend, user_offset=extra)  # type: ignore[arg-type]
        q = runner.with_covariances(q)
        for name in compiled.instruction_sets():
            compiled.use_instruction_set(name)
            check_users(runner, q, h, epsilon)
    return "read"


def _pairs(matrix: NDArray[np.bool_]) -> Any:
    return (part.astype(np.int32) for part in np.nonzero(matrix))


def _side(numbers: np.random.Generator, like: Side, scale: float) -> Side:
    """A side of random rows, with covariances that are not diagonal if it is to keep them."""
    rows, factors = len(like), like.factors
    root = 0.4 * numbers.standard_normal((rows, factors, factors))
    covariance = scale * (root @ root.transpose(0, 2, 1) + 0.05 * np.eye(factors))
    biases = (numbers.normal(size=rows), numbers.uniform(0.05, 0.3, rows)) if like.has_bias else None
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    i, j = np.tril_indices(factors)
    side = Side.of(scale * numbers.normal(0, 0.7, (rows, factors)), variance, biases)
    return replace(side, covariance=np.ascontiguousarray(covariance[:, i, j], np.float32))


def check_users(runner: FullInMemory, q: Posterior, h: Adjacency, epsilon: float) -> None:
    """The step of every user: the mean by its residual, the covariance, the bias and the bound."""
    graph, plan, new = runner.graph, runner.settings, q.users.empty_like()
    kernel_pass = runner.full_pass(USERS, Terms(unliked=h), q, epsilon)
    bound, bad, _ = compiled.update_full_rows(kernel_pass, 0, graph.user_count, *new.arrays(), new.covariance)
    assert bad == -1, bad
    assert compiled.update_full_rows(kernel_pass, 0, graph.user_count)[0] == bound, "the bound alone"
    tau, tau_bias = q.precisions.means_of(USERS)
    items, total, slack = full_rows(q.items), 0.0, 0.0
    for user, row in enumerate(full_rows(q.users)):
        sums, size = sums_of(runner, row, user, items, h)
        total, slack = total + sums.bound, slack + ERROR * size.bound
        P, z = reference.full_step(row, sums, tau * np.eye(plan.factors), np.zeros(plan.factors), epsilon)
        old = (1 - epsilon) * np.linalg.inv(row.covariance)
        root, mean = np.sqrt(np.diag(P)), new.mean[user].astype(np.float64)
        scaled = P / np.outer(root, root)
        condition = np.linalg.cond(scaled)
        if condition > WORST or not np.isfinite(condition):
            continue
        own = np.linalg.cond(row.covariance) if epsilon < 1 else 1.0
        if own > WORST:
            continue
        off = ERROR * own * (epsilon * size.z + np.abs(old) @ np.abs(row.mean) + root * (root @ np.abs(mean)))
        near("mean", P @ mean, z, off + ERROR * epsilon * size.P @ np.abs(mean) + 1e-30)
        if new.covariance is not None:
            covariance = unpack(new.covariance[user].astype(np.float64), plan.factors) * np.outer(root, root)
            near("covariance", covariance, np.linalg.inv(scaled), ERROR * own * condition * 20)
        else:
            near("variance", new.variance[user] * root**2, 1.0, ERROR * own * 20)
        if row.bias_variance > 0:
            before = (1 - epsilon) / row.bias_variance
            precision = epsilon * (sums.bias_P + tau_bias) + before
            pull = epsilon * sums.bias_z + before * row.bias
            near("bias variance", new.biases[1][user] * precision, 1.0, 20 * ERROR)
            most = ERROR * (epsilon * size.bias_z + before * abs(row.bias) + abs(pull))
            near("bias", new.biases[0][user] * precision, pull, most + 1e-30)
    near("bound", bound, total, slack + 1e-30)


def full_rows(side: Side) -> list[FullRow]:
    bias, variance = side.biases
    rows = []
    for row, mean in enumerate(side.mean.astype(np.float64)):
        full = side.covariance is not None
        covariance = unpack(side.covariance[row], side.factors) if full else np.diag(side.variance[row].astype(float))
        rows.append(FullRow(mean, covariance.astype(np.float64), float(bias[row]), float(variance[row])))
    return rows


def sums_of(
    runner: FullInMemory, row: FullRow, user: int, items: list[FullRow], h: Adjacency
) -> tuple[RowSums, RowSums]:
    """(The sums of a user's edges, the magnitudes that were added to make them.)"""
    plan, extra = runner.settings, runner.user_offset
    offset = plan.offset + (0.0 if extra is None else float(extra[user]))
    liked = runner.graph.by_user.between(user, user + 1)
    kappa = np.ones(liked.edges) if liked.weights is None else liked.weights
    edges = [*zip(liked.indices, kappa, [True] * liked.edges), *((n, 1.0, False) for n in h.row(user))]
    zero = RowSums(np.zeros((plan.factors,) * 2), np.zeros(plan.factors), 0.0, 0.0, 0.0)
    sums, size = zero, zero
    for item, weight, like in edges:
        other = items[item]
        weight = plan.likelihood_weight * float(weight)
        how = {"offset": offset, "likelihood_weight": weight, "quadrature": plan.logistic == "quadrature"}
        one = reference.full_row_sums(row, [other], [like], **how)
        a = np.abs(row.mean) @ np.abs(other.mean) + abs(row.bias) + abs(other.bias) + abs(offset)
        a_own, variance = reference.full_logit_moments(row, other, offset)
        a = a + abs(a_own) + np.sqrt(variance)
        V = np.abs(other.mean)
        pull = weight * 2.0 + one.bias_P * a * (1.0 + a)
        P = (one.bias_P * (np.outer(V, V) + np.abs(other.covariance))) * (1.0 + a)
        most = RowSums(P, pull * V, one.bias_P * (1.0 + a), pull, weight * (1.0 + a))
        sums = RowSums(*(getattr(sums, f.name) + getattr(one, f.name) for f in fields(RowSums)))
        size = RowSums(*(getattr(size, f.name) + getattr(most, f.name) for f in fields(RowSums)))
    return sums, size
