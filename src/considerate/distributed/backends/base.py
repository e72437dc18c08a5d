"""Base class of the backends that divide the graph."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

from considerate.distributed.options import DivisionOptions
from considerate.distributed.session import start_session
from considerate.fitting.session import FitRequest, FitSession
from considerate.inference.parts import Where


@dataclass(frozen=True, kw_only=True)
class PartitionedBackend(DivisionOptions):
    """A place where a divided fit runs."""

    kind: ClassVar[str] = "disk"

    @property
    def where(self) -> Where:
        """The place of the fit, as parts need to know it to refuse."""
        return Where(self.kind, self.inner_sweeps, users_stay=self.resident != "items" and self.inner_sweeps == 1)

    def start(self, request: FitRequest) -> AbstractContextManager[FitSession]:
        """Session of a fit, see fitting.driver."""
        return start_session(self, request)
