"""The index of items: building, recall of the exact 20 best and single requests; and the libraries that could hold it.

    python -m benchmarks ann

The libraries get the same vectors of a model, a random one of a million items and one fitted to Gowalla, K = 32: as the
index turns them, where the best items are the nearest, and as they are, where the best have the largest inner product.
Each finds 200 items, one request at a time on one thread.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.data import real, recommender
from benchmarks.report import Row, Section, command, in_a_process, peak_bytes
from benchmarks.serving import large_model
from considerate import Recommender
from considerate.model.index import PROBES, item_places
from considerate.study.peers import training_matrix

N, FOUND, FACTORS = 20, 200, 32
Search = Callable[[NDArray[np.float32], int], NDArray[Any]]  # (query, how far it looks) -> items


def near(items: int, requests: int) -> list[Row]:
    """The index: recall of the exact 20 best and single requests, with and without lift."""
    ours = recommender(large_model(1_000, items, FACTORS, 500))
    before, begun, at_work = peak_bytes(), time.perf_counter(), time.process_time()
    index = ours.build_index()
    row: Row = {"": f"build, {len(index.centres):,} lists", "s": time.perf_counter() - begun}
    row["s of processor"], row["peak MB"] = time.process_time() - at_work, (peak_bytes() - before) / 1e6
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "items.index"
        index.save(path)
        row["MB of file"] = path.stat().st_size / 1e6
        begun = time.perf_counter()
        ours.load_index(path)
        rows = [row, {"": "load", "s": time.perf_counter() - begun}]
    users = range(requests)
    for name, lift in (("without lift", 0.0), ("with lift", None)):
        truth = ours.recommend(users, N=N, lift=lift)[0]
        for probes in (None, 8, 16, 32, 64, 128):
            using = None if probes is None else replace(index, probes=probes)
            lists, seconds = [], []
            for user in users:
                begun = time.perf_counter()
                lists.append(ours.recommend(user, N=N, lift=lift, index=using)[0])
                seconds.append(time.perf_counter() - begun)
            recall = np.mean([np.isin(found, best).sum() / N for found, best in zip(lists, truth)])
            label = f"{name}, " + ("all items" if probes is None else f"{probes} lists")
            p50, p99 = np.quantile(seconds, [0.5, 0.99])
            rows.append({"": label, "recall@20": float(recall), "p50 ms": 1e3 * p50, "p99 ms": 1e3 * p99})
    return rows


def faiss_lists(vectors: NDArray[np.float32], by_distance: bool) -> tuple[Any, Search]:
    import faiss

    metric = faiss.METRIC_L2 if by_distance else faiss.METRIC_INNER_PRODUCT
    index = faiss.index_factory(vectors.shape[1], f"IVF{round(4 * len(vectors) ** 0.5)},Flat", metric)
    index.cp.niter, index.cp.max_points_per_centroid, index.cp.min_points_per_centroid = 10, 64, 1
    index.train(vectors)
    index.add(vectors)
    return index, lambda query, far: index.search(query[None], FOUND, params=faiss.SearchParametersIVF(nprobe=far))[1]


def faiss_graph(vectors: NDArray[np.float32], by_distance: bool) -> tuple[Any, Search]:
    import faiss

    metric = faiss.METRIC_L2 if by_distance else faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexHNSWFlat(vectors.shape[1], 16, metric)
    index.add(vectors)
    return index, lambda query, far: index.search(query[None], FOUND, params=faiss.SearchParametersHNSW(efSearch=far))[
        1
    ]


def usearch_graph(vectors: NDArray[np.float32], by_distance: bool) -> tuple[Any, Search]:
    from usearch.index import Index

    index = Index(ndim=vectors.shape[1], metric="l2sq" if by_distance else "ip", dtype="f32", expansion_add=64)
    index.add(np.arange(len(vectors)), vectors, threads=1)

    def search(query: NDArray[np.float32], far: int) -> NDArray[Any]:
        index.expansion_search = far
        return np.asarray(index.search(query, FOUND, threads=1).keys)

    return index, search


LIBRARIES = {
    "faiss, lists (IVF)": (faiss_lists, (8, 16, 32, 64)),
    "faiss, graph (HNSW)": (faiss_graph, (200, 400)),
    "usearch, graph (HNSW)": (usearch_graph, (200, 400)),
}


def libraries(items: int | None, requests: int) -> list[Row]:
    """What each builds and finds, on one thread: for a random model of so many items, or for one fitted to Gowalla."""
    import faiss

    faiss.omp_set_num_threads(1)
    if items is None:
        graph = real("gowalla-lightgcn")
        assert graph is not None
        fitted = Recommender(factors=FACTORS, sweeps=10, threads=1).fit(training_matrix(graph))
    else:
        fitted = recommender(large_model(1_000, items, FACTORS, 2))
    model, rows = fitted.model_, list[Row]()
    places = item_places(model)
    knobs = np.broadcast_to(np.array([1.0, model.plan.popularity, 0.0], np.float32), (requests, 3))
    queries = np.concatenate([model.users.whole().side.mean[:requests], knobs], axis=1)
    truth = [np.argpartition(places @ query, -N)[-N:] for query in queries]
    for by_distance in (True, False) if items is None else (True,):  # graphs of a million items take minutes each
        width = places.shape[1] - (not by_distance)
        for name, (build, settings) in LIBRARIES.items():
            begun = time.process_time()
            index, search = build(np.ascontiguousarray(places[:, :width]), by_distance)
            built = time.process_time() - begun
            size = index.serialized_length if name.startswith("usearch") else len(faiss.serialize_index(index))
            for far in settings:
                begun = time.process_time()
                found = [search(np.ascontiguousarray(query[:width]), far) for query in queries]
                taken = time.process_time() - begun
                row: Row = {"": name, "by": "distance" if by_distance else "inner product", "lists or expansion": far}
                row["recall@20"] = float(np.mean([np.isin(best, near).mean() for best, near in zip(truth, found)]))
                row["us of processor a request"], row["s of processor to build"] = 1e6 * taken / requests, built
                rows.append(row | {"MB": size / 1e6})
    return rows


def run(quick: bool = False) -> Section:
    many, requests = (20_000, 50) if quick else (1_000_000, 300)
    section = Section(f"An index of {many:,} items, K = {FACTORS}, top {N}")
    rows = section.tables["considerate[ann], one request at a time"] = in_a_process("ann", "near", many, requests)
    section.must("building, s of processor", rows[0]["s of processor"], most=60)
    recall = next(row["recall@20"] for row in rows if row[""] == f"without lift, {PROBES} lists")
    section.must(f"recall@20 without lift, {PROBES} lists, the default", recall, least=0.95)
    section.tables["Libraries, the random model, one thread"] = in_a_process("ann", "libraries", many, requests)
    if real("gowalla-lightgcn") is not None:
        section.tables["Libraries, Gowalla, one thread"] = in_a_process("ann", "libraries", None, requests)
    return section


def main() -> None:
    command("ann", run)


if __name__ == "__main__":
    main()
