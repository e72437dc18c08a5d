"""The description in a model's file, read with suspicion: each value in its range, or ModelFileError."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from considerate.errors import UsageError
from considerate.inference.posterior import Gamma, Precisions
from considerate.model.predict import UNCHANGED, Recalibration
from considerate.parameters import FitPlan, Parameters, check_setting
from considerate.storage.container import StoredTensors

GAMMAS = ("user", "item", "user_bias", "item_bias")
PARAMETERS = {one.name: one for one in fields(Parameters)}
SETTINGS = {  # of the plan, as the file has them, each with its default
    "factors": 20,
    "offset": 0.0,
    "weight": 1.0,
    "user_bias": False,
    "item_bias": True,
    "prior_shape": 0.01,
    "prior_rate": 0.01,
    "step_delay": 10,
    "precision_delay": 5,
    "seed": 0,
}


class Description:
    """The metadata, read with suspicion."""

    def __init__(self, stored: StoredTensors) -> None:
        self.stored, self.metadata = stored, stored.metadata

    def get(self, name: str, kind: type[Any]) -> Any:
        value = self.metadata.get(name)
        if type(value) is not kind:
            raise self.stored.refusal(f"its description has no {name!r} of the right kind")
        return value

    def whole(self, name: str, least: int) -> int:
        value = self.get(name, int)
        if not least <= value < 2**40:
            raise self.stored.refusal(f"its {name!r} is out of range")
        return int(value)

    def number(self, name: str) -> float:
        value = self.metadata.get(name)
        if not _is_number(value):
            raise self.stored.refusal(f"its description has no number {name!r}")
        return float(value)  # type: ignore[arg-type]

    def setting(self, name: str) -> float:
        """A number in the range that the parameter of this name has."""
        value = self.number(name)
        try:
            check_setting(PARAMETERS[name], value)
        except UsageError as error:
            raise self.stored.refusal(f"its {name!r} is out of range ({_sentence(error)})") from error
        return value

    def parameters(self, factors: int) -> dict[str, Any]:
        """The estimator's parameters; the estimator checks the range of each."""
        given: dict[str, Any] = self.get("parameters", dict)
        if given.get("factors", factors) != factors:
            raise self.stored.refusal(f"its parameters are not those of a model of {factors} factors")
        return given

    def within(self, name: str, low: float, high: float) -> float:
        value = self.number(name)
        if not low <= value <= high:
            raise self.stored.refusal(f"its {name!r} is out of range")
        return value

    def precisions(self) -> Precisions:
        given, found = self.get("precisions", dict), {}
        for name in GAMMAS:
            pair = given.get(name)
            if pair is None and name.endswith("bias"):
                continue
            if not (isinstance(pair, list) and len(pair) == 2 and all(_is_number(one) and one > 0 for one in pair)):
                raise self.stored.refusal(f"the precision {name!r} is not a shape and a rate")
            found[name] = Gamma(float(pair[0]), float(pair[1]))
        return Precisions(**found)

    def recalibration(self) -> Recalibration:
        """A slope and a shift; a file from before there were any has none."""
        if "recalibration" not in self.metadata:
            return UNCHANGED
        given = self.get("recalibration", dict)
        slope, shift = given.get("slope"), given.get("shift")
        if set(given) != {"slope", "shift"} or not _is_number(slope) or not _is_number(shift) or not slope > 0:
            raise self.stored.refusal("its recalibration is not a finite shift and a slope above zero")
        return Recalibration(float(slope), float(shift))

    def settings(self, factors: int, negatives: float, parameters: Mapping[str, Any]) -> FitPlan:
        """The settings of inference, each in the range of the parameter that it came from."""
        given = self.get("settings", dict)
        values: dict[str, Any] = {}
        for name, default in SETTINGS.items():
            value = given.get(name, default)
            if isinstance(default, bool):
                fits = isinstance(value, bool)
            elif isinstance(default, int):
                fits = type(value) is int and 0 <= value < 2**63
            else:
                fits = _is_number(value)
            if not fits or (name == "factors" and value != factors):
                raise self.stored.refusal(f"its setting {name!r} is out of range")
            if name == "offset" and not math.isclose(value, -math.log(negatives), abs_tol=1e-6):
                raise self.stored.refusal("its setting 'offset' is out of range (it must be -log of 'negatives')")
            parameter = PARAMETERS.get({"weight": "likelihood_weight"}.get(name, name))
            try:
                if parameter is not None:
                    check_setting(parameter, value)
            except UsageError as error:
                raise self.stored.refusal(f"its setting {name!r} is out of range ({_sentence(error)})") from error
            values[name] = value if isinstance(default, bool | int) else float(value)
        values["likelihood_weight"] = values.pop("weight")
        del values["offset"]
        popularity = self.within("popularity_weight", -1e6, 1e6)
        try:
            plan = Parameters(**{name: parameters[name] for name in PARAMETERS if name in parameters}).plan()
        except UsageError as error:
            raise self.stored.refusal(f"its parameters are not possible ({_sentence(error)})") from error
        return replace(plan, **values, negatives=negatives, popularity=popularity)


def _sentence(error: UsageError) -> str:
    return str(error).removesuffix(".")


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and math.isfinite(value)
    )
