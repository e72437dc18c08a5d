"""The command `considerate refit`."""

from __future__ import annotations

import os
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import OptionGroup, Output, StudyReader, expand_groups, option
from considerate.data.options import ReaderOptions
from considerate.errors import UsageError

How = StrEnum("How", ["fit", "update"])
HOW = "Fit to all likes from the start, or update the model with the changes, in a small part of the time."


class RefitGroup(OptionGroup, panel="The refit"):
    events: str = option("The SQLite file of the service: considerate serve --events.", ...)
    how: How = option(HOW, How.fit)
    considered: bool | None = option(
        "Give a fit the events of the kind `considered` as pairs that were considered and not liked. If not given, as "
        "in the last refit of the model; off in the first.",
        None,
        "--considered/--no-considered",
    )
    every: float | None = option("Repeat the refit every so many seconds, until Ctrl-C.", None)


@expand_groups
def refit(
    model: Annotated[
        str, typer.Argument(help="The model file, or its folder of shards. A running service loads the new one.")
    ],
    options: RefitGroup,
    reader: StudyReader,
    output: Output,
    data: Annotated[
        str | None, typer.Argument(help="The likes before the events, as for `fit`; those in the model if not given.")
    ] = None,
) -> None:
    """Put the events of a service into its model, and replace the model unless the new one is worse.

    The settings are those of the model. For up to 2,000 users the latest new like is held out, and both models rank it.
    The new model is worse if its NDCG@20 is lower by more than chance explains (95 %, one-sided). Users whose events
    were erased are left out of the data as well.
    """
    if not os.path.exists(options.events):
        raise UsageError(f"{options.events}: no such file; give the one that `considerate serve --events` writes.")
    if options.every is not None and not options.every > 0:
        raise UsageError(f"--every is {options.every}; it must be above 0.")
    if data is None and reader != ReaderOptions():
        raise UsageError("the options of reading go with DATA; without it the likes are those in the model.")
    try:
        from considerate.service.events import EventStore
        from considerate.service.metrics import Metrics
        from considerate.service.refit import Refit, RefitResult
        from considerate.service.refit_loop import rounds

        store = EventStore(options.events, Metrics())
    except ImportError as error:
        raise UsageError(f"refit needs {error.name}; install it: pip install 'considerate[serve]'.") from error
    try:
        job = Refit(model, store, options.how.value, data, reader, options.considered)
        with screen.library_messages(output.quiet):
            for outcome in [job.run()] if options.every is None else rounds(job, options.every):
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
