"""90 % predictive intervals of the likes of whole items and whole users, among pairs that they judged.

    python -m studies.totals [--set coat] [--draws 400] [--results build/totals.json] [--data FOLDER]

Judged pairs: on Coat the ratings of items that were assigned at random; elsewhere a tenth of each user's likes, held
out, and all ratings below the rule. Liked or not is predicted for all of them together:

    logit = centre + slope (a - E[a]) + delta_m + delta_n + delta_mn,    a from the posterior, deltas from N(0, s)

The posterior is drawn by vectors, so that pairs of one item, or of one user, err together; so do the deltas. The count
of likes of each item and of each user with TEN pairs or more then has 5 % and 95 % quantiles. "held" is the share of
them whose actual count is not outside. Counts are whole, so a right model holds more than 90 %; "exact" is the share
whose randomised rank is between 5 % and 95 %, which is 90 % for a right model. "excess" is the mean of
(count less its mean)^2 / variance, which is 1 for a right model.

Only the level, one shift of all logits, is fitted: to the judged pairs of the other users, four fifths of them. After
`recalibrate` with n pairs of other users, slope, covariates and variances are the recalibration's, and the level is
fitted to the same n pairs.

Last, the variances that each set chooses: those at which the excess is 1, which takes the coins as they are. Each set
is then predicted with the mean of what the others choose, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate import Recommender
from considerate.evaluation.recalibration import Ends, JudgedPairs, Recalibrated, recalibrate
from considerate.model.liking import POSTERIOR, STRUCTURAL, STRUCTURE, StructuralVariance, like_interval, logit, sigmoid
from considerate.model.model import Model
from considerate.model.predict import logit_moments
from considerate.study.peers import training_matrix
from studies.considered import load
from studies.intervals import LEVEL
from studies.known import coat
from studies.options import study_parser

SETS = {"anime-5k-users": "rating >= 8", "coat": "rating >= 4", "ml-1m": "rating >= 4", "ml-100k": "rating >= 4"}
CHOSE = ("ml-1m", "ml-100k")  # sets that the constants were chosen on
TEN = 10  # pairs that an item or a user has at least
FOLDS = 5  # of users
PAIRS = (300, 1000, 4000)  # that a recalibration reads
LEAST_ITEMS, LEAST_USERS = 0.85, 0.80  # targets, of sets that did not choose the constants
OWN, OTHERS = "its own variances", "the others' variances"
NODES, SHARES = np.polynomial.hermite_e.hermegauss(12)
SHARES = SHARES / SHARES.sum()
STEPS = 30  # of the level, at most
ROUNDS = 12  # of the variances that a set chooses
CHUNK = 1 << 16  # pairs whose vectors are gathered together
STREAM, CHOICE = 31, 32  # of the draws, and of the pairs that a recalibration reads

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Judged:
    """Judged pairs of one set, the posterior of their logits, and the fold of each pair's user."""

    model: Model
    pairs: JudgedPairs
    mean: Floats
    variance: Floats
    fold: Rows

    @classmethod
    def of(cls, likes: Any, users: Rows, items: Rows, liked: NDArray[np.bool_], seed: int = 0) -> Judged:
        """Pairs under a fit to the likes with the defaults."""
        model = Recommender(seed=seed, threads=1).fit(likes).model_
        pairs = JudgedPairs.of(model, users, items, liked)
        (people, m), (things, n) = ends_of(pairs)
        mean, variance = (moment.astype(np.float64) for moment in logit_moments(people, things, m, n))
        fold = np.random.default_rng([seed, CHOICE]).permutation(model.user_count) % FOLDS
        return cls(model, pairs, mean, pairs.scale * variance, fold[pairs.users])

    def pairs_of(self, which: NDArray[Any]) -> JudgedPairs:
        """Some of the pairs, with their posterior."""
        pairs = self.pairs
        return JudgedPairs.of(self.model, pairs.users[which], pairs.items[which], pairs.liked[which])

    def take(self, which: NDArray[Any]) -> Judged:
        """Some of the pairs."""
        return Judged(self.model, self.pairs_of(which), self.mean[which], self.variance[which], self.fold[which])


@dataclass(frozen=True)
class Predictive:
    """A joint distribution of the logits of all pairs; an entry for each."""

    centre: Floats
    slope: Floats | float
    user: Floats | float  # variances
    item: Floats | float
    pair: Floats | float = 0.0

    def variance(self, posterior: Floats) -> Floats:
        return np.asarray(self.slope**2 * posterior + self.user + self.item + self.pair)


