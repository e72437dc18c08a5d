"""For tests of refits: likes with a model fitted to them, a store of events, and `considerate refit`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from considerate import Recommender
from considerate.cli import app
from considerate.service.events import EventStore, NewEvent
from considerate.service.metrics import Metrics
from considerate.storage.container import open_tensors
from tests.helpers.likes import planted

SETTINGS: dict[str, Any] = {"factors": 4, "sweeps": 4, "opening": 2, "threads": 1}
USERS, ITEMS = 100, 40
DATA = "likes.parquet"
TITLES = {f"i{item}": f"Title {item}" for item in range(ITEMS)}


def likes_table() -> pa.Table:
    users, items = planted(USERS, ITEMS).nonzero()
    return pa.table({"user": [f"u{user}" for user in users], "item": [f"i{item}" for item in items]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """likes.parquet with texts for ids, a model fitted to them, and events.db, still empty."""
    pa.parquet.write_table(likes_table(), tmp_path / "likes.parquet")
    Recommender(**SETTINGS).fit(likes_table(), titles=TITLES).save(tmp_path / "model")
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[EventStore]:
    opened = EventStore(str(folder / "events.db"), Metrics())
    yield opened
    opened.close()


def post(store: EventStore, *events: tuple[str, str, str]) -> None:
    answers: list[Any] = []
    store.append([NewEvent(*event, None) for event in events], lambda *answer: answers.append(answer))
    _flush(store)
    assert answers[0][1] is None


def erase(store: EventStore, user: str) -> None:
    store.erase(user, lambda *_: None)
    _flush(store)


def _flush(store: EventStore) -> None:
    ended = Event()
    store.probe(lambda *_: ended.set())
    ended.wait()


def refit(folder: Path, *options: str, data: str | None = None, model: str = "model") -> Any:
    """What `considerate refit --json` prints, or its result where it failed."""
    given = [
        model if "://" in model else str(folder / model),
        *([] if data is None else [str(folder / data)]),
        "--events",
        str(folder / "events.db"),
    ]
    result = CliRunner().invoke(app, ["refit", *given, *options, "--json"], prog_name="considerate")
    return json.loads(result.stdout) if result.exit_code == 0 else result


def pairs(recommender: Recommender) -> set[tuple[str, str]]:
    users = recommender.model_.users.whole()
    names = recommender.item_ids()
    return {
        (str(user), str(names[item]))
        for row, user in enumerate(recommender.user_ids())
        for item in users.liked.row(row)
    }


def likes_of(recommender: Recommender, user: str) -> list[str]:
    return sorted(item for liker, item in pairs(recommender) if liker == user)


def all_files(path: Path) -> bytes:
    """The bytes of a model: of a file, or of all files of a folder."""
    return path.read_bytes() if path.is_file() else b"".join(file.read_bytes() for file in sorted(path.iterdir()))


def assert_same_model(first: Path, second: Path) -> None:
    """All tensors of two files have the same bits."""
    one, other = (open_tensors(path, verify=True) for path in (first, second))
    assert set(one) == set(other)
    for name in one:
        assert np.array_equal(one[name], other[name]), name
