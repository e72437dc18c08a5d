"""Recommend: top-10 for everyone against implicit, faiss and bare matrix products; one user's latency.

    python -m benchmarks recommend

A model of 100,000 users and 12,000 items with a random posterior, K = 20, every user with about 20 likes to leave out.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # implicit asks for it; the bare products have threads of their own

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import random_model, recommender, with_walk
from benchmarks.report import THREADS, Section, command, in_a_process, interleaved, median
from considerate import Recommender
from considerate.model.liking import like_probability
from considerate.model.model import Model
from considerate.model.predict import logit_moments

K, N, TOGETHER = 20, 10, 256


def with_p_like(ours: Recommender, users: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """(ids, p(like)) of the ten best: the scores choose, then eq. 22 for the chosen pairs."""
    ids, _ = ours.recommend(users, N=N)
    model = ours.model_
    q = model.posterior
    mean, variance = logit_moments(q.users, q.items, np.repeat(users, N), ids.reshape(-1))
    return ids, like_probability(mean, model.variance_scale * variance).reshape(ids.shape)


def implicit_model(model: Model) -> tuple[Any, Any]:
    """(implicit's model with the same vectors, the likes as it wants them)."""
    import scipy.sparse
    from implicit.cpu.als import AlternatingLeastSquares

    peer = AlternatingLeastSquares(factors=K, num_threads=THREADS)
    peer.user_factors = np.ascontiguousarray(model.posterior.users.mean)
    peer.item_factors = np.ascontiguousarray(model.posterior.items.mean)
    values, liked = np.ones(model.users.whole().liked.edges, np.float32), model.users.whole().liked
    return peer, scipy.sparse.csr_matrix((values, liked.indices, liked.starts), (model.user_count, model.item_count))


def product(left: NDArray[np.float32], right: NDArray[np.float32], batch: int) -> Callable[[], None]:
    """left @ right, some users at a time, each thread into room of its own."""
    rooms = [np.empty((batch, right.shape[1]), np.float32) for _ in range(THREADS)]

    def multiply(thread: int) -> None:
        for start in range(thread * batch, len(left), THREADS * batch):
            part = left[start : start + batch]
            np.matmul(part, right, out=rooms[thread][: len(part)])

    def all_of_it() -> None:
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(multiply, range(THREADS)))

    return all_of_it


def quantiles(function: Callable[[int], Any], calls: int, users: int) -> dict[str, float]:
    """p50 and p99 of single calls, in microseconds, each for another user."""
    order = np.random.default_rng(0).integers(0, users, calls + 50)
    seconds = []
    for user in order.tolist():
        begun = time.perf_counter()
        function(user)
        seconds.append(time.perf_counter() - begun)
    p50, p99 = np.quantile(seconds[50:], [0.5, 0.99])
    return {"p50 us": 1e6 * p50, "p99 us": 1e6 * p99}


