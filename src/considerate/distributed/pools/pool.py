"""A worker pool, as a sweep sees it: parts, and a way to call them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Merge = Callable[[Any, Any], Any]
Method = str | Callable[..., Any]


@dataclass(frozen=True)
class PerPart:
    """An argument with a value for each part, in the order of the parts."""

    values: Sequence[Any]


class WorkerPool(Protocol):
    """Parts, and a way to call them. Whoever sweeps knows no more of where they are."""

    parts: int

    def share(self, value: Any) -> Any:
        """A handle to a value that many calls use; it travels once."""
        ...

    def call(self, method: Method, *arguments: Any, merge: Merge | None = None, changes: bool = False) -> Any:
        """part.<method>(*arguments), or method(part, *arguments), of every part; handles are resolved.

        With `merge` the merged answer, else a list in the order of the parts. `changes` says that the parts' state
        changes; a call that fails changes none.
        """
        ...

    def snapshot(self, write: Callable[[int, Any], Any], read: Callable[[int], Any] | None = None) -> list[Any]:
        """write(number, state) of every part, where the part is; `read(number)` must return that state later."""
        ...

    def name_checkpoint(self, name: str | None) -> None:
        """Set the folder of the last complete checkpoint, which error messages name."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class SinglePartCall:
    """A method of one part alone; of the others nothing is asked, and they answer None."""

    number: int
    method: str

    def __call__(self, part: Any, *arguments: Any) -> Any:
        return getattr(part, self.method)(*arguments) if part.number == self.number else None


def call_part(
    part: Any, method: Method, arguments: Sequence[Any], place: int, resolve: Callable[[Any], Any] | None = None
) -> Any:
    """part.<method>(*arguments), or method(part, *arguments); of a PerPart the value at `place`, resolved."""
    given = [one.values[place] if isinstance(one, PerPart) else one for one in arguments]
    if resolve is not None:
        given = [resolve(one) for one in given]
    return getattr(part, method)(*given) if isinstance(method, str) else method(part, *given)
