"""The catalogue of the demo: simulated, so that its truth is known."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from considerate.data import Interactions, Titles
from considerate.data.vocabulary import Vocabulary
from considerate.model.liking import sigmoid
from considerate.recommender import Recommender
from considerate.simulation.catalogue import GENRES, readable_titles
from considerate.simulation.degrees import PowerLaw
from considerate.simulation.simulate import ModelSample, simulate_from_model

USERS, ITEMS, FACTORS = 10_000, 400, 5
TAU = 1.2  # of users and items: logits spread by sqrt(K) / tau
SHOWN = 5  # films for each setting of the knob


@dataclass(frozen=True)
class Catalogue:
    """Simulated likes, and the truth behind them."""

    sample: ModelSample
    interactions: Interactions

    def genre(self, item: int) -> str:
        assert self.sample.genres is not None
        return GENRES[int(self.sample.genres[item])].name


def make_catalogue(users: int = USERS, items: int = ITEMS, *, seed: int = 0) -> Catalogue:
    """Draw films of eight genres from the model (eq. 5), with a fair coin for every considered film (c = 1)."""
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
    ids, likes = (Vocabulary.range(users), Vocabulary.range(items)), int(sample.liked.sum())
    return Catalogue(sample, Interactions(sample.users, sample.items, *ids, titles, "the demo", likes, likes, ()))


def seen_later(catalogue: Catalogue, people: int, *, seed: int = 0) -> tuple[Interactions, list[tuple[int, int, bool]]]:
    """Split off a third of what some people considered: (the other likes, [(user, item, liked)] of that third)."""
    random, sample, likes = np.random.default_rng(seed), catalogue.sample, catalogue.interactions
    some = random.permutation(sample.user_count)[:people]
    later = np.isin(sample.hidden_users, some) & (random.random(len(sample.hidden_users)) < 1 / 3)
    early, count = ~later[sample.liked], int((sample.liked & ~later).sum())
    seen = zip(sample.hidden_users[later].tolist(), sample.hidden_items[later].tolist(), sample.liked[later].tolist())
    kept = replace(likes, users=likes.users[early], items=likes.items[early], rows_read=count, rows_kept=count)
    return kept, list(seen)


def make_recommender(*, seed: int = 0, threads: int | None = None) -> Recommender:
    """Make a recommender with the settings of the simulation: its factors, and one unliked pair per like."""
    settings = {"consideration": "popularity", "negatives": 1.0, "likelihood_weight": 1.0}
    return Recommender(factors=FACTORS, **settings, sweeps=40, seed=seed, threads=threads)  # type: ignore[arg-type]


def instructive_user(recommender: Recommender, catalogue: Catalogue) -> int:
    """Find a user with most likes in two genres, for whom both ends of the knob give different lists."""
    model = recommender.model_
    degree = model.users.whole().degree
    candidates = np.flatnonzero((degree >= 20) & (degree <= 40))
    if len(candidates) == 0:
        return int(np.argmax(degree))

    def share(user: int) -> float:
        counts = Counter(catalogue.genre(int(item)) for item in model.users.whole().liked.row(user))
        return sum(count for _, count in counts.most_common(2)) / int(degree[user])

    shares = np.array([share(int(user)) for user in candidates])
    candidates = candidates[np.lexsort((candidates, -shares))[:100]]
    by_liking, _ = recommender.recommend(candidates, N=SHOWN, popularity=0.0)
    popular, _ = recommender.recommend(candidates, N=SHOWN, popularity=1.0)
    common = (by_liking[:, :, None] == popular[:, None, :]).sum(axis=(1, 2))
    return int(candidates[np.argmin(common)])


def tastes(recommender: Recommender, catalogue: Catalogue, user: int) -> dict[str, list[str]]:
    """Return the titles that a user liked by genre, the genre with most titles first."""
    model = recommender.model_
    by_genre: dict[str, list[str]] = {}
    for item in model.users.whole().liked.row(user):
        by_genre.setdefault(catalogue.genre(int(item)), []).append(model.title(int(item)))
    return dict(sorted(by_genre.items(), key=lambda pair: (-len(pair[1]), pair[0])))


def recommendations(
    recommender: Recommender, catalogue: Catalogue, user: int, knob: float, count: int = SHOWN
) -> list[dict[str, Any]]:
    """Recommend films at a setting of the knob, with p(like), its 90 % interval and the true probability."""
    degree = recommender.model_.item_degree
    rows = list(recommender.recommend_table([user], count, popularity=knob))
    items = np.array([row.item for row in rows], np.int64)
    true = np.asarray(sigmoid(catalogue.sample.true_logit(np.full(len(items), user), items)))
    return [
        row._asdict() | {"genre": catalogue.genre(item), "likes": int(degree[item]), "true": float(probability)}
        for row, item, probability in zip(rows, items.tolist(), true)
    ]
