"""Errors that may reach a user.

Every message says what was seen, what was expected and what to do. The shell prints it as one sentence and ends with
`exit_code`: 2 for bad use, 1 for a run that failed.
"""

from __future__ import annotations


class ConsiderateError(Exception):
    """Base of all errors that this library raises on purpose."""

    exit_code = 1


class UsageError(ConsiderateError, ValueError):
    """A setting outside its range, or options that do not go together."""

    exit_code = 2


class DataError(ConsiderateError, ValueError):
    """Input data that cannot be read or does not make a graph."""

    exit_code = 2


class ModelFileError(ConsiderateError, ValueError):
    """A file that is no model of this library, is damaged, or is newer than this library."""

    exit_code = 2


class CheckpointError(ConsiderateError, ValueError):
    """A checkpoint of another fit, or no complete checkpoint."""

    exit_code = 2


class UnknownIdError(ConsiderateError, LookupError):
    """A user or an item that is not in the model."""

    exit_code = 2


class NotFittedError(UsageError, AttributeError):
    """A call of a method that needs a fitted model."""


class OutputError(ConsiderateError, OSError):
    """A file that could not be written; the old file is unchanged."""


class MemoryLimitError(ConsiderateError, MemoryError):
    """A fit that would need too much memory; raised before it starts."""


class DivergedError(ConsiderateError, ArithmeticError):
    """Values that are no longer finite. `last` has the last good posterior."""

    def __init__(self, message: str, last: object = None) -> None:
        super().__init__(message)
        self.last = last


class ClusterError(ConsiderateError, RuntimeError):
    """A cluster that cannot be reached, has too few resources, or keeps losing a worker."""
