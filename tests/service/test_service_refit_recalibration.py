"""A refit of a recalibrated model: by the pairs that users judged since, or the old one, marked stale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from considerate import Recommender
from considerate.evaluation.recalibration import JudgedPairs, recalibrate
from considerate.service import refit as refit_module
from considerate.service.events import EventStore
from considerate.service.honesty import ENOUGH
from tests.helpers.refit_fixtures import ITEMS, USERS, folder, post, refit, store
from tests.helpers.shell import answer, run

__all__ = ["folder", "store"]  # pytest's fixtures


def recalibrated(folder: Path, equal_classes: bool = False) -> Recommender:
    """The model of the folder, recalibrated by pairs that people liked more where p(like) is high."""
    model = Recommender.load(folder / "model")
    users, items = np.divmod(np.random.default_rng(0).permutation(USERS * ITEMS)[:1500], ITEMS)
    p = model.predict_proba(users, items, by="row")
    liked = np.random.default_rng(1).random(1500) < special.expit(0.5 * special.logit(p) - 0.4)
    model.recalibrate(users, items, liked, equal_classes, by="row")
    model.save(folder / "model")
    return Recommender.load(folder / "model")


def judge(
    model: Recommender, store: EventStore, count: int, power: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Events of pairs that are no likes yet, as (users, items, liked): liked as the logit of p(like) says, times a
    power."""
    likes = model.model_.users.whole().liked
    open_keys = np.setdiff1d(np.arange(USERS * ITEMS), likes.edge_rows.astype(np.int64) * ITEMS + likes.indices)
    users, items = np.divmod(np.random.default_rng(2).permutation(open_keys)[:count], ITEMS)
    x = special.logit(model.predict_proba(users, items, recalibrated=False, by="row"))
    liked = np.random.default_rng(3).random(count) < special.expit(power * x)
    names = model.user_ids()[users], model.item_ids()[items]
    kinds = np.where(liked, "like", "considered")
    post(store, *((str(user), str(item), str(kind)) for user, item, kind in zip(*names, kinds)))
    return users, items, liked


@pytest.mark.parametrize("how", ["fit", "update"])
@pytest.mark.parametrize("equal_classes", [False, True])
def test_a_refit_recalibrates_by_the_pairs_judged_since(
    folder: Path, store: EventStore, how: str, equal_classes: bool
) -> None:
    """p(like) is the old model's: the new one was trained on some of these pairs."""
    old = recalibrated(folder, equal_classes)
    pairs = judge(old, store, ENOUGH + 60)
    assert refit(folder, "--how", how)["swapped"]
    new = Recommender.load(folder / "model").model_
    expected = recalibrate(JudgedPairs.of(old.model_, *pairs), equal_classes, old.model_.plan.seed)
    assert new.recalibration == expected.recalibration != old.recalibration_
    assert new.recalibration.pairs == ENOUGH + 60
    assert new.recalibration.equal_classes == equal_classes
    assert not new.recalibration.stale
    assert new.structure == expected.structure
    assert new.reliability == expected.reliability


def test_with_few_pairs_the_old_one_is_carried_and_stale(folder: Path, store: EventStore) -> None:
    old = recalibrated(folder)
    judge(old, store, ENOUGH - 1)
    assert refit(folder)["swapped"]
    new = Recommender.load(folder / "model").model_
    assert new.recalibration == replace(old.recalibration_, stale=True)
    assert (new.structure, new.reliability) == (old.model_.structure, old.reliability_)
    shown = " ".join(run("inspect", folder / "model").stdout.split())
    assert "stale, as the model was fitted anew since" in shown
    assert answer("inspect", folder / "model")["recalibration"]["stale"]
    users, items = np.arange(USERS), np.arange(USERS) % ITEMS
    raw = Recommender.load(folder / "model").predict_proba(users, items, recalibrated=False, by="row")
    assert not np.array_equal(raw, Recommender.load(folder / "model").predict_proba(users, items, by="row"))


@pytest.mark.parametrize("power", [-4.0, 1e9])
def test_pairs_that_cannot_be_fitted_stop_no_refit(folder: Path, store: EventStore, power: float) -> None:
    """Liked where p(like) is low, the old one is kept; told apart without error, the slope has its bound."""
    old = recalibrated(folder)
    judge(old, store, ENOUGH + 100, power)
    assert "swapped" in refit(folder)
    found = refit_module.with_recalibration(old.model_, old.model_, store).recalibration
    assert found.stale == (power < 0.0)


def test_a_model_that_is_not_recalibrated_stays_so(folder: Path, store: EventStore) -> None:
    judge(Recommender.load(folder / "model"), store, ENOUGH + 60)
    assert refit(folder)["swapped"]
    new = Recommender.load(folder / "model")
    assert new.recalibration_.changes_nothing
    assert new.reliability_ is None
