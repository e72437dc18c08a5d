"""Ways to draw the hidden graph H, by the name that the setting `hidden` has for each.

A way is a subclass of `Sampled` with a method `draw` of its own, the number of edges that it expects, and its memory.
"""

from __future__ import annotations

from considerate.inference.hidden.half_edges import HalfEdges
from considerate.inference.hidden.sampled import Sampled

DRAWERS: dict[str, type[Sampled]] = {"sampled": Sampled, "half-edges": HalfEdges}


def drawer_of(hidden: str) -> type[Sampled]:
    """The class that draws H in this way; fits in closed form count unliked edges as plain draws do."""
    return DRAWERS.get(hidden, Sampled)
