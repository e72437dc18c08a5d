"""Attributes of a fitted recommender, with names by the conventions of scikit-learn."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from considerate.errors import NotFittedError
from considerate.inference.plan import Chosen
from considerate.inference.posterior import Posterior
from considerate.model.features import Importance
from considerate.model.liking import Recalibration
from considerate.model.model import Model
from considerate.model.names import IdArray
from considerate.model.reliability import LikeReliability


class Learned:
    """Attributes of a fitted model. Before a fit they raise an error with advice."""

    @property
    def model_(self) -> Model:
        """Fitted model."""
        model = self.__dict__.get("_model")
        if model is None:
            raise NotFittedError("This recommender is not fitted yet; call fit(user_items), or Recommender.load(path).")
        return model  # type: ignore[no-any-return]

    @property
    def posterior_(self) -> Posterior:
        """Posterior: means and variances of user and item vectors and biases, and of the precisions."""
        return self.model_.posterior

    @property
    def popularity_(self) -> NDArray[np.float64]:
        """Histogram pi that unliked edges are drawn from."""
        return self.model_.popularity

    @property
    def precisions_(self) -> dict[str, float]:
        """E[tau] by name. The data fix only the product of the two for vectors."""
        return self.model_.precisions.means()

    @property
    def bound_(self) -> NDArray[np.float64]:
        """Bounds L_xi: [0] at the start, [t] after t sweeps."""
        return np.array([math.fsum(terms.values()) for terms in self.model_.bounds])

    @property
    def n_iter_(self) -> int:
        """Number of finished sweeps."""
        return max(0, len(self.model_.bounds) - 1)

    @property
    def converged_(self) -> bool:
        """True if the bound settled before `sweeps` ran out."""
        return self.model_.converged

    @property
    def user_factors(self) -> NDArray[np.float32]:
        """Posterior means of the user vectors, [users, factors]."""
        return self.model_.posterior.users.mean

    @property
    def item_factors(self) -> NDArray[np.float32]:
        """Posterior means of the item vectors, [items, factors]."""
        return self.model_.items.mean

    @property
    def cold_items_(self) -> IdArray:
        """Ids of cold items: without likes, but with features."""
        return self.model_.item_names().at(self.model_.cold_items)

    def feature_importance(self, side: Literal["item", "user"] = "item") -> list[Importance]:
        """Effect of each feature of items, or of users, on their vectors: (name, rows, effect, deviations, bias), with
        the largest first."""
        learned = self.model_.item_features if side == "item" else self.model_.user_features
        return [] if learned is None else learned.importance()

    @property
    def recalibration_(self) -> Recalibration:
        """Slope and shift of the logit of p(like); 1 and 0 without a recalibration."""
        return self.model_.recalibration

    @property
    def reliability_(self) -> LikeReliability | None:
        """Comparison of p(like) with the pairs of the recalibration, each by other users' recalibration; None without a
        recalibration, or with too few pairs."""
        return self.model_.reliability

    @property
    def chosen_(self) -> Chosen | None:
        """Record of the choice of "auto" settings: settings, criteria, trials; None if all were numbers."""
        return self.model_.plan.chosen
