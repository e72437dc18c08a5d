"""considerate evaluate"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import (
    OUTPUT_PANEL,
    Json,
    Quiet,
    Score,
    Seed,
    check_inputs_kept,
    score_option,
    with_untitled_reader,
)
from considerate.data import ReaderOptions
from considerate.errors import UsageError

HOW = "How it is evaluated"
NAMES = {
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


@with_untitled_reader
def evaluate(
    model: Annotated[str, typer.Argument(help="The model file.")],
    test: Annotated[
        str, typer.Argument(help="Likes that it was not fitted to: a file, folder or database as for `fit`.")
    ],
    reader: ReaderOptions,
    k: Annotated[
        list[int] | None,
        typer.Option("-k", help="Length of the lists; repeat it. 10 and 20 if not given.", rich_help_panel=HOW),
    ] = None,
    popularity: Annotated[
        float | None,
        typer.Option(help="The knob; the model's own if not given.", show_default=False, rich_help_panel=HOW),
    ] = None,
    score: Annotated[Score | None, score_option(HOW)] = None,
    resamples: Annotated[int, typer.Option(help="Resamples of the bootstrap over users.", rich_help_panel=HOW)] = 1000,
    seed: Seed = 0,
    recalibrate: Annotated[
        str | None,
        typer.Option(
            help="Fit a recalibration of p(like) to TEST, and write the model with it to this file.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Evaluate a model on likes that it was not fitted to.

    How well it ranks them among all items that their user did not like in training, by full rankings, with 95 %
    intervals by bootstrap over users; in strata of degree; and the classification error by the user's degree. Where
    TEST has ratings and a rule (--where), the rows that fail the rule were considered and not liked: then also whether
    p(like) is honest.
    """
    from considerate.evaluation.fitted import evaluate_model
    from considerate.kernels.threads import LocalBackend
    from considerate.recommender import Recommender

    cuts = tuple(sorted(set(k or (10, 20))))
    if cuts[0] < 1 or resamples < 1 or seed < 0:
        raise UsageError("-k and --resamples are whole numbers at least 1, --seed one at least 0.")
    if recalibrate is not None:
        _check_output(recalibrate, model, test, reader)
    recommender = Recommender.load(model)
    fitted = recommender.model_
    if not fitted.knows_likes:
        screen.say("warning", f"{model} was saved without likes, so what a user liked counts as not liked yet.")
    with screen.told(quiet), LocalBackend() as backend:
        liked, not_liked = _read(test, reader, quiet)
        how: dict[str, Any] = {"popularity": popularity, "score": None if score is None else score.value}
        said = evaluate_model(fitted, liked, not_liked, cuts, **how, seed=seed, resamples=resamples, run=backend.map)
    said |= {"model": model, "source": liked.source}
    if recalibrate is not None:
        said["recalibration"] = _recalibrate(recommender, liked, not_liked, recalibrate)
    if json:
        screen.print_json(said)
        return
    _show(said, quiet)


def _check_output(path: str, model: str, test: str, reader: ReaderOptions) -> None:
    from considerate.storage.files import check_writable

    if reader.where is None:
        raise UsageError(
            "--recalibrate needs pairs that were considered and not liked: rows that fail a rule, such as "
            '--where "rating >= 4".'
        )
    check_inputs_kept(path, model, test)
    check_writable(path)


def _read(test: str, reader: ReaderOptions, quiet: bool) -> tuple[Any, Any]:
    from considerate.data import read_judged, read_likes

    if reader.where is None:
        liked, not_liked = read_likes(test, reader), None
    else:
        liked, not_liked = read_judged(test, reader)
    if not quiet:
        for note in liked.notes:
            screen.say("note", note)
    return liked, not_liked


def _recalibrate(recommender: Any, liked: Any, not_liked: Any, path: str) -> dict[str, Any]:
    from considerate.evaluation.fitted import considered

    if not_liked is None:
        raise UsageError("--recalibrate needs rows that fail the rule, and there is none.")
    recommender.recalibrate(*considered(recommender.model_, liked, not_liked))
    recommender.save(path)
    line = recommender.recalibration_
    return {"slope": line.slope, "shift": line.shift, "path": path}


