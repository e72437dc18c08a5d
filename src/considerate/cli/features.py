"""considerate add-items, and the options that say where features are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from considerate.cli import screen
from considerate.cli.options import ModelOutput, grouped, option

if TYPE_CHECKING:
    from considerate.data.features import FeatureTable

_COLUMNS = "Its columns to use, with commas between them, such as genres,year or age:category; all if not given."


@dataclass(frozen=True, kw_only=True)
class FeatureFiles:
    panel: ClassVar[str] = "Features"
    item_features: str | None = option("A table of items by id: categories, tags and numbers that tell of them.", None)
    item_feature_columns: str | None = option(_COLUMNS, None)
    item_feature_id_column: str | None = option("Its column of item ids; guessed if not given.", None)
    user_features: str | None = option("The same of users.", None)
    user_feature_columns: str | None = option("Its columns to use; all if not given.", None)
    user_feature_id_column: str | None = option("Its column of user ids; guessed if not given.", None)

    def tables(self) -> dict[str, FeatureTable | None]:
        """By the names of a fit's arguments; UsageError of a column that is named without a table."""
        return {"item_features": self._table("item"), "user_features": self._table("user")}

    def _table(self, side: str) -> FeatureTable | None:
        from considerate.data.read_features import read_features
        from considerate.errors import UsageError

        source, columns, id_column = (
            getattr(self, f"{side}_{name}") for name in ("features", "feature_columns", "feature_id_column")
        )
        if source is None:
            if columns is not None or id_column is not None:
                raise UsageError(f"--{side}-feature-columns and --{side}-feature-id-column go with --{side}-features.")
            return None
        names = None if columns is None else [name.strip() for name in columns.split(",")]
        return read_features(source, side, id_column=id_column, columns=names)


@dataclass(frozen=True, kw_only=True)
class NewItems:
    panel: ClassVar[str] = "The items"
    id_column: str | None = option("Column of the items' ids; guessed if not given.", None)
    titles: str | None = option("A file of item ids and titles, of the new ones.", None)


@grouped
def add_items(
    model: Annotated[str, typer.Argument(help="The model file, or the folder of a model in shards.")],
    features: Annotated[str, typer.Argument(help="A table of items with the columns of the fit's features.")],
    new: NewItems,
    shown: ModelOutput,
    output: Annotated[str, typer.Option("--output", "-o", help="The model file to write.")],
) -> None:
    """Add items that nobody has liked yet to a model, by their features alone.

    The model must have been fitted with --item-features. Items that have likes stay as they are. A recommender's index
    (`considerate index`) is of the model as it was, and has to be made again.
    """
    from considerate.data.output import check_apart
    from considerate.recommender import Recommender
    from considerate.storage.files import check_writable

    check_apart(output, model, features, new.titles)
    check_writable(output)
    with screen.library_messages(shown.quiet):
        recommender = Recommender.load(model, verify=shown.verify or None)
        before = recommender.model_.item_count
        recommender.add_items(features, titles=new.titles, id_column=new.id_column)
        recommender.save(output)
    values = {"path": output, "items": recommender.model_.item_count, "added": recommender.model_.item_count - before}
    values["cold"] = len(recommender.model_.cold_items)
    text = "{added:,} items added, {cold:,} of {items:,} have no likes; saved in {path}"
    shown.report(values, text.format_map(values))
