"""Likes and users taken out of a model: what is left of them, in memory and in every byte of its files."""

from __future__ import annotations

import errno
import os
import pickle
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from considerate import Recommender
from considerate.data.graph import transpose
from considerate.errors import DataError, UnknownIdError
from considerate.inference.hidden import Consideration
from considerate.model.file import forget_users
from considerate.model.model import Model
from considerate.storage.container import open_tensors
from tests.cli.test_cli import answer, run
from tests.helpers.likes import as_table, skewed

LIKES = skewed(60, 25, seed=4)
SECRET = "zu-0xC0FFEE-unique"  # an id that nothing else can be
NUMBER = 0x5EC12E7BADC0FFEE  # the same of integers


def table(user: Any, row: int = 33) -> pa.Table:
    """Likes by ids, one of whose users is called `user`: by texts, or by integers."""
    text = isinstance(user, str)
    whole = as_table(LIKES, "u{:03}" if text else "{}", "i{:03}")
    names = [user if name in (f"u{row:03}", row) else name for name in whole["user"].to_pylist()]
    return pa.table({"user": names, "item": whole["item"]})


def fitted(user: Any = SECRET, **settings: Any) -> Recommender:
    return Recommender(**{"factors": 2, "sweeps": 3, "threads": 1} | settings).fit(table(user))


def liked_by(user: Any) -> list[str]:
    return [row["item"] for row in table(user).to_pylist() if row["user"] == user]


def check_table(model: Model, rows: Any) -> None:
    """Rows of the walk's table against one made of the likes as they are."""
    liked = model.users.whole().liked
    by_item = transpose(liked, model.item_count)
    np.testing.assert_array_equal(model.item_degree, by_item.degrees)
    walk = Consideration.of_graph(liked, by_item, model.popularity, model.plan.neighbours, model.plan.mixing)
    for row in rows:
        for mine, whole in zip(model.consideration.row(row), walk.row(row)):
            np.testing.assert_array_equal(mine, whole)


def test_a_forgotten_user_is_in_no_part_of_the_model() -> None:
    model = fitted()
    before, items = model.model_, model.item_rows(liked_by(SECRET))
    row = int(model.user_rows(SECRET))
    vector = model.user_factors[row].copy()
    assert SECRET.encode() in pickle.dumps(model)
    assert model.forget(SECRET) is model
    after = model.model_
    assert (after.user_count, after.users.edges) == (59, before.users.edges - len(items))
    with pytest.raises(UnknownIdError, match="is not in the model, which knows 59 users"):
        model.recommend(SECRET)
    assert SECRET.encode() not in pickle.dumps(model)
    assert vector.tobytes() not in pickle.dumps(model)
    np.testing.assert_array_equal(before.item_degree - after.item_degree, np.isin(np.arange(25), items))
    np.testing.assert_allclose(after.popularity, after.item_degree.astype(float) ** after.gamma)
    check_table(after, range(25))  # rows of other items did not lead through this user
    others = [name for name in before.user_ids.ids_of(range(60)) if name != SECRET]
    for mine, old in zip(after.users.whole().side.arrays(), before.users.whole().side.arrays()):
        if old is not None:
            np.testing.assert_array_equal(mine, np.delete(old, row, axis=0))
    assert model.user_ids().tolist() == others
    np.testing.assert_array_equal(after.items.rows, before.items.rows)  # the trace that the docs speak of
    assert after.updates.forgotten == 1


def bytes_of(user: Any) -> list[bytes]:
    """A user's id as files could hold it."""
    return (
        [user.encode(), user.encode("utf-16-le")]
        if isinstance(user, str)
        else [user.to_bytes(8, "little"), str(user).encode()]
    )


@pytest.mark.parametrize("user", [SECRET, NUMBER])
@pytest.mark.parametrize("shards", [None, 4])
@pytest.mark.parametrize("in_place", [True, False])
def test_a_forgotten_user_is_in_no_byte_of_the_files(
    tmp_path: Path, user: Any, shards: int | None, in_place: bool
) -> None:
    model = fitted(user)
    row = int(model.user_rows(user))
    vector = model.user_factors[row].tobytes()
    path = tmp_path / "model"
    model.save(path, shards=shards)
    before = {file.name: file.read_bytes() for file in ([path] if shards is None else sorted(path.iterdir()))}
    assert any(bytes_of(user)[0] in raw for raw in before.values())
    output = path if in_place else tmp_path / "next"
    forget_users(path, [user], output)
    files = [output] if shards is None else sorted(output.iterdir())
    for file in files:
        raw = file.read_bytes()
        stored = open_tensors(file)
        tensors = [np.asarray(stored[name]) for name in stored]
        for held in (raw, str(stored.metadata).encode(), *(tensor.tobytes() for tensor in tensors)):
            assert not any(name in held for name in bytes_of(user))
            assert vector not in held
        for tensor in tensors:
            assert isinstance(user, str) or not (tensor.dtype == np.int64 and (tensor == user).any())
    if shards is not None and in_place:
        kept = {file.name for file in files} & set(before)
        assert len(kept) == shards, "the other shards and the index's name stay"
        assert all((output / name).read_bytes() == before[name] for name in kept if name.startswith("users-"))
        assert len(files) == shards + 1, "the old shard is gone"
    again = Recommender.load(output, verify=True)
    expected = model.forget(user)
    assert again.user_ids().tolist() == expected.user_ids().tolist()
    np.testing.assert_array_equal(again.user_factors, expected.user_factors)
    np.testing.assert_array_equal(again.model_.users.whole().liked.indices, expected.model_.users.whole().liked.indices)
    last = again.user_ids()[-1]
    assert again.recommend(last, N=5).ids.tolist() == expected.recommend(last, N=5).ids.tolist()


