"""Tables from strangers: CSV against Python's csv, features, and impossible pairs against plain Python."""

from __future__ import annotations

import csv
import io
import math
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from considerate.data import read_interactions
from considerate.data.graph import Adjacency
from considerate.data.known_tables import Impossible, KnownTables, read_impossible
from considerate.data.options import ReaderOptions
from considerate.data.read_features import read_features
from considerate.data.text import MISSING_IDS
from considerate.data.vocabulary import Vocabulary
from considerate.errors import ConsiderateError
from fuzz.base import Check, Choices, Place, Target


def _some(seed: int, count: int, size: int = 120) -> list[bytes]:
    choice = random.Random(seed)
    return [choice.randbytes(size) for _ in range(count)]


# --- CSV ---

FIELDS = [
    *(
        "a",
        "7",
        "007",
        "-3",
        "NA",
        "null",
        "nan",
        "",
        "é",
        "日本",
        '"',
        '""',
        'say "x"',
        "it's",
        "a,b",
        "a;b",
        "x|y",
        "a::b",
    ),
    *(
        " a",
        "a ",
        "\u00a0",
        "1e5",
        "4.5",
        "2024-05-01",
        "9223372036854775808",
        "-9223372036854775808",
        "true",
        "u1",
        "i\u2028j",
    ),
]
PRESENT = [field for field in FIELDS if field.strip() not in MISSING_IDS]


