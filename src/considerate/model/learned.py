"""What a fitted recommender has learned, under the names that scikit-learn's habits give it."""

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
    """Attributes of a fitted model; an error that says what to do where there is none."""

    @property
    def model_(self) -> Model:
        """The fitted model, or an error that says what to do."""
        model = self.__dict__.get("_model")
        if model is None:
            raise NotFittedError("This recommender is not fitted yet; call fit(user_items), or Recommender.load(path).")
        return model  # type: ignore[no-any-return]

    @property
    def posterior_(self) -> Posterior:
        """The posterior: means and variances of user and item vectors and biases, and of the precisions."""
        return self.model_.posterior

    @property
    def popularity_(self) -> NDArray[np.float64]:
        """pi, the histogram that unliked edges are drawn from."""
        return self.model_.popularity

    @property
    def precisions_(self) -> dict[str, float]:
        """E[tau] by name. Only the product of the vectors' two is identified."""
        return self.model_.precisions.means()

    @property
    def bound_(self) -> NDArray[np.float64]:
        """L_xi: [0] of the start, [t] after t sweeps."""
        return np.array([math.fsum(terms.values()) for terms in self.model_.bounds])

    @property
    def n_iter_(self) -> int:
        """Sweeps done."""
        return max(0, len(self.model_.bounds) - 1)

    @property
    def converged_(self) -> bool:
        """Whether the bound settled before `sweeps` ran out."""
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
        """The ids of items that nobody has liked yet and that are known by their features alone."""
        return self.model_.item_names().at(self.model_.cold_items)

    def feature_importance(self, side: Literal["item", "user"] = "item") -> list[Importance]:
        """What each feature of items, or of users, does to their vectors: (name, rows, effect, deviations, bias), the
        one that moves them most first."""
        learned = self.model_.item_features if side == "item" else self.model_.user_features
        return [] if learned is None else learned.importance()

    @property
    def recalibration_(self) -> Recalibration:
        """The slope and shift on the logit of p(like); 1 and 0 where none was fitted."""
        return self.model_.recalibration

    @property
    def reliability_(self) -> LikeReliability | None:
        """p(like) against what was seen of the pairs that it was recalibrated on, by other users' recalibration; None
        where there was none, or too few pairs."""
        return self.model_.reliability

    @property
    def chosen_(self) -> Chosen | None:
        """How the settings that were "auto" were chosen: settings, criteria, trials; None where all were numbers."""
        return self.model_.plan.chosen