def test_a_shard_whose_users_are_all_forgotten_is_gone(tmp_path: Path) -> None:
    model = fitted()
    model.save(tmp_path / "model", shards=30)  # two users each
    names = model.user_ids()
    forget_users(tmp_path / "model", names[[4, 5, 7, 58, 59]].tolist(), tmp_path / "model")
    again = Recommender.load(tmp_path / "model", verify=True)
    assert again.user_ids().tolist() == np.delete(names, [4, 5, 7, 58, 59]).tolist()
    assert len(list((tmp_path / "model").iterdir())) == 1 + 28
    with pytest.raises(UnknownIdError):
        forget_users(tmp_path / "model", [names[4]], tmp_path / "model")


def test_a_row_of_a_matrix_is_emptied(tmp_path: Path) -> None:
    model = Recommender(factors=2, sweeps=3, threads=1).fit(LIKES)
    vector, others = model.user_factors[7].tobytes(), model.user_factors[8:].copy()
    model.save(tmp_path / "model", shards=4)
    forget_users(tmp_path / "model", [7], tmp_path / "model")
    again = Recommender.load(tmp_path / "model")
    assert again.model_.user_count == 60
    np.testing.assert_array_equal(again.user_factors[8:], others)
    assert not again.user_factors[7].any()
    assert not len(again.model_.users.whole().liked.row(7))
    assert all(vector not in file.read_bytes() for file in (tmp_path / "model").iterdir())


def test_checkpoints_hold_no_id(tmp_path: Path) -> None:
    """They hold the users' vectors, by row, and a digest of all ids of a part."""
    Recommender(factors=2, sweeps=3, threads=1).fit(table(SECRET), checkpoint=tmp_path / "kept", checkpoint_every=1)
    files = [file for file in (tmp_path / "kept").rglob("*") if file.is_file()]
    assert files
    assert all(SECRET.encode() not in file.read_bytes() for file in files)


def test_likes_that_are_removed(tmp_path: Path) -> None:
    model = fitted()
    before, items = model.model_, liked_by(SECRET)
    gone = pa.table({"user": [SECRET, SECRET, "nobody"], "item": [items[0], items[2], items[0]]})
    model.update(None, removed=gone)
    after, row = model.model_, int(model.user_rows(SECRET))
    left = [name for name in items if name not in (items[0], items[2])]
    assert model.item_ids(after.users.whole().liked.row(row)).tolist() == left
    assert (after.updates.removed, after.users.edges) == (2, before.users.edges - 2)
    np.testing.assert_array_equal(model.user_factors[row], model.fold_in(left).mean[0])
    np.testing.assert_array_equal(
        np.delete(model.user_factors, row, 0), np.delete(before.users.whole().side.mean, row, 0)
    )
    np.testing.assert_array_equal(after.items.rows, before.items.rows)
    check_table(after, range(25))
    assert items[0] in model.recommend(SECRET, N=25).ids
    model.save(tmp_path / "model")
    assert Recommender.load(tmp_path / "model").model_.updates == after.updates


def test_likes_are_removed_before_new_ones_are_learned() -> None:
    model, items = fitted(), liked_by(SECRET)
    pair = pa.table({"user": [SECRET], "item": [items[0]]})
    model.update(pair, removed=pair)
    assert items[0] in model.item_ids(model.model_.users.whole().liked.row(int(model.user_rows(SECRET))))
    assert (model.model_.updates.removed, model.model_.updates.likes) == (1, 1)


def test_the_last_likes_cannot_be_taken_out() -> None:
    model = Recommender(factors=1, sweeps=1, threads=1).fit(pa.table({"user": ["a", "b"], "item": ["x", "y"]}))
    model._model = replace(model.model_)
    with pytest.raises(DataError, match="no like would be left in the model"):
        model.forget(["a", "b"])


