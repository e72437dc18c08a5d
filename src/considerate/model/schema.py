"""What is in the files of a model: one table of tensors, one of rules and one of the description's fields. They are
used to write a model, its index and its shards, to read them, and to refuse files that do not hold what they claim.

A shape names its sizes: `users`, `items`, `edges`, ... `n+1` is one more than n, `row` is 2 P (see posterior.py), None
is any length. A tensor is there when its flag is set: `likes`, `user_ids=string`, ...
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from considerate.data.features import FeatureColumn
from considerate.data.vocabulary import Vocabulary
from considerate.errors import UsageError
from considerate.inference.plan import SETTINGS, Chosen, FitPlan
from considerate.inference.posterior import Gamma, Precisions, padded
from considerate.model.liking import UNCHANGED, Recalibration, StructuralVariance
from considerate.model.model import NO_EVENTS, NO_UPDATES, LearnedEvents, Updates
from considerate.model.reliability import LikeReliability
from considerate.settings import check_setting
from considerate.storage.container import StoredTensors, Writable, shown

Sizes = dict[str, int]
Arrays = dict[str, NDArray[Any]]
POPULARITY_RANGE = 1e-100, 1e100  # of an item that was liked; far beyond any d_n^gamma of data
KINDS = ("range", "integer", "string")  # of ids
GAMMAS = ("user", "item", "user_bias", "item_bias")
_ROWS = 1 << 14  # that are checked at once
_MOST = 2**40  # users, items, edges

# --- Tensors ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
    """A tensor of a model."""

    name: str
    dtype: DTypeLike
    shape: tuple[str | int | None, ...]
    flag: str | None = None


def _side(name: str, rows: str, flag: str | None = None) -> tuple[Tensor, ...]:
    bias = f"{name}_bias"
    return (
        Tensor(f"{name}.rows", np.float32, (rows, "row"), flag),
        Tensor(f"{name}.bias_mean", np.float32, (rows,), bias),
        Tensor(f"{name}.bias_variance", np.float32, (rows,), bias),
        Tensor(f"{name}.covariance", np.float32, (rows, "triangle"), f"{name}_covariance"),
        Tensor(f"{name}_degree", np.int64, (rows,), flag),
    )


def _texts(name: str, rows: str, flag: str) -> tuple[Tensor, ...]:
    return (
        Tensor(f"{name}.offsets", np.int64, (f"{rows}+1",), flag),
        Tensor(f"{name}.text", np.uint8, (None,), flag),
    )


def _ids_tensors(name: str, rows: str) -> tuple[Tensor, ...]:
    return (Tensor(f"{name}.integers", np.int64, (rows,), f"{name}=integer"), *_texts(name, rows, f"{name}=string"))


def _features(side: str, rows: str | None) -> tuple[Tensor, ...]:
    """What features say of a side; and those of its rows, where they are in this file."""
    flag = name = f"{side}_features"
    said = (
        Tensor(f"{name}.mean", np.float64, (name, "factors"), flag),
        Tensor(f"{name}.spread", np.float64, (name, None), flag),
        Tensor(f"{name}.bias_mean", np.float64, (name, 1), f"{name}, {side}_bias"),
        Tensor(f"{name}.bias_spread", np.float64, (name, None), f"{name}, {side}_bias"),
        *_texts(f"{name}.names", name, flag),
    )
    if rows is None:
        return said
    return (
        *said,
        Tensor(f"{name}.starts", np.int64, (f"{rows}+1",), flag),
        Tensor(f"{name}.indices", np.int32, (f"{name}.entries",), flag),
        Tensor(f"{name}.values", np.float32, (f"{name}.entries",), flag),
    )


USERS = (
    *_side("user", "users", "two_kinds"),
    Tensor("likes.starts", np.int64, ("users+1",), "likes"),
    Tensor("likes.items", np.int32, ("edges",), "likes"),
    Tensor("likes.weights", np.float32, ("edges",), "weights"),
    *_ids_tensors("user_ids", "users"),
)
SHARED = (
    *_side("item", "items"),
    Tensor("popularity", np.float64, ("items",)),
    Tensor("walk.starts", np.int64, ("items+1",), "walk"),
    Tensor("walk.items", np.int32, ("walk",), "walk"),
    Tensor("walk.shares", np.float32, ("walk",), "walk"),
    Tensor("walk.rest", np.float32, ("items",), "walk"),
    Tensor("walk_degree", np.int64, ("items",), "walk_degree"),
    Tensor("bounds", np.float64, (None, "terms")),
    *_ids_tensors("item_ids", "items"),
    *_texts("titles", "items", "titles"),
    Tensor("impossible.starts", np.int64, (None,), "impossible"),
    Tensor("impossible.items", np.int32, (None,), "impossible"),
    Tensor("rules.user_class", np.int32, (None,), "classes"),
    Tensor("rules.item_class", np.int32, ("items",), "classes"),
    Tensor("rules.allowed", np.uint64, (None, None), "classes"),
    Tensor("rules.user_times", np.float64, (None, 2), "times"),
    Tensor("rules.item_times", np.float64, ("items", 2), "times"),
    *_features("item", "items"),
    *_features("user", None),
)
LIMITS = ("impossible", "classes", "times")  # flags of what is impossible
SHARD_NUMBERS = ("number", "first", "rows", "edges", "bytes")
SHARDS = (
    *(Tensor(f"shards.{name}", np.int64, ("shards",)) for name in SHARD_NUMBERS),
    Tensor("shards.sha256", np.uint8, ("shards", 32)),
    *_ids_tensors("shards.ids", "shards"),
)

# --- Rules of values ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """What the values of some tensors obey. A `deep` rule is for thorough reading only; without the others a file would
    not be safe to use."""

    tensors: tuple[str, ...]
    reason: str
    holds: Callable[..., Any]  # (*arrays, sizes)
    deep: bool = False


def _each(test: Callable[..., Any]) -> Callable[..., bool]:
    """A rule of every row, some rows at a time."""
    return lambda array, n: all(test(array[first : first + _ROWS], n) for first in range(0, len(array), _ROWS))


def _divides(starts: NDArray[Any], parts: NDArray[Any], _: Sizes) -> bool:
    return bool(starts[0] == 0 and starts[-1] == len(parts) and not np.any(starts[1:] < starts[:-1]))


def _utf8(offsets: NDArray[Any], text: NDArray[Any], _: Sizes) -> bool:
    """True of text that is UTF-8, with no character cut in two: 10xxxxxx continues one. A part at a time: a large file
    may be nearly all text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for first in range(0, len(text), 64 * _ROWS):
            decoder.decode(text[first : first + 64 * _ROWS].tobytes())
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    cuts = (offsets[first : first + _ROWS] for first in range(0, len(offsets) - 1, _ROWS))
    return not any(np.any((text[cut[cut < len(text)]] & 0xC0) == 0x80) for cut in cuts)


