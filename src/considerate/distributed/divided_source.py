"""The data of a divided fit as it is seen here: looked at before anything is started, and described."""

from __future__ import annotations

import os
from typing import Any

from considerate.data import Interactions, ReaderOptions
from considerate.data.fingerprint import describe_data, digest_ids, digest_likes
from considerate.data.graph import USERS, GraphPart
from considerate.data.read import open_parquet_likes, read_likes
from considerate.data.sources import open_input
from considerate.distributed.exchange import DividedData
from considerate.distributed.tasks import Tasks
from considerate.errors import UsageError


def read_here(source: Any, options: ReaderOptions) -> Interactions | None:
    """The likes of a source that is not Parquet; None of Parquet, which tasks read. What can be seen to be wrong with
    that is refused: a file that is not there, columns, the rule."""
    if options.time_column is not None:
        raise UsageError("time_column is for splits by time; leave it out where the graph is divided.")
    if open_parquet_likes(source, options) is None:
        return read_likes(source, options)
    if isinstance(options.titles, str | os.PathLike):
        open_input(options.titles)
    return None


def describe_divided(data: DividedData, tasks: Tasks) -> dict[str, Any]:
    """The data of a divided fit, as `saved_state.describe_graph` has it of a graph that is here whole."""
    outline = data.outline
    likes = tasks.get([tasks.submit(digest_part, part) for part in data.parts])
    ids = tasks.get([tasks.submit(digest_ids, one) for one in data.user_ids])
    here = digest_ids(data.item_ids)
    resident, other = (ids, here) if data.resident == USERS else ([here], ids[0])
    return describe_data(
        outline.user_count,
        outline.item_count,
        outline.edges,
        resident=data.resident,
        likes=likes,
        resident_ids=resident,
        other_ids=other,
    )


def digest_part(part: GraphPart) -> str:
    return digest_likes(part.likes)
