"""Files from strangers: containers, models, checkpoints and the database of events."""

from __future__ import annotations

import hashlib
import json
import queue
import shutil
import sqlite3
import tempfile
import warnings
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from considerate import Recommender
from considerate.errors import ConsiderateError, ModelFileError
from considerate.fitting.checkpoint import HEAD, INDEX, Checkpoints, part_file, sweep_folder
from considerate.service.events import KINDS, EventStore, NewEvent
from considerate.service.metrics import Metrics
from considerate.storage.container import encode_tensors, read_tensors
from fuzz.base import Check, Choices, Place, Target


def _as_bytes(tensors: dict[str, Any], metadata: dict[str, Any]) -> bytes:
    return b"".join(map(bytes, encode_tensors(tensors, metadata).pieces()))


def sealed(data: bytes) -> bytes:
    """A container whose header checksum is right again, as far as it still has a place for one."""
    length = int.from_bytes(data[:8], "little")
    raw, mark = data[8 : 8 + length], b'"header_sha256":"'
    at = raw.find(mark) + len(mark)
    if at < len(mark):
        return data
    blank = raw[:at] + b"0" * 64 + raw[at + 64 :]
    digest = hashlib.sha256(blank).hexdigest().encode()
    return data[:8] + blank[:at] + digest + blank[at + 64 :] + data[8 + length :]


