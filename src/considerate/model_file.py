"""A model to and from its file: which tensors there are, and what the description says."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.graph import Adjacency
from considerate.inference.fit import Settings
from considerate.interactions import Titles
from considerate.model import Model
from considerate.posterior import Gamma, Posterior, Precisions, Side
from considerate.store import (
    StoredTensors,
    open_tensors,
    pack_vocabulary,
    unpack_texts,
    unpack_vocabulary,
    write_tensors,
)

PathLike = str | os.PathLike[str]
GAMMAS = ("user", "item", "user_bias", "item_bias")


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
    """A model from its file, mapped into memory. What does not hold a whole model is refused with a reason."""
    stored = open_tensors(path, verify=verify)
    about = _Description(stored)
    users, items, factors = (about.whole(name, 0 if name != "factors" else 1) for name in ("users", "items", "factors"))
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
        texts = unpack_texts(stored, "titles", items)
        titles = Titles(texts.offsets, texts.text)
    terms = about.get("bound_terms", list)
    history = stored.expect("bounds", np.float64, [None, len(terms)])
    if not all(isinstance(term, str) for term in terms) or not (np.abs(history) < 1e300).all():
        raise stored.refusal("the history of the bound is not one of terms")
    popularity = stored.expect("popularity", np.float64, [items])
    if not (np.isfinite(popularity) & (popularity >= 0)).all() or not popularity.any():
        raise stored.refusal("the popularities are not those of a model")
    return Model(
        posterior=posterior,
        popularity=popularity,
        gamma=about.within("gamma", -2000, 100),
        liked=_likes(stored, about, users, items),
        user_degree=_degrees(stored, "user_degree", users),
        item_degree=_degrees(stored, "item_degree", items),
        user_ids=user_ids,
        item_ids=item_ids,
        titles=titles,
        settings=about.settings(factors),
        negatives=about.positive("negatives"),
        groups=about.whole("groups", 1),
        bounds=tuple(dict(zip(terms, row)) for row in history.tolist()),
        popularity_weight=about.within("popularity_weight", -1e6, 1e6),
        converged=about.get("converged", bool),
        parameters=about.get("parameters", dict),
    )


def _side(stored: StoredTensors, name: str, rows: int, factors: int, bias: bool) -> Side:
    width = 2 * (-(-factors // 8) * 8)
    packed = stored.expect(f"{name}.rows", np.float32, [rows, width])
    if not bias:
        return Side(factors, packed)
    return Side(
        factors,
        packed,
        stored.expect(f"{name}.bias_mean", np.float32, [rows]),
        stored.expect(f"{name}.bias_variance", np.float32, [rows]),
    )


def _degrees(stored: StoredTensors, name: str, rows: int) -> NDArray[np.int64]:
    degrees: NDArray[np.int64] = stored.expect(name, np.int64, [rows])
    if rows and not 0 <= int(degrees.min()) <= int(degrees.max()) < 2**31:
        raise stored.refusal(f"the tensor {name!r} does not hold degrees")
    return degrees


def _likes(stored: StoredTensors, about: _Description, users: int, items: int) -> Adjacency:
    if not about.get("likes", bool):
        return Adjacency(np.zeros(users + 1, np.int64), np.empty(0, np.int32))
    edges = about.whole("edges", 0)
    starts = stored.expect("likes.starts", np.int64, [users + 1])
    indices = stored.expect("likes.items", np.int32, [edges])
    if starts[0] != 0 or starts[-1] != edges or bool(np.any(starts[1:] < starts[:-1])):
        raise stored.refusal("the likes are not divided into users")
    if edges and (int(indices.min()) < 0 or int(indices.max()) >= items):
        raise stored.refusal("the likes name an item that is not there")
    return Adjacency(starts, indices)


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

    def positive(self, name: str) -> float:
        value = self.number(name)
        if value <= 0:
            raise self.stored.refusal(f"its {name!r} is not positive")
        return value

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

    def settings(self, factors: int) -> Settings:
        given = self.get("settings", dict)
        values: dict[str, Any] = {}
        for one in fields(Settings):
            value = given.get(one.name, one.default)
            if isinstance(one.default, bool):
                fits = isinstance(value, bool)
            elif isinstance(one.default, int):
                fits = type(value) is int and 0 <= value < 2**63
            else:
                fits = _is_number(value) and (value > 0 or one.name == "offset")
            if not fits or (one.name == "factors" and value != factors):
                raise self.stored.refusal(f"its setting {one.name!r} is out of range")
            values[one.name] = value if isinstance(one.default, bool | int) else float(value)
        return Settings(**values)


def _plain(value: Any) -> Any:
    """NumPy's scalars as Python's own, which JSON knows."""
    return value.item() if isinstance(value, np.generic) else value


def _is_number(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and math.isfinite(value)
    )
