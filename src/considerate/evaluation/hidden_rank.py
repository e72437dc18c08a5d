"""Strong generalisation in one number: hide a like of each user, fold in the others, and see where it is ranked."""

from __future__ import annotations

import numpy as np

from considerate.data.graph import Adjacency, Graph
from considerate.errors import DataError
from considerate.evaluation.ranks import held_ranks
from considerate.evaluation.scorer import ModelScorer
from considerate.evaluation.split import one_per_user, only_users
from considerate.model.model import Model

STREAM = 0x5C0E  # which like is hidden is drawn from this stream


def mean_hidden_rank(model: Model, liked: Adjacency, seed: int) -> float:
    """Mean S_rank (eq. 23) of one hidden like per user, at the model's own knob; users of one like are left out."""
    users = np.flatnonzero(liked.degrees >= 2)
    if len(users) == 0:
        raise DataError("score needs at least one user with two likes: one to hide and one to fold in.")
    held = one_per_user(only_users(Graph.from_adjacency(liked, model.item_count), users), seed, STREAM)
    scorer = ModelScorer(model, users=model.fold_in.users(held.seen))
    return float(held_ranks(scorer, held).scores.mean())
