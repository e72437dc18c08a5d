"""What is known beside the likes, as a fit is given it."""

from __future__ import annotations

from dataclasses import dataclass

from considerate.data.features import FeatureTable


@dataclass(frozen=True)
class SideInformation:
    """What is known beside the likes; None: nothing."""

    item_features: FeatureTable | None = None
    user_features: FeatureTable | None = None

    def describe(self) -> dict[str, str]:
        """A digest of each, for the fingerprint of a fit; nothing of what is not given."""
        tables = {"item_features": self.item_features, "user_features": self.user_features}
        return {name: table.digest() for name, table in tables.items() if table is not None}
