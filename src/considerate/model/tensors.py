"""A model as tensors and a description, and back: what its users have, and what all share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Titles
from considerate.data.graph import Adjacency
from considerate.inference.posterior import Side, padded
from considerate.model.description import GAMMAS, SETTINGS, Description
from considerate.model.model import Model
from considerate.model.users import UserRows, Users
from considerate.model.vocabularies import pack_vocabulary, unpack_vocabulary
from considerate.storage.container import InParts, StoredTensors, unpack_texts

POPULARITY_RANGE = 1e-100, 1e100  # of an item that was liked; far beyond any d_n^gamma of data
_ROWS = 1 << 14  # that are checked at once

# --- Writing ---


def shared_tensors(model: Model) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The tensors that are not of users, and the description without what it says of them."""
    terms = list(model.bounds[0]) if model.bounds else []
    history = [
        [one[term] for term in terms] for one in model.bounds
    ]  # a tensor: the header has no room for 10^5 sweeps
    tensors: dict[str, NDArray[Any]] = {
        "bounds": np.array(history, np.float64).reshape(len(history), len(terms)),
        "popularity": model.popularity,
        "item_degree": np.asarray(model.item_degree, np.int64),
        "item.rows": model.items.rows,
    }
    if model.items.bias_mean is not None and model.items.bias_variance is not None:
        tensors |= {"item.bias_mean": model.items.bias_mean, "item.bias_variance": model.items.bias_variance}
    ids, ids_description = pack_vocabulary("item_ids", model.item_ids)
    tensors |= ids
    if model.titles is not None:
        tensors |= {f"titles.{name}": array for name, array in model.titles.tensors().items()}
    named = {name: getattr(model.precisions, name) for name in GAMMAS}
    return tensors, {
        "factors": model.factors,
        "items": model.item_count,
        "gamma": model.gamma,
        "negatives": model.negatives,
        "groups": model.groups,
        "popularity_weight": model.popularity_weight,
        "converged": model.converged,
        "recalibration": asdict(model.recalibration),
        "precisions": {name: [one.shape, one.rate] for name, one in named.items() if one is not None},
        "settings": {name: getattr(model.settings, name) for name in SETTINGS},
        "parameters": {name: _plain(value) for name, value in model.parameters.items()},
        "bound_terms": terms,
        "item_ids": ids_description,
        "titles": model.titles is not None,
    }


def user_tensors(users: Users, factors: int, likes: bool) -> tuple[dict[str, InParts], dict[str, Any]]:
    """The tensors of all users, which are read a piece at a time, and what the description says of them."""
    count, edges, kind = len(users), users.edges, users.ids.kind

    def parts(of: Callable[[UserRows], NDArray[Any]], dtype: Any, *shape: int) -> InParts:
        return InParts(np.dtype(dtype), shape, lambda: (of(piece) for _, piece in users.pieces()))

    def starts(of: Callable[[UserRows], NDArray[np.int64]]) -> InParts:
        def shifted() -> Iterator[NDArray[np.int64]]:
            yield np.zeros(1, np.int64)
            end = 0
            for _, piece in users.pieces():
                yield of(piece)[1:] + end
                end += int(of(piece)[-1])

        return InParts(np.dtype(np.int64), (count + 1,), shifted)

    tensors = {
        "user.rows": parts(lambda piece: piece.side.rows, np.float32, count, 2 * padded(factors)),
        "user_degree": parts(lambda piece: piece.degree, np.int64, count),
    }
    if users.has_bias:
        tensors["user.bias_mean"] = parts(lambda piece: piece.side.biases[0], np.float32, count)
        tensors["user.bias_variance"] = parts(lambda piece: piece.side.biases[1], np.float32, count)
    if likes:
        tensors["likes.starts"] = starts(lambda piece: piece.liked.starts)
        tensors["likes.items"] = parts(lambda piece: piece.liked.indices, np.int32, edges)
    if kind == "integer":
        tensors["user_ids.integers"] = parts(lambda piece: piece.ids.tensors()["integers"], np.int64, count)
    if kind == "string":
        size = sum(len(piece.ids.tensors()["text"]) for _, piece in users.pieces())
        tensors["user_ids.offsets"] = starts(lambda piece: piece.ids.tensors()["offsets"])
        tensors["user_ids.text"] = parts(lambda piece: piece.ids.tensors()["text"], np.uint8, size)
    return tensors, {"users": count, "edges": edges, "user_ids": {"kind": kind, "size": count}, "likes": likes}


def _plain(value: Any) -> Any:
    """NumPy's scalars as Python's own, which JSON knows."""
    return value.item() if isinstance(value, np.generic) else value


# --- Reading ---


def read_model(
    stored: StoredTensors, about: Description, users_of: Callable[[StoredTensors, Description], Users]
) -> Model:
    """A model; its users as `users_of` reads them."""
    items, factors = about.whole("items", 0), about.whole("factors", 1)
    negatives, precisions = about.setting("negatives"), about.precisions()
    parameters = about.parameters(factors)
    settings = about.settings(factors, negatives, parameters)
    users = users_of(stored, about)
    side = _side(stored, "item", items, factors, precisions.item_bias is not None)
    item_ids = unpack_vocabulary(stored, "item_ids", about.get("item_ids", dict))
    if len(item_ids) != items:
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
    return Model(
        users=users,
        items=side,
        precisions=precisions,
        popularity=popularity,
        gamma=about.within("gamma", -2000, 100),
        item_degree=_degrees(stored, "item_degree", items),
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


def users_in(stored: StoredTensors, about: Description) -> UserRows:
    """The users of a model in one file."""
    bias = about.precisions().user_bias is not None
    return read_users(stored, about, about.whole("factors", 1), bias, about.whole("items", 0))


def read_users(stored: StoredTensors, about: Description, factors: int, bias: bool, items: int) -> UserRows:
    """Users in one file, of a model of so many factors and items, with user biases or without."""
    users = about.whole("users", 0)
    side = _side(stored, "user", users, factors, bias)
    ids = unpack_vocabulary(stored, "user_ids", about.get("user_ids", dict))
    if len(ids) != users:
        raise stored.refusal("the vocabularies are of another size than the posterior")
    degree = _degrees(stored, "user_degree", users)
    return UserRows(side, degree, _likes(stored, about, degree, items), ids)


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


def _likes(stored: StoredTensors, about: Description, user_degree: NDArray[np.int64], items: int) -> Adjacency:
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
    parts = [slice(first, first + _ROWS) for first in range(0, users, _ROWS)]
    if any((np.diff(starts[part.start : part.stop + 1]) != user_degree[part]).any() for part in parts):
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
