"""The settings of a recommender, written once: the Python constructor, its checks and the shell's options all read
these fields."""

from __future__ import annotations

import math
from dataclasses import Field, field
from typing import Any

from considerate.errors import UsageError


def about(
    text: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    choices: tuple[str, ...] = (),
    integer: bool = False,
    optional: bool = False,
) -> dict[str, Any]:
    """What is to be known of a setting, beside its name, type and default."""
    return {
        "text": text,
        "low": low,
        "high": high,
        "above": above,
        "choices": choices,
        "integer": integer,
        "optional": optional,
    }


def described_range(one: Field[Any]) -> str:
    """The range of a setting in words."""
    meta = one.metadata
    if meta["choices"]:
        return "one of " + ", ".join(meta["choices"])
    if isinstance(one.default, bool):
        return "True or False"
    kind = "a whole number" if meta["integer"] else "a number"
    parts = []
    if meta["above"] is not None:
        parts.append(f"above {meta['above']:g}")
    if meta["low"] is not None:
        parts.append(f"at least {meta['low']:g}")
    if meta["high"] is not None:
        parts.append(f"at most {meta['high']:g}")
    words = f"{kind} {' and '.join(parts)}".strip()
    return f"None or {words}" if meta["optional"] else words


def check_setting(one: Field[Any], value: Any) -> None:
    """One clear sentence for a value outside its range."""
    meta = one.metadata
    if not meta or (value is None and meta["optional"]):
        return
    if _fits(one, value):
        return
    raise UsageError(f"{one.name} is {value!r}; it must be {described_range(one)}.")


def _fits(one: Field[Any], value: Any) -> bool:
    meta = one.metadata
    if meta["choices"]:
        return value in meta["choices"]
    if isinstance(one.default, bool):
        return isinstance(value, bool)
    if isinstance(value, bool | str):
        return False
    try:
        number = float(value)
    except (TypeError, ValueError):
        return False
    if not math.isfinite(number) or (meta["integer"] and number != int(number)):
        return False
    return (
        (meta["above"] is None or number > meta["above"])
        and (meta["low"] is None or number >= meta["low"])
        and (meta["high"] is None or number <= meta["high"])
    )


__all__ = ["about", "check_setting", "described_range", "field"]
