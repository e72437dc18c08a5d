"""Whole fits on a real Ray, from the data to the model: the bits of one machine, checkpoints that go on anywhere, and
the program itself killed and interrupted."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate import Recommender
from considerate.distributed.backends.out_of_core import OutOfCore
from considerate.distributed.backends.ray import RayBackend
from considerate.fitting.checkpoint import INDEX, Checkpoints, part_file, sweep_folder
from tests.fitting.test_known_fits import large
from tests.helpers.divided_fits import SETTINGS, assert_same, made, write_likes
from tests.helpers.feature_fits import fitted, side_of
from tests.helpers.likes import fit_steps
from tests.helpers.ray_cluster import kill_worker, start_shared_ray
from tests.helpers.shell import PROGRAM

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def likes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_likes(tmp_path_factory.mktemp("data") / "likes.parquet")


def test_a_cluster_that_is_not_there_is_one_sentence(likes: Path, tmp_path: Path) -> None:
    options = ("fit", str(likes), "-o", str(tmp_path / "model"), "--backend", "ray", "--address", "127.0.0.1:1")
    command = [*PROGRAM, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("considerate: There is no Ray to join at 127.0.0.1:1: ")
    assert done.stderr.endswith("Connection refused; see `ray status`, or give another --address.\n")
    assert done.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == []


# --- In one Ray ---


@pytest.fixture(scope="module")
def running() -> None:
    """A Ray that the backends join and leave alone."""
    start_shared_ray()


@pytest.mark.usefixtures("running")
def test_by_users_with_item_shards_the_bits_of_one_machine(likes: Path, tmp_path: Path) -> None:
    said: list[str] = []
    model = made(**SETTINGS["expected"])
    backend = RayBackend(workers=2, threads=1, item_shards=3)
    notes = [
        step.note for step in fit_steps(model, likes, backend, model_folder=str(tmp_path / "model"), say=said.append)
    ]
    wanted = made(**SETTINGS["expected"]).fit(likes)
    assert_same(model, wanted)
    assert_same(Recommender.load(tmp_path / "model"), wanted)
    assert len(glob.glob(str(tmp_path / "model" / "users-*"))) == 3
    assert all("slowest block" in note and "MB down" in note for note in notes)
    assert said[0] == f"Running on Ray {ray.__version__} on 1 node: 2 workers of 1 thread."
    assert said[1].startswith("Divided by users over 2 workers (3 parts): a sweep sends")
    assert "The items' sums come in 3 shards" in said[1]


@pytest.mark.usefixtures("running")
def test_weights_of_features_have_the_bits_of_one_machine(likes: Path) -> None:
    side = side_of(likes)
    found = fitted(likes, side, RayBackend(workers=2, threads=1), opening=2)
    assert_same(found, fitted(likes, side, opening=2))


@pytest.mark.usefixtures("running")
def test_weights_of_likes_have_the_bits_of_one_machine() -> None:
    likes = large()[0].copy()
    likes.data = np.random.default_rng(0).integers(1, 50, likes.nnz).astype(np.float64)
    found = made(opening=2).fit(likes, weight="log1p", backend=RayBackend(workers=2, threads=1))
    assert_same(found, made(opening=2).fit(likes, weight="log1p"))
    assert not np.array_equal(found.item_factors, made(opening=2).fit(likes).item_factors)


@pytest.mark.usefixtures("running")
def test_known_pairs_and_rules_have_the_bits_of_one_machine() -> None:
    likes, beside = large()
    settings = {"opening": 2, "negatives": 0.7}
    found = made(**settings).fit(likes, **beside, backend=RayBackend(workers=2, threads=1))
    wanted = made(**settings).fit(likes, **beside)
    assert_same(found, wanted)
    ids = found.recommend([3, 1700], N=300)[0]
    assert np.array_equal(ids, wanted.recommend([3, 1700], N=300)[0])
    assert (ids < 0).any(), "what is impossible is left out"


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    ("kind", "how"), [("sampled", {"division": "items"}), ("expected", {"inner_sweeps": 2})], ids=["items", "inner"]
)
def test_other_posteriors_are_those_of_the_disk(kind: str, how: Any, likes: Path, tmp_path: Path) -> None:
    found = made(**SETTINGS[kind]).fit(likes, backend=RayBackend(workers=2, threads=1, **how))
    wanted = made(**SETTINGS[kind]).fit(likes, backend=OutOfCore(tmp_path / "parts", **how))
    assert_same(found, wanted)
    found.save(tmp_path / "model.safetensors")
    loaded = Recommender.load(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.recommend([0, 1799], by="row")[0], wanted.recommend([0, 1799], by="row")[0])


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("division", ["users", "items"])
def test_a_checkpoint_goes_on_with_other_workers_or_none(
    division: str, likes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here, on two workers, on three; a damaged one is not used, and a worker that is lost meanwhile is replaced."""
    kept, files = tmp_path / "kept", OutOfCore(tmp_path / "parts", division=division)
    wanted = made(sweeps=8).fit(likes, backend=files)
    keep: dict[str, Any] = {"checkpoint": kept, "checkpoint_every": 1, "resume": True}
    made(sweeps=2).fit(likes, backend=None if division == "users" else files, **keep)
    made(sweeps=4).fit(likes, backend=RayBackend(workers=2, threads=1, division=division), **keep)
    assert Checkpoints(str(kept), {}).complete() == [3, 4]
    path = kept / sweep_folder(4) / part_file(2)
    path.write_bytes(path.read_bytes()[:-1] + b"?")

    pools: list[Any] = []
    from considerate.distributed.ray.session import RaySession

    make = RaySession.make_pool
    monkeypatch.setattr(RaySession, "make_pool", lambda *given, **how: pools.append(make(*given, **how)) or pools[-1])

    def lose_one(sweep: int, *_: float) -> None:
        if sweep == 6:
            assert kill_worker(pools[-1].workers.all[1], "system") is not None

    with pytest.warns(UserWarning, match="sweep-000004: this checkpoint is not used"):
        found = made(sweeps=8).fit(
            likes, backend=RayBackend(workers=3, threads=1, division=division), callback=lose_one, **keep
        )
    assert_same(found, wanted)
    assert_same(made(sweeps=8).fit(likes, backend=files, **keep), wanted)


