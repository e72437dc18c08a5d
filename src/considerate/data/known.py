"""What is known of H beside the likes, by row: pairs that were considered and not liked, pairs that are impossible, and
rules of what is impossible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.errors import UsageError
from considerate.kernels import compiled

LISTS = ("considered", "impossible", "liked")  # of pairs
MOST_EXPANDED = 1 << 26  # impossible pairs that rules may stand for where they must be written out


@dataclass(frozen=True)
class Rules:
    """Which pairs are impossible, told from the user and the item alone: O(1) for a pair.

    An item is for some classes of users. Users and items have times, and a pair is impossible where these do not meet.
    """

    user_class: NDArray[np.int32] | None = None  # [users]
    item_class: NDArray[np.int32] | None = None  # [items]
    allowed: NDArray[np.uint64] | None = None  # [user classes, words]: a bit for each class of items
    user_times: NDArray[np.float64] | None = None  # [users, 2] the first and the last moment
    item_times: NDArray[np.float64] | None = None  # [items, 2]

    def between(self, first: int, last: int) -> Rules:
        """The rules of users first .. last - 1."""
        return self._of(slice(first, last))

    def take(self, rows: NDArray[np.int64]) -> Rules:
        """The rules of some users; row -1 is someone in no group who is always there."""
        some = self._of(rows)
        if some.user_class is not None:
            some = replace(some, user_class=np.where(rows < 0, 0, some.user_class).astype(np.int32))
        if some.user_times is not None:
            some = replace(some, user_times=np.where(rows[:, None] < 0, [-np.inf, np.inf], some.user_times))
        return some

    def take_items(self, rows: NDArray[np.int64]) -> Rules:
        """The rules of some items; row -1 is one for everyone that is always there."""
        changed: dict[str, Any] = {}
        if self.item_class is not None:
            changed["item_class"] = np.where(rows < 0, 0, self.item_class[rows]).astype(np.int32)
        if self.item_times is not None:
            changed["item_times"] = np.where(rows[:, None] < 0, [-np.inf, np.inf], self.item_times[rows])
        return replace(self, **changed)

    def _of(self, rows: Any) -> Rules:
        users = {name: getattr(self, name) for name in ("user_class", "user_times")}
        return replace(self, **{name: array[rows] for name, array in users.items() if array is not None})

    def spread(self, users: int, items: int, kept_users: NDArray[Any] | None, kept_items: NDArray[Any] | None) -> Rules:
        """Among more users and items: new items are for everyone, new users are in no group, both are always there."""
        kept = {"user": (users, kept_users), "item": (items, kept_items)}
        changed: dict[str, Any] = {}
        for name in ("user_class", "item_class", "user_times", "item_times"):
            rows, places = kept[name[:4]]
            if (old := getattr(self, name)) is not None and places is not None:
                new = np.zeros(rows, np.int32) if name.endswith("class") else np.tile([-np.inf, np.inf], (rows, 1))
                new[places] = old
                changed[name] = new
        return replace(self, **changed)

    def forbidden(self, user: int) -> NDArray[np.bool_]:
        """[items] whether each is impossible for a user."""
        parts = []
        if self.allowed is not None and self.user_class is not None and self.item_class is not None:
            bits = np.unpackbits(self.allowed[self.user_class[user]].view(np.uint8), bitorder="little")
            parts.append(bits[self.item_class] == 0)
        if self.user_times is not None and self.item_times is not None:
            first, last = self.user_times[user]
            parts.append((self.item_times[:, 0] > last) | (self.item_times[:, 1] < first))
        return np.asarray(np.logical_or.reduce(parts))

    def most_forbidden(self, drawn: NDArray[np.bool_]) -> NDArray[np.int64]:
        """[users] how many of the items that may be drawn are impossible, at most: those of either rule, added up."""
        users = next(len(rows) for rows in (self.user_class, self.user_times) if rows is not None)
        most = np.zeros(users, np.int64)
        if self.allowed is not None and self.user_class is not None and self.item_class is not None:
            bits = np.unpackbits(self.allowed.view(np.uint8), axis=1, bitorder="little")
            sizes = np.bincount(self.item_class[drawn], minlength=bits.shape[1])
            most += ((1 - bits.astype(np.int64)) @ sizes)[self.user_class]
        if self.user_times is not None and self.item_times is not None:
            begin, end = np.sort(self.item_times[drawn], axis=0).T
            most += len(begin) - np.searchsorted(begin, self.user_times[:, 1], side="right")
            most += np.searchsorted(end, self.user_times[:, 0], side="left")
        return most


@dataclass(frozen=True)
class Known:
    """What is known of h for some users, by their rows; the lists of a user do not overlap, and hold no like."""

    considered: Adjacency | None = None  # h = 1 and g = 0
    impossible: Adjacency | None = None  # h = 0
    rules: Rules | None = None
    liked: Adjacency | None = None  # pairs that are said to be impossible and are liked: possible while they are

    def between(self, first: int, last: int) -> Known:
        """What is known of users first .. last - 1."""
        rules = None if self.rules is None else self.rules.between(first, last)
        return self._with_lists(lambda pairs: pairs.between(first, last), rules)

    def _with_lists(self, change: Callable[[Adjacency], Adjacency], rules: Rules | None) -> Known:
        """A copy with other lists of pairs and other rules."""
        lists = {name: getattr(self, name) for name in LISTS}
        return Known(rules=rules, **{name: None if pairs is None else change(pairs) for name, pairs in lists.items()})

    @classmethod
    def joined(cls, parts: Sequence[Known]) -> Known:
        """What is known of consecutive users, from what is of some of them each."""
        lists: dict[str, Any] = {}
        for name in LISTS:
            given = [pairs for part in parts if (pairs := getattr(part, name)) is not None]
            lists[name] = Adjacency.joined(given) if given else None
        rules = [part.rules for part in parts if part.rules is not None]
        users = {name: [getattr(one, name) for one in rules] for name in ("user_class", "user_times")}
        own = {name: np.concatenate(arrays) for name, arrays in users.items() if arrays and arrays[0] is not None}
        return cls(**lists, rules=replace(rules[0], **own) if rules else None)

    def take(self, rows: NDArray[np.int64]) -> Known:
        """What is known of some users; row -1 is someone of whom nothing is."""
        return self._with_lists(lambda pairs: pairs.take(rows), None if self.rules is None else self.rules.take(rows))

    def limits(self, items: int) -> Known | None:
        """The impossible pairs alone, liked ones among them; None where there are none."""
        if self.impossible is None and self.rules is None:
            return None
        impossible = self.impossible
        if impossible is not None and self.liked is not None and self.liked.edges:
            rows, columns = (
                np.concatenate([getattr(pairs, name) for pairs in (impossible, self.liked)])
                for name in ("edge_rows", "indices")
            )
            impossible = Adjacency.of_pairs(rows, columns, impossible.rows, items)
        return Known(None, impossible, self.rules)

    def without_likes(self, likes: Adjacency, items: int) -> Known:
        """A copy for users with these likes: a like is a like whatever else is said of its pair."""
        if self.impossible is None:
            return self
        return replace(self, impossible=self.impossible.without(likes, items))

    def impossible_items(self, user: int, items: int) -> NDArray[np.bool_]:
        """[items] whether each is impossible for a user."""
        mask = np.zeros(items, np.bool_) if self.rules is None else self.rules.forbidden(user)
        if self.impossible is not None:
            mask[self.impossible.row(user)] = True
        return mask

    def are_impossible(self, users: NDArray[Any], items: NDArray[Any]) -> NDArray[np.bool_]:
        """[pairs] whether each is impossible."""
        found = np.zeros(len(users), np.bool_)
        if self.impossible is not None:
            found |= self.impossible.find(users, items)[1]
        rules = self.rules or Rules()
        if rules.allowed is not None and rules.user_class is not None and rules.item_class is not None:
            word, bit = np.divmod(rules.item_class[items], 64)
            found |= (rules.allowed[rules.user_class[users], word] >> bit.astype(np.uint64)) & np.uint64(1) == 0
        if rules.user_times is not None and rules.item_times is not None:
            (first, last), (begin, end) = rules.user_times[users].T, rules.item_times[items].T
            found |= (begin > last) | (end < first)
        return found

    def spread(
        self, users: int, items: int, kept_users: NDArray[Any] | None = None, kept_items: NDArray[Any] | None = None
    ) -> Known:
        """The same among more users and items, where old rows are now at `kept`; of new ones nothing is impossible."""
        impossible, rules = self.impossible, self.rules
        if impossible is not None:
            rows = impossible.edge_rows if kept_users is None else kept_users[impossible.edge_rows]
            columns = impossible.indices if kept_items is None else kept_items[impossible.indices]
            impossible = Adjacency.of_pairs(rows, columns, users, items)
        return Known(
            self.considered, impossible, None if rules is None else rules.spread(users, items, kept_users, kept_items)
        )

    def wanted(self, degrees: NDArray[np.int64], negatives: float) -> NDArray[np.float64]:
        """[users] unliked edges that are not known: those to c d_m, none where more are known."""
        known = 0 if self.considered is None else self.considered.degrees
        return np.asarray(np.maximum(negatives * degrees - known, 0.0))

    def user_offset(self, degrees: NDArray[np.int64], negatives: float) -> NDArray[np.float32] | None:
        """[users] what the logit of users of whom more than c d_m are known has beside -log c: -log(known / d_m) in
        all. A user without a like counts as one with one. None where there is no such user."""
        if self.considered is None:
            return None
        ratio = self.considered.degrees / (negatives * np.maximum(degrees, 1))
        return -np.log(np.maximum(ratio, 1.0)).astype(np.float32) if (ratio > 1.0).any() else None

    def closed(self, likes: Adjacency, items: int) -> Adjacency:
        """All that is never drawn: likes, and the pairs that are known."""
        lists = [likes, *(pairs for pairs in (self.considered, self.impossible) if pairs is not None)]
        rows = np.concatenate([np.repeat(np.arange(pairs.rows, dtype=np.int32), pairs.degrees) for pairs in lists])
        return Adjacency.of_pairs(rows, np.concatenate([pairs.indices for pairs in lists]), likes.rows, items)

    def edges(self) -> Adjacency | None:
        """The edges that closed forms must have of their own: those known, of weight 1, and the impossible, of 0."""
        if self.impossible is None:
            return self.considered
        weights = np.zeros(self.impossible.edges, np.float32)
        if self.considered is None:
            return replace(self.impossible, weights=weights)
        lists = self.considered, self.impossible
        rows = np.concatenate([pairs.edge_rows for pairs in lists])
        items = np.concatenate([pairs.indices for pairs in lists])
        weights = np.concatenate([np.ones(self.considered.edges, np.float32), weights])
        order = np.lexsort((items, rows))
        return Adjacency(self.considered.starts + self.impossible.starts, items[order], weights[order])

    def expanded(self, likes: Adjacency) -> Known:
        """The same with the rules written out as impossible pairs; UsageError where these are too many."""
        if self.rules is None:
            return self
        rows, total = [], 0
        for user in range(likes.rows):
            forbidden = self.rules.forbidden(user)
            if self.impossible is not None:
                forbidden[self.impossible.row(user)] = True
            for pairs in (likes, self.considered):
                if pairs is not None:
                    forbidden[pairs.row(user)] = False
            rows.append(np.flatnonzero(forbidden).astype(np.int32))
            total += len(rows[-1])
            if total > MOST_EXPANDED:
                raise UsageError(
                    f"the rules forbid more than {MOST_EXPANDED:,} pairs, and sweeps in closed form need each of them; "
                    "draw H from the first sweep on: opening=0, with hidden='sampled'."
                )
        return Known(self.considered, Adjacency.of_rows(rows))

    def for_draws(self, users: int, weights: NDArray[np.float64]) -> compiled.Known:
        """The form that draws read."""
        arguments: dict[str, Any] = {"users": users, "items": len(weights)}
        for name in ("considered", "impossible"):
            if (pairs := getattr(self, name)) is not None:
                arguments |= {f"{name}_starts": pairs.starts, name: pairs.indices}
        if self.rules is not None:
            arguments |= {name: array for name, array in vars(self.rules).items() if array is not None}
            arguments["most"] = self.rules.most_forbidden(weights > 0)
            arguments["user_classes"] = 0 if self.rules.allowed is None else len(self.rules.allowed)
        return compiled.Known(**arguments)
