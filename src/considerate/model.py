"""A fitted model: all that prediction and the model file need."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.graph import Adjacency
from considerate.inference.fit import Settings
from considerate.interactions import Titles
from considerate.posterior import Posterior
from considerate.predict import UNCHANGED, FoldIn, ItemColumns, Recalibration, like_interval, like_probability
from considerate.ranking import log_popularity
from considerate.vocabulary import Vocabulary


@dataclass(frozen=True)
class Model:
    """The posterior, with the popularity, the ids and the likes that go with it."""

    posterior: Posterior
    popularity: NDArray[np.float64]  # [items] pi
    gamma: float
    liked: Adjacency  # what each user liked in training
    user_degree: NDArray[np.int64]  # [users], also where the likes themselves were left out of a file
    item_degree: NDArray[np.int64]  # [items]
    user_ids: Vocabulary
    item_ids: Vocabulary
    titles: Titles | None
    settings: Settings
    negatives: float  # c
    groups: int
    bounds: tuple[dict[str, float], ...]  # the terms of L_xi before the first sweep, and after each
    popularity_weight: float = 0.5  # the knob, where nothing else is said
    converged: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)  # as the estimator was given them
    recalibration: Recalibration = UNCHANGED  # of p(like), where one was fitted

    @property
    def user_count(self) -> int:
        return len(self.posterior.users)

    @property
    def item_count(self) -> int:
        return len(self.posterior.items)

    @property
    def edges(self) -> int:
        """Likes in the data."""
        return int(self.user_degree.sum())

    @property
    def knows_likes(self) -> bool:
        """Whether the likes are here, or were left out of the file."""
        return self.liked.edges == self.edges

    @property
    def variance_scale(self) -> float:
        """A likelihood raised to the power rho makes the variance too small by rho; predictions multiply it back."""
        return self.settings.weight

    def like_probability(self, mean: NDArray[Any], variance: NDArray[Any]) -> NDArray[Any]:
        """p(like) (eq. 22) of logits by their moments, the variance scaled; recalibrated where the model was."""
        return like_probability(mean, variance, self.recalibration)

    def like_interval(self, mean: NDArray[Any], variance: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Its 90 % interval; recalibrated where the model was."""
        return like_interval(mean, variance, self.recalibration)

    @cached_property
    def log_popularity(self) -> NDArray[np.float32]:
        return log_popularity(self.popularity, self.gamma)

    @cached_property
    def columns(self) -> ItemColumns:
        return ItemColumns(self.posterior.items)

    @cached_property
    def fold_in(self) -> FoldIn:
        return FoldIn(self.posterior, self.popularity, self.negatives, self.settings, self.groups)

    def title(self, item: int) -> str:
        """An item's title, or its id where there is none."""
        title = self.titles.of(item) if self.titles is not None else None
        return title or str(self.item_ids.id_of(item))
