"""Declaration of settings: default, meaning, range and reason of each, written once where its feature lives.

A feature declares its settings in a group, a class whose fields are made by `setting`. `composed` joins the groups into
one class with all settings as arguments. The constructor, its checks, `help()`, the shell, the docs, the plan of a fit,
the fingerprint of a checkpoint, the model file and the choice by "auto" all read these fields.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field, fields
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeVar, Union, dataclass_transform, get_args, get_type_hints

from considerate.errors import UsageError

AUTO, AUTO_TOP = "auto", "auto-top"  # in place of a number: choose it on likes held out
Group = TypeVar("Group", bound=type)
Kind = TypeVar("Kind")

if TYPE_CHECKING:
    OrWord = Union[Kind, Any]  # noqa: UP007 - a plan has the kind itself
    OrUnset = Union[Kind, Any]  # noqa: UP007
else:

    class OrWord:
        """A kind of value, or a word in its place, which no plan has: `OrWord[float]`."""

        def __class_getitem__(cls, kind):
            first, *rest = get_args(kind) or [kind]
            kind = first | str
            for more in rest:
                kind |= more
            return kind

    class OrUnset:
        """A kind of value, or None until a plan resolves it: `OrUnset[int]`."""

        def __class_getitem__(cls, kind):
            return kind | None


def setting(
    default: Any,
    text: str,
    reason: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    integer: bool = False,
    words: tuple[str, ...] = (),
    place: int = 1_000,
    resolve: Callable[[Any], Any] | None = None,
    tries: Callable[[Any], tuple[float, ...]] | None = None,
    idle: Callable[[Any, Any], bool] | None = None,
    free: bool = False,
    stored: str | None = None,
    before: Any = None,
    paper: Any = None,
) -> Any:
    """Declare a setting as a field of a group.

    `words` may be given in place of a number; without a range they are the choices. `place` orders the arguments; equal
    places keep the order of declaration, and a setting without one comes last.

    - `resolve(settings)` is the default if it depends on other settings.
    - `tries(plan)` are the values that "auto" compares.
    - `idle(plan, given)` is true if the setting changes nothing. A fingerprint then leaves it out, so checkpoints from
      before the setting existed can be resumed.
    - `free` settings may change between a fit and its resumption.
    - `stored`: every setting is kept among the "parameters" of a model file, as given. One with this name is also kept
      among its "settings", as resolved, which is read first.
    - `before` is the value for a file that is older than the setting.
    - `paper` is the paper's value, if that is not the default.
    """
    choices, words = (words, ()) if high is None else ((), words)
    metadata: dict[str, Any] = {"text": text, "reason": reason, "optional": default is None, "place": place}
    metadata |= {"low": low, "high": high, "above": above, "integer": integer, "choices": choices, "words": words}
    metadata |= {"resolve": resolve, "tries": tries, "idle": idle, "free": free, "stored": stored, "before": before}
    metadata["paper"] = default if paper is None else paper
    return field(default=default, metadata=metadata)


@dataclass_transform()
def settings_group(group: Group) -> Group:
    """Mark a class as a group of settings; `composed` makes arguments of its fields."""
    for name, declared in vars(group).items():
        if isinstance(declared, Field):
            declared.name = name
    return group


@dataclass_transform()
def composed(groups: Iterable[type]) -> Callable[[Group], Group]:
    """A decorator that makes a dataclass of the settings of all groups, ordered by place.

    The class also inherits the groups that are known to type checkers."""
    return lambda cls: _composed(cls, groups)


def _composed(cls: Group, groups: Iterable[type]) -> Group:
    found: dict[str, tuple[Any, str]] = {}
    for base in groups:
        for name, kind in get_type_hints(base).items():
            if isinstance(declared := vars(base).get(name), Field):
                found[name] = declared, kind
    ordered = sorted(found.items(), key=lambda entry: entry[1][0].metadata["place"])
    cls.__annotations__ = {name: kind for name, (_, kind) in ordered}
    for name, (declared, _) in ordered:
        setattr(cls, name, field(default=declared.default, metadata=declared.metadata))
    dataclass(eq=False)(cls)
    return cls


def varied(original: Field[Any], default: Any, reason: str, text: str | None = None, **changes: Any) -> Any:
    """Copy a setting of another estimator with another default, reason or words."""
    meta = {**original.metadata, "reason": reason, "optional": default is None}
    return field(default=default, metadata=meta | ({} if text is None else {"text": text}) | changes)


def described_range(parameter: Field[Any]) -> str:
    """Range of a setting in words."""
    meta = parameter.metadata
    if meta["choices"]:
        return ("None or " if meta["optional"] else "") + "one of " + ", ".join(meta["choices"])
    if isinstance(parameter.default, bool):
        return "True or False"
    kind = "a whole number" if meta["integer"] else "a number"
    limits = (("above", "above"), ("at least", "low"), ("at most", "high"))
    parts = [f"{words} {_shown(meta[limit])}" for words, limit in limits if meta[limit] is not None]
    range_ = f"{kind} {' and '.join(parts)}".strip()
    answers = [*(["None"] if meta["optional"] else []), range_, *(repr(word) for word in meta["words"])]
    return " or ".join(answers)


def short_range(parameter: Field[Any]) -> str:
    """Range of a setting for a line of help: `1 to 4096`, `above 0, up to 1`, `sampled or expected`."""
    meta = parameter.metadata
    if meta["choices"]:
        return " or ".join(meta["choices"])
    least = f"above {_shown(meta['above'])}, up to" if meta["above"] is not None else f"{_shown(meta['low'])} to"
    return " or ".join([f"{least} {_shown(meta['high'])}", *meta["words"]])


def _shown(limit: float) -> str:
    return f"{limit}" if isinstance(limit, int) else f"{limit:g}"


def described_parameters(cls: type[Any]) -> str:
    """Section "Parameters" of a docstring: every setting with its meaning, its range and its default's reason."""
    entries = ["Parameters\n----------"]
    for parameter in fields(cls):
        text, reason = (parameter.metadata[part] for part in ("text", "reason"))
        about = f"{text[0].upper()}{text[1:]}. Range: {described_range(parameter)}. Default: {reason}."
        kind = parameter.type.__name__ if isinstance(parameter.type, type) else parameter.type
        head = f"{parameter.name} : {kind}, default {parameter.default!r}"
        entries.append(f"{head}\n{fill(about, 110, initial_indent='    ', subsequent_indent='    ')}")
    return "\n".join(entries)


def check_setting(parameter: Field[Any], value: Any) -> None:
    """Raise UsageError for a value outside its range."""
    meta = parameter.metadata
    if meta and not (value is None and meta["optional"]) and not _fits(parameter, value):
        raise UsageError(f"{parameter.name} is {value!r}; it must be {described_range(parameter)}.")


def _fits(parameter: Field[Any], value: Any) -> bool:
    meta = parameter.metadata
    if meta["choices"]:
        return isinstance(value, str) and value in meta["choices"]
    if isinstance(parameter.default, bool):
        return isinstance(value, bool)
    if isinstance(value, bool | str):
        return isinstance(value, str) and value in meta["words"]
    try:
        number = value if isinstance(value, int) else float(value)  # 2^63 - 1 is no float
    except (TypeError, ValueError, OverflowError):
        return False
    if isinstance(number, float) and (not math.isfinite(number) or (meta["integer"] and number != int(number))):
        return False
    return (
        (meta["above"] is None or number > meta["above"])
        and (meta["low"] is None or number >= meta["low"])
        and (meta["high"] is None or number <= meta["high"])
    )
