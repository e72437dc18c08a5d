"""considerate index"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from considerate.cli.options import ModelOutput, grouped, option


@dataclass(frozen=True, kw_only=True)
class Lists:
    panel: ClassVar[str] = "The index"
    lists: int | None = option("Lists that the items are cut into; 4 sqrt(items) if not given.", None)


@grouped
def index(
    model: Annotated[str, typer.Argument(help="The model file, or the folder of a model in shards.")],
    cut: Lists,
    shown: ModelOutput,
    output: Annotated[str, typer.Option("--output", "-o", help="Write the index to this file.")],
) -> None:
    """Make an index of the items, for single requests in a large catalogue: considerate recommend --index.

    Items are cut into lists of near ones by faiss (of the extra `ann`). The index is for this model alone;
    others refuse it.
    """
    from considerate.data.output import check_apart
    from considerate.recommender import Recommender
    from considerate.storage.files import check_writable

    check_apart(output, model)
    check_writable(output)
    made = Recommender.load(model, verify=shown.verify or None).build_index(cut.lists)
    made.save(output)
    values = {"path": output, "items": len(made.lists), "lists": len(made.centres)}
    shown.report(values, "{items:,} items in {lists:,} lists written to {path}".format_map(values))