@dataclass(frozen=True)
class Totals:
    """Counts of items, or of users, against their predictive distribution."""

    groups: int
    held: float  # share that is between the quantiles
    exact: float  # share whose randomised rank is between 5 % and 95 %
    excess: float  # mean of (count less its mean)^2 / variance; 1: as the model says

    def is_below(self, before: Totals) -> bool:
        """True where fewer are held than before and than LEVEL, by more than two standard errors."""
        least = min(LEVEL, before.held)
        return self.held < least - 2.0 * np.sqrt(least * (1.0 - least) / self.groups)


Both = dict[str, Totals]  # of "item" and of "user"


def ends_of(pairs: JudgedPairs) -> tuple[Ends, Ends]:
    assert pairs.ends is not None
    return pairs.ends


def judged_pairs(folder: Path, name: str, seed: int = 0) -> tuple[Any, Rows, Rows, NDArray[np.bool_]]:
    """(likes of the fit, users, items, liked or not)."""
    if name == "coat":
        data = coat(folder, seed)
        return data.likes, data.users, data.items, data.liked
    held, users, items = load(folder, name, seed, SETS[name])
    liked = np.repeat([True, False], [len(held.users), len(users)])
    return training_matrix(held.train), np.append(held.users, users), np.append(held.items, items), liked


# --- Predictive distributions ---


def level(centre: Floats, variance: Floats, liked: NDArray[np.bool_]) -> float:
    """The shift at which as many likes are expected as there are.

    sigma averaged over the noise is flatter than sigma, so steps by the difference of the logits never overshoot.
    """
    shift, noise, aim = 0.0, np.sqrt(variance), logit(np.mean(liked))
    for _ in range(STEPS):
        chances = (weight * sigmoid(centre + (shift + node * noise)).mean() for node, weight in zip(NODES, SHARES))
        step = float(aim - logit(sum(chances)))
        shift += step
        if abs(step) < 1e-5:
            break
    return shift


def with_level(judged: Judged, predictive: Predictive) -> Predictive:
    """Logits with the level of each fold fitted to other users' pairs."""
    variance, shift = predictive.variance(judged.variance), np.zeros(len(judged.fold))
    for number in range(FOLDS):
        own, others = judged.fold == number, judged.fold != number
        shift[own] = level(predictive.centre[others], variance[others], judged.pairs.liked[others])
    return replace(predictive, centre=predictive.centre + shift)


def structural(judged: Judged, variances: StructuralVariance) -> Predictive:
    """As the structural interval has it: about the logit of p(like)."""
    return with_level(judged, Predictive(judged.pairs.x, 1.0, variances.user, variances.item, variances.pair))


def posterior(judged: Judged) -> Predictive:
    """As the posterior's interval has it: about the mean of the logit."""
    return with_level(judged, Predictive(judged.mean, 1.0, 0.0, 0.0))


def recalibrated(judged: Judged, count: int, seed: int = 0) -> Predictive | None:
    """After `recalibrate` with so many pairs of other users; None where there are not as many."""
    pairs, size = judged.pairs, len(judged.fold)
    answer = Predictive(np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size))
    for number in range(FOLDS):
        own, others = judged.fold == number, np.flatnonzero(judged.fold != number)
        if len(others) < count:
            return None
        some = np.random.default_rng([seed, CHOICE, number]).choice(others, count, replace=False)
        one = as_recalibrated(pairs, recalibrate(judged.pairs_of(some), seed=seed))
        shift = level(one.centre[some], one.variance(judged.variance)[some], pairs.liked[some])
        answer.centre[own] = one.centre[own] + shift
        for name in ("slope", "user", "item", "pair"):
            getattr(answer, name)[own] = getattr(one, name)
    return answer


def as_recalibrated(pairs: JudgedPairs, found: Recalibrated) -> Predictive:
    """All pairs as a recalibration has them."""
    line, variances = found.recalibration, found.structure
    centre = line.line(pairs.x, pairs.covariates)
    return Predictive(centre, line.slope, variances.user, variances.item, variances.pair)


# --- Counts ---


