"""Settings of a fit, composed from its parts: as a user gives them, and as one fit has them.

`Parameters` are settings as a user gives them: some may be None or a word. `plan()` checks and resolves them to a
`FitPlan`, the same settings frozen, which the driver, inference and its workers read.
"""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import Any

from considerate.errors import UsageError
from considerate.inference.parts import PARTS
from considerate.inference.parts.algorithm import AlgorithmSettings
from considerate.inference.parts.closed_form import ClosedFormSettings
from considerate.inference.parts.draws import DrawSettings
from considerate.inference.parts.full import FullSettings
from considerate.inference.parts.known import KnownSettings
from considerate.inference.parts.popularity import PopularitySettings
from considerate.inference.parts.ranking import RankingSettings
from considerate.inference.parts.tilt import TiltSettings
from considerate.inference.parts.walk import WalkSettings
from considerate.settings import AUTO, AUTO_TOP, check_setting, composed

DRIFT = 1e-3  # variance that a coordinate of a vector, or a bias, gains a day, in an update


@composed(part.settings for part in PARTS if part.settings)
class Parameters(
    AlgorithmSettings,
    DrawSettings,
    KnownSettings,
    PopularitySettings,
    WalkSettings,
    TiltSettings,
    ClosedFormSettings,
    RankingSettings,
    FullSettings,
):
    """All settings of a fit; `Recommender` inherits these fields."""

    def check(self) -> None:
        """Raise UsageError for the first setting that is out of range or contradicts another."""
        for parameter in fields(self):
            check_setting(parameter, getattr(self, parameter.name))
        for part in PARTS:
            for sentence in part.contradictions(self):
                raise UsageError(sentence)

    def plan(self) -> FitPlan:
        """Check the settings and resolve every default."""
        self.check()
        words: dict[str, str] = {}
        values: dict[str, Any] = {}
        for name, declared in SETTINGS.items():
            value: Any = getattr(self, name)
            if name in TUNED and isinstance(value, str):
                words[name], value = value, declared.default  # until it is chosen
            if value is None and declared.metadata["resolve"] is not None:
                value = declared.metadata["resolve"](self)
            if declared.metadata["high"] is not None and value is not None:
                value = int(value) if declared.metadata["integer"] else float(value)
            values[name] = value
        both = {"lift"} if "popularity" in words and self.lift is None and self.consideration == "walk" else set()
        criterion = AUTO_TOP if AUTO_TOP in words.values() else AUTO
        return FitPlan(**values, tuned=frozenset(words) | both, criterion=criterion)


SETTINGS = {declared.name: declared for declared in fields(Parameters)}
TUNED = tuple(name for name, declared in SETTINGS.items() if AUTO in declared.metadata["words"])


@dataclass(frozen=True)
class Chosen:
    """Settings that were words, with the values that held-out likes chose, and the trials behind the choice."""

    settings: dict[str, float]
    criteria: dict[str, str]  # the metric that each setting made largest
    likes: int  # number of likes held out and ranked
    latest: bool  # True if they were each user's latest like; else a random one
    trials: tuple[dict[str, float], ...]  # settings, best weights and their score of each short fit

    def told(self) -> str:
        """Sentence with the chosen settings and the reason."""
        if not self.likes:
            return f"too few to choose settings by: {_listed(self.settings)} as by default"
        parts = []
        for criterion in dict.fromkeys(self.criteria.values()):
            those = {name: value for name, value in self.settings.items() if self.criteria[name] == criterion}
            parts.append(f"{_listed(those)} by {criterion}")
        whose = "each user's latest" if self.latest else "one of each user"
        fits = f"{len(self.trials)} short fits" if len(self.trials) > 1 else "a short fit"
        return f"{' and '.join(parts)}, chosen in {fits} on {self.likes:,} likes held out ({whose})"

    @classmethod
    def parse(cls, given: Any) -> Chosen | None:
        """Parse the JSON of a model file. Raise ValueError if it is wrong."""
        if given is None:
            return None
        try:
            chosen = cls(**given | {"trials": tuple(given["trials"])})
            for name, value in chosen.settings.items():
                check_setting(SETTINGS[name], value)
            numbers = [number for each in (chosen.settings, *chosen.trials) for number in each.values()]
            right = (
                {*chosen.settings} <= {*TUNED}
                and all(isinstance(text, str) for text in chosen.criteria.values())
                and {*chosen.criteria} in ({*chosen.settings}, set())
                and all(type(number) in (int, float) and math.isfinite(number) for number in numbers)
                and (type(chosen.likes), type(chosen.latest)) == (int, bool)
                and bool(chosen.criteria) == (chosen.likes > 0)
            )
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError, UsageError):
            right = False
        if not right:
            raise ValueError("the record of the settings that were chosen cannot be read")
        return chosen


def _listed(settings: dict[str, float]) -> str:
    return ", ".join(f"{name} {settings[name]:g}" for name in TUNED if name in settings)


@dataclass(unsafe_hash=True)
class FitPlan(Parameters):
    """Settings of one fit, resolved and frozen, with the values that the fit itself decides. A setting that is not
    chosen yet has the number that it keeps if it cannot be chosen."""

    item_bias: bool = True
    expected_offsets: bool = True  # offsets follow the users' numbers of unliked edges; False: -log c, as before 0.4
    unlinked: float = 0.0  # expected pairs of H without a link, for each link of a graph of vertices; 0: c
    signed: bool | None = None  # True if half of the coordinates of vertices repel; None for users and items
    tuned: frozenset[str] = frozenset()  # names of the settings to choose on held-out likes
    criterion: str = field(default=AUTO, compare=False)  # metric that chooses the ranking's weights
    chosen: Chosen | None = field(default=None, compare=False)  # result of the choice

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self):
            raise FrozenInstanceError(f"a plan is frozen; replace(plan, {name}=...) makes another")
        object.__setattr__(self, name, value)

    @classmethod
    def of_paper(cls, **changes: Any) -> FitPlan:
        """Make a plan of the paper's settings, with some changes and without checks."""
        return cls(**{name: declared.metadata["paper"] for name, declared in SETTINGS.items()} | changes)

    @property
    def offset(self) -> float:
        """Offset of all logits: -log c; for a graph of vertices, -log of the pairs without a link for each link."""
        return -math.log(self.unlinked or self.negatives)

    @property
    def observed(self) -> bool:
        """True if the given considered pairs are all the unliked edges of H."""
        return self.considered_are != "some"

    @property
    def edges_per_like(self) -> float:
        """Edges that a pass visits for each like: the like itself, and c more if H is drawn."""
        return 1.0 if self.hidden == "expected" else 1.0 + self.negatives

    @property
    def is_full(self) -> bool:
        """True if rows are stepped with covariances, a full prior or quadrature."""
        return (self.posterior, self.prior, self.logistic) != ("factorised", "gamma", "bound")

    def keeps_covariance(self, side: str, sweep: int | None = None) -> bool:
        """True if the rows of a side ("users" or "items") have covariances after a sweep, or at the end."""
        opened = sweep is None or sweep > self.opening
        return opened and (self.posterior == "full" or (self.posterior == "full-items" and side == "items"))

    @property
    def opens_closed(self) -> bool:
        """True if the first sweep is in closed form."""
        return self.hidden == "expected" or self.opening > 0
