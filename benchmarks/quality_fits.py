"""Everyone's fit, one function each, with a clock that stands while the caller looks at how well it ranks.

A fit is `fit(train, settings, seed, curve)`. It calls `curve.mark(scorer)` after every iteration, sweep or epoch; the
scorer is of the model as it then is. Making the matrix or cornac's Dataset is reading, and off the clock.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from benchmarks.report import THREADS
from considerate import Recommender
from considerate.data.graph import Graph
from considerate.evaluation.metrics import ndcg, rank_scores
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.scorer import FunctionScorer, ModelScorer, Scorer
from considerate.evaluation.split import HeldOut
from considerate.kernels.threads import LocalBackend
from considerate.study.peers import blas_threads, cornac_data, ease_weights, training_matrix

METRICS = ("NDCG@20", "S_rank")
Settings = dict[str, Any]


def quality(held: HeldOut, scorer: Scorer) -> tuple[float, float]:
    """NDCG@20 and S_rank (eq. 23) of the likes held out, over all items that their users did not like in training."""
    with LocalBackend(THREADS) as backend:
        ranks = held_ranks(scorer, held, backend.map)
    return float(ndcg(ranks, 20).mean()), float(rank_scores(ranks).mean())


class Enough(Exception):
    """The fit need not go on."""


class Curve:
    """Seconds, and NDCG@20 and S_rank of held-out likes, after some of the iterations of a fit: the first ten, then
    whenever their number has grown by `growth`, and the last of `most`. While they are measured the clock stands.

    With `patience`, the fit is looked at less at first, and after a fifth of it ends when so many looks in turn have
    raised neither.
    """

    def __init__(self, held: HeldOut, most: int, growth: float = 0.08, patience: int | None = None) -> None:
        self.held, self.most, self.growth, self.patience = held, most, growth, patience
        self.iterations: list[int] = []
        self.seconds: list[float] = []
        self.cpu: list[float] = []  # seconds of processor, all threads
        self.values: dict[str, list[float]] = {name: [] for name in METRICS}
        self.done, self._spent, self._spent_cpu = 0, 0.0, 0.0

    def start(self) -> None:
        """The clock runs from here; what came before was reading."""
        self._begun, self._begun_cpu = time.perf_counter(), time.process_time()

    def mark(self, scorer: Callable[[], Scorer]) -> None:
        """An iteration is over."""
        self.done += 1
        if not self.looks_at(self.done):
            return
        self.stop()
        self.iterations.append(self.done)
        self.seconds.append(self._spent)
        self.cpu.append(self._spent_cpu)
        for name, value in zip(METRICS, quality(self.held, scorer())):
            self.values[name].append(value)
        if self.done >= self.most or self._has_settled():
            raise Enough
        self.start()

    def stop(self) -> None:
        """The fit is over, or is looked at."""
        self._spent += time.perf_counter() - self._begun
        self._spent_cpu += time.process_time() - self._begun_cpu

    def looks_at(self, iteration: int) -> bool:
        def step(number: int) -> int:
            return int(math.log(number) / math.log1p(self.growth))

        early = iteration <= (10 if self.patience is None else 2)
        return early or iteration == self.most or step(iteration) > step(iteration - 1)

    def _has_settled(self) -> bool:
        late = self.patience
        return (
            late is not None
            and self.done > self.most // 5
            and len(self.seconds) > late
            and all(max(values[-late:]) <= max(values[:-late]) for values in self.values.values())
        )

    @property
    def in_all(self) -> float:
        """Seconds of the whole fit."""
        return self._spent


def watch(fit: Callable[..., None], train: Graph, settings: Settings, seed: int, curve: Curve) -> Curve:
    """The curve of a whole fit, or as far as it is wanted."""
    with suppress(Enough):
        fit(train, settings, seed, curve)
        curve.stop()
    return curve


def ours(train: Graph, settings: Settings, seed: int, curve: Curve) -> None:
    """The public way: the sweeps of Recommender(...).fit_steps, ended by its own rule, at the model's own weights."""
    recommender, matrix = Recommender(threads=THREADS, seed=seed, **settings), training_matrix(train)
    curve.start()
    for _ in recommender.fit_steps(matrix):
        curve.mark(lambda: ModelScorer(recommender.model_))


