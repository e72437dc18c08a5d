"""considerate inspect"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import OUTPUT_PANEL, Json, Quiet, with_reader, with_settings
from considerate.data import ReaderOptions
from considerate.errors import UsageError


@with_reader
@with_settings(("negatives", "rate", "gamma", "head_correction", "seed"))
def inspect(
    file: Annotated[str, typer.Argument(help="A data file, folder or database as for `fit`, or a model file.")],
    reader: ReaderOptions,
    settings: dict[str, Any],
    hidden: Annotated[
        bool,
        typer.Option(
            "--hidden",
            help="Also draw one hidden graph H, and show its degree laws and what each item got of it.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Show what is in a data file or in a model file.

    Of data: sizes, degrees and the laws fitted to them, and whether users and items look swapped. Of a model: its
    settings, what was learned, and how the bound went. The settings of the model below are for --hidden.
    """
    from considerate.cli.describe import describe_data, describe_hidden, describe_model, is_model_file

    if is_model_file(file):
        if hidden or reader != ReaderOptions():
            raise UsageError(f"{file} is a model; --hidden and the options of reading are for data.")
        model = describe_model(file)
        if json:
            screen.print_json(model)
        else:
            _show_model(model)
        return
    from considerate.data import read_likes
    from considerate.parameters import Parameters

    plan = Parameters(**settings).plan()
    with screen.told(quiet):
        interactions = read_likes(file, reader)
        if not quiet:
            for note in interactions.notes:
                screen.say("note", note)
        data = describe_data(interactions)
        if hidden:
            data["hidden"] = describe_hidden(interactions, plan)
    if json:
        screen.print_json(data)
    else:
        _show_data(data)


def _show_data(said: dict[str, Any]) -> None:
    console = screen.stdout()
    facts = screen.facts(said["source"])
    facts.add_row("users", f"{said['users']:,}")
    facts.add_row("items", f"{said['items']:,}")
    folded = f" ({said['duplicates']:,} duplicates folded)" if said["duplicates"] else ""
    facts.add_row("likes", f"{said['edges']:,}{folded}")
    if said["rows_kept"] != said["rows_read"]:
        facts.add_row("rows", f"{said['rows_kept']:,} of {said['rows_read']:,} are likes")
    facts.add_row("density", f"{said['density']:.3g} of all pairs")
    sides = said["mean_constraint"]
    facts.add_row(
        "mean degrees",
        f"a user {said['user_degrees']['mean']:.4g}, an item {said['item_degrees']['mean']:.4g}; eq. 1: "
        f"mu/N = {sides['mu_over_N']:.4g}, nu/M = {sides['nu_over_M']:.4g}",
    )
    if said["looks_swapped"]:
        facts.add_row(
            "[yellow]swapped?[/]",
            "far more items than users; if they are swapped, exchange --user-column and --item-column",
        )
    console.print(facts)
    _show_degrees("degrees of users: likes per user", said["user_degrees"])
    _show_degrees("degrees of items: likes per item", said["item_degrees"])
    if "hidden" in said:
        _show_hidden(said)


def _show_degrees(title: str, said: dict[str, Any]) -> None:
    from considerate.cli.text_charts import bar

    console = screen.stdout()
    console.print()
    quantiles = said["quantiles"]
    shown = {"0": "least", "0.25": "quarter", "0.5": "median", "0.75": "three quarters", "0.99": "99 %", "1": "most"}
    spread = ", ".join(f"{name} {quantiles[q]:,.0f}" for q, name in shown.items())
    limit = " (the degrees fix no finite exponent)" if said["law"]["at_limit"] else ""
    console.print(f"[bold]{title}[/]\n[dim]{spread}\nlaw    [/]{_law(said['law'])}{limit}")
    made = screen.table("degree", "count", "law", "", right=("degree", "count", "law"))
    largest = max(row["count"] for row in said["histogram"])
    for row in said["histogram"]:
        chart = bar(row["count"], largest, 40)
        made.add_row(_bin(row), f"{row['count']:,}", f"{row['law']:,.0f}", f"[cyan]{chart}[/]")
    if said["zeros"]:
        made.caption, made.caption_justify = f"and {said['zeros']:,} of degree 0", "left"
    console.print(made)


