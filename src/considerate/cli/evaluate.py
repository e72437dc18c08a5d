"""considerate evaluate"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import typer

from considerate.cli import screen
from considerate.cli.options import ModelOutput, Ranking, Seed, UntitledReader, check_inputs_kept, grouped, option
from considerate.errors import UsageError

METRICS = {
    "S_rank": "of the items not liked in training, the share that a held-out one is ranked above; ties count half",
    "S_rank tail": "the same for items of degree under 100 in training, over held-out likes",
    "MRR": "1 / position of the first held-out item",
    "Recall": "held-out items in the list / held-out items",
    "NDCG": "discounted by log2(1 + position), against the best possible list",
    "MAP": "average precision over min(k, held-out items)",
    "hit rate": "users with a held-out item in the list",
    "popularity": "mean degree of what is recommended",
    "novelty": "mean of -log2(degree / users) of what is recommended",
}
LEFT_OUT = {
    "unknown_users": "of users without likes in the model",
    "unknown_items": "of items that it does not know",
    "in_training": "that it was fitted to",
    "duplicates": "duplicates",
}


@dataclass(frozen=True, kw_only=True)
class Evaluation(Ranking):
    """How a model is evaluated."""

    panel: ClassVar[str] = "How it is evaluated"
    k: list[int] | None = option("Length of the lists; repeat it. 10 and 20 if not given.", None, "-k")
    resamples: int = option("Resamples of the bootstrap over users.", 1000)


@dataclass(frozen=True, kw_only=True)
class EvaluateOutput(ModelOutput):
    recalibrate: str | None = option(
        "Fit a recalibration of p(like) to TEST, and write the model with it to this file.", None
    )


@grouped
def evaluate(
    model: Annotated[str, typer.Argument(help="The model file.")],
    test: Annotated[
        str, typer.Argument(help="Likes that it was not fitted to: a file, folder or database as for `fit`.")
    ],
    reader: UntitledReader,
    options: Evaluation,
    output: EvaluateOutput,
    seed: Seed = 0,
) -> None:
    """Evaluate a model on likes that it was not fitted to.

    How well it ranks them among all items that their user did not like in training, by full rankings, with 95 %
    intervals by bootstrap over users; in strata of degree; and the classification error by the user's degree. Where
    TEST has ratings and a rule (--where), the rows that fail the rule were considered and not liked: then also whether
    p(like) is honest.
    """
    from considerate.data import read_judged, read_likes
    from considerate.evaluation.fitted import considered, evaluate_model
    from considerate.kernels.threads import LocalBackend
    from considerate.recommender import Recommender
    from considerate.storage.files import check_writable

    cuts = tuple(sorted(set(options.k or (10, 20))))
    if cuts[0] < 1 or options.resamples < 1 or seed < 0:
        raise UsageError("-k and --resamples are whole numbers at least 1, --seed one at least 0.")
    path = output.recalibrate
    if path is not None:
        if reader.where is None:
            raise UsageError(
                "--recalibrate needs pairs that were considered and not liked: rows that fail a rule, such as "
                '--where "rating >= 4".'
            )
        check_inputs_kept(path, model, test)
        check_writable(path)
    recommender = Recommender.load(model, verify=output.verify or None)
    fitted = recommender.model_
    if not fitted.knows_likes:
        screen.say("warning", f"{model} was saved without likes, so what a user liked counts as not liked yet.")
    with screen.library_messages(output.quiet), LocalBackend() as backend:
        liked, not_liked = (read_likes(test, reader), None) if reader.where is None else read_judged(test, reader)
        screen.say_notes(liked, output.quiet)
        values = evaluate_model(
            fitted,
            liked,
            not_liked,
            cuts,
            popularity=options.popularity,
            score=None if options.score is None else options.score.value,
            seed=seed,
            resamples=options.resamples,
            run=backend.map,
        )
    values |= {"model": model, "source": liked.source}
    if path is not None:
        if not_liked is None:
            raise UsageError("--recalibrate needs rows that fail the rule, and there is none.")
        recommender.recalibrate(*considered(fitted, liked, not_liked))
        recommender.save(path)
        line = recommender.recalibration_
        values["recalibration"] = {"slope": line.slope, "shift": line.shift, "path": path}
    if output.json:
        screen.print_json(values)
    else:
        _show(values, output.quiet)


def _show(values: dict[str, Any], quiet: bool) -> None:
    lists = values["lists"]
    gini = "" if lists["gini"] is None else f", Gini {lists['gini']:.3f}"
    screen.show_facts(
        {
            "score": values["name"],
            "held out": f"{values['held_out']:,} likes of {values['users']:,} users",
            "candidates": f"{values['mean_candidates']:,.0f} of {values['items']:,} items on average",
            "left out": _left_out(values["test"]),
            f"lists of {lists['k']}": f"{lists['coverage']:.1%} of the catalogue{gini}".replace("%", " %"),
        },
        values["source"],
    )
    rows, explained = [], set()
    for name, metric in sorted(values["metrics"].items(), key=_order):
        digits = 4 if abs(metric["mean"]) < 10 else 1
        word = name.partition("@")[0]
        text = "" if quiet or word in explained else METRICS[word]
        explained.add(word)
        interval = f"{metric['low']:.{digits}f} – {metric['high']:.{digits}f}"
        rows.append((name, f"{metric['mean']:.{digits}f}", interval, screen.styled((text, "dim"))))
    screen.show_table(["metric", ">mean", ">95 % interval", ""], rows, "metrics")
    for side, strata in values["strata"].items():
        spread = {">5 %": "5", ">median": "50", ">95 %": "95"}
        screen.show_table(
            [">degree", ">likes", ">S_rank", ">95 % interval", *spread],
            (
                (*_stratum(row, "{:.3f}"), *(f"{row['percentiles'][percent]:.3f}" for percent in spread.values()))
                for row in strata
            ),
            f"S_rank by the degree of the {side}",
        )
    screen.show_table(
        [">degree", ">likes", ">error", ">95 % interval"],
        (_stratum(row, "{:.1%}") for row in values["errors"]),
        "classification error on held-out likes by the degree of the user",
    )
    if "not_liked" in values:
        _show_calibration(values)
    if "recalibration" in values:
        line = values["recalibration"]
        text = f"recalibrated: slope {line['slope']:.4g}, shift {line['shift']:.4g}, written to {line['path']}"
        screen.show(text, wrap=False)


def _order(named: tuple[str, Any]) -> tuple[bool, int, int]:
    """Metrics in the order of METRICS, those of whole rankings first, then shorter lists before longer."""
    name, _, cut = named[0].partition("@")
    return bool(cut), int(cut or 0), list(METRICS).index(name)


def _left_out(counts: dict[str, int]) -> str:
    return ", ".join(f"{counts[name]:,} {text}" for name, text in LEFT_OUT.items() if counts[name])


def _stratum(row: dict[str, Any], number: str) -> tuple[str, ...]:
    """Degrees, likes, mean and interval of a stratum."""
    degree = f"{row['low']:,}" if row["low"] == row["high"] else f"{row['low']:,} – {row['high']:,}"
    low, high = (number.format(end) for end in row["interval"])
    cells = degree, f"{row['count']:,}", number.format(row["mean"]), f"{low} – {high}"
    return tuple(cell.replace("%", " %") for cell in cells)


def _show_calibration(values: dict[str, Any]) -> None:
    counts = values["not_liked"]
    lost = _left_out(counts)
    pairs = f"{values['test']['tested']:,} liked, {counts['tested']:,} considered and not liked"
    left_out = f" ({lost} left out)" if lost else ""
    screen.show(screen.styled(("p(like)", "bold"), f": {pairs}{left_out}; the classes weigh the same"))
    tables = values["calibration"] or {}
    if tables:
        names = {">calibration error": "calibration_error", ">Brier score": "brier", ">log loss": "log_loss"}
        names |= {">AUC": "auc"}
        rows = [(name, *(f"{table[key]:.4f}" for key in names.values())) for name, table in tables.items()]
        screen.show_table(["p(like)", *names], rows)
    for name, table in tables.items():
        bins = zip(table["edges"], table["edges"][1:], table["count"], table["predicted"], table["observed"])
        screen.show_table(
            [">from", ">to", ">pairs", ">predicted", ">observed"],
            (
                (f"{first:.2f}", f"{last:.2f}", f"{pairs:,}", f"{predicted:.3f}", f"{observed:.3f}")
                for first, last, pairs, predicted, observed in bins
                if pairs
            ),
            f"p(like), {name}",
        )
