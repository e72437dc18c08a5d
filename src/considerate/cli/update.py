"""The command `considerate update`."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import ModelPath, NewModelOutput, OptionGroup, Reader, expand_groups, option
from considerate.errors import UsageError
from considerate.inference.plan import DRIFT


class UpdateGroup(OptionGroup, panel="The update"):
    days: float = option("Days since the fit, or since the last update.", 1.0)
    drift: float = option("Variance that each coordinate of a vector, and each bias, gains per day.", DRIFT)
    removed: str | None = option("A file of likes to remove, read with the same options.", None)
    threads: int | None = option("Number of threads; all processors if not given.", None)


@expand_groups
def update(
    model: ModelPath,
    reader: Reader,
    options: UpdateGroup,
    output: NewModelOutput,
    data: Annotated[str | None, typer.Argument(metavar="NEW", help="The new likes, as for `fit`.")] = None,
) -> None:
    """Update a model with new likes, in a small part of the time of a fit.

    The posterior so far is the prior of every user and item that a new like touches. New users and items are added, and
    the likes are merged. The weights of the ranking and the recalibration stay. The update runs in memory, whatever the
    model was fitted on.
    """
    from considerate.data.output import check_apart

    path = output.output
    if data is None and options.removed is None:
        raise UsageError("there is nothing to learn; give a file of new likes, or --removed FILE.")
    check_apart(path, data, options.removed, reader.titles)
    with screen.library_messages(output.quiet):
        recommender = output.load(model)
        shards, begun = output.shards_like(recommender), time.perf_counter()
        edges, likes = recommender.model_.users.edges, recommender.model_.updates.likes
        recommender.set_params(threads=options.threads)
        recommender.update(data, days=options.days, drift=options.drift, removed=options.removed, reader=reader)
        seconds, after = time.perf_counter() - begun, recommender.model_
        recommender.save(path, shards=shards)
    new = after.updates.likes - likes
    values = {"path": path, "users": after.user_count, "items": after.item_count, "edges": after.users.edges}
    values |= {"new_likes": new, "removed_likes": edges + new - after.users.edges, "seconds": seconds}
    values |= {"updates": vars(after.updates)}
    output.report(values, _show)


def _show(values: dict[str, Any]) -> None:
    removed = ", {removed_likes:,} removed" if values["removed_likes"] else ""
    facts = {
        "new": "{new_likes:,} likes" + removed,
        "model": "{users:,} users, {items:,} items, {edges:,} likes",
        "updated": "{updates[count]:,} times since the fit, in {updates[days]:g} days",
        "time": "{seconds:.1f} s",
    }
    screen.show_facts(facts, values, values["path"])
