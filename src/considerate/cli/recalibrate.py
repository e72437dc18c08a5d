"""considerate recalibrate"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import typer

from considerate.cli import screen
from considerate.cli.options import ModelOutput, Seed, UntitledReader, grouped, option
from considerate.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Weighing:
    panel: ClassVar[str] = "The recalibration"
    equal_classes: bool = option(
        "Let liked pairs weigh as much as the others in total, as the model's fair coin has it. p(like) is then not "
        "the share of likes among such pairs.",
        False,
    )


@dataclass(frozen=True, kw_only=True)
class RecalibrateOutput(ModelOutput):
    output: str = option("The model file to write; of a model in shards a folder.", ..., "--output", "-o")


@grouped
def recalibrate(
    model: Annotated[str, typer.Argument(help="The model file, or the folder of a model in shards.")],
    judged: Annotated[
        str,
        typer.Argument(
            help="Pairs that are known to have been considered: rows that pass --where were liked, the others not. "
            "Without --where a column `liked` of true and false, or 1 and 0, tells them apart."
        ),
    ],
    reader: UntitledReader,
    weighing: Weighing,
    output: RecalibrateOutput,
    seed: Seed = 0,
) -> None:
    """Correct p(like) and its interval by pairs that people judged.

    p(like) becomes the share of likes among pairs such as these. Pairs that the model was trained on as likes, and
    those of users and items that it does not know, are left out. Rankings do not change, but for --score p_like.
    """
    from considerate.cli.describe import described_recalibration
    from considerate.data import read_judged
    from considerate.data.output import check_apart
    from considerate.evaluation.fitted import honesty
    from considerate.evaluation.recalibration import judged_rows
    from considerate.model.reliability import EACH, EQUAL
    from considerate.model.shards import ShardedUsers
    from considerate.recommender import Recommender
    from considerate.storage.files import check_writable

    path = output.output
    check_apart(path, judged)
    recommender = Recommender.load(model, verify=output.verify or None)
    fitted = recommender.model_
    shards = len(fitted.users.first) - 1 if isinstance(fitted.users, ShardedUsers) else None
    if shards is None:
        check_writable(path)
    with screen.library_messages(output.quiet):
        liked, others = read_judged(judged, reader if reader.where else replace(reader, where="liked = 1"))
        screen.say_notes(liked.notes, output.quiet)
        if others is None:
            raise DataError(
                f"{judged}: all {liked.rows_kept:,} rows are liked; a recalibration needs pairs that were considered "
                "and not liked, too."
            )
        users, items, truth, unknown = judged_rows(fitted, liked, others)
        if len(users) == 0:
            raise DataError(
                f"{judged}: none of the {unknown:,} judged pairs has a user and an item that {model} knows; give pairs "
                "with the ids of its training."
            )
        values = {"path": path, "unknown": unknown, "liked": float(truth.mean()) if len(truth) else 0.0}
        values["weights"] = EQUAL if weighing.equal_classes else EACH
        recommender.set_params(seed=seed)
        recommender.recalibrate(users, items, truth, weighing.equal_classes, by="row")
        values["calibration"] = honesty(fitted, users, items, truth, seed, weighing.equal_classes)
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
    screen.show_table(columns | {">AUC": "{auc:.3f}"}, rows, caption=f"weighed: {values['weights']}")
