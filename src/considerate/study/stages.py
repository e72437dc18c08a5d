"""Doing the parts of a study: each from the cache or made, one after the other or side by side; steps are yielded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from considerate.study.cache import Cache, Stage


@dataclass(frozen=True)
class Step:
    """Where a study is. `reused` is None where a stage begins, else whether its answer was there already."""

    stage: str
    done: int
    total: int
    reused: bool | None = None


@dataclass(frozen=True)
class Task:
    """One part: what it depends on, and how it is made; its answer is arrays, or plain values."""

    stage: Stage
    make: Callable[[], Any]
    arrays: bool = True


class Runner:
    """Counts the parts that are done."""

    def __init__(self, cache: Cache, threads: int) -> None:
        self.cache, self.threads = cache, threads
        self.done = self.total = 0

    def begin(self, stage: str) -> Step:
        return Step(stage, self.done, self.total)

    def end(self, stage: str, reused: bool = False) -> Step:
        self.done += 1
        return Step(stage, self.done, self.total, reused)

    def run(self, tasks: Sequence[Task], found: list[Any], abreast: bool = False) -> Iterator[Step]:
        """Do tasks; their answers are added to `found`, in order. `abreast` is for tasks that take one thread each."""
        answers: dict[int, Any] = {}

        def do(at: int) -> tuple[int, bool]:
            task = tasks[at]
            keep = self.cache.arrays if task.arrays else self.cache.values
            answers[at], reused = keep(task.stage, task.make)
            return at, reused

        if abreast and self.threads > 1 and len(tasks) > 1:
            pool = ThreadPoolExecutor(self.threads)
            try:
                for future in as_completed([pool.submit(do, at) for at in range(len(tasks))]):
                    at, reused = future.result()
                    yield self.end(tasks[at].stage.name, reused)
            finally:
                pool.shutdown(cancel_futures=True)
        else:
            for number, task in enumerate(tasks):
                yield self.end(task.stage.name, do(number)[1])
        found.extend(answers[at] for at in range(len(tasks)))
