"""Ranking: the weights of log popularity and log lift in the score."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from considerate.inference.parts.base import Part
from considerate.settings import AUTO, AUTO_TOP, OrUnset, OrWord, setting, settings_group

# The weights of log pi and of log lift, by `consideration`; docs/quality.md has the measurements behind them.
WEIGHTS = {"walk": (0.3, 1.2), "popularity": (0.5, 0.0)}


@settings_group
class RankingSettings:
    """The weights of the score."""

    popularity: OrUnset[OrWord[float]] = setting(
        None,
        "the weight of log popularity in the score, unless a recommendation has its own. auto fits it, and lift, to "
        "the whole ranking of likes held out, auto-top to its first 20. 0.5 if not given, 0.3 with the walk",
        "0.3 is near the best on MovieLens-1M, anime and goodbooks",
        low=-1_000_000,
        high=1_000_000,
        words=(AUTO, AUTO_TOP),
        paper=0.5,
        place=14,
        resolve=lambda given: WEIGHTS[given.consideration][0],
    )
    lift: OrUnset[OrWord[float]] = setting(
        None,
        "the weight of log lift in the score: how much more likely than by popularity the user is to consider an "
        "item. If not given it is fitted where popularity is, and else 1.2 with the walk; without the walk it is 0",
        "1.2 is near the best on MovieLens-1M, anime and goodbooks",
        low=-1_000_000,
        high=1_000_000,
        words=(AUTO, AUTO_TOP),
        paper=0.0,
        place=15,
        resolve=lambda given: WEIGHTS[given.consideration][1],
        idle=lambda plan, given: given is None,
    )


class RankingPart(Part):
    """Part: the score, mean logit + popularity * log pi + lift * log(w / p)."""

    settings = RankingSettings

    def contradictions(self, given: Any) -> Iterator[str]:
        popularity, lift = given.popularity, given.lift
        if isinstance(lift, str) and given.consideration != "walk":
            yield (
                f"lift is {lift!r} and consideration is {given.consideration!r}; lift is of the walk: set "
                "consideration to 'walk', or leave lift out."
            )
        if isinstance(lift, str) and isinstance(popularity, str) and lift != popularity:
            yield (
                f"popularity is {popularity!r} and lift is {lift!r}; they are chosen together: give the same word, or "
                "one of them as a number."
            )
