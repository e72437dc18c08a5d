"""The command `considerate index`."""

from __future__ import annotations

from typing import Annotated

import typer

from considerate.cli.options import ModelOutput, ModelPath, OptionGroup, check_output, expand_groups, option


class IndexGroup(OptionGroup, panel="The index"):
    lists: int | None = option("Number of lists to divide the items into; 4 sqrt(items) if not given.", None)


@expand_groups
def index(
    model: ModelPath,
    options: IndexGroup,
    shown: ModelOutput,
    output: Annotated[str, typer.Option("--output", "-o", help="Write the index to this file.")],
) -> None:
    """Build an index of the items, for single requests in a large catalogue: considerate recommend --index.

    faiss (in the extra `ann`) divides the items into lists of similar ones. An index works with this model alone; other
    models refuse it.
    """
    check_output(output, model)
    made = shown.load(model).build_index(options.lists)
    made.save(output)
    values = {"path": output, "items": len(made.lists), "lists": len(made.centres)}
    shown.report(values, "{items:,} items in {lists:,} lists written to {path}".format_map(values))
