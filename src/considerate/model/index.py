"""An index of the items for single requests: the items near a user, found without scoring all of them.

The score without lift is an inner product of [u, 1, popularity] with x_n = [v_n, b_n, log pi_n], so one index serves
any popularity weight. With y_n = [x_n, sqrt(M - |x_n|^2)], M the largest |x|^2, and q = [u, 1, popularity, 0],

    |q - y_n|^2 = |q|^2 + M - 2 q'x_n

the best items are the nearest. The y are cut into lists by k-means; a request looks into the lists whose centres are
nearest to q. What it finds there is ranked exactly, together with all that the user's likes lead to: the lift is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.errors import ModelFileError, UsageError
from considerate.model.model import Model
from considerate.storage.container import open_tensors, write_tensors
from considerate.storage.files import PathLike

KIND = "item index"  # in the description of the file
PROBES = 32
_ROUNDS, _SAMPLE = 10, 64  # of k-means, and items of the sample for each list
_BLOCK = 1 << 23  # distances that are made at once


@dataclass(frozen=True, eq=False)
class ItemIndex:
    """Lists of items that are near one another, and their centres. It is of one model: others are refused."""

    centres: NDArray[np.float32]  # [lists, K + 3]
    starts: NDArray[np.int64]  # [lists + 1]
    items: NDArray[np.int32]  # [items], by list
    digest: str  # of the model's items
    probes: int = PROBES  # lists that a request looks into

    def __post_init__(self) -> None:
        if isinstance(self.probes, bool) or not isinstance(self.probes, int | np.integer) or self.probes < 1:
            raise UsageError(f"probes is {self.probes!r}; it must be a whole number at least 1.")

    @classmethod
    def of(cls, model: Model, lists: int | None = None, probes: int = PROBES, seed: int = 0) -> ItemIndex:
        """The index of a model's items, in 4 sqrt(items) lists if not told otherwise."""
        count = min(round(4 * model.item_count**0.5), model.item_count) if lists is None else lists
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= model.item_count:
            raise UsageError(f"lists is {lists!r}; it must be a whole number from 1 to the {model.item_count} items.")
        places = _places(model)
        random = np.random.default_rng(seed)
        sample = places[np.sort(random.permutation(len(places))[: _SAMPLE * count])]
        centres = sample[np.sort(random.permutation(len(sample))[:count])]
        for _ in range(_ROUNDS):
            nearest = _nearest(sample, centres)
            often = np.bincount(nearest, minlength=count)
            order = np.argsort(nearest, kind="stable")
            first = np.cumsum(often) - often
            full = often > 0  # a list that nobody is in stays where it is
            sums = np.add.reduceat(sample[order], first[full], axis=0)
            centres[full] = sums / often[full, None]
        nearest = _nearest(places, centres)
        starts = np.append(0, np.cumsum(np.bincount(nearest, minlength=count)))
        return cls(centres, starts, np.argsort(nearest, kind="stable").astype(np.int32), model.items_digest, probes)

    def near(self, user: NDArray[Any], popularity: float) -> NDArray[np.int32]:
        """The items in the lists that are nearest to a user."""
        query = np.concatenate([user, [1.0, popularity, 0.0]]).astype(np.float32)
        closeness = self.centres @ query - 0.5 * np.einsum("ck,ck->c", self.centres, self.centres)
        probes = min(self.probes, len(closeness))
        best = np.argpartition(closeness, len(closeness) - probes)[len(closeness) - probes :]
        return np.concatenate([self.items[self.starts[i] : self.starts[i + 1]] for i in best])

    def save(self, path: PathLike) -> None:
        """Write it to a file of the form of a model's, whole or not at all."""
        tensors: dict[str, NDArray[Any]] = {"centres": self.centres, "starts": self.starts, "items": self.items}
        write_tensors(path, tensors, {"kind": KIND, "model": self.digest})

    @classmethod
    def load(cls, path: PathLike, model: Model, probes: int = PROBES) -> ItemIndex:
        """The index of a model from its file, verified; ModelFileError where it is of another model, or damaged."""
        stored = open_tensors(path, verify=True)
        if stored.metadata.get("kind") != KIND:
            raise ModelFileError(
                f"{stored.path}: is not an index of items; give a file that `considerate index` wrote."
            )
        digest = stored.metadata.get("model")
        if digest != model.items_digest:
            raise ModelFileError(f"{stored.path}: is the index of another model; make one with `considerate index`.")
        centres = stored.expect("centres", np.float32, [None, model.factors + 3])
        starts = stored.expect("starts", np.int64, [len(centres) + 1])
        items = stored.expect("items", np.int32, [model.item_count])
        divided = starts[0] == 0 and starts[-1] == len(items) and not np.any(starts[1:] < starts[:-1])
        if not divided or not np.array_equal(np.sort(items), np.arange(model.item_count)):
            raise stored.refusal("its lists do not hold each item once")
        return cls(centres, starts, items, digest, probes)


def _places(model: Model) -> NDArray[np.float32]:
    """y of every item: [items, K + 3]."""
    items = model.items
    places = np.empty((len(items), items.factors + 3), np.float32)
    places[:, :-3], places[:, -3], places[:, -2] = items.mean, items.biases[0], model.log_popularity
    squares = np.einsum("nk,nk->n", places[:, :-1], places[:, :-1])
    places[:, -1] = np.sqrt(squares.max(initial=0.0) - squares)
    return places


def _nearest(places: NDArray[np.float32], centres: NDArray[np.float32]) -> NDArray[np.int64]:
    """The centre that is nearest to each place."""
    half = 0.5 * np.einsum("ck,ck->c", centres, centres)
    size, nearest = max(1, _BLOCK // len(centres)), np.empty(len(places), np.int64)
    for first in range(0, len(places), size):
        closeness = places[first : first + size] @ centres.T
        closeness -= half
        nearest[first : first + size] = np.argmax(closeness, axis=1)
    return nearest
