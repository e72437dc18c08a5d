"""Side information of a fit: features, and constraints on H."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from considerate.data.features import FeatureTable
from considerate.data.known_tables import (
    ImpossibleTables,
    KnownTables,
    PairTable,
    StoredLimits,
    read_impossible,
    read_pairs,
)
from considerate.data.options import ReaderOptions
from considerate.data.read_features import read_features


@dataclass(frozen=True)
class SideInformation:
    """Inputs of a fit other than the likes; None for those that are not given."""

    item_features: FeatureTable | None = None
    user_features: FeatureTable | None = None
    considered: PairTable | None = None
    impossible: ImpossibleTables | StoredLimits | None = None

    @property
    def known(self) -> KnownTables | None:
        """Constraints on H, None if there are none."""
        if self.considered is None and self.impossible is None:
            return None
        return KnownTables(self.considered, self.impossible)

    @property
    def has_features(self) -> bool:
        """True if users or items have features."""
        return self.item_features is not None or self.user_features is not None

    @property
    def pair_count(self) -> int:
        """Number of considered and impossible pairs that were read."""
        pairs = (self.considered, None if self.impossible is None else self.impossible.pairs)
        return sum(len(table.left) for table in pairs if table is not None)

    def with_features(self, item_features: Any = None, user_features: Any = None) -> SideInformation:
        """Add features of items and users, from anything that `read_features` reads."""
        items = None if item_features is None else read_features(item_features, "item")
        users = None if user_features is None else read_features(user_features, "user")
        return replace(self, item_features=items, user_features=users)

    @property
    def notes(self) -> list[str]:
        """Notes for the user."""
        tables = (self.item_features, self.user_features)
        return [note for table in tables if table is not None for note in table.notes]

    def describe(self) -> dict[str, str]:
        """Digests of the given inputs, for the fingerprint of a fit."""
        tables = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: table.digest() for name, table in tables.items() if table is not None}


def read_side(likes: Any, options: ReaderOptions, considered: Any = None, impossible: Any = None) -> SideInformation:
    """Read the constraints on H.

    Considered pairs are the rows of a source that `considered_where` keeps, or all rows. Without a source, they are
    rows of the source of the likes.
    """
    pairs = None
    if considered is not None or options.considered_where is not None:
        source = likes if considered is None else considered
        pairs = read_pairs(source, options, options.considered_where)
    return SideInformation(considered=pairs, impossible=read_impossible(impossible, options))
