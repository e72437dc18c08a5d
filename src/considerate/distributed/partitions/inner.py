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

from considerate.data.graph import Adjacency
from considerate.distributed.messages import Broadcast, Sums
from considerate.inference.hidden import ItemGroups, Shares, Terms, UserGroups
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
    blocks: NDArray[np.float64]  # as Reply has them, after the last round
    bad_item: int


def message_of(edges: EdgeSums, slope: NDArray[np.float32], items: Side, users: UserGroups | None) -> Sums:
    """A message from sums at an item's vector v and bias b, made free of both: to the sum `first` is added b slope, to
    the bias's sum slope'v. Such messages add up whenever they were made."""
    edges.first[:] += items.biases[0][:, None] * slope
    edges.bias[:, 1] += np.einsum("nk,nk->n", slope, items.mean)
    for array in (*edges.arrays(), slope):
        array.flags.writeable = False  # it is kept, and also added to others'
    return Sums(edges, users, slope=slope)


def sums_at(message: Sums, items: Side, rows: NDArray[np.int32]) -> EdgeSums:
    """The sums of some items at their vectors and biases: what `message_of` took out is put back."""
    (second, first, bias), slope = (array[rows] for array in _edges(message).arrays()), _slope(message)[rows]
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


def pack_message(message: Sums) -> dict[str, NDArray[Any]]:
    second, first, bias = _edges(message).arrays()
    tensors: dict[str, NDArray[Any]] = {"second": second, "first": first, "bias": bias, "slope": _slope(message)}
    if message.users is not None:
        tensors |= dict(zip(USER_SUMS, message.users.arrays()))
    return {f"message.{name}": tensor for name, tensor in tensors.items()}


def unpack_message(tensors: Mapping[str, NDArray[Any]]) -> Sums:
    second, first, bias, slope = (tensors[f"message.{name}"] for name in ("second", "first", "bias", "slope"))
    users = None
    if f"message.{USER_SUMS[0]}" in tensors:
        users = UserGroups(*(tensors[f"message.{name}"] for name in USER_SUMS))
    return Sums(EdgeSums(second, first, bias), users, slope=slope)
