"""Conversion of a model to tensors and a description, and back, by the tables of schema.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from dataclasses import fields as fields_of
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data import Titles
from considerate.data.features import Features
from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Vocabulary
from considerate.errors import UsageError
from considerate.inference.features import FeatureWeights, Regression
from considerate.inference.plan import SETTINGS, FitPlan, Parameters
from considerate.inference.posterior import Side, mirrored, padded
from considerate.model.features import LearnedFeatures
from considerate.model.model import NO_EVENTS, NO_UPDATES, Model
from considerate.model.schema import (
    DECIDED,
    FILES,
    GAMMAS,
    SHARED,
    SHARED_FIELDS,
    STORED,
    USERS,
    USERS_FIELDS,
    Form,
    parse,
    stored_settings,
    vocabulary,
    vocabulary_tensors,
)
from considerate.model.users import Rows as UserNumbers
from considerate.model.users import UserRows, Users
from considerate.storage.container import InParts, StoredTensors, Writable
from considerate.storage.layout import Arrays, Sizes

_AT_ONCE = {"user": 256, "walk": 64}  # rows that are verified together

# --- Writing ---


def shared_tensors(model: Model) -> tuple[dict[str, Writable], dict[str, Any]]:
    """Tensors that do not belong to users, and their fields of the description."""
    terms = list(model.bounds[0]) if model.bounds else []
    history = [[bound[term] for term in terms] for bound in model.bounds]
    gammas = {name: getattr(model.precisions, name) for name in GAMMAS}
    about = {
        "factors": model.factors,
        "items": model.item_count,
        "gamma": model.gamma,
        "negatives": model.plan.negatives,
        "groups": model.plan.groups,
        "popularity_weight": model.plan.popularity,
        "chosen": None if model.plan.chosen is None else asdict(model.plan.chosen),
        "converged": model.converged,
        "recalibration": model.recalibration.to_dict(),
        "structure": None if model.structure is None else asdict(model.structure),
        "precisions": {name: [gamma.shape, gamma.rate] for name, gamma in gammas.items() if gamma is not None},
        "settings": stored_settings(model.plan),
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
        "item.covariance": model.items.covariance,
        **vocabulary_tensors("item_ids", model.item_ids),
    }
    if model.items.covariance is not None:
        about["item_covariance"] = True
    if model.titles is not None:
        tensors |= {f"titles.{name}": array for name, array in model.titles.tensors().items()}
    if model.one_kind:
        about["signed"] = model.plan.signed
    for part in FILES:
        described, of_part = part.saved(model)
        about |= described
        tensors |= of_part
    if model.reliability is not None:
        about["reliability"] = model.reliability.to_dict()
    if model.updates != NO_UPDATES:
        about["updates"] = asdict(model.updates)
    if model.events != NO_EVENTS:
        about["events"] = asdict(model.events)
    for name, weights in (("item_features", model.item_features), ("user_features", model.user_features)):
        if weights is not None:
            about[name], of_features = _feature_tensors(name, weights)
            tensors |= of_features
    form = Form.of(about, user_bias=model.users.has_bias, item_bias=model.items.has_bias)
    return form.select(SHARED, tensors), about


def _feature_tensors(name: str, learned: LearnedFeatures) -> tuple[dict[str, Any], dict[str, Any]]:
    """Description and tensors of a side's learned features."""
    features, names, count = learned.features, Titles.of_strings(learned.names), learned.features.count
    parts = learned.weights.parts
    about = {
        "count": count,
        "entries": len(features.indices),
        "precisions": [[part.tau.shape, part.tau.rate] for part in parts],
        "columns": [asdict(column) for column in features.columns],
    }
    rows = {part: getattr(features, part) for part in ("starts", "indices", "values")}
    said: dict[str, Any] = {}
    for prefix, weights in zip(("", "bias_"), parts):
        said |= {f"{prefix}mean": weights.mean, f"{prefix}spread": weights.spread.reshape(count, -1)}
    texts = {f"names.{part}": array for part, array in names.tensors().items()}
    return about, {f"{name}.{part}": array for part, array in (rows | said | texts).items()}


def user_tensors(
    users: Users, factors: int, likes: bool, signed: bool | None = None
) -> tuple[dict[str, Writable], dict[str, Any]]:
    """Tensors of all users, which are read a piece at a time, and their fields of the description. Vertices that are
    items too (`signed` is not None) have only their likes here."""
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
        "user.covariance": column(_covariance, np.float32, count, factors * (factors + 1) // 2),
        "user_degree": column(lambda piece: piece.degree, np.int64, count),
        "likes.starts": starts(lambda piece: piece.liked.starts),
        "likes.items": column(lambda piece: piece.liked.indices, np.int32, edges),
        "likes.weights": column(lambda piece: np.asarray(piece.liked.weights), np.float32, edges),
        "user_ids.integers": column(ids("integers"), np.int64, count),
        "user_ids.offsets": starts(ids("offsets")),
        "user_ids.text": column(ids("text"), np.uint8, text),
    }
    about = {"users": count, "edges": edges, "user_ids": {"kind": kind, "size": count}, "likes": likes}
    if users.has_covariance:
        about["user_covariance"] = True
    if likes and any(piece.liked.weights is not None for _, piece in islice(users.pieces(), 1)):
        about["weights"] = True
    form = Form.of(about | {"factors": factors, "signed": signed}, user_bias=users.has_bias, item_bias=True)
    return form.select(USERS, tensors), about


