"""How requests, which run on the event loop, wait for threads.

Work that takes long runs in lanes of its own, so that none of them can hold up another, or the lists of single users.
It calls `pause` between its steps, which ends it when its time is over or the service ends.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from considerate.service.problems import Problem

Result = TypeVar("Result")
Pause = Callable[[], None]  # called between two steps of work; it raises Ended where there is to be no other
WORK, YIELD = 0.005, 0.01  # seconds of slow work before others pass, and at most until it goes on
TURN = 0.0005  # seconds that slow work keeps the interpreter while another thread wants it


class Ended(TimeoutError):
    """Nobody waits for this work any more."""


class ShortTurns:
    """Shorter turns of all threads while any slow work runs: the lists of single users then wait less for theirs."""

    def __init__(self) -> None:
        self._lock, self._running, self._usual = threading.Lock(), 0, 0.0

    def __enter__(self) -> None:
        with self._lock:
            if self._running == 0:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(TURN)
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0:
                sys.setswitchinterval(self._usual)


SHORT_TURNS = ShortTurns()  # of the process, as its interpreter is


class Lane:
    """Threads for one kind of work, and a limit of how much of it may wait."""

    def __init__(self, what: str, threads: int, most: int) -> None:
        self.what, self.most = what, most
        self._pool = ThreadPoolExecutor(threads, what)
        self._open: set[Future[Any]] = set()  # that wait or run
        self._queued: dict[int, float] = {}  # when those came that wait, by number
        self._number = 0

    def submit(self, run: Callable[[], Result]) -> Future[Result]:
        """Run it in a thread; a problem where too much waits."""
        if len(self._open) >= self.most:
            detail = f"{self.most} {self.what} are being answered or wait, and no more may; try again in a moment."
            raise Problem("busy", detail, {"Retry-After": "1"})
        self._number = number = self._number + 1
        self._queued[number] = time.monotonic()

        def started() -> Result:
            self._queued.pop(number, None)
            with SHORT_TURNS:
                return run()

        future = self._pool.submit(started)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        future.add_done_callback(lambda _: self._queued.pop(number, None))
        return future

    def waited(self) -> float:
        """Seconds that the oldest that is not begun has waited."""
        return max((time.monotonic() - since for since in list(self._queued.values())), default=0.0)

    def is_full(self) -> bool:
        return len(self._open) >= self.most

    def close(self) -> None:
        """Returns when what runs has ended; what waits is never begun."""
        self._pool.shutdown(cancel_futures=True)


class Threads:
    """Lanes for what takes long, and waiting for them and for others. A TimeoutError where it takes too long."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._closing = threading.Event()
        self._singles = 0  # requests of single users that are being answered
        self.slow = Lane("searches, explanations and landscapes", 2, 64)  # what is not one user's list
        self.batches = Lane("batches", 1, 8)
        self.watching = Lane("looks at the metrics", 1, 16)

    def is_overloaded(self) -> bool:
        """True if requests wait so long for a thread that others should be sent elsewhere. Batches do not count: they
        hold up nothing else."""
        return self.slow.is_full() or self.slow.waited() > self._timeout / 2

    def close(self) -> None:
        """End what runs at its next step."""
        self._closing.set()
        for lane in (self.slow, self.batches, self.watching):
            lane.close()

    async def called_back(self, start: Callable[[Callable[[Any, BaseException | None], None]], None]) -> Any:
        """Wait for what a thread says through a callback."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():
                return  # nobody waits any more
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def tell(result: Any, error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, result, error)

        self._singles += 1
        try:
            start(tell)
            async with asyncio.timeout(self._timeout):
                return await future
        finally:
            self._singles -= 1

    async def in_thread(self, run: Callable[[Pause], Result], lane: Lane | None = None) -> Result:
        """Run what takes longer beside the requests of single users. `run` is given the pause between its steps."""
        end = time.monotonic() + self._timeout
        passed = 0.0  # when others passed last

        def pause() -> None:
            nonlocal passed
            now = time.monotonic()
            if self._closing.is_set() or now > end:
                raise Ended
            if now - passed >= WORK:
                while self._singles and time.monotonic() - now < YIELD:
                    time.sleep(TURN)
                passed = time.monotonic()

        def begin() -> Result:
            pause()
            return run(pause)

        future = (lane or self.slow).submit(begin)
        async with asyncio.timeout(self._timeout):
            return await asyncio.wrap_future(future)
