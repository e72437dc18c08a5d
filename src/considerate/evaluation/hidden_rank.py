"""Strong generalisation in one number: hide a like of each user, fold in the others, and see where it is ranked."""

from __future__ import annotations

import numpy as np

from considerate.data.graph import Adjacency, Graph
from considerate.errors import DataError
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.scorer import ModelScorer
from considerate.evaluation.split import HeldOut
from considerate.model.model import Model

STREAM = 0x5C0E  # which like is hidden is drawn from this stream


def mean_hidden_rank(model: Model, liked: Adjacency, seed: int) -> float:
    """Mean S_rank (eq. 23) of one hidden like per user, at the model's own knob; users of one like are left out."""
    degrees = liked.degrees
    users = np.flatnonzero(degrees >= 2)
    if len(users) == 0:
        raise DataError("score needs at least one user with two likes: one to hide and one to fold in.")
    random = np.random.Generator(np.random.Philox(key=[seed, STREAM]))
    places = liked.starts[users] + (random.random(len(users)) * degrees[users]).astype(np.int64)
    keep = np.repeat(degrees >= 2, degrees)
    keep[places] = False
    starts = np.zeros(len(users) + 1, np.int64)
    np.cumsum(degrees[users] - 1, out=starts[1:])
    rest = Graph.from_adjacency(Adjacency(starts, np.ascontiguousarray(liked.indices[keep])), model.item_count)
    held = HeldOut(rest, np.arange(len(users), dtype=np.int64), liked.indices[places].astype(np.int64))
    scorer = ModelScorer(model, users=model.fold_in.users(rest.by_user))
    return float(held_ranks(scorer, held).scores.mean())