def _covariance(users: UserRows) -> NDArray[np.float32]:
    assert users.side.covariance is not None
    return users.side.covariance


# --- Reading ---


def users_in(stored: StoredTensors, about: Mapping[str, Any], form: Form, ids: Vocabulary | None = None) -> Users:
    """Users in a file, with the given ids if any. Users of a large file are verified when they are used."""
    arrays = form.read(stored, USERS) if stored.thorough else form.views(stored, USERS)
    if about["user_ids"]["size"] != about["users"]:
        raise stored.refusal("the vocabularies are of another size than the posterior")
    nothing = np.zeros(about["users"] + 1, np.int64), np.empty(0, np.int32)
    liked = Adjacency(*nothing)
    if about["likes"]:
        liked = Adjacency(arrays["likes.starts"], arrays["likes.items"], arrays.get("likes.weights"))
    ids = vocabulary("user_ids", about["user_ids"], arrays) if ids is None else ids
    rows = UserRows(_side(arrays, "user", form.sizes["factors"]), arrays["user_degree"], liked, ids)
    return rows if stored.thorough else LazyUsers(rows, MappedRows(stored, form, arrays, "user"), about["edges"])


def vertices_in(stored: StoredTensors, about: Mapping[str, Any], form: Form) -> UserRows:
    """Vertices of a graph as users, verified whole: the rows of the items, and the links of each."""
    items = [tensor for tensor in SHARED if tensor.name.startswith("item")]
    arrays = form.read(stored, [*USERS, *items])
    counts = {about["users"], about["items"], about["item_ids"]["size"]}
    settings = about["settings"]
    if len(counts) > 1 or not (about["likes"] and settings["user_bias"] and settings["item_bias"]):
        raise stored.refusal("the vertices of a graph are not described by one side with biases and links")
    side = mirrored(_side(arrays, "item", form.sizes["factors"]), about["signed"])
    links = Adjacency(arrays["likes.starts"], arrays["likes.items"])
    return UserRows(side, arrays["item_degree"], links, vocabulary("item_ids", about["item_ids"], arrays))


def read_model(
    stored: StoredTensors, read_users: Callable[[StoredTensors, dict[str, Any], Form], Users] = users_in
) -> Model:
    """Read a model; `read_users` reads its users, which may be in other files."""
    about = parse(stored, SHARED_FIELDS | USERS_FIELDS)
    _check_description(stored, about)
    form = Form.of(about, user_bias=about["settings"]["user_bias"], item_bias=about["settings"]["item_bias"])
    users = read_users(stored, about, form) if about["signed"] is None else vertices_in(stored, about, form)
    shared = SharedParts.of(stored, about, form)
    if about["item_ids"]["size"] != about["items"]:
        raise stored.refusal("the vocabularies are of another size than the posterior")
    fields = {
        "users": users,
        "precisions": about["precisions"],
        "gamma": about["gamma"],
        "plan": _plan(stored, about),
        "bounds": tuple(dict(zip(about["bound_terms"], row)) for row in shared.part("bounds")["bounds"].tolist()),
        "converged": about["converged"],
        "parameters": about["parameters"],
        "recalibration": about["recalibration"],
        "structure": about["structure"],
        "reliability": about["reliability"],
        "updates": about["updates"],
        "events": about["events"],
    }
    if stored.thorough:
        return Model(**fields, **{name: make() for name, make in shared.makers().items()})
    return MappedModel.of(fields, shared.makers(), form.sizes)


def _check_description(stored: StoredTensors, about: Mapping[str, Any]) -> None:
    """Raise ModelFileError if a description contradicts itself."""
    settings, factors = about["settings"], about["factors"]
    unlinked = settings["unlinked"]
    if unlinked < 0 or (unlinked and about["signed"] is None):
        raise stored.refusal("its setting 'unlinked' is out of range (a number above 0, of a graph of vertices alone)")
    if abs(settings["offset"] + np.log(unlinked or float(about["negatives"]))) > 1e-6 + 1e-9 * abs(settings["offset"]):
        raise stored.refusal("its setting 'offset' is out of range (it must be -log of 'unlinked' or 'negatives')")
    if about["parameters"].get("factors", factors) != factors:
        raise stored.refusal(f"its parameters are not those of a model of {factors} factors")
    if settings["factors"] != factors:
        raise stored.refusal("its setting 'factors' is out of range")
    for side in ("user", "item"):
        if settings[f"{side}_bias"] != (getattr(about["precisions"], f"{side}_bias") is not None):
            raise stored.refusal(f"its setting '{side}_bias' contradicts its precisions")
        said = about[f"{side}_features"]
        if said is not None and len(said["precisions"]) != 1 + settings[f"{side}_bias"]:
            raise stored.refusal(f"the precisions of features of {side}s are not one for vectors and one for biases")


