"""The command `considerate evaluate`."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.features import SideGroup
from considerate.cli.options import (
    DatedUntitledReader,
    ModelOutput,
    RankingGroup,
    Seed,
    check_output,
    expand_groups,
    option,
)
from considerate.data.options import GUESS, ReaderOptions
from considerate.errors import UsageError

METRICS = {
    "S_rank": "share of the items not liked in training that a held-out one is ranked above; ties count half",
    "S_rank tail": "the same for items of degree under 100 in training, over held-out likes",
    "MRR": "1 / position of the first held-out item",
    "Recall": "held-out items in the list / held-out items",
    "NDCG": "discounted by log2(1 + position), against the best possible list",
    "MAP": "average precision over min(k, held-out items)",
    "hit rate": "users with a held-out item in the list",
    "popularity": "mean degree of the recommended items",
    "novelty": "mean of -log2(degree / users) over the recommended items",
}
CONSIDERED = {
    "pi": "popularity, the same for everyone",
    "w": "the walk from the user's likes",
    "a": "the logit of p(like)",
    "a + log w": "both",
}
LEFT_OUT = {  # reason why likes of the test are left out -> its words
    "unknown_users": "of new users without earlier likes",
    "unknown_items": "of items that the model does not know",
    "in_training": "that are in its training",
    "duplicates": "duplicates",
}


class EvaluateOptions(RankingGroup, panel="The evaluation"):
    split: str | None = option(
        "The likes of DATA that are held out; the others are for training. latest or random: one like of each user; a "
        "share of each user's likes, such as 0.2; a date, such as 2024-05-01: likes from that day on; users: one user "
        "in ten is new; test: all likes; or a file of test likes. If not given: test for model files, else latest if "
        "there are times, else random.",
        None,
    )
    refit: bool = option("Fit the models of the files again to the training part, with their settings.", False)
    k: list[int] | None = option("Length of the lists; may be repeated. 10 and 20 if not given.", None, "-k")
    resamples: int = option("Resamples of the bootstrap over users.", 1000)
    equal_classes: bool = option(
        "When p(like) is compared with judged pairs, give liked pairs the same total weight as the others. If not "
        "given, every pair has the same weight.",
        False,
    )

    @property
    def cuts(self) -> tuple[int, ...]:
        return tuple(sorted(set(self.k or (10, 20))))


class EvaluateOutput(ModelOutput):
    recalibrate: str | None = option(
        "Fit a recalibration of p(like) to DATA, and write the model with it to this file.", None
    )


@expand_groups
def evaluate(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Model files; or considerate, popularity, EASE, ALS, BPR, BPR-popularity, walk, GF-CF, fitted here.",
            show_default=False,
        ),
    ],
    data: Annotated[
        str,
        typer.Argument(
            help="Likes: a file, folder or database as for `fit`; not the likes that a model was fitted to."
        ),
    ],
    reader: DatedUntitledReader,
    side: SideGroup,
    options: EvaluateOptions,
    output: EvaluateOutput,
    seed: Seed = 0,
) -> None:
    """Evaluate recommenders on held-out likes.

    Each held-out like is ranked among all items that its user did not like before. Metrics have 95 % intervals by
    bootstrap over users, and differences are paired by user. Users who are not in training are folded in from their
    earlier likes. Popularity is always compared as well.

    One model file, without --split, gets a longer report: strata of degree; the classification error by the user's
    degree; and whether the model expects as many likes as it was fitted to. With ratings and a rule (--where), rows
    that fail the rule were considered and not liked. The report then also shows whether p(like) is calibrated, and
    whether the model knows who considers what.
    """
    from considerate.study.evaluate import OURS, peer_named

    if options.cuts[0] < 1 or options.resamples < 1 or seed < 0:
        raise UsageError("-k and --resamples must be whole numbers at least 1, and --seed at least 0.")
    is_file = len(models) == 1 and models[0].lower() != OURS and peer_named(models[0]) is None
    if is_file and options.split is None and not options.refit:
        if side != SideGroup() or reader.considered_where is not None:
            raise UsageError(
                "known pairs and features are for models that are fitted here: give --refit, or considerate."
            )
        return _report(models[0], data, reader, options, output, seed)
    weights = (options.popularity, options.lift, options.score)
    if weights != (None, None, None) or output.recalibrate is not None:
        raise UsageError("--popularity, --lift, --score and --recalibrate are for one model file, without --split.")
    _compare(models, data, reader, side.pairs() | side.features(), options, output, seed)


def _compare(
    models: list[str],
    data: str,
    reader: ReaderOptions,
    side: dict[str, Any],
    options: EvaluateOptions,
    output: EvaluateOutput,
    seed: int,
) -> None:
    """Evaluate several recommenders on one split; `side` has the known pairs and the features for our own fits."""
    from considerate.recommender import Recommender
    from considerate.study.evaluate import evaluate, peer_named

    given: list[Any] = list(models)
    for at, name in enumerate(models):
        if peer_named(name) is None and os.path.exists(name):
            fitted = output.load(name)
            model = Recommender(**fitted.get_params()) if options.refit else fitted
            given[at] = os.path.splitext(os.path.basename(name))[0], model
    split: Any = options.split
    with suppress(TypeError, ValueError):
        split = float(split)
    keywords = {name: value for name, value in vars(reader).items() if value is not None} | side
    with screen.library_messages(output.quiet):
        result = evaluate(given, data, split, k=options.cuts, seed=seed, resamples=options.resamples, **keywords)
    if output.json:
        screen.print_json(result.to_dict())
    else:
        screen.show(str(result), wrap=False)


def _report(
    model: str, test: str, reader: ReaderOptions, options: EvaluateOptions, output: EvaluateOutput, seed: int
) -> None:
    """Evaluate one model file in full, on likes that it was not fitted to."""
    from considerate.cli.describe import described_recalibration
    from considerate.cli.expected_likes import described_expected_likes
    from considerate.data import read_judged, read_likes
    from considerate.evaluation.fitted import considered, evaluate_model
    from considerate.evaluation.result import Bootstrap
    from considerate.evaluation.scorer import ModelScorer
    from considerate.kernels.threads import LocalBackend

    path = output.recalibrate
    if path is not None:
        if reader.where is None:
            raise UsageError(
                "--recalibrate needs pairs that were considered and not liked: rows that fail a rule, such as "
                '--where "rating >= 4".'
            )
        check_output(path, model, test)
    recommender = output.load(model)
    fitted = recommender.model_
    if not fitted.users.knows_likes:
        screen.say("warning", f"{model} was saved without likes, so items that a user liked count as not liked.")
    with screen.library_messages(output.quiet), LocalBackend() as backend:
        reader = replace(reader, time_column=reader.time_column or GUESS)
        liked, not_liked = (read_likes(test, reader), None) if reader.where is None else read_judged(test, reader)
        output.note(*liked.notes)
        score = None if options.score is None else options.score.value
        values = evaluate_model(
            ModelScorer(fitted, options.popularity, score, lift=options.lift),
            liked,
            not_liked,
            options.cuts,
            bootstrap=Bootstrap(seed, options.resamples),
            run=backend.map,
            equal_classes=options.equal_classes,
        )
    values |= {"model": model, "source": liked.source} | described_expected_likes(fitted)
    if path is not None:
        if not_liked is None:
            raise UsageError("--recalibrate needs rows that fail the rule, and there are none.")
        recommender.recalibrate(*considered(fitted, liked, not_liked), options.equal_classes, by="row")
        recommender.save(path)
        values |= described_recalibration(recommender.model_) | {"recalibrated_model": path}
    if output.json:
        screen.print_json(values)
    else:
        _show(values, output.quiet)


def _show(values: dict[str, Any], quiet: bool) -> None:
    from considerate.cli.expected_likes import show_expected_likes

    facts = {
        "score": "{name}",
        "held out": "{held_out:,} likes of {users:,} users",
        "new users": "{test[new_users]:,} of them, not in the model: folded in from {test[folded_in]:,} earlier likes"
        if values["test"]["new_users"]
        else None,
        "candidates": "{mean_candidates:,.0f} of {items:,} items on average",
        "left out": _left_out(values["test"]) or None,
        "lists of {lists[k]}".format_map(values): "{lists[coverage]:.1%} of the catalogue"
        + ("" if values["lists"]["gini"] is None else ", Gini {lists[gini]:.3f}"),
    }
    screen.show_facts(facts, values, values["source"])
    rows, explained = [], set()
    for name, metric in sorted(values["metrics"].items(), key=_order):
        digits = 4 if abs(metric["mean"]) < 10 else 1
        numbers = {key: f"{number:.{digits}f}" for key, number in metric.items()}
        numbers["popularity"] = f"{values['popularity'][name]['mean']:.{digits}f}"
        word = name.partition("@")[0]
        rows.append(numbers | {"name": name, "text": "" if quiet or word in explained else METRICS[word]})
        explained.add(word)
    columns = {"metric": "{name}", ">mean": "{mean}", ">95 % interval": "{low} – {high}"}
    columns |= {">popularity": "{popularity}", "": "{text}"}
    screen.show_table(columns, rows, "metrics")
    columns = {">degree": "{span}", ">likes": "{count:,}"}
    interval = ">95 % interval"
    scores = {">S_rank": "{mean:.3f}", interval: "{interval[0]:.3f} – {interval[1]:.3f}"}
    scores |= {">5 %": "{p5:.3f}", ">median": "{p50:.3f}", ">95 %": "{p95:.3f}"}
    for side, strata in values["strata"].items():
        title = f"S_rank by the degree of the {side}"
        screen.show_table(columns | scores, map(_stratum, strata), title)
    errors = {">error": "{mean:.1%}", interval: "{interval[0]:.1%} – {interval[1]:.1%}"}
    title = "classification error on held-out likes by the degree of the user"
    screen.show_table(columns | errors, map(_stratum, values["errors"]), title)
    show_expected_likes(values)
    if "not_liked" in values:
        _show_calibration(values)
    if values.get("considered"):
        _show_considered(values["considered"], quiet)
    if "recalibration" in values:
        screen.show(
            "p(like) recalibrated: {recalibrated}; written to {recalibrated_model}".format_map(values), wrap=False
        )


def _order(named: tuple[str, Any]) -> tuple[bool, int, int]:
    """Return the sort key of a metric: whole rankings first, then shorter lists, each in the order of METRICS."""
    name, _, cut = named[0].partition("@")
    return bool(cut), int(cut or 0), list(METRICS).index(name)


def _left_out(counts: dict[str, int]) -> str:
    return ", ".join(f"{counts[name]:,} {text}" for name, text in LEFT_OUT.items() if counts[name])


def _stratum(row: dict[str, Any]) -> dict[str, Any]:
    percentiles = {f"p{percent}": value for percent, value in row["percentiles"].items()}
    return row | percentiles | {"span": screen.span(row["low"], row["high"])}


def _show_calibration(values: dict[str, Any]) -> None:
    lost = _left_out(values["not_liked"])
    pairs = ": {test[tested]:,} liked, {not_liked[tested]:,} considered and not liked".format_map(values)
    left_out = f" ({lost} left out)" if lost else ""
    screen.show(screen.styled(("p(like)", "bold"), f"{pairs}{left_out}; weights: {values['weights']}"))
    tables = values["calibration"] or {}
    if tables:
        columns = {"p(like)": "{name}", ">calibration error": "{calibration_error:.4f}", ">Brier score": "{brier:.4f}"}
        columns |= {">log loss": "{log_loss:.4f}", ">AUC": "{auc:.4f}"}
        screen.show_table(columns, ({"name": name} | table for name, table in tables.items()))
    columns = {">from": "{low:.2f}", ">to": "{high:.2f}", ">pairs": "{pairs:,}"}
    columns |= {">predicted": "{predicted:.3f}", ">observed": "{observed:.3f}"}
    for name, table in tables.items():
        bins = zip(table["edges"], table["edges"][1:], table["count"], table["predicted"], table["observed"])
        rows = [dict(zip(("low", "high", "pairs", "predicted", "observed"), row)) for row in bins]
        screen.show_table(columns, (row for row in rows if row["pairs"]), f"p(like), {name}")


def _show_considered(values: dict[str, Any], quiet: bool) -> None:
    text = ": {pairs:,} pairs of {users:,} users, against all pairs that they never rated".format_map(values)
    screen.show(screen.styled(("considered and not liked", "bold"), text))
    columns = {"by": "{name}", ">AUC": "{mean:.4f}", ">95 % interval": "{low:.4f} – {high:.4f}", "": "{text}"}
    rows = ({"name": name, "text": "" if quiet else CONSIDERED[name]} | row for name, row in values["auc"].items())
    screen.show_table(columns, rows)
