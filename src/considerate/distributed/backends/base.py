"""Base class of the backends that divide the graph."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from considerate.distributed.options import DivisionOptions
from considerate.distributed.session import start_session
from considerate.fitting.session import FitRequest, FitSession


@dataclass(frozen=True, kw_only=True)
class PartitionedBackend(DivisionOptions):
    """A place where a divided fit runs."""

    def start(self, request: FitRequest) -> AbstractContextManager[FitSession]:
        """Session of a fit, see fitting.driver."""
        return start_session(self, request)