# --- Shards that cannot be removed ---


def holds_secret(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if SECRET.encode() in file.read_bytes()]


def test_a_shard_that_cannot_be_removed_fails_until_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, unlink = tmp_path / "model", os.unlink
    fitted().save(folder, shards=4)
    held = [name for name in holds_secret(folder) if name.startswith("users-")]
    assert len(held) == 1

    def refuse(path: Any, *rest: Any, **more: Any) -> None:
        if Path(path).name in held:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        unlink(path, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        for _ in range(2):  # the second time the user is not in the model any more, and the file still is there
            result = run("forget", folder, SECRET, "-o", folder)
            assert (result.exit_code, result.stdout) == (1, "")
            assert f"{held[0]}: still holds users as they were before, and cannot be removed" in result.stderr
            assert "Traceback" not in result.output
            assert SECRET not in Recommender.load(folder, verify=True).user_ids()
            assert holds_secret(folder) == held
    result = run("forget", folder, SECRET, "-o", folder)  # and now it can be
    assert result.exit_code == 2
    assert f"user {SECRET!r} is not in the model" in result.stderr
    assert holds_secret(folder) == []


def test_a_run_that_was_cut_off_is_ended_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed when the index was replaced, and no shard removed yet."""
    folder = tmp_path / "model"
    fitted().save(folder, shards=4)
    with monkeypatch.context() as patch:
        patch.setattr("considerate.model.file.remove_former_shards", lambda _: None)  # those of a run before
        patch.setattr("considerate.model.shards._keep_only", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            forget_users(folder, ["u004"], folder)
    assert len(list(folder.iterdir())) == 1 + 4 + 1
    forget_users(folder, [SECRET], folder)
    assert len(list(folder.iterdir())) == 1 + 4
    assert holds_secret(folder) == []
    assert not any(b"u004" in file.read_bytes() for file in folder.iterdir())


# --- The shell ---


def test_the_shell_updates_and_forgets(tmp_path: Path) -> None:
    likes = table(SECRET)
    pq.write_table(likes.slice(40), tmp_path / "likes.parquet")
    pq.write_table(likes.slice(0, 40), tmp_path / "new.parquet")
    pq.write_table(likes.slice(60, 2), tmp_path / "gone.parquet")
    model, later = tmp_path / "model", tmp_path / "later"
    assert run("fit", tmp_path / "likes.parquet", "-o", model, "--factors", 2, "--sweeps", 3).exit_code == 0
    said = answer(
        "update", model, tmp_path / "new.parquet", "-o", later, "--days", 3, "--removed", tmp_path / "gone.parquet"
    )
    assert (said["new_likes"], said["removed_likes"], said["edges"]) == (40, 2, LIKES.nnz - 2)
    expected = Recommender.load(model).update(likes.slice(0, 40), days=3.0, removed=likes.slice(60, 2))
    found = Recommender.load(later)
    np.testing.assert_array_equal(found.item_factors, expected.item_factors)
    np.testing.assert_array_equal(found.user_factors, expected.user_factors)
    shown = run("update", later, tmp_path / "new.parquet", "-o", tmp_path / "same")
    assert "0 likes" in shown.output
    assert "updated" in run("inspect", later).output
    assert "1 times since the fit, in 3 days: 40 new likes" in run("inspect", later).output
    assert "times since the fit" not in run("inspect", model).output
    shown = run("forget", later, SECRET, "-o", later)
    assert f"1 forgotten; 59 users and {LIKES.nnz - 2 - len(liked_by(SECRET))} likes in {later}" in shown.output
    assert SECRET.encode() not in later.read_bytes()
    assert "1 users forgotten" in run("inspect", later).output


def test_the_shell_says_what_is_wrong(tmp_path: Path) -> None:
    model = tmp_path / "model"
    fitted().save(model)
    for arguments, message in (
        (("update", model, "-o", tmp_path / "next"), "there is nothing to learn; give a file of new likes"),
        (("update", model, tmp_path / "none.csv", "-o", tmp_path / "next"), "no such file"),
        (("forget", model, "nobody", "-o", model), "user 'nobody' is not in the model"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert message in result.output


def test_the_shell_updates_shards(tmp_path: Path) -> None:
    fitted().save(tmp_path / "shards", shards=3)
    pq.write_table(pa.table({"user": ["new", SECRET], "item": ["i001", "i024"]}), tmp_path / "new.parquet")
    said = answer("update", tmp_path / "shards", tmp_path / "new.parquet", "-o", tmp_path / "next")
    assert said["users"] == 61
    assert len(list((tmp_path / "next").iterdir())) == 4
