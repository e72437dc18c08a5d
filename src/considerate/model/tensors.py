"""A model as tensors and a description, and back, by the tables of schema.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Titles
from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Vocabulary
from considerate.errors import UsageError
from considerate.inference.hidden import Consideration
from considerate.inference.posterior import Side, padded
from considerate.model.model import Model
from considerate.model.schema import (
    GAMMAS,
    PARAMETERS,
    SETTINGS,
    SHARED,
    SHARED_FIELDS,
    USERS,
    USERS_FIELDS,
    Arrays,
    Form,
    parse,
    vocabulary,
    vocabulary_tensors,
)
from considerate.model.users import Rows, UserRows, Users
from considerate.parameters import FitPlan, Parameters
from considerate.storage.container import InParts, StoredTensors, Writable

WALK = ("starts", "items", "shares", "rest")  # of a Consideration
_VERIFIED_AT_ONCE = 256  # users

# --- Writing ---


def shared_tensors(model: Model) -> tuple[dict[str, Writable], dict[str, Any]]:
    """The tensors that are not of users, and what the description says of them."""
    terms = list(model.bounds[0]) if model.bounds else []
    history = [[bound[term] for term in terms] for bound in model.bounds]
    gammas = {name: getattr(model.precisions, name) for name in GAMMAS}
    about = {
        "factors": model.factors,
        "items": model.item_count,
        "gamma": model.gamma,
        "negatives": model.plan.negatives,
        "groups": model.plan.groups,
        "popularity_weight": model.plan.popularity_weight,
        "chosen": None if model.plan.chosen is None else asdict(model.plan.chosen),
        "converged": model.converged,
        "recalibration": asdict(model.recalibration),
        "precisions": {name: [gamma.shape, gamma.rate] for name, gamma in gammas.items() if gamma is not None},
        "settings": {name: getattr(model.plan, name) for name in SETTINGS},
        "parameters": {
            name: value.item() if isinstance(value, np.generic) else value for name, value in model.parameters.items()
        },
        "bound_terms": terms,
        "item_ids": {"kind": model.item_ids.kind, "size": len(model.item_ids)},
        "titles": model.titles is not None,
    }
    tensors: dict[str, Any] = {
        "bounds": np.array(history, np.float64).reshape(len(history), len(terms)),  # too long for the header
        "popularity": model.popularity,
        "item_degree": np.asarray(model.item_degree, np.int64),
        "item.rows": model.items.rows,
        "item.bias_mean": model.items.bias_mean,
        "item.bias_variance": model.items.bias_variance,
        **vocabulary_tensors("item_ids", model.item_ids),
    }
    if model.titles is not None:
        tensors |= {f"titles.{name}": array for name, array in model.titles.tensors().items()}
    if model.consideration is not None:
        about["walk"], of_walk = _walk_tensors(model.consideration, model.plan)
        tensors |= of_walk
    form = Form.of(about, user_bias=model.users.has_bias, item_bias=model.items.has_bias)
    return form.select(SHARED, tensors), about


def _walk_tensors(walk: Consideration, plan: FitPlan) -> tuple[dict[str, Any], Arrays]:
    """Who considers what, as the description has it and as tensors. Its pi is the model's."""
    about = {
        "entries": len(walk.items),
        "neighbours": plan.neighbours,
        "mix": walk.mix,
        "lift_weight": plan.lift_weight,
    }
    return about, {f"walk.{name}": getattr(walk, name) for name in WALK}


