"""Other recommenders (peers) behind one interface, each with the same budget: at most six settings to try.

    popularity        number of likes of an item
    BPR-uniform       cornac's BPR: pairs of a like and an item drawn uniformly (Rendle et al.)
    BPR-popularity    cornac's WBPR: the second item is drawn by popularity
    ALS               implicit's alternating least squares
    EASE              a linear model in closed form, for catalogues under 10,000 items
    walk              items that a short random walk from the user's likes reaches; no factors
    GF-CF             a walk with square roots of degrees, and the smoothest part of the user's likes (Shen et al.)

A trial is one setting. The same fit also gives the best number of iterations on the validation split. implicit and
cornac come with `pip install considerate[study]` and are imported where used.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Graph
from considerate.errors import UsageError
from considerate.evaluation.scorer import FunctionScorer, LikesScorer, Scorer, as_scorer, likes_matrix

Settings = Mapping[str, Any]
EASE_ITEMS = 10_000  # EASE inverts a matrix of items by items
LEAST_EPOCHS, MOST_EPOCHS = 200, 1000  # of BPR; few likes make short epochs, and more of them
EPOCH_LIKES = 3e7  # likes in all epochs, if that is between the two
MIXING = 0.1  # share of the walk that goes to items by their degree, the same for all users
DENSE_SIDE = 1024  # up to so many users or items, singular vectors are computed densely
LEAST_VALUE = 1e-6  # smaller singular values count as zero; the largest is 1
SINGULAR = 0x5F0C  # stream of the random start of the singular vectors
ALS_MARKS = (2, 4, 6, 8, 11, 15, 20)  # iterations that get a snapshot


@dataclass(frozen=True)
class Snapshot:
    """State of a recommender during its fit."""

    scorer: Scorer
    iterations: int
    seconds: float  # of fitting, without the time that the caller spends on snapshots


class Peer:
    """A recommender that can be fitted and tuned; a subclass has `snapshots`, or `fit`, which returns a scorer."""

    name: str
    factors: int | None = None
    trials: tuple[Settings, ...] = ({},)  # the settings to try
    version: str | None = "1"  # changes with its answers; None: unknown, so results are not stored
    one_thread: bool = False  # whether a seeded fit uses one thread, so that several may run in parallel
    package: str | None = None  # package that it needs

    @property
    def usual(self) -> Settings:
        """Settings of a fit without trials."""
        return self.trials[0]

    def unavailable(self, train: Graph) -> str | None:
        """Reason why it cannot be fitted here, or None."""
        try:
            if self.package is not None:
                importlib.import_module(self.package)
        except ImportError as error:
            return f"{self.package} is not installed ({error}); pip install considerate[study] brings it"
        return None

    def fit(self, train: Graph, settings: Settings, threads: int) -> Scorer:
        raise NotImplementedError

    def snapshots(self, train: Graph, settings: Settings, seed: int | None, threads: int) -> Iterator[Snapshot]:
        """Fit, and yield snapshots; `settings["iterations"]` is the last iteration.

        With a seed the result is reproducible. Without a seed the fit may use all threads.
        """
        watch = Stopwatch()
        with watch:
            scorer = self.fit(train, settings, threads)
        yield Snapshot(scorer, 1, watch.seconds)


def fit_peer(peer: Peer, train: Graph, settings: Settings, seed: int | None = 0, threads: int = 1) -> Snapshot:
    """Fit a peer to the end."""
    last = deque(peer.snapshots(train, settings, seed, threads), maxlen=1)
    if not last:
        raise UsageError(f"{peer.name} with {dict(settings)} diverged before its first snapshot; try other settings.")
    return last[0]


def standard_peers(factors: int = 20) -> list[Peer]:
    """Make the peers of the study, with as many factors as ours."""
    return [
        MostLiked(),
        BPR("BPR-uniform", factors),
        BPR("BPR-popularity", factors, weighted=True),
        ALS(factors=factors),
        EASE(),
        Walk(),
        GFCF(),
    ]


def training_matrix(train: Graph) -> Any:
    """Likes as a scipy matrix of users by items."""
    return likes_matrix(train.by_user, train.item_count)


class Stopwatch:
    """Measures the seconds spent inside `with watch:`."""

    seconds = 0.0

    def __enter__(self) -> None:
        self._begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begun


@dataclass
class MostLiked(Peer):
    """Number of likes of an item; nothing to tune."""

    name: str = "popularity"
    one_thread = True

    def fit(self, train: Graph, settings: Settings, threads: int) -> Scorer:
        degree = train.by_item.degrees.astype(np.float32)
        return LikesScorer(lambda likes: np.tile(degree, (likes.shape[0], 1)), training_matrix(train), self.name)


@dataclass
class BPR(Peer):
    """cornac's Bayesian personalised ranking; with a seed it uses one thread."""

    name: str
    factors: int | None = None
    weighted: bool = False  # whether the second item is drawn by popularity
    one_thread = True
    package = "cornac"
    trials = tuple(
        {"learning_rate": rate, "lambda_reg": ridge}
        for rate, ridge in ((0.02, 0.003), (0.02, 0.01), (0.02, 0.03), (0.05, 0.01), (0.05, 0.03), (0.05, 0.06))
    )

    def snapshots(self, train: Graph, settings: Settings, seed: int | None, threads: int) -> Iterator[Snapshot]:
        from cornac.models import BPR as Uniform
        from cornac.models import WBPR as Weighted

        chosen = {name: value for name, value in settings.items() if name != "iterations"}
        model = (Weighted if self.weighted else Uniform)(
            k=self.factors, num_threads=threads, seed=seed, verbose=False, **chosen
        )
        data = cornac_data(train)

        def fit(epochs: int) -> list[NDArray[np.float32]]:
            model.max_iter, model.is_fitted = epochs, False  # it continues from its last state
            model.fit(data)
            return [np.array(part, np.float32) for part in (model.u_factors, model.i_factors, model.i_biases)]

        marks = _marks(int(settings.get("iterations", epochs_at_most(train.edges))))
        return _factor_snapshots(self.name, fit, marks)