def ascending_texts(offsets: NDArray[np.int64], text: NDArray[np.uint8], _: Sizes | None = None) -> bool:
    """Whether each string is above the one before it by its bytes: `all(a < b for a, b in pairwise(strings))`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    buffers = [None, *(pa.py_buffer(np.ascontiguousarray(array)) for array in (offsets, text))]
    texts = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
    return bool(pc.all(pc.less(texts[:-1], texts[1:]), min_count=0).as_py())


def _as_many(starts: NDArray[Any], degree: NDArray[Any], _: Sizes) -> bool:
    cuts = range(0, len(degree), _ROWS)
    return all(np.array_equal(np.diff(starts[cut : cut + _ROWS + 1]), degree[cut : cut + _ROWS]) for cut in cuts)


def _rising(starts: NDArray[Any], items: NDArray[Any], _: Sizes) -> bool:
    rises = items[1:] > items[:-1]
    rises[starts[(starts > 0) & (starts < len(items))] - 1] = True  # the last of a row and the first of the next
    return bool(rises.all())


def _adds_up(starts: NDArray[Any], shares: NDArray[Any], rest: NDArray[Any], _: Sizes) -> bool:
    """Whether the shares of each row and what was cut of it make 1, as far as float32 says."""
    for first in range(0, len(rest), _ROWS):
        ends = starts[first : first + _ROWS + 1]
        total = np.append(0.0, np.cumsum(shares[ends[0] : ends[-1]], dtype=np.float64))
        if np.any(np.abs(np.diff(total[ends - ends[0]]) + rest[first : first + _ROWS] - 1.0) > 1e-4):
            return False
    return True


def _popularities(pi: NDArray[Any], _: Sizes) -> bool:
    return bool(pi.any() and ((pi == 0) | ((pi >= POPULARITY_RANGE[0]) & (pi <= POPULARITY_RANGE[1]))).all())


def _all_liked(items: NDArray[Any], pi: NDArray[Any], _: Sizes) -> bool:
    return all((pi[items[first : first + _ROWS]] > 0).all() for first in range(0, len(items), _ROWS))


def _of_all_users(*more: int) -> Callable[..., bool]:
    """A rule of how many there are: one for each user, and so many more."""
    return lambda array, n: len(array) == n["users"] + sum(more)


_spans = _each(lambda part, _: (part[:, 0] <= part[:, 1]).all())
_finite = _each(lambda part, _: np.isfinite(part).all())
_positive = _each(lambda part, _: ((part > 0) & np.isfinite(part)).all())
_shares = _each(lambda part, _: ((part > 0) & (part <= 1)).all())
_weights = _each(lambda part, _: ((part >= 0) & (part <= 1e30)).all())
_fractions = _each(lambda part, _: ((part >= 0) & (part <= 1)).all())
_positive_variances = _each(lambda part, n: (part[:, n["row"] // 2 :][:, : n["factors"]] > 0).all())
_padded = _each(lambda part, n: not part.reshape(len(part), 2, -1)[:, :, n["factors"] :].any())


def _below(limit: int | str) -> Callable[..., bool]:
    """A rule of whole numbers from 0 up to a limit, which may be a size."""

    def holds(numbers: NDArray[Any], n: Sizes) -> bool:
        most = n[limit] if isinstance(limit, str) else limit
        return not len(numbers) or 0 <= int(numbers.min()) <= int(numbers.max()) < most

    return holds


def _side_rules(side: str) -> tuple[Check, ...]:
    rows, mean, variance, degree = f"{side}.rows", f"{side}.bias_mean", f"{side}.bias_variance", f"{side}_degree"
    covariance = f"{side}.covariance"
    return (
        Check((rows,), f"the tensor {rows!r} holds a value that is not finite", _finite, deep=True),
        Check((rows,), f"the tensor {rows!r} holds a variance that is not positive", _positive_variances, deep=True),
        Check((rows,), f"the tensor {rows!r} is not padded with zeros", _padded, deep=True),
        Check((mean,), f"the tensor {mean!r} holds a value that is not finite", _finite),
        Check((variance,), f"the tensor {variance!r} holds a variance that is not positive and finite", _positive),
        Check((covariance,), f"the tensor {covariance!r} holds a value that is not finite", _finite, deep=True),
        Check((degree,), f"the tensor {degree!r} does not hold degrees", _below(2**31)),
    )


def _text_rules(name: str) -> tuple[Check, ...]:
    both = (f"{name}.offsets", f"{name}.text")
    return (
        Check(both, f"the offsets of {name!r} do not divide its text", _divides),
        Check(both, f"{name!r} is not UTF-8 text", _utf8),
    )


def _id_rules(name: str) -> tuple[Check, ...]:
    reason = f"the ids of {name!r} are not distinct and in ascending order"
    return (
        Check((f"{name}.integers",), reason, lambda numbers, _: not np.any(numbers[1:] <= numbers[:-1])),
        *_text_rules(name),
        Check((f"{name}.offsets", f"{name}.text"), reason, ascending_texts, deep=True),
    )


def _feature_rules(name: str) -> tuple[Check, ...]:
    numbers = (f"{name}.{part}" for part in ("mean", "spread", "bias_mean", "bias_spread"))
    return (
        *(Check((tensor,), f"the tensor {tensor!r} holds a value that is not finite", _finite) for tensor in numbers),
        *_text_rules(f"{name}.names"),
    )


_ENTRIES = "item_features.starts", "item_features.indices"
_LIKES, _WALK = ("likes.starts", "likes.items"), ("walk.starts", "walk.items")
_IMPOSSIBLE, SIDES = ("impossible.starts", "impossible.items"), ("user", "item")
RULES = (
    *_side_rules("user"),
    *_side_rules("item"),
    *(rule for name in ("user_ids", "item_ids", "shards.ids") for rule in _id_rules(name)),
    *_text_rules("titles"),
    *_feature_rules("item_features"),
    *_feature_rules("user_features"),
    Check(_ENTRIES, "the features of items are not divided into rows", _divides),
    Check(_ENTRIES[1:], "an item has a feature that is not there", _below("item_features")),
    Check(("item_features.values",), "the tensor 'item_features.values' holds a value that is not finite", _finite),
    Check(("popularity",), "the popularities are not those of a model: zero, or from 1e-100 to 1e+100", _popularities),
    Check(("bounds",), "the history of the bound is not finite", lambda bounds, _: (np.abs(bounds) < 1e300).all()),
    Check(_LIKES, "the likes are not divided into users", _divides),
    Check(_LIKES[1:], "the likes name an item that is not there", _below("items")),
    Check(("likes.weights",), "the likes have a weight that is not from 0 to 1e30", _weights),
    Check(("likes.starts", "user_degree"), "the likes of a user are not as many as 'user_degree' says", _as_many),
    Check(("user_degree",), "the degrees do not add up to 'edges'", lambda degree, n: degree.sum() == n["edges"], True),
    Check(_LIKES, "the likes of a user are not distinct and in ascending order", _rising, deep=True),
    Check(_WALK, "the table of the walk is not divided into items", _divides),
    Check(_WALK[1:], "the table of the walk names an item that is not there", _below("items")),
    Check(("walk.shares",), "the table of the walk has a share that is not above 0 and at most 1", _shares),
    Check(("walk.rest",), "the table of the walk has a rest that is not from 0 to 1", _fractions),
    Check(("walk_degree",), "the tensor 'walk_degree' does not hold degrees", _below(2**31)),
    Check(_WALK, "a row of the walk's table does not have distinct items in ascending order", _rising),
    Check(
        ("walk.starts", "walk.shares", "walk.rest"), "a row of the walk's table does not add up to 1", _adds_up, True
    ),
    Check(("walk.items", "popularity"), "the table of the walk leads to an item that nobody liked", _all_liked, True),
    Check(_IMPOSSIBLE[:1], "the impossible pairs are not those of all users", _of_all_users(1)),
    Check(_IMPOSSIBLE, "the impossible pairs are not divided into users", _divides),
    Check(_IMPOSSIBLE[1:], "the impossible pairs name an item that is not there", _below("items")),
    Check(_IMPOSSIBLE, "the impossible pairs of a user are not distinct and in ascending order", _rising, deep=True),
    *(
        Check((f"rules.user_{name}",), f"the rules do not have a {name} for each user", _of_all_users())
        for name in ("class", "times")
    ),
    Check(
        ("rules.user_class", "rules.allowed"),
        "the rules name a class of users that is not there",
        lambda classes, allowed, n: _below(len(allowed))(classes, n),
    ),
    Check(
        ("rules.item_class", "rules.allowed"),
        "the rules name a class of items that is not there",
        lambda classes, allowed, n: _below(64 * allowed.shape[1])(classes, n),
    ),
    *(Check((f"rules.{side}_times",), "the rules have a time that ends before it begins", _spans) for side in SIDES),
    *(
        Check((f"shards.{name}",), "its list of shards has a number out of range", _below(_MOST))
        for name in SHARD_NUMBERS
    ),
)


# --- The description ----------------------------------------------------------------------------------------

STORED = {declared.metadata["stored"]: declared for declared in SETTINGS.values() if declared.metadata["stored"]}
# Numbers of a plan other than settings, as the file has them, each with its value in files from before it.
DECIDED: dict[str, Any] = {"offset": 0.0, "item_bias": True, "expected_offsets": False, "unlinked": 0.0}
MISSING = object()
Fields = dict[str, Any]  # a type; (int or float, lowest, highest); the field of a parameter; or a function that parses


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300 and math.isfinite(value)


def _parse(name: str, spec: Any, value: Any, label: str) -> Any:
    """A value of the description; ValueError says what is wrong with it."""
    if isinstance(spec, type):
        if type(value) is not spec:
            raise ValueError(f"its description has no {name!r} of the right kind")
        return value
    if not isinstance(spec, tuple | Field):
        return spec(value)
    if not _is_number(value) or (isinstance(spec, tuple) and spec[0] is int and type(value) is not int):
        raise ValueError(f"its description has no number {name!r}")
    if isinstance(spec, Field):
        try:
            check_setting(spec, value)
        except UsageError as error:
            raise ValueError(f"{label} is out of range ({str(error).removesuffix('.')})") from error
    elif not spec[1] <= value <= spec[2]:
        raise ValueError(f"{label} is out of range")
    return value if isinstance(spec, Field) else spec[0](value)


def _settings(given: Any) -> dict[str, Any]:
    """The settings of inference, each in the range of the parameter that it came from."""
    found: dict[str, Any] = {}
    for name, default in ({name: one.metadata["before"] for name, one in STORED.items()} | DECIDED).items():
        value = _parse("settings", dict, given, "").get(name, default)
        whole = type(default) is int and type(value) is int and 0 <= value < 2**63
        if not (whole or (type(default) is float and _is_number(value)) or type(default) is type(value) is bool):
            raise ValueError(f"its setting {name!r} is out of range")
        if name in STORED and not isinstance(value, bool):
            _parse(name, STORED[name], value, f"its setting {name!r}")
        found[name] = type(default)(value)
    return found


def stored_settings(plan: FitPlan) -> dict[str, Any]:
    """The settings of inference, as the file has them."""
    return {name: getattr(plan, one.name) for name, one in STORED.items()} | {
        name: getattr(plan, name) for name in DECIDED
    }


def _precisions(given: Any) -> Precisions:
    found: dict[str, Gamma] = {}
    for name in GAMMAS:
        pair = _parse("precisions", dict, given, "").get(name)
        if pair is None and name.endswith("bias"):
            continue
        if not (isinstance(pair, list) and len(pair) == 2 and all(_is_number(part) and part > 0 for part in pair)):
            raise ValueError(f"the precision {name!r} is not a shape and a rate")
        found[name] = Gamma(float(pair[0]), float(pair[1]))
    return Precisions(**found)


def _recalibration(given: Any) -> Recalibration:
    if given is MISSING:  # a file from before there was any
        return UNCHANGED
    return Recalibration.parse(given)


def _structure(given: Any) -> StructuralVariance | None:
    """The structural variance; None in a file of 0.3 or before."""
    if given is MISSING or given is None:
        return None
    numbers = _described(given, dict.fromkeys(("user", "item", "pair"), (float, 0.0, 1e6)), "its structural variance")
    return StructuralVariance(**numbers)


def _described(given: Any, expected: Fields, what: str) -> dict[str, Any]:
    """The fields of a part of the description."""
    if not isinstance(given, dict) or given.keys() != expected.keys():
        raise ValueError(f"{what} is not described by {', '.join(expected)}")
    return {name: _parse(name, spec, given[name], f"its {name!r} of {what}") for name, spec in expected.items()}


def _walk(given: Any) -> dict[str, Any] | None:
    """What is said of the walk's table; None where there is none, as in a file from before it."""
    return None if given is MISSING or given is None else _described(given, WALK_FIELDS, "the walk")


