"""One-class collaborative filtering with random graphs: p(like | considered), kept apart from popularity.

from considerate import Recommender
ids, scores = Recommender().fit(user_items).recommend(0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Interactions", "Recommender", "__version__", "read_interactions"]

if TYPE_CHECKING:
    from considerate.interactions import Interactions, read_interactions
    from considerate.recommender import Recommender


def __getattr__(name: str) -> Any:
    if name == "Recommender":
        from considerate.recommender import Recommender

        return Recommender
    if name in ("Interactions", "read_interactions"):
        from considerate import interactions

        return getattr(interactions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
