"""Updates against fits to everything: the tables of docs/update.md.

    python -m studies.update [--set ml-100k] [--set simulated] [--drift 3e-4] [--data FOLDER]

A model is fitted to the first half of a stream of likes; the rest comes in thirty updates. Beside them stands a fit to
all likes so far. Both are asked for the same held-out likes, of users and items that they know: mean S_rank and
NDCG@20. CPU seconds are of one thread, and of learning alone: reading, loading and saving are not in them.

ml-100k, ratings of 4 and 5 by their times: a tenth of all likes is held out, drawn at random. What comes next is tested
too: after each update, the likes of the next one, as far as users and items are known by then. Days are those of the
data. simulated: ten million likes drawn from the model in random order (--likes for fewer); one like of each of 5,000
users is held out. It is fitted again after 1, 7 and 30 updates.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate import Recommender
from considerate.data import Interactions, read_interactions
from considerate.fitting.update import DRIFT
from considerate.simulation.degrees import PowerLaw
from considerate.simulation.simulate import simulate_from_model
from studies.options import study_parser

UPDATES, MARKS = 30, (1, 7, 30)
Ints = NDArray[np.int64]
Pairs = tuple[Ints, Ints]  # ids of users and of items


@dataclass(frozen=True)
class Stream:
    """Likes in the order in which they came, and likes held out."""

    likes: Pairs
    cuts: Ints  # [updates + 1] of the likes: the first fit ends at the first
    days: NDArray[np.float64]  # [updates] from one to the next
    held: Pairs
    settings: dict[str, Any]
    marks: tuple[int, ...] = MARKS  # after which all is fitted again

    @classmethod
    def of(cls, likes: Pairs, held: Pairs, times: NDArray[np.float64] | None = None, **more: Any) -> Stream:
        """Half of the likes, then the rest in thirty parts of as many each; a day each where times are not known."""
        count = len(likes[0])
        cuts = np.linspace(count // 2, count, UPDATES + 1).astype(np.int64)
        days = np.ones(UPDATES) if times is None else np.diff(times[cuts - 1]) / 86_400.0
        return cls(likes, cuts, days, held, **more)

    def between(self, first: int, last: int) -> Interactions:
        """Some of the likes, as the reader gives them."""
        return read_interactions(tuple(ids[first:last] for ids in self.likes))


def movielens(folder: Path) -> Stream:
    """ml-100k by its times, fitted again after every update."""
    data = read_interactions(folder / "ml-100k" / "ratings.parquet", where="rating >= 4", time_column="timestamp")
    assert data.times is not None
    assert data.user_ids.integers is not None
    assert data.item_ids.integers is not None
    order = np.argsort(data.times, kind="stable")
    pairs = data.user_ids.integers[data.users[order]], data.item_ids.integers[data.items[order]]
    held = np.random.default_rng(0).random(len(order)) < 0.1
    likes, out = ((pairs[0][some], pairs[1][some]) for some in (~held, held))
    return Stream.of(likes, out, data.times[order][~held], settings={"threads": 1}, marks=tuple(range(1, UPDATES + 1)))


def simulated(likes: int) -> Stream:
    """So many likes of the model's own making, in random order."""
    law = PowerLaw(1.4, cutoff=200.0, minimum=40)
    users = round(likes / (0.5 * law.mean()))
    sample = simulate_from_model(users, max(200, users // 20), 8, tau_user=1.0, tau_item=1.0, user_law=law, seed=0)
    random = np.random.default_rng(1)
    order = random.permutation(np.flatnonzero(sample.liked))
    pairs = sample.hidden_users[order].astype(np.int64), sample.hidden_items[order].astype(np.int64)
    asked = random.choice(users, min(5000, users), replace=False)
    mine = np.flatnonzero(np.isin(pairs[0], asked))
    _, first = np.unique(pairs[0][mine], return_index=True)
    held = np.zeros(len(order), np.bool_)
    held[mine[first]] = True
    train, out = ((pairs[0][some], pairs[1][some]) for some in (~held, held))
    return Stream.of(train, out, settings={"threads": 1, "factors": 32})


def scores(recommender: Recommender, pairs: Pairs) -> NDArray[np.float64]:
    """S_rank and NDCG@20 of likes that are not in the model, of users and items that are; NaN where there are none."""
    model = recommender.model_
    rows = model.user_ids.rows_of(pairs[0]), model.item_ids.rows_of(pairs[1])
    known = (rows[0] >= 0) & (rows[1] >= 0)
    asked = pairs[0][known], pairs[1][known]
    if not known.any():
        return np.full(2, np.nan)
    return np.array([recommender.score(asked, metric=metric) for metric in ("s_rank", "ndcg@20")])


def timed(learn: Any, *arguments: Any, **options: Any) -> float:
    begun = time.thread_time()
    learn(*arguments, **options)
    return time.thread_time() - begun


def run(name: str, stream: Stream, drift: float) -> None:
    updated, end = Recommender(**stream.settings), stream.cuts[0]
    first = timed(updated.fit, stream.between(0, end))
    print(f"\n{name}: {len(stream.likes[0]):,} likes, of which the first fit has {end:,} ({first:.1f} CPU s)\n")
    print("| updates | likes | S_rank | fitted again | NDCG@20 | fitted again | CPU s | of the fit | ratio |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    spent, ratios, ahead = [], [], []
    for number in range(1, UPDATES + 1):
        begin, end = stream.cuts[number - 1 : number + 1]
        new = stream.between(begin, end)
        spent.append(timed(updated.update, new, days=float(stream.days[number - 1]), drift=drift))
        if number not in stream.marks:
            continue
        again = Recommender(**stream.settings)
        seconds = timed(again.fit, stream.between(0, end))
        ratios.append(spent[-1] / seconds)
        if number < UPDATES:
            after = tuple(ids[end : stream.cuts[number + 1]] for ids in stream.likes)
            ahead.append(np.concatenate([scores(updated, after), scores(again, after)]))
        if number in MARKS:
            (rank, top), (rank_again, top_again) = scores(updated, stream.held), scores(again, stream.held)
            quality = f"{rank:.4f} | {rank_again:.4f} | {top:.4f} | {top_again:.4f}"
            print(
                f"| {number} | {end:,} | {quality} | {spent[-1]:.3f} | {seconds:.3f} | {ratios[-1]:.3f} |", flush=True
            )
    means, most = np.nanmean(ahead, axis=0), np.max(ratios)
    print(f"\nan update: {np.mean(spent):.3f} CPU s on average, {np.mean(ratios):.3f} of a fit's, {most:.3f} at most")
    next_ones = "S_rank {:.4f}, NDCG@20 {:.4f}; fitted again {:.4f}, {:.4f}".format(*means)
    print(f"likes of the next update, after {len(ahead)} of them: {next_ones}", flush=True)


def main() -> None:
    parser = study_parser(__doc__, ["ml-100k", "simulated"])
    parser.add_argument("--likes", type=int, default=10_000_000)
    parser.add_argument("--drift", type=float, action="append")
    options = parser.parse_args()
    for name in options.set or ("ml-100k", "simulated"):
        stream = movielens(options.data) if name == "ml-100k" else simulated(options.likes)
        for drift in options.drift or [DRIFT]:
            run(f"{name}, drift {drift:g}", stream, drift)


if __name__ == "__main__":
    main()
