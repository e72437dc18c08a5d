"""considerate refit"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import typer

from considerate.cli import screen
from considerate.cli.options import Data, Output, Reader, grouped, option
from considerate.errors import ConsiderateError, UsageError


@dataclass(frozen=True, kw_only=True)
class Again:
    panel: ClassVar[str] = "The events"
    events: str = option("The SQLite file of the service: considerate serve --events.", ...)
    every: float | None = option("Do it again and again, so many seconds apart, until Ctrl-C.", None)


@grouped
def refit(
    model: Annotated[str, typer.Argument(help="The model file; a service that serves it swaps the new one in.")],
    data: Data,
    again: Again,
    reader: Reader,
    output: Output,
) -> None:
    """Fit anew to the data and the events of a service, and replace the model unless the new one is worse.

    The settings are those of the model. The latest new like of up to 2,000 users is held out and ranked by both models;
    the new one is worse if its NDCG@20 is lower by more than chance explains (95 %, one-sided). Users whose events were
    erased are left out of the data, too.
    """
    if os.path.isdir(model):
        raise UsageError(f"{model}: is a folder of shards; refit replaces a model in one file.")
    if not os.path.exists(again.events):
        raise UsageError(f"{again.events}: no such file; give the one that `considerate serve --events` writes.")
    if again.every is not None and not again.every > 0:
        raise UsageError(f"--every is {again.every}; it must be above 0.")
    try:
        from considerate.service.events import EventStore
        from considerate.service.metrics import Metrics
        from considerate.service.refit import refit as fit_anew

        store = EventStore(again.events, Metrics())
    except ImportError as error:
        raise UsageError(f"refit needs {error.name}; install it: pip install 'considerate[serve]'.") from error
    try:
        while True:
            try:
                with screen.library_messages(output.quiet):
                    result = fit_anew(model, data, reader, store)
                output.report(asdict(result), _show)
            except ConsiderateError as error:
                if again.every is None:
                    raise
                screen.say("warning", str(error))
            if again.every is None:
                return
            time.sleep(again.every)
    finally:
        store.close()


def _show(values: dict[str, Any]) -> None:
    facts = {
        "likes": "{likes:,}: {added:,} added by events, {removed:,} removed",
        "judged": "{judged:,} likes held out: NDCG@20 {new:.4f}, of the old model {old:.4f}"
        if values["judged"]
        else "no new like to judge by",
        "events": "up to {sequence}",
        "model": "replaced" if values["swapped"] else "kept: the new one is worse",
    }
    screen.show_facts(facts, values)
