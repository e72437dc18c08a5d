"""Constraints on H by row: pairs that were considered and not liked, impossible pairs, and rules of such pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.graph import Adjacency
from considerate.errors import UsageError
from considerate.kernels import compiled

LISTS = ("considered", "impossible", "liked")  # fields of Known that list pairs
MOST_EXPANDED = 1 << 26  # most pairs that rules may forbid if each of them must be listed
ALWAYS = (-np.inf, np.inf)


@dataclass(frozen=True)
class Rules:
    """Rules that decide from the user and the item alone, in O(1), whether a pair is impossible.

    An item is for some classes of users. Users and items have times, and a pair is impossible if these do not overlap.
    A user or an item without a row is in class 0 and is always there.
    """

    user_class: NDArray[np.int32] | None = None  # [users]
    item_class: NDArray[np.int32] | None = None  # [items]
    allowed: NDArray[np.uint64] | None = None  # [user classes, words]: a bit for each class of items
    user_times: NDArray[np.float64] | None = None  # [users, 2] first and last moment
    item_times: NDArray[np.float64] | None = None  # [items, 2]

    def of_side(self, side: str) -> dict[str, NDArray[Any]]:
        """The arrays that have a row for each "user" or "item"."""
        arrays = {f"{side}_{kind}": getattr(self, f"{side}_{kind}") for kind in ("class", "times")}
        return {name: array for name, array in arrays.items() if array is not None}

    def between(self, first: int, last: int) -> Rules:
        """The rules of users first .. last - 1."""
        return replace(self, **{name: array[first:last] for name, array in self.of_side("user").items()})

    def take(self, rows: NDArray[np.int64], side: str = "user") -> Rules:
        """The rules of some users, or items; row -1 is one without a row."""
        unknown, changed = rows < 0, dict[str, NDArray[Any]]()
        for name, array in self.of_side(side).items():
            changed[name] = array[rows]
            changed[name][unknown] = 0 if array.ndim == 1 else ALWAYS
        return replace(self, **changed)

    def spread(self, users: int, items: int, kept_users: NDArray[Any] | None, kept_items: NDArray[Any] | None) -> Rules:
        """The rules among more users and items; old rows are now at `kept`, and new ones have no rules."""
        rules = self
        for side, count, kept in (("user", users, kept_users), ("item", items, kept_items)):
            if kept is not None:
                rows = np.full(count, -1)
                rows[kept] = np.arange(len(kept))
                rules = rules.take(rows, side)
        return rules

    def forbid(self, users: Any, items: Any) -> NDArray[np.bool_]:
        """[pairs] whether the rules forbid each pair; users and items are rows that are broadcast."""
        parts: list[NDArray[np.bool_]] = []
        if self.allowed is not None and self.user_class is not None and self.item_class is not None:
            word, bit = np.divmod(self.item_class[items], 64)
            parts.append((self.allowed[self.user_class[users], word] >> bit.astype(np.uint64)) & np.uint64(1) == 0)
        if self.user_times is not None and self.item_times is not None:
            (first, last), (begin, end) = self.user_times[users].T, self.item_times[items].T
            parts.append((begin > last) | (end < first))
        return np.asarray(np.logical_or.reduce(parts))

    def most_forbidden(self, drawn: NDArray[np.bool_]) -> NDArray[np.int64]:
        """[users] upper bound on the number of impossible items among those that may be drawn: the sum over rules."""
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
    """Constraints on H for some users, by row. The lists of a user are disjoint and hold no like."""

    considered: Adjacency | None = None  # h = 1 and g = 0
    impossible: Adjacency | None = None  # h = 0
    rules: Rules | None = None
    liked: Adjacency | None = None  # pairs given as impossible that are liked; they are possible as long as they are

    def between(self, first: int, last: int) -> Known:
        """The constraints of users first .. last - 1."""
        rules = None if self.rules is None else self.rules.between(first, last)
        return self._with_lists(lambda pairs: pairs.between(first, last), rules)

    def _with_lists(self, change: Callable[[Adjacency], Adjacency], rules: Rules | None) -> Known:
        """Change each list of pairs, and replace the rules."""
        lists = {name: getattr(self, name) for name in LISTS}
        return Known(rules=rules, **{name: None if pairs is None else change(pairs) for name, pairs in lists.items()})

    @classmethod
    def joined(cls, parts: Sequence[Known]) -> Known:
        """Concatenate the constraints of consecutive blocks of users."""
        lists: dict[str, Any] = {}
        for name in LISTS:
            given = [pairs for part in parts if (pairs := getattr(part, name)) is not None]
            lists[name] = Adjacency.joined(given) if given else None
        rules = [part.rules for part in parts if part.rules is not None]
        if not rules:
            return cls(**lists)
        users = {name: np.concatenate([getattr(one, name) for one in rules]) for name in rules[0].of_side("user")}
        return cls(**lists, rules=replace(rules[0], **users))

    def take(self, rows: NDArray[np.int64]) -> Known:
        """The constraints of some users; row -1 has none."""
        return self._with_lists(lambda pairs: pairs.take(rows), None if self.rules is None else self.rules.take(rows))

    def limits(self, items: int) -> Known | None:
        """The impossible pairs alone, with the liked ones among them; None if there are none."""
        if self.impossible is None and self.rules is None:
            return None
        impossible = self.impossible
        if impossible is not None and self.liked is not None and self.liked.edges:
            impossible = Adjacency.of_pairs(*_pairs([impossible, self.liked]), impossible.rows, items)
        return Known(None, impossible, self.rules)

    def without_likes(self, likes: Adjacency, items: int) -> Known:
        """Remove the likes of these users from the impossible pairs."""
        if self.impossible is None:
            return self
        return replace(self, impossible=self.impossible.without(likes, items))

    def impossible_items(self, user: int, items: int) -> NDArray[np.bool_]:
        """[items] whether each is impossible for a user."""
        mask = np.zeros(items, np.bool_)
        if self.rules is not None:
            mask |= self.rules.forbid(user, slice(None))
        if self.impossible is not None:
            mask[self.impossible.row(user)] = True
        return mask

    def are_impossible(self, users: NDArray[Any], items: NDArray[Any]) -> NDArray[np.bool_]:
        """[pairs] whether each is impossible."""
        found = np.zeros(len(users), np.bool_)
        if self.impossible is not None:
            found |= self.impossible.find(users, items)[1]
        if self.rules is not None:
            found |= self.rules.forbid(users, items)
        return found

    def spread(
        self, users: int, items: int, kept_users: NDArray[Any] | None = None, kept_items: NDArray[Any] | None = None
    ) -> Known:
        """The constraints among more users and items; old rows are now at `kept`, and new ones have none."""
        impossible, rules = self.impossible, self.rules
        if impossible is not None:
            rows = impossible.edge_rows if kept_users is None else kept_users[impossible.edge_rows]
            columns = impossible.indices if kept_items is None else kept_items[impossible.indices]
            impossible = Adjacency.of_pairs(rows, columns, users, items)
        return Known(
            self.considered, impossible, None if rules is None else rules.spread(users, items, kept_users, kept_items)
        )

    def wanted(self, degrees: NDArray[np.int64], negatives: float) -> NDArray[np.float64]:
        """[users] number of unliked edges to draw: c d_m less the known ones, at least 0."""
        known = 0 if self.considered is None else self.considered.degrees
        return np.asarray(np.maximum(negatives * degrees - known, 0.0))

    def user_offset(self, degrees: NDArray[np.int64], negatives: float) -> NDArray[np.float32] | None:
        """[users] correction of the offset -log c for users with more than c d_m known edges, so that it is
        -log(known / d_m). A user without a like counts as one with one. None if there is no such user."""
        if self.considered is None:
            return None
        ratio = self.considered.degrees / (negatives * np.maximum(degrees, 1))
        return -np.log(np.maximum(ratio, 1.0)).astype(np.float32) if (ratio > 1.0).any() else None

    def closed(self, likes: Adjacency, items: int) -> Adjacency:
        """The pairs that are never drawn: likes and known pairs."""
        lists = [likes, *(pairs for pairs in (self.considered, self.impossible) if pairs is not None)]
        return Adjacency.of_pairs(*_pairs(lists), likes.rows, items)

    def edges(self) -> Adjacency | None:
        """The edges that a closed form must list: known ones with weight 1, impossible ones with weight 0."""
        if self.impossible is None:
            return self.considered
        weights = np.zeros(self.impossible.edges, np.float32)
        if self.considered is None:
            return replace(self.impossible, weights=weights)
        rows, items = _pairs([self.considered, self.impossible])
        weights = np.concatenate([np.ones(self.considered.edges, np.float32), weights])
        order = np.lexsort((items, rows))
        return Adjacency(self.considered.starts + self.impossible.starts, items[order], weights[order])

    def expanded(self, likes: Adjacency) -> Known:
        """List the pairs that the rules forbid as impossible pairs; UsageError if these are too many."""
        if self.rules is None:
            return self
        rows, total = [], 0
        for user in range(likes.rows):
            forbidden = self.rules.forbid(user, slice(None))
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
        """The constraints in the form that the compiled draws read."""
        considered = None if self.considered is None else self.considered.for_kernels()
        impossible = None if self.impossible is None else self.impossible.for_kernels()
        rules = None
        if self.rules is not None:
            rules = compiled.Rules(self.rules.most_forbidden(weights > 0), len(weights), **vars(self.rules))
        return compiled.Known(users, len(weights), considered, impossible, rules)


def _pairs(lists: Sequence[Adjacency]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """(rows, indices) of the edges of several lists."""
    rows = np.concatenate([np.repeat(np.arange(pairs.rows, dtype=np.int32), pairs.degrees) for pairs in lists])
    return rows, np.concatenate([pairs.indices for pairs in lists])