@dataclass(frozen=True)
class SharedParts:
    """Parts of a model that do not belong to users. Parts of a large file are verified when they are made."""

    stored: StoredTensors
    about: Mapping[str, Any]
    form: Form
    arrays: Arrays

    @classmethod
    def of(cls, stored: StoredTensors, about: Mapping[str, Any], form: Form) -> SharedParts:
        return cls(stored, about, form, form.read(stored, SHARED) if stored.thorough else form.views(stored, SHARED))

    def lazy_rows(self, name: str) -> MappedRows:
        """Tensors with names that begin with `name`, verified some rows at a time when they are read."""
        rows = {key: array for key, array in self.arrays.items() if key.startswith(f"{name}.")}
        return MappedRows(self.stored, self.form, rows, name)

    def part(self, prefix: str) -> Arrays:
        """Verified tensors with names that begin with `prefix`."""
        if self.stored.thorough:
            return {name: array for name, array in self.arrays.items() if name.startswith(prefix)}
        return self.form.read(self.stored, [tensor for tensor in SHARED if tensor.name.startswith(prefix)])

    def makers(self) -> dict[str, Callable[[], Any]]:
        """Functions that make parts, by the name of the part in a Model."""
        about, part = self.about, self.part
        return {
            "items": lambda: _side(part("item."), "item", about["factors"]),
            "popularity": lambda: part("popularity")["popularity"],
            "item_degree": lambda: part("item_degree")["item_degree"],
            "item_ids": lambda: vocabulary("item_ids", about["item_ids"], part("item_ids.")),
            "titles": lambda: Titles(*part("titles.").values()) if about["titles"] else None,
            "item_features": lambda: self.features("item_features"),
            "user_features": lambda: self.features("user_features"),
            "kept": lambda: {one.name: kept for one in FILES if (kept := one.kept_in(self)) is not None},
            **{name: load for one in FILES for name, load in one.loaders(self).items()},
        }

    def features(self, name: str) -> LearnedFeatures | None:
        said = self.about[name]
        return None if said is None else _features(said, self.part(f"{name}."), name)


def _plan(stored: StoredTensors, about: Mapping[str, Any]) -> FitPlan:
    """Plan of the fit, from the parameters and the settings that were chosen."""
    given, settings = about["parameters"], about["settings"]
    values = {name: one.metadata["before"] for name, one in SETTINGS.items() if name not in given}
    values = {name: before for name, before in values.items() if before is not None}
    values |= {one.name: settings[name] for name, one in STORED.items()}
    values |= {name: settings[name] for name in DECIDED if name != "offset"}
    values |= {"negatives": float(about["negatives"]), "groups": int(about["groups"])}
    values |= {"popularity": about["popularity_weight"], "consideration": "popularity", "lift": 0.0}
    if walk := about["walk"]:
        values |= {"consideration": "walk", "lift": walk["lift_weight"]}
        values |= {"neighbours": int(walk["neighbours"]), "mixing": float(walk["mix"])}
    values |= {"tuned": frozenset(), "chosen": about["chosen"]}
    values |= {"signed": about["signed"]} | ({} if about["signed"] is None else {"opening": 0})
    if about["chosen"] is not None:
        values = about["chosen"].settings | values
    known = {name: value for name, value in given.items() if name in SETTINGS}
    try:
        return replace(Parameters(**known).plan(), **values)
    except UsageError as error:
        raise stored.refusal(f"its parameters are not possible ({str(error).removesuffix('.')})") from error


def _side(arrays: Arrays, name: str, factors: int) -> Side:
    parts = (arrays.get(f"{name}.{part}") for part in ("bias_mean", "bias_variance", "covariance"))
    return Side(factors, arrays[f"{name}.rows"], *parts)


