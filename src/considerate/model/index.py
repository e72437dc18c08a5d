"""Index of the items for single requests: faiss finds the items near a user without scoring all of them.

The score without lift is an inner product of [u, 1, popularity] with x_n = [v_n, b_n, log pi_n], so one index serves
any popularity weight. With y_n = [x_n, sqrt(M - |x_n|^2)], M the largest |x|^2, and q = [u, 1, popularity, 0],

    |q - y_n|^2 = |q|^2 + M - 2 q'x_n

the best items are the nearest. faiss cuts the y into lists by k-means and searches the lists with centres nearest to q.
The items found are ranked exactly, together with all items that the user's likes lead to, so the lift is exact.
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
_ROUNDS, _SAMPLE = 10, 64  # rounds of k-means, and sampled items for each list


@dataclass(frozen=True, eq=False)
class ItemIndex:
    """Lists of items that are near one another, and their centres. An index belongs to one model; others refuse it."""

    centres: NDArray[np.float32]  # [lists, K + 3]
    lists: NDArray[np.int32]  # [items] the list that each item is in
    digest: str  # of the model's items
    inverted: Any  # faiss.IndexIVFFlat of these lists, with the y of the items
    probes: int = PROBES  # lists that a request searches

    def __post_init__(self) -> None:
        if isinstance(self.probes, bool) or not isinstance(self.probes, int | np.integer) or self.probes < 1:
            raise UsageError(f"probes is {self.probes!r}; it must be a whole number at least 1.")

    @classmethod
    def of(cls, model: Model, lists: int | None = None, probes: int = PROBES) -> ItemIndex:
        """Make the index of a model's items, in 4 sqrt(items) lists by default."""
        count = min(round(4 * model.item_count**0.5), model.item_count) if lists is None else lists
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 1 <= count <= model.item_count:
            raise UsageError(f"lists is {lists!r}; it must be a whole number from 1 to the {model.item_count} items.")
        faiss, places = _faiss(), item_places(model)
        sample = {"min_points_per_centroid": 1, "max_points_per_centroid": _SAMPLE}
        kmeans = faiss.Kmeans(places.shape[1], int(count), niter=_ROUNDS, **sample)
        kmeans.train(places)
        nearest = kmeans.index.search(places, 1)[1][:, 0]
        inverted = _inverted(kmeans.centroids, nearest, places)
        return cls(kmeans.centroids, nearest.astype(np.int32), model.items_digest, inverted, probes)

    def near(self, user: NDArray[Any], popularity: float, count: int) -> NDArray[np.int32]:
        """Find the `count` items nearest to a user in the nearest lists; fewer if these lists have fewer."""
        query = np.concatenate([user, [1.0, popularity, 0.0]]).astype(np.float32)
        how = _faiss().SearchParametersIVF(nprobe=min(int(self.probes), len(self.centres)))
        found = self.inverted.search(query[None], count, params=how)[1][0]
        return np.asarray(found[found >= 0], np.int32)

    def save(self, path: PathLike) -> None:
        """Write the index to a file in the format of model files, whole or not at all."""
        write_tensors(path, {"centres": self.centres, "lists": self.lists}, {"kind": KIND, "model": self.digest})

    @classmethod
    def load(cls, path: PathLike, model: Model, probes: int = PROBES) -> ItemIndex:
        """Load the index of a model and verify it; raise ModelFileError if it is damaged or of another model.

        The file has the lists alone. faiss reads no file: it gets the lists, and the vectors of the model.
        """
        stored = open_tensors(path, verify=True)
        if stored.metadata.get("kind") != KIND:
            raise ModelFileError(
                f"{stored.path}: is not an index of items; give a file that `considerate index` wrote."
            )
        digest = stored.metadata.get("model")
        if digest != model.items_digest:
            raise ModelFileError(f"{stored.path}: is the index of another model; make one with `considerate index`.")
        centres = stored.expect("centres", np.float32, [None, model.factors + 3])
        lists = stored.expect("lists", np.int32, [model.item_count])
        if not np.isfinite(centres).all() or np.any(lists < 0) or np.any(lists >= len(centres)):
            raise stored.refusal("its lists are not lists of its items")
        return cls(centres, lists, digest, _inverted(centres, lists, item_places(model)), probes)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise UsageError(
            "an index of items needs faiss, which is not installed: pip install considerate[ann]."
        ) from error
    return faiss


def item_places(model: Model) -> NDArray[np.float32]:
    """Points y of all items: [items, K + 3]."""
    items = model.items
    places = np.empty((len(items), items.factors + 3), np.float32)
    places[:, :-3], places[:, -3], places[:, -2] = items.mean, items.biases[0], model.log_popularity
    squares = np.einsum("nk,nk->n", places[:, :-1], places[:, :-1])
    places[:, -1] = np.sqrt(squares.max(initial=0.0) - squares)
    return places


def _inverted(centres: NDArray[np.float32], lists: NDArray[Any], places: NDArray[np.float32]) -> Any:
    """Make faiss's index, with each item in its list."""
    from faiss.contrib.ivf_tools import add_preassigned

    faiss = _faiss()
    quantizer = faiss.IndexFlatL2(places.shape[1])
    quantizer.add(np.ascontiguousarray(centres))
    index = faiss.IndexIVFFlat(quantizer, places.shape[1], len(centres), faiss.METRIC_L2)
    index.is_trained = True
    add_preassigned(index, places, lists.astype(np.int64))
    return index
