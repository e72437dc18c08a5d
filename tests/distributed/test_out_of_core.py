"""Out of core: parts in files, the posterior of the fit in memory to the last bit, and nothing left on the disk."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from considerate import Recommender
from considerate.data.graph import Adjacency, GraphPart
from considerate.data.vocabulary import Vocabulary
from considerate.distributed.backends.out_of_core import OutOfCore
from considerate.distributed.pools import PerPart
from considerate.distributed.tasks import LEAST, SpillingTasks, spilled
from considerate.errors import DataError, OutputError, UsageError
from considerate.fitting.checkpoint import INDEX, Checkpoints
from considerate.storage.filesystems import LOCK, SCRATCH
from tests.helpers.divided_fits import SETTINGS, assert_same, made, several_parts, write_likes
from tests.helpers.shell import PROGRAM, run

kinds = pytest.mark.parametrize("kind", SETTINGS)


@pytest.fixture(scope="module")
def likes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_likes(tmp_path_factory.mktemp("data") / "likes.parquet")


@pytest.fixture(scope="module")
def plain(likes: Path) -> dict[str, Recommender]:
    return {kind: made(**settings).fit(likes) for kind, settings in SETTINGS.items()}


# --- The same bits ---


@kinds
@pytest.mark.parametrize("how", [{"threads": 1}, {"threads": 2, "item_shards": 3}], ids=["plain", "item shards"])
def test_the_bits_of_the_fit_in_memory(kind: str, how: Any, likes: Path, plain: Any, tmp_path: Path) -> None:
    found = made(**SETTINGS[kind]).fit(likes, backend=OutOfCore(folder=tmp_path / "new", **how))
    assert_same(found, plain[kind])
    assert os.listdir(tmp_path / "new") == []
    ids, scores = found.recommend([3, 1700], by="row")
    wanted = plain[kind].recommend([3, 1700], by="row")
    assert np.array_equal(ids, wanted[0])
    assert np.array_equal(scores, wanted[1])


def test_any_source_and_ids_that_are_row_numbers(tmp_path: Path) -> None:
    matrix = several_parts()
    found = made(sweeps=2).fit(matrix, backend=OutOfCore(tmp_path))
    assert_same(found, made(sweeps=2).fit(matrix))
    assert found.model_.user_ids.kind == "range"


@kinds
def test_by_items_it_is_one_posterior_for_any_threads(kind: str, likes: Path, plain: Any, tmp_path: Path) -> None:
    one, two = (
        made(**SETTINGS[kind]).fit(likes, backend=OutOfCore(tmp_path, threads=threads, division="items"))
        for threads in (1, 2)
    )
    assert_same(one, two)
    q, p = one.posterior_, plain[kind].posterior_
    for mine, theirs in ((q.users, p.users), (q.items, p.items)):
        np.testing.assert_allclose(mine.rows, theirs.rows, atol=2e-4)
    assert not np.array_equal(q.users.rows, p.users.rows)  # added along another tree
    assert np.array_equal(one.recommend(5, by="row")[0], plain[kind].recommend(5, by="row")[0])
    one.save(tmp_path / "model.safetensors")
    assert_same(Recommender.load(tmp_path / "model.safetensors"), two)
    assert sorted(os.listdir(tmp_path)) == ["model.safetensors"]


def test_the_shell_writes_the_same_file(likes: Path, tmp_path: Path) -> None:
    options = ("fit", likes, "--factors", 3, "--tolerance", 0, "--sweeps", 4, "--threads", 2)
    whole = run(*options, "-o", tmp_path / "whole.safetensors")
    found = run(*options, "-o", tmp_path / "model.safetensors", "--out-of-core")
    assert (whole.exit_code, found.exit_code) == (0, 0), found.output
    assert (tmp_path / "model.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    assert "note: Running on this machine, out of core: parts in" in found.stderr
    assert "note: Divided by users into 3 parts, 2 of them in memory at a time." in found.stderr
    sharded = run(*options, "-o", tmp_path / "shards", "--out-of-core", "--sharded", "--no-likes")
    assert sharded.exit_code == 0, sharded.output
    assert not Recommender.load(tmp_path / "shards").model_.users.knows_likes
    assert sorted(os.listdir(tmp_path)) == ["model.safetensors", "shards", "whole.safetensors"]


# --- Memory ---


@pytest.mark.parametrize("way", [(), ("--out-of-core",)])
def test_the_memory_of_a_fit_may_be_given(way: tuple[str, ...], likes: Path, tmp_path: Path) -> None:
    """In place of what the system says, for this fit alone."""
    options = ("fit", likes, "--factors", 8, "--sweeps", 2, "-o", tmp_path / "model.safetensors", *way, "--memory")
    refused = run(*options, "1MB")
    assert refused.exit_code == 1
    assert re.search(r"needs about .* and .* are free", refused.stderr)
    bad = run(*options, "plenty")
    assert bad.exit_code == 2
    assert "--memory is 'plenty'; it must be a size such as 12GB or 8GiB, or unlimited." in bad.stderr
    assert "CONSIDERATE_MEMORY" not in os.environ
    enough = run(*options, "unlimited")
    assert enough.exit_code == 0, enough.stderr
    assert "2 sweeps (2 of them an opening in closed form) in" in " ".join(enough.stdout.split())


def test_memory_is_bounded_by_a_part(tmp_path: Path) -> None:
    """The same sweep, in memory and out of core: what is in memory at once."""
    random, users, factors = np.random.default_rng(0), 40_000, 48
    items = (random.random(12 * users) ** 2 * 100).astype(np.int64)
    pq.write_table(pa.table({"user": np.repeat(np.arange(users), 12), "item": items}), tmp_path / "likes.parquet")

    def peak(backend: OutOfCore | None) -> int:
        steps = made(factors=factors, sweeps=2).fit_steps(tmp_path / "likes.parquet", backend=backend)
        tracemalloc.start()
        try:
            next(steps)
            gc.collect()
            tracemalloc.reset_peak()  # reading is another matter
            next(steps)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            steps.close()

    whole, parts = peak(None), peak(OutOfCore(tmp_path, threads=1))
    rows = users * 2 * factors * 4  # bytes of the users' rows
    assert whole > 2 * rows
    assert parts < rows


@dataclass(frozen=True)
class Box:
    name: str
    array: np.ndarray


def test_large_results_are_in_files_that_nobody_sees(tmp_path: Path) -> None:
    large, small = np.arange(LEAST, dtype=np.int32), np.arange(9)
    part = GraphPart(3, 100, Adjacency(np.arange(LEAST), large), small)
    ids = Vocabulary.of_strings(f"user {number}" for number in range(20_000))
    texts = np.array(["a", None], object).repeat(LEAST)
    given = {"part": part, "ids": ids, "list": [large.reshape(2, -1).T, (small, "text")], "texts": texts}
    session = len(os.listdir("/dev/fd"))
    found = spilled(given, str(tmp_path))
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/dev/fd")) == session  # there may be more results than files that may be open
    for array in (found["part"].likes.starts, found["part"].likes.indices, found["ids"].text, found["list"][0]):
        assert not array.flags.writeable
        assert _mapped(array)
    assert np.array_equal(found["part"].likes.indices, large)
    assert np.array_equal(found["list"][0], given["list"][0])
    assert found["ids"].rows_of(["user 77"]) == ids.rows_of(["user 77"])
    assert found["part"].blocks is small
    assert found["texts"] is texts
    assert spilled(small, str(tmp_path)) is small
    assert spilled(Box("a", small), str(tmp_path)).array is small
    assert _mapped(spilled(Box("a", large), str(tmp_path)).array)


def _mapped(array: np.ndarray) -> bool:
    base: Any = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return isinstance(base, pa.Buffer)


def test_what_tasks_give_and_are_given_is_mapped(tmp_path: Path) -> None:
    with SpillingTasks(str(tmp_path), 2) as tasks:
        ref = tasks.put(np.ones(LEAST))
        one, two = tasks.submit(_halves, ref, returns=2)
        assert all(_mapped(tasks.get(each)) for each in (ref, one, two))
        assert tasks.get(tasks.submit(_mapped, one)) is True
        with pytest.raises(ValueError, match="_halves gave 2 results; 3 were announced"):
            tasks.get(tasks.submit(_halves, ref, returns=3)[0])
    assert os.listdir(tmp_path) == []
    gone = SpillingTasks(str(tmp_path / "gone"), 1)
    with gone, pytest.raises(OutputError, match=r"1\.0 MB of what was read cannot be written there \(No such file"):
        gone.put(np.zeros(1 << 20, np.uint8))


def _halves(array: np.ndarray) -> list[np.ndarray]:
    return [array[: len(array) // 2], array[len(array) // 2 :]]


def test_an_argument_may_be_another_one_for_every_part(likes: Path, tmp_path: Path) -> None:
    with OutOfCore(tmp_path, threads=2).open() as session:
        parts = [
            session.tasks.put(GraphPart(i, 2 * i, Adjacency(np.arange(3), np.zeros(2, np.int32)), np.array([0, 2])))
            for i in range(3)
        ]
        pool = session.make_pool(lambda part, setup, *_: part, None, parts)
        words = [session.tasks.put(word) for word in "abc"]
        assert pool.call(lambda part, word: (part.number, word), PerPart(words)) == [(0, "a"), (1, "b"), (2, "c")]
        pool.close()


# --- Nothing is left ---


def test_nothing_is_left_however_a_fit_ends(likes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = OutOfCore(tmp_path)

    def ended_by(error: type[BaseException]) -> Recommender:
        def stop(sweep: int, *_: float) -> None:
            if sweep == 2:
                assert len(os.listdir(tmp_path)) == 1
                raise error

        model = made(sweeps=50)
        try:
            return model.fit(likes, callback=stop, backend=backend)
        except error:
            return model

    wanted = made(sweeps=2).fit(likes)
    for error in (KeyboardInterrupt, ZeroDivisionError):
        assert_same(ended_by(error), wanted)
        assert os.listdir(tmp_path) == []
    steps = made().fit_steps(likes, backend=backend)
    next(steps)
    steps.close()
    assert os.listdir(tmp_path) == []
    one_item = pa.table({"user": [1, 2, 3], "item": [5, 5, 5]})
    pq.write_table(one_item, tmp_path.parent / "one.parquet")
    with pytest.raises(DataError, match="only one item"):
        made().fit(tmp_path.parent / "one.parquet", backend=backend)
    assert os.listdir(tmp_path) == []

    def full(*_: Any, **__: Any) -> None:
        raise OutputError("the disk is full.")

    monkeypatch.setattr("considerate.distributed.backends.out_of_core.write_scratch", full)
    with pytest.raises(OutputError, match="full"):
        made().fit(likes, backend=backend)
    assert os.listdir(tmp_path) == []


def test_a_model_of_no_given_place_goes_with_its_users(likes: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = made(sweeps=1).fit(likes, backend=OutOfCore())
    assert [name[:18] for name in os.listdir(tmp_path)] == ["considerate-model-"]
    kept = model.model_
    del model
    gc.collect()
    assert kept.users.some(np.array([1799]))[0].ids.ids_of([0])  # whoever holds the model may ask for more users
    del kept
    gc.collect()
    assert os.listdir(tmp_path) == []
    with pytest.raises(DataError):
        made().fit(tmp_path / "missing.parquet", backend=OutOfCore())
    assert os.listdir(tmp_path) == []


KILLED = """
import os, signal, sys
from considerate.distributed.backends.out_of_core import OutOfCore
opened = OutOfCore(sys.argv[1]).open()
open(os.path.join(opened._folder, "graph"), "w").close()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_fit_left_is_removed_by_the_next(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False).returncode == -9
    (killed,) = os.listdir(tmp_path)
    assert sorted(os.listdir(tmp_path / killed)) == ["graph", LOCK]
    others = tmp_path / f"{SCRATCH}without-a-lock"
    others.mkdir()
    with OutOfCore(tmp_path).open() as one:
        with OutOfCore(tmp_path).open() as two:
            rooms = {os.path.basename(session._folder) for session in (one, two)}
            assert set(os.listdir(tmp_path)) == rooms | {others.name}  # those in use are left alone
        assert os.path.isdir(one._folder)
    assert os.listdir(tmp_path) == [others.name]


