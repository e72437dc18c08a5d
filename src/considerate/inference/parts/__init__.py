"""Parts of a model, each in one module with its settings, its refusals and its place in a fit."""

from __future__ import annotations

import sys
from typing import Any

from considerate.errors import UsageError
from considerate.inference.parts.algorithm import AlgorithmPart
from considerate.inference.parts.base import Part, Where
from considerate.inference.parts.closed_form import ClosedFormPart
from considerate.inference.parts.draws import DrawsPart
from considerate.inference.parts.features import FeaturesPart
from considerate.inference.parts.full import FullPart
from considerate.inference.parts.known import KnownPart
from considerate.inference.parts.popularity import PopularityPart
from considerate.inference.parts.ranking import RankingPart
from considerate.inference.parts.tilt import TiltPart
from considerate.inference.parts.walk import WalkPart

PARTS: list[Part] = [
    AlgorithmPart(),
    DrawsPart(),
    KnownPart(),
    PopularityPart(),
    WalkPart(),
    TiltPart(),
    ClosedFormPart(),
    RankingPart(),
    FullPart(),
    FeaturesPart(),
]


def add(part: Part) -> None:
    """Add a part of your own, before anything else of considerate is imported and the settings are composed."""
    if "considerate.inference.plan" in sys.modules:
        raise RuntimeError("parts are added before considerate.inference.plan is imported.")
    PARTS.append(part)


def refuse(request: Any, where: Where) -> None:
    """Raise UsageError if a part cannot do what the request wants of it there."""
    for part in PARTS:
        for sentence in part.refusals(request, where):
            raise UsageError(sentence)


__all__ = ["PARTS", "Part", "Where", "add", "refuse"]
