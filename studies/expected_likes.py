"""Does the model expect as many likes as there are? By degree of items and of users, over 36 fits.

    python -m studies.expected_likes [--set ml-100k] [--only "walk, sampled, c 5"] [--short]
        [--why] [--sweeps 60] [--user-bias] [--threads 1] [--data FOLDER]

Three data sets, c of 1, 5 and 10, H by the walk or by popularity, drawn or in closed form; all else is the default. A
ratio of expected over observed likes should be between .9 and 1.15 in every bin; others are marked * and counted. All
pairs are added up. --short has the first data set, at c = 5. Where the closed form ranks by the walk its H is still by
popularity, so its rows differ in nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate import Recommender
from considerate.evaluation.expected_likes import ExpectedLikes, ExpectedLikesRow, UsersBlock, expected_likes
from considerate.model.considered import logit_offset
from considerate.model.liking import sigmoid
from studies.options import study_parser
from studies.quality import SETS as LARGER

SETS = {"ml-100k": "rating >= 4", **{name: LARGER[name] for name in ("ml-1m", "anime-5k-users")}}
LOW, HIGH = 0.9, 1.15
NODES, SHARES = np.polynomial.hermite_e.hermegauss(7)
Floats = NDArray[np.float64]


def settings() -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and settings of the fits to one data set."""
    for c, consideration, hidden in product((1.0, 5.0, 10.0), ("walk", "popularity"), ("sampled", "expected")):
        name = f"{consideration}, {hidden}, c {c:g}"
        yield name, {"negatives": c, "consideration": consideration, "hidden": hidden}


FITS = dict(settings())


def outside(row: ExpectedLikesRow) -> bool:
    return not LOW <= row.ratio <= HIGH


def cells(found: ExpectedLikes, side: str) -> str:
    rows = (row for row in found.rows if row.side == side)
    return ", ".join(f"{row.degree} {row.ratio:.2f}{'*' if outside(row) else ''}" for row in rows)


def on_h(block: UsersBlock) -> Floats:
    """Chances of a like on H: sigma(mean logit + offset) times the chance to be on H, which is 1 of a like."""
    offset = logit_offset(block.model, block.liked, block.limits)[:, None]
    drawn = block.weights / np.exp(offset)
    drawn[block.liked.edge_rows, block.liked.indices] = 1.0
    return np.asarray(drawn * sigmoid(block.mean + offset))


def averaged(block: UsersBlock) -> Floats:
    """p(g = 1) averaged over the posterior of the logit, as the fit has it, by quadrature."""
    with np.errstate(divide="ignore"):
        centre = block.mean + np.log(block.weights)
    deviation = np.sqrt(block.model.columns.variances(block.side, block.rows).astype(np.float64))
    parts = (share * sigmoid(centre + node * deviation) for node, share in zip(NODES, SHARES / SHARES.sum()))
    return np.asarray(sum(parts))


WHY = {"on H": on_h, "averaged": averaged}


def main() -> None:
    parser = study_parser(__doc__, SETS, FITS)
    parser.add_argument("--short", action="store_true", help="the first data set, at c = 5")
    parser.add_argument("--why", action="store_true", help="two more rows for each fit")
    parser.add_argument("--sweeps", type=int, help="so many sweeps, however little the bound moves")
    parser.add_argument("--user-bias", action="store_true", help="let users have biases")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    beside: dict[str, Any] = {"threads": options.threads, "user_bias": options.user_bias}
    if options.sweeps is not None:
        beside |= {"sweeps": options.sweeps, "tolerance": 0.0}
    names = options.set or list(SETS)[: 1 if options.short else None]
    fits = options.only or [name for name in FITS if not options.short or name.endswith("c 5")]
    bins = off = 0
    for name in names:
        print(f"\n{name}, {SETS[name]}\n\n| fit | items | users | sweeps | s |\n|---|---|---|---|---|")
        for fit in fits:
            begun = time.perf_counter()
            model = Recommender(**beside, **FITS[fit])
            model.fit(options.data / name / "ratings.parquet", where=SETS[name])
            found, seconds = model.expected_likes(), time.perf_counter() - begun
            text = f"{cells(found, 'items')} | {cells(found, 'users')}"
            print(f"| {fit} | {text} | {model.n_iter_} | {seconds:.0f} |", flush=True)
            for kind, chances in WHY.items() if options.why else ():
                other = expected_likes(model.model_, threads=options.threads, chances=chances)
                print(f"| ... {kind} | {cells(other, 'items')} | {cells(other, 'users')} | | |", flush=True)
            bins, off = bins + len(found.rows), off + sum(map(outside, found.rows))
    print(f"\n{off} of {bins} bins are outside {LOW:g} to {HIGH:g}")


if __name__ == "__main__":
    main()
