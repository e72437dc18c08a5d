"""Features of users and items, which set the prior means of their vectors. The paper's remarks name them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from considerate.inference.parts.base import Part, Where


class FeaturesPart(Part):
    """Part: priors of rows that are learned from features."""

    def refusals(self, request: Any, where: Where) -> Iterator[str]:
        if request.side.has_features and not where.users_stay:
            yield (
                "item_features or user_features are given, and their weights are learned where the items are in one "
                "place; divide by users, with inner_sweeps=1."
            )
