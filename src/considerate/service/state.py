"""The served model, and its replacement by a new one.

`Recommender.save` writes a temporary file and renames it. The service reads, verifies and warms the new file at its
path, and then swaps the model in by one assignment. Running requests keep their model: its file stays mapped.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from considerate.data.column import Column
from considerate.data.vocabulary import Id
from considerate.errors import ModelFileError
from considerate.model.file import open_model, shards_at
from considerate.model.model import Model
from considerate.model.pairs import Pairs, UserBatch
from considerate.model.ranking import RankingOptions
from considerate.model.serving import Ranker
from considerate.model.shards import INDEX_NAME, ShardedUsers
from considerate.service.metrics import Metrics
from considerate.service.problems import Problem, shortened

logger = logging.getLogger("considerate.service")
KEPT_BYTES = 64 << 20  # largest cache of the items' parts of scores, one array per setting of the knobs
KEPT_NAMES = 200_000  # ids and titles of a catalogue of up to so many items are cached


class ServedModel:
    """A model, and objects that all requests share."""

    def __init__(self, model: Model, digest: str) -> None:
        self.model, self.digest, self.since = model, digest, time.time()
        self.items = model.item_names()
        self.users = model.user_names()
        self._rankers: OrderedDict[tuple[RankingOptions, int], Ranker] = OrderedDict()
        self._most_rankers = max(4, min(256, KEPT_BYTES // (4 * model.item_count + 1)))
        self._lock = threading.Lock()
        self._names: list[tuple[Id, str | None]] | None = None

    def warm(self) -> None:
        """Answer once, so that the first request does not wait for caches."""
        model = self.model
        if model.item_count <= KEPT_NAMES:
            self._names = [self._name(row) for row in range(model.item_count)]
            _ = model.plain_titles
        row = np.zeros(1, np.int64)
        liked = self.items.likes([[self.items.name(int(np.argmax(model.item_degree)))]])
        ranker = self.ranker(RankingOptions(), 10)
        ranker.rank(UserBatch(model.fold_in.users(liked), row, row, liked))
        users, local = model.users.some(row)
        ranker.rank(UserBatch(users.side, local, row, users.liked.take(local)))

    def ranker(self, options: RankingOptions, count: int) -> Ranker:
        """Get a ranker, from the cache if it has no lists of items; it holds the items' part of the scores."""
        key = options, count
        with self._lock:
            ranker = self._rankers.get(key)
            if ranker is not None:
                self._rankers.move_to_end(key)
                return ranker
        for named in (options.allow, options.deny):
            if named is not None:
                self.item_rows(named)
        ranker = Ranker(self.model, options, count)
        if options.allow is None and options.deny is None:
            with self._lock:
                self._rankers[key] = ranker
                if len(self._rankers) > self._most_rankers:
                    self._rankers.popitem(last=False)
        return ranker

    def item_rows(self, ids: Any) -> list[int]:
        """Find the rows of items; raise a problem for an unknown item."""
        values = list(ids)
        rows: list[int] = self.items.rows(values, unknown=True).tolist()
        if -1 in rows:
            raise Problem(
                "unknown-item",
                f"The model has no item {shortened(values[rows.index(-1)])}; look for one with /v1/items?q=.",
            )
        return rows

    def known_likes(self, likes: list[Any]) -> tuple[list[int], list[Any]]:
        """Split likes into (rows of items that the model knows, unknown ids)."""
        rows = self.items.rows(likes, unknown=True).tolist() if likes else []
        return [row for row in rows if row >= 0], [like for like, row in zip(likes, rows) if row < 0]

    def named(self, row: int) -> tuple[Id, str | None]:
        """Return (id, title or None) of an item."""
        return self._name(row) if self._names is None else self._names[row]

    def values(self, columns: Sequence[Column], pairs: Pairs) -> list[list[Any]]:
        """Values of each column for each pair, with the ids and titles as they are sent."""
        names = [self.named(row) for row in pairs.item.tolist()]
        named: dict[str, list[Any]] = {"item": [item for item, _ in names], "title": [title for _, title in names]}
        return [column.to_list(pairs) if column.values else named[column.name] for column in columns]

    def _name(self, row: int) -> tuple[Id, str | None]:
        titles = self.model.titles
        return self.items.name(row), None if titles is None else titles.of(row)


class ModelHolder:
    """Holds the served model, and loads new models from its path."""

    def __init__(self, path: str, metrics: Metrics) -> None:
        self.path, self.metrics = path, metrics
        self.current: ServedModel | None = None
        self._seen: object = None  # signature of the last file that was read, served or refused
        self._lock = threading.Lock()

    def load(self, force: bool = False) -> bool:
        """Read the model at the path if it is new or `force`; return whether another model is served now.

        Raise ModelFileError if it is refused: the old model stays, and the same file is not read again.
        """
        with self._lock:
            signature = file_signature(self.path)
            if not force and (signature is None or signature == self._seen):
                return False
            while True:
                try:
                    changed = self._swap()
                    break
                except Exception as error:  # whatever is wrong with the file, the old model stays
                    before, signature = signature, file_signature(self.path)
                    if signature == before:  # else a new file came meanwhile, and parts of both were read
                        self._refuse(signature, error)
            self._seen = signature
            return changed

    def _swap(self) -> bool:
        stored, model = open_model(self.path, verify=True)
        if self.current is not None and stored.header_sha256 == self.current.digest:
            self.metrics.refused.set(0)
            return False
        if isinstance(model.users, ShardedUsers):
            model.users.keep_open()
        served = ServedModel(model, stored.header_sha256)
        served.warm()
        if self.current is not None:
            self.metrics.digest.labels(self.current.digest).set(0)
        self.current = served
        self.metrics.digest.labels(served.digest).set(1)
        self.metrics.since.set(served.since)
        self.metrics.refused.set(0)
        self.metrics.reloads.labels("swapped").inc()
        logger.info("model swapped in", extra={"fields": {"model": served.digest}})
        return True

    def _refuse(self, signature: object, error: BaseException) -> None:
        self._seen = signature
        self.metrics.refused.set(1)
        self.metrics.reloads.labels("refused").inc()
        logger.error("model refused", extra={"fields": {"reason": str(error)}})
        raise ModelFileError(str(error)) from error


def file_signature(path: str) -> object:
    """Identity of the model file at a path, to detect a new one; None if the path is remote or empty."""
    try:
        folder = shards_at(path)
        if folder is not None and folder.local is None:
            return None
        status = os.stat(path if folder is None else os.path.join(str(folder.local), INDEX_NAME))
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
