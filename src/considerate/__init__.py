"""One-class collaborative filtering with random graphs: p(like | considered), told apart from p(considered).

from considerate import Recommender
ids, scores = Recommender().fit(user_items).recommend(0)
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from considerate._moved import MovedModules
from considerate._version import __version__

__all__ = [
    "GraphRecommender",
    "Impossible",
    "Interactions",
    "RankingOptions",
    "Recommender",
    "__version__",
    "evaluate",
    "plot",
    "read_features",
    "read_interactions",
    "scorer",
]

if TYPE_CHECKING:
    from considerate import plot
    from considerate.data import Impossible, Interactions, read_interactions
    from considerate.data.read_features import read_features
    from considerate.evaluation.fitted import scorer
    from considerate.graph_recommender import GraphRecommender
    from considerate.model.ranking import RankingOptions
    from considerate.recommender import Recommender
    from considerate.study.evaluate import evaluate


MODULES = {
    "GraphRecommender": "graph_recommender",
    "Impossible": "data",
    "Interactions": "data",
    "RankingOptions": "model.ranking",
    "Recommender": "recommender",
    "evaluate": "study.evaluate",
    "read_features": "data.read_features",
    "read_interactions": "data",
    "scorer": "evaluation.fitted",
}


if not TYPE_CHECKING:  # a name that is not there is then an error of mypy's, too

    def __getattr__(name: str) -> Any:
        if name == "plot":
            return import_module("considerate.plot")
        if name not in MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)

    def __dir__() -> list[str]:
        return __all__


sys.meta_path.insert(0, MovedModules())  # before a package found under its old name looks for its modules