def _signed(given: Any) -> bool | None:
    """Of vertices of one kind: whether half of the coordinates repel. None of users and items."""
    return None if given is MISSING else bool(_parse("signed", bool, given, ""))


def _updates(given: Any) -> Updates:
    if given is MISSING:
        return NO_UPDATES
    numbers = (
        isinstance(given, dict) and given.keys() == vars(NO_UPDATES).keys() and all(map(_is_number, given.values()))
    )
    if not numbers or min(given.values()) < 0:
        raise ValueError(f"its updates are not described by {', '.join(vars(NO_UPDATES))}")
    return Updates(**{name: type(default)(given[name]) for name, default in vars(NO_UPDATES).items()})


def _events(given: Any) -> LearnedEvents:
    """Which events the model has learned; none in a file that is not of a refit."""
    return NO_EVENTS if given is MISSING else LearnedEvents(**_described(given, EVENT_FIELDS, "the field 'events'"))


def _features_field(name: str) -> Callable[[Any], dict[str, Any] | None]:
    """What is said of features; None where there are none, as in a file from before them."""

    def parse(given: Any) -> dict[str, Any] | None:
        return None if given is MISSING else _described(given, FEATURE_FIELDS, f"the field {name!r}")

    return parse


def _feature_precisions(given: Any) -> tuple[Gamma, ...]:
    try:
        gammas = tuple(Gamma(float(shape), float(rate)) for shape, rate in given)
    except (TypeError, ValueError) as error:
        raise ValueError("the precisions of features are not shapes and rates") from error
    numbers = [number for gamma in gammas for number in (gamma.shape, gamma.rate)]
    if not 1 <= len(gammas) <= 2 or not all(_is_number(number) and number > 0 for number in numbers):
        raise ValueError("the precisions of features are not shapes and rates")
    return gammas