def _features(about: Mapping[str, Any], arrays: Arrays, name: str) -> LearnedFeatures:
    """Learned features of a side, from their tensors."""
    texts = Titles(arrays[f"{name}.names.offsets"], arrays[f"{name}.names.text"])
    names = tuple(texts.of(row) or "" for row in range(len(texts)))
    starts = arrays.get(f"{name}.starts", np.zeros(1, np.int64))
    indices = arrays.get(f"{name}.indices", np.empty(0, np.int32))
    values = arrays.get(f"{name}.values", np.empty(0, np.float32))
    parts = []
    for prefix, tau in zip(("", "bias_"), about["precisions"]):
        spread = arrays[f"{name}.{prefix}spread"]
        spread = spread if spread.shape[1] == len(names) else spread[:, 0]
        parts.append(Regression(arrays[f"{name}.{prefix}mean"], spread, tau, trace=0.0))  # which only a fit reads
    return LearnedFeatures(Features(starts, indices, values, names, about["columns"]), FeatureWeights(*parts))


class MappedModel(Model):
    """Model in a large file. Each field, apart from users, is verified when it is first read."""

    @classmethod
    def of(cls, fields: dict[str, Any], later: dict[str, Callable[[], Any]], sizes: Sizes) -> MappedModel:
        self = object.__new__(cls)
        vars(self).update(fields, _later=later, _sizes=sizes)
        return self

    def __getattr__(self, name: str) -> Any:
        make = vars(self).get("_later", {}).get(name)
        if make is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = vars(self)[name] = make()
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return Model, tuple(getattr(self, field.name) for field in fields_of(Model))

    @property
    def item_count(self) -> int:
        return self._sizes["items"] if "items" not in vars(self) else len(self.items)

    @property
    def factors(self) -> int:
        return self._sizes["factors"] if "items" not in vars(self) else self.items.factors


class MappedRows:
    """Tensors of users, or of the walk, in a large file. Rows are verified and checked by the rules, `at_once` of them
    together, when one of them is first read."""

    DIVIDED = {"likes.items": "likes.starts", "likes.weights": "likes.starts", "user_ids.text": "user_ids.offsets"} | {
        f"walk.{name}": "walk.starts" for name in ("items", "shares")
    }

    def __init__(self, stored: StoredTensors, form: Form, arrays: Arrays, of: str) -> None:
        self.stored, self.form, self.arrays = stored, form, arrays
        self.at_once = _AT_ONCE[of]
        self._count = form.sizes["users" if of == "user" else "items"]
        self._verified = np.zeros(-(-self._count // self.at_once), np.bool_)

    def read(self, rows: NDArray[Any]) -> None:
        """Verify these rows and their neighbours; raise ModelFileError if one is damaged."""
        blocks = rows // self.at_once
        if not self._verified[blocks].all():
            for block in np.unique(blocks[~self._verified[blocks]]).tolist():
                self._read(block * self.at_once, min((block + 1) * self.at_once, self._count))
                self._verified[block] = True

    def _read(self, first: int, last: int) -> None:
        found: Arrays = {}
        for name in sorted(self.arrays, key=lambda name: name in self.DIVIDED):  # tensors that divide others come first
            begin, end = first, last
            if name in self.DIVIDED:
                begin, end = self.arrays[self.DIVIDED[name]][[first, last]].tolist()
                if not 0 <= begin <= end <= len(self.arrays[name]):
                    raise self.stored.refusal(f"the rows of {name!r} are not inside it")
            elif name in self.DIVIDED.values():
                end += 1
            self.stored.verify_rows(name, begin, end)
            found[name] = self.arrays[name][begin:end]
            if name in self.DIVIDED.values():
                found[name] = found[name] - found[name][0]
        self.form.check(self.stored, found)

    def whole(self) -> None:
        """Verify all rows."""
        if not self._verified.all():
            for name in self.arrays:
                self.stored.verify_rows(name)
            self.form.check(self.stored, self.arrays)
            self._verified[:] = True


class LazyUsers:
    """Users of a large mapped file, see users.Users. Each user is verified before the first use, and other users are
    not read."""

    def __init__(self, users: UserRows, rows: MappedRows, edges: int) -> None:
        self._users, self._rows = users, rows
        self.edges, self.knows_likes, self.has_bias = edges, users.liked.edges == edges, users.has_bias
        self.has_covariance = users.has_covariance
        self._ids_verified = False

    def __len__(self) -> int:
        return len(self._users)

    def __reduce__(self) -> tuple[Any, ...]:
        return replace, (self.whole(),)

    @property
    def ids(self) -> Vocabulary:
        rows = self._rows
        ids = {name: array for name, array in rows.arrays.items() if name.startswith("user_ids.")}
        if not self._ids_verified:
            for name in ids:
                rows.stored.verify_rows(name)
            rows.form.check(rows.stored, ids)
            self._ids_verified = True
        return self._users.ids

    def some(self, rows: UserNumbers) -> tuple[UserRows, UserNumbers]:
        self._rows.read(rows)
        return self._users, rows

    def pieces(self) -> Iterator[tuple[int, UserRows]]:
        yield 0, self.whole()

    def whole(self) -> UserRows:
        self._rows.whole()
        return self._users
