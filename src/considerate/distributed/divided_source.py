"""The data of a divided fit as it is seen here: looked at before anything is started, and described."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from considerate.data import Interactions, read_interactions
from considerate.data.columns import pick_pair
from considerate.data.fingerprint import describe_data, digest_ids, digest_likes
from considerate.data.graph import USERS, GraphPart
from considerate.data.inputs import is_database, open_input
from considerate.data.parquet import ParquetInput
from considerate.data.read import choose_rule
from considerate.data.titles import check_title_options
from considerate.distributed.exchange import DividedData
from considerate.distributed.tasks import Tasks
from considerate.errors import UsageError

OPTIONS = (
    "user_column",
    "item_column",
    "rating_column",
    "where",
    "titles",
    "title_id_column",
    "title_column",
    "query",
)


def read_here(source: Any, reader: Mapping[str, Any]) -> Interactions | None:
    """The likes of a source that is not Parquet; None of Parquet, which tasks read. What can be seen to be wrong with
    that is refused: a file that is not there, columns, the rule."""
    unknown = [name for name in reader if name not in OPTIONS]
    if unknown:
        raise UsageError(f"reader has {unknown[0]!r}; where the graph is divided it may have {', '.join(OPTIONS)}.")
    given = {name: reader.get(name) for name in OPTIONS}
    if not isinstance(source, str | os.PathLike) or is_database(source):
        return read_interactions(source, **given)
    headers = [given[name] for name in ("user_column", "item_column", "rating_column")]
    table = open_input(source, given["query"], [name for name in headers if isinstance(name, str)])
    if not isinstance(table, ParquetInput):
        return read_interactions(source, **given)
    user, item, _ = pick_pair(table.names, given["user_column"], given["item_column"], table.name)
    choose_rule(table, (user, item), given["rating_column"], given["where"])
    check_title_options(given["titles"], given["title_id_column"], given["title_column"])
    if isinstance(given["titles"], str | os.PathLike):
        open_input(given["titles"])
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
