"""The picture of the README: one posterior is a curve, other recommenders are points.

    considerate study $DATA/ml-1m/ratings.parquet --where "rating >= 4" -o reports/ml-1m
    python -m studies.picture reports/ml-1m/results.json -o docs/images/knob.svg

The curve is what the popularity weight does to a fit of the study's first split, with the weight of lift that was
chosen on validation; a point is another recommender at its best of six settings, over all splits.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from considerate.study.figures.style import BLUE, INK, SOFT, VERMILION

PEERS = {  # name in the results -> where its label stands, in points from the dot
    "ALS": (6, 4),
    "BPR-uniform": (7, -3),
    "BPR-popularity": (-8, 6),
    "EASE": (6, 3),
    "GF-CF": (-40, -2),
    "walk": (-31, -4),
}
MARKED = (0.0, 0.5, 1.0, 1.5)  # weights that are written beside the curve


def draw(results: dict[str, Any], path: Path) -> None:
    """The tail's mean rank against Recall@20."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "considerate", "svg.fonttype": "path", "font.size": 9}):
        figure = Figure(figsize=(6.4, 3.7), layout="constrained")
        ax = figure.subplots()
        knob = results["knobs"][0]
        ax.plot(
            knob["tail_rank"],
            knob["recall"],
            color=BLUE,
            linewidth=2.5,
            zorder=3,
            label="considerate: one fit, any weight",
        )
        for weight in MARKED:
            at = tuple(np.interp(weight, knob["knob"], knob[name]) for name in ("tail_rank", "recall"))
            ax.plot(*at, "o", color=BLUE, markersize=5, zorder=4)
            text, place = (f"{weight:g}", (-3, 7)) if weight else ("popularity weight 0", (-60, -17))
            ax.annotate(text, at, place, textcoords="offset points", color=BLUE, zorder=4)
        found = {row["name"]: row["metrics"] for row in results["comparisons"]}
        for number, (name, offset) in enumerate(PEERS.items()):
            if name in found:
                at = found[name]["S_rank tail"], found[name]["Recall@20"]
                ax.plot(
                    *at, "s", color=VERMILION, markersize=5, label="others: one fit, one point" if number == 0 else None
                )
                side: Any = "right" if offset[0] == -8 else "left"
                ax.annotate(name, at, offset, textcoords="offset points", color=INK, ha=side)
        ax.set_xlabel("rare items: share of the catalogue that a held-out like of under 100 likes is ranked above")
        ax.set_ylabel("all items: Recall@20")
        ax.grid(color="#e6e6e6", linewidth=0.7)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(color=SOFT)
        ax.margins(0.06, 0.09)
        ax.legend(loc="lower left", frameon=False)
        figure.savefig(path, metadata={"Date": None, "Creator": "considerate"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/images/knob.svg"))
    given = parser.parse_args()
    draw(json.loads(given.results.read_text()), given.output)


if __name__ == "__main__":
    main()
