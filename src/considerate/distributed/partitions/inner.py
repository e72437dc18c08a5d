"""Inner sweeps: a part sweeps over its own users and all items while the others' messages are held (eq. 21).

A message is what a part's edges say of every item at the xi that they had when it was made: a quadratic in the item's
vector and bias. What the others say of an item is the sum of all messages less the part's own. L_xi at the xi of the
messages never falls, however old those of the other parts are. The posterior after a given number of sweeps is another
one than without inner sweeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency, GraphPart, run_serially
from considerate.distributed.messages import Broadcast, PartitionSetup, Reply, Sums, SumsRequest
from considerate.distributed.partitions.base import Fixed, spares
from considerate.distributed.partitions.users import UserPartition
from considerate.inference.hidden import Draws, ItemGroups, ItemSums, Shares, Terms, UserGroups
from considerate.inference.posterior import Side
from considerate.inference.sums import CoordinateBlock, EdgeSums, PassConstants, edge_sums, side_pass
from considerate.kernels import compiled

USER_SUMS = ("user_second", "user_first", "user_scalars")


@dataclass(frozen=True)
class InnerBroadcast:
    """What a part begins its inner sweeps with."""

    down: Broadcast  # whose `other` are the items as they are now
    total: Sums  # the messages of all parts
    item_tau: float
    item_tau_bias: float
    rounds: int


@dataclass(frozen=True)
class InnerReply:
    """What a part has made of it: the items, and all messages, its own new."""

    items: Side
    total: Sums
    blocks: NDArray[np.float64]  # as Up has them, after the last round
    bad_item: int


def message_of(edges: EdgeSums, slope: NDArray[np.float32], items: Side, users: UserGroups | None) -> Sums:
    """A message from sums at an item's vector v and bias b, made free of both: to the sum `first` is added b slope, to
    the bias's sum slope'v. Such messages add up whenever they were made."""
    edges.first[:] += items.biases[0][:, None] * slope
    edges.bias[:, 1] += np.einsum("nk,nk->n", slope, items.mean)
    for one in (*edges.arrays(), slope):
        one.flags.writeable = False  # it is kept, and also added to others'
    return Sums(edges, users, slope=slope)


def sums_at(message: Sums, items: Side, rows: NDArray[np.int32]) -> EdgeSums:
    """The sums of some items at their vectors and biases: what `message_of` took out is put back."""
    (second, first, bias), slope = (one[rows] for one in _edges(message).arrays()), _slope(message)[rows]
    first -= items.biases[0][rows, None] * slope
    bias[:, 1] -= np.einsum("nk,nk->n", slope, items.mean[rows])
    return EdgeSums(second, first, bias)


def less(total: Sums, own: Sums) -> Sums:
    """The messages of the others: all of them less a part's own."""
    edges = EdgeSums(*(a - b for a, b in zip(_edges(total).arrays(), _edges(own).arrays())))
    users = None
    if total.users is not None and own.users is not None:
        users = UserGroups(*(a - b for a, b in zip(total.users.arrays(), own.users.arrays())))
    return Sums(edges, users, slope=_slope(total) - _slope(own))


def both(others: Sums, own: Sums) -> Sums:
    """All messages, in new memory."""
    users = others.users.merge(own.users) if others.users is not None and own.users is not None else None
    return Sums(_edges(others).merge(_edges(own)), users, slope=_slope(others) + _slope(own))


def _edges(message: Sums) -> EdgeSums:
    assert message.edges is not None
    return message.edges


def _slope(message: Sums) -> NDArray[np.float32]:
    assert message.slope is not None
    return message.slope


def step_items(
    items: Side, message: Sums, rows: NDArray[np.int32], constants: PassConstants, groups: ItemGroups | None
) -> tuple[Side, int]:
    """Some items stepped from all messages, the others as they are; and a bad row or -1."""
    terms = Terms()
    if groups is not None:
        shares = Shares.zeros(np.empty(0), groups.groups)
        terms = Terms(expected=shares.read(items.factors, groups, message.users))
    no_edges = Adjacency(np.zeros(len(items) + 1, np.int64), np.empty(0, np.int32))
    kernel_pass = side_pass(items, items.between(0, 0), no_edges, terms, constants, own_is_user=False)
    sums = sums_at(message, items, rows)
    if groups is not None:
        sums = sums.take_in(edge_sums(kernel_pass, rows, CoordinateBlock.of(items.factors), (0, 0), closed_form=True))
    new = Side(items.factors, items.rows.copy())
    if items.bias_mean is not None and items.bias_variance is not None:
        new = replace(new, bias_mean=items.bias_mean.copy(), bias_variance=items.bias_variance.copy())
    bad, _ = compiled.solve_rows(kernel_pass, rows, *sums.arrays(), *new.arrays())
    return new, bad


