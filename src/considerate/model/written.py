"""Check of a model's file before it takes its name: a good file is never replaced by one that cannot be loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from considerate.errors import ModelFileError, OutputError
from considerate.storage.container import Bytes, StoredTensors, read_tensors


def check_of(shown: str, read: Callable[[StoredTensors], Any]) -> Callable[[Bytes], None]:
    """Make a check that a written file can be read again, every value of it."""

    def check(written: Bytes) -> None:
        stored = read_tensors(written, shown, verify=False)  # the checksums have just been computed
        stored.thorough = True
        try:
            read(stored)
        except ModelFileError as error:
            reason = str(error).removeprefix(f"{shown}: ").partition(";")[0]
            raise OutputError(
                f"{shown}: was not written, as it could not be loaded ({reason}); the old file is untouched. Fit "
                "again, and report how the model was made."
            ) from error

    return check