@pytest.mark.parametrize(
    ("how", "times"), [(signal.SIGKILL, 1), (signal.SIGINT, 1), (signal.SIGINT, 8)], ids=["killed", "interrupted", "8x"]
)
def test_the_program_is_stopped_and_goes_on(how: signal.Signals, times: int, likes: Path, tmp_path: Path) -> None:
    """At some moment or other of a sweep; an impatient user presses Ctrl-C until it ends."""
    out, kept = tmp_path / "out", tmp_path / "kept"
    out.mkdir()
    options = ["fit", likes, "-o", out / "model.safetensors", "--out-of-core", "--checkpoint", kept]
    options += ["--factors", 3, "--tolerance", 0, "--threads", 2, "--seed", 3, "--save-interrupted"]
    started = [*PROGRAM, *options, "--sweeps", 100_000]
    process = subprocess.Popen([str(one) for one in started], stderr=subprocess.PIPE, text=True)
    try:
        ends = time.monotonic() + 60
        while not list(kept.glob(f"sweep-*/{INDEX}")) and time.monotonic() < ends:
            assert process.poll() is None
            time.sleep(0.005)
        time.sleep(float(np.random.default_rng().random()) / 20)
        for _ in range(times):
            process.send_signal(how)
            time.sleep(0.02 * (times > 1))
        said = process.communicate(timeout=60)[1]
    finally:
        process.kill()
    if how is signal.SIGINT:
        assert process.returncode == 130, said
        assert "Traceback" not in said
        assert os.listdir(out) == ["model.safetensors"]
        found = Recommender.load(out / "model.safetensors")
        assert_same(found, made(sweeps=found.n_iter_).fit(likes))
    sweeps = Checkpoints(str(kept), {}).complete()[-1] + 2
    assert run(*options, "--resume", "--sweeps", sweeps).exit_code == 0
    assert_same(Recommender.load(out / "model.safetensors"), made(sweeps=sweeps).fit(likes))
    assert os.listdir(out) == ["model.safetensors"]  # and not the parts of the fit that was killed


def test_places_and_settings_that_cannot_be(likes: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="no folder can be made there for the parts"):
        OutOfCore(tmp_path / "file").open()
    for wrong in (
        {"threads": 0},
        {"threads": 1.5},
        {"threads": True},
        {"item_shards": 0},
        {"inner_sweeps": 0},
        {"inner_sweeps": None},
    ):
        with pytest.raises(UsageError, match=f"{next(iter(wrong))} is .*; it must be a whole number at least 1"):
            OutOfCore(**wrong)
    for wrong, said in (
        ({"division": "rows"}, "division is 'rows'; it must be one of auto, users, items"),
        ({"inner": "some"}, "inner is 'some'; it must be one of one, all"),
        ({"division": "items", "inner_sweeps": 2}, "inner_sweeps needs a division by users"),
        ({"division": "items", "item_shards": 2}, "item_shards needs a division by users"),
        ({"inner_sweeps": 2, "item_shards": 2}, "do not go together"),
    ):
        with pytest.raises(UsageError, match=said):
            OutOfCore(**wrong)
