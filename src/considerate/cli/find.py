"""considerate find, considerate similar"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import ModelOutput, grouped

Count = Annotated[int, typer.Option("--count", "-n", help="How many items, at most.")]
ModelPath = Annotated[str, typer.Argument(help="The model file, or the folder of a model in shards.")]


@grouped
def find(
    model: ModelPath,
    output: ModelOutput,
    text: Annotated[list[str], typer.Argument(help="What to look for; several words are one text.")],
    count: Count = 10,
) -> None:
    """Find items by their titles, whatever the case and the accents.

    Titles that are the text come first, then those that begin with it, then those with a word that begins with it;
    among these the most liked.
    """
    from considerate.recommender import Recommender

    wanted = " ".join(text)
    found = Recommender.load(model, verify=output.verify or None).find(wanted, count)
    columns = {">item": "{item}", "title": "{title}", ">likes": "{likes:,}"}
    _report(output, [match._asdict() for match in found], columns, f"no title has {wanted!r}.")


@grouped
def similar(
    model: ModelPath,
    output: ModelOutput,
    item: Annotated[str, typer.Argument(help="The id of an item, or a title that is of one item alone.")],
    count: Count = 10,
) -> None:
    """Show the items that are most like one: those whose vectors have the largest cosine with its own."""
    from considerate.model.find import item_called
    from considerate.recommender import Recommender

    recommender = Recommender.load(model, verify=output.verify or None)
    name = item_called(recommender.model_, item)
    ids, cosines = recommender.similar_items(name, count, filter_items=[name])
    degree = recommender.model_.item_degree[recommender.item_rows(ids)]
    rows = [
        {"rank": rank, "item": each, "title": title, "likes": likes, "cosine": cosine}
        for rank, (each, title, likes, cosine) in enumerate(
            zip(ids.tolist(), recommender.titles(ids), degree.tolist(), cosines.tolist(), strict=True), 1
        )
    ]
    columns = {">#": "{rank}", ">item": "{item}", "title": "{title}", ">likes": "{likes:,}", ">cosine": "{cosine:.3f}"}
    _report(output, rows, columns, "there is no other item.", f"like {recommender.titles(name)[0]}")


def _report(
    output: ModelOutput, rows: list[dict[str, Any]], columns: dict[str, str], nothing: str, title: str | None = None
) -> None:
    if output.json:
        screen.print_json(rows)
    elif rows:
        screen.show_table(columns, rows, title)
    else:
        screen.show(nothing)
