"""considerate refit"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar

import typer

from considerate.cli import screen
from considerate.cli.options import Output, StudyReader, grouped, option
from considerate.data.options import ReaderOptions
from considerate.errors import UsageError

How = StrEnum("How", ["fit", "update"])
HOW = "Fit to all likes anew, or update the model by what has changed, in a small part of the time."


@dataclass(frozen=True, kw_only=True)
class Again:
    panel: ClassVar[str] = "The refit"
    events: str = option("The SQLite file of the service: considerate serve --events.", ...)
    how: How = option(HOW, How.fit)
    considered: bool | None = option(
        "Give a fit the events of `considered` as pairs that were considered and not liked; if not given, as in the "
        "last refit of the model, and not in the first.",
        None,
        "--considered/--no-considered",
    )
    every: float | None = option("Do it again and again, so many seconds apart, until Ctrl-C.", None)


@grouped
def refit(
    model: Annotated[
        str, typer.Argument(help="The model file, or its folder of shards; a service swaps the new one in.")
    ],
    again: Again,
    reader: StudyReader,
    output: Output,
    data: Annotated[
        str | None, typer.Argument(help="The likes to begin with, as for `fit`; those in the model if not given.")
    ] = None,
) -> None:
    """Put the events of a service into its model, and replace the model unless the new one is worse.

    The settings are those of the model. The latest new like of up to 2,000 users is held out and ranked by both models;
    the new one is worse if its NDCG@20 is lower by more than chance explains (95 %, one-sided). Users whose events were
    erased are left out of the data, too.
    """
    if not os.path.exists(again.events):
        raise UsageError(f"{again.events}: no such file; give the one that `considerate serve --events` writes.")
    if again.every is not None and not again.every > 0:
        raise UsageError(f"--every is {again.every}; it must be above 0.")
    if data is None and reader != ReaderOptions():
        raise UsageError("the options of reading go with DATA; without it the likes are those in the model.")
    try:
        from considerate.service.events import EventStore
        from considerate.service.metrics import Metrics
        from considerate.service.refit import Refit, RefitResult
        from considerate.service.refit_loop import rounds

        store = EventStore(again.events, Metrics())
    except ImportError as error:
        raise UsageError(f"refit needs {error.name}; install it: pip install 'considerate[serve]'.") from error
    try:
        job = Refit(model, store, again.how.value, data, reader, again.considered)
        with screen.library_messages(output.quiet):
            for outcome in [job.run()] if again.every is None else rounds(job, again.every):
                if isinstance(outcome, RefitResult):
                    output.report(asdict(outcome), _show)
                else:
                    screen.say("warning", str(outcome))
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