def _show(said: dict[str, Any], quiet: bool) -> None:
    console = screen.stdout()
    counted = said["test"]
    facts = screen.facts(said["source"])
    facts.add_row("score", said["name"])
    facts.add_row("held out", f"{said['held_out']:,} likes of {said['users']:,} users")
    facts.add_row("candidates", f"{said['mean_candidates']:,.0f} of {said['items']:,} items on average")
    lost = _lost(counted)
    if lost:
        facts.add_row("left out", lost)
    lists = said["lists"]
    gini = "" if lists["gini"] is None else f", Gini {lists['gini']:.3f}"
    facts.add_row(f"lists of {lists['k']}", f"{100 * lists['coverage']:.1f} % of the catalogue{gini}")
    console.print(facts)
    made = screen.table("metric", "mean", "95 % interval", "", right=("mean", "95 % interval"), title="metrics")
    told: set[str] = set()
    for name, one in sorted(said["metrics"].items(), key=_order):
        digits = 4 if abs(one["mean"]) < 10 else 1
        cells = f"{one['mean']:.{digits}f}", f"{one['low']:.{digits}f} – {one['high']:.{digits}f}"
        word = name.partition("@")[0]
        made.add_row(name, *cells, "" if quiet or word in told else f"[dim]{NAMES[word]}[/]")
        told.add(word)
    console.print(made)
    for side, rows in said["strata"].items():
        _show_strata(f"S_rank by the degree of the {side}", rows, "S_rank")
    _show_strata("classification error on held-out likes by the degree of the user", said["errors"], "error", 100)
    if "not_liked" in said:
        _show_calibration(said)
    if "recalibration" in said:
        line = said["recalibration"]
        console.print(
            f"recalibrated: slope {line['slope']:.4g}, shift {line['shift']:.4g}, written to {line['path']}",
            soft_wrap=True,
        )


def _order(named: tuple[str, Any]) -> tuple[bool, int]:
    """Metrics as NAMES has them, shorter lists first."""
    name, _, cut = named[0].partition("@")
    return bool(cut), int(cut or 0) * 100 + list(NAMES).index(name)


def _lost(counted: dict[str, int]) -> str:
    words = {
        "unknown_users": "of users without likes in the model",
        "unknown_items": "of items that it does not know",
        "in_training": "that it was fitted to",
        "duplicates": "duplicates",
    }
    return ", ".join(f"{counted[name]:,} {text}" for name, text in words.items() if counted[name])


def _show_strata(title: str, rows: list[dict[str, Any]], what: str, per: float = 1.0) -> None:
    columns = ("degree", "likes", what, "95 % interval")
    cuts = ("5 %", "median", "95 %") if per == 1.0 else ()
    made = screen.table(*columns, *cuts, right=(*columns, *cuts), title=title)
    digits, unit = (3, "") if per == 1.0 else (1, " %")
    for row in rows:
        degree = f"{row['low']:,}" if row["low"] == row["high"] else f"{row['low']:,} – {row['high']:,}"
        low, high = (f"{per * one:.{digits}f}" for one in row["interval"])
        spread = [f"{row['percentiles'][q]:.3f}" for q in ("5", "50", "95")] if cuts else []
        made.add_row(degree, f"{row['count']:,}", f"{per * row['mean']:.{digits}f}{unit}", f"{low} – {high}", *spread)
    screen.stdout().print(made)


def _show_calibration(said: dict[str, Any]) -> None:
    console = screen.stdout()
    counted = said["not_liked"]
    lost = _lost(counted)
    console.print(
        f"[bold]p(like)[/]: {said['test']['tested']:,} liked, {counted['tested']:,} considered and not liked"
        + (f" ({lost} left out)" if lost else "")
        + "; the classes weigh the same"
    )
    if said["calibration"] is None:
        return
    names = ("calibration error", "Brier score", "log loss", "AUC")
    made = screen.table("p(like)", *names, right=names)
    for name, one in said["calibration"].items():
        values = (one[key] for key in ("calibration_error", "brier", "log_loss", "auc"))
        made.add_row(name, *(f"{value:.4f}" for value in values))
    console.print(made)
    for name, one in said["calibration"].items():
        columns = ("from", "to", "pairs", "predicted", "observed")
        bins = screen.table(*columns, right=columns, title=f"p(like), {name}")
        for at, pairs in enumerate(one["count"]):
            if pairs:
                numbers = (one["edges"][at], one["edges"][at + 1])
                means = (one["predicted"][at], one["observed"][at])
                bins.add_row(*(f"{value:.2f}" for value in numbers), f"{pairs:,}", *(f"{value:.3f}" for value in means))
        console.print(bins)
