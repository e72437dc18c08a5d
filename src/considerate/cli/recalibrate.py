"""The command `considerate recalibrate`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import ModelPath, NewModelOutput, OptionGroup, Seed, UntitledReader, expand_groups, option
from considerate.errors import DataError


class RecalibrationGroup(OptionGroup, panel="The recalibration"):
    equal_classes: bool = option(
        "Give liked pairs the same total weight as the others, like the model's fair coin. p(like) is then not the "
        "share of likes among such pairs.",
        False,
    )


@expand_groups
def recalibrate(
    model: ModelPath,
    judged: Annotated[
        str,
        typer.Argument(
            help="Pairs that are known to have been considered: rows that pass --where were liked, the others not. "
            "Without --where the rows need a column `liked` of true and false, or 1 and 0."
        ),
    ],
    reader: UntitledReader,
    options: RecalibrationGroup,
    output: NewModelOutput,
    seed: Seed = 0,
) -> None:
    """Correct p(like) and its interval with pairs that people judged.

    p(like) becomes the share of likes among pairs such as these. Pairs that were likes in training are left out, and so
    are pairs of unknown users or items. Rankings do not change, except with --score p_like.
    """
    from considerate.cli.describe import described_recalibration
    from considerate.data import read_judged
    from considerate.data.output import check_apart
    from considerate.evaluation.fitted import calibration_tables
    from considerate.evaluation.recalibration import judged_rows
    from considerate.model.reliability import EACH, EQUAL

    path, equal = output.output, options.equal_classes
    check_apart(path, judged)
    recommender = output.load(model)
    fitted, shards = recommender.model_, output.shards_like(recommender)
    with screen.library_messages(output.quiet):
        liked, others = read_judged(judged, reader if reader.where else replace(reader, where="liked = 1"))
        output.note(*liked.notes)
        if others is None:
            raise DataError(
                f"{judged}: all {liked.rows_kept:,} rows are liked; a recalibration also needs pairs that were "
                "considered and not liked."
            )
        users, items, truth, unknown = judged_rows(fitted, liked, others)
        if len(users) == 0:
            raise DataError(
                f"{judged}: none of the {unknown:,} judged pairs has a user and an item that {model} knows; give pairs "
                "with the ids of its training."
            )
        values = {"path": path, "unknown": unknown, "liked": float(truth.mean()), "weights": EQUAL if equal else EACH}
        recommender.set_params(seed=seed)
        recommender.recalibrate(users, items, truth, equal, by="row")
        values["calibration"] = calibration_tables(fitted, users, items, truth, seed, equal)
    recommender.save(path, shards=shards)
    values |= described_recalibration(recommender.model_)
    output.report(values, _show)


def _show(values: dict[str, Any]) -> None:
    facts = {
        "pairs": "{recalibration[pairs]:,} judged pairs, {liked:.1%} of them liked",
        "left out": "{unknown:,} of unknown users or items, {recalibration[training]:,} likes of the training"
        if values["unknown"] + values["recalibration"]["training"]
        else None,
        "p(like)": "{recalibrated}",
        "interval": "{interval}",
    }
    screen.show_facts(facts, values, values["path"])
    columns = {"p(like)": "{name}", ">log loss": "{log_loss:.4f}", ">calibration error": "{calibration_error:.4f}"}
    rows = ({"name": name} | table for name, table in values["calibration"].items())
    screen.show_table(columns | {">AUC": "{auc:.3f}"}, rows, caption=f"weights: {values['weights']}")
