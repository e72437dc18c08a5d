"""Draws, written to be read: `src/core/draws.hpp` gives the same bits. Python's integers are those of the kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix64(x: int) -> int:
    """The finaliser of splitmix64."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def key64(seed: int, stream: int, index: int) -> int:
    """One key from three numbers."""
    key = mix64((seed + GOLDEN) & MASK)
    key = mix64((key + (stream + 1) * GOLDEN) & MASK)
    return mix64((key + (index + 1) * GOLDEN) & MASK)


class SplitMix64:
    """splitmix64 started at a key: the generator of `src/core/random.hpp`."""

    def __init__(self, key: int) -> None:
        self.state = key

    def next(self) -> int:
        self.state = (self.state + GOLDEN) & MASK
        return mix64(self.state)

    def uniform(self) -> float:
        """Uniform on [0, 1), 53 bits."""
        return (self.next() >> 11) * 2.0**-53

    def below(self, n: int) -> int:
        """Uniform on 0 .. n-1."""
        return self.next() * n >> 64

    def shuffle(self, values: NDArray[np.int32]) -> None:
        """Fisher and Yates, from the end, in place."""
        for i in range(len(values), 1, -1):
            j = self.below(i)
            values[i - 1], values[j] = values[j], values[i - 1]


def draw_negatives(
    seed: int,
    sweep: int,
    rate: float,
    weights: Array,
    thresholds: Array,
    aliases: Array,
    user: int,
    liked: Sequence[int],
) -> list[int]:
    """One user's unliked items: c d of them, drawn from pi without replacement, never one that was liked.

    Draws that hit a marked item are discarded. Should that stall, the rest is drawn from a weighted tree with the
    marked items taken out; the law of the next item does not depend on how many were discarded before it.
    """
    support = int((weights > 0).sum())
    available = support - sum(1 for n in liked if weights[n] > 0)
    wanted = rate * len(liked)
    count = int(wanted)
    count += SplitMix64(key64(seed, sweep * 2 + 1, user)).uniform() < wanted - count
    count = min(count, available)
    marked = set(liked)
    if count == available:
        return [n for n in range(len(weights)) if weights[n] > 0 and n not in marked]
    random, discarded = SplitMix64(key64(seed, sweep * 2, user)), 0
    drawn: list[int] = []
    while len(drawn) < count and discarded <= 4 * len(drawn) + 64:
        product = random.next() * len(weights)
        column, height = product >> 64, product & MASK
        n = column if height < int(thresholds[column]) else int(aliases[column])
        if n in marked:
            discarded += 1
        else:
            marked.add(n)
            drawn.append(n)
    tree = _tree([0.0 if n in marked else float(w) for n, w in enumerate(weights)]) if len(drawn) < count else []
    while len(drawn) < count:
        n = _draw_from_tree(tree, random)
        drawn.append(n)
        _clear(tree, n)
    return drawn


AHEAD, SOON, SPARE = 32, 12, 2  # steps of the walk that are taken ahead; slots read ahead; steps that may go unused


class WalkStream:
    """Items that a user meets: a slot of the row of one of the likes. Slots are (threshold, item, alias), one more than
    the row has entries; item -1 is pi. One number is a like, then a column, then a height. Steps are taken before their
    slots are read, and these before the items are used: that is the order of the random numbers."""

    def __init__(
        self, random: SplitMix64, walk: Any, slots: Array, pi: tuple[Array, Array], liked: Sequence[int]
    ) -> None:
        self.random, self.walk, self.slots, self.pi, self.liked = random, walk, slots, pi, liked
        self.taken: list[tuple[Array, int]] = []
        self.read: list[int] = []

    def next(self, wanted: int) -> int:
        """The next item, of so many that are still wanted."""
        while len(self.read) + len(self.taken) < min(AHEAD, wanted + SPARE):
            self.taken.append(self._step())
        while self.taken and len(self.read) <= SOON:
            slot, height = self.taken.pop(0)
            item = int(slot[1] if height < int(slot[0]) & 0xFFFFFFFF else slot[2])
            self.read.append(self._from_pi() if item < 0 else item)
        return self.read.pop(0)

    def _step(self) -> tuple[Array, int]:
        product = self.random.next() * len(self.liked)
        row = self.liked[product >> 64]
        product = (product & MASK) * int(self.walk.starts[row + 1] - self.walk.starts[row] + 1)
        return self.slots[int(self.walk.starts[row]) + row + (product >> 64)], (product & MASK) >> 32

    def _from_pi(self) -> int:
        thresholds, aliases = self.pi
        product = self.random.next() * len(thresholds)
        column, height = product >> 64, product & MASK
        return column if height < int(thresholds[column]) else int(aliases[column])


def _tree(weights: Sequence[float]) -> list[float]:
    leaves = 1
    while leaves < len(weights):
        leaves *= 2
    sums = [0.0] * leaves + list(weights) + [0.0] * (leaves - len(weights))
    for i in range(leaves - 1, 0, -1):
        sums[i] = sums[2 * i] + sums[2 * i + 1]
    return sums


def _draw_from_tree(sums: list[float], random: SplitMix64) -> int:
    x, i, leaves = random.uniform() * sums[1], 1, len(sums) // 2
    while i < leaves:
        left, right = sums[2 * i], sums[2 * i + 1]
        if right == 0.0 or (x < left and left > 0.0):
            i = 2 * i
        else:
            x -= left
            i = 2 * i + 1
    return i - leaves


def _clear(sums: list[float], n: int) -> None:
    i = len(sums) // 2 + n
    sums[i] = 0.0
    while i > 1:
        i //= 2
        sums[i] = sums[2 * i] + sums[2 * i + 1]


def temperature(weights: Array, liked: Sequence[int], count: float) -> float:
    """T such that 1 - exp(-T pi_n) over the items that are not liked adds up to `count`, by bisection in log T."""
    rest = np.delete(np.asarray(weights, np.float64), np.asarray(liked, np.int64))
    low, high = -700.0, 700.0
    while high - low > 1e-13 * max(1.0, abs(low)):
        middle = (low + high) / 2
        low, high = (middle, high) if -np.expm1(-math.exp(middle) * rest).sum() < count else (low, middle)
    return math.exp((low + high) / 2)
