"""Schema of model files: one table of tensors, one of rules and one of the description's fields.

Code that writes and reads a model, its index and its shards, and refuses damaged files, goes by these tables.

A shape names its sizes: `users`, `items`, `edges`, ... `n+1` is one more than n, `row` is 2 P (see posterior.py), None
is any length. A file has a tensor if its flag is set: `likes`, `user_ids=string`, ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.features import FeatureColumn
from considerate.data.vocabulary import Vocabulary
from considerate.inference.hidden.consideration import WalkFile
from considerate.inference.hidden.limits import LimitsFile
from considerate.inference.parts import PARTS, Part
from considerate.inference.plan import SETTINGS, Chosen, FitPlan
from considerate.inference.posterior import Gamma, Precisions, padded
from considerate.model.liking import UNCHANGED, Recalibration, StructuralVariance
from considerate.model.model import NO_EVENTS, NO_UPDATES, LearnedEvents, Updates
from considerate.model.reliability import LikeReliability
from considerate.storage.container import StoredTensors, Writable, shown
from considerate.storage.layout import (
    COUNT,
    MISSING,
    WEIGHT,
    Arrays,
    Check,
    Fields,
    Sizes,
    Tensor,
    are_finite,
    are_positive,
    are_weights,
    as_many,
    ascending_texts,
    below,
    described_fields,
    divides,
    each,
    is_number,
    parse_field,
    parse_flag,
    rising,
    text_rules,
    text_tensors,
)

POPULARITY_RANGE = 1e-100, 1e100  # for liked items; far beyond any d_n^gamma of data
FILES: tuple[Part, ...] = (LimitsFile(), WalkFile(), *PARTS)  # owners of fields, tensors and rules
KINDS = ("range", "integer", "string")  # of ids
GAMMAS = ("user", "item", "user_bias", "item_bias")
_ROWS = 1 << 14  # rows that are checked at once
_MOST = 2**40  # most users, items or edges

# --- Tensors ------------------------------------------------------------------------------------------------


def _side(name: str, rows: str, flag: str | None = None) -> tuple[Tensor, ...]:
    bias = f"{name}_bias"
    return (
        Tensor(f"{name}.rows", np.float32, (rows, "row"), flag),
        Tensor(f"{name}.bias_mean", np.float32, (rows,), bias),
        Tensor(f"{name}.bias_variance", np.float32, (rows,), bias),
        Tensor(f"{name}.covariance", np.float32, (rows, "triangle"), f"{name}_covariance"),
        Tensor(f"{name}_degree", np.int64, (rows,), flag),
    )


def _ids_tensors(name: str, rows: str) -> tuple[Tensor, ...]:
    return (
        Tensor(f"{name}.integers", np.int64, (rows,), f"{name}=integer"),
        *text_tensors(name, rows, f"{name}=string"),
    )


def _features(side: str, rows: str | None) -> tuple[Tensor, ...]:
    """Tensors of a side's learned features, and of the features of its rows if the file has them."""
    flag = name = f"{side}_features"
    learned = (
        Tensor(f"{name}.mean", np.float64, (name, "factors"), flag),
        Tensor(f"{name}.spread", np.float64, (name, None), flag),
        Tensor(f"{name}.bias_mean", np.float64, (name, 1), f"{name}, {side}_bias"),
        Tensor(f"{name}.bias_spread", np.float64, (name, None), f"{name}, {side}_bias"),
        *text_tensors(f"{name}.names", name, flag),
    )
    if rows is None:
        return learned
    return (
        *learned,
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
    Tensor("bounds", np.float64, (None, "terms")),
    *_ids_tensors("item_ids", "items"),
    *text_tensors("titles", "items", "titles"),
    *_features("item", "items"),
    *_features("user", None),
    *(tensor for part in FILES for tensor in part.tensors),
)
SHARD_NUMBERS = ("number", "first", "rows", "edges", "bytes")
SHARDS = (
    *(Tensor(f"shards.{name}", np.int64, ("shards",)) for name in SHARD_NUMBERS),
    Tensor("shards.sha256", np.uint8, ("shards", 32)),
    *_ids_tensors("shards.ids", "shards"),
)

# --- Rules of values ----------------------------------------------------------------------------------------


def _popularities(pi: NDArray[Any], _: Sizes) -> bool:
    return bool(pi.any() and ((pi == 0) | ((pi >= POPULARITY_RANGE[0]) & (pi <= POPULARITY_RANGE[1]))).all())


