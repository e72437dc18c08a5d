"""How requests, which run on the event loop, wait for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from considerate.service.problems import busy

Result = TypeVar("Result")
SLOW_THREADS = 2  # for batches, searches, landscapes: what is not one user's list
MOST_SLOW = 64  # of those that may wait


class Threads:
    """Threads for what takes long, and waiting for them and for others. A TimeoutError where it takes too long."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._pool = ThreadPoolExecutor(SLOW_THREADS, "slow")
        self._waiting = 0

    def close(self) -> None:
        self._pool.shutdown()

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

        start(tell)
        async with asyncio.timeout(self._timeout):
            return await future

    async def in_thread(self, run: Callable[..., Result], *arguments: Any) -> Result:
        """Run what takes longer beside the requests of single users."""
        if self._waiting >= MOST_SLOW:
            raise busy()
        self._waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._pool, run, *arguments)
        future.add_done_callback(self._done)
        async with asyncio.timeout(self._timeout):
            return await asyncio.shield(future)

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        if not future.cancelled():
            future.exception()  # it was raised where it was waited for, or nobody waits any more
