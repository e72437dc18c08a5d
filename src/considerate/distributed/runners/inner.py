"""Inner sweeps: a part sweeps over its users and all items with the messages of the other parts held fixed (eq. 21).

The message of a part is a quadratic in each item's vector and bias, from the part's edges at the xi of the time when it
was made. The messages of the other parts are the sum of all messages minus the part's own. L_xi at the xi of the
messages never falls, however old the other messages are. The posterior differs from that of plain sweeps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import ITEMS
from considerate.distributed.messages import Broadcast, HiddenForm, Reply, Sums, SumsRequest
from considerate.distributed.options import DivisionOptions
from considerate.distributed.partitions.users import UserPartition
from considerate.distributed.pools import SinglePartCall
from considerate.distributed.runners.by_users import ByUsersRunner
from considerate.distributed.travelling import edgeless_pass
from considerate.errors import UsageError
from considerate.inference.hidden import Draws, ItemGroups, ItemSums, Shares, Terms, UserGroups
from considerate.inference.plan import FitPlan
from considerate.inference.posterior import Side
from considerate.inference.sums import CoordinateBlock, EdgeSums, PassConstants, edge_sums
from considerate.inference.sweep import State
from considerate.inference.updates import Moments, SideUpdate
from considerate.kernels import compiled

Message = dict[str, NDArray[Any]]  # EdgeSums and slope of all items; user_...: sums over users in the closed form


@dataclass(frozen=True)
class InnerBroadcast:
    """Message down before the inner sweeps of a part."""

    down: Broadcast  # with the items as they are now
    total: Message  # sum of the messages of all parts
    item_tau: float
    item_tau_bias: float
    rounds: int


@dataclass(frozen=True)
class InnerReply:
    """Result of a part's inner sweeps."""

    items: Side
    total: Message  # sum of all messages, with the new one of this part
    blocks: NDArray[np.float64]  # as in Reply, after the last round
    bad_item: int


def check_inner_sweeps(plan: FitPlan, resident: str | None, options: DivisionOptions) -> None:
    """Raise UsageError if the options ask for inner sweeps that are not possible."""
    blocks = len(compiled.coordinate_blocks(plan.factors))
    if options.inner_sweeps > 1 and (resident == ITEMS or blocks > 1 or (options.item_shards or 1) > 1):
        raise UsageError(
            f"inner_sweeps is {options.inner_sweeps} and factors is {plan.factors}; inner sweeps need at most 64 "
            "factors, a division by users and one item shard: set inner_sweeps to 1 for this fit."
        )


# --- At the head ---


class InnerSweepsRunner(ByUsersRunner):
    """A sweep is one visit of every part: to one part at a time, or to all at once."""

    def _updates(self, state: State, epsilon: float) -> Iterator[SideUpdate]:
        down = self.broadcast(state, epsilon)
        up = self._call(make_message, self.pool.share(down), changes=True)
        edge_bound = up.bound()
        visit = self._one_at_a_time if self.options.inner == "one" else self._together
        message = up.root().message
        assert message is not None
        items, blocks, bad_item = visit(state, down, message)
        yield replace(self._resident_update(blocks), edge_bound=edge_bound)
        yield SideUpdate(items, Moments.of(items), bad_row=bad_item)

    def _one_at_a_time(self, state: State, down: Broadcast, total: Message) -> tuple[Side, list[list[float]], int]:
        """Visit the parts in order, each with the items and the messages that the part before it left."""
        blocks: list[list[float]] = []
        bad = -1
        for number in range(self.setup.parts):
            given = self.pool.share(self._inner_broadcast(state, down, total))
            answers = self.pool.call(SinglePartCall(number, sweep_alone), self.hidden, given, changes=True)
            reply: InnerReply = next(answer for answer in answers if answer is not None)
            down, total = replace(down, other=reply.items), reply.total
            blocks += reply.blocks.tolist()
            bad = reply.bad_item if bad < 0 else bad
        return down.other, blocks, bad

    def _together(self, state: State, down: Broadcast, total: Message) -> tuple[Side, list[list[float]], int]:
        """Visit all parts with the same items and messages, then step the items from the new messages."""
        given = self.pool.share(self._inner_broadcast(state, down, total))
        up = self._call(sweep_together, given, changes=True)
        all_items = np.arange(self.outline.item_count, dtype=np.int32)
        constants = self.item_constants(state, down.epsilon)
        message = up.root().message
        assert message is not None
        items, bad = step_items(down.other, message, all_items, constants, down)
        return items, up.in_order().tolist(), bad

    def _inner_broadcast(self, state: State, down: Broadcast, total: Message) -> InnerBroadcast:
        constants = self.item_constants(state, down.epsilon)
        return InnerBroadcast(down, total, constants.tau, constants.tau_bias, self.options.inner_sweeps)


# --- At a part ---


def make_message(part: UserPartition, hidden: HiddenForm, down: Broadcast) -> Reply:
    """Make and keep the part's message on the H of the sweep; replies with it and the edges' part of the bound."""
    part.forget()
    part.learn_offsets(hidden)
    terms = part.resident_terms(hidden, down)
    blocks = part.edge_bounds(part.resident_pass(down, terms))  # writes alpha and l, which the message reads
    part.turn(terms.unliked)
    message = message_at(part, part.side, down)
    part.forget()
    part.kept = message
    return part.reply(blocks, Sums(message=message))


def sweep_alone(part: UserPartition, hidden: HiddenForm, given: InnerBroadcast) -> InnerReply:
    """Inner sweeps of one part while all others wait."""
    others = subtract_message(given.total, part.kept)
    items, own, blocks, bad = _inner_sweeps(part, hidden, given, others)
    return InnerReply(items, add_messages(others, own), blocks, bad)