# --- The program itself ---

MARK = "CONSIDERATE_TEST"  # in the environment of the program and of all that it starts
AGENTS = ("", "ray::DashboardAgent", "ray::RuntimeEnvAgent")


def marked(mark: str) -> dict[int, str]:
    """The processes that are left of a program, by number: their names."""
    found = {}
    for path in glob.glob("/proc/[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in Path(path, "environ").read_bytes().split(b"\0"):
                found[int(path.split("/")[2])] = Path(path, "cmdline").read_text().split("\0")[0].strip()
    return found


class Program:
    """`considerate fit` on a local Ray, in a session of its own, as a terminal has it."""

    def __init__(self, mark: str, *arguments: object) -> None:
        self.mark = mark
        command = [*PROGRAM, "fit", *map(str, arguments)]
        ray_options = ["--backend", "ray", "--workers", "2", "--worker-threads", "1"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.process = subprocess.Popen(
            command + ray_options,
            env=environment | {MARK: mark},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for(self, kept: Path, least: int) -> None:
        """Until there is a whole checkpoint of a sweep from `least` on."""
        ends = time.monotonic() + 120
        while time.monotonic() < ends and self.process.poll() is None:
            if any(int(path.parent.name[-6:]) >= least for path in kept.glob(f"sweep-*/{INDEX}")):
                return
            time.sleep(0.01)
        pytest.fail(f"no checkpoint of sweep {least} came: {self.end()}")

    def end(self) -> str:
        """What it said. Whatever it left running is ended."""
        try:
            said = self.process.communicate(timeout=120)[1]
        finally:
            for pid in marked(self.mark):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for path in glob.glob(os.path.join(tempfile.gettempdir(), "ray", f"session_*_{self.process.pid}")):
                shutil.rmtree(path, ignore_errors=True)
        return said

    def left(self) -> list[str]:
        """What still runs of it, when there was time to end. Ray's agents, where all else was killed, may try for a
        minute to tell the head of it; then they end too."""
        ends = time.monotonic() + 30
        while time.monotonic() < ends:
            names = [name for name in marked(self.mark).values() if name not in AGENTS]
            if not names:
                break
            time.sleep(0.05)
        return names


linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
OPTIONS = ("--factors", 3, "--tolerance", 0, "--threads", 1, "--seed", 3, "--checkpoint-every", 1)


@linux
def test_killed_the_program_goes_on_to_the_same_model(likes: Path, tmp_path: Path) -> None:
    kept, model = tmp_path / "kept", tmp_path / "out" / "model.safetensors"
    model.parent.mkdir()
    first = Program(str(tmp_path), likes, "-o", model, *OPTIONS, "--checkpoint", kept, "--sweeps", 5000)
    try:
        first.wait_for(kept, 3)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        assert first.left() == []  # a Ray ends with the program that started it
    finally:
        first.process.kill()
        first.end()
    assert os.listdir(model.parent) == []
    last = Checkpoints(str(kept), {}).complete()[-1]
    again = Program(str(tmp_path), likes, "-o", model, *OPTIONS, "--checkpoint", kept, "--resume", "--sweeps", last + 2)
    said = again.end()
    assert again.process.returncode == 0, said
    assert "the fit goes on after sweep" in said
    assert os.listdir(model.parent) == ["model.safetensors"]
    assert_same(Recommender.load(model), made(sweeps=last + 2).fit(likes))


@linux
def test_interrupted_the_program_saves_the_last_finished_sweep_and_leaves_no_ray(likes: Path, tmp_path: Path) -> None:
    kept, model = tmp_path / "kept", tmp_path / "out" / "model"
    model.parent.mkdir()
    options = (*OPTIONS, "--checkpoint", kept, "--save-interrupted")
    program = Program(str(tmp_path), likes, "-o", model, *options, "--sweeps", 5000, "--sharded")
    try:
        program.wait_for(kept, 2)
        os.killpg(program.process.pid, signal.SIGINT)  # as a terminal does: all of its processes get it
        program.process.wait(120)
        assert program.left() == []
        session = glob.glob(os.path.join(tempfile.gettempdir(), "ray", f"session_*_{program.process.pid}"))
        assert session == []
    finally:
        program.process.kill()
        said = program.end()
    assert program.process.returncode == 130, said
    found = Recommender.load(model)
    assert f"interrupted; the posterior of sweep {found.n_iter_} is saved in {model}" in said.splitlines()[-1]
    assert_same(found, made(sweeps=found.n_iter_).fit(likes))
    assert os.listdir(model.parent) == ["model"]
    assert Checkpoints(str(kept), {}).complete()[-1] == found.n_iter_