class InnerPartition(UserPartition):
    """A part of users that can sweep on its own."""

    def __init__(self, graph: GraphPart, setup: PartitionSetup) -> None:
        super().__init__(graph, setup)
        self._message: Sums | None = None

    def state(self) -> dict[str, NDArray[Any]]:
        return super().state() | ({} if self._message is None else _packed(self._message))

    def restore(self, tensors: Mapping[str, NDArray[Any]], before: Mapping[str, NDArray[Any]] | None = None) -> None:
        super().restore(tensors, before)
        self._message = _unpacked(tensors) if "message.slope" in tensors else None

    def begin(self, all_residents: Side | None = None) -> None:
        super().begin(all_residents)
        self._message = None

    def go_back(self, sweep: int) -> None:
        super().go_back(sweep)
        self._message = None

    def messages(self, fixed: Fixed, down: Broadcast) -> Reply:
        """This part's message on the H of the sweep, which it keeps, and the edges' part of the bound."""
        self._forget()
        terms = self._user_terms(fixed, down)
        blocks = self._bounds(self._users_pass(self.side, down, terms))  # which makes alpha and l too
        if terms.unliked is not None:
            self._unliked = self._by_item(terms.unliked, spares.turned)
        self._message = self._made(self.side, down)
        self._forget()
        return Reply.of(self.number, self.setup.parts, blocks, self._message)

    def inner(self, fixed: Fixed, given: InnerBroadcast) -> InnerReply:
        """Sweep over the users here and the items that they have edges to, the others' messages held."""
        assert self._message is not None
        others = less(given.total, self._message)
        items, own, blocks, bad = self._rounds(fixed, given, others)
        return InnerReply(items, both(others, own), blocks, bad)

    def inner_together(self, fixed: Fixed, given: InnerBroadcast) -> Reply:
        """The same of all parts at once: this part's new message."""
        assert self._message is not None
        _, own, blocks, _ = self._rounds(fixed, given, less(given.total, self._message))
        return Reply.of(self.number, self.setup.parts, blocks, own)

    def _rounds(self, fixed: Fixed, given: InnerBroadcast, others: Sums) -> tuple[Side, Sums, NDArray[np.float64], int]:
        """(items, own message, what is per block, a bad item or -1) after the inner sweeps; the users are stepped."""
        down, items, users = given.down, given.down.other, self.side
        constants = PassConstants.of(self.setup.plan, (given.item_tau, given.item_tau_bias), down.epsilon)
        drawn = self._draw(fixed, down.sweep) if isinstance(fixed, Draws) else None
        self._unliked = None if drawn is None else self._by_item(drawn)
        own, blocks, bad = Sums(), np.empty((0, 6)), -1
        for _ in range(given.rounds):
            down = replace(down, other=items, groups=self._groups_of(items, down.groups))
            terms = self._user_terms(fixed, down) if drawn is None else Terms(unliked=drawn)
            new = users.empty_like()
            blocks = self._step_users(self._users_pass(users, down, terms), new)
            users = new
            own = self._made(users, down)
            items, bad_item = step_items(items, both(others, own), self._touched(), constants, down.groups)
            bad = bad_item if bad < 0 else bad
        self._step(users, down.sweep)
        self._message = None
        self._forget()
        return items, own, blocks, bad

    def _made(self, users: Side, down: Broadcast) -> Sums:
        """The message of these users, at the items that came down."""
        items, ask = down.other, SumsRequest(0, self.setup.item_count)
        terms, rows = self._item_terms(down.groups, ask), np.arange(self.setup.item_count, dtype=np.int32)

        def sums(slope: bool) -> EdgeSums:
            kernel_pass = self._items_pass(items, users, terms, down.epsilon, ask, slope)
            return edge_sums(kernel_pass, rows, CoordinateBlock.of(items.factors), (0, len(users)))

        shares, groups = self._shares, None
        if shares is not None:
            groups = shares.add_up(users, self.graph.likes, self.graph.blocks, run_serially)
        return message_of(sums(False), sums(True).first, items, groups)

    def _groups_of(self, items: Side, groups: ItemGroups | None) -> ItemGroups | None:
        """The sums over groups of these items."""
        if groups is None:
            return None
        offset = self.setup.plan.offset
        return replace(groups, sums=ItemSums.of(items, offset, groups.beta, groups.group_of_item, groups.groups))

    def _touched(self) -> NDArray[np.int32]:
        """The items that the users here have edges to; in expected mode that is all of them."""
        if self._unliked is None or self._liked_by_item is None:
            return np.arange(self.setup.item_count, dtype=np.int32)
        return np.flatnonzero(self._unliked.degrees + self._liked_by_item.degrees).astype(np.int32)


def _packed(message: Sums) -> dict[str, NDArray[Any]]:
    second, first, bias = _edges(message).arrays()
    found: dict[str, NDArray[Any]] = {"second": second, "first": first, "bias": bias, "slope": _slope(message)}
    if message.users is not None:
        found |= dict(zip(USER_SUMS, message.users.arrays()))
    return {f"message.{name}": one for name, one in found.items()}


def _unpacked(tensors: Mapping[str, NDArray[Any]]) -> Sums:
    second, first, bias, slope = (tensors[f"message.{name}"] for name in ("second", "first", "bias", "slope"))
    users = None
    if f"message.{USER_SUMS[0]}" in tensors:
        users = UserGroups(*(tensors[f"message.{name}"] for name in USER_SUMS))
    return Sums(EdgeSums(second, first, bias), users, slope=slope)