def sweep_together(part: UserPartition, hidden: HiddenForm, given: InnerBroadcast) -> Reply:
    """Inner sweeps of all parts at once; replies with the part's new message."""
    _, own, blocks, _ = _inner_sweeps(part, hidden, given, subtract_message(given.total, part.kept))
    return part.reply(blocks, Sums(message=own))


def _inner_sweeps(
    part: UserPartition, hidden: HiddenForm, given: InnerBroadcast, others: Message
) -> tuple[Side, Message, NDArray[np.float64], int]:
    """(items, own message, numbers per block, a bad item or -1) after the inner sweeps, which step the users."""
    part.learn_offsets(hidden)
    plan, down, items, users = part.setup.plan, given.down, given.down.other, part.side
    constants = PassConstants.of(plan, (given.item_tau, given.item_tau_bias), down.epsilon)
    drawn = part.unliked(hidden, down) if isinstance(hidden, Draws) else None
    part.forget()
    part.turn(drawn)
    own, blocks, bad = Message(), np.empty((0, 6)), -1
    for _ in range(given.rounds):
        down = replace(down, other=items, closed=_groups_at(items, down, plan.offset))
        terms = part.resident_terms(hidden, down) if drawn is None else Terms(unliked=drawn)
        new = users.empty_like()
        blocks = part.step_rows(part.resident_pass(down, terms, residents=users), new)
        users = new
        own = message_at(part, users, down)
        items, bad_item = step_items(items, add_messages(others, own), _touched(part), constants, down)
        bad = bad_item if bad < 0 else bad
    part.finish_step(users, down.sweep)
    part.forget()
    return items, own, blocks, bad


def message_at(part: UserPartition, users: Side, down: Broadcast) -> Message:
    """Message of these users, at the items of the broadcast."""
    items, whole = down.other, SumsRequest(0, part.setup.item_count)
    terms, rows = part.item_terms(down, whole), np.arange(part.setup.item_count, dtype=np.int32)

    def sums(slope: bool) -> EdgeSums:
        kernel_pass = part.travelling_pass(items, users, terms, whole, slope)
        return edge_sums(kernel_pass, rows, CoordinateBlock.of(items.factors), (0, len(users)))

    return message_of(sums(False), sums(True).first, items, part.group_sums(users))


def _groups_at(items: Side, down: Broadcast, offset: float) -> ItemGroups | None:
    """Groups of the broadcast, with the sums over these items."""
    groups = down.closed
    if not isinstance(groups, ItemGroups):
        return None
    return replace(groups, sums=ItemSums.of(items, offset, groups.beta, groups.group_of_item, groups.groups))


def _touched(part: UserPartition) -> NDArray[np.int32]:
    """Items with an edge to a user of the part; all items in the closed form."""
    if part.unliked_by_item is None:
        return np.arange(part.setup.item_count, dtype=np.int32)
    return np.flatnonzero(part.unliked_by_item.degrees + part.turned_likes.degrees).astype(np.int32)


# --- Messages ---


def message_of(edges: EdgeSums, slope: NDArray[np.float32], items: Side, users: UserGroups | None) -> Message:
    """Message from sums at an item's vector v and bias b, made independent of both: b slope is added to the sum `first`
    and slope'v to the bias's sum. Such messages add up, whenever each was made."""
    edges.first[:] += items.biases[0][:, None] * slope
    edges.bias[:, 1] += np.einsum("nk,nk->n", slope, items.mean)
    message: Message = {**vars(edges), "slope": slope}
    if users is not None:
        message |= {f"user_{name}": array for name, array in vars(users).items()}
    for array in message.values():
        array.flags.writeable = False  # the part keeps it, and it is added to other messages
    return message


def sums_at(message: Message, items: Side, rows: NDArray[np.int32]) -> EdgeSums:
    """Sums of some items at their vectors and biases: the inverse of `message_of`."""
    sums, slope = EdgeSums(*(message[name][rows] for name in ("second", "first", "bias"))), message["slope"][rows]
    sums.first[:] -= items.biases[0][rows, None] * slope
    sums.bias[:, 1] -= np.einsum("nk,nk->n", slope, items.mean[rows])
    return sums


def subtract_message(total: Message, own: Message) -> Message:
    """Sum of the other parts' messages."""
    return {name: array - own[name] for name, array in total.items()}


def add_messages(others: Message, own: Message) -> Message:
    """Sum of all messages."""
    return {name: array + own[name] for name, array in others.items()}


def step_items(
    items: Side, message: Message, rows: NDArray[np.int32], constants: PassConstants, down: Broadcast
) -> tuple[Side, int]:
    """(items with some rows stepped from the sum of all messages, a bad row or -1)."""
    terms, groups = Terms(), down.closed
    if isinstance(groups, ItemGroups):
        shares = Shares.zeros(np.empty(0), groups.groups)
        users = UserGroups(*(message[f"user_{name}"] for name in ("second", "first", "scalars")))
        terms = Terms(expected=shares.read(groups, users))
    kernel_pass = edgeless_pass(items, terms, constants, own_is_user=False)
    sums = sums_at(message, items, rows)
    if terms.expected is not None:
        sums = sums.take_in(edge_sums(kernel_pass, rows, CoordinateBlock.of(items.factors), (0, 0), closed_form=True))
    biases = (None if bias is None else bias.copy() for bias in (items.bias_mean, items.bias_variance))
    new = Side(items.factors, items.rows.copy(), *biases)
    bad, _ = compiled.solve_rows(kernel_pass, rows, *sums.arrays(), *new.arrays())
    return new, bad
