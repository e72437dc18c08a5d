"""Events of users, stored in SQLite, and on disk before they are acknowledged.

One thread writes, and commits all waiting events together (synchronous=FULL in WAL mode: a commit returns when the log
is synced). Readers in all processes see the commits before their request. Erasing overwrites the events
(secure_delete), empties the log and rewrites the file. The key of an event prevents that a retry stores it twice. A
salted hash of each key is kept even after erasure, so that a retry does not bring an erased event back.
"""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from considerate.data.vocabulary import Ids
from considerate.errors import ConsiderateError, UsageError
from considerate.service.metrics import Metrics

logger = logging.getLogger("considerate.service")
VERSION = 1
SALT = 32  # bytes
SYNCHRONOUS = "full"
KINDS = ("like", "unlike", "considered")
LIKE, UNLIKE, CONSIDERED = range(3)  # their numbers
MOST_TOGETHER = 256  # requests in one commit
BUSY_SECONDS = 5.0  # longest time that a writer waits for another process
REMOVALS = 4  # attempts to delete the log at the end
MOST_READ = 100_000  # latest events of one user that count
SCHEMA = """
create table if not exists about (name text primary key, value blob not null) without rowid;
create table if not exists events (
    sequence integer primary key autoincrement, user text not null, item text not null, kind integer not null,
    time integer not null
);
create index if not exists events_of_user on events (user, sequence);
create table if not exists keys (hash blob primary key, sequence integer not null) without rowid;
create table if not exists erased (hash blob primary key) without rowid;
"""
WRONG_ROW = f"""
select sequence from events where typeof(user) != 'text' or typeof(item) != 'text' or typeof(time) != 'integer'
    or typeof(kind) != 'integer' or kind not between 0 and {len(KINDS) - 1} limit 1
"""
JUDGED = f"""
select user, item, min(sequence) as first,
    max(case kind when {KINDS.index("like")} then sequence else 0 end)
    > max(case kind when {KINDS.index("unlike")} then sequence else 0 end)
from events where sequence > :window and user in (select user from events where sequence > :after)
group by user, item having first > :after and max(kind != {KINDS.index("unlike")}) order by first desc limit :most
"""


class NewEvent(NamedTuple):
    """An event to store."""

    user: str
    item: str
    kind: str
    key: str | None


class EventRow(NamedTuple):
    """A stored event."""

    sequence: int
    item: str
    kind: str
    seconds: int  # since 1970


class JudgedPair(NamedTuple):
    """An item that a user liked or considered."""

    user: str
    item: str
    sequence: int  # of the first event of the pair
    liked: bool  # after its last event


class EventLog(NamedTuple):
    """All stored events and erasures."""

    rows: list[tuple[int, str, str, int, int]]  # sequence, user, item, number of the kind, seconds since 1970
    erased: frozenset[bytes]  # salted hashes of erased users
    erasures: int  # number of erasures of users with events, or new to the hashes

    @property
    def mark(self) -> tuple[int, int]:
        """State of the file: (the last sequence number, the number of erasures)."""
        return self.rows[-1][0] if self.rows else 0, self.erasures


class EventsUnavailable(ConsiderateError):
    """Raised if the events cannot be stored or read now, for example on a full disk; nothing was acknowledged."""


class EventsRemoved(EventsUnavailable):
    """Raised if the file of events was removed or replaced while the process uses it."""


class EventsDamaged(ConsiderateError):
    """Raised for a file of events with content that no release wrote."""


Done = Callable[[Any, BaseException | None], None]  # called with a result, or with an error
Job = tuple[Any, Done]  # events to store, or a function of the connection that returns a list of one result


