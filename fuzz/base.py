"""Parts that fuzz targets share: the target itself, choices made by bytes, and mutations by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Some = TypeVar("Some")
Check = Callable[[bytes], str]  # "read" or "refused"; any other outcome is an exception, which is a finding


@dataclass(frozen=True)
class Place:
    """An empty folder for a target's files, and what to do when it is over."""

    folder: Path
    exits: ExitStack


@dataclass(frozen=True)
class Target:
    """One parser under attack: its seed corpus, and the check of one input."""

    name: str
    seeds: Callable[[], list[bytes]]
    prepare: Callable[[Place], Check]


class Choices:
    """Decisions taken from bytes, one after the other; zeros when these run out."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        """Number of bytes that are not used."""
        return max(0, len(self.data) - self.at)

    def below(self, limit: int) -> int:
        """A whole number from 0 to limit - 1, with limit at most 256."""
        self.at += 1
        return self.data[self.at - 1] % limit if self.at <= len(self.data) else 0

    def pick(self, values: Sequence[Some]) -> Some:
        return values[self.below(len(values))]

    def integer(self) -> int:
        """A whole number of up to eight bytes with a sign."""
        size = 1 + self.below(8)
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little", signed=True)

    def rest(self) -> bytes:
        """All bytes that are not used."""
        start, self.at = self.at, len(self.data)
        return self.data[start:]


def mutated(data: bytes, others: Sequence[bytes], choice: random.Random) -> bytes:
    """Bytes with one to four mutations: cut, doubled, spliced with a seed, overwritten, bits flipped."""
    for _ in range(choice.randint(1, 4)):
        low, high = sorted((choice.randint(0, len(data)), choice.randint(0, len(data))))
        how = choice.randrange(6)
        if how == 0:
            data = data[:low] + data[min(high, low + 8) :]
        elif how == 1:
            data = data[:high] + data[low:]
        elif how == 2:
            other = choice.choice(others)
            data = data[:low] + other[choice.randint(0, len(other)) :]
        elif how == 3:
            data = data[:low] + choice.randbytes(choice.randint(1, 8)) + data[low + 1 :]
        elif data:
            at = choice.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ 1 << choice.randrange(8)]) + data[at + 1 :]
    return data


def share(target: Target, count: int, seed: int = 0) -> Iterator[bytes]:
    """A fixed share of inputs: the seeds, mutations of them, and random bytes."""
    choice, seeds = random.Random(f"{target.name} {seed}"), target.seeds()
    for number in range(count):
        if number < len(seeds):
            yield seeds[number]
        elif number % 4 == 0:
            yield choice.randbytes(choice.randint(0, 200))
        else:
            yield mutated(choice.choice(seeds), seeds, choice)
