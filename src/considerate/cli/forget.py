"""The command `considerate forget`."""

from __future__ import annotations

from typing import Annotated

import typer

from considerate.cli.options import ModelOutput, ModelPath, expand_groups, option, read_ids


class ForgetOutput(ModelOutput):
    output: str = option(
        "The model file to write, or the folder of shards; it may be the one that is read.", ..., "--output", "-o"
    )


@expand_groups
def forget(
    model: ModelPath,
    output: ForgetOutput,
    users: Annotated[list[str], typer.Argument(help="Ids of users, as in the data, or @FILE with one a line.")],
) -> None:
    """Remove users from a model: their vectors, likes and ids, and their part in the popularity and the walk.

    The items' vectors keep a trace of these likes until the next fit. Checkpoints of the fit, indexes and copies of the
    model are separate files: remove them. The disk may keep old blocks of a replaced file; that is up to the system.
    """
    from considerate.model.file import forget_users

    names = read_ids(users) or []
    left = forget_users(model, names, output.output, verify=output.verify or None)
    values = {"path": output.output, "forgotten": len(set(names)), "users": left.user_count, "edges": left.users.edges}
    output.report(values, "{forgotten:,} forgotten; {users:,} users and {edges:,} likes in {path}".format_map(values))
