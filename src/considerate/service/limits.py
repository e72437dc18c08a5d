"""Limits: requests per second, and deadlines."""

from __future__ import annotations

import time
from collections import OrderedDict
from random import random

from considerate.service.problems import Problem

MOST_CLIENTS = 10_000  # clients whose rate is remembered
SPREAD = 0.25  # largest random share of a deadline


class RateLimit:
    """Limit of requests per second from one address: a bucket of one second's requests that fills steadily."""

    def __init__(self, rate: float) -> None:
        self.rate, self.most = rate, max(1.0, rate)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client -> (left, when)

    def check(self, client: str) -> None:
        """Raise a problem if the client asks too often."""
        if self.rate <= 0:
            return
        now = time.monotonic()
        left, when = self._buckets.pop(client, (self.most, now))
        left = min(self.most, left + (now - when) * self.rate)
        self._buckets[client] = max(0.0, left - 1.0) if left >= 1.0 else left, now
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1.0:
            wait = max(1, round((1.0 - left) / self.rate))
            detail = f"More than {self.rate:g} requests a second came from your address; try again in {wait} s."
            raise Problem("too-many", detail, {"Retry-After": str(wait)})


def deadline(most: float) -> float:
    """Seconds until a slow client is cut off, partly random, so that clients who came together leave one by one."""
    return most * (1.0 - SPREAD * random())
