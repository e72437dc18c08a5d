"""Refits of models of every kind: what a model file holds beside the likes is kept, what it does not hold is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from considerate import GraphRecommender, Impossible, Recommender
from considerate.service.events import EventStore
from tests.helpers.refit_fixtures import (
    ITEMS,
    SETTINGS,
    TITLES,
    USERS,
    assert_same_model,
    folder,
    likes_of,
    likes_table,
    post,
    refit,
    store,
)

__all__ = ["folder", "store"]  # pytest's fixtures

NAMES = [f"i{item}" for item in range(ITEMS)]
FEATURES = {"item": [*NAMES, "cold"], "genre": [f"g{item % 2}" for item in range(ITEMS + 1)]}
GROUPS = {"user": [f"u{user}" for user in range(USERS)], "group": ["a" if user % 3 else "b" for user in range(USERS)]}
RULES = Impossible(
    pairs={"user": ["u1", "u2"], "item": ["i4", "i5"]},
    available={"item": ["i6"], "from": [5.0], "until": [9.0]},
    active={"user": ["u5"], "from": [1.0], "until": [2.0]},
    user_groups=GROUPS,
    item_groups={"item": ["i8", "i9"], "group": ["b", "c"]},
)
WEIGHTED = likes_table().append_column(
    "plays", pa.array([1.0, 2.0] * (len(likes_table()) // 2) + [1.0] * (len(likes_table()) % 2))
)
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "expected": ({"hidden": "expected", "opening": None}, {}),
    "features": ({}, {"item_features": FEATURES}),
    "impossible": ({}, {"impossible": RULES}),
    "weights": ({}, {"weight_column": "plays"}),
    "full": ({"posterior": "full", "opening": 0}, {}),
    "auto": ({"popularity": "auto"}, {}),
}


def save(path: Path, kind: str, **options: Any) -> Recommender:
    settings, given = KINDS[kind]
    source = WEIGHTED if kind == "weights" else likes_table()
    model = Recommender(**SETTINGS | settings).fit(source, titles=TITLES | {"cold": "A Cold One"}, **given)
    model.save(path, **options)
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_a_refit_without_a_change_has_the_bits_of_the_fit(folder: Path, store: EventStore, kind: str) -> None:
    save(folder / "model", kind)
    before = (folder / "model").read_bytes()
    (folder / "before").write_bytes(before)
    post(store, ("u1", "i1", "considered"))
    assert refit(folder)["swapped"]
    assert (folder / "model").read_bytes() != before  # it says which events it has learned
    assert_same_model(folder / "model", folder / "before")


@pytest.mark.parametrize("how", ["fit", "update"])
@pytest.mark.parametrize("kind", KINDS)
def test_new_likes_go_into_a_model_of_any_kind(folder: Path, store: EventStore, kind: str, how: str) -> None:
    old = save(folder / "model", kind)
    post(store, ("new", "i1", "like"), ("u1", "i39x", "like"), ("new", "i3", "like"), ("u1", "i4", "like"))
    result = refit(folder, "--how", how)
    if kind == "features" and how == "update":
        assert "an update does not know of items without likes" in result.stderr
        return
    assert result["swapped"]
    new = Recommender.load(folder / "model", verify=True)
    assert likes_of(new, "new") == ["i1"]
    assert likes_of(new, "u1") == sorted([*likes_of(old, "u1"), "i39x"])
    assert new.titles(["i2", "i39x"]) == ["Title 2", "i39x"]  # no title
    weights = new.model_.users.whole().liked.weights
    assert (weights is not None) == (kind == "weights")
    if kind == "features":
        assert new.titles(["cold"]) == ["A Cold One"]
        assert new.model_.cold_items.tolist() == [int(new.item_rows("cold"))]
    if kind == "impossible":
        limits = new.model_.limits
        assert limits is not None
        users, items = (
            new.user_rows(["u2", "u5", "u1", "u3", "new", "u7"]),
            new.item_rows(["i5", "i6", "i8", "i8", "i8", "i9"]),
        )
        assert limits.are_impossible(users, items).tolist() == [True, True, True, False, True, True]


@pytest.mark.parametrize("how", ["fit", "update"])
def test_a_model_in_shards_stays_in_shards(folder: Path, store: EventStore, how: str) -> None:
    save(folder / "one", "plain")
    save(folder / "shards", "plain", shards=3)
    post(store, ("new", "i1", "like"), ("u1", "i39x", "like"), ("new", "i3", "like"))
    assert refit(folder, "--how", how, model="one") == refit(folder, "--how", how, model="shards")
    Recommender.load(folder / "shards", verify=True).save(folder / "joined")
    assert_same_model(folder / "joined", folder / "one")
    assert len(list((folder / "shards").glob("users-*"))) == 3  # those of before are gone


def test_ids_that_are_row_numbers_become_integers(folder: Path, store: EventStore) -> None:
    from tests.helpers.likes import planted

    post(store, ("7", "1000000000000", "like"), ("7", "39", "like"), ("1000", "1", "like"), ("-1", "1", "like"))
    for how in ("fit", "update"):
        Recommender(**SETTINGS).fit(planted(USERS, ITEMS)).save(folder / "model")
        assert refit(folder, "--how", how)["ignored"] == 0
        new = Recommender.load(folder / "model")
        assert new.user_rows([-1, 7, 1000]).tolist() == [0, 8, 101]
        assert int(new.item_rows(10**12)) == ITEMS


# --- What was considered and not liked ---


def test_events_of_considered_go_in_if_wanted(folder: Path, store: EventStore) -> None:
    model = Recommender.load(folder / "model")
    shown = [item for item in NAMES if item not in likes_of(model, "u1")][:3]
    liked = likes_of(model, "u1")[0]
    post(store, *(("u1", item, "considered") for item in [*shown, liked, "nowhere"]), ("nobody", "i1", "considered"))
    refit(folder, "--considered")
    expected = Recommender(**SETTINGS).fit(likes_table(), titles=TITLES, considered={"user": ["u1"] * 3, "item": shown})
    expected.save(folder / "expected")
    assert_same_model(folder / "model", folder / "expected")
    assert Recommender.load(folder / "model").model_.events.considered
    refit(folder)  # as the last one did
    assert_same_model(folder / "model", folder / "expected")
    refit(folder, "--no-considered")
    model.save(folder / "expected")
    assert_same_model(folder / "model", folder / "expected")


def test_where_all_that_was_considered_is_given_the_data_must_say_it(folder: Path, store: EventStore) -> None:
    likes = likes_table()
    shown = {"user": ["u1", "u2", "u3"] * 20, "item": [f"i{item % ITEMS}" for item in range(60)]}
    log = pa.concat_tables(
        [likes.append_column("event", pa.array(["buy"] * len(likes))), pa.table(shown | {"event": ["view"] * 60})]
    )
    pa.parquet.write_table(log, folder / "log.parquet")
    reading = {"where": "event = 'buy'", "considered_where": "event = 'view'"}
    given = SETTINGS | {"opening": None, "considered_are": "sample"}
    Recommender(**given).fit(log, **reading).save(folder / "model")
    (folder / "before").write_bytes((folder / "model").read_bytes())
    post(store, ("u1", "i1", "considered"))
    assert "give DATA with --considered-where" in refit(folder).stderr
    options = ["--where", reading["where"], "--considered-where", reading["considered_where"]]
    assert refit(folder, *options, data="log.parquet")["swapped"]
    assert_same_model(folder / "model", folder / "before")


# --- What cannot be ---


def test_what_a_model_file_does_not_hold_is_said(folder: Path, store: EventStore) -> None:
    model = Recommender.load(folder / "model")
    model.save(folder / "unliked", likes=False)
    for how in ("fit", "update"):
        assert "was saved without likes; give the DATA" in refit(folder, "--how", how, model="unliked").stderr
    post(store, ("new", "i1", "like"), ("new", "i3", "like"))
    assert refit(folder, model="unliked", data="likes.parquet")["swapped"]
    assert not Recommender.load(folder / "unliked").model_.users.knows_likes
    ages = {"user": GROUPS["user"], "age": np.arange(USERS) % 7 + 20.0}
    Recommender(**SETTINGS).fit(likes_table(), user_features=ages).save(folder / "aged")
    assert "the features of users are not in the model file" in refit(folder, model="aged").stderr
    assert refit(folder, "--how", "update", model="aged")["swapped"]
    edges = {"source": ["a", "b", "c"], "target": ["b", "c", "d"]}
    GraphRecommender(factors=2, sweeps=2, threads=1).fit(edges).save(folder / "graph")
    assert "is of a graph of vertices" in refit(folder, model="graph").stderr
    assert "leave these out" in refit(folder, "--how", "update", data="likes.parquet").stderr
    assert "on a disk of this machine" in refit(folder, model="s3://bucket/model").stderr
