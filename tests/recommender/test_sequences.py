"""Sequences of changes to a model against an oracle: a few lines of plain Python that say what must be true after each.

`make test` runs a few sequences, `make test-long` 2,000 of them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from considerate import Recommender
from considerate.data.graph import transpose
from considerate.errors import ConsiderateError, DataError, UsageError
from considerate.inference.hidden import Consideration
from considerate.service.events import EventStore, NewEvent
from considerate.service.metrics import Metrics
from considerate.service.refit import Refit
from tests.helpers.randomised import LONG, examples

USERS, ITEMS = 14, 9  # of whom there may be
Pairs = set[tuple[int, int]]
few_users = st.lists(st.integers(0, USERS - 1), min_size=1, max_size=3, unique=True)
few_items = st.lists(st.integers(0, ITEMS - 1), max_size=4, unique=True)
some_pairs = st.lists(st.tuples(st.integers(0, USERS - 1), st.integers(0, ITEMS - 1)), min_size=1, max_size=5)


class Changes(RuleBasedStateMachine):
    """A model, and what must be true of it. Users and items are numbers here, and are named when the model is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="considerate-sequences-"))
        self.store: EventStore | None = None

    def teardown(self) -> None:
        if self.store is not None:
            self.store.close()
        shutil.rmtree(self.folder)

    # --- Names ---

    def user(self, number: int) -> Any:
        return f"user-{number:04d}-of-the-sequence" if self.texts else 0x5EC12E7B00000000 + 7 * number

    def item(self, number: int) -> Any:
        return f"i{number}" if self.texts else 100 + number

    def table(self, pairs: Iterable[tuple[int, int]]) -> dict[str, list[Any]]:
        pairs = sorted(pairs)
        return {"user": [self.user(u) for u, _ in pairs], "item": [self.item(i) for _, i in pairs]}

    # --- Rules ---

    @initialize(
        texts=st.booleans(),
        walk=st.booleans(),
        features=st.booleans(),
        titled=st.booleans(),
        liked=st.sets(st.tuples(st.integers(0, 9), st.integers(0, 6)), min_size=6, max_size=30),
        impossible=st.sets(st.tuples(st.integers(0, 9), st.integers(0, 6)), max_size=6),
    )
    def fit(self, texts: bool, walk: bool, features: bool, titled: bool, liked: Pairs, impossible: Pairs) -> None:
        liked |= {(0, 0), (1, 1), (2, 2), (2, 3)}  # two items of each kind, which makes it a feature
        self.texts, self.featured = texts, features
        self.likes: dict[int, set[int]] = {u: {i for v, i in liked if v == u} for u in {u for u, _ in liked}}
        self.items, self.cold = {i for _, i in liked}, set[int]()
        self.impossible = {(u, i) for u, i in impossible if u in self.likes and i in self.items}
        self.titles = {i: f"Title {i}" for i in self.items if titled and i % 3}
        more: dict[str, Any] = {"impossible": self.table(self.impossible)} if self.impossible else {}
        if features:
            more["item_features"] = self.features_of(self.items)
        if self.titles:
            more["titles"] = {self.item(i): title for i, title in self.titles.items()}
        self.kinds = {i % 2 for i in self.items}  # an item of another has no feature that the fit knows
        kind = "walk" if walk else "popularity"
        settings: dict[str, Any] = {"factors": 2, "sweeps": 2, "opening": 1, "threads": 1, "consideration": kind}
        self.model = Recommender(**settings).fit(self.table(liked), **more)
        self.forgotten, self.learned = set[int](), set[int]()
        self.is_table_new = True

    def features_of(self, items: Iterable[int]) -> dict[str, list[Any]]:
        items = sorted(items)
        return {"item": [self.item(i) for i in items], "kind": [f"k{i % 2}" for i in items]}

    def changed(self, likes: dict[int, set[int]], change: Callable[[], Any]) -> bool:
        """Change the model; where no like would be left it must refuse, and stay as it is."""
        if any(likes.values()):
            change()
            self.likes, self.is_table_new = likes, False
            self.cold -= {i for liked in likes.values() for i in liked}
            self.forgotten -= likes.keys()
            return True
        with pytest.raises(DataError, match="no like would be left"):
            change()
        return False

    @rule(users=few_users, lists=st.lists(few_items, min_size=3, max_size=3))
    def partial_fit_users(self, users: list[int], lists: list[list[int]]) -> None:
        rows = [[i for i in liked if i in self.items] for liked in lists[: len(users)]]
        likes = self.likes | {u: set(liked) for u, liked in zip(users, rows)}
        named = [[self.item(i) for i in liked] for liked in rows]
        self.changed(likes, lambda: self.model.partial_fit_users([self.user(u) for u in users], named))

    @rule(items=few_items.filter(bool), fans=st.lists(few_users, min_size=4, max_size=4))
    def partial_fit_items(self, items: list[int], fans: list[list[int]]) -> None:
        rows = [[u for u in liked_by if u in self.likes] for liked_by in fans[: len(items)]]
        likes = {u: liked - set(items) for u, liked in self.likes.items()}
        for i, liked_by in zip(items, rows):
            for u in liked_by:
                likes[u] |= {i}
        named = [[self.user(u) for u in liked_by] for liked_by in rows]
        if self.changed(likes, lambda: self.model.partial_fit_items([self.item(i) for i in items], named)):
            self.items |= set(items)
            self.cold -= set(items)
            self.is_table_new = True

    @precondition(lambda self: self.featured)
    @rule(items=few_items.filter(bool), titled=st.booleans())
    def add_items(self, items: list[int], titled: bool) -> None:
        added = {i for i in items if not any(i in liked for liked in self.likes.values()) and i % 2 in self.kinds}
        titles = {self.item(i): f"Added {i}" for i in items} if titled else None
        self.model.add_items(self.features_of(items), titles=titles)
        self.items |= added
        self.cold |= added
        if titled:
            self.titles |= {i: f"Added {i}" for i in added}

    @rule(pairs=some_pairs, titled=st.booleans())
    def update(self, pairs: list[tuple[int, int]], titled: bool) -> None:
        new = {i for _, i in pairs} - self.items
        titles = {"titles": {self.item(i): f"Updated {i}" for _, i in pairs}} if titled else {}
        likes = {u: set(liked) for u, liked in self.likes.items()}
        for u, i in pairs:
            likes.setdefault(u, set()).add(i)

        learns = likes != self.likes

        def change() -> None:
            self.model.update(self.table(set(pairs)), days=1.0, **titles)

        if self.featured and (new or len(self.model.model_.cold_items)):
            with pytest.raises(UsageError, match="an update does not know of items without likes"):
                change()
            return
        self.changed(likes, change)
        self.items |= new
        if titled and learns:  # else the model is the same
            self.titles = {i: f"Updated {i}" for _, i in pairs} | self.titles

    @rule(pairs=some_pairs, some=st.data())
    def remove(self, pairs: list[tuple[int, int]], some: st.DataObject) -> None:
        known = sorted((u, i) for u, liked in self.likes.items() for i in liked)
        pairs = [*pairs, *some.draw(st.lists(st.sampled_from(known), max_size=3))]
        likes = {u: liked - {i for v, i in pairs if v == u} for u, liked in self.likes.items()}
        if likes != self.likes:
            self.changed(likes, lambda: self.model.update(None, removed=self.table(set(pairs))))
        else:
            self.model.update(None, removed=self.table(set(pairs)))

    @rule(some=st.data())
    def forget(self, some: st.DataObject) -> None:
        users = some.draw(st.lists(st.sampled_from(sorted(self.likes)), min_size=1, max_size=3, unique=True))
        likes = {u: liked for u, liked in self.likes.items() if u not in users}
        if self.changed(likes, lambda: self.model.forget([self.user(u) for u in users])):
            self.forgotten |= set(users)
            self.impossible = {(u, i) for u, i in self.impossible if u not in users}

    @rule(shards=st.sampled_from([None, 1, 3]), verify=st.sampled_from([None, True]))
    def save_and_load(self, shards: int | None, verify: bool | None) -> None:
        path = self.folder / ("model" if shards is None else "shards")
        self.model.save(path, shards=None if shards is None else min(shards, len(self.likes)))
        again = Recommender.load(path, verify=verify)
        asked: dict[str, Any] = {"N": ITEMS, "filter_already_liked_items": False}
        assert again.recommend_table(**asked).equals(self.model.recommend_table(**asked))
        self.check_bytes(path)
        self.model = again

    def check_bytes(self, path: Path) -> None:
        """Nothing of who was forgotten is in the files."""
        files = [path] if path.is_file() else list(path.iterdir())
        content = b"".join(file.read_bytes() for file in files)
        for user in map(self.user, self.forgotten):
            assert (user.encode() if self.texts else user.to_bytes(8, "little")) not in content

    @rule(
        how=st.sampled_from(["fit", "update"]), pairs=some_pairs, kinds=st.lists(st.booleans(), min_size=5, max_size=5)
    )
    def refit(self, how: str, pairs: list[tuple[int, int]], kinds: tuple[bool, ...]) -> None:
        """Likes and unlikes as events, then a refit. It holds out the latest new like of some users."""
        path = self.folder / "refitted"
        self.model.save(path)
        if self.store is None:
            self.store = EventStore(str(self.folder / "events.db"), Metrics())
        before = {u: set(liked) for u, liked in self.likes.items()}
        ended = Event()
        events = [(*pair, "like" if kind else "unlike") for pair, kind in zip(pairs, kinds)]
        named = [NewEvent(str(self.user(u)), str(self.item(i)), kind, None) for u, i, kind in events]
        self.store.append(named, lambda *_: ended.set())
        assert ended.wait(60)
        self.events: list[tuple[int, int, str]] = [*getattr(self, "events", []), *events]
        try:
            result = Refit(str(path), self.store, how).run()
        except ConsiderateError:  # too few likes for a fit, or an update of a model with features
            return
        if not result.swapped:
            return
        likes = self.after_events(before)
        self.model = Recommender.load(path, verify=True)
        found = self.pairs()
        wanted = {(u, i) for u, liked in likes.items() for i in liked}
        assert found <= wanted
        held = wanted - found
        assert len(held) <= result.judged
        assert len({u for u, _ in held}) == len(held)
        users = {self.number(name) for name in self.model.user_ids().tolist()}
        assert {u for u, _ in found} <= users <= likes.keys() | self.likes.keys()
        self.likes = {u: {i for v, i in found if v == u} for u in users}
        self.adopt_items(how)
        self.forgotten -= users
        self.is_table_new = False

    def after_events(self, before: dict[int, set[int]]) -> dict[int, set[int]]:
        """The likes after all events: the last event of a pair says whether it is liked."""
        likes = {u: set(liked) for u, liked in before.items()}
        for u, i, kind in self.events:
            (set.add if kind == "like" else set.discard)(likes.setdefault(u, set()), i)
        return likes

    def adopt_items(self, how: str) -> None:
        """Take over the items of a refit: a fit leaves out those that nobody likes, or predicts them from features."""
        found = {self.item_number(name) for name in self.model.item_ids().tolist()}
        liked = {i for liked in self.likes.values() for i in liked}
        assert liked <= found <= self.items | {i for _, i, _ in self.events}
        self.items, self.cold = found, found - liked if how == "fit" else self.cold & found - liked
        users = self.likes.keys()
        # a fit does not read what is impossible of items without likes, which come back by their features
        self.impossible = {(u, i) for u, i in self.impossible if u in users and i in found - self.cold}
        self.titles = {i: title for i, title in self.titles.items() if i in found}
        if (features := self.model.model_.item_features) is not None:
            self.kinds = {kind for kind in self.kinds if any(f"k{kind}" in name for name in features.names)}

    # --- What must be true ---

    def number(self, name: Any) -> int:
        return int(name.split("-")[1]) if self.texts else (name - 0x5EC12E7B00000000) // 7

    def item_number(self, name: Any) -> int:
        return int(name[1:]) if self.texts else name - 100

    def pairs(self) -> Pairs:
        """The model's likes."""
        users = self.model.model_.users.whole()
        names = users.ids.ids_of(users.liked.edge_rows), self.model.model_.item_ids.ids_of(users.liked.indices)
        return {(self.number(user), self.item_number(item)) for user, item in zip(*names)}

    @invariant()
    def ids_and_likes(self) -> None:
        assert self.model.user_ids().tolist() == sorted(map(self.user, self.likes))
        assert self.model.item_ids().tolist() == sorted(map(self.item, self.items))
        assert self.pairs() == {(u, i) for u, liked in self.likes.items() for i in liked}

    @invariant()
    def degrees_and_popularity(self) -> None:
        model = self.model.model_
        assert model.users.whole().degree.tolist() == [len(self.likes[u]) for u in sorted(self.likes)]
        degrees = [sum(i in liked for liked in self.likes.values()) for i in sorted(self.items)]
        assert model.item_degree.tolist() == degrees
        for i, degree, pi in zip(sorted(self.items), degrees, model.popularity.tolist()):
            if i in self.cold:
                assert pi > 0
            else:
                assert pi == pytest.approx(degree**model.gamma if degree else 0.0, rel=1e-12)

    @invariant()
    def titles_stay(self) -> None:
        wanted = [self.titles.get(i, str(self.item(i))) for i in sorted(self.items)]
        assert self.model.titles([self.item(i) for i in sorted(self.items)]) == wanted

    @invariant()
    def the_walk_leads_where_likes_do(self) -> None:
        """An entry of the table is a step by someone who likes both items, and each row adds up to one."""
        model = self.model.model_
        walk = model.consideration
        if walk is None:
            return
        numbers = sorted(self.items)
        for row, i in enumerate(numbers):
            to, shares = walk.row(row)
            assert float(shares.sum()) + float(walk.rest[row]) == pytest.approx(1.0, abs=1e-4)
            reached = {k for liked in self.likes.values() if i in liked for k in liked}
            assert {numbers[k] for k in to.tolist()} <= reached
        if self.is_table_new:
            liked = model.users.whole().liked
            arguments = liked, transpose(liked, len(numbers)), walk.weights, model.plan.neighbours, walk.mix
            fresh = Consideration.of_graph(*arguments)
            for name in ("starts", "items", "shares", "rest"):
                np.testing.assert_array_equal(getattr(walk, name), getattr(fresh, name))

    @invariant()
    def what_is_liked_or_impossible_is_not_recommended(self) -> None:
        table = self.model.recommend_table(N=ITEMS).to_pydict()
        for user, item in zip(table["user"], table["item"]):
            u, i = self.number(user), self.item_number(item)
            assert i not in self.likes[u]
            assert (u, i) not in self.impossible
        limits = self.model.model_.limits
        if limits is not None and limits.impossible is not None:
            pairs, users, items = limits.impossible, sorted(self.likes), sorted(self.items)
            found = {(users[u], items[i]) for u, i in zip(pairs.edge_rows, pairs.indices)}
            assert found == self.impossible
        else:
            assert not self.impossible


TestSequences = pytest.mark.filterwarnings("ignore::UserWarning")(
    Changes.TestCase
)  # of few rows, and of pairs left out
TestSequences.settings = settings(
    examples(2_000, stateful_step_count=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]),
    max_examples=2_000 if LONG else 20,
    phases=[Phase.explicit, Phase.generate],  # a failure is shown as it is: to shrink one takes minutes
)
