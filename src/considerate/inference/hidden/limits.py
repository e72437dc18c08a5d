"""Impossible pairs and rules in a model file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from considerate.data.graph import Adjacency
from considerate.data.known import Known, Rules
from considerate.inference.parts.base import Part
from considerate.storage.layout import Arrays, Check, Fields, Tensor, below, divides, each, parse_flag, rising

_IMPOSSIBLE = "impossible.starts", "impossible.items"
_FLAGS = {"impossible": "impossible.starts", "classes": "rules.allowed", "times": "rules.item_times"}


def _of_all_users(*more: int) -> Callable[..., bool]:
    """Rule that an array has one entry for each user, and so many more."""
    return lambda array, n: len(array) == n["users"] + sum(more)


_are_spans = each(lambda part, _: (part[:, 0] <= part[:, 1]).all())


def limit_tensors(limits: Known | None) -> Arrays:
    """Tensors of the impossible pairs and rules; none if nothing is impossible."""
    tensors: Arrays = {}
    if limits is not None and limits.impossible is not None:
        tensors |= {"impossible.starts": limits.impossible.starts, "impossible.items": limits.impossible.indices}
    if limits is not None and limits.rules is not None:
        tensors |= {f"rules.{name}": array for name, array in vars(limits.rules).items() if array is not None}
    return tensors


def _limits_in(arrays: Arrays) -> Known | None:
    """Impossible pairs and rules from their tensors."""
    pairs = None
    if "impossible.starts" in arrays:
        pairs = Adjacency(*(arrays[f"impossible.{name}"] for name in ("starts", "items")))
    rules = {name.removeprefix("rules."): array for name, array in arrays.items() if name.startswith("rules.")}
    return Known(impossible=pairs, rules=Rules(**rules) if rules else None) if pairs is not None or rules else None


class LimitsFile(Part):
    """Part of a model file: impossible pairs and rules."""

    fields: ClassVar[Fields] = dict.fromkeys(_FLAGS, parse_flag)
    tensors = (
        Tensor("impossible.starts", np.int64, (None,), "impossible"),
        Tensor("impossible.items", np.int32, (None,), "impossible"),
        Tensor("rules.user_class", np.int32, (None,), "classes"),
        Tensor("rules.item_class", np.int32, ("items",), "classes"),
        Tensor("rules.allowed", np.uint64, (None, None), "classes"),
        Tensor("rules.user_times", np.float64, (None, 2), "times"),
        Tensor("rules.item_times", np.float64, ("items", 2), "times"),
    )
    rules = (
        Check(_IMPOSSIBLE[:1], "the impossible pairs are not those of all users", _of_all_users(1)),
        Check(_IMPOSSIBLE, "the impossible pairs are not divided into users", divides),
        Check(_IMPOSSIBLE[1:], "the impossible pairs name an item that is not there", below("items")),
        Check(_IMPOSSIBLE, "the impossible pairs of a user are not distinct and in ascending order", rising, deep=True),
        *(
            Check((f"rules.user_{name}",), f"the rules do not have a {name} for each user", _of_all_users())
            for name in ("class", "times")
        ),
        Check(
            ("rules.user_class", "rules.allowed"),
            "the rules name a class of users that is not there",
            lambda classes, allowed, n: below(len(allowed))(classes, n),
        ),
        Check(
            ("rules.item_class", "rules.allowed"),
            "the rules name a class of items that is not there",
            lambda classes, allowed, n: below(64 * allowed.shape[1])(classes, n),
        ),
        *(
            Check((f"rules.{side}_times",), "the rules have a time that ends before it begins", _are_spans)
            for side in ("user", "item")
        ),
    )

    def saved(self, model: Any) -> tuple[dict[str, Any], Arrays]:
        tensors = limit_tensors(model.limits)
        return {flag: True for flag, name in _FLAGS.items() if name in tensors}, tensors

    def loaders(self, file: Any) -> dict[str, Callable[[], Any]]:
        return {"limits": lambda: _limits_in(file.part("impossible.") | file.part("rules."))}
