"""The demonstration: a made-up catalogue whose truth is known, a fit to its likes, and how much of it came back."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Interactions, Titles
from considerate.data.vocabulary import Vocabulary
from considerate.model.predict import INTERVAL, sigmoid
from considerate.recommender import Recommender
from considerate.simulation.catalogue import GENRES, readable_titles
from considerate.simulation.degrees import PowerLaw
from considerate.simulation.simulate import ModelSample, simulate_from_model

USERS, ITEMS, FACTORS = 10_000, 400, 5
TAU = 1.2  # of users and items: logits spread by sqrt(K) / tau
KNOBS = (0.0, 0.5, 1.0)
SHOWN = 5  # films for each
BINS = 10  # of the calibration table


@dataclass(frozen=True)
class Catalogue:
    """Likes as anyone would have them, and the truth that no one has."""

    sample: ModelSample
    interactions: Interactions

    def genre(self, item: int) -> str:
        assert self.sample.genres is not None
        return GENRES[int(self.sample.genres[item])].name

    def true_probability(self, user: int, items: NDArray[Any]) -> NDArray[np.float64]:
        """p(like) as it was made, of one user for some items."""
        return np.asarray(sigmoid(self.sample.true_logit(np.full(len(items), user), items)))


def make_catalogue(users: int = USERS, items: int = ITEMS, *, seed: int = 0) -> Catalogue:
    """Films of eight genres, drawn from the model (eq. 5) with a fair coin for every considered film (c = 1)."""
    sample = simulate_from_model(
        users,
        items,
        FACTORS,
        tau_user=TAU,
        tau_item=TAU,
        user_law=PowerLaw(1.4, cutoff=70.0, minimum=min(60, items)),
        item_law=PowerLaw(1.0),
        genres=len(GENRES),
        seed=seed,
    )
    titles = Titles.of_strings(readable_titles(items, seed, genres=sample.genres))
    likes = int(sample.liked.sum())
    interactions = Interactions(
        sample.users,
        sample.items,
        Vocabulary.range(users),
        Vocabulary.range(items),
        titles,
        "the demo",
        likes,
        likes,
        (),
    )
    return Catalogue(sample, interactions)


def make_recommender(*, seed: int = 0, threads: int | None = None) -> Recommender:
    """With the settings that the catalogue was made with: as many factors, and one considered film per like."""
    return Recommender(factors=FACTORS, negatives=1.0, likelihood_weight=1.0, sweeps=40, seed=seed, threads=threads)


def instructive_user(recommender: Recommender, catalogue: Catalogue) -> int:
    """Someone with a taste, most likes in two genres, for whom the ends of the knob say different things."""
    model = recommender.model_
    degree = model.user_degree
    candidates = np.flatnonzero((degree >= 20) & (degree <= 40))
    if len(candidates) == 0:
        return int(np.argmax(degree))

    def share(user: int) -> float:
        counts = Counter(catalogue.genre(int(item)) for item in model.liked.row(user))
        return sum(count for _, count in counts.most_common(2)) / int(degree[user])

    shares = np.array([share(int(user)) for user in candidates])
    candidates = candidates[np.lexsort((candidates, -shares))[:100]]
    alone, _ = recommender.recommend(candidates, N=SHOWN, popularity=KNOBS[0])
    popular, _ = recommender.recommend(candidates, N=SHOWN, popularity=KNOBS[-1])
    common = (alone[:, :, None] == popular[:, None, :]).sum(axis=(1, 2))
    return int(candidates[np.argmin(common)])


def tastes(recommender: Recommender, catalogue: Catalogue, user: int) -> dict[str, list[str]]:
    """The titles that someone liked by genre, the genre with most first."""
    model = recommender.model_
    by_genre: dict[str, list[str]] = {}
    for item in model.liked.row(user):
        by_genre.setdefault(catalogue.genre(int(item)), []).append(model.title(int(item)))
    return dict(sorted(by_genre.items(), key=lambda pair: (-len(pair[1]), pair[0])))


@dataclass(frozen=True)
class Recovery:
    """How well the known truth was recovered, over all considered pairs (the edges of the true H)."""

    pairs: int
    correlation: float  # of true and inferred logits
    rmse: float  # of the inferred logit
    spread: float  # standard deviation of the true logit
    coverage: float  # share of true logits inside their 90 % interval
    calibration_error: float  # expected calibration error of p(like)
    bins: tuple[CalibrationBin, ...]


@dataclass(frozen=True)
class CalibrationBin:
    """Pairs whose inferred p(like) is between low and high."""

    low: float
    high: float
    pairs: int
    predicted: float  # mean inferred p(like)
    true: float  # mean of the true probability
    liked: float  # share whose coin came up as a like


def recovery(recommender: Recommender, sample: ModelSample) -> Recovery:
    """Inferred against true logits on the considered pairs. The fit saw which were liked, never which were not."""
    users, items = sample.hidden_users, sample.hidden_items
    mean, deviation = recommender.predict_logit(users, items)
    probability = recommender.predict_proba(users, items)
    truth = sample.logit
    bins = calibration_bins(probability, sigmoid(truth), sample.liked)
    gaps = math.fsum(one.pairs * abs(one.predicted - one.true) for one in bins)
    return Recovery(
        pairs=len(truth),
        correlation=float(np.corrcoef(truth, mean)[0, 1]),
        rmse=float(np.sqrt(np.mean((truth - mean) ** 2))),
        spread=float(truth.std()),
        coverage=float(np.mean(np.abs(truth - mean) <= INTERVAL * deviation)),
        calibration_error=gaps / max(1, len(truth)),
        bins=bins,
    )


def calibration_bins(
    predicted: NDArray[Any], true: NDArray[Any], liked: NDArray[np.bool_], bins: int = BINS
) -> tuple[CalibrationBin, ...]:
    """Predicted beside true probabilities in bins of equal width; empty ones are left out."""
    place = np.minimum((np.asarray(predicted) * bins).astype(np.int64), bins - 1)
    found = []
    for number in range(bins):
        inside = place == number
        if inside.any():
            found.append(
                CalibrationBin(
                    number / bins,
                    (number + 1) / bins,
                    int(inside.sum()),
                    float(np.mean(predicted[inside])),
                    float(np.mean(true[inside])),
                    float(np.mean(liked[inside])),
                )
            )
    return tuple(found)


def recommendations(
    recommender: Recommender, catalogue: Catalogue, user: int, count: int = SHOWN
) -> dict[float, list[dict[str, Any]]]:
    """For each setting of the knob the best films, with p(like), its 90 % interval and the truth."""
    answer = {}
    degree = recommender.model_.item_degree
    for knob in KNOBS:
        rows = recommender.recommend_table([user], count, popularity=knob).to_pylist()
        true = catalogue.true_probability(user, np.array([row["item"] for row in rows], np.int64))
        answer[knob] = [
            {
                **row,
                "genre": catalogue.genre(row["item"]),
                "likes": int(degree[row["item"]]),
                "true": float(probability),
            }
            for row, probability in zip(rows, true)
        ]
    return answer


__all__ = [
    "Catalogue",
    "Recovery",
    "calibration_bins",
    "instructive_user",
    "make_catalogue",
    "make_recommender",
    "recommendations",
    "recovery",
    "tastes",
]