_positive_variances = each(lambda part, n: (part[:, n["row"] // 2 :][:, : n["factors"]] > 0).all())
_padded = each(lambda part, n: not part.reshape(len(part), 2, -1)[:, :, n["factors"] :].any())


def _side_rules(side: str) -> tuple[Check, ...]:
    rows, mean, variance, degree = f"{side}.rows", f"{side}.bias_mean", f"{side}.bias_variance", f"{side}_degree"
    covariance = f"{side}.covariance"
    return (
        Check((rows,), f"the tensor {rows!r} holds a value that is not finite", are_finite, deep=True),
        Check((rows,), f"the tensor {rows!r} holds a variance that is not positive", _positive_variances, deep=True),
        Check((rows,), f"the tensor {rows!r} is not padded with zeros", _padded, deep=True),
        Check((mean,), f"the tensor {mean!r} holds a value that is not finite", are_finite),
        Check((variance,), f"the tensor {variance!r} holds a variance that is not positive and finite", are_positive),
        Check((covariance,), f"the tensor {covariance!r} holds a value that is not finite", are_finite, deep=True),
        Check((degree,), f"the tensor {degree!r} does not hold degrees", below(2**31)),
    )


def _id_rules(name: str) -> tuple[Check, ...]:
    reason = f"the ids of {name!r} are not distinct and in ascending order"
    return (
        Check((f"{name}.integers",), reason, lambda numbers, _: not np.any(numbers[1:] <= numbers[:-1])),
        *text_rules(name),
        Check((f"{name}.offsets", f"{name}.text"), reason, ascending_texts, deep=True),
    )


def _feature_rules(name: str) -> tuple[Check, ...]:
    numbers = (f"{name}.{part}" for part in ("mean", "spread", "bias_mean", "bias_spread"))
    return (
        *(
            Check((tensor,), f"the tensor {tensor!r} holds a value that is not finite", are_finite)
            for tensor in numbers
        ),
        *text_rules(f"{name}.names"),
    )


_ENTRIES = "item_features.starts", "item_features.indices"
_LIKES = "likes.starts", "likes.items"
RULES = (
    *_side_rules("user"),
    *_side_rules("item"),
    *(rule for name in ("user_ids", "item_ids", "shards.ids") for rule in _id_rules(name)),
    *text_rules("titles"),
    *_feature_rules("item_features"),
    *_feature_rules("user_features"),
    Check(_ENTRIES, "the features of items are not divided into rows", divides),
    Check(_ENTRIES[1:], "an item has a feature that is not there", below("item_features")),
    Check(("item_features.values",), "the tensor 'item_features.values' holds a value that is not finite", are_finite),
    Check(("popularity",), "the popularities are not those of a model: zero, or from 1e-100 to 1e+100", _popularities),
    Check(("bounds",), "the history of the bound is not finite", lambda bounds, _: (np.abs(bounds) < 1e300).all()),
    Check(_LIKES, "the likes are not divided into users", divides),
    Check(_LIKES[1:], "the likes name an item that is not there", below("items")),
    Check(("likes.weights",), "the likes have a weight that is not from 0 to 1e30", are_weights),
    Check(("likes.starts", "user_degree"), "the likes of a user are not as many as 'user_degree' says", as_many),
    Check(("user_degree",), "the degrees do not add up to 'edges'", lambda degree, n: degree.sum() == n["edges"], True),
    Check(_LIKES, "the likes of a user are not distinct and in ascending order", rising, deep=True),
    *(
        Check((f"shards.{name}",), "its list of shards has a number out of range", below(_MOST))
        for name in SHARD_NUMBERS
    ),
    *(rule for part in FILES for rule in part.rules),
)


# --- The description ----------------------------------------------------------------------------------------

STORED = {declared.metadata["stored"]: declared for declared in SETTINGS.values() if declared.metadata["stored"]}
# Numbers of a plan other than settings, by their names in files, each with its value in older files.
DECIDED: dict[str, Any] = {"offset": 0.0, "item_bias": True, "expected_offsets": False, "unlinked": 0.0}


def _settings(given: Any) -> dict[str, Any]:
    """Parse the settings of inference, each in the range of its parameter."""
    found: dict[str, Any] = {}
    for name, default in ({name: one.metadata["before"] for name, one in STORED.items()} | DECIDED).items():
        value = parse_field("settings", dict, given, "").get(name, default)
        whole = type(default) is int and type(value) is int and 0 <= value < 2**63
        if not (whole or (type(default) is float and is_number(value)) or type(default) is type(value) is bool):
            raise ValueError(f"its setting {name!r} is out of range")
        if name in STORED and not isinstance(value, bool):
            parse_field(name, STORED[name], value, f"its setting {name!r}")
        found[name] = type(default)(value)
    return found


def stored_settings(plan: FitPlan) -> dict[str, Any]:
    """Settings of inference, by their names in files."""
    return {name: getattr(plan, one.name) for name, one in STORED.items()} | {
        name: getattr(plan, name) for name in DECIDED
    }


def _precisions(given: Any) -> Precisions:
    found: dict[str, Gamma] = {}
    for name in GAMMAS:
        pair = parse_field("precisions", dict, given, "").get(name)
        if pair is None and name.endswith("bias"):
            continue
        if not (isinstance(pair, list) and len(pair) == 2 and all(is_number(part) and part > 0 for part in pair)):
            raise ValueError(f"the precision {name!r} is not a shape and a rate")
        found[name] = Gamma(float(pair[0]), float(pair[1]))
    return Precisions(**found)


def _recalibration(given: Any) -> Recalibration:
    if given is MISSING:  # an older file
        return UNCHANGED
    return Recalibration.parse(given)


def _structure(given: Any) -> StructuralVariance | None:
    """Parse the structural variance; None in a file of 0.3 or before."""
    if given is MISSING or given is None:
        return None
    numbers = described_fields(
        given, dict.fromkeys(("user", "item", "pair"), (float, 0.0, 1e6)), "its structural variance"
    )
    return StructuralVariance(**numbers)


def _signed(given: Any) -> bool | None:
    """Parse `signed`: True if half of the coordinates of vertices repel; None for users and items."""
    return None if given is MISSING else bool(parse_field("signed", bool, given, ""))


def _updates(given: Any) -> Updates:
    if given is MISSING:
        return NO_UPDATES
    numbers = (
        isinstance(given, dict) and given.keys() == vars(NO_UPDATES).keys() and all(map(is_number, given.values()))
    )
    if not numbers or min(given.values()) < 0:
        raise ValueError(f"its updates are not described by {', '.join(vars(NO_UPDATES))}")
    return Updates(**{name: type(default)(given[name]) for name, default in vars(NO_UPDATES).items()})


def _events(given: Any) -> LearnedEvents:
    """Parse the record of the events that the model has learned; none in a file that is not from a refit."""
    return (
        NO_EVENTS if given is MISSING else LearnedEvents(**described_fields(given, EVENT_FIELDS, "the field 'events'"))
    )


def _features_field(name: str) -> Callable[[Any], dict[str, Any] | None]:
    """Function that parses the description of a side's features; None without any, as in older files."""

    def parse(given: Any) -> dict[str, Any] | None:
        return None if given is MISSING else described_fields(given, FEATURE_FIELDS, f"the field {name!r}")

    return parse


def _feature_precisions(given: Any) -> tuple[Gamma, ...]:
    try:
        gammas = tuple(Gamma(float(shape), float(rate)) for shape, rate in given)
    except (TypeError, ValueError) as error:
        raise ValueError("the precisions of features are not shapes and rates") from error
    numbers = [number for gamma in gammas for number in (gamma.shape, gamma.rate)]
    if not 1 <= len(gammas) <= 2 or not all(is_number(number) and number > 0 for number in numbers):
        raise ValueError("the precisions of features are not shapes and rates")
    return gammas


def _columns(given: Any) -> tuple[FeatureColumn, ...]:
    """Parse the encoding of a table's columns as features."""
    try:
        columns = tuple(
            FeatureColumn(**column | {part: tuple(map(float, column[part])) for part in ("means", "deviations")})
            for column in given
        )
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError("the columns of features are not described as they should be") from error
    for column in columns:
        numbers, texts = (*column.means, *column.deviations), (column.name, column.kind, column.mark)
        if not all(map(is_number, numbers)) or not all(isinstance(text, str) for text in texts):
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


def _terms(given: Any) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(term, str) for term in given):
        raise ValueError("the history of the bound is not one of terms, 'bound_terms' of the bounds")
    return list(given)


_SOME = (int, 1, _MOST)
_SEQUENCE = (int, 0, 2**63 - 1)
EVENT_FIELDS: Fields = {"sequence": _SEQUENCE, "erasures": _SEQUENCE, "log": str, "considered": bool}
FEATURE_FIELDS: Fields = {"count": COUNT, "entries": COUNT, "precisions": _feature_precisions, "columns": _columns}
USERS_FIELDS: Fields = {"users": COUNT, "edges": COUNT, "likes": bool, "user_ids": _ids("user_ids")}
USERS_FIELDS |= {"weights": parse_flag, "user_covariance": parse_flag}
SHARED_FIELDS: Fields = {
    "factors": _SOME,
    "items": COUNT,
    "gamma": (float, -2000, 100),
    "negatives": SETTINGS["negatives"],
    "groups": SETTINGS["groups"],
    "popularity_weight": WEIGHT,
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
    "updates": _updates,
    "events": _events,
    "item_covariance": parse_flag,
    "item_features": _features_field("item_features"),
    "user_features": _features_field("user_features"),
    **{name: spec for part in FILES for name, spec in part.fields.items()},
}
SHARD_FIELDS: Fields = USERS_FIELDS | {"first": COUNT, "factors": _SOME}
INDEX_FIELDS: Fields = SHARED_FIELDS | USERS_FIELDS | {"shards": _SOME, "users": _SOME}

# --- Writing and reading by these tables --------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """Sizes that shapes name, and flags that are set, from a description."""

    sizes: Sizes
    flags: set[str | None]

    @classmethod
    def of(cls, about: Mapping[str, Any], *, user_bias: bool, item_bias: bool) -> Form:
        counted = {name: about[name] for name in ("users", "items", "edges", "shards", "factors") if name in about}
        for part in FILES:
            counted |= part.sizes(about)
        for name in ("item_features", "user_features"):
            if about.get(name):
                counted |= {name: about[name]["count"], f"{name}.entries": about[name]["entries"]}
        sizes = counted | {f"{name}+1": size + 1 for name, size in counted.items()}
        sizes |= {"triangle": about["factors"] * (about["factors"] + 1) // 2}
        sizes |= {"row": 2 * padded(about["factors"]), "terms": len(about.get("bound_terms", ()))}
        two_kinds = about.get("signed") is None  # else users are the items, and the file has no user rows
        ids = [*(["user_ids"] if two_kinds else []), "item_ids", "shards.ids"]
        flags = {f"{name}={about[name]['kind']}" for name in ids if name in about}
        names = ["likes", "weights", "titles", "user_covariance", "item_covariance"]
        names += [name for part in FILES for name in part.fields]
        flags |= {name for name in (*names, "item_features", "user_features") if about.get(name)}
        there = {"user_bias": user_bias and two_kinds, "item_bias": item_bias, "two_kinds": two_kinds}
        flags |= {name for name, yes in there.items() if yes}
        for side in ("user", "item"):
            both = f"{side}_features", f"{side}_bias"
            flags |= {", ".join(both)} if flags >= {*both} else set()
        return cls(sizes, {None, *flags})

    def select(self, tensors: Sequence[Tensor], values: Mapping[str, Writable]) -> dict[str, Writable]:
        """Select the tensors whose flag is set, to write them with the type and shape of the table."""
        chosen: dict[str, Writable] = {}
        for tensor in tensors:
            if tensor.flag in self.flags:
                value = chosen[tensor.name] = values[tensor.name]
                wanted = [self.sizes[size] if isinstance(size, str) else size for size in tensor.shape]
                assert value.dtype == np.dtype(tensor.dtype), tensor.name
                assert all(want in (None, have) for want, have in zip(wanted, value.shape, strict=True)), tensor.name
        return chosen

    def views(self, stored: StoredTensors, tensors: Sequence[Tensor]) -> Arrays:
        """Unverified tensors whose flag is set; raise ModelFileError if one is missing or has another form."""
        found: Arrays = {}
        for tensor in tensors:
            if tensor.flag in self.flags:
                wanted = [self.sizes[size] if isinstance(size, str) else size for size in tensor.shape]
                found[tensor.name] = stored.expect(tensor.name, tensor.dtype, wanted, lazy=True)
        return found

    def check(self, stored: StoredTensors, found: Arrays) -> None:
        """Raise ModelFileError if values break a rule. The tensors may have some rows only, if `starts` and `offsets`
        count from the first of these."""
        for rule in RULES:
            due = found.keys() >= set(rule.tensors) and (stored.thorough or not rule.deep)
            if due and not rule.holds(*(found[name] for name in rule.tensors), self.sizes):
                raise stored.refusal(rule.reason)

    def read(self, stored: StoredTensors, tensors: Sequence[Tensor]) -> Arrays:
        """Read the tensors whose flag is set; verify them and check the rules."""
        found = self.views(stored, tensors)
        for name in found:
            stored.verify_rows(name)
        self.check(stored, found)
        return found


def parse(stored: StoredTensors, expected: Fields) -> dict[str, Any]:
    """Parse the fields of a description; raise ModelFileError for one that is out of range."""
    try:
        found = {name: stored.metadata.get(name, MISSING) for name in expected}
        return {name: parse_field(name, spec, found[name], f"its {name!r}") for name, spec in expected.items()}
    except ValueError as error:
        raise stored.refusal(str(error)) from error


def vocabulary(name: str, about: Mapping[str, Any], arrays: Arrays) -> Vocabulary:
    """Make a vocabulary from its tensors."""
    integers, offsets, text = (arrays.get(f"{name}.{part}") for part in ("integers", "offsets", "text"))
    return Vocabulary(about["kind"], about["size"], integers, offsets, text)


def vocabulary_tensors(name: str, ids: Vocabulary) -> Arrays:
    return {f"{name}.{part}": array for part, array in ids.tensors().items()}