def als(train: Graph, settings: Settings, seed: int, curve: Curve) -> None:
    """implicit's alternating least squares by conjugate gradients, float32, one thread of BLAS under its own."""
    from implicit.cpu.als import AlternatingLeastSquares

    matrix = training_matrix(train)
    with blas_threads(1):
        model = AlternatingLeastSquares(num_threads=THREADS, iterations=curve.most, random_state=seed, **settings)
        curve.start()
        look = lambda *_: curve.mark(lambda: factor_scorer(model.user_factors, model.item_factors))  # noqa: E731
        model.fit(matrix, show_progress=False, callback=look)


def bpr(train: Graph, settings: Settings, seed: int, curve: Curve) -> None:
    """cornac's BPR, or its WBPR. It has no seed: with one it would use one thread."""
    from cornac.models import BPR, WBPR

    weighted = settings.get("weighted", False)

    class Watched(WBPR if weighted else BPR):  # type: ignore[misc]
        def _fit_sgd(self, *arguments: Any) -> Any:
            done = super()._fit_sgd(*arguments)
            curve.mark(lambda: factor_scorer(self.u_factors, self.i_factors, self.i_biases))
            return done

    chosen = {name: value for name, value in settings.items() if name not in ("factors", "weighted")}
    model = Watched(k=settings["factors"], max_iter=curve.most, num_threads=THREADS, **chosen)
    data = cornac_data(train)
    _ = data.matrix  # made when it is first asked for
    curve.start()
    model.fit(data)


def lightfm(train: Graph, settings: Settings, seed: int, curve: Curve) -> None:
    """LightFM's WARP, by its fork rectools-lightfm; `fit_partial` goes on for an epoch at a time."""
    from lightfm import LightFM

    chosen = {name: value for name, value in settings.items() if name not in ("factors", "alpha")}
    alphas = {"item_alpha": settings["alpha"], "user_alpha": settings["alpha"]}
    model = LightFM(settings["factors"], loss="warp", random_state=seed, **alphas, **chosen)
    matrix = training_matrix(train).tocoo()
    curve.start()
    while True:
        model.fit_partial(matrix, epochs=1, num_threads=THREADS)
        curve.mark(lambda: factor_scorer(model.user_embeddings, model.item_embeddings, model.item_biases))


def ease(train: Graph, settings: Settings, seed: int, curve: Curve) -> None:
    """EASE in closed form: one point."""
    matrix = training_matrix(train)
    curve.start()
    with blas_threads(THREADS):
        weights = ease_weights(matrix, settings["ridge"])
    curve.mark(lambda: FunctionScorer(lambda users: matrix[users] @ weights, "EASE"))


def most_liked(train: Graph, settings: Settings, seed: int, curve: Curve) -> None:
    """How many liked an item: one point."""
    matrix = training_matrix(train)
    curve.start()
    degree = np.bincount(matrix.indices, minlength=train.item_count).astype(np.float32)
    curve.mark(lambda: FunctionScorer(lambda users: np.tile(degree, (len(users), 1)), "popularity"))


def factor_scorer(users: Any, items: Any, biases: Any = 0.0) -> Scorer:
    return FunctionScorer(lambda rows: users[rows] @ items.T + np.float32(biases), "factors")


FITS: dict[str, Callable[[Graph, Settings, int, Curve], None]] = {
    "ALS": als,
    "BPR": bpr,
    "LightFM": lightfm,
    "EASE": ease,
    "popularity": most_liked,
}
PACKAGES = {"ALS": "implicit", "BPR": "cornac", "LightFM": "lightfm"}


def missing(peer: str) -> str | None:
    """Why a peer cannot be fitted here, or None."""
    try:
        importlib.import_module(PACKAGES.get(peer, "numpy"))
    except ImportError as error:
        return f"{peer} is left out: {error}"
    return None