def user_tensors(users: Users, factors: int, likes: bool) -> tuple[dict[str, Writable], dict[str, Any]]:
    """The tensors of all users, which are read a piece at a time, and what the description says of them."""
    count, edges, kind = len(users), users.edges, users.ids.kind

    def column(of: Callable[[UserRows], NDArray[Any]], dtype: Any, *shape: int) -> InParts:
        return InParts(np.dtype(dtype), shape, lambda: (of(piece) for _, piece in users.pieces()))

    def starts(of: Callable[[UserRows], NDArray[np.int64]]) -> InParts:
        def shifted() -> Iterator[NDArray[np.int64]]:
            yield np.zeros(1, np.int64)
            end = 0
            for _, piece in users.pieces():
                yield of(piece)[1:] + end
                end += int(of(piece)[-1])

        return InParts(np.dtype(np.int64), (count + 1,), shifted)

    def ids(part: str) -> Callable[[UserRows], NDArray[Any]]:
        return lambda piece: piece.ids.tensors()[part]

    text = sum(len(ids("text")(piece)) for _, piece in users.pieces()) if kind == "string" else 0
    tensors = {
        "user.rows": column(lambda piece: piece.side.rows, np.float32, count, 2 * padded(factors)),
        "user.bias_mean": column(lambda piece: piece.side.biases[0], np.float32, count),
        "user.bias_variance": column(lambda piece: piece.side.biases[1], np.float32, count),
        "user_degree": column(lambda piece: piece.degree, np.int64, count),
        "likes.starts": starts(lambda piece: piece.liked.starts),
        "likes.items": column(lambda piece: piece.liked.indices, np.int32, edges),
        "user_ids.integers": column(ids("integers"), np.int64, count),
        "user_ids.offsets": starts(ids("offsets")),
        "user_ids.text": column(ids("text"), np.uint8, text),
    }
    about = {"users": count, "edges": edges, "user_ids": {"kind": kind, "size": count}, "likes": likes}
    form = Form.of(about | {"factors": factors}, user_bias=users.has_bias, item_bias=True)
    return form.select(USERS, tensors), about


# --- Reading ---


def users_in(stored: StoredTensors, about: Mapping[str, Any], form: Form, ids: Vocabulary | None = None) -> Users:
    """The users in a file, of these ids where they are given. Of a large file they are verified when they are used."""
    lazy = not stored.thorough
    arrays = form.read(stored, USERS, lazy=lazy)
    if about["user_ids"]["size"] != about["users"]:
        raise stored.refusal("the vocabularies are of another size than the posterior")
    nothing = np.zeros(about["users"] + 1, np.int64), np.empty(0, np.int32)
    liked = Adjacency(arrays["likes.starts"], arrays["likes.items"]) if about["likes"] else Adjacency(*nothing)
    ids = vocabulary("user_ids", about["user_ids"], arrays) if ids is None else ids
    rows = UserRows(_side(arrays, "user", form.sizes["factors"]), arrays["user_degree"], liked, ids)
    return LazyUsers(rows, stored, about["edges"], list(arrays)) if lazy else rows


def read_model(
    stored: StoredTensors, read_users: Callable[[StoredTensors, dict[str, Any], Form], Users] = users_in
) -> Model:
    """A model; its users by `read_users`, where they are not in this file."""
    about = parse(stored, SHARED_FIELDS | USERS_FIELDS)
    settings, precisions = about["settings"], about["precisions"]
    factors, negatives = about["factors"], float(about["negatives"])
    if abs(settings["offset"] + np.log(negatives)) > 1e-6 + 1e-9 * abs(settings["offset"]):
        raise stored.refusal("its setting 'offset' is out of range (it must be -log of 'negatives')")
    if about["parameters"].get("factors", factors) != factors:
        raise stored.refusal(f"its parameters are not those of a model of {factors} factors")
    if settings["factors"] != factors:
        raise stored.refusal("its setting 'factors' is out of range")
    for name in ("user_bias", "item_bias"):
        if settings[name] != (getattr(precisions, name) is not None):
            raise stored.refusal(f"its setting {name!r} says one thing and its precisions another")
    form = Form.of(about, user_bias=settings["user_bias"], item_bias=settings["item_bias"])
    users = read_users(stored, about, form)
    arrays = form.read(stored, SHARED)
    if about["item_ids"]["size"] != about["items"]:
        raise stored.refusal("the vocabularies are of another size than the posterior")
    return Model(
        users=users,
        items=_side(arrays, "item", factors),
        precisions=precisions,
        popularity=arrays["popularity"],
        gamma=about["gamma"],
        item_degree=arrays["item_degree"],
        item_ids=vocabulary("item_ids", about["item_ids"], arrays),
        titles=Titles(arrays["titles.offsets"], arrays["titles.text"]) if about["titles"] else None,
        plan=_plan(stored, about),
        bounds=tuple(dict(zip(about["bound_terms"], row)) for row in arrays["bounds"].tolist()),
        converged=about["converged"],
        parameters=about["parameters"],
        recalibration=about["recalibration"],
        consideration=_consideration(about["walk"], arrays),
    )