def run(quick: bool = False) -> Section:
    users, items, repeats, calls = (5_000, 2_000, 2, 200) if quick else (100_000, 12_000, 3, 2000)
    many = 50_000 if quick else 1_000_000
    everyone = np.arange(users)
    model, large = random_model(users, items, K), random_model(1_000, many, K)
    ours, ours_large, walked = recommender(model), recommender(large), recommender(with_walk(model))
    q = model.posterior
    (peer, liked), (peer_large, liked_large) = implicit_model(model), implicit_model(large)

    import faiss  # after implicit's models, which would warn of the threads of faiss's own BLAS
    from threadpoolctl import threadpool_limits

    faiss.omp_set_num_threads(THREADS)
    index = faiss.IndexFlatIP(K)
    index.add(peer.item_factors)

    def faiss_search() -> None:
        with threadpool_limits(THREADS, "blas"):  # faiss leaves the threads of a batch to its BLAS
            index.search(peer.user_factors, N)

    # [u, 1] [v; b] for the mean; [u^2 + s_u, s_u, 1] [s_v; v^2; s_b] for the variance
    ones = np.ones((users, 1), np.float32)
    mean = np.concatenate([q.users.mean, ones], axis=1)
    variance = np.concatenate([q.users.mean**2 + q.users.variance, q.users.variance, ones], axis=1)
    products = {
        f"{name}, batches of {batch}": product(left, right, batch)
        for batch in (32, 128, 512)
        for name, left, right in (
            ("mean product", mean, model.columns.mean),
            ("variance product", variance, model.columns.variance),
        )
    }
    found = interleaved(
        {
            "considerate: ids and p(like)": lambda: with_p_like(ours, everyone),
            "considerate: ids and scores": lambda: ours.recommend(everyone, N=N),
            "considerate: ids and scores, with lift": lambda: walked.recommend(everyone, N=N, lift=1.0),
            "considerate: to Arrow (recommend_batches)": lambda: list(ours.recommend_batches(N=N)),
            "implicit recommend": lambda: peer.recommend(everyone, liked, N=N),
            "implicit recommend, nothing left out": lambda: peer.recommend(
                everyone, liked, N=N, filter_already_liked_items=False
            ),
            "faiss IndexFlatIP (nothing left out)": faiss_search,
            **products,
        },
        repeats,
    )
    section = Section(f"Recommend: {users:,} users x {items:,} items, top {N}, K = {K}, {THREADS} threads")
    section.raw = {"seconds": found}
    seconds = {name: median(values) for name, values in found.items()}
    least = {
        what: min(value for name, value in seconds.items() if name.startswith(what))
        for what in ("mean product", "variance product")
    }
    main = seconds["considerate: ids and p(like)"]
    rows = [
        *seconds.items(),
        ("fastest mean product", least["mean product"]),
        ("fastest mean + variance", sum(least.values())),
    ]
    section.tables[f"Everyone, medians of {repeats} interleaved repeats"] = [
        {"": name, "s": value, "us/user": 1e6 * value / users, "times ours with p(like)": value / main}
        for name, value in rows
    ]
    one = section.tables[f"One user, {calls} calls"] = []
    single = {
        "considerate: ids and scores": lambda user: ours.recommend(user, N=N),
        "considerate: ids and scores, with lift": lambda user: walked.recommend(user, N=N, lift=1.0),
        "considerate: ids and p(like)": lambda user: ours.predict_proba(user, ours.recommend(user, N=N)[0]),
        "considerate: a new user folded in": lambda user: ours.fold_in(model.users.whole().liked.row(user)),
        "implicit recommend": lambda user: peer.recommend(user, liked[user], N=N),
    }
    for name, function in single.items():
        one.append({"": name, "items": items, **quantiles(function, calls, users)})
    del mean, variance, products

    begun = time.perf_counter()
    ours_large.recommend(0, N=N)
    first = time.perf_counter() - begun
    single = {
        "considerate: ids and p(like)": lambda user: ours_large.predict_proba(user, ours_large.recommend(user, N=N)[0]),
        "implicit recommend": lambda user: peer_large.recommend(user, liked_large[user], N=N),
    }
    for name, function in single.items():
        one.append({"": name, "items": many, **quantiles(function, 20 if quick else 100, 1_000)})
    section.notes = [
        f"The first call on the model of {many:,} items, which lays the items out, took {1e3 * first:.1f} ms.",
        "implicit and faiss score u'v with the same K; ours has the bias and popularity as well. implicit runs its own "
        "threads with one BLAS thread each, faiss a BLAS of as many threads; faiss cannot leave a user's likes out.",
        "The products are NumPy's, float32, by as many threads, in batches of the fastest size; nothing is kept.",
        "A single user's call uses one thread; implicit's user is one row of the matrix of likes, sliced in the call.",
    ]
    ratio = seconds["implicit recommend"] / main
    section.must("everyone with p(like), times as fast as implicit's recommend", ratio, least=4)
    lifted = seconds["implicit recommend"] / seconds["considerate: ids and scores, with lift"]
    section.must("everyone with lift, times as fast as implicit's recommend", lifted, least=2)
    section.must("everyone with p(like), times the mean product alone", main / least["mean product"], most=3)
    section.must("everyone with p(like), times the mean and variance products", main / sum(least.values()), most=3)
    at_a_million(section, quick)
    return section


def at_a_million(section: Section, quick: bool) -> None:
    """A batch and one user against the product and the pass, 100,000 users."""
    many = 50_000 if quick else 1_000_000
    sizes = (32, 64)
    rows = [row for factors in sizes for row in in_a_process("serving", "exact", many, factors, 2 if quick else 5)]
    heading = f"{many:,} items: {TOGETHER} users, in times the product alone, and one, in times a pass over the means"
    section.tables[heading] = rows
    for factors in sizes:
        times = {row[""]: row["times"] for row in rows if row["K"] == factors}
        for what in ("batch", "batch, with lift"):
            section.must(f"{many:,} items, K = {factors}: {what}, times the product alone", times[what], most=1.5)
        for what in ("one", "one, with lift"):
            section.must(f"{many:,} items, K = {factors}: {what}, times reading the means once", times[what], most=1.3)
    rows = in_a_process("serving", "many", many, 32, 2_000 if quick else 100_000)
    section.tables[f"{many:,} items, K = 32, one process"] = rows


def main() -> None:
    command("recommend", run)


if __name__ == "__main__":
    main()