def _prepare_csv(place: Place) -> Check:
    """Inputs with an even first byte are rows, written by Python's csv; others are the bytes of a file."""

    def check(data: bytes) -> str:
        choices = Choices(data)
        raw, path = choices.below(2), place.folder / "likes.csv"
        if raw:
            path.write_bytes(choices.rest())
            return "refused" if _read(path) is None else "read"
        delimiter, quoting = choices.pick([",", ";"]), choices.pick([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
        ending = choices.pick(["\n", "\r\n"])
        items = choices.pick([FIELDS, PRESENT, PRESENT, PRESENT])
        rows = [[*map(choices.pick, (FIELDS, items, FIELDS))] for _ in range(1 + choices.below(12))]
        out = io.StringIO()
        csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator=ending).writerows(
            [["user", "item", "note"], *rows]
        )
        path.write_bytes(out.getvalue().encode())
        found = _read(path)
        if found is None:
            return "refused"
        expected = [(row[0].strip(), row[1].strip()) for row in rows if row[0].strip() not in MISSING_IDS]
        assert found == expected, (out.getvalue(), found, expected)
        return "read"

    return check


def _read(path: Path) -> list[tuple[str, str]] | None:
    """The pairs of a file as texts, or None where it is refused."""
    try:
        got = read_interactions(path, where="user is not null", user_column="user", item_column="item")
    except ConsiderateError:
        return None
    users, items = got.user_ids.ids_of(got.users), got.item_ids.ids_of(got.items)
    return [(str(user), str(item)) for user, item in zip(users, items)]


def _csv_seeds() -> list[bytes]:
    texts = [
        "user,item\na,1\nb,2\n",
        'user;item\r\n"a;""b";1\r\n',
        "user\titem\n1\t2\n",
        "user::item\n1::2\n",
        "# c\nuser item\n1 2\n",
    ]
    return [*(b"\1" + text.encode() for text in texts), *(b"\0" + rest for rest in _some(1, 30, 60))]


CSV = Target("csv", _csv_seeds, _prepare_csv)

# --- Features ---

VALUES: list[Any] = [
    *(
        None,
        0,
        1,
        -1,
        2**63 - 1,
        2**64,
        1.5,
        math.nan,
        math.inf,
        -1e308,
        1e308,
        1e-320,
        True,
        False,
        "",
        "a",
        "a|b",
        "x, y",
        "é",
    ),
    *([], ["a"], ["a", "a"], [None], [1, 2], [1.5, 2.5], [math.nan, 1.0], [[1]], b"a", b"\xff", {}, {"a": 1}, (1, 2)),
    *(
        date(2024, 1, 1),
        datetime(1, 1, 1),
        datetime(9999, 12, 31, tzinfo=UTC),
        np.float32(4.1),
        np.int8(3),
        np.array([1.0, 2.0]),
    ),
]
NAMES = ["item", "tags", "genre", "age", "title", "x:tags", "e", "itemid", "", " item", "id", "0"]


def _prepare_features(_: Place) -> Check:
    def check(data: bytes) -> str:
        choices = Choices(data)
        rows, table = choices.below(8), dict[str, Any]()
        for name in [choices.pick(["item", "id"]), *(choices.pick(NAMES) for _ in range(1 + choices.below(4)))]:
            table[name] = _values(choices, rows)
        options: dict[str, Any] = {"min_rows": 1 + choices.below(3)}
        if choices.below(4) == 0:
            options["columns"] = {
                choices.pick(NAMES): choices.pick(["tags", "number", "category", "embedding", "flag", ""])
            }
        source = np.array(_numbers(choices, rows * 2)).reshape(rows, 2) if choices.below(8) == 0 else table
        try:
            read = read_features(source, "item", **options)
        except ConsiderateError:
            return "refused"
        features = read.features
        assert np.isfinite(features.values).all(), source
        assert features.starts[0] == 0, source
        assert features.starts[-1] == len(features.indices) == len(features.values), source
        assert (np.diff(features.starts) >= 0).all(), source
        for row in range(features.rows):
            own = features.indices[features.starts[row] : features.starts[row + 1]]
            assert (np.diff(own) > 0).all(), source
        assert features.indices.min(initial=0) >= 0, source
        assert features.indices.max(initial=-1) < features.count, source
        return "read"

    return check


def _values(choices: Choices, rows: int) -> Any:
    """A column: values of one kind, of any kind, ids, or an array."""
    how = choices.below(6)
    if how == 0:
        return list(range(rows))
    if how == 1:
        return [choices.pick(VALUES) for _ in range(rows)]
    if how == 2:
        return np.array(_numbers(choices, rows * 2)).reshape(rows, 2)
    if how == 3:
        return [[choices.pick(["a", "b", ""]) for _ in range(choices.below(3))] for _ in range(rows)]
    one = choices.pick(VALUES)
    return [one if choices.below(2) else choices.pick([None, one]) for _ in range(rows)]


def _numbers(choices: Choices, count: int) -> list[float]:
    return [float(choices.pick([0.0, 1.0, -1.0, 1e8, 1e38, 1e300, math.nan, 0.5])) for _ in range(count)]


FEATURES = Target("features", lambda: _some(2, 60), _prepare_features)

# --- Impossible pairs ---

USERS, ITEMS = 5, 4
MOMENTS: list[Any] = [None, "1970-01-01", "2024-05-01", "1969-12-31T23:00:00", "", "soon"]
TIMES: list[Any] = [None, 0, 1, -5, 2.5, 10**9, math.nan, math.inf, -math.inf]


def _prepare_impossible(_: Place) -> Check:
    def check(data: bytes) -> str:
        choices = Choices(data)
        given = _limits(choices)
        try:
            tables = read_impossible(Impossible(**given), ReaderOptions())
            users, items = (Vocabulary.of_integers(np.arange(size)) for size in (USERS, ITEMS))
            likes = Adjacency.of_pairs(np.zeros(0, np.int32), np.zeros(0, np.int32), USERS, ITEMS)
            known = KnownTables(None, tables).rows(users, items, likes)
        except ConsiderateError:
            return "refused"
        for user in range(USERS):
            mask = known.impossible_items(user, ITEMS)
            expected = [_is_impossible(given, user, item) for item in range(ITEMS)]
            assert mask.tolist() == expected, (given, user, mask, expected)
        pairs = np.divmod(np.arange(USERS * ITEMS), ITEMS)
        found = known.are_impossible(*pairs).tolist()
        assert found == [_is_impossible(given, int(user), int(item)) for user, item in zip(*pairs)], given
        return "read"

    return check


def _limits(choices: Choices) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if choices.below(2):
        given["pairs"] = _table(choices, user=range(USERS + 1), item=range(ITEMS + 1))
    if choices.below(2):
        moments = choices.pick([TIMES, TIMES[:6], MOMENTS[:4], MOMENTS])
        given["available"] = _table(choices, item=range(ITEMS + 1), **{"from": moments, "until": moments})
        given["active"] = _table(choices, user=range(USERS + 1), **{"from": moments, "until": moments})
    if choices.below(2):
        groups = choices.pick([["a", "b", "c"], [0, 1, 2, 3], [None, "a", "b"]])
        given["user_groups"] = _table(choices, user=range(USERS + 1), group=groups)
        given["item_groups"] = _table(choices, item=range(ITEMS + 1), group=groups)
    return given


def _table(choices: Choices, **columns: Sequence[Any]) -> dict[str, list[Any]]:
    rows = choices.below(7)
    return {name: [choices.pick(values) for _ in range(rows)] for name, values in columns.items()}


def _is_impossible(given: dict[str, Any], user: int, item: int) -> bool:
    """True of pairs that are excluded, by the definition."""
    if "pairs" in given and (user, item) in zip(*given["pairs"].values()):
        return True
    if "available" in given:
        begin, end = _span(given["available"], "item", item)
        first, last = _span(given["active"], "user", user)
        if begin > last or end < first:
            return True
    if "user_groups" in given:
        of_user, of_item = _groups(given["user_groups"], "user", user), _groups(given["item_groups"], "item", item)
        if of_item is not None and not of_item & (of_user or set()):
            return True
    return False


def _span(table: dict[str, list[Any]], side: str, number: int) -> tuple[float, float]:
    """The first and the last moment; open where one is missing, or where there is no row."""
    rows = [(first, last) for key, first, last in zip(table[side], table["from"], table["until"]) if key == number]
    if not rows:
        return -math.inf, math.inf
    return min(_moment(first, -math.inf) for first, _ in rows), max(_moment(last, math.inf) for _, last in rows)


def _moment(value: Any, otherwise: float) -> float:
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return otherwise
    return datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp() if isinstance(value, str) else float(value)


def _groups(table: dict[str, list[Any]], side: str, number: int) -> set[Any] | None:
    """The groups of one; None where it has no row."""
    rows = [group for key, group in zip(table[side], table["group"]) if key == number]
    return set(rows) if rows else None


IMPOSSIBLE = Target("impossible", lambda: _some(3, 60), _prepare_impossible)
