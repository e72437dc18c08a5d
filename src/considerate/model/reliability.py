"""Comparison of p(like) with judged pairs in a few bins. Models store it, the service sends and draws it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

EQUAL, EACH = "equal classes", "each pair"  # ways to weigh pairs
MOST_BINS = 100


class ReliabilityBin(NamedTuple):
    """Judged pairs with about the same p(like)."""

    predicted: float  # mean of p(like)
    liked: float  # share of likes
    low: float  # 90 % interval of that share
    high: float
    pairs: int


@dataclass(frozen=True)
class LikeReliability:
    """Reliability of p(like): the share of likes among judged pairs, by their p."""

    weights: str  # "equal classes": liked and not liked pairs weigh the same in total; "each pair": every pair does
    error: float  # mean over pairs of |liked - predicted| of their bin
    bins: tuple[ReliabilityBin, ...]  # without empty ones

    @property
    def pairs(self) -> int:
        return sum(bin.pairs for bin in self.bins)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a model file."""
        return {"weights": self.weights, "error": self.error, "bins": [bin._asdict() for bin in self.bins]}

    @classmethod
    def parse(cls, given: Any) -> LikeReliability:
        """Parse the result of `to_dict`; raise ValueError if it is wrong."""
        if not isinstance(given, dict) or given.keys() != {field.name for field in fields(cls)}:
            raise ValueError("its reliability is not described by weights, error and bins")
        bins, error = given["bins"], given["error"]
        if given["weights"] not in (EQUAL, EACH) or not _is_share(error):
            raise ValueError("its reliability has an error or weights that are not possible")
        if not isinstance(bins, list) or not 1 <= len(bins) <= MOST_BINS or not all(map(_is_bin, bins)):
            raise ValueError(f"its reliability is not one of 1 to {MOST_BINS} bins of shares and pairs")
        return cls(given["weights"], float(error), tuple(ReliabilityBin(**bin) for bin in bins))


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _is_bin(bin: Any) -> bool:
    if not isinstance(bin, dict) or bin.keys() != set(ReliabilityBin._fields):
        return False
    shares = [bin[name] for name in ("predicted", "low", "liked", "high")]
    ordered = all(map(_is_share, shares)) and shares[1] <= shares[2] <= shares[3]
    return ordered and type(bin["pairs"]) is int and 1 <= bin["pairs"] <= 2**53
