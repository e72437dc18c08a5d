"""90 % intervals of p(like) held against known logits, and the targets that they should meet."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate import Recommender
from considerate.evaluation.split import is_among, pair_keys
from considerate.model.liking import INTERVALS, POSTERIOR, STRUCTURAL, sigmoid
from considerate.simulation.simulate import ModelSample

CONSIDERED, NEVER, BEST = "considered", "never considered", "ten best"
KINDS = (CONSIDERED, NEVER, BEST)  # of pairs
LEVEL, TOO_WIDE = 0.90, 0.97
LEAST_COVERAGE = {CONSIDERED: 0.85, NEVER: 0.78, BEST: 0.78}
MOST_BIAS = 0.15
SHIPPED = "the defaults"

Floats = NDArray[np.float64]
Pairs = tuple[NDArray[Any], NDArray[Any]]  # users, items


@dataclass(frozen=True)
class Held:
    """One kind of pairs against the truth; `coverage`, `score` and `width` by kind of interval."""

    bias: float  # mean of the logit less the true logit
    coverage: dict[str, float]
    score: dict[str, float]  # mean interval score (Winkler), on the scale of p
    width: dict[str, float]


@dataclass(frozen=True)
class Row:
    """Means over the seeds of one case and setting."""

    case: str
    setting: str
    pairs: dict[str, Held]  # by kind of pairs


def interval_score(low: Floats, high: Floats, truth: Floats, level: float = LEVEL) -> float:
    """Mean of the width, plus 2 / (1 - level) times the distance by which the truth is missed (Winkler, 1972).

    Lower is better; the quantiles of the truth's distribution have the lowest.
    """
    missed = np.maximum(low - truth, 0.0) + np.maximum(truth - high, 0.0)
    return float(np.mean(high - low + 2.0 / (1.0 - level) * missed))


def hold(fitted: Recommender, sample: ModelSample, users: NDArray[Any], items: NDArray[Any]) -> Held:
    """The intervals of some pairs, by rows, against sigma(a) of the truth."""
    logit = sample.true_logit(users, items)
    truth, mean = sigmoid(logit), fitted.predict_logit(users, items, by="row")[0]
    ends = {kind: fitted.predict_interval(users, items, interval=kind, by="row") for kind in INTERVALS}
    return Held(
        float(np.mean(mean - logit)),
        {kind: float(np.mean((low <= truth) & (truth <= high))) for kind, (low, high) in ends.items()},
        {kind: interval_score(low, high, truth) for kind, (low, high) in ends.items()},
        {kind: float(np.mean(high - low)) for kind, (low, high) in ends.items()},
    )


def never_considered(sample: ModelSample, seed: int) -> Pairs:
    """Pairs drawn evenly from those that are not in the true H, fewer than H has."""
    random = np.random.default_rng([seed, 21])
    drawn = random.choice(sample.user_count * sample.item_count, len(sample.hidden_users))
    hidden = pair_keys(sample.hidden_users, sample.hidden_items, sample.item_count)
    keys = np.unique(drawn)
    keys = keys[~is_among(keys, np.sort(hidden))]
    return keys // sample.item_count, keys % sample.item_count


def ten_best(fitted: Recommender, sample: ModelSample) -> Pairs:
    """The ten items of highest p(like) of each user, of those that the user does not like."""
    rows = np.unique(sample.users).astype(np.int64)
    items, _ = fitted.recommend(rows, N=10, popularity=0.0, lift=0.0, by="row")
    users = np.repeat(rows, items.shape[1])
    return users[items.ravel() >= 0], items[items >= 0]


def measure(fitted: Recommender, sample: ModelSample, seed: int) -> dict[str, Held]:
    """The intervals of all kinds of pairs."""
    kinds: dict[str, Pairs] = {
        CONSIDERED: (sample.hidden_users.astype(np.int64), sample.hidden_items),
        NEVER: never_considered(sample, seed),
        BEST: ten_best(fitted, sample),
    }
    return {kind: hold(fitted, sample, *pairs) for kind, pairs in kinds.items()}


def mean_of(seeds: list[dict[str, Held]]) -> dict[str, Held]:
    """Means over the seeds."""

    def over(kind: str, name: str) -> dict[str, float]:
        return {one: float(np.mean([getattr(found[kind], name)[one] for found in seeds])) for one in INTERVALS}

    return {
        kind: Held(
            float(np.mean([found[kind].bias for found in seeds])),
            over(kind, "coverage"),
            over(kind, "score"),
            over(kind, "width"),
        )
        for kind in KINDS
    }


def print_rows(rows: Iterable[Row]) -> None:
    """A table: bias and coverage by kind of pairs, and the interval score of considered pairs."""
    print("Of each kind of pairs: bias of the logit; coverage of the 90 % interval, in brackets the posterior's.")
    print("Score: mean interval score of considered pairs, in brackets the posterior's; lower is better.\n")
    print("| case | setting | " + " | ".join(KINDS) + " | score | width | |")
    print("|---|---|" + "---|" * (len(KINDS) + 3))
    for row in rows:
        cells = [f"{held.bias:+.2f}; {_both(held.coverage)}" for held in (row.pairs[kind] for kind in KINDS)]
        held = row.pairs[CONSIDERED]
        wide = [kind for kind in KINDS if row.pairs[kind].coverage[STRUCTURAL] > TOO_WIDE]
        note = "too wide: " + ", ".join(wide) if wide else ""
        cells += [_both(held.score), _both(held.width), note]
        print(f"| {row.case} | {row.setting} | " + " | ".join(cells) + " |")


def _both(values: dict[str, float]) -> str:
    return f"{values[STRUCTURAL]:.3f} ({values[POSTERIOR]:.3f})"


def targets(rows: Iterable[Row]) -> list[tuple[str, list[str]]]:
    """(target, where it is not met) for each target, of the rows at the defaults."""
    rows = [row for row in rows if row.setting == SHIPPED]
    answer = []
    for kind, least in LEAST_COVERAGE.items():
        found = {row.case: row.pairs[kind].coverage[STRUCTURAL] for row in rows}
        low = [f"{case} {value:.3f}" for case, value in found.items() if value < least]
        answer.append((f"coverage of {kind} pairs is at least {least:g}", low))
    scores = {row.case: row.pairs[CONSIDERED].score for row in rows}
    worse = [f"{case} {_both(score)}" for case, score in scores.items() if score[STRUCTURAL] >= score[POSTERIOR]]
    answer.append(("interval score below the posterior's", worse))
    biases = {row.case: row.pairs[CONSIDERED].bias for row in rows if row.case.startswith("most considered")}
    off = [f"{case} {bias:+.3f}" for case, bias in biases.items() if abs(bias) >= MOST_BIAS]
    return [*answer, (f"bias below {MOST_BIAS:g} where most is considered", off)]


def print_targets(rows: Iterable[Row]) -> None:
    print("\nTargets, at the defaults:\n")
    for target, missed in targets(rows):
        print(f"- {'met' if not missed else 'NOT met'}: {target}" + ("; " + "; ".join(missed) if missed else ""))


def write_rows(rows: Iterable[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=1))


def read_rows(path: Path) -> list[Row]:
    rows = json.loads(path.read_text())
    return [
        Row(row["case"], row["setting"], {kind: Held(**held) for kind, held in row["pairs"].items()}) for row in rows
    ]