def small_model() -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors and the metadata of a small model that holds most that a model can."""
    random = np.random.default_rng(0)
    rows, columns = np.nonzero(random.random((12, 8)) < 0.4)
    likes = {"user": [f"u{row}" for row in rows], "item": [f"i{column}" for column in columns]}
    titles = {f"i{row}": f"Title {row}" for row in range(8)}
    settings: dict[str, Any] = {"factors": 2, "sweeps": 2, "user_bias": True, "consideration": "walk", "neighbours": 4}
    model = Recommender(**settings, threads=1).fit(likes, titles=titles)
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        stored = read_tensors(Path(folder, "model").read_bytes(), "the model")
        return {name: stored[name].copy() for name in stored}, json.loads(json.dumps(stored.metadata))


# --- Containers ---


def _container_seeds() -> list[bytes]:
    tensors = {
        "mean": np.arange(6, dtype=np.float32).reshape(2, 3),
        "flags": np.array([True]),
        "none": np.zeros((0, 2)),
    }
    small = _as_bytes(tensors, {"k": [1, {"x": None}]})
    return [first + data for first in (b"\0", b"\1") for data in (small, _as_bytes({}, {}), _as_bytes(*small_model()))]


def _prepare_container(_: Place) -> Check:
    """Inputs with an odd first byte get the right checksum of their header."""

    def check(data: bytes) -> str:
        content = sealed(data[1:]) if data[:1] and data[0] % 2 else data[1:]
        try:
            stored = read_tensors(content, "the file")
            for name in stored:
                stored[name].tobytes()
        except ModelFileError:
            return "refused"
        return "read"

    return check


CONTAINER = Target("container", _container_seeds, _prepare_container)

# --- Models in whole containers ---

VALUES: list[Any] = [
    None,
    True,
    0,
    1,
    -1,
    2**31,
    2**63,
    2**64,
    1e308,
    "",
    "string",
    "integer",
    [],
    {},
    [1],
    {"kind": "string"},
]
NUMBERS = [0.0, -1.0, np.nan, np.inf, 1e308, 5e-324, 2.0**31, -(2.0**63), 1.0, 7.0]


def _prepare_model(place: Place) -> Check:
    tensors, metadata = small_model()
    names = sorted(tensors)

    def check(data: bytes) -> str:
        choices, changed, about = Choices(data), dict(tensors), json.loads(json.dumps(metadata))
        for _ in range(1 + choices.below(3)):
            if choices.below(4) == 0:
                _change_metadata(about, choices)
            else:
                name = choices.pick(names)
                changed[name] = _changed(changed[name], choices)
        path = place.folder / "model"
        try:
            path.write_bytes(_as_bytes(changed, about))
            model = Recommender.load(path)
        except ConsiderateError:
            return "refused"
        users, items = model.user_ids(), model.item_ids()
        scores = model.recommend_table(users[:3], 4)["score"].to_numpy()
        assert not np.isnan(scores).any(), (changed, about)
        model.similar_items(items[0], 3)
        return "read"

    return check


def _changed(array: Any, choices: Choices) -> Any:
    """A tensor with another value, another length, another shape or another type."""
    how = choices.below(8)
    if how == 0:
        return array[: choices.below(len(array) + 1)] if array.ndim else array
    if how == 1:
        return array.reshape(-1)
    if how == 2:
        return array.astype(choices.pick([np.float32, np.float64, np.int32, np.int64, np.uint8]))
    changed = array.copy().reshape(-1)
    if changed.size:
        at = choices.integer() % changed.size
        with np.errstate(all="ignore"):
            changed[at] = (
                np.asarray(choices.pick(NUMBERS)).astype(array.dtype)
                if how < 6
                else changed[choices.integer() % changed.size]
            )
    return changed.reshape(array.shape)


def _change_metadata(value: Any, choices: Choices) -> None:
    """Replace, remove or add one entry somewhere in nested metadata."""
    while isinstance(value, dict) and value:
        key = choices.pick(sorted(value))
        if isinstance(value[key], dict) and value[key] and choices.below(4):
            value = value[key]
            continue
        if choices.below(4) == 0:
            del value[key]
        else:
            value[key] = choices.pick(VALUES)
        return


# --- Checkpoints ---


def _checkpoint_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(folder, {"data": {"users": 3}, "settings": {}})
        written = [checkpoints.write_part(4, part, {"rows": np.ones((2, 2), np.float32)}) for part in range(2)]
        checkpoints.finish(4, {"bounds": np.arange(3.0)}, {"knob": 0.5}, written)
        return {
            name: Path(folder, sweep_folder(4), name).read_bytes() for name in (INDEX, HEAD, part_file(0), part_file(1))
        }


def _checkpoint_seeds() -> list[bytes]:
    return [bytes([at, flag]) + data for at, data in enumerate(_checkpoint_files().values()) for flag in (0, 1)]


def _prepare_checkpoint(place: Place) -> Check:
    """The first byte chooses the file, the second whether checksums are made right, the rest is its content."""
    files = _checkpoint_files()
    folder = place.folder
    checkpoints, there = Checkpoints(str(folder), {"data": {"users": 3}, "settings": {}}), folder / sweep_folder(4)

    def check(data: bytes) -> str:
        choices = Choices(data)
        name, seal, content = choices.pick(list(files)), choices.below(2), choices.rest()
        shutil.rmtree(there, ignore_errors=True)
        there.mkdir()
        for other, whole in files.items():
            (there / other).write_bytes(whole)
        if seal and name == INDEX:
            content = _sealed_index(content)
        elif seal:
            content = sealed(content)
            index = json.loads(files[INDEX])
            entry = next(entry for entry in index["files"] if entry["name"] == name)
            entry |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            (there / INDEX).write_bytes(_sealed_index(json.dumps(index).encode()))
        (there / name).write_bytes(content)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                saved = checkpoints.latest()
        except ConsiderateError:
            return "refused"
        return "refused" if saved is None else "read"

    return check


def _sealed_index(raw: bytes) -> bytes:
    with suppress(ValueError, RecursionError):
        content = json.loads(raw)
        if isinstance(content, dict):
            content.pop("sha256", None)
            text = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
            return json.dumps(content | {"sha256": hashlib.sha256(text).hexdigest()}).encode()
    return raw


CHECKPOINT = Target("checkpoint", _checkpoint_seeds, _prepare_checkpoint)

# --- Events ---

EVENTS = [NewEvent(f"u{k % 4}", f"i{k % 7}", KINDS[k % 3], f"key {k}" if k % 2 else None) for k in range(20)]
METRICS = Metrics()


def _events_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/events.db"
        store = EventStore(path, METRICS)
        store.append(EVENTS, lambda result, error: None)
        store.close()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("pragma journal_mode=delete")
        return Path(path).read_bytes()


def _prepare_events_file(place: Place) -> Check:
    """Bytes of a whole file to overwrite: place (three bytes), count and new bytes, as often as there are any."""
    whole = _events_file()

    def check(data: bytes) -> str:
        choices, content = Choices(data), bytearray(whole)
        while choices.left:
            at = (choices.below(256) * 65536 + choices.below(256) * 256 + choices.below(256)) % len(content)
            for offset in range(1 + choices.below(4)):
                content[(at + offset) % len(content)] = choices.below(256)
        path = place.folder / "events.db"
        for ending in ("", "-wal", "-shm"):
            Path(f"{path}{ending}").unlink(missing_ok=True)
        path.write_bytes(content)
        try:
            store = EventStore(str(path), METRICS)
        except ConsiderateError:
            return "refused"
        try:
            return _use(store)
        except ConsiderateError:
            return "refused"
        finally:
            store.close()

    return check


def _use(store: EventStore) -> str:
    """Read all, store one event and erase a user: answers, or EventsUnavailable."""
    store.of_users(["u0", "u1"])
    store.page("u1", 0, 5)
    store.judged(0, 100, 100)
    store.everything()
    answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
    store.append([NewEvent("u9", "i1", "like", None)], lambda result, error: answers.put((result, error)))
    store.erase("u0", lambda result, error: answers.put((result, error)))
    for _ in range(2):
        _, error = answers.get(timeout=60)
        if error is not None:
            raise error
    return "read"


def _event_seeds() -> list[bytes]:
    random = np.random.default_rng(5)
    return [random.bytes(size) for size in (8, 8, 8, 16, 40, 100)] + [
        bytes([0, 0, at, 0, value]) for at in range(100) for value in (0, 255)
    ]


EVENTS_FILE = Target("events-file", _event_seeds, _prepare_events_file)
MODEL = Target("model", lambda: [np.random.default_rng(at).bytes(16) for at in range(60)], _prepare_model)