def deviations(judged: Judged, draws: int, seed: int) -> Iterator[NDArray[np.float32]]:
    """a - E[a] of all pairs, of draws of the posterior's vectors and biases."""
    (people, m), (things, n) = ends_of(judged.pairs)
    scale = np.float32(np.sqrt(judged.pairs.scale))
    for draw in range(draws):
        random = np.random.default_rng([seed, STREAM, draw])
        vectors, biases = [], np.zeros(len(m), np.float32)
        for side, rows in ((people, m), (things, n)):
            noise = random.standard_normal(side.mean.shape, np.float32)
            vectors.append(side.mean + np.sqrt(side.variance) * noise)
            mean, variance = side.biases
            biases += (mean + np.sqrt(variance) * random.standard_normal(len(side), np.float32))[rows]
        for first in range(0, len(m), CHUNK):
            part = slice(first, first + CHUNK)
            biases[part] += np.einsum("ek,ek->e", vectors[0][m[part]], vectors[1][n[part]])
        yield scale * (biases - judged.mean.astype(np.float32))


class Groups:
    """Items, or users, with at least TEN judged pairs."""

    def __init__(self, rows: Rows, liked: NDArray[np.bool_]) -> None:
        self.members, self.of = np.unique(rows, return_inverse=True)
        self.enough = np.bincount(self.of) >= TEN
        self.actual = self.count(liked)

    def count(self, liked: NDArray[np.bool_]) -> Rows:
        return np.bincount(self.of, liked, len(self.members)).astype(np.int64)[self.enough]

    def against(self, counts: Rows, seed: int) -> Totals:
        """The actual counts against the predicted [draws, groups]."""
        low, high = np.quantile(counts, [0.05, 0.95], axis=0, method="inverted_cdf")
        held = (low <= self.actual) & (self.actual <= high)
        below, equal = (counts < self.actual).mean(axis=0), (counts == self.actual).mean(axis=0)
        rank = below + equal * np.random.default_rng([seed, CHOICE]).random(len(below))
        off = (self.actual - counts.mean(axis=0)) ** 2 / np.maximum(counts.var(axis=0), 1e-3)
        exact = (rank >= 0.05) & (rank <= 0.95)
        return Totals(len(held), float(held.mean()), float(exact.mean()), float(off.mean()))


def totals(judged: Judged, predictives: Mapping[str, Predictive], draws: int, seed: int = 0) -> dict[str, Both]:
    """Counts of items and users by each predictive distribution; all of them see the same noise."""
    (_, m), (_, n) = ends_of(judged.pairs)
    groups = {"item": Groups(n, judged.pairs.liked), "user": Groups(m, judged.pairs.liked)}
    counts: dict[str, dict[str, list[Rows]]] = {name: {side: [] for side in groups} for name in predictives}
    for draw, deviation in enumerate(deviations(judged, draws, seed)):
        random = np.random.default_rng([seed, STREAM, draw, 1])
        user, item = (random.standard_normal(int(rows.max()) + 1)[rows] for rows in (m, n))
        pair, coin = random.standard_normal(len(m)), random.logistic(size=len(m))
        for name, one in predictives.items():
            logit = one.centre + one.slope * deviation + np.sqrt(one.user) * user + np.sqrt(one.item) * item
            liked = logit + np.sqrt(one.pair) * pair + coin > 0.0
            for side, group in groups.items():
                counts[name][side].append(group.count(liked))
    return {
        name: {side: group.against(np.array(counts[name][side]), seed) for side, group in groups.items()}
        for name in predictives
    }


# --- Variances that a set chooses ---


def chosen(judged: Judged, draws: int, seed: int = 0) -> StructuralVariance:
    """The variances at which counts vary as the model says, of users and of items."""
    at = STRUCTURE
    for _ in range(ROUNDS):
        found = totals(judged, {"": structural(judged, at)}, draws, seed)[""]
        user, item = (float(np.clip(found[side].excess, 0.25, 4.0)) for side in ("user", "item"))
        at = StructuralVariance(max(1e-3, at.user * user), max(1e-3, at.item * item))
    return at


def mean_of(variances: list[StructuralVariance]) -> StructuralVariance:
    return StructuralVariance(
        float(np.mean([one.user for one in variances])), float(np.mean([one.item for one in variances]))
    )


# --- The study ---


@dataclass(frozen=True)
class Line:
    """One predictive distribution on one set."""

    set: str
    name: str
    pairs: int
    item: Totals
    user: Totals
    user_variance: float
    item_variance: float


