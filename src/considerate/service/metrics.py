"""Metrics for Prometheus. With several workers prometheus-client adds their counts through files."""

from __future__ import annotations

import os
import re
from pathlib import Path

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
USERS = (1, 2, 4, 8, 16, 32, 64, 128, 192)


class Metrics:
    """Metrics of one service. No label contains text of a client."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        if FOLDER in os.environ:
            _remove_old_gauges(Path(os.environ[FOLDER]))
        own = self.registry = CollectorRegistry()
        name = "considerate_{}".format
        self.requests = Counter(name("requests"), "Requests answered", ["route", "method", "status"], registry=own)
        self.seconds = Histogram(
            name("request_seconds"), "From the request to its answer", ["route"], registry=own, buckets=SECONDS
        )
        self.batch = Histogram(name("scored_users"), "Users of one call of the kernel", registry=own, buckets=USERS)
        self.folded = Counter(name("folded_in"), "Users folded in from their likes", registry=own)
        self.reloads = Counter(name("model_reloads"), "New models at the path", ["result"], registry=own)
        live = {"registry": own, "multiprocess_mode": "livemax"}
        self.refused = Gauge(name("model_refused"), "1 while the file at the path is refused", **live)  # type: ignore[arg-type]
        self.since = Gauge(name("model_since_seconds"), "When the model was swapped in", **live)  # type: ignore[arg-type]
        self.digest = Gauge(name("model_info"), "1 for the model that is served", ["digest"], **live)  # type: ignore[arg-type]
        self.refits = Counter(name("refits"), "Refits beside the service", ["result"], registry=own)
        self.unlearned = Gauge(name("events_unlearned"), "Events after the last one that the model has learned", **live)  # type: ignore[arg-type]
        self.events = Counter(name("events"), "Events stored", ["kind"], registry=own)
        self.duplicates = Counter(name("event_duplicates"), "Events that were stored before", registry=own)
        self.commits = Counter(name("event_commits"), "Commits that stored events", registry=own)
        self.failures = Counter(name("event_failures"), "Commits that failed", registry=own)

    def text(self) -> tuple[bytes, str]:
        """Return (the metrics in the format of Prometheus, its media type)."""
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = self.registry
        if FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry), CONTENT_TYPE_LATEST


def _remove_old_gauges(folder: Path) -> None:
    """Remove the gauges of workers that have ended; their counters stay."""
    for path in folder.glob("gauge_live*.db"):
        number = re.search(r"_(\d+)\.db$", path.name)
        try:
            os.kill(int(number[1]) if number else os.getpid(), 0)
        except OSError:
            path.unlink(missing_ok=True)
