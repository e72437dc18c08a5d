"""Sweeps with covariances, a Normal-Wishart hyperprior, or quadrature in place of the logistic bound.

The paper's section 3 names these extensions. Eq. 18 is skipped: Sigma = P^-1 is kept, and E[v v'] = eta eta' + Sigma.
With `logistic="quadrature"` the edges' terms are E[log sigma(a)] under a ~ N(E[a], var[a]) in place of the logistic
bound (eq. 11). Their derivatives in E[a] and var[a] are g - E[sigma(a)] and -E[sigma'(a)] / 2, so a row's natural
parameters are

    P = prior + sum p E[v v'],    z = prior + sum (g - E[sigma(a)] + p (E[a] - b)) E[v],    p = E[sigma'(a)]

An opening is swept in closed form as usual; covariances begin with the draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import ITEMS, USERS, Range, ranges
from considerate.inference.bound import Bound, gamma_term
from considerate.inference.hidden import Terms
from considerate.inference.posterior import Posterior, Side
from considerate.inference.sums import PassConstants, side_pass
from considerate.inference.sweep import InMemory, ItemsPass, State, Sweep, bound_of
from considerate.inference.updates import Moments, RowClasses, SideUpdate
from considerate.inference.wishart import NormalWishart, messages
from considerate.kernels import compiled
from considerate.kernels.arrays import Spare, add_in_order


@dataclass(frozen=True)
class FullInMemory(InMemory):
    """Sweeps over a whole graph in memory, for a plan that `is_full`."""

    def _sweep(self, state: State, classes: RowClasses, spare: Spare) -> Sweep:
        if state.sweep < self.settings.opening:
            return super()._sweep(state, classes, spare)
        state = replace(state, posterior=self.with_covariances(state.posterior))
        sweep = super()._sweep(state, classes, spare)
        learned = self.learn_hyperpriors(sweep.state, state.posterior, sweep.epsilon)
        return replace(sweep, state=learned, bound=self.with_hyperpriors(sweep.bound, state))

    def with_covariances(self, q: Posterior) -> Posterior:
        """Add the covariances that the settings require to a posterior; they start diagonal."""
        which = self.settings.posterior
        users = q.users.with_covariance() if which == "full" else q.users
        return replace(q, users=users, items=q.items.with_covariance() if which != "factorised" else q.items)

    def learn_hyperpriors(self, state: State, old: Posterior, epsilon: float) -> State:
        """Learn q(mu, Lambda) of both sides, once the precisions are learned. The Gammas are learned too: a new user's
        prior and the progress of a fit need them."""
        if self.settings.prior != "wishart" or state.sweep <= self.settings.precision_delay:
            return state
        rate, q = self.settings.prior_rate, state.posterior
        before = old.hyperpriors or (None, None)
        sides = zip((q.users, q.items), before)
        users, items = (NormalWishart.of(side, rate).blended(last, epsilon) for side, last in sides)
        return replace(state, posterior=replace(q, hyperpriors=(users, items)))

    def with_hyperpriors(self, bound: Bound, state: State) -> Bound:
        """Replace the Gammas' terms of a state's bound by those of its Normal-Wisharts."""
        q, taus = state.posterior, state.posterior.precisions
        if q.hyperpriors is None:
            return bound
        users, items = q.hyperpriors
        gammas = add_in_order(
            gamma_term(tau, self.settings.prior_shape, self.settings.prior_rate) for tau in (taus.user, taus.item)
        )
        return replace(
            bound,
            users=users.rows_term(messages(q.users), state.user_moments.log_variance),
            items=items.rows_term(messages(q.items), state.item_moments.log_variance),
            precisions=bound.precisions - gammas + users.own_term() + items.own_term(),
        )

    def update_users(self, terms: Terms, q: Posterior, epsilon: float = 1.0, spare: Spare | None = None) -> SideUpdate:
        if terms.expected is not None:
            return super().update_users(terms, q, epsilon, spare)
        return update_full_side(
            self.full_pass(USERS, terms, q, epsilon), q.users, self.graph.user_blocks, self.backend.map
        )

    def items_pass(self, terms: Terms, q: Posterior, epsilon: float = 1.0) -> ItemsPass:
        if terms.expected is not None:
            return super().items_pass(terms, q, epsilon)
        return FullItemsPass(self.full_pass(ITEMS, terms, q, epsilon), self.graph.item_blocks)

    def full_pass(self, side: str, terms: Terms, q: Posterior, epsilon: float = 1.0) -> compiled.FullPass:
        """Kernel pass over one side, with all that it reads."""
        user = side == USERS
        own, other = (q.users, q.items) if user else (q.items, q.users)
        liked = self.graph.by_user if user else self.graph.by_item
        taus = q.precisions.means_of(side)
        constants = PassConstants.of(self.settings, taus, epsilon, user_offset=self.user_offset)
        given = None if q.hyperpriors is None else q.hyperpriors[0 if user else 1]
        precision = taus[0] * np.eye(q.factors) if given is None else given.precision
        return compiled.FullPass(
            side_pass(own, other, liked, terms, constants, own_is_user=user),
            precision[np.tril_indices(q.factors)].astype(np.float32),
            (np.zeros(q.factors) if given is None else given.pull).astype(np.float32),
            self.settings.logistic == "quadrature",
        )

    def evaluate_bound(self, state: State) -> Bound:
        if state.sweep < self.settings.opening:
            return super().evaluate_bound(state)
        state = replace(state, posterior=self.with_covariances(state.posterior))
        terms = self.estimator.user_terms(state.sweep + 1, state.posterior, self.backend.map)
        kernel_pass = self.full_pass(USERS, terms, state.posterior)

        def edges(block: Range) -> float:
            return compiled.update_full_rows(kernel_pass, *block)[0]

        total = add_in_order(self.backend.map(edges, ranges(self.graph.user_blocks)))
        return self.with_hyperpriors(bound_of(state, total, self.settings), state)


@dataclass(frozen=True)
class FullItemsPass:
    """Pass over items with covariances; each item is summed in one go."""

    kernel_pass: compiled.FullPass
    blocks: NDArray[np.int64]

    def update(self, own: Side, classes: RowClasses, run: Any, spare: Spare | None = None) -> SideUpdate:
        return update_full_side(self.kernel_pass, own, self.blocks, run)


def update_full_side(kernel_pass: compiled.FullPass, own: Side, blocks: Any, run: Any) -> SideUpdate:
    """Sum (eq. 15, 16) and step (eq. 17, 19) every row: with its covariance if it has one, else by eq. 18. One task
    sums a row, so its bits do not depend on threads."""
    new = own.empty_like()

    def update(block: Range) -> Any:
        return compiled.update_full_rows(kernel_pass, *block, *new.arrays(), new.covariance)

    steps = run(update, ranges(blocks))
    bad = [row for _, row, _ in steps if row >= 0]
    moments = Moments.total([moments for _, _, moments in steps])
    return SideUpdate(new, moments, add_in_order(bound for bound, _, _ in steps), min(bad, default=-1))
