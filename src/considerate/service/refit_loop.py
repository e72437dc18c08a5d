"""Repeated refits, in a process of low priority that runs and ends with a service, or in the shell."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass

from considerate.errors import ConsiderateError
from considerate.service.events import EventStore
from considerate.service.logs import configure_logs
from considerate.service.metrics import Metrics
from considerate.service.refit import Refit, RefitDiscarded, RefitResult

logger = logging.getLogger("considerate.service")
SPAWN = multiprocessing.get_context("spawn")
NICE = 10  # lower priority of refits
RESTART = 5.0  # longest time in seconds until a process that died is restarted
Outcome = RefitResult | ConsiderateError


def rounds(job: Refit, every: float, wait: Callable[[float], None] = time.sleep) -> Iterator[Outcome]:
    """Refit every so many seconds, and yield the outcomes. Without data, skip rounds without new events since the model
    was made and since the last refit."""
    judged = None
    while True:
        outcome: Outcome | None = None
        try:
            mark = job.store.mark()
            if job.data is not None or (mark != judged and job.has_news()):
                outcome = job.run()
                judged = mark
        except ConsiderateError as error:
            outcome = error
        if outcome is not None:
            yield outcome
        wait(every)


@dataclass(frozen=True)
class RefitLoop:
    """Repeated refits of a service's model."""

    model: str
    events: str
    every: float  # seconds
    how: str

    def check(self) -> None:
        """Raise UsageError if this model cannot be refitted."""
        with closing(EventStore(self.events, Metrics())) as store:
            Refit(self.model, store, self.how).check()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Block during which a process refits; a process that dies is restarted."""
        configure_logs()
        ended, processes = threading.Event(), list[multiprocessing.process.BaseProcess]()

        def keep() -> None:
            while not ended.is_set():
                process = SPAWN.Process(target=self._run, daemon=True)
                process.start()
                processes.append(process)
                process.join()
                if not ended.is_set():
                    logger.error("the process of refits died", extra={"fields": {"exit_code": process.exitcode}})
                    ended.wait(min(self.every, RESTART))

        keeper = threading.Thread(target=keep, name="refits", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            ended.set()
            while keeper.is_alive():
                for process in processes[-1:]:
                    process.terminate()
                keeper.join(0.1)

    def _run(self) -> None:
        os.nice(NICE)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the service, which then ends this process
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        threading.Thread(target=_end_with_parent, daemon=True).start()
        configure_logs()
        metrics = Metrics()
        with closing(EventStore(self.events, metrics)) as store:
            for outcome in rounds(Refit(self.model, store, self.how), self.every):
                metrics.refits.labels(log_outcome(outcome)).inc()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def log_outcome(outcome: Outcome) -> str:
    """Log the outcome of a refit, and return it in one word."""
    if isinstance(outcome, RefitResult):
        word = "swapped" if outcome.swapped else "kept"
        logger.info("refit", extra={"fields": {"result": word} | asdict(outcome)})
    else:
        word = "discarded" if isinstance(outcome, RefitDiscarded) else "failed"
        logger.error("refit", extra={"fields": {"result": word, "reason": str(outcome)}})
    return word
