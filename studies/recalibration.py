"""Recalibration of p(like) by few judged pairs: log loss, AUC and calibration error on other pairs.

    python -m studies.recalibration [--set coat] [--set ml-1m] [--validate] [--data FOLDER]

coat: the likes of what users chose to rate are fitted to, and the judged pairs are of items that were shown at random.
The other sets: a tenth of all ratings, drawn at random, are the judged pairs, liked or not; the likes among the others
are fitted to. Likes of the training are no judged pairs. Of the judged pairs n are drawn, five times, and up to 20,000
of the rest are tested on. For each n, means over the draws: AUC, log loss and calibration error (ECE) of p(like) as the
likes alone give it, by the line, and by `recalibrate`, every pair weighing the same; and the draws in which covariates
were taken. Below each table: the TARGETS, and that no log loss is more than MOST_HARM above the line's.

--validate: the log loss of `fit_covariates` less the line's by its prior variance, on splits and draws of other seeds,
and on a set that the tables do not have. PRIOR_VARIANCE is the largest that is nowhere above MOST_HARM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from considerate import Recommender
from considerate.data import Interactions, read_interactions, read_judged
from considerate.evaluation.calibration import ReliabilityTable, reliability
from considerate.evaluation.recalibration import JudgedPairs, fit_covariates, fit_line, recalibrate
from considerate.evaluation.split import is_among, pair_keys, rows_in
from considerate.model.liking import UNCHANGED, Recalibration, sigmoid
from studies.known import matrix
from studies.options import study_parser

SETS = {"coat": "rating >= 4", "ml-1m": "rating >= 4", "ml-100k": "rating >= 4", "anime-5k-users": "rating >= 8"}
VALIDATION = {"goodbooks-10k-v1": "rating >= 4"}  # of the validation alone
COUNTS = (50, 100, 300, 1000, 5000)
DRAWS, LEAST, MOST = 5, 2_000, 20_000  # draws of judged pairs; pairs to test on
HELD_OUT = 0.1
SPLIT, DRAW = 0x2ECA, 0x2ECB  # streams of random numbers
MOST_HARM = 0.002  # of log loss, in any row of a table
NAMES = ("likes alone", "line", "recalibrate")
VALIDATED = (("ml-100k", 1), ("ml-100k", 2), ("ml-100k", 3), ("ml-1m", 1), ("anime-5k-users", 1), ("coat", 1))
VALIDATED += (("goodbooks-10k-v1", 1),)  # sets and seeds
VARIANCES = (0.01, 0.03, 0.05, 0.1, 0.3)
VALIDATION_DRAWS, FEW = 20, (50, 100, 300)


class Target(NamedTuple):
    """The least AUC after so many judged pairs; the log loss is below the line's, too."""

    pairs: int
    auc: float


TARGETS = {"coat": Target(300, 0.76), "ml-1m": Target(300, 0.733)}


@dataclass(frozen=True)
class Figures:
    """Means over the draws of one number of judged pairs."""

    values: NDArray[np.float64]  # [NAMES, 3]: AUC, log loss, calibration error
    taken: int  # draws in which covariates were taken
    tested: int  # pairs


