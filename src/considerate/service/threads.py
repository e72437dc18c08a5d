"""Threads for slow work, and ways to wait for them on the event loop.

Each kind of slow work has its own lane, so that it cannot delay other kinds or the lists of single users. The work
calls `pause` between its steps; `pause` ends it when its time is over or the service stops.
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

from considerate.service.problems import busy

Result = TypeVar("Result")
Pause = Callable[[], None]  # called between two steps of work; raises Ended if the work should stop
WORK, YIELD = 0.005, 0.01  # seconds of slow work before it lets others pass; longest time that it waits for them
TURN = 0.0005  # seconds that slow work keeps the interpreter while another thread wants it


class Ended(TimeoutError):
    """Stops work that nobody waits for any more."""


class ShortTurns:
    """Block with shorter turns of all threads, so that lists of single users wait less while slow work runs."""

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


SHORT_TURNS = ShortTurns()  # one per process, like the interpreter


class Lane:
    """Threads for one kind of work, with a limit for waiting work."""

    def __init__(self, what: str, threads: int, most: int) -> None:
        self.what, self.most = what, most
        self._pool = ThreadPoolExecutor(threads, what)
        self._open: set[Future[Any]] = set()  # waiting or running
        self._queued: dict[int, float] = {}  # number of waiting work -> its start of waiting
        self._number = 0

    def submit(self, run: Callable[[], Result]) -> Future[Result]:
        """Run work in a thread; raise a problem if too much work waits."""
        if self.is_full():
            raise busy(f"{self.most} {self.what} run or wait, which is the limit; try again in a moment.")
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
        """Seconds that the oldest waiting work has waited."""
        return max((time.monotonic() - since for since in list(self._queued.values())), default=0.0)

    def is_full(self) -> bool:
        return len(self._open) >= self.most

    def close(self) -> None:
        """Wait for running work; cancel waiting work."""
        self._pool.shutdown(cancel_futures=True)


class Threads:
    """Lanes for slow work, and ways to wait for threads; raises TimeoutError after the timeout."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._closing = threading.Event()
        self._singles = 0  # open requests of single users
        self.slow = Lane("searches, explanations and landscapes", 2, 64)
        self.batches = Lane("batches", 1, 8)
        self.watching = Lane("requests of metrics", 1, 16)

    def is_overloaded(self) -> bool:
        """Return whether work other than batches waits so long that balancers should use another server."""
        return self.slow.is_full() or self.slow.waited() > self._timeout / 2

    def close(self) -> None:
        """End running work at its next step."""
        self._closing.set()
        for lane in (self.slow, self.batches, self.watching):
            lane.close()

    async def called_back(self, start: Callable[[Callable[[Any, BaseException | None], None]], None]) -> Any:
        """Call `start` with a callback, and wait for the result that a thread passes to it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():
                return  # timed out
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def done(result: Any, error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, result, error)

        self._singles += 1
        try:
            start(done)
            async with asyncio.timeout(self._timeout):
                return await future
        finally:
            self._singles -= 1

    async def in_thread(self, run: Callable[[Pause], Result], lane: Lane | None = None) -> Result:
        """Run slow work in a lane. `run` gets the function to call between its steps."""
        end = time.monotonic() + self._timeout
        passed = 0.0  # last time that others could pass

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
