"""Whether p(like) is honest, by what users did after the model was trained: judged pairs whose answer is known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from considerate import Recommender
from considerate.evaluation.calibration import reliability_bins
from considerate.model.file import save_model
from considerate.model.liking import like_probability
from considerate.model.model import LearnedEvents
from considerate.model.predict import logit_moments
from considerate.service import honesty
from considerate.service.events import EventStore, NewEvent
from considerate.service.honesty import Honesty, said_and_seen
from considerate.service.metrics import Metrics
from considerate.service.state import ServedModel
from tests.helpers.service_fixtures import fitted, item_name, running, user_name


@pytest.fixture(scope="module")
def model() -> Recommender:
    return fitted()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    events = EventStore(str(tmp_path / "events.db"), Metrics())
    yield events
    events.close()


def add(store: EventStore, *events: tuple[str, str, str]) -> None:
    """Store events of (user, item, kind), in this order."""
    done = Event()
    store.append([NewEvent(*event, None) for event in events], lambda _, error: done.set())
    assert done.wait(60)


def unliked(model: Recommender, user: str, count: int) -> list[str]:
    """Items that a user did not like in training."""
    liked = model.model_.users.whole().liked.row(int(model.model_.user_names().rows(user)))
    return [item_name(row) for row in range(40) if model.model_.item_names().rows(item_name(row)) not in liked][:count]


def said(model: Recommender, user: str, items: list[str]) -> list[float]:
    return [float(model.predict_proba(user, item)) for item in items]


Judged = list[tuple[Any, bool]]  # (p(like), whether it was liked), in the order of p


def judged(model: Recommender, store: EventStore) -> Judged:
    """All judged pairs."""
    p, liked = said_and_seen(ServedModel(model.model_, "digest"), store)
    return sorted(zip(p.tolist(), liked.tolist()))


def expected(model: Recommender, *pairs: tuple[str, list[str], list[bool]]) -> Judged:
    """Pairs of (user, items, liked), with p(like) to the accuracy of float32."""
    found = sorted(one for user, items, liked in pairs for one in zip(said(model, user, items), liked))
    return [(pytest.approx(p, abs=5e-7), is_liked) for p, is_liked in found]


def test_who_took_what_they_considered(model: Recommender, store: EventStore, tmp_path: Path) -> None:
    items = unliked(model, "u20", 6)
    trained = next(item_name(row) for row in range(40) if item_name(row) not in unliked(model, "u20", 40))
    add(
        store,
        ("u20", items[0], "like"),
        ("u20", items[1], "considered"),
        ("u20", items[2], "considered"),
        ("u20", items[2], "like"),  # taken in the end
        ("u20", items[3], "like"),
        ("u20", items[3], "unlike"),  # and given back
        ("u20", items[4], "unlike"),  # says nothing of what was considered
        ("u20", trained, "like"),  # the model has been told
        ("u20", "unheard of", "like"),
        ("u20", items[1], "considered"),  # once more
    )
    own = "u20", items[:4], [True, False, True, False]
    assert judged(model, store) == expected(model, own)
    add(store, ("u21", unliked(model, "u21", 1)[0], "considered"), ("nobody", items[0], "like"))
    assert judged(model, store) == expected(model, own, ("u21", unliked(model, "u21", 1), [False]))
    model.save(tmp_path / "shards", shards=3)
    assert judged(Recommender.load(tmp_path / "shards"), store) == judged(model, store)


def test_events_that_the_model_was_trained_on_judge_nothing(model: Recommender, store: EventStore) -> None:
    items = unliked(model, "u20", 4)
    add(store, ("u20", items[0], "considered"), ("u20", items[1], "like"))
    add(store, ("u20", items[0], "like"), ("u20", items[1], "considered"), ("u20", items[2], "considered"))
    for log, count in ((store.identity, 1), ("another file", 3)):
        made = Recommender(**model.get_params())
        made._model = replace(model.model_, events=LearnedEvents(2, log))
        found = judged(made, store)
        assert len(found) == count
        assert expected(model, ("u20", items[2:3], [False]))[0] in found


def test_someone_who_is_only_in_the_events(model: Recommender, store: EventStore) -> None:
    """What was said of an item is by the likes before it, and of the first one nothing was."""
    add(
        store,
        ("new", "i20", "considered"),
        ("new", "i22", "like"),
        ("new", "i24", "considered"),
        ("new", "i26", "like"),
        ("new", "i28", "considered"),
        ("new", "i24", "like"),
    )
    tastes = {"i24": (["i22"], ["i20"]), "i26": (["i22"], ["i20", "i24"]), "i28": (["i22", "i26"], ["i20", "i24"])}
    wanted, names = {}, model.model_.item_names()
    for item, (likes, shown) in tastes.items():
        side = model.model_.fold_in.users(names.likes([likes]), considered=names.likes([shown]))
        mean, variance = logit_moments(side, model.model_.items, np.array([0]), names.rows([item]))
        p = like_probability(mean, model.model_.variance_scale * variance)
        wanted[float(p[0])] = item != "i28"
    p, liked = said_and_seen(ServedModel(model.model_, "digest"), store)
    assert sorted(zip(p, liked)) == [
        (pytest.approx(said, abs=1e-4), is_liked) for said, is_liked in sorted(wanted.items())
    ]


def test_the_latest_are_judged_and_not_all(
    model: Recommender, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = unliked(model, "u20", 6)
    add(store, *(("u20", item, "considered") for item in items), ("u20", items[0], "like"))
    monkeypatch.setattr(honesty, "MOST_PAIRS", 2)
    assert judged(model, store) == expected(model, ("u20", items[4:], [False, False]))
    monkeypatch.setattr(honesty, "MOST_PAIRS", 20)
    monkeypatch.setattr(honesty, "MOST_EVENTS", 3)
    assert judged(model, store) == expected(model, ("u20", [items[0], *items[4:]], [True, False, False]))


def test_a_model_without_likes_cannot_be_judged_by_events(
    model: Recommender, store: EventStore, tmp_path: Path
) -> None:
    model.save(tmp_path / "bare", likes=False)
    add(store, ("u20", unliked(model, "u20", 1)[0], "considered"))
    assert judged(Recommender.load(tmp_path / "bare"), store) == []


def test_an_honest_model_is_told_from_one_that_is_not(store: EventStore) -> None:
    """Coins of p itself, and of its square: the error is that of chance, and not."""
    model, random = fitted(), np.random.default_rng(1)
    served = ServedModel(model.model_, "digest")
    errors = []
    for power in (1, 2):
        events = []
        for row in range(20, 60):
            items = unliked(model, user_name(row), 20)
            items = items[:10] if power == 1 else items[10:]
            for item, p in zip(items, said(model, user_name(row), items)):
                events.append((user_name(row), item, "like" if random.random() < p**power else "considered"))
        model._model = replace(model.model_, events=LearnedEvents(store.mark()[0], store.identity))
        served = ServedModel(model.model_, "digest")
        add(store, *events)
        answer = Honesty().answer(served, store)
        assert (answer.source, answer.weights) == ("events", "each pair")
        p, liked = said_and_seen(served, store)
        assert [bin.liked for bin in answer.bins] == [bin.liked for bin in reliability_bins(p, liked, None).bins]
        errors.append(answer.error)
    assert errors[0] < 0.06
    assert errors[1] > 0.12


def test_the_answer_is_kept_for_a_moment_and_made_anew(
    model: Recommender, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, kept = ServedModel(model.model_, "digest"), Honesty()
    items = unliked(model, "u20", 5)
    assert kept.answer(served, None).source is None
    kept = Honesty()
    add(store, ("u20", items[0], "like"))
    first = kept.answer(served, store)
    assert (first.source, first.pairs, first.bins) == (None, 1, [])  # of one kind alone
    add(store, ("u20", items[1], "considered"))
    assert kept.answer(served, store) is first
    monkeypatch.setattr(honesty, "FRESH", 0.0)
    second = kept.answer(served, store)
    assert (second.source, second.pairs) == ("events", 2)
    assert kept.answer(served, store) is second  # nothing new
    done = Event()
    store.erase("u20", lambda *_: done.set())
    assert done.wait(60)
    assert kept.answer(served, store).pairs == 0
    assert kept.answer(ServedModel(model.model_, "other"), store).model == "other"


def test_the_route(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, random = fitted(), np.random.default_rng(2)
    users, items = random.integers(0, 80, 600), random.integers(0, 40, 600)
    monkeypatch.setattr(honesty, "FRESH", 0.0)
    model.save(tmp_path / "model")
    with running(tmp_path / "model", events=str(tmp_path / "events.db")) as client:
        digest = client.get("/v1/model").json()["digest"]
        none = {"model": digest, "source": None, "weights": None, "pairs": 0, "error": None, "bins": []}
        assert client.get("/v1/reliability").json() == none
        first, second = unliked(model, "u20", 2)
        client.post_events(("u20", first, "considered"), ("u20", second))
        answer = client.get("/v1/reliability").json()
        assert (answer["source"], answer["pairs"]) == ("events", 2)
    model.recalibrate(
        users, items, random.random(600) < 0.1 + 0.6 * model.predict_proba(users, items, by="row"), by="row"
    )
    save_model(model.model_, str(tmp_path / "model"))
    with running(tmp_path / "model", events=str(tmp_path / "events.db")) as client:
        answer = client.get("/v1/reliability").json()
        stored = model.reliability_
        assert stored is not None
        liked = model.model_.users.whole().liked
        judged = sum(item not in liked.row(user) for user, item in zip(users, items))
        assert (answer["source"], answer["weights"], answer["pairs"]) == ("model", "each pair", judged)
        assert (answer["error"], answer["bins"]) == (stored.error, [bin._asdict() for bin in stored.bins])
        for number in range(honesty.ENOUGH // 40 + 6):  # with enough of them events say more
            name = f"u{20 + number}"
            pairs = unliked(model, name, 40)
            client.post_events(*((name, item, ("like", "considered")[at % 2]) for at, item in enumerate(pairs)))
        assert client.get("/v1/reliability").json()["source"] == "events"
