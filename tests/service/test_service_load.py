"""More work than there is time for: what is refused, what is ended, and what goes on beside it."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from considerate.model.ranking import RankingOptions
from considerate.service import answers, protocol, scoring, state, threads
from considerate.service.problems import Problem
from considerate.service.schemas import BatchRequest
from considerate.service.threads import TURN, Ended, Lane, Pause, Threads
from tests.helpers.service_fixtures import Client, path, running, wait_for

__all__ = ["path"]  # pytest's fixtures
BATCH = "/v1/recommendations:batch"


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    """Some slow answers wait until the block ends."""
    release, real = threading.Event(), getattr(answers, name)

    def wait(*arguments: Any) -> Any:
        release.wait()
        return real(*arguments)

    monkeypatch.setattr(answers, name, wait)
    try:
        yield
    finally:
        release.set()


# --- What a batch may cost ---


@pytest.mark.parametrize(
    ("users", "items", "explain", "instead"),
    [
        (10_000, 20, True, "ask for 200 users at once"),
        (201, 20, True, "ask for 200 users at once"),
        (10_000, 21, False, "ask for 9,523 users at once"),
    ],
)
def test_a_batch_that_costs_too_much_is_refused(
    path: Path, users: int, items: int, explain: bool, instead: str
) -> None:
    with running(path) as client:
        request = {"users": ["u20"] * users, "n": items, "explain": explain}
        response = client.post(BATCH, json=request)
    problem = response.json()
    assert (response.status_code, problem["type"]) == (422, "/docs#invalid")
    assert f"{users:,} lists of {items:,} items" in problem["detail"]
    assert "200,000 items, or 4,000 with reasons" in problem["detail"]
    assert problem["detail"].endswith(f"So {instead}.")


def test_long_lists_of_items_are_looked_up_where_nobody_else_waits() -> None:
    for name in ("allow", "deny"):
        for count, takes_long in ((500, False), (501, True)):
            options = RankingOptions(**{name: list(range(count))})
            assert scoring.Question(options, 10, "u20").takes_long is takes_long


def test_a_batch_looks_its_items_up_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(path) as client:
        looked_up, real = [], state.ServedModel.item_rows
        monkeypatch.setattr(
            state.ServedModel, "item_rows", lambda self, ids: (looked_up.append(ids), real(self, ids))[1]
        )
        answer = client.post(BATCH, json={"users": ["u20"] * 200, "n": 1, "allow": ["i20", "i21"]}).json()
    assert {entry["items"][0]["item"] for entry in answer["results"]} <= {"i20", "i21"}
    assert len(looked_up) == 1


def test_the_largest_batches_are_taken() -> None:
    for users, items, explain in ((10_000, 20, False), (200, 1_000, False), (200, 20, True), (4, 1_000, True)):
        answers.check_cost(BatchRequest(users=[0] * users, n=items, explain=explain))
        with pytest.raises(Problem, match="invalid"):
            answers.check_cost(BatchRequest(users=[0] * (users + 1), n=items, explain=explain))


# --- When time is over ---


def test_work_ends_between_its_steps_when_its_time_is_over() -> None:
    ended = threading.Event()

    def endless(pause: Pause) -> None:
        try:
            while True:
                pause()
        finally:
            ended.set()

    async def asked() -> None:
        beside = Threads(timeout=0.05)
        with pytest.raises(TimeoutError):
            await beside.in_thread(endless)
        await asyncio.to_thread(ended.wait)
        await asyncio.to_thread(beside.close)

    asyncio.run(asked())
    assert ended.is_set()


def test_what_waited_too_long_is_never_begun() -> None:
    begun, release = [], threading.Event()

    async def asked() -> None:
        beside = Threads(timeout=0.05)
        lane = Lane("works", 1, 2)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await beside.in_thread(lambda _: (begun.append(1), release.wait()), lane)
        release.set()
        await asyncio.to_thread(lane.close)
        await asyncio.to_thread(beside.close)

    asyncio.run(asked())
    assert len(begun) == 1


@pytest.mark.parametrize("explain", [False, True])
def test_a_batch_is_made_in_steps(path: Path, explain: bool) -> None:
    from considerate.service.metrics import Metrics
    from considerate.service.state import ModelHolder

    holder, pauses = ModelHolder(str(path), Metrics()), []
    holder.load()
    scored = scoring.Scoring(holder, None, holder.metrics)
    users = [f"u{20 + number % 50}" for number in range(150)]
    request = BatchRequest(users=users, n=3, explain=explain)  # type: ignore[arg-type]
    answer = answers.batch_json(scored, request, lambda: pauses.append(1))
    assert len(pauses) >= (450 if explain else 4)
    each = [scored.answer([scoring.Question(request.ranking(), 3, user, explain=explain)])[0] for user in users]
    assert json.loads(b"[" + b",".join(map(bytes, answer.results)) + b"]") == [  # type: ignore[arg-type]
        {"user": user, "cold": False, "events": 0, "items": json.loads(answers.msgspec.json.encode(one.items))}  # type: ignore[union-attr]
        for user, one in zip(users, each)
    ]

    def stop() -> None:
        raise Ended

    with pytest.raises(Ended):
        answers.batch_json(scored, request, stop)
    scored.close()


@pytest.mark.parametrize("singles", [0, 1])
def test_single_requests_pass_between_two_steps(monkeypatch: pytest.MonkeyPatch, singles: int) -> None:
    slept: list[float] = []
    monkeypatch.setattr(threads.time, "sleep", slept.append)
    monkeypatch.setattr(threads, "WORK", 0.0)

    async def asked() -> None:
        beside, answer = Threads(timeout=600.0), list[Any]()
        asking = [asyncio.create_task(beside.called_back(answer.append)) for _ in range(singles)]
        await asyncio.sleep(0)  # they have begun
        await beside.in_thread(lambda pause: [pause() for _ in range(2)])
        assert bool(slept) == bool(singles)
        for tell in answer:
            tell("answered", None)
        await asyncio.gather(*asking)
        slept.clear()
        await beside.in_thread(lambda pause: [pause() for _ in range(2)])
        assert slept == []
        await asyncio.to_thread(beside.close)

    asyncio.run(asked())


def test_a_late_batch_gets_a_sentence(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(path, timeout=0.1) as client, held(monkeypatch, "batch_json"):
        response = client.post(BATCH, json={"users": ["u20"]})
        assert (response.status_code, response.json()["type"]) == (503, "/docs#busy")
        assert "The lists of 1 users were not ready within 0.1 seconds; ask for fewer" in response.json()["detail"]
        assert response.headers["retry-after"] == "1"


def test_the_end_of_the_service_ends_a_batch(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()

    def endless(_: Any, __: Any, pause: Pause) -> None:
        begun.set()
        while True:
            pause()

    monkeypatch.setattr(answers, "batch_json", endless)
    monkeypatch.setitem(protocol.SERVER_OPTIONS, "timeout_graceful_shutdown", 0.1)
    with ThreadPoolExecutor(1) as pool:
        with running(path, timeout=3_600.0) as client:
            answer = pool.submit(Client(base_url=client.base_url, timeout=None).post, BATCH, json={"users": ["u20"]})
            begun.wait()
        response = answer.result()
    assert (response.status_code, response.json()["detail"]) == (503, "The service is stopping; ask again.")


# --- What goes on beside it ---


def the_refused(asked: list[Future[Any]]) -> str:
    """The detail of the first answer, which says that no more may wait."""
    response = next(as_completed(asked)).result()
    assert (response.status_code, response.json()["type"]) == (503, "/docs#busy")
    return str(response.json()["detail"])


def test_others_are_answered_while_batches_are_made(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (
        running(path, events=str(tmp_path / "events.db"), timeout=600.0) as client,
        ThreadPoolExecutor(9) as pool,
        held(monkeypatch, "batch_json"),
    ):
        batches = [pool.submit(client.post, BATCH, json={"users": ["u20"]}) for _ in range(9)]
        assert the_refused(batches) == "8 batches run or wait, which is the limit; try again in a moment."
        assert client.recommendations("u20")["items"]
        assert client.recommendations("u20", explain=True)["items"][0]["why"]
        assert client.post_events(("u20", "i20"))["events"]
        for address in ("/v1/items?q=film", "/v1/items/i20/similar", "/metrics", "/health/ready", "/health/live"):
            assert client.get(address).status_code == 200, address
        assert sum(batch.done() for batch in batches) == 1
    assert sorted(batch.result().status_code for batch in batches) == [200] * 8 + [503]


def test_readiness_tells_when_too_much_waits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        running(path, timeout=600.0) as client,
        ThreadPoolExecutor(65) as pool,
        held(monkeypatch, "search"),
    ):
        assert client.get("/health/ready").status_code == 200
        searches = [pool.submit(client.get, "/v1/items?q=film") for _ in range(65)]
        assert "64 searches, explanations and landscapes" in the_refused(searches)
        refused = client.get("/health/ready")
        assert (refused.status_code, refused.json()["type"]) == (503, "/docs#busy")
        for address in ("/health/live", "/metrics", "/v1/users/u20/recommendations"):
            assert client.get(address).status_code == 200, address
    assert sorted(search.result().status_code for search in searches) == [200] * 64 + [503]


def test_threads_take_short_turns_while_slow_work_runs() -> None:
    usual, lane = sys.getswitchinterval(), Lane("works", 2, 2)
    barrier = threading.Barrier(2)

    def work() -> float:
        barrier.wait()  # both run
        interval = sys.getswitchinterval()
        barrier.wait()
        return interval

    working = [lane.submit(work) for _ in range(2)]
    assert [work.result() for work in working] == [pytest.approx(TURN)] * 2
    lane.close()
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_a_lane_knows_how_long_its_oldest_has_waited() -> None:
    lane, release = Lane("works", 1, 3), threading.Event()
    assert lane.waited() == 0.0
    lane.submit(release.wait)
    wait_for(lambda: lane.waited() == 0.0)  # it has begun
    lane.submit(release.wait)
    assert lane.waited() > 0.0
    release.set()
    lane.close()
    assert lane.waited() == 0.0


# --- Large answers ---


@pytest.mark.parametrize(
    ("address", "body"),
    [
        (BATCH, {"users": ["u20", "nobody", "a/b"], "n": 20}),
        ("/v1/landscape", {"user": "u20"}),
        ("/v1/recommendations", {"likes": ["i20", "unheard of"], "n": 20, "explain": True}),
    ],
)
def test_an_answer_that_is_packed_in_its_thread_is_the_same(path: Path, address: str, body: Any) -> None:
    with running(path) as client:
        plain = client.post(address, json=body, headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        with client.stream("POST", address, json=body, headers={"Accept-Encoding": "gzip"}) as packed:
            content = b"".join(packed.iter_raw())
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers.get_list("vary") == plain.headers.get_list("vary") == ["Accept-Encoding"]
    assert gzip.decompress(content) == plain.content
