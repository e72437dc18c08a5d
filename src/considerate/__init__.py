"""One-class collaborative filtering with random graphs: p(like | considered), told apart from p(considered).

from considerate import Recommender
ids, scores = Recommender().fit(user_items).recommend(0)
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from considerate._moved import MovedModules
from considerate._version import __version__

__all__ = ["Interactions", "RankingOptions", "Recommender", "__version__", "evaluate", "read_interactions"]

if TYPE_CHECKING:
    from considerate.data import Interactions, read_interactions
    from considerate.model.ranking import RankingOptions
    from considerate.recommender import Recommender
    from considerate.study.evaluate import evaluate


def __getattr__(name: str) -> Any:
    if name == "Recommender":
        from considerate.recommender import Recommender

        return Recommender
    if name == "RankingOptions":
        from considerate.model.ranking import RankingOptions

        return RankingOptions
    if name == "evaluate":
        from considerate.study.evaluate import evaluate

        return evaluate
    if name in ("Interactions", "read_interactions"):
        from considerate import data

        return getattr(data, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


sys.meta_path.insert(0, MovedModules())  # before a package found under its old name looks for its modules