@dataclass
class ALS(Peer):
    """implicit's alternating least squares."""

    name: str = "ALS"
    factors: int | None = 20
    package = "implicit"
    trials = tuple(
        {"alpha": alpha, "regularization": ridge}
        for alpha, ridge in ((40.0, 100.0), (40.0, 200.0), (40.0, 400.0), (10.0, 30.0), (2.0, 10.0), (1.0, 0.01))
    )

    def snapshots(self, train: Graph, settings: Settings, seed: int | None, threads: int) -> Iterator[Snapshot]:
        from implicit.cpu.als import AlternatingLeastSquares

        chosen = {name: value for name, value in settings.items() if name != "iterations"}
        with blas_threads(1):
            model = AlternatingLeastSquares(factors=self.factors, num_threads=threads, random_state=seed, **chosen)
        matrix = training_matrix(train)

        def fit(iterations: int) -> list[NDArray[np.float32]]:
            model.iterations = iterations
            with blas_threads(1):
                model.fit(matrix, show_progress=False)  # it continues from its last state
            return [np.array(part, np.float32) for part in (model.user_factors, model.item_factors)]

        most = int(settings.get("iterations", ALS_MARKS[-1]))

        def fold_in(likes: Any) -> NDArray[np.float32]:
            return np.asarray(model.recalculate_user(np.arange(likes.shape[0]), likes), np.float32)

        marks = [*(mark for mark in ALS_MARKS if mark < most), most]
        return _factor_snapshots(self.name, fit, marks, fold_in)


