"""A million users, a million items and 20 million likes, from a file to recommendations.

    python -m benchmarks million

Degrees follow power laws. Each stage is a process of its own; its peak is VmHWM, and beside it is the memory that is
not of files. The ns of processor an edge of H are held against a graph by the laws of the paper's Xbox sample, at the
same K.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import THREADS, Row, Section, command, in_a_process, peak_bytes
from benchmarks.xbox import Anonymous
from considerate.inference.parts.closed_form import OPENING

COUNT, FACTORS, NEGATIVES, SWEEPS, FEW_SWEEPS = 1_000_000, 32, 1.0, 10, 2
FIRST_DRAWS = OPENING + 1  # the first sweep that has draws, and pays for their memory
XBOX_USERS, LISTS, FOLDED, JUDGED = 2_700_000, 100_000, 1_000, 2_000


@contextmanager
def stage(name: str) -> Iterator[Row]:
    """A row of the table, with the seconds and the memory of what is done inside."""
    watch, row = Anonymous(), Row(stage=name)
    watch.start()
    begun, at_work = time.perf_counter(), time.process_time()
    yield row
    row |= {"s": time.perf_counter() - begun, "s of processor": time.process_time() - at_work}
    row |= {"peak GB": peak_bytes() / 1e9, "not of files": watch.most / 1e9}


def write_likes(path: str, users: int, items: int, files: int = 1, laws: str = "million") -> Row:
    """Likes as Parquet files of consecutive users: degrees by a power law, items drawn by a popularity of another."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from benchmarks.data import drawn_likes
    from considerate.simulation.degrees import PowerLaw
    from considerate.simulation.simulate import XBOX_SAMPLE, balanced_item_law

    with stage("simulate") as row:
        user_law, item_law = PowerLaw(1.4, cutoff=70.0, minimum=5), PowerLaw(0.77)
        if laws == "Xbox":
            user_law, item_law = XBOX_SAMPLE.user_law, XBOX_SAMPLE.item_law
        law = balanced_item_law(user_law, item_law, users=users, items=items)
        popularity, likes = law.sample(items, 0).astype(np.float64), 0
        for number, some in enumerate(np.array_split(np.arange(users, dtype=np.int32), files)):
            drawn = drawn_likes(user_law.bounded(items).sample(len(some), number), popularity, number)
            rows = {"user": np.repeat(some, drawn.degrees), "item": drawn.indices}
            pq.write_table(pa.table(rows), Path(path) / f"part-{number:03}.parquet")
            likes += drawn.edges
    return row | {"likes": likes}


def digest(model: Any) -> str:
    """Of the vectors of all users and items, to the last bit."""
    found = hashlib.sha256()
    for side in (model.users.whole().side, model.items):
        for array in side.arrays():
            if array is not None:
                found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()[:16]


def fit(
    folder: str,
    output: str,
    way: str,
    likes: int,
    sweeps: int,
    negatives: float = NEGATIVES,
    opening: int | None = None,
) -> Row:
    """A fit in memory or out of core; with an output, the model file too. The digest is that after FIRST_DRAWS sweeps,
    and the times are of those after them; or both are of the last."""
    from considerate import Recommender
    from considerate.distributed.backends.out_of_core import OutOfCore

    backend = OutOfCore(folder=Path(folder).parent, threads=THREADS) if way == "out of core" else None
    settings = {"factors": FACTORS, "negatives": negatives, "opening": opening}
    model = Recommender(**settings, sweeps=sweeps, tolerance=0.0, threads=THREADS)
    seconds, at_work, bits = [], [], ""
    with stage(f"fit {way}, {sweeps} sweeps") as row:
        before = time.process_time()
        for step in model.fit_steps(folder, backend=backend):
            seconds.append(step.seconds)
            at_work.append(time.process_time() - before)
            if backend is None and len(seconds) == FIRST_DRAWS:
                bits = digest(model.model_)
            before = time.process_time()
        if output:
            begun = time.perf_counter()
            model.save(output)
            row["s to save"] = time.perf_counter() - begun
    edges, drawn = (1 + negatives) * likes, slice(min(FIRST_DRAWS, sweeps - 1), None)
    return row | {
        "s a sweep": float(np.median(seconds[drawn])),
        "ns of processor an edge": 1e9 * float(np.median(at_work[drawn])) / edges,
        "bits": bits or digest(model.model_),
    }


