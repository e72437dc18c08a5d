"""considerate forget"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from considerate.cli.options import ModelOutput, grouped, option, read_ids


@dataclass(frozen=True, kw_only=True)
class ForgetOutput(ModelOutput):
    output: str = option(
        "The model file to write, or the folder of shards; it may be the one that is read.", ..., "--output", "-o"
    )


@grouped
def forget(
    model: Annotated[str, typer.Argument(help="The model file, or the folder of a model in shards.")],
    output: ForgetOutput,
    users: Annotated[list[str], typer.Argument(help="Ids of users, as in the data, or @FILE with one a line.")],
) -> None:
    """Take users out of a model: vectors, likes and ids, and what their likes added to popularity and to the walk.

    The items' vectors keep a trace of their likes until the next fit. Checkpoints of the fit, indexes and copies of the
    model are files of their own: remove them. What the disk keeps of a file that was replaced is up to the system.
    """
    from considerate.model.file import forget_users

    names = read_ids(users) or []
    left = forget_users(model, names, output.output, verify=output.verify or None)
    values = {"path": output.output, "forgotten": len(set(names)), "users": left.user_count, "edges": left.users.edges}
    output.report(values, "{forgotten:,} forgotten; {users:,} users and {edges:,} likes in {path}".format_map(values))