class FactorScorer:
    """Scores of users' and items' vectors and item biases; `fold_in` makes vectors from likes [users, items]."""

    def __init__(self, name: str, users: Any, items: Any, bias: Any = (), fold_in: Callable[[Any], Any] | None = None):
        self.name, self.users, self.items, self.bias, self.fold_in = name, users, items, bias, fold_in

    def scores(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.asarray(sum(self.bias, self.users[users] @ self.items.T))

    def for_likes(self, likes: Any) -> FactorScorer | None:
        """Make a scorer of users who were not in training; None if they cannot be folded in."""
        return self.fold_in and FactorScorer(self.name, self.fold_in(likes), self.items, self.bias)


def _factor_snapshots(
    name: str,
    fit: Callable[[int], list[NDArray[np.float32]]],
    marks: Sequence[int],
    fold_in: Callable[[Any], Any] | None = None,
) -> Iterator[Snapshot]:
    """Yield snapshots of a factor model after some numbers of iterations, until it diverges.

    `fit(count)` runs more iterations and returns users [M, K], items [N, K] and possibly biases [N]. `fold_in` uses the
    items of the last iteration.
    """
    watch, done = Stopwatch(), 0
    for mark in marks:
        with watch:
            users, items, *bias = fit(mark - done)
        done = mark
        if not all(np.isfinite(part).all() for part in (users, items, *bias)):
            return
        yield Snapshot(FactorScorer(name, users, items, bias, fold_in), done, watch.seconds)


@dataclass
class EASE(Peer):
    """Item-to-item weights from ridge regressions of every item on all others, in closed form (Steck, 2019)."""

    name: str = "EASE"
    trials = tuple({"ridge": ridge} for ridge in (30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0))

    @property
    def usual(self) -> Settings:
        return {"ridge": 300.0}

    def unavailable(self, train: Graph) -> str | None:
        if train.item_count < EASE_ITEMS:
            return None
        return f"it inverts a matrix of items by items, and {train.item_count:,} items are not under {EASE_ITEMS:,}"

    def fit(self, train: Graph, settings: Settings, threads: int) -> Scorer:
        matrix = training_matrix(train)
        with blas_threads(threads):
            weights = ease_weights(matrix, float(settings["ridge"]))
        return LikesScorer(lambda likes: likes @ weights, matrix, self.name)


def ease_weights(matrix: Any, ridge: float) -> NDArray[np.float32]:
    """Compute B [items, items]; the scores of a user with likes x are x B.

    P = (X'X + ridge I)^-1,    B_ij = -P_ij / P_jj,    B_jj = 0
    """
    from scipy.linalg.lapack import dpotrf, dpotri

    gram = np.asfortranarray((matrix.T @ matrix).toarray(), np.float64)
    gram[np.diag_indices_from(gram)] += ridge
    factor, failed = dpotrf(gram, lower=1, overwrite_a=1)
    inverse, failed = (factor, failed) if failed else dpotri(factor, lower=1, overwrite_c=1)
    if failed:
        raise UsageError(f"EASE's matrix with ridge {ridge:g} has no inverse in double precision; give a larger ridge.")
    weights: NDArray[np.float32] = np.tril(inverse).astype(np.float32)  # LAPACK fills the lower half
    weights += np.tril(weights, -1).T
    weights /= -np.diagonal(inverse).astype(np.float32)
    np.fill_diagonal(weights, 0.0)
    return weights


@dataclass
class Walk(Peer):
    """A random walk of two steps: from a like of the user to another user who likes it, to one of that user's likes.

        w_mn = (1 - eps) walk_mn + eps d_n / sum(d),    walk_mn = (1 / d_m) sum_n'm' g_mn' g_m'n' g_m'n / (d_n' d_m')

    The settings are exponents of the degrees of the first item, the user and the last item; 1, 1, 0 is the walk. With
    other exponents the walk's part is scaled to sum to 1 per user, and the rest of w is proportional to d_n^(1 - last).
    """

    name: str = "walk"
    one_thread = True
    trials = tuple(
        {"first": first, "user": user, "last": last}
        for first, user, last in (
            *((1.0, 1.0, 0.0), (0.75, 1.0, 0.25), (0.5, 1.0, 0.25)),
            *((0.5, 1.0, 0.5), (0.75, 1.0, 0.5), (0.75, 1.0, 0.75)),
        )
    )

    def fit(self, train: Graph, settings: Settings, threads: int) -> Scorer:
        matrix = training_matrix(train)
        met = two_steps(matrix, settings["first"], settings["user"], settings["last"])
        degree = train.by_item.degrees.astype(np.float64)
        anyone = np.where(degree > 0, np.maximum(degree, 1.0) ** (1.0 - settings["last"]), 0.0)
        background = (MIXING * anyone / anyone.sum()).astype(np.float32)

        def scores(likes: Any) -> NDArray[np.float32]:
            walked = met(likes)
            walked *= (1.0 - MIXING) / np.maximum(walked.sum(axis=1, keepdims=True), np.finfo(np.float32).tiny)
            return np.asarray(walked + background, np.float32)

        return LikesScorer(scores, matrix, self.name)


@dataclass
class GFCF(Peer):
    """A graph filter in closed form (Shen et al., 2021). With R = D_u^-1/2 X D_i^-1/2 and V its `rank` right singular
    vectors of the largest values,

        score = x (R'R + alpha D_i^-1/2 V V' D_i^1/2)
    """

    name: str = "GF-CF"
    one_thread = True
    trials = tuple(
        {"alpha": alpha, "rank": rank}
        for alpha, rank in ((0.3, 256), (0.1, 256), (1.0, 256), (0.3, 64), (1.0, 64), (0.3, 16))
    )

    def fit(self, train: Graph, settings: Settings, threads: int) -> Scorer:
        matrix = training_matrix(train)
        met = two_steps(matrix, 0.5, 1.0, 0.5)
        root = np.sqrt(np.maximum(train.by_item.degrees, 1.0))
        users = 1.0 / np.sqrt(np.maximum(train.by_user.degrees, 1.0))
        with blas_threads(1):  # the bits may depend on the threads of BLAS
            vectors = top_right_vectors(matrix.multiply(users[:, None]).multiply(1.0 / root).tocsr(), settings["rank"])
        inward, outward = ((vectors * weight).astype(np.float32) for weight in (1.0 / root, settings["alpha"] * root))

        def scores(likes: Any) -> NDArray[np.float32]:
            return np.asarray(met(likes) + (likes @ inward.T) @ outward, np.float32)

        return LikesScorer(scores, matrix, self.name)


def two_steps(matrix: Any, first: float, user: float, last: float) -> Callable[[Any], Any]:
    """Return likes -> x D_i^-first X' D_u^-user X D_i^-last [users, items], without a matrix of items by items."""
    users, items = (np.maximum(np.asarray(matrix.sum(axis=axis)).ravel(), 1.0) for axis in (1, 0))
    back = matrix.multiply(items**-first).T.tocsr().astype(np.float32)
    forth = matrix.multiply((users**-user)[:, None]).multiply(items**-last).tocsr().astype(np.float32)
    return lambda likes: (likes @ back).toarray() @ forth


def top_right_vectors(matrix: Any, rank: int) -> NDArray[np.float64]:
    """Right singular vectors [at most rank, items] of the largest values above zero."""
    from scipy.sparse.linalg import svds

    side = min(matrix.shape)
    if side > DENSE_SIDE:
        start = np.random.Generator(np.random.Philox(key=[0, SINGULAR])).standard_normal(side)
        _, values, vectors = svds(matrix.astype(np.float64), min(rank, side - 1), v0=start)
        return np.asarray(vectors[values > LEAST_VALUE])
    wide = matrix.shape[1] > matrix.shape[0]
    squares, columns = np.linalg.eigh((matrix @ matrix.T if wide else matrix.T @ matrix).toarray().astype(np.float64))
    kept = np.flatnonzero(squares > LEAST_VALUE**2)[-rank:]
    columns = columns[:, kept]
    return np.asarray((matrix.T @ columns / np.sqrt(squares[kept]) if wide else columns).T)


@dataclass
class Own(Peer):
    """A user's own recommender.

    `make` takes the training likes, a scipy matrix of users by items. It returns an argument of `as_scorer`: a function
    of users, an object with `scores`, or one with implicit's `recommend`. With a `version`, its results are stored.
    """

    name: str
    make: Callable[[Any], Any]
    version: str | None = None

    def fit(self, train: Graph, settings: Settings, threads: int) -> Scorer:
        return as_scorer(self.make(training_matrix(train)), train.item_count, self.name, train.by_user)


def as_peer(thing: Any) -> Peer:
    """Make a peer of a Peer, of an unfitted model of cornac, of an object with `fit` and implicit's `recommend` or
    `scores` (copied for every fit), or of a function of the training likes (see `Own`)."""
    if hasattr(thing, "snapshots"):
        peer: Peer = thing
        return peer
    if is_cornac(thing):
        return CornacPeer(thing)
    if hasattr(thing, "fit") and (hasattr(thing, "recommend") or hasattr(thing, "scores")):
        quiet = {"show_progress": False} if "show_progress" in inspect.signature(thing.fit).parameters else {}

        def fitted(matrix: Any) -> Any:
            model = copy.deepcopy(thing)
            with blas_threads(1):
                model.fit(matrix, **quiet)
            return model

        return Own(type(thing).__name__, fitted)
    if callable(thing):
        return Own(getattr(thing, "__name__", type(thing).__name__), thing)
    raise UsageError(
        f"{thing!r} cannot join a study; give Own(name, make), an unfitted object with fit and recommend, or a "
        "function of the training likes (a scipy matrix) that returns a function users -> scores."
    )


def is_cornac(thing: Any) -> bool:
    """Return whether an object is a model of cornac."""
    return any(kind.__module__.startswith("cornac.") for kind in type(thing).__mro__)


@dataclass
class CornacPeer(Peer):
    """A model of cornac, copied for every fit."""

    model: Any
    version = None

    @property
    def name(self) -> str:  # type: ignore[override]
        return str(self.model.name)

    def fit(self, train: Graph, settings: Settings, threads: int) -> Scorer:
        model = self.model.clone()
        with blas_threads(threads):
            model.fit(cornac_data(train))
        return cornac_scorer(model, self.name)


def cornac_scorer(model: Any, name: str) -> Scorer:
    """Make a scorer of a fitted model of cornac, for its own row numbers."""
    return FunctionScorer(lambda users: np.stack([model.score(int(user)) for user in users]), name)


def epochs_at_most(likes: int) -> int:
    """Number of epochs of BPR: 200, and up to 1000 for few likes."""
    return int(np.clip(EPOCH_LIKES / max(likes, 1), LEAST_EPOCHS, MOST_EPOCHS))


def _marks(most: int) -> list[int]:
    """Epochs that get a snapshot: the fifth, then at growing distances, and the last."""
    marks = [5]
    while marks[-1] < most:
        marks.append(max(marks[-1] + 5, round(1.25 * marks[-1])))
    return [mark for mark in marks if mark < most] + [most]


def cornac_data(train: Graph) -> Any:
    """Make cornac's Dataset with our row numbers, including items without likes in training."""
    from cornac.data import Dataset

    users, items = train.pairs()
    uid, iid = ({row: row for row in range(count)} for count in (train.user_count, train.item_count))
    uir = (users.astype(np.int64), items.astype(np.int64), np.ones(len(users), np.float32))
    return Dataset(train.user_count, train.item_count, uid, iid, uir, seed=0)


@contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """Limit the threads of BLAS, if threadpoolctl is installed. Callers with their own threads want one."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:  # it comes with implicit
        yield
        return
    with threadpool_limits(count, "blas"):
        yield
