"""The command `considerate add-items`, and the options of known pairs and features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import ModelOutput, ModelPath, OptionGroup, check_output, expand_groups, option

if TYPE_CHECKING:
    from considerate.data.features import FeatureTable

_COLUMNS = "Its columns to use, separated by commas, such as genres,year or age:category; all if not given."


class SideGroup(OptionGroup, panel="Known pairs and features"):
    considered: str | None = option(
        "Pairs that were considered and not liked. The file is read like the likes; with --considered-where only its "
        "rows that pass that rule count.",
        None,
    )
    impossible: str | None = option("Pairs that could not be considered: never drawn, never recommended.", None)
    available: str | None = option(
        "A file of items with the columns from and until. An item is impossible for users who were not active in that "
        "time.",
        None,
    )
    active: str | None = option(
        "A file of users with the columns from and until, for --available; the first and last like by --time-column if "
        "not given.",
        None,
    )
    user_groups: str | None = option("A file of users and the groups they are in.", None)
    item_groups: str | None = option("A file of items and the only groups of users that may have them.", None)
    item_features: str | None = option("A table of items with features: categories, tags and numbers.", None)
    item_feature_columns: str | None = option(_COLUMNS, None)
    item_feature_id_column: str | None = option("Its column of item ids; guessed if not given.", None)
    user_features: str | None = option("A table of users with features.", None)
    user_feature_columns: str | None = option("Its columns to use; all if not given.", None)
    user_feature_id_column: str | None = option("Its column of user ids; guessed if not given.", None)

    def pairs(self) -> dict[str, Any]:
        """Return the arguments `considered` and `impossible` of a fit."""
        from considerate.data.known_tables import Impossible

        rules = Impossible(self.impossible, self.available, self.active, self.user_groups, self.item_groups)
        return {"considered": self.considered, "impossible": None if rules == Impossible() else rules}

    def features(self) -> dict[str, FeatureTable | None]:
        """Return the arguments `item_features` and `user_features` of a fit."""
        return {"item_features": self._table("item"), "user_features": self._table("user")}

    def sources(self) -> list[str | None]:
        """Return the files that the options name."""
        pairs = [self.considered, self.impossible, self.available, self.active, self.user_groups, self.item_groups]
        return [*pairs, self.item_features, self.user_features]

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


class NewItems(OptionGroup, panel="The items"):
    id_column: str | None = option("Column of the items' ids; guessed if not given.", None)
    titles: str | None = option("A file of ids and titles of the new items.", None)


@expand_groups
def add_items(
    model: ModelPath,
    features: Annotated[str, typer.Argument(help="A table of items with the columns of the fit's features.")],
    new: NewItems,
    shown: ModelOutput,
    output: Annotated[str, typer.Option("--output", "-o", help="The model file to write.")],
) -> None:
    """Add new items without likes to a model, by their features alone.

    The model must have been fitted with --item-features. Items that have likes stay as they are. An index of the items
    (`considerate index`) belongs to the old model: build it again.
    """
    check_output(output, model, features, new.titles)
    with screen.library_messages(shown.quiet):
        recommender = shown.load(model)
        before = recommender.model_.item_count
        recommender.add_items(features, titles=new.titles, id_column=new.id_column)
        recommender.save(output)
    values = {"path": output, "items": recommender.model_.item_count, "added": recommender.model_.item_count - before}
    values["cold"] = len(recommender.model_.cold_items)
    text = "{added:,} items added, {cold:,} of {items:,} have no likes; saved in {path}"
    shown.report(values, text.format_map(values))