class EventStore:
    """The events of a service. `append` and `erase` return at once; the writer's thread calls `done`."""

    def __init__(self, path: str, metrics: Metrics) -> None:
        self.path, self.metrics = path, metrics
        self._failed = False  # whether the last commit failed
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)  # likes are private
            self._file = _file_of(os.fstat(descriptor))
            os.close(descriptor)
            self._salt = self._prepare(self._connect())
        except UnicodeDecodeError as error:
            raise EventsDamaged(_damaged(path, "a text in it is not UTF-8")) from error
        except (sqlite3.Error, OSError) as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT:
                raise EventsDamaged(_damaged(path, f"SQLite says: {error}")) from error
            raise UsageError(
                f"{path}: is no file of events, or cannot be written ({error}); give a new one."
            ) from error
        self.identity = self.hashed("").hex()[:16]  # of this file; a model stores it with a sequence number
        self._thread = threading.Thread(target=self._write_all, name="events", daemon=True)
        self._thread.start()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._open.append(connection)
        for pragma in ("journal_mode=wal", f"synchronous={SYNCHRONOUS}", "secure_delete=on"):
            connection.execute(f"pragma {pragma}")
        return connection

    @property
    def failing(self) -> bool:
        """True if the last commit failed or the file is gone."""
        return self._failed or self._is_removed()

    def _is_removed(self) -> bool:
        """Return whether the file or its log was removed or renamed, so that new events would be lost."""
        try:
            return _file_of(os.stat(self.path)) != self._file or not os.path.exists(f"{self.path}-wal")
        except OSError:
            return True

    def _check_removed(self) -> None:
        """Raise EventsRemoved if the file is gone."""
        if self._is_removed():
            raise EventsRemoved(
                f"{self.path}: was removed or replaced while it was in use, and nothing is stored; put the file back, "
                "or restart with a new one."
            )

    def _prepare(self, connection: sqlite3.Connection) -> bytes:
        """Create the tables of a new file, check an old one, and return its salt."""
        others = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
        if others and "about" not in others:
            raise sqlite3.DatabaseError("it is the database of another program")
        connection.executescript(f"begin immediate;{SCHEMA}commit;")
        connection.execute("insert or ignore into about values ('salt', ?)", (secrets.token_bytes(SALT),))
        connection.execute("insert or ignore into about values ('version', ?), ('erasures', 0)", (VERSION,))
        about = dict(connection.execute("select name, value from about"))
        salt, version, erasures = (about[name] for name in ("salt", "version", "erasures"))
        if isinstance(version, int) and version > VERSION:
            raise UsageError(f"{self.path}: was made by a newer version of considerate; use that one.")
        if version != VERSION:
            raise EventsDamaged(_damaged(self.path, f"its version is {version!r}"))
        if not isinstance(salt, bytes) or len(salt) != SALT:
            raise EventsDamaged(_damaged(self.path, f"its salt is not {SALT} bytes"))
        if not isinstance(erasures, int) or erasures < 0:
            raise EventsDamaged(_damaged(self.path, f"its number of erasures is {erasures!r}"))
        if (wrong := connection.execute(WRONG_ROW).fetchone()) is not None:
            raise EventsDamaged(_damaged(self.path, f"event {wrong[0]!r} has a field of another kind"))
        return salt

    def hashed(self, text: str) -> bytes:
        """Compute the salted hash of a text that must not be stored."""
        return hashlib.blake2b(text.encode(), key=self._salt, digest_size=16).digest()

    def is_among(self, erased: frozenset[bytes], user: object) -> bool:
        """Return whether a user is among the erased ones."""
        return bool(erased) and self.hashed(str(user)) in erased

    # --- Reading: from any thread, each with a connection of its own ---

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Get this thread's connection; raise EventsUnavailable if the file cannot be read."""
        self._check_removed()
        try:
            connection = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = self._connect()
            yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise EventsUnavailable(f"{self.path}: cannot be read now ({error}); try again in a moment.") from error

    def of_users(self, users: Iterable[str]) -> dict[str, list[tuple[int, str, int]]]:
        """Read user -> [(sequence, item, number of the kind)], in order, for users with events."""
        sql = "select sequence, item, kind from events where user = ? order by sequence desc limit ?"
        found = {}
        with self._reading() as reader:
            for user in users:
                rows = reader.execute(sql, (user, MOST_READ)).fetchall()
                if rows:
                    found[user] = rows[::-1]
        return found

    def page(self, user: str, after: int, count: int) -> list[EventRow]:
        """Read up to `count` events of a user after a sequence number."""
        sql = "select sequence, item, kind, time from events where user = ? and sequence > ? order by sequence limit ?"
        with self._reading() as reader:
            rows = reader.execute(sql, (user, after, count)).fetchall()
        return [EventRow(sequence, item, KINDS[kind], seconds) for sequence, item, kind, seconds in rows]

    def mark(self) -> tuple[int, int]:
        """State of the file: (the last sequence number, the number of erasures)."""
        with self._reading() as reader:
            last = reader.execute("select max(sequence) from events").fetchone()[0]
            return last or 0, self._erasures(reader)

    def judged(self, after: int, most: int, events: int) -> list[JudgedPair]:
        """Read the latest `most` liked or considered pairs whose first event is after a sequence number, from the
        latest `events` events."""
        window = max(0, self.mark()[0] - events)
        values = {"window": window, "after": max(after, window), "most": most}
        with self._reading() as reader:
            rows = reader.execute(JUDGED, values).fetchall()
        return [JudgedPair(user, item, first, bool(liked)) for user, item, first, liked in rows]

    def everything(self) -> EventLog:
        """Read all events and erasures at one moment, for a refit."""
        with self._reading() as connection, _transaction(connection):  # nobody writes meanwhile
            rows = connection.execute(
                "select sequence, user, item, kind, time from events order by sequence"
            ).fetchall()
            return EventLog(rows, _erased_in(connection), self._erasures(connection))

    def unless_erased(self, log: EventLog, users: Ids, act: Callable[[], None]) -> bool:
        """Call `act` while nobody can erase, and return True; return False without the call if a user, or an event of
        the log, was erased since the log was read."""
        known = log.erased
        while True:
            with self._reading() as connection:
                with _transaction(connection):
                    sql = "select count(*) from events where sequence <= ?"
                    if connection.execute(sql, (log.mark[0],)).fetchone()[0] != len(log.rows):
                        return False
                    erased = _erased_in(connection)
                    if erased == known:
                        act()
                        return True
                if any(self.is_among(erased - known, user) for user in users.ids_of(range(len(users)))):
                    return False  # searched outside the transaction, because many users take long
                known = erased

    def _erasures(self, connection: sqlite3.Connection) -> int:
        return int(connection.execute("select value from about where name = 'erasures'").fetchone()[0])

    # --- Writing: in one thread ---

    def append(self, events: Sequence[NewEvent], done: Done) -> None:
        """Store events; `done` gets (sequence, whether it was stored before) of each, when they are on disk."""
        self._queue.put((list(events), done))

    def erase(self, user: str, done: Done) -> None:
        """Erase a user's events; `done` gets their number when the files have no byte of them."""
        self._queue.put((partial(self._erase, user), done))

    def probe(self, done: Done) -> None:
        """Write and delete a row, to see whether events can be stored."""
        self._queue.put((self._probe, done))

    def waiting(self) -> int:
        """Number of requests that wait for the writer."""
        return self._queue.qsize()

    def close(self) -> None:
        """Store waiting events, and close the file."""
        self._queue.put(None)
        self._thread.join()
        removed = self._is_removed()
        for connection in self._open:
            connection.close()
        if not removed:
            self._remove_log()

    def _remove_log(self) -> None:
        """Let SQLite delete its log if two processes closed the file at one moment, each as if not the last."""
        for attempt in range(REMOVALS):
            if not os.path.exists(f"{self.path}-wal"):
                return
            time.sleep(0.02 * attempt * (1.0 + os.getpid() % 7))  # processes wait for different times
            with suppress(sqlite3.Error), closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS)) as connection:
                connection.execute("select count(*) from about").fetchone()

    def _write_all(self) -> None:
        connection, ended = self._connect(), False
        while not ended:
            jobs = [self._queue.get()]
            while len(jobs) < MOST_TOGETHER and not self._queue.empty():  # only this thread takes jobs
                jobs.append(self._queue.get())
            ended = jobs[-1] is None
            self._do(connection, [job for job in jobs if job is not None])

    def _do(self, connection: sqlite3.Connection, jobs: list[Job]) -> None:
        """Run jobs in their order; one commit stores the events of consecutive requests."""
        for are_events, group in groupby(jobs, lambda job: isinstance(job[0], list)):
            members = list(group)
            if are_events:
                self._answer(members, partial(self._store, connection, [events for events, _ in members]))
            else:
                for run, done in members:
                    self._answer([(run, done)], partial(run, connection))

    def _answer(self, jobs: list[Job], run: Callable[[], list[Any]]) -> None:
        """Run jobs, and pass each its result, or the error to all."""
        try:
            results = run()
            self._check_removed()  # before anything is acknowledged
        except Exception as error:  # other errors than SQLite's must not end this thread either
            self._failed = True
            self.metrics.failures.inc()
            reason = str(error) if isinstance(error, sqlite3.Error) else type(error).__name__
            logger.error("events not stored", extra={"fields": {"reason": reason}})
            unavailable = error if isinstance(error, EventsUnavailable) else EventsUnavailable(reason)
            for _, done in jobs:
                done(None, unavailable)
            return
        self._failed = False
        for (_, done), result in zip(jobs, results):
            done(result, None)

    def _store(self, connection: sqlite3.Connection, groups: list[list[NewEvent]]) -> list[list[tuple[int, bool]]]:
        now, counts, duplicates = int(time.time()), dict.fromkeys(KINDS, 0), 0
        results = []
        with _transaction(connection):
            for events in groups:
                stored = []
                for event in events:
                    sequence, is_new = self._insert(connection, event, now)
                    stored.append((sequence, not is_new))
                    counts[event.kind] += is_new
                    duplicates += not is_new
                results.append(stored)
        self.metrics.commits.inc()
        self.metrics.duplicates.inc(duplicates)
        for kind, count in counts.items():
            self.metrics.events.labels(kind).inc(count)
        return results

    def _insert(self, connection: sqlite3.Connection, event: NewEvent, now: int) -> tuple[int, bool]:
        """Insert an event unless its key is known; return (sequence, whether it is new)."""
        hashed = None
        if event.key is not None:
            hashed = self.hashed(f"{len(event.user)} {event.user} {event.key}")
            known = connection.execute("select sequence from keys where hash = ?", (hashed,)).fetchone()
            if known is not None:
                return known[0], False
        values = event.user, event.item, KINDS.index(event.kind), now
        sql = "insert into events (user, item, kind, time) values (?, ?, ?, ?)"
        sequence = int(connection.execute(sql, values).lastrowid or 0)
        if hashed is not None:
            connection.execute("insert into keys values (?, ?)", (hashed, sequence))
        return sequence, True

    def _probe(self, connection: sqlite3.Connection) -> list[None]:
        with _transaction(connection):
            connection.execute("insert or replace into about values ('probe', zeroblob(16384))")
            connection.execute("delete from about where name = 'probe'")
        return [None]

    def _erase(self, user: str, connection: sqlite3.Connection) -> list[int]:
        """Delete events without a trace. The next erasure completes one that was interrupted, by a note in the file."""
        with _transaction(connection):
            erased = connection.execute("delete from events where user = ?", (user,)).rowcount
            new = connection.execute("insert or ignore into erased values (?)", (self.hashed(user),)).rowcount
            if erased or new:
                connection.execute("update about set value = value + 1 where name = 'erasures'")
            if erased:
                connection.execute("insert or replace into about values ('traces', 1)")
        if connection.execute("select 1 from about where name = 'traces'").fetchone() is not None:
            self._empty_log(connection)
            connection.execute("vacuum")
            connection.execute("delete from about where name = 'traces'")
            self._empty_log(connection)
        return [erased]

    def _empty_log(self, connection: sqlite3.Connection) -> None:
        """Copy the log into the file and truncate it; wait for readers that hold it."""
        until = time.monotonic() + BUSY_SECONDS
        while connection.execute("pragma wal_checkpoint(truncate)").fetchone()[0]:
            if time.monotonic() > until:
                raise sqlite3.OperationalError("a reader holds the log; the old pages are still in it")
            time.sleep(0.01)


def _erased_in(connection: sqlite3.Connection) -> frozenset[bytes]:
    """Salted hashes of all erased users."""
    return frozenset(row[0] for row in connection.execute("select hash from erased"))


def _file_of(info: os.stat_result) -> tuple[int, int]:
    """Identity of a file, independent of its name."""
    return info.st_dev, info.st_ino


def _damaged(path: str, reason: str) -> str:
    return f"{path}: the file of events is damaged, {reason}; restore a copy, or give a new one."


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Transaction that is committed at the end of the block, or rolled back after an error."""
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")