def _show_hidden(said: dict[str, Any]) -> None:
    console = screen.stdout()
    hidden = said["hidden"]
    corrected = ", head corrected" if hidden["head_correction"] else ""
    console.print(
        f"\n[bold]one drawn H[/]: {hidden['edges']:,} edges, {hidden['negatives']:g} without a like for each like, "
        f"gamma {hidden['gamma']:.4g}{corrected}"
    )
    laws = screen.table("law", "of G", "of H")
    for side in ("user", "item"):
        laws.add_row(f"{side}s", _law(said[f"{side}_degrees"]["law"]), _law(hidden[f"{side}_degrees"]["law"]))
    console.print(laws)
    made = screen.table(
        *("degree", "items", "likes", "without", "without per like"),
        right=("degree", "items", "likes", "without", "without per like"),
        title="edges of H by the degree of the item",
    )
    for row in hidden["items_by_degree"]:
        counts = (f"{row[name]:,}" for name in ("items", "liked", "unliked"))
        made.add_row(_bin(row), *counts, f"{row['unliked_per_like']:.2f}")
    console.print(made)


def _law(law: dict[str, Any]) -> str:
    cutoff = f" exp(-d / {law['cutoff']:.4g})" if law["cutoff"] is not None else ""
    return f"d^{-law['exponent']:.3g}{cutoff}"


def _bin(row: dict[str, Any]) -> str:
    return f"{row['first']:,}" if row["first"] == row["last"] else f"{row['first']:,} – {row['last']:,}"


def _show_model(said: dict[str, Any]) -> None:
    from considerate.cli.text_charts import sparkline

    console = screen.stdout()
    facts = screen.facts(said["path"])
    shards = "" if said["shards"] is None else f" in {said['shards']:,} shards and an index"
    facts.add_row(
        "file",
        f"{said['megabytes']:,.1f} MB{shards}, format {said['format_version']}, "
        f"written by considerate {said['library_version']}",
    )
    facts.add_row("users", f"{said['users']:,}, ids: {said['user_ids']}")
    facts.add_row("items", f"{said['items']:,}, ids: {said['item_ids']}")
    facts.add_row("likes", f"{said['edges']:,} in the data" + ("" if said["likes"] else ", left out of the file"))
    facts.add_row("titles", "yes" if said["titles"] else "no")
    facts.add_row("factors", f"{said['factors']}")
    facts.add_row("E\\[tau]", screen.precisions(said["precisions"]))
    facts.add_row("prior spread", f"{said['prior_spread']:.3g}, the standard deviation of u'v")
    facts.add_row("popularity", f"pi = degree^{said['popularity_exponent']:.4g}, knob {said['popularity_weight']:g}")
    if said["recalibration"] != {"slope": 1.0, "shift": 0.0}:
        line = said["recalibration"]
        facts.add_row("recalibration", f"logit of p(like) times {line['slope']:.4g}, plus {line['shift']:.4g}")
    ended = "converged" if said["converged"] else "not converged"
    facts.add_row("sweeps", f"{said['sweeps']}, {ended}")
    if said["bound"]:
        last = ", ".join(f"{value:,.0f}" for value in said["bound"][-3:])
        facts.add_row("bound", f"[cyan]{sparkline(said['bound'])}[/] … {last}")
    terms = ", ".join(f"{name.replace('_', ' ')} {value:,.0f}" for name, value in said["bound_terms"].items())
    facts.add_row("its terms", terms)
    settings = ", ".join(f"{name}={value!r}" for name, value in said["parameters"].items())
    facts.add_row("settings", settings)
    console.print(facts)
