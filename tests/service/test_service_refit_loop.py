"""Refits again and again: in the shell, and in a process beside a service."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from considerate import Recommender
from considerate.cli import app
from considerate.errors import ModelFileError
from considerate.service.events import EventStore
from considerate.service.refit import Refit, RefitResult
from considerate.service.refit_loop import rounds
from tests.helpers.refit_fixtures import erase, folder, post, store
from tests.helpers.service_fixtures import Process, started, wait_for

__all__ = ["folder", "store"]  # pytest's fixtures


def in_turn(*acts: Callable[[], Any]) -> Callable[[float], None]:
    """What happens while a loop waits, the first time, the second, ..."""
    coming = iter(acts)
    return lambda seconds: next(coming)()


def test_a_round_without_news_is_left_out(folder: Path, store: EventStore) -> None:
    wait = in_turn(
        lambda: None,  # there is no event yet
        lambda: post(store, ("new", "i1", "like"), ("new", "i3", "like")),
        lambda: None,
        lambda: post(store, ("new", "i5", "like")),
        lambda: erase(store, "u3"),
        lambda: (folder / "model").write_bytes(b"damaged"),
        lambda: post(store, ("u1", "i1", "like")),
    )
    outcomes = rounds(Refit(str(folder / "model"), store, "update"), 1.0, wait)
    results = [next(outcomes) for _ in range(3)]
    assert [(result.sequence, result.removed > 0) for result in results if isinstance(result, RefitResult)] == [
        (2, False),
        (3, False),
        (3, True),
    ]
    assert isinstance(next(outcomes), ModelFileError)  # what is wrong does not end them
    with pytest.raises(RuntimeError, match="StopIteration"):  # the acts have come to their end, each once
        next(outcomes)


def test_a_model_that_was_kept_out_is_not_made_again(
    folder: Path, store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(store, ("new", "i1", "like"), ("new", "i3", "like"))
    monkeypatch.setattr("considerate.service.refit.is_worse", lambda gains: True)
    outcomes = rounds(
        Refit(str(folder / "model"), store), 1.0, in_turn(lambda: None, lambda: post(store, ("new", "i5", "like")))
    )
    results = [next(outcomes) for _ in range(2)]
    assert [(result.sequence, result.swapped) for result in results if isinstance(result, RefitResult)] == [
        (2, False),
        (3, False),
    ]


def test_with_data_that_may_have_changed_every_round_is_run(folder: Path, store: EventStore) -> None:
    job = Refit(str(folder / "model"), store, data=str(folder / "likes.parquet"))
    outcomes = rounds(job, 1.0, in_turn(lambda: None))
    assert [isinstance(next(outcomes), RefitResult) for _ in range(2)] == [True, True]


def log_lines(service: Process, message: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in service.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["message"] == message]


def is_gone(group: int) -> bool:
    """Whether no process of a group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_service_that_refits(folder: Path, end: signal.Signals) -> None:
    given = ["--events", folder / "events.db", "--refit-every", 0.1, "--refit-how", "update"]
    with started(folder / "log", folder / "model", *given) as service, service.client() as client:
        before = client.get("/v1/model").json()
        sequence = client.post_events(("new", "i1"), ("new", "i3"), ("u1", "i39x"))["events"][-1]["sequence"]
        after = wait_for(lambda: (now := client.get("/v1/model").json())["event_sequence"] == sequence and now)
        assert after["digest"] != before["digest"]
        assert after["users"] == before["users"] + 1
        (outcome,) = log_lines(service, "refit")
        assert (outcome["result"], outcome["judged"], outcome["added"]) == ("swapped", 2, 1)
        nicer = min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
        assert os.getpriority(os.PRIO_PROCESS, outcome["process"]) == nicer
        if end == signal.SIGTERM:  # the process of refits is killed, and another takes its place
            os.kill(outcome["process"], signal.SIGKILL)
            last = client.post_events(("new", "i5"))["events"][0]["sequence"]
            wait_for(lambda: client.get("/v1/model").json()["event_sequence"] == last)
            assert log_lines(service, "the process of refits died")[0]["exit_code"] == -signal.SIGKILL
            metrics = client.get("/metrics").text
            assert 'considerate_refits_total{result="swapped"} 2.0' in metrics
            assert "considerate_events_unlearned 0.0" in metrics
        os.kill(service.process.pid, end)
        service.process.wait()
        wait_for(lambda: is_gone(service.process.pid))
    if end == signal.SIGTERM:  # and no file
        assert {file.name for file in folder.iterdir()} == {"likes.parquet", "model", "events.db", "log"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--refit-every", "1"], "give --events"),
        (["--refit-every", "0", "--events", "{}/events.db"], "--refit-every is 0"),
        (["--refit-every", "1", "--events", "{}/events.db"], "was saved without likes"),
    ],
)
def test_what_is_wrong_is_said_before_it_starts(folder: Path, options: list[str], reason: str) -> None:
    Recommender.load(folder / "model").save(folder / "model", likes=False)
    given = ["serve", str(folder / "model"), *(option.format(folder) for option in options)]
    result = CliRunner().invoke(app, given, prog_name="considerate")
    assert result.exit_code == 2
    assert reason in result.stderr
