"""A divided fit from its options to its model: what is refused and when, what is said, how it may end, checkpoints.

The backends here are files and a stand-in for workers elsewhere; Ray itself is in test_ray_driver.py.
"""

from __future__ import annotations

import io
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from considerate import Recommender
from considerate.distributed.backends.base import PartitionedBackend
from considerate.distributed.backends.out_of_core import OutOfCore
from considerate.distributed.backends.ray import RayBackend
from considerate.errors import CheckpointError, ClusterError, DataError, DivergedError, OutputError, UsageError
from considerate.fitting.checkpoint import Checkpoints, part_file, sweep_folder
from considerate.fitting.progress import progress, reading_progress, summary
from tests.helpers.divided_fits import SETTINGS, Here, assert_same, made, write_likes
from tests.helpers.likes import as_table, fit_steps, interrupted, skewed
from tests.helpers.shell import run


@pytest.fixture(scope="module")
def likes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_likes(tmp_path_factory.mktemp("data") / "likes.parquet")


@pytest.fixture(scope="module")
def plain(likes: Path) -> dict[int, Recommender]:
    return {sweeps: made(sweeps=sweeps).fit(likes) for sweeps in (2, 3, 5)}


def never() -> None:
    pytest.fail("it was started")


# --- Refused before anything is started ---


@pytest.mark.parametrize(
    ("settings", "how", "said"),
    [
        ({"popularity": "auto"}, {}, "chosen on likes held out only where the graph is in memory; give numbers"),
        ({"likelihood_weight": "auto"}, {}, "chosen on likes held out only where the graph is in memory"),
        (
            {"popularity": "auto", "consideration": "walk", "gamma": "auto", "negatives": "auto"},
            {},
            "gamma and lift and negatives and popularity can be chosen on likes held",
        ),
        ({"factors": 65}, {"backend": Here(inner_sweeps=2, session=never)}, "inner sweeps need at most 64 factors"),
        ({"factors": 0}, {}, "factors is 0"),
        ({}, {"backend": "ray"}, r"backend is 'ray'; it must be None, RayBackend\(...\) or OutOfCore"),
        (
            {},
            {"reader": {"time_column": "t"}},
            "time_column is for splits by time; leave it out where the graph is divided",
        ),
        (
            {},
            {"reader": {"user": "t"}},
            "'user' is no option of the reader; it takes user_column, item",
        ),
        ({}, {"reader": "rating >= 4"}, "reader is 'rating >= 4'; expected a mapping such as"),
        ({}, {"reader": {"where": "nothing > 3"}}, "nothing"),
        ({}, {"reader": {"user_column": "nobody"}}, "nobody"),
        ({}, {"reader": {"titles": "missing.csv"}}, "missing.csv: there is no such file"),
        ({}, {"reader": {"title_column": "title"}}, "go with --titles"),
        ({}, {"reader": {"query": "select 1"}}, "--query goes with a database"),
        ({}, {"checkpoint_every": 0}, "checkpoint_every is 0"),
        ({}, {"resume": True}, "resume needs the folder"),
    ],
)
def test_settings_and_options_that_do_not_go_are_refused(settings: Any, how: Any, said: str, likes: Path) -> None:
    with pytest.raises((UsageError, DataError), match=said) as caught:
        made(**settings).fit(likes, **({"backend": Here(session=never)} | how))
    assert "\n" not in str(caught.value)


def test_data_that_cannot_be_divided_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"user": [1, 2], "item": [3, 4], "rating": [5, 1]}), tmp_path / "rated.parquet")
    pa.csv.write_csv(pa.table({"user": [1, 2], "item": [3, None]}), tmp_path / "missing.csv")
    for source, said in (
        (tmp_path / "nothing.parquet", "there is no such file"),
        (tmp_path / "rated.parquet", "not every rating is a like"),
        (tmp_path / "missing.csv", "item"),
        (3, "cannot read likes from 'int'"),
    ):
        with pytest.raises((UsageError, DataError), match=said):
            made().fit(source, backend=Here(session=never))
    with pytest.raises(DataError, match="only one item"):
        made().fit(pa.table({"user": [1, 2], "item": [3, 3]}), backend=Here())