def _plan(stored: StoredTensors, about: Mapping[str, Any]) -> FitPlan:
    """The plan of the fit: the parameters, with the settings that were chosen."""
    values = {name: value for name, value in about["settings"].items() if name not in ("offset", "weight")}
    values |= {"negatives": float(about["negatives"]), "groups": int(about["groups"])}
    values |= {"popularity": about["popularity_weight"], "consideration": "popularity", "lift": 0.0}
    if walk := about["walk"]:
        values |= {"consideration": "walk", "lift": walk["lift_weight"]}
        values |= {"neighbours": int(walk["neighbours"]), "mixing": float(walk["mix"])}
    values |= {"likelihood_weight": about["settings"]["weight"], "tuned": frozenset(), "chosen": about["chosen"]}
    if about["chosen"] is not None:
        values = about["chosen"].settings | values
    known = {name: value for name, value in about["parameters"].items() if name in PARAMETERS}
    try:
        return replace(Parameters(**known).plan(), **values)
    except UsageError as error:
        raise stored.refusal(f"its parameters are not possible ({str(error).removesuffix('.')})") from error


def _consideration(walk: Mapping[str, Any] | None, arrays: Arrays) -> Consideration | None:
    if walk is None:
        return None
    rows = {name: arrays[f"walk.{name}"] for name in WALK}
    return Consideration(**rows, weights=arrays["popularity"], mix=float(walk["mix"]))


def _side(arrays: Arrays, name: str, factors: int) -> Side:
    return Side(factors, arrays[f"{name}.rows"], arrays.get(f"{name}.bias_mean"), arrays.get(f"{name}.bias_variance"))


class LazyUsers:
    """The users of a large mapped file, see users.Users: what is handed out of a user has been verified, and nothing is
    read of users who are not asked for."""

    def __init__(self, rows: UserRows, stored: StoredTensors, edges: int, tensors: Sequence[str]) -> None:
        self._rows, self._stored, self._tensors = rows, stored, tensors
        self._verified = np.zeros(-(-len(rows) // _VERIFIED_AT_ONCE), np.bool_)
        self.edges, self.knows_likes, self.has_bias = edges, rows.liked.edges == edges, rows.has_bias

    def __len__(self) -> int:
        return len(self._rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return replace, (self.whole(),)

    @property
    def ids(self) -> Vocabulary:
        for name in self._tensors:
            if name.startswith("user_ids."):
                self._stored.verify_rows(name)
        return self._rows.ids

    def some(self, rows: Rows) -> tuple[UserRows, Rows]:
        blocks = rows // _VERIFIED_AT_ONCE
        for block in () if self._verified[blocks].all() else np.unique(blocks[~self._verified[blocks]]).tolist():
            self._verify(block * _VERIFIED_AT_ONCE, min((block + 1) * _VERIFIED_AT_ONCE, len(self)))
            self._verified[block] = True
        return self._rows, rows

    def _verify(self, first: int, last: int) -> None:
        """What the tensors have of users first .. last - 1; starts and offsets come before what they divide."""
        for name in self._tensors:
            if name.endswith((".starts", ".offsets")):
                self._stored.verify_rows(name, first, last + 1)
            elif name == "likes.items":
                self._stored.verify_rows(name, *self._rows.liked.starts[[first, last]].tolist())
            elif name == "user_ids.text":
                self._stored.verify_rows(name, *self._rows.ids.tensors()["offsets"][[first, last]].tolist())
            else:
                self._stored.verify_rows(name, first, last)

    def pieces(self) -> Iterator[tuple[int, UserRows]]:
        yield 0, self.whole()

    def whole(self) -> UserRows:
        if not self._verified.all():
            for name in self._tensors:
                self._stored.verify_rows(name)
            self._verified[:] = True
        return self._rows