def _columns(given: Any) -> tuple[FeatureColumn, ...]:
    """How columns of a table became features."""
    try:
        columns = tuple(
            FeatureColumn(**column | {part: tuple(map(float, column[part])) for part in ("means", "deviations")})
            for column in given
        )
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError("the columns of features are not described as they should be") from error
    for column in columns:
        numbers, texts = (*column.means, *column.deviations), (column.name, column.kind, column.mark)
        if not all(map(_is_number, numbers)) or not all(isinstance(text, str) for text in texts):
            raise ValueError("the columns of features are not described as they should be")
        if len(column.means) != len(column.deviations):
            raise ValueError("a column of features has not as many means as deviations")
    return columns


def _ids(name: str) -> Callable[[Any], dict[str, Any]]:
    def parse(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict) or value.keys() != {"kind", "size"}:
            raise ValueError(f"the vocabulary {name!r} is not described by kind and size")
        if value["kind"] not in KINDS or type(value["size"]) is not int or not 0 <= value["size"] < _MOST:
            raise ValueError(f"the vocabulary {name!r} is {shown(value)}")
        return value

    return parse


def _flag(given: Any) -> bool:
    """Whether there is something that older files have nothing of."""
    return False if given is MISSING else bool(_parse("flag", bool, given, ""))


