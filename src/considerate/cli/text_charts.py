"""Small charts made of letters: bars and sparklines."""

from __future__ import annotations

import math
from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉"
_LEVELS = "▁▂▃▄▅▆▇█"


def bar(value: float, largest: float, width: int) -> str:
    """A bar of at most `width` letters; what is not zero shows at least a sliver."""
    if largest <= 0 or value <= 0:
        return ""
    eighths = max(1, round(min(1.0, value / largest) * width * 8))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """The course of some values; where there are more than `width`, evenly chosen ones with the first and last."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return ""
    if len(finite) > width:
        finite = [finite[round(i * (len(finite) - 1) / (width - 1))] for i in range(width)]
    low, span = min(finite), max(finite) - min(finite)
    return "".join(_LEVELS[round((value - low) / span * 7) if span > 0 else 0] for value in finite)