def serve(path: str, lists: int) -> list[Row]:
    """Open the file, recommend to one and to many, fold users in, evaluate."""
    from considerate import Recommender
    from considerate.data.graph import Graph
    from considerate.evaluation.ranks import held_ranks
    from considerate.evaluation.scorer import ModelScorer
    from considerate.evaluation.split import one_per_user
    from considerate.kernels.threads import LocalBackend

    rows = []
    with stage("open the model file") as row:
        model = Recommender.load(path)
    rows.append(row)
    with stage("the first list, of 10 items") as row:
        model.recommend(0)
    rows.append(row)
    with stage("one list more") as row:
        model.recommend(1)
    rows.append(row)
    with stage(f"10 items each for {lists:,} users") as row:
        model.recommend(np.arange(lists))
    rows.append(row)
    liked = model.model_.users.whole().liked
    with stage(f"fold in {FOLDED:,} users") as row:
        import scipy.sparse

        some = liked.between(0, FOLDED)
        ones = np.ones(some.edges, np.float32)
        model.fold_in(scipy.sparse.csr_matrix((ones, some.indices, some.starts), (FOLDED, model.model_.item_count)))
    rows.append(row)
    with stage(f"ranks of {JUDGED:,} users' likes among all items") as row, LocalBackend(THREADS) as threads:
        graph = Graph.from_adjacency(liked, model.model_.item_count)
        held = one_per_user(graph, 0)
        few = replace(held, users=held.users[:JUDGED], items=held.items[:JUDGED])
        held_ranks(ModelScorer(model.model_), few, threads.map)
    return [*rows, row]


def run(quick: bool = False) -> Section:
    size, xbox_users, lists = (20_000, 40_000, 1_000) if quick else (COUNT, XBOX_USERS, LISTS)
    sweeps = FIRST_DRAWS + 1 if quick else SWEEPS
    section = Section(f"A million users and items: K = {FACTORS}, c = {NEGATIVES:g}, {THREADS} threads")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("likes", "xbox"):
            (folder / part).mkdir()
        model, likes, xbox = str(folder / "model"), str(folder / "likes"), str(folder / "xbox")
        rows = [in_a_process("million", "write_likes", likes, size, size)]
        count = rows[0]["likes"]
        rows.append(in_a_process("million", "fit", likes, model, "in memory", count, sweeps))
        rows.append(in_a_process("million", "fit", likes, "", "out of core", count, FIRST_DRAWS))
        rows += in_a_process("million", "serve", model, lists)
        xbox_likes = in_a_process("million", "write_likes", xbox, xbox_users, 12_000, 1, "Xbox")["likes"]
        other = in_a_process("million", "fit", xbox, "", "in memory", xbox_likes, sweeps)
    section.tables[f"{count:,} likes of {size:,} users and {size:,} items"] = rows
    section.tables[f"{xbox_likes:,} likes by the laws of the Xbox sample"] = [other]
    fitted, spilled = rows[1], rows[2]
    section.notes = [
        "Users' degrees: d^-1.4 exp(-d / 70) from 5 on. Items are drawn by popularity, d^-0.77 cut off by eq. 1.",
        f"Seconds and ns of a sweep are medians of those after the first {FIRST_DRAWS}, which draw by the walk; out of "
        "core they are of the last, which does.",
    ]
    section.must(
        "out of core: the bits of the fit in memory (1 is yes)", int(fitted["bits"] == spilled["bits"]), least=1
    )
    ratio = fitted["ns of processor an edge"] / other["ns of processor an edge"]
    section.must("ns of processor an edge, times those of the Xbox laws", None if quick else ratio, most=1.5)
    return section


def main() -> None:
    command("million", run)


if __name__ == "__main__":
    main()