def _terms(given: Any) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(term, str) for term in given):
        raise ValueError("the history of the bound is not one of terms, 'bound_terms' of the bounds")
    return list(given)


_COUNT, _SOME = (int, 0, _MOST), (int, 1, _MOST)
_WEIGHT = (float, -1e6, 1e6)
WALK_FIELDS: Fields = {
    "entries": _COUNT,
    "neighbours": SETTINGS["neighbours"],
    "mix": SETTINGS["mixing"],
    "lift_weight": _WEIGHT,
}
_SEQUENCE = (int, 0, 2**63 - 1)
EVENT_FIELDS: Fields = {"sequence": _SEQUENCE, "erasures": _SEQUENCE, "log": str, "considered": bool}
FEATURE_FIELDS: Fields = {"count": _COUNT, "entries": _COUNT, "precisions": _feature_precisions, "columns": _columns}
USERS_FIELDS: Fields = {"users": _COUNT, "edges": _COUNT, "likes": bool, "user_ids": _ids("user_ids")}
USERS_FIELDS |= {"weights": _flag, "user_covariance": _flag}
SHARED_FIELDS: Fields = {
    "factors": _SOME,
    "items": _COUNT,
    "gamma": (float, -2000, 100),
    "negatives": SETTINGS["negatives"],
    "groups": SETTINGS["groups"],
    "popularity_weight": _WEIGHT,
    "walk": _walk,
    "signed": _signed,
    "chosen": lambda given: Chosen.parse(None if given is MISSING else given),
    "converged": bool,
    "recalibration": _recalibration,
    "structure": _structure,
    "reliability": lambda given: None if given is MISSING else LikeReliability.parse(given),
    "precisions": _precisions,
    "settings": _settings,
    "parameters": dict,
    "bound_terms": _terms,
    "item_ids": _ids("item_ids"),
    "titles": bool,
    **dict.fromkeys(LIMITS, _flag),
    "walk_degree": lambda given: given is True,
    "updates": _updates,
    "events": _events,
    "item_covariance": _flag,
    "item_features": _features_field("item_features"),
    "user_features": _features_field("user_features"),
}
SHARD_FIELDS: Fields = USERS_FIELDS | {"first": _COUNT, "factors": _SOME}
INDEX_FIELDS: Fields = SHARED_FIELDS | USERS_FIELDS | {"shards": _SOME, "users": _SOME}

