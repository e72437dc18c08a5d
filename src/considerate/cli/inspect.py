"""The command `considerate inspect`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import HiddenSettings, ModelOutput, Reader, expand_groups, option
from considerate.data.options import ReaderOptions
from considerate.errors import UsageError

SIDES = {"users": "user_degrees", "items": "item_degrees"}
QUANTILES = {"0": "least", "0.25": "quarter", "0.5": "median", "0.75": "three quarters", "0.99": "99 %", "1": "most"}


class InspectOutput(ModelOutput):
    hidden: bool = option("Also draw one hidden graph H, and show its degree laws and each item's edges.", False)


@expand_groups
def inspect(
    file: Annotated[str, typer.Argument(help="A data file, folder or database as for `fit`, or a model file.")],
    reader: Reader,
    settings: HiddenSettings,
    output: InspectOutput,
) -> None:
    """Show the contents of a data file or a model file.

    For data: sizes, degrees and the laws fitted to them, and whether users and items look swapped. For a model: its
    settings, what it learned, the course of the bound, how much popularity is left in p(like), and whether the model
    expects as many likes as there are. The settings of the model below are for --hidden.
    """
    from considerate.cli.describe import describe_data, describe_model
    from considerate.data import read_likes
    from considerate.model.file import is_model_file

    if is_model_file(file):
        if output.hidden or reader != ReaderOptions():
            raise UsageError(f"{file} is a model; --hidden and the options of reading are for data.")
        values, show = describe_model(file, verify=output.verify or None), _show_model
    else:
        plan, show = settings.plan(), _show_data
        with screen.library_messages(output.quiet):
            interactions = read_likes(file, reader)
            output.note(*interactions.notes)
            values = describe_data(interactions, plan if output.hidden else None)
    if output.json:
        screen.print_json(values)
    else:
        show(values)


def _show_data(values: dict[str, Any]) -> None:
    facts = {
        "users": "{users:,}",
        "items": "{items:,}",
        "likes": "{edges:,} ({duplicates:,} duplicates folded)" if values["duplicates"] else "{edges:,}",
        "rows": "{rows_kept:,} of {rows_read:,} are likes" if values["rows_kept"] != values["rows_read"] else None,
        "density": "{density:.3g} of all pairs",
        "mean degrees": "a user {user_degrees[mean]:.4g}, an item {item_degrees[mean]:.4g}; eq. 1: "
        "mu/N = {mean_constraint[mu_over_N]:.4g}, nu/M = {mean_constraint[nu_over_M]:.4g}",
        "swapped?": "far more items than users; if they are swapped, exchange --user-column and --item-column"
        if values["looks_swapped"]
        else None,
    }
    screen.show_facts(facts, values, values["source"])
    _show_degrees("degrees of users: likes per user", values["user_degrees"])
    _show_degrees("degrees of items: likes per item", values["item_degrees"])
    if "hidden" in values:
        _show_hidden(values)


def _show_degrees(title: str, degrees: dict[str, Any]) -> None:
    spread = ", ".join(f"{name} {degrees['quantiles'][q]:,.0f}" for q, name in QUANTILES.items())
    limit = " (the degrees fix no finite exponent)" if degrees["law"]["at_limit"] else ""
    law = f"{_law(degrees['law'])}{limit}"
    screen.show(screen.styled((f"\n{title}\n", "bold"), (f"{spread}\nlaw    ", "dim"), law))
    largest = max(row["count"] for row in degrees["histogram"])
    screen.show_table(
        {">degree": "{span}", ">count": "{count:,}", ">law": "{law:,.0f}", "<": "{bar}"},
        (_spanned(row) | {"bar": screen.bar(row["count"], largest, 40)} for row in degrees["histogram"]),
        caption=f"and {degrees['zeros']:,} of degree 0" if degrees["zeros"] else None,
    )


def _show_hidden(values: dict[str, Any]) -> None:
    hidden = values["hidden"]
    text = ": {edges:,} edges, {negatives:g} without a like for each like, gamma {gamma:.4g}".format_map(hidden)
    corrected = ", head corrected" if hidden["head_correction"] else ""
    screen.show(screen.styled(("\none drawn H", "bold"), text + corrected))
    laws = ({graph: _law(of[side]["law"]) for graph, of in (("G", values), ("H", hidden))} for side in SIDES.values())
    rows = ({"side": side} | law for side, law in zip(SIDES, laws))
    screen.show_table({"law": "{side}", "of G": "{G}", "of H": "{H}"}, rows)
    columns = {">degree": "{span}", ">items": "{items:,}", ">likes": "{liked:,}", ">without": "{unliked:,}"}
    columns |= {">without per like": "{unliked_per_like:.2f}"}
    screen.show_table(columns, map(_spanned, hidden["items_by_degree"]), "edges of H by the degree of the item")


def _law(law: dict[str, Any]) -> str:
    cutoff = f" exp(-d / {law['cutoff']:.4g})" if law["cutoff"] is not None else ""
    return f"d^{-law['exponent']:.3g}{cutoff}"


def _spanned(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"span": screen.span(row["first"], row["last"])}


def _show_model(values: dict[str, Any]) -> None:
    from considerate.cli.expected_likes import show_expected_likes

    bound, terms = values["bound"], values["bound_terms"]
    last = ", ".join(f"{value:,.0f}" for value in bound[-3:])
    texts = {
        "terms": ", ".join(f"{name.replace('_', ' ')} {value:,.0f}" for name, value in terms.items()),
        "settings": ", ".join(f"{name}={value!r}" for name, value in values["parameters"].items()),
        "trials": "; ".join(
            ", ".join(f"{name} {value:.4g}" for name, value in trial.items())
            for trial in (values["chosen"] or {"trials": ()})["trials"]
        ),
        "taus": screen.precisions(values["precisions"]),
        "considered": _considered(values),
        "biases": _biases(values["bias_popularity_correlation"]),
        "updated": _updated(values["updates"]),
    }
    facts = {
        "file": "{megabytes:,.1f} MB"
        + ("" if values["shards"] is None else " in {shards:,} shards and an index")
        + ", format {format_version}, written by considerate {library_version}",
        "users": "{users:,}, ids: {user_ids}",
        "items": "{items:,}, ids: {item_ids}",
        "likes": "{edges:,} in the data" + ("" if values["likes"] else ", left out of the file"),
        "graph": None
        if values["signed"] is None
        else "vertices of one kind, which are users and items; each edge is a like of both its ends"
        + (". Half of the factors repel" if values["signed"] else ""),
        "titles": "yes" if values["titles"] else "no",
        "factors": "{factors}",
        "E[tau]": "{taus}",
        "prior spread": "{prior_spread:.3g}, the standard deviation of u'v",
        "popularity": "pi = degree^{popularity_exponent:.4g}, knob {popularity_weight:g}, lift {lift_weight:g}",
        "chosen": "{chosen[told]}" if values["chosen"] else None,
        "trials": "{trials}" if values["chosen"] else None,
        "consideration": "{considered}",
        "biases": "{biases}",
        "p(like)": "{recalibrated}",
        "interval": "{interval}",
        "sweeps": "{sweeps}, " + ("converged" if values["converged"] else "not converged"),
        "updated": "{updated}" if any(values["updates"].values()) else None,
        "events": "of a service, up to {events[sequence]:,}"
        + (", with pairs that were considered and not liked" if values["events"]["considered"] else "")
        if values["events"]["sequence"]
        else None,
        "bound": screen.styled((screen.sparkline(bound), "cyan"), f" … {last}") if bound else None,
        "its terms": "{terms}",
        "settings": "{settings}",
    }
    screen.show_facts(facts, values | texts, values["path"])
    _show_reliability(values["reliability"])
    _show_draws(values)
    show_expected_likes(values)
    _show_features(values["features"])


def _updated(updates: dict[str, Any]) -> str:
    text = "{count:,} times since the fit, in {days:g} days: {likes:,} new likes, {passes:,} passes".format_map(updates)
    text += ", {removed:,} likes removed".format_map(updates) if updates["removed"] else ""
    return text + (", {forgotten:,} users forgotten".format_map(updates) if updates["forgotten"] else "")


def _considered(values: dict[str, Any]) -> str:
    walk = values["consideration"]
    if walk["mass_kept"] is None:
        return "by popularity, the same for everyone"
    text = "by the walk, {neighbours} neighbours ({mass_kept:.0%} of its mass kept), mixing {mixing:g}".format_map(walk)
    text += f"; drawn after {walk['opening']} sweeps in closed form" if walk["opening"] else ""
    where = "; in the ranking alone, as hidden is expected" if values["parameters"].get("hidden") == "expected" else ""
    return text + where


def _biases(correlation: float | None) -> str:
    if correlation is None:
        return "the same for all items, or all degrees are"
    return f"correlation {correlation:.2f} with log degree: the popularity that is left in p(like)"


def _show_reliability(reliability: dict[str, Any] | None) -> None:
    """Show p(like) and the share that was liked, if the model was recalibrated."""
    if reliability is None:
        return
    columns = {">p(like)": "{predicted:.1%}", ">liked": "{liked:.1%}", ">90 % interval": "{low:.1%} – {high:.1%}"}
    note = "off by {error:.1%} on average ({weights})".format_map(reliability)
    screen.show()
    screen.show_table(
        columns | {">pairs": "{pairs:,}"}, reliability["bins"], "p(like), and the share that was liked", note
    )


def _show_features(features: dict[str, Any] | None) -> None:
    """Show the features that matter most."""
    columns = {"feature": "{name}", ">rows": "{rows:,}", ">effect": "{effect:.3f}"}
    columns |= {">deviations": "{deviations:.1f}", ">bias": "{bias:+.3f}"}
    for side in ("item", "user"):
        if features is not None and side in features:
            shown, cold = features[side], f"; {features['cold_items']:,} items have no likes" if side == "item" else ""
            title = f"features of {side}s: the first of {shown['count']:,} by how far they move a vector{cold}"
            note = "effect: |A_f|; deviations: about 1 for a feature that the likes tell nothing about"
            rows = {name: text for name, text in columns.items() if side == "item" or name != ">rows"}
            screen.show()
            screen.show_table(rows, shown["first"], title, note)


def _show_draws(values: dict[str, Any]) -> None:
    """Show the unliked edges of H by the degree of the item."""
    draws = values["draws_per_like"]
    if draws is None:
        screen.show("\nno draws per like by degree: the likes were left out of the file (--no-likes)", style="dim")
        return
    columns = {">degree": "{span}", ">items": "{items:,}", ">likes": "{likes:,}"}
    if values["consideration"]["mass_kept"] is not None:
        columns[">by the walk"] = "{walk:.2f}"
    columns[">by popularity"] = "{popularity:.2f}"
    rows = [
        row | {"span": f"{row['first']:,} +" if row["last"] is None else _spanned(row)["span"]}
        for row in draws["by_degree"]
    ]
    some = None if draws["users"] == values["users"] else f"of the first {draws['users']:,} users"
    screen.show()
    screen.show_table(columns, rows, "unliked edges per like, one draw of H", some)