def lines(name: str, judged: Judged, predictives: Mapping[str, Predictive], draws: int) -> list[Line]:
    found = totals(judged, predictives, draws)
    return [
        Line(
            name, label, len(judged.fold), **found[label], user_variance=_mean(one.user), item_variance=_mean(one.item)
        )
        for label, one in predictives.items()
    ]


def _mean(values: Floats | float) -> float:
    return float(np.mean(values))


def study(folder: Path, names: list[str], draws: int) -> list[Line]:
    """All lines of the sets, with what each chooses where there is more than one."""
    answer: list[Line] = []
    sets = {name: Judged.of(*judged_pairs(folder, name)) for name in names}
    for name, judged in sets.items():
        one: dict[str, Predictive] = {POSTERIOR: posterior(judged), STRUCTURAL: structural(judged, STRUCTURE)}
        for count in PAIRS:
            found = recalibrated(judged, count)
            if found is not None:
                one[f"recalibrated by {count:,} pairs"] = found
        answer += lines(name, judged, one, draws)
        print(f"{name}: {len(judged.fold):,} pairs, {judged.pairs.liked.mean():.3f} liked; width of p", end=" ")
        print(", ".join(f"{kind} {width(judged, kind):.2f}" for kind in (POSTERIOR, STRUCTURAL)), flush=True)
    choices = {name: chosen(judged, draws // 5) for name, judged in sets.items()}
    for name, judged in sets.items():
        one = {OWN: structural(judged, choices[name])}
        if others := [choice for other, choice in choices.items() if other != name]:
            one[OTHERS] = structural(judged, mean_of(others))
        answer += lines(name, judged, one, draws)
    return answer


def width(judged: Judged, kind: str) -> float:
    """Mean width of the interval of p(like), as it is shipped."""
    structure = None if kind == POSTERIOR else STRUCTURE
    low, high = like_interval(judged.mean, judged.variance, structure=structure)
    return float(np.mean(high - low))


def print_lines(rows: list[Line]) -> None:
    print("\n| set | intervals | s_u, s_i | items | held | exact | excess | users | held | exact | excess |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: list(SETS).index(row.set)):
        cells = [
            f"{one.groups:,} | {one.held:.3f} | {one.exact:.3f} | {one.excess:.2f}" for one in (row.item, row.user)
        ]
        variances = f"{row.user_variance:.2f}, {row.item_variance:.2f}"
        print(f"| {row.set} | {row.name} | {variances} | {' | '.join(cells)} |")


def targets(rows: list[Line]) -> list[tuple[str, bool]]:
    """Each target with whether it is met."""
    answer = []
    shipped = {row.set: row for row in rows if row.name == STRUCTURAL}
    for name, row in shipped.items():
        if name not in CHOSE:
            held = f"{name}: {row.item.held:.3f} of items, {row.user.held:.3f} of users"
            met = row.item.held >= LEAST_ITEMS and row.user.held >= LEAST_USERS
            answer.append((f"at least {LEAST_ITEMS:g} of items and {LEAST_USERS:g} of users; {held}", met))
    for row in rows:
        if row.name.startswith("recalibrated"):
            before = shipped[row.set]
            sides = ("item", row.item, before.item), ("user", row.user, before.user)
            fallen = [f"{side}s {was.held:.3f} to {one.held:.3f}" for side, one, was in sides if one.is_below(was)]
            title = f"{row.set}, {row.name}: held as before, or {LEVEL:g} at least"
            answer.append(("; ".join([title, *fallen]), not fallen))
    return answer


def main() -> None:
    parser = study_parser(__doc__, SETS)
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--results", type=Path, help="a file of JSON that the figures are kept in")
    options = parser.parse_args()
    results: Path | None = options.results
    if results is not None and results.exists():
        rows = read_lines(results)
    else:
        rows = study(options.data, options.set or list(SETS), options.draws)
        if results is not None:
            results.parent.mkdir(parents=True, exist_ok=True)
            results.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    print_lines(rows)
    print()
    for target, met in targets(rows):
        print(f"- {'met' if met else 'NOT met'}: {target}")


def read_lines(path: Path) -> list[Line]:
    rows = json.loads(path.read_text())
    return [Line(**row | {side: Totals(**row[side]) for side in ("item", "user")}) for row in rows]


if __name__ == "__main__":
    main()