def test_bad_places(likes: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "holiday").mkdir()
    (tmp_path / "holiday" / "photo.jpg").write_bytes(b"")
    for folder, said in (
        (tmp_path / "file", "is a file where a folder is needed"),
        (tmp_path / "file" / "below", "is a file where a folder is needed"),
        (tmp_path / "holiday", r"is a folder with other files in it \(photo.jpg\)"),
        ("nothing://there", "no filesystem answers"),
    ):
        with pytest.raises(UsageError, match=said):
            made().fit(likes, backend=Here(session=never), model_folder=folder)
    assert sorted(os.listdir(tmp_path)) == ["file", "holiday"]


def test_the_model_that_was_there_is_kept_where_a_fit_is_refused(likes: Path) -> None:
    model = made(sweeps=2).fit(skewed())
    with pytest.raises(DataError):
        model.fit("nothing.parquet", backend=Here(session=never))
    with pytest.raises(DataError, match="only one user"):
        model.fit(pa.table({"user": [1, 1], "item": [3, 4]}), backend=Here())
    assert model.n_iter_ == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--address", "auto"), "--address needs --backend ray"),
        (("--workers", 2), "--workers needs --backend ray"),
        (("--worker-threads", 2), "--worker-threads needs --backend ray"),
        (("--sharded",), "--sharded is for a divided graph"),
        (("--division", "items"), "--division, --item-shards, --inner-sweeps and --inner are for a divided graph"),
        (("--inner", "all"), "are for a divided graph"),
        (("--division", "rows", "--backend", "ray"), "'rows' is not one of"),
        (("--backend", "spark"), "'spark' is not one of"),
        (("--backend", "ray", "--out-of-core"), "--out-of-core is for --backend local"),
        (("--backend", "ray", "--workers", 0), "workers is 0"),
        (("--backend", "ray", "--worker-threads", 0), "threads is 0"),
        (("--backend", "ray", "--item-shards", 0), "item_shards is 0"),
        (("--backend", "ray", "--inner-sweeps", 0), "inner_sweeps is 0"),
        (("--backend", "ray", "--division", "items", "--inner-sweeps", 2), "needs a division by users"),
        (("--backend", "ray", "--inner-sweeps", 2, "--factors", 100), "inner sweeps need at most 64 factors"),
        (("--backend", "ray", "--address", "ray://head:10001"), "not that of a Ray Client"),
        (("--backend", "ray", "--popularity", "auto"), "give numbers"),
        (("--backend", "ray", "--likelihood-weight", "auto"), "give numbers"),
        (("--backend", "ray", "--where", "stars > 3"), "stars"),
        (("--backend", "ray", "--resume"), "resume needs the folder"),
        (("--backend", "ray", "--titles", "none.csv"), "none.csv: there is no such file"),
        (("--backend", "ray", "--sharded", "-o", "full"), "is a folder with other files in it"),
        (("--backend", "ray", "--sharded", "-o", "file"), "is a file where a folder is needed"),
        (("--backend", "ray", "--sharded", "-o", "new", "--checkpoint", "new"), "give each a folder of its own"),
        (("--out-of-core", "--threads", 0), "threads is 0"),
        (("--out-of-core", "--sharded", "-o", "nothing://x"), "no filesystem answers"),
    ],
)
def test_the_shell_refuses_in_one_sentence(
    options: Any, said: str, likes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for kind in (RayBackend, OutOfCore):
        monkeypatch.setattr(kind, "open", lambda _: never())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "other").write_bytes(b"")
    (tmp_path / "file").write_bytes(b"")
    before = sorted(os.listdir(tmp_path))
    result = run("fit", likes, "-o", "model.safetensors", *options)
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    assert said in result.stderr
    assert result.stdout == ""
    assert sorted(os.listdir(tmp_path)) == before


def test_the_shell_without_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RayBackend, "open", lambda _: never())
    result = run("fit", tmp_path / "nothing.parquet", "-o", tmp_path / "model.safetensors", "--backend", "ray")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("sharded", [False, True])
