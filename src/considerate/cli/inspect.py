"""considerate inspect"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import HiddenSettings, ModelOutput, Reader, grouped, option
from considerate.data.options import ReaderOptions
from considerate.errors import UsageError

QUANTILES = {"0": "least", "0.25": "quarter", "0.5": "median", "0.75": "three quarters", "0.99": "99 %", "1": "most"}


@dataclass(frozen=True, kw_only=True)
class InspectOutput(ModelOutput):
    hidden: bool = option("Also draw one hidden graph H, and show its degree laws and what each item got of it.", False)


@grouped
def inspect(
    file: Annotated[str, typer.Argument(help="A data file, folder or database as for `fit`, or a model file.")],
    reader: Reader,
    settings: HiddenSettings,
    output: InspectOutput,
) -> None:
    """Show what is in a data file or in a model file.

    Of data: sizes, degrees and the laws fitted to them, and whether users and items look swapped. Of a model: its
    settings, what was learned, and how the bound went. The settings of the model below are for --hidden.
    """
    from considerate.cli.describe import describe_data, describe_model, is_model_file
    from considerate.data import read_likes

    if is_model_file(file):
        if output.hidden or reader != ReaderOptions():
            raise UsageError(f"{file} is a model; --hidden and the options of reading are for data.")
        values, show = describe_model(file, verify=output.verify or None), _show_model
    else:
        plan, show = settings.plan(), _show_data
        with screen.library_messages(output.quiet):
            interactions = read_likes(file, reader)
            screen.say_notes(interactions, output.quiet)
            values = describe_data(interactions, plan if output.hidden else None)
    if output.json:
        screen.print_json(values)
    else:
        show(values)


def _show_data(values: dict[str, Any]) -> None:
    folded = f" ({values['duplicates']:,} duplicates folded)" if values["duplicates"] else ""
    some_rows = values["rows_kept"] != values["rows_read"]
    sides = values["mean_constraint"]
    screen.show_facts(
        {
            "users": f"{values['users']:,}",
            "items": f"{values['items']:,}",
            "likes": f"{values['edges']:,}{folded}",
            "rows": f"{values['rows_kept']:,} of {values['rows_read']:,} are likes" if some_rows else None,
            "density": f"{values['density']:.3g} of all pairs",
            "mean degrees": f"a user {values['user_degrees']['mean']:.4g}, an item "
            f"{values['item_degrees']['mean']:.4g}; eq. 1: mu/N = {sides['mu_over_N']:.4g}, "
            f"nu/M = {sides['nu_over_M']:.4g}",
            "swapped?": "far more items than users; if they are swapped, exchange --user-column and --item-column"
            if values["looks_swapped"]
            else None,
        },
        values["source"],
    )
    _show_degrees("degrees of users: likes per user", values["user_degrees"])
    _show_degrees("degrees of items: likes per item", values["item_degrees"])
    if "hidden" in values:
        _show_hidden(values)


def _show_degrees(title: str, degrees: dict[str, Any]) -> None:
    from considerate.cli.text_charts import bar

    spread = ", ".join(f"{name} {degrees['quantiles'][q]:,.0f}" for q, name in QUANTILES.items())
    limit = " (the degrees fix no finite exponent)" if degrees["law"]["at_limit"] else ""
    screen.show(
        screen.styled((f"\n{title}\n", "bold"), (f"{spread}\nlaw    ", "dim"), f"{_law(degrees['law'])}{limit}")
    )
    largest = max(row["count"] for row in degrees["histogram"])
    screen.show_table(
        [">degree", ">count", ">law", "<"],
        (
            (_bin(row), f"{row['count']:,}", f"{row['law']:,.0f}", bar(row["count"], largest, 40))
            for row in degrees["histogram"]
        ),
        caption=f"and {degrees['zeros']:,} of degree 0" if degrees["zeros"] else None,
    )


def _show_hidden(values: dict[str, Any]) -> None:
    hidden = values["hidden"]
    corrected = ", head corrected" if hidden["head_correction"] else ""
    numbers = f"{hidden['edges']:,} edges, {hidden['negatives']:g} without a like for each like"
    screen.show(screen.styled(("\none drawn H", "bold"), f": {numbers}, gamma {hidden['gamma']:.4g}{corrected}"))
    sides = ("user_degrees", "item_degrees")
    screen.show_table(
        ["law", "of G", "of H"],
        ((f"{side[:4]}s", _law(values[side]["law"]), _law(hidden[side]["law"])) for side in sides),
    )
    screen.show_table(
        [">degree", ">items", ">likes", ">without", ">without per like"],
        (
            (
                _bin(row),
                *(f"{row[name]:,}" for name in ("items", "liked", "unliked")),
                f"{row['unliked_per_like']:.2f}",
            )
            for row in hidden["items_by_degree"]
        ),
        "edges of H by the degree of the item",
    )


def _law(law: dict[str, Any]) -> str:
    cutoff = f" exp(-d / {law['cutoff']:.4g})" if law["cutoff"] is not None else ""
    return f"d^{-law['exponent']:.3g}{cutoff}"


def _bin(row: dict[str, Any]) -> str:
    return f"{row['first']:,}" if row["first"] == row["last"] else f"{row['first']:,} – {row['last']:,}"


def _show_model(values: dict[str, Any]) -> None:
    from considerate.cli.text_charts import sparkline

    shards = "" if values["shards"] is None else f" in {values['shards']:,} shards and an index"
    line, bound = values["recalibration"], values["bound"]
    last = ", ".join(f"{value:,.0f}" for value in bound[-3:])
    screen.show_facts(
        {
            "file": f"{values['megabytes']:,.1f} MB{shards}, format {values['format_version']}, "
            f"written by considerate {values['library_version']}",
            "users": f"{values['users']:,}, ids: {values['user_ids']}",
            "items": f"{values['items']:,}, ids: {values['item_ids']}",
            "likes": f"{values['edges']:,} in the data" + ("" if values["likes"] else ", left out of the file"),
            "titles": "yes" if values["titles"] else "no",
            "factors": f"{values['factors']}",
            "E[tau]": screen.precisions(values["precisions"]),
            "prior spread": f"{values['prior_spread']:.3g}, the standard deviation of u'v",
            "popularity": f"pi = degree^{values['popularity_exponent']:.4g}, knob {values['popularity_weight']:g}",
            "recalibration": f"logit of p(like) times {line['slope']:.4g}, plus {line['shift']:.4g}"
            if line != {"slope": 1.0, "shift": 0.0}
            else None,
            "sweeps": f"{values['sweeps']}, {'converged' if values['converged'] else 'not converged'}",
            "bound": screen.styled((sparkline(bound), "cyan"), f" … {last}") if bound else None,
            "its terms": ", ".join(
                f"{name.replace('_', ' ')} {value:,.0f}" for name, value in values["bound_terms"].items()
            ),
            "settings": ", ".join(f"{name}={value!r}" for name, value in values["parameters"].items()),
        },
        values["path"],
    )
