"""Damaged model files, and whole files that lie: what does not hold a model is refused with the reason."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from considerate import Recommender
from considerate.errors import ConsiderateError, ModelFileError
from considerate.model.file import load_model
from considerate.simulation.simulate import simulate_from_model
from considerate.storage.container import open_tensors, write_tensors
from tests.helpers.likes import planted
from tests.helpers.model_files import parts_of, refused, save_everything
from tests.helpers.randomised import count


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_everything(tmp_path_factory.mktemp("model") / "model.safetensors")


def test_flipped_bits_and_truncation(saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    path = tmp_path / "damaged"
    places = random.Random(0)
    for _ in range(count(150, 60)):
        damaged = bytearray(content)
        damaged[places.randrange(len(content))] ^= 1 << places.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError):
            Recommender.load(path)
    for _ in range(60):
        path.write_bytes(content[: places.randrange(len(content))])
        with pytest.raises(ModelFileError):
            Recommender.load(path)
    path.write_bytes(content + b"\0")
    with pytest.raises(ModelFileError, match="bytes added at its end"):
        Recommender.load(path)
    path.write_bytes(content)
    Recommender.load(path)


def test_the_parts_as_they_are_make_a_model(saved: Path, tmp_path: Path) -> None:
    write_tensors(tmp_path / "same", *parts_of(saved))
    assert (tmp_path / "same").read_bytes() == saved.read_bytes()


def test_every_tensor_is_needed_with_its_shape_and_type(saved: Path, tmp_path: Path) -> None:
    names = list(open_tensors(saved))
    assert set(names) >= {"user.rows", "item.rows", "popularity", "likes.starts", "user_ids.text", "titles.offsets"}
    changes: list[Callable[[Any], Any]] = [
        lambda array: array[:-1],
        lambda array: np.concatenate([array, array[:1]]),
        lambda array: array[None],
        lambda array: array.reshape(-1, 1),
        lambda array: array.astype(np.float64 if array.dtype != np.float64 else np.float32),
        lambda array: array.astype(np.uint8 if array.dtype != np.uint8 else np.int32),
        lambda array: array[:0],
        lambda array: array.reshape(-1)[0],
    ]
    for name in names:
        tensors, metadata = parts_of(saved)
        del tensors[name]
        assert name in refused(tmp_path / "changed", (tensors, metadata)) or "text" in name
        for change in changes:
            tensors, metadata = parts_of(saved)
            tensors[name] = change(tensors[name])
            if name == "bounds" and tensors[name].shape[1:] == (6,) and tensors[name].dtype == np.float64:
                continue  # a history may be of any length
            refused(tmp_path / "changed", (tensors, metadata))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("popularity", np.nan, "popularities"),
        ("popularity", np.inf, "popularities"),
        ("popularity", -1.0, "popularities"),
        ("popularity", 5e-324, "popularities"),
        ("popularity", 1e200, "popularities"),
        ("user_degree", 39, "not as many as 'user_degree' says"),
        *((f"{side}.bias_mean", value, "not finite") for side in ("user", "item") for value in (np.nan, -np.inf)),
        *(
            (f"{side}.bias_variance", value, "a variance that is not positive")
            for side in ("user", "item")
            for value in (np.nan, np.inf, 0.0, -1.0)
        ),
        ("user_degree", -1, "does not hold degrees"),
        ("item_degree", 2**40, "does not hold degrees"),
        ("likes.items", 40, "an item that is not there"),
        ("likes.items", -1, "an item that is not there"),
        ("likes.starts", 2**50, "not divided into users"),
        ("likes.starts", -5, "not divided into users"),
        ("walk.starts", 2**50, "not divided into items"),
        ("walk.starts", -5, "not divided into items"),
        ("walk.items", 40, "table of the walk names an item that is not there"),
        ("walk.items", -1, "table of the walk names an item that is not there"),
        *(("walk.shares", value, "not above 0 and at most 1") for value in (np.nan, np.inf, 0.0, -0.1, 1.001)),
        *(("walk.rest", value, "not from 0 to 1") for value in (np.nan, -np.inf, -0.1, 1.001)),
        ("walk.shares", 0.9, "does not add up to 1"),
        ("walk.rest", 0.0, "does not add up to 1"),
        ("user_ids.offsets", 2**50, ""),
        ("titles.offsets", -7, ""),
    ],
)
def test_values_that_no_model_has(saved: Path, tmp_path: Path, name: str, value: Any, message: str) -> None:
    tensors, metadata = parts_of(saved)
    tensors[name][5] = value
    assert message in refused(tmp_path / "changed", (tensors, metadata))


@pytest.mark.parametrize("name", ["user.rows", "item.rows"])
@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (0, np.nan, "not finite"),
        (2, np.inf, "not finite"),
        (8, np.nan, "not finite"),
        (8, 0.0, "a variance that is not positive"),
        (10, -1e-3, "a variance that is not positive"),
        (3, 1.0, "not padded with zeros"),
        (11, 1.0, "not padded with zeros"),
    ],
)
def test_rows_that_no_posterior_has(
    saved: Path, tmp_path: Path, name: str, column: int, value: float, message: str
) -> None:
    """Three factors: means in columns 0 to 2, variances in 8 to 10, zeros in the others."""
    tensors, metadata = parts_of(saved)
    tensors[name][-1, column] = value
    assert f"{name}' " in (reason := refused(tmp_path / "changed", (tensors, metadata)))
    assert message in reason


@pytest.mark.parametrize("how", ["descending", "repeated"])
def test_the_walks_rows_ascend(saved: Path, tmp_path: Path, how: str) -> None:
    tensors, metadata = parts_of(saved)
    items = tensors["walk.items"][:2]
    items[:] = items[::-1].copy() if how == "descending" else items[0]
    assert "distinct items in ascending order" in refused(tmp_path / "changed", (tensors, metadata))


def test_the_walk_leads_to_no_item_without_popularity(saved: Path, tmp_path: Path) -> None:
    tensors, metadata = parts_of(saved)
    tensors["popularity"][tensors["walk.items"][3]] = 0.0
    assert "leads to an item that nobody liked" in refused(tmp_path / "changed", (tensors, metadata))


@pytest.mark.parametrize("how", ["descending", "repeated"])
def test_likes_ascend_within_a_user(saved: Path, tmp_path: Path, how: str) -> None:
    """The kernel bisects them: in another order, what a user liked would be recommended."""
    tensors, metadata = parts_of(saved)
    starts, items = tensors["likes.starts"], tensors["likes.items"]
    user = int(np.flatnonzero(np.diff(starts) > 2)[-1])
    row = items[starts[user] : starts[user + 1]]
    row[:] = row[::-1].copy() if how == "descending" else row[[0, 0, *range(2, len(row))]]
    assert "not distinct and in ascending order" in refused(tmp_path / "changed", (tensors, metadata))


def test_string_ids_ascend(saved: Path, tmp_path: Path) -> None:
    tensors, metadata = parts_of(saved)
    tensors["user_ids.text"][:] = np.frombuffer(b"z" * len(tensors["user_ids.text"]), np.uint8)
    assert "the ids of 'user_ids' are not distinct" in refused(tmp_path / "changed", (tensors, metadata))


def test_the_truth_of_a_simulation_is_not_taken_for_a_model(tmp_path: Path) -> None:
    said = simulate_from_model(60, 20, 3, seed=0).write(tmp_path / "likes.parquet", seed=0)
    for load in (Recommender.load, load_model):
        with pytest.raises(ModelFileError, match="is the truth of a simulation, not a model; give a file") as caught:
            load(said["truth"])
        assert "save the model again" not in str(caught.value)


def test_a_popularity_of_nothing(saved: Path, tmp_path: Path) -> None:
    tensors, metadata = parts_of(saved)
    tensors["popularity"][:] = 0
    assert "popularities" in refused(tmp_path / "changed", (tensors, metadata))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"users": 59}, "user.rows"),
        ({"users": -1}, "'users' is out of range"),
        ({"items": 41}, "item.rows"),
        ({"factors": 4}, "not those of a model of [49] factors"),
        ({"factors": 9}, "not those of a model of [49] factors"),
        ({"factors": 0}, "'factors' is out of range"),
        ({"gamma": "1"}, "no number 'gamma'"),
        ({"gamma": 1e200}, "'gamma' is out of range"),
        ({"negatives": 0}, "'negatives' is out of range"),
        ({"negatives": 1001.0}, "'negatives' is out of range .negatives is 1001.0; it must be"),
        ({"negatives": 2.0}, "'offset' is out of range .it must be -log of 'unlinked' or 'negatives'"),
        ({"groups": 0}, "'groups' is out of range"),
        ({"groups": 2**39}, "'groups' is out of range .* at most 4096"),
        ({"groups": 8.5}, "'groups' is out of range"),
        ({"popularity_weight": 1e200}, "'popularity_weight' is out of range"),
        ({"walk": {"entries": 480, "mix": 0.1}}, "not described by entries, neighbours, mix, lift_weight"),
        ({"walk": {"entries": 3, "neighbours": 12, "mix": 0.1, "lift_weight": 1}}, "walk.items"),
        ({"walk": {"entries": -1, "neighbours": 12, "mix": 0.1, "lift_weight": 1}}, "'entries' of the walk is out of"),
        ({"walk": {"entries": 480, "neighbours": 0, "mix": 0.1, "lift_weight": 1}}, "'neighbours' of the walk is out"),
        ({"walk": {"entries": 480, "neighbours": 12, "mix": 2, "lift_weight": 1}}, "'mix' of the walk is out of range"),
        (
            {"walk": {"entries": 480, "neighbours": 12, "mix": 0, "lift_weight": 1e9}},
            "'lift_weight' of the walk is out",
        ),
        ({"walk": {"entries": 480, "neighbours": 12, "mix": 0, "lift_weight": "1"}}, "no number 'lift_weight'"),
        ({"events": 7}, "the field 'events' is not described"),
        (
            {"events": {"sequence": -1, "log": "", "considered": False, "erasures": 0}},
            "'sequence' of the field 'events'",
        ),
        ({"events": {"sequence": 1, "log": 1, "considered": False, "erasures": 0}}, "no 'log' of the right kind"),
        ({"walk": 7}, "the walk is not described"),
        ({"converged": 1}, "'converged'"),
        ({"bound_terms": ["edges"]}, "bounds"),
        ({"bound_terms": [1, 2, 3, 4, 5, 6]}, "history of the bound"),
        ({"precisions": {}}, "precision 'user'"),
        ({"precisions": {"user": [1, 1], "item": [1, 1], "user_bias": [1, 1]}}, "'item_bias' contradicts"),
        ({"precisions": {"user": [1, 1], "item": [1, 1], "item_bias": [1, 1]}}, "'user_bias' contradicts"),
        ({"precisions": {"user": [1, 1], "item": [1, 0]}}, "precision 'item'"),
        ({"settings": None}, "'settings'"),
        ({"likes": 1}, "'likes'"),
        ({"edges": 3}, "likes.items"),
        ({"user_ids": {"kind": "range", "size": 59}}, "another size"),
        ({"parameters": []}, "'parameters'"),
        ({"parameters": {"sweeps": -1}}, "its parameters are not possible .sweeps is -1; it must be"),
        ({"parameters": {"factors": 4}}, "not those of a model of 3 factors"),
        ({"parameters": {"hidden": "guessed"}}, "its parameters are not possible"),
    ],
    ids=str,
)
def test_descriptions_that_lie(saved: Path, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    tensors, metadata = parts_of(saved)
    reason = refused(tmp_path / "changed", (tensors, metadata | change))
    assert re.search(message, reason), reason
    assert str(tmp_path / "changed") in reason


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("factors", 3.0),
        ("seed", 1.5),
        ("seed", -1),
        ("seed", 2**63),
        ("weight", 0.0),
        ("weight", -1),
        ("weight", 100.5),
        ("offset", 50.0),
        ("offset", -1e9),
        ("prior_rate", 1e7),
        ("step_delay", 10**9),
        ("prior_shape", 0),
        ("user_bias", 1),
        ("step_delay", "10"),
        ("offset", None),
    ],
)
def test_settings_that_lie(saved: Path, tmp_path: Path, name: str, value: Any) -> None:
    tensors, metadata = parts_of(saved)
    metadata["settings"][name] = value
    assert f"setting {name!r} is out of range" in refused(tmp_path / "changed", (tensors, metadata))


STRANGE: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 40, 60, 2**31, 2**40, 2**63, -(2**63), 10**99, 0.5, -0.5, 1e-320, 1e299),
    *(
        -1e308,
        "",
        "x",
        "range",
        "string",
        "integer",
        [],
        [0],
        [1, 1],
        [[]],
        {},
        {"kind": "range", "size": 60},
        {"x": 1},
    ),
]


def mutated(value: Any, draw: random.Random) -> Any:
    """The same JSON with one thing in it removed, replaced, repeated, added or exchanged."""
    if isinstance(value, dict) and value and draw.random() < 0.8:
        value, key = dict(value), draw.choice(sorted(value))
        action = draw.randrange(6)
        if action == 0:
            del value[key]
        elif action == 1:
            value[key] = draw.choice(STRANGE)
        elif action == 2:
            value[draw.choice(sorted(value))] = value[key]
        else:
            value[key] = mutated(value[key], draw)
        return value
    if isinstance(value, list) and value and draw.random() < 0.8:
        value, place = list(value), draw.randrange(len(value))
        action = draw.randrange(4)
        if action == 0:
            del value[place]
        elif action == 1:
            value.insert(place, draw.choice(STRANGE))
        else:
            value[place] = mutated(value[place], draw)
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and draw.random() < 0.5:
        return draw.choice([value + 1, value - 1, -value, value * 2, value / 3, float(value), str(value)])
    return draw.choice(STRANGE)


def use(recommender: Recommender) -> None:
    """Questions to a model that was accepted: it may say no in our words, and must not break."""
    recommender.recommend([0, 1], N=3, by="row")
    recommender.recommend(0, [1, 2], recalculate_user=True, by="row")
    recommender.predict_proba(0, 1, by="row")
    recommender.recommend_table(N=1, cold="popular")
    recommender.explain(0, 1, by="row")
    recommender.bound_  # noqa: B018
    recommender.partial_fit_items([0], planted(users=60).T.tocsr()[:1], by="row")


def test_mutated_descriptions(saved: Path, tmp_path: Path) -> None:
    """Whatever the JSON says: a model that answers, or ModelFileError."""
    tensors, metadata = parts_of(saved)
    draw = random.Random(20)
    path = tmp_path / "mutated"
    loaded = 0
    for case in range(count(500, 150)):
        changed = metadata
        for _ in range(draw.choice([1, 1, 1, 2, 4])):
            changed = mutated(changed, draw)
        if not isinstance(changed, dict):
            continue
        write_tensors(path, tensors, changed)
        try:
            load_model(path)
            recommender = Recommender.load(path)
        except ModelFileError:
            continue
        loaded += 1
        try:
            with np.errstate(all="ignore"):
                use(recommender)
        except ConsiderateError:
            pass
        except Exception as error:
            raise AssertionError(f"case {case}: {json.dumps(changed)[:3000]}") from error
    assert 3 < loaded < 400  # both happen


def test_mutated_tensors(saved: Path, tmp_path: Path) -> None:
    """Valid containers whose arrays are of other shapes, types and values."""
    original, metadata = parts_of(saved)
    draw = random.Random(21)
    path = tmp_path / "mutated"
    refusals = 0
    for case in range(count(200, 100)):
        tensors = {name: array.copy() for name, array in original.items()}
        name = draw.choice(sorted(tensors))
        array = tensors[name]
        action = draw.randrange(5)
        if action == 0:
            tensors[name] = tensors[draw.choice(sorted(tensors))]
        elif action == 1:
            tensors[name] = np.resize(array, (draw.randrange(100),))
        elif action == 2:
            tensors[name] = array.astype(draw.choice([np.float32, np.int32, np.int64, np.uint8]))
        elif action == 3 and array.dtype.kind != "f":
            array.reshape(-1)[draw.randrange(array.size)] = draw.choice([0, 1, 255, np.iinfo(array.dtype).max])
        else:
            draw.shuffle(rows := list(range(len(array))))
            tensors[name] = array[rows]
        write_tensors(path, tensors, metadata)
        try:
            recommender = Recommender.load(path)
        except ModelFileError:
            refusals += 1
            continue
        try:
            use(recommender)
        except ConsiderateError:
            pass
        except Exception as error:
            raise AssertionError(f"case {case}: {name}, action {action}") from error
    assert 25 < refusals < 200


def test_flipped_bits_of_the_walk_with_right_checksums(saved: Path, tmp_path: Path) -> None:
    """Checksums find accidents only: what gets past the rules still draws, ranks and answers."""
    original, metadata = parts_of(saved)
    draw, path, refusals = random.Random(22), tmp_path / "flipped", 0
    for _ in range(cases := count(400, 120)):
        name = draw.choice(["walk.starts", "walk.items", "walk.shares", "walk.rest"])
        flipped = bytearray(original[name].tobytes())
        flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
        write_tensors(path, original | {name: np.frombuffer(flipped, original[name].dtype)}, metadata)
        try:
            walk = load_model(path).consideration
        except ModelFileError:
            refusals += 1
            continue
        assert walk is not None
        ratios = walk.ratios(np.arange(20))
        assert np.isfinite(ratios).all()
        assert (walk.p * ratios).sum() == pytest.approx(1, abs=1e-3)
        assert walk.table is not None
    assert cases / 2 < refusals < cases
