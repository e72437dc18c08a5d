"""The commands `considerate find` and `considerate similar`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import ModelOutput, ModelPath, expand_groups

Count = Annotated[int, typer.Option("--count", "-n", help="How many items, at most.")]


@expand_groups
def find(
    model: ModelPath,
    output: ModelOutput,
    text: Annotated[list[str], typer.Argument(help="What to look for; several words are one text.")],
    count: Count = 10,
) -> None:
    """Find items by their titles, whatever the case and the accents.

    Titles equal to the text come first, then titles that begin with it, then titles with a word that begins with it.
    Within each group the most liked come first.
    """
    wanted = " ".join(text)
    rows = [match._asdict() for match in output.load(model).find(wanted, count)]
    columns = {">item": "{item}", "title": "{title}", ">likes": "{likes:,}"}
    _report(output, rows, columns, f"no title has {wanted!r}.")


@expand_groups
def similar(
    model: ModelPath,
    output: ModelOutput,
    item: Annotated[str, typer.Argument(help="The id of an item, or a title that only one item has.")],
    count: Count = 10,
) -> None:
    """Show the items most similar to one: those whose vectors have the largest cosine with its vector."""
    from considerate.model.find import item_called

    recommender = output.load(model)
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