def test_a_cluster_that_fails_is_exit_code_1(
    sharded: bool, likes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(method: Any, call: Callable[[], Any]) -> Any:
        if method == "visit":
            raise ClusterError("Worker 2 of 2 was lost 4 times in a row, so the fit cannot go on.")
        return call()

    monkeypatch.setattr(RayBackend, "open", lambda _: Here(meddle=lost).open())
    result = run("fit", likes, "-o", tmp_path / "out", "--backend", "ray", *(["--sharded"] if sharded else []))
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("considerate: Worker 2 of 2 was lost")
    assert os.listdir(tmp_path) == []


# --- What is said ---


def test_the_costs_of_a_division_are_said_before_the_first_sweep(likes: Path) -> None:
    said: list[str] = []
    read: list[Any] = []
    steps = fit_steps(made(), likes, Here(), say=said.append, on_read_progress=lambda *told: read.append(told))
    first = next(steps)
    steps.close()
    assert said[0] == "Running on two workers in this process."
    assert said[1].startswith("Divided by users over 2 workers (3 parts): ")
    assert "a sweep sends" in said[1]
    assert said[2] == "users are taken from the column 'user', items from 'item'"
    assert [told[0] for told in read if told[1] == told[2]] == ["reading", "exchanging", "dividing"]
    assert first.note == "slowest block 1 0.01 s  2 MB down, 3 MB up"


def test_more_factors_than_there_is_data_for(tmp_path: Path) -> None:
    table = as_table(skewed(users=20, items=10))
    with pytest.warns(UserWarning, match="factors=11 is more than the 10 users or items"):
        made(factors=11, sweeps=1).fit(table, backend=Here())


def test_a_bar_for_sweeps_shows_what_the_workers_took(likes: Path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    steps = list(progress(made(sweeps=3).fit_steps(likes, backend=Here()), 3, console, later=True))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "sweep 3/3" in shown
    assert summary(steps[-1])[0] in shown
    assert "0:00:00" in shown  # the time that is left
    assert "  slowest block 1 0.01 s  2 MB down, 3 MB up" in shown
    assert summary(next(made().fit_steps(skewed())))[1].startswith("E[tau] user ")


@pytest.mark.parametrize(("done", "shown"), [(1, "opening 1/4"), (2, "sweep 2/4")])
def test_the_bar_says_which_sweeps_are_an_opening(done: int, shown: str) -> None:
    """The sweep under way is the one after those that are done."""
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    steps = progress(made(sweeps=4, consideration="walk", opening=2).fit_steps(skewed()), 4, console, opening=2)
    for _ in range(done):
        next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert shown in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_bar_for_reading_goes_when_a_stage_ends() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with reading_progress(console) as told:
        for done in range(4):
            told("reading", done, 3)
        assert not console._live_stack
        told("dividing", 0, 2)
        assert console._live_stack
    assert not console._live_stack  # a stage that failed leaves none either
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "reading" in shown
    assert "3/3" in shown
    with reading_progress(Console(file=(quiet := io.StringIO()))) as told:
        told("nothing to do", 0, 0)
    assert quiet.getvalue() == ""


# --- How it may end ---


class AtCall:
    """Does something in place of the n-th call of a method."""

    def __init__(self, method: str, count: int, act: Callable[[Callable[[], Any]], Any]) -> None:
        self.method, self.count, self.act = method, count, act

    def __call__(self, method: Any, call: Callable[[], Any]) -> Any:
        name = method if isinstance(method, str) else getattr(method, "func", method).__name__
        self.count -= name == self.method
        if name == self.method and self.count == 0:
            return self.act(call)
        return call()


def interrupt(call: Callable[[], Any]) -> None:
    raise KeyboardInterrupt


def interrupt_later(call: Callable[[], Any]) -> None:
    call()
    raise KeyboardInterrupt


@pytest.mark.parametrize("act", [interrupt, interrupt_later])
def test_ctrl_c_within_a_sweep(act: Any, likes: Path, plain: Any, tmp_path: Path) -> None:
    """The parts may have made their step when the head is interrupted; the model is still that of one sweep."""
    backend = Here(meddle=AtCall("visit", 4, act))
    found = interrupted(made(sweeps=9), likes, backend=backend, checkpoint=tmp_path, checkpoint_every=2)
    assert_same(found, plain[3])
    assert Checkpoints(str(tmp_path), {}).complete() == [2, 3]
    assert_same(made().fit(likes, backend=Here(), checkpoint=tmp_path, resume=True), plain[5])


def test_ctrl_c_while_a_checkpoint_is_written(
    likes: Path, plain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts have made a sweep then that nobody was told of."""
    finish = Checkpoints.finish
    calls: list[int] = []

    def press_ctrl_c(self: Checkpoints, sweep: int, *arguments: Any) -> None:
        calls.append(sweep)
        if len(calls) == 3:
            raise KeyboardInterrupt
        finish(self, sweep, *arguments)

    monkeypatch.setattr(Checkpoints, "finish", press_ctrl_c)
    found = interrupted(made(sweeps=9), likes, backend=Here(), checkpoint=tmp_path, checkpoint_every=1)
    assert calls == [1, 2, 3, 3]
    assert_same(found, plain[3])


def test_ctrl_c_before_the_first_sweep_and_while_the_model_is_written(likes: Path, tmp_path: Path) -> None:
    for method, count in (("visit", 1), ("write_part_users", 1)):
        model = made(sweeps=3)
        backend = Here(meddle=AtCall(method, count, interrupt_later))
        with pytest.raises(KeyboardInterrupt):
            model.fit(likes, backend=backend, model_folder=tmp_path / "new")
        assert not model.__sklearn_is_fitted__()
        assert os.listdir(tmp_path) == []


def test_a_fit_that_diverges_keeps_what_it_had(likes: Path, plain: Any) -> None:
    def diverge(call: Callable[[], Any]) -> None:
        call()
        raise DivergedError("values are not finite.")

    model = made(sweeps=9)
    with pytest.raises(DivergedError):
        model.fit(likes, backend=Here(meddle=AtCall("visit", 3, diverge)))
    assert_same(model, plain[2])


def test_parts_that_are_not_where_the_head_is_make_no_model(likes: Path, tmp_path: Path) -> None:
    """A worker that has not made the last step, as none may be: nothing is written."""
    wrong = AtCall("sweep_of", 1, lambda call: [*call()[:-1], 4])
    with pytest.raises(RuntimeError, match="at another sweep than the head"):
        made().fit(likes, backend=Here(meddle=wrong), model_folder=tmp_path / "new")
    assert os.listdir(tmp_path) == []


def test_a_model_that_cannot_be_written_leaves_the_one_before(
    likes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    first = made(sweeps=2).fit(likes, backend=Here(), model_folder=folder)
    before = sorted(os.listdir(folder))

    def full(*_: Any) -> None:
        (folder / ".considerate-0123.tmp").write_bytes(b"half a shard")
        raise OutputError("the disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr("considerate.distributed.session.write_index", full)
        with pytest.raises(OutputError, match="full"):
            made(sweeps=3).fit(likes, backend=Here(), model_folder=folder)
        assert sorted(os.listdir(folder)) == before
        with pytest.raises(OutputError, match="full"):
            made(sweeps=3).fit(likes, backend=Here(), model_folder=tmp_path / "new" / "deep")
        os.unlink(folder / ".considerate-0123.tmp")
    assert not (tmp_path / "new" / "deep").exists()
    assert_same(Recommender.load(folder), first)
    (folder / "users-00007-01234567.safetensors").write_bytes(b"of a fit that was killed")
    second = made(sweeps=3).fit(likes, backend=Here(), model_folder=folder)
    assert_same(Recommender.load(folder), second)
    assert len(os.listdir(folder)) == len(before)
    assert set(os.listdir(folder)) & set(before) == {"index.safetensors"}


@pytest.mark.parametrize("division", ["users", "items"])
def test_a_folder_that_workers_do_not_see_is_refused_before_the_first_sweep(
    division: str, likes: Path, tmp_path: Path
) -> None:
    def elsewhere(method: Any, call: Callable[[], Any]) -> Any:
        assert method != "visit"
        answer = call()
        called = getattr(getattr(method, "func", None), "__name__", "")
        return [*answer[:-1], False] if called == "file_exists" else answer

    backend = Here(meddle=elsewhere, division=division)
    with pytest.raises(UsageError, match="workers on other machines do not see this folder"):
        made().fit(likes, backend=backend, model_folder=tmp_path / "new")
    assert os.listdir(tmp_path) == []
    model = made(sweeps=1).fit(likes, backend=Here(division=division), model_folder=tmp_path / "new")
    assert len(model.recommend(0, by="row")[0]) == 10


# --- Checkpoints ---


def backends(folder: Path) -> dict[str, PartitionedBackend | None]:
    return {"plain": None, "files": OutOfCore(folder), "workers": Here()}


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("order", [("plain", "files", "workers"), ("files", "workers", "plain"), ("workers", "plain")])
def test_a_checkpoint_goes_on_anywhere(kind: str, order: tuple[str, ...], likes: Path, tmp_path: Path) -> None:
    wanted = made(**SETTINGS[kind]).fit(likes)
    where = backends(tmp_path / "parts")
    for sweeps, name in enumerate(order, start=2):
        made(**SETTINGS[kind], sweeps=sweeps).fit(
            likes, backend=where[name], checkpoint=tmp_path / "kept", checkpoint_every=1, resume=True
        )
    last = where[order[0]]
    assert_same(made(**SETTINGS[kind]).fit(likes, backend=last, checkpoint=tmp_path / "kept", resume=True), wanted)
    done = list(fit_steps(made(**SETTINGS[kind]), likes, Here(), checkpoint=tmp_path / "kept", resume=True))
    assert done == []  # it had come to its end; the model is made all the same
    found = made(**SETTINGS[kind]).fit(likes, backend=Here(), checkpoint=tmp_path / "kept", resume=True)
    assert_same(found, wanted)


@pytest.mark.parametrize("how", [{"division": "items"}, {"inner_sweeps": 2}, {"inner_sweeps": 2, "inner": "all"}])
@pytest.mark.parametrize("kind", SETTINGS)
def test_checkpoints_of_other_posteriors_go_on(kind: str, how: Any, likes: Path, plain: Any, tmp_path: Path) -> None:
    wanted = made(**SETTINGS[kind]).fit(likes, backend=Here(**how))
    for sweeps, backend in ((2, Here(**how)), (3, OutOfCore(tmp_path / "parts", **how)), (5, Here(**how))):
        found = made(**SETTINGS[kind], sweeps=sweeps).fit(
            likes, backend=backend, checkpoint=tmp_path / "kept", resume=True
        )
    assert_same(found, wanted)
    assert not np.array_equal(wanted.posterior_.users.rows, plain[5].posterior_.users.rows)


def test_a_checkpoint_of_another_division_is_refused(likes: Path, tmp_path: Path) -> None:
    made(sweeps=2).fit(likes, checkpoint=tmp_path)
    for backend, said in (
        (Here(division="items"), r"a division by users \(by items here\)"),
        (Here(inner_sweeps=3), r"inner_sweeps not given \(3 here\); inner not given \(one here\)"),
    ):
        with pytest.raises(CheckpointError, match=said):
            made().fit(likes, backend=backend, checkpoint=tmp_path, resume=True)
    shutil.rmtree(tmp_path)
    made(sweeps=2).fit(likes, backend=Here(inner_sweeps=3), checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match=r"inner one \(all here\)"):
        made().fit(likes, backend=Here(inner_sweeps=3, inner="all"), checkpoint=tmp_path, resume=True)
    with pytest.raises(CheckpointError, match="inner_sweeps 3"):
        made().fit(likes, checkpoint=tmp_path, resume=True)


def test_a_checkpoint_of_another_walk_is_refused(likes: Path, tmp_path: Path) -> None:
    by_popularity = {"consideration": "popularity"}
    made(**by_popularity, sweeps=2).fit(likes, backend=Here(), checkpoint=tmp_path / "without")
    made(**SETTINGS["walk"], sweeps=2).fit(likes, backend=Here(), checkpoint=tmp_path / "with")
    for folder, settings, said in (
        ("without", SETTINGS["walk"], r"consideration not given \(walk here\)"),
        ("with", by_popularity, r"consideration walk \(not given here\)"),
        ("with", SETTINGS["walk"] | {"neighbours": 11}, r"with neighbours 12 \(11 here\)\."),
        ("with", SETTINGS["walk"] | {"mixing": 0.1}, r"with mixing 0\.2 \(0\.1 here\)\."),
    ):
        for backend in (None, Here()):
            with pytest.raises(CheckpointError, match=said):
                made(**settings).fit(likes, backend=backend, checkpoint=tmp_path / folder, resume=True)


def test_the_division_of_a_checkpoint_is_kept_where_none_is_asked_for(likes: Path, tmp_path: Path) -> None:
    """Without a checkpoint the default is a division by users."""
    items = Here(division="items")
    wanted = made().fit(likes, backend=items)
    made(sweeps=3).fit(likes, backend=items, checkpoint=tmp_path, checkpoint_every=1)
    said: list[str] = []
    list(fit_steps(made(), likes, Here(), say=said.append))
    assert said[1].startswith("Divided by users")
    head = tmp_path / sweep_folder(3) / "head.safetensors"
    head.write_bytes(head.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="sweep-000003: this checkpoint is not used"):
        assert_same(made().fit(likes, backend=Here(), checkpoint=tmp_path, resume=True), wanted)


@pytest.mark.parametrize("where", ["files", "workers"])
@pytest.mark.parametrize("division", ["users", "items"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_used(
    where: str, division: str, likes: Path, tmp_path: Path
) -> None:
    def backend() -> PartitionedBackend:
        return OutOfCore(tmp_path / "parts", division=division) if where == "files" else Here(division=division)

    wanted = made().fit(likes, backend=backend())
    kept = tmp_path / "kept"
    made(sweeps=3).fit(likes, backend=backend(), checkpoint=kept, checkpoint_every=1)
    damaged = kept / sweep_folder(3) / part_file(1)
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    with pytest.warns(UserWarning, match=rf"sweep-000003: this checkpoint is not used: {part_file(1)} does not match"):
        found = made().fit(likes, backend=backend(), checkpoint=kept, resume=True)
    assert_same(found, wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made().fit(likes, backend=backend(), checkpoint=kept, resume=True)


def test_the_pool_is_told_of_the_last_checkpoint(likes: Path, tmp_path: Path) -> None:
    backend = Here()
    made(sweeps=3).fit(likes, backend=backend, checkpoint=tmp_path / "kept", checkpoint_every=2)
    made(sweeps=4).fit(likes, backend=backend, checkpoint=tmp_path / "kept", resume=True)
    folder = str(tmp_path / "kept")
    assert [pool.named for pool in backend.pools] == [[folder, folder], [folder, folder]]


def test_the_shell_resumes_out_of_core(likes: Path, tmp_path: Path) -> None:
    options = ("fit", likes, "--factors", 3, "--tolerance", 0, "--threads", 1)
    kept = ("--checkpoint", tmp_path / "kept", "--resume")
    assert run(*options, "--sweeps", 5, "-o", tmp_path / "whole.safetensors").exit_code == 0
    assert run(*options, "--sweeps", 3, "-o", tmp_path / "first.safetensors", *kept, "--out-of-core").exit_code == 0
    again = run(*options, "--sweeps", 5, "-o", tmp_path / "again.safetensors", *kept, "--out-of-core", "--json")
    assert again.exit_code == 0, again.output
    assert "the fit goes on after sweep 3" in again.stderr
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_ctrl_c_in_the_shell_saves_the_last_finished_sweep(
    likes: Path, plain: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Here(meddle=AtCall("visit", 4, interrupt_later))
    monkeypatch.setattr(OutOfCore, "open", lambda _: backend.open())
    options = ("--factors", 3, "--tolerance", 0, "--threads", 1, "--seed", 3, "--sweeps", 30)
    result = run("fit", likes, "-o", tmp_path / "model.safetensors", "--out-of-core", "--save-interrupted", *options)
    assert result.exit_code == 130
    assert "interrupted; the posterior of sweep 3 is saved" in result.stderr.splitlines()[-1]
    assert os.listdir(tmp_path) == ["model.safetensors"]
    assert_same(Recommender.load(tmp_path / "model.safetensors"), plain[3])
