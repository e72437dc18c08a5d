"""considerate update"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from considerate.cli import screen
from considerate.cli.options import ModelOutput, Reader, grouped, option
from considerate.errors import UsageError
from considerate.parameters import DRIFT


@dataclass(frozen=True, kw_only=True)
class Since:
    panel: ClassVar[str] = "The update"
    days: float = option("Days since the fit, or since the last update.", 1.0)
    drift: float = option("Variance that a coordinate of a vector, or a bias, gains a day.", DRIFT)
    removed: str | None = option("Likes to take out, in a file that is read by the same options.", None)
    threads: int | None = option("Threads; all processors if not given.", None)


@dataclass(frozen=True, kw_only=True)
class UpdateOutput(ModelOutput):
    output: str = option("The model file to write; of a model in shards a folder.", ..., "--output", "-o")


@grouped
def update(
    model: Annotated[str, typer.Argument(help="The model file, or the folder of a model in shards.")],
    reader: Reader,
    since: Since,
    output: UpdateOutput,
    data: Annotated[str | None, typer.Argument(metavar="NEW", help="The likes that came since, as for `fit`.")] = None,
) -> None:
    """Bring a model up to date from the likes that came since, in a small part of the time of a fit.

    What was learned is the prior of every user and item that a new like touches. New users and items are added, likes
    are merged; the weights of the ranking and the recalibration stay. It runs in memory, whatever the model was fitted
    on.
    """
    from considerate.data.output import check_apart
    from considerate.model.shards import ShardedUsers
    from considerate.recommender import Recommender
    from considerate.storage.files import check_writable

    path = output.output
    if data is None and since.removed is None:
        raise UsageError("there is nothing to learn; give a file of new likes, or --removed FILE.")
    check_apart(path, data, since.removed, reader.titles)
    with screen.library_messages(output.quiet):
        recommender = Recommender.load(model, verify=output.verify or None)
        users = recommender.model_.users
        shards = len(users.first) - 1 if isinstance(users, ShardedUsers) else None
        if shards is None:
            check_writable(path)
        before, begun = (users.edges, recommender.model_.updates.likes), time.perf_counter()
        recommender.set_params(threads=since.threads)
        recommender.update(data, days=since.days, drift=since.drift, removed=since.removed, reader=reader)
        seconds, after = time.perf_counter() - begun, recommender.model_
        recommender.save(path, shards=shards)
    new = after.updates.likes - before[1]
    values = {"path": path, "users": after.user_count, "items": after.item_count, "edges": after.users.edges}
    values |= {"new_likes": new, "removed_likes": before[0] + new - after.users.edges, "seconds": seconds}
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
