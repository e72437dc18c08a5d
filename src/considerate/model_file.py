"""A model to and from its file: which tensors there are, and what the description says."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.errors import ModelFileError, UsageError
from considerate.graph import Adjacency
from considerate.inference.fit import Settings
from considerate.interactions import Titles
from considerate.model import Model
from considerate.parameters import Parameters, check_setting
from considerate.posterior import Gamma, Posterior, Precisions, Side, padded
from considerate.predict import UNCHANGED, Recalibration
from considerate.store import (
    TRUTH,
    StoredTensors,
    open_tensors,
    pack_vocabulary,
    unpack_texts,
    unpack_vocabulary,
    write_tensors,
)

PathLike = str | os.PathLike[str]
GAMMAS = ("user", "item", "user_bias", "item_bias")
PARAMETERS = {one.name: one for one in fields(Parameters)}
POPULARITY_RANGE = 1e-100, 1e100  # of an item that was liked; far beyond any d_n^gamma of data
_ROWS = 1 << 14  # of a side that are checked at once


def save_model(model: Model, path: PathLike, *, likes: bool = True) -> None:
    """Write a model to one file, whole or not at all. Without the likes it cannot tell what a user has seen."""
    q = model.posterior
    likes = likes and model.knows_likes
    terms = list(model.bounds[0]) if model.bounds else []
    history = [
        [one[term] for term in terms] for one in model.bounds
    ]  # a tensor: the header has no room for 10^5 sweeps
    tensors: dict[str, NDArray[Any]] = {
        "bounds": np.array(history, np.float64).reshape(len(history), len(terms)),
        "popularity": model.popularity,
        "item_degree": np.asarray(model.item_degree, np.int64),
        "user_degree": np.asarray(model.user_degree, np.int64),
    }
    for name, side in (("user", q.users), ("item", q.items)):
        tensors |= {f"{name}.rows": side.rows}
        if side.bias_mean is not None and side.bias_variance is not None:
            tensors |= {f"{name}.bias_mean": side.bias_mean, f"{name}.bias_variance": side.bias_variance}
    if likes:
        tensors |= {"likes.starts": model.liked.starts, "likes.items": model.liked.indices}
    user_tensors, user_description = pack_vocabulary("user_ids", model.user_ids)
    item_tensors, item_description = pack_vocabulary("item_ids", model.item_ids)
    tensors |= user_tensors | item_tensors
    if model.titles is not None:
        tensors |= {f"titles.{name}": array for name, array in model.titles.tensors().items()}
    named = {name: getattr(q.precisions, name) for name in GAMMAS}
    metadata = {
        "factors": q.factors,
        "users": model.user_count,
        "items": model.item_count,
        "edges": model.edges,
        "gamma": model.gamma,
        "negatives": model.negatives,
        "groups": model.groups,
        "popularity_weight": model.popularity_weight,
        "converged": model.converged,
        "recalibration": asdict(model.recalibration),
        "precisions": {name: [one.shape, one.rate] for name, one in named.items() if one is not None},
        "settings": asdict(model.settings),
        "parameters": {name: _plain(value) for name, value in model.parameters.items()},
        "bound_terms": terms,
        "user_ids": user_description,
        "item_ids": item_description,
        "likes": likes,
        "titles": model.titles is not None,
    }
    write_tensors(path, tensors, metadata)


def load_model(path: PathLike, *, verify: bool | None = None) -> Model:
    """A model from its file, mapped into memory. What does not hold a whole model is refused with a reason.

    A file of up to 64 MB is checked whole. Of a larger one the description, shapes and types are checked, the
    checksums of tensors of up to 1 MB, and of the larger tensors what makes them safe to use: the division of likes
    and texts, the range of the likes, degrees, integer ids. verify=True checks it whole too: every checksum, every
    row of the posterior, the order of the likes and of string ids. verify=False looks at no tensor's checksum.
    """
    stored = open_tensors(path, verify=verify)
    if stored.metadata.get("kind") == TRUTH:
        raise ModelFileError(
            f"{stored.path}: is the truth of a simulation, not a model; give a file that a model was saved to, such as "
            "one that `considerate fit` writes from the simulated likes."
        )
    about = _Description(stored)
    users, items, factors = (about.whole(name, 0 if name != "factors" else 1) for name in ("users", "items", "factors"))
    negatives = about.setting("negatives")
    settings, parameters = about.settings(factors, negatives), about.parameters(factors)
    precisions = about.precisions()
    posterior = Posterior(
        _side(stored, "user", users, factors, precisions.user_bias is not None),
        _side(stored, "item", items, factors, precisions.item_bias is not None),
        precisions,
    )
    user_ids = unpack_vocabulary(stored, "user_ids", about.get("user_ids", dict))
    item_ids = unpack_vocabulary(stored, "item_ids", about.get("item_ids", dict))
    if len(user_ids) != users or len(item_ids) != items:
        raise stored.refusal("the vocabularies are of another size than the posterior")
    titles = None
    if about.get("titles", bool):
        titles = Titles(*unpack_texts(stored, "titles", items))
    terms = about.get("bound_terms", list)
    history = stored.expect("bounds", np.float64, [None, len(terms)])
    if not all(isinstance(term, str) for term in terms) or not (np.abs(history) < 1e300).all():
        raise stored.refusal("the history of the bound is not one of terms")
    popularity = stored.expect("popularity", np.float64, [items])
    low, high = POPULARITY_RANGE
    if not ((popularity == 0) | ((popularity >= low) & (popularity <= high))).all() or not popularity.any():
        raise stored.refusal(f"the popularities are not those of a model: zero, or from {low:g} to {high:g}")
    user_degree = _degrees(stored, "user_degree", users)
    return Model(
        posterior=posterior,
        popularity=popularity,
        gamma=about.within("gamma", -2000, 100),
        liked=_likes(stored, about, user_degree, items),
        user_degree=user_degree,
        item_degree=_degrees(stored, "item_degree", items),
        user_ids=user_ids,
        item_ids=item_ids,
        titles=titles,
        settings=settings,
        negatives=negatives,
        groups=int(about.setting("groups")),
        bounds=tuple(dict(zip(terms, row)) for row in history.tolist()),
        popularity_weight=about.within("popularity_weight", -1e6, 1e6),
        converged=about.get("converged", bool),
        parameters=parameters,
        recalibration=about.recalibration(),
    )


def _side(stored: StoredTensors, name: str, rows: int, factors: int, bias: bool) -> Side:
    packed = stored.expect(f"{name}.rows", np.float32, [rows, 2 * padded(factors)])
    if stored.thorough:
        for first in range(0, rows, _ROWS):
            wrong = _wrong_rows(packed[first : first + _ROWS], factors)
            if wrong is not None:
                raise stored.refusal(f"the tensor {f'{name}.rows'!r} {wrong}")
    if not bias:
        return Side(factors, packed)
    mean = stored.expect(f"{name}.bias_mean", np.float32, [rows])
    variance = stored.expect(f"{name}.bias_variance", np.float32, [rows])
    if not np.isfinite(mean).all():
        raise stored.refusal(f"the tensor {f'{name}.bias_mean'!r} holds a value that is not finite")
    if not (np.isfinite(variance) & (variance > 0)).all():
        raise stored.refusal(f"the tensor {f'{name}.bias_variance'!r} holds a variance that is not positive and finite")
    return Side(factors, packed, mean, variance)


def _wrong_rows(packed: NDArray[np.float32], factors: int) -> str | None:
    """What keeps these rows from being [mean | variance], each padded with zeros; None if nothing does."""
    half = packed.shape[1] // 2
    if not np.isfinite(packed).all():
        return "holds a value that is not finite"
    if not (packed[:, half : half + factors] > 0).all():
        return "holds a variance that is not positive"
    if packed[:, factors:half].any() or packed[:, half + factors :].any():
        return "is not padded with zeros"
    return None


def _degrees(stored: StoredTensors, name: str, rows: int) -> NDArray[np.int64]:
    degrees: NDArray[np.int64] = stored.expect(name, np.int64, [rows])
    if rows and not 0 <= int(degrees.min()) <= int(degrees.max()) < 2**31:
        raise stored.refusal(f"the tensor {name!r} does not hold degrees")
    return degrees


def _likes(stored: StoredTensors, about: _Description, user_degree: NDArray[np.int64], items: int) -> Adjacency:
    users = len(user_degree)
    if not about.get("likes", bool):
        return Adjacency(np.zeros(users + 1, np.int64), np.empty(0, np.int32))
    edges = about.whole("edges", 0)
    starts = stored.expect("likes.starts", np.int64, [users + 1])
    indices = stored.expect("likes.items", np.int32, [edges])
    if starts[0] != 0 or starts[-1] != edges or bool(np.any(starts[1:] < starts[:-1])):
        raise stored.refusal("the likes are not divided into users")
    if edges and (int(indices.min()) < 0 or int(indices.max()) >= items):
        raise stored.refusal("the likes name an item that is not there")
    if not np.array_equal(np.diff(starts), user_degree):
        raise stored.refusal("the likes of a user are not as many as 'user_degree' says")
    if stored.thorough and not _ascending_in_rows(starts, indices):
        raise stored.refusal("the likes of a user are not distinct and in ascending order")
    return Adjacency(starts, indices)


def _ascending_in_rows(starts: NDArray[np.int64], indices: NDArray[np.int32]) -> bool:
    """Whether the indices rise within every row, none of them twice."""
    rises = indices[1:] > indices[:-1]
    between = starts[(starts > 0) & (starts < len(indices))] - 1  # the last of a row and the first of the next
    rises[between] = True
    return bool(rises.all())


class _Description:
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

    def settings(self, factors: int, negatives: float) -> Settings:
        """The settings of inference, each in the range of the parameter that it came from."""
        given = self.get("settings", dict)
        values: dict[str, Any] = {}
        for one in fields(Settings):
            value = given.get(one.name, one.default)
            if isinstance(one.default, bool):
                fits = isinstance(value, bool)
            elif isinstance(one.default, int):
                fits = type(value) is int and 0 <= value < 2**63
            else:
                fits = _is_number(value)
            if not fits or (one.name == "factors" and value != factors):
                raise self.stored.refusal(f"its setting {one.name!r} is out of range")
            if one.name == "offset" and not math.isclose(value, -math.log(negatives), abs_tol=1e-6):
                raise self.stored.refusal("its setting 'offset' is out of range (it must be -log of 'negatives')")
            parameter = PARAMETERS.get({"weight": "likelihood_weight"}.get(one.name, one.name))
            try:
                if parameter is not None:
                    check_setting(parameter, value)
            except UsageError as error:
                raise self.stored.refusal(f"its setting {one.name!r} is out of range ({_sentence(error)})") from error
            values[one.name] = value if isinstance(one.default, bool | int) else float(value)
        return Settings(**values)


def _sentence(error: UsageError) -> str:
    return str(error).removesuffix(".")


def _plain(value: Any) -> Any:
    """NumPy's scalars as Python's own, which JSON knows."""
    return value.item() if isinstance(value, np.generic) else value


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and math.isfinite(value)
    )