def judged_pairs(folder: Path, name: str, seed: int) -> JudgedPairs:
    """Judged pairs of a set, by a model that was not fitted to them."""
    files = ("train", "test") if name == "coat" else ("ratings",)
    every = read_interactions(folder / name / f"{files[-1]}.parquet", where="rating is not null")
    shape = len(every.user_ids), len(every.item_ids)
    parts = [rated(folder / name / f"{file}.parquet", (SETS | VALIDATION)[name], every) for file in files]
    keys, liked = parts[-1]
    if name == "coat":
        likes, held = parts[0][0][parts[0][1]], np.ones(len(keys), bool)
    else:
        held = np.random.Generator(np.random.Philox(key=[seed, SPLIT])).random(len(keys)) < HELD_OUT
        likes = keys[liked & ~held]
    model = Recommender(seed=seed).fit(matrix(likes // shape[1], likes % shape[1], shape)).model_
    return JudgedPairs.of(model, keys[held] // shape[1], keys[held] % shape[1], liked[held])


def rated(path: Path, rule: str, every: Interactions) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(key, liked) of every rated pair, each once; a pair that was rated twice is liked if any rating says so."""
    likes, others = read_judged(path, where=rule)
    assert others is not None
    liked, not_liked = (np.unique(pair_keys(*rows_in(every, pairs), len(every.item_ids))) for pairs in (likes, others))
    keys = np.union1d(liked, not_liked)
    return keys, is_among(keys, liked)


def draws(judged: JudgedPairs, count: int, seed: int, number: int) -> Iterator[tuple[JudgedPairs, JudgedPairs]]:
    """(judged pairs, pairs to test on), a number of times."""
    for draw in range(number):
        order = np.random.Generator(np.random.Philox(key=[seed, DRAW + draw])).permutation(len(judged))
        yield judged.take(order[:count]), judged.take(order[count : count + MOST])


def table(found: Recalibration, judged: JudgedPairs) -> ReliabilityTable:
    return reliability(sigmoid(found.line(judged.x, judged.covariates)), judged.liked, None)


def measure(judged: JudgedPairs, count: int) -> Figures:
    values, taken, tested = [], 0, 0
    for some, others in draws(judged, count, 0, DRAWS):
        chosen = recalibrate(some).recalibration
        tables = [table(found, others) for found in (UNCHANGED, fit_line(some), chosen)]
        values.append([[each.auc, each.log_loss, each.calibration_error] for each in tables])
        taken, tested = taken + bool(chosen.covariates), len(others)
    return Figures(np.mean(values, axis=0), taken, tested)


def targets(name: str, found: dict[int, Figures]) -> list[str]:
    """Sentences: each target, and if it is met."""
    lines = []
    for pairs, auc in (TARGETS[name],) if name in TARGETS else ():
        _, line, best = found[pairs].values
        lines.append(f"{pairs} pairs: AUC {best[0]:.4f}, target {auc}: {_met(best[0] >= auc)}")
        lines.append(
            f"{pairs} pairs: log loss {best[1]:.4f}, below the line's {line[1]:.4f}: {_met(best[1] < line[1])}"
        )
    harm = max(float(figures.values[2, 1] - figures.values[1, 1]) for figures in found.values())
    worst = f"log loss less the line's, at most: {harm:+.4f}, target {MOST_HARM}"
    return [*lines, f"{worst}: {_met(harm <= MOST_HARM)}"]


def _met(met: bool) -> str:
    return "met" if met else "not met"


def report(judged: JudgedPairs, name: str) -> None:
    print(
        f"\n{name}: {len(judged):,} judged pairs, {judged.liked.mean():.1%} liked; {judged.training} were trained on\n"
    )
    cells = " | ".join(f"{name}: AUC | log loss | ECE" for name in NAMES)
    print(f"| pairs | tested | {cells} | covariates taken |")
    print("|" + "---|" * 12, flush=True)
    found = {}
    for count in COUNTS:
        if len(judged) - count >= LEAST:
            figures = found[count] = measure(judged, count)
            row = " | ".join(f"{value:.4f}" for value in figures.values.ravel())
            print(f"| {count:,} | {figures.tested:,} | {row} | {figures.taken} of {DRAWS} |", flush=True)
    print("\n" + "\n".join(f"- {line}" for line in targets(name, found)), flush=True)


def validate(folder: Path) -> None:
    print("| set | pairs | line: log loss |" + "".join(f" {variance:g} |" for variance in VARIANCES))
    print("|" + "---|" * (3 + len(VARIANCES)))
    for name, seed in VALIDATED:
        judged = judged_pairs(folder, name, seed)
        for count in FEW:
            losses = [
                [
                    table(fit, others).log_loss
                    for fit in (fit_line(some), *(fit_covariates(some, variance=v) for v in VARIANCES))
                ]
                for some, others in draws(judged, count, seed, VALIDATION_DRAWS)
            ]
            line, *others = np.mean(losses, axis=0)
            cells = "".join(f" {loss - line:+.4f} |" for loss in others)
            print(f"| {name}, seed {seed} | {count} | {line:.4f} |{cells}", flush=True)


def main() -> None:
    parser = study_parser(__doc__, SETS)
    parser.add_argument("--validate", action="store_true", help="compare prior variances on validation draws")
    options = parser.parse_args()
    if options.validate:
        validate(options.data)
        return
    for name in options.set or SETS:
        report(judged_pairs(options.data, name, 0), name)


if __name__ == "__main__":
    main()