# --- Writing and reading by these tables --------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """The sizes that shapes name and the flags that are set, by what a description says."""

    sizes: Sizes
    flags: set[str | None]

    @classmethod
    def of(cls, about: Mapping[str, Any], *, user_bias: bool, item_bias: bool) -> Form:
        counted = {name: about[name] for name in ("users", "items", "edges", "shards", "factors") if name in about}
        if about.get("walk"):
            counted["walk"] = about["walk"]["entries"]
        for name in ("item_features", "user_features"):
            if about.get(name):
                counted |= {name: about[name]["count"], f"{name}.entries": about[name]["entries"]}
        sizes = counted | {f"{name}+1": size + 1 for name, size in counted.items()}
        sizes |= {"triangle": about["factors"] * (about["factors"] + 1) // 2}
        sizes |= {"row": 2 * padded(about["factors"]), "terms": len(about.get("bound_terms", ()))}
        two_kinds = about.get("signed") is None  # else users are the items, and their rows are not in the file
        ids = [*(["user_ids"] if two_kinds else []), "item_ids", "shards.ids"]
        flags = {f"{name}={about[name]['kind']}" for name in ids if name in about}
        told = ("likes", "weights", "titles", "walk", "walk_degree", "user_covariance", "item_covariance", *LIMITS)
        flags |= {name for name in (*told, "item_features", "user_features") if about.get(name)}
        there = {"user_bias": user_bias and two_kinds, "item_bias": item_bias, "two_kinds": two_kinds}
        flags |= {name for name, yes in there.items() if yes}
        for side in ("user", "item"):
            both = f"{side}_features", f"{side}_bias"
            flags |= {", ".join(both)} if flags >= {*both} else set()
        return cls(sizes, {None, *flags})

    def select(self, tensors: Sequence[Tensor], values: Mapping[str, Writable]) -> dict[str, Writable]:
        """The tensors to write: those whose flag is set, of the type and shape that the table says."""
        chosen: dict[str, Writable] = {}
        for tensor in tensors:
            if tensor.flag in self.flags:
                value = chosen[tensor.name] = values[tensor.name]
                wanted = [self.sizes[size] if isinstance(size, str) else size for size in tensor.shape]
                assert value.dtype == np.dtype(tensor.dtype), tensor.name
                assert all(want in (None, have) for want, have in zip(wanted, value.shape, strict=True)), tensor.name
        return chosen

    def views(self, stored: StoredTensors, tensors: Sequence[Tensor]) -> Arrays:
        """The tensors whose flag is set, not verified yet; ModelFileError where one is missing or has another form."""
        found: Arrays = {}
        for tensor in tensors:
            if tensor.flag in self.flags:
                wanted = [self.sizes[size] if isinstance(size, str) else size for size in tensor.shape]
                found[tensor.name] = stored.expect(tensor.name, tensor.dtype, wanted, lazy=True)
        return found

    def check(self, stored: StoredTensors, found: Arrays) -> None:
        """ModelFileError where values break a rule. They may be those of some rows, if `starts` and `offsets` are
        counted from the first of them."""
        for rule in RULES:
            due = found.keys() >= set(rule.tensors) and (stored.thorough or not rule.deep)
            if due and not rule.holds(*(found[name] for name in rule.tensors), self.sizes):
                raise stored.refusal(rule.reason)

    def read(self, stored: StoredTensors, tensors: Sequence[Tensor]) -> Arrays:
        """The tensors whose flag is set, verified and held against the rules."""
        found = self.views(stored, tensors)
        for name in found:
            stored.verify_rows(name)
        self.check(stored, found)
        return found


def parse(stored: StoredTensors, expected: Fields) -> dict[str, Any]:
    """The fields of a description, each in its range; ModelFileError says which is not."""
    try:
        found = {name: stored.metadata.get(name, MISSING) for name in expected}
        return {name: _parse(name, spec, found[name], f"its {name!r}") for name, spec in expected.items()}
    except ValueError as error:
        raise stored.refusal(str(error)) from error


def vocabulary(name: str, about: Mapping[str, Any], arrays: Arrays) -> Vocabulary:
    """The ids that some tensors hold."""
    integers, offsets, text = (arrays.get(f"{name}.{part}") for part in ("integers", "offsets", "text"))
    return Vocabulary(about["kind"], about["size"], integers, offsets, text)


def vocabulary_tensors(name: str, ids: Vocabulary) -> Arrays:
    return {f"{name}.{part}": array for part, array in ids.tensors().items()}
