"""considerate simulate"""

from __future__ import annotations

import math
import time
from typing import Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import OUTPUT_PANEL, HiddenGraph, Json, Quiet, Seed
from considerate.errors import UsageError

LAWS, MODEL = "Degree laws", "With --from-model"


def simulate(
    output: Annotated[
        str,
        typer.Option("--output", "-o", help="The .parquet or .csv file to write.", rich_help_panel=OUTPUT_PANEL),
    ],
    users: Annotated[int | None, typer.Option(help="How many users; 10,000 if not given.", show_default=False)] = None,
    items: Annotated[int | None, typer.Option(help="How many items; 1,000 if not given.", show_default=False)] = None,
    xbox: Annotated[
        bool,
        typer.Option("--xbox", help="The sizes of the paper's Xbox sample: 6.2 million users and 12,000 items."),
    ] = False,
    seed: Seed = 0,
    user_exponent: Annotated[float, typer.Option(help="Of d^-exponent exp(-d / cutoff).", rich_help_panel=LAWS)] = 1.4,
    user_cutoff: Annotated[
        float, typer.Option(help="Where the exponential cut-off begins; inf for none.", rich_help_panel=LAWS)
    ] = 70.0,
    user_minimum: Annotated[
        int | None,
        typer.Option(
            help="The smallest degree of a user; 1 if not given, and 8 with --from-model.",
            show_default=False,
            rich_help_panel=LAWS,
        ),
    ] = None,
    item_exponent: Annotated[
        float,
        typer.Option(help="Of d^-exponent; cut off where eq. 1 asks for it.", rich_help_panel=LAWS),
    ] = 0.77,
    from_model: Annotated[
        bool,
        typer.Option(
            "--from-model",
            help="Draw vectors, biases, a hidden graph and coins from the model (eq. 5). The truth is written beside, "
            "to OUTPUT.truth.safetensors, and with --genres titles to OUTPUT.titles.parquet or .csv.",
            rich_help_panel=MODEL,
        ),
    ] = False,
    factors: Annotated[int, typer.Option(help="Length of the vectors.", rich_help_panel=MODEL)] = 20,
    tau_user: Annotated[float, typer.Option(help="Precision of user vectors.", rich_help_panel=MODEL)] = 2.0,
    tau_item: Annotated[float, typer.Option(help="Precision of item vectors.", rich_help_panel=MODEL)] = 3.5,
    tau_user_bias: Annotated[
        float, typer.Option(help="Precision of user biases; inf for none.", rich_help_panel=MODEL)
    ] = math.inf,
    tau_item_bias: Annotated[
        float, typer.Option(help="Precision of item biases; inf for none.", rich_help_panel=MODEL)
    ] = math.inf,
    hidden: Annotated[
        HiddenGraph,
        typer.Option(
            help="What is considered. popularity: drawn by it, as q(H) assumes; random_graph: with the two laws.",
            rich_help_panel=MODEL,
        ),
    ] = HiddenGraph.popularity,
    genres: Annotated[
        int, typer.Option(help="Gather items around so many genres, 2 to 8, with titles.", rich_help_panel=MODEL)
    ] = 0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write likes that never were: a random graph with given degree laws, or data from the model itself."""
    from considerate.data.output import check_ending
    from considerate.simulation.degrees import PowerLaw
    from considerate.simulation.simulate import XBOX_SAMPLE
    from considerate.storage.files import check_writable

    check_ending(output)
    check_writable(output)
    if xbox and (users is not None or items is not None):
        raise UsageError("--xbox has its own sizes; leave out --users and --items.")
    if genres and not from_model:
        raise UsageError("--genres goes with --from-model.")
    size = (XBOX_SAMPLE.users, XBOX_SAMPLE.items) if xbox else (users or 10_000, items or 1_000)
    for name, value in (("users", users), ("items", items)):
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}; it must be a whole number at least 1.")
    minimum = user_minimum if user_minimum is not None else min(8, size[1]) if from_model else 1
    user_law, item_law = PowerLaw(user_exponent, user_cutoff, minimum), PowerLaw(item_exponent)
    begun = time.perf_counter()
    with screen.told(quiet):
        if from_model:
            taus = {
                "tau_user": tau_user,
                "tau_item": tau_item,
                "tau_user_bias": tau_user_bias,
                "tau_item_bias": tau_item_bias,
            }
            laws = {"user_law": user_law, "item_law": item_law, "hidden": hidden.value, "genres": genres, "seed": seed}
            said = _from_model(output, *size, factors, {**taus, **laws})
        else:
            said = _random_graph(output, *size, user_law, item_law, seed)
    said["seconds"] = time.perf_counter() - begun
    if json:
        screen.print_json(said)
    elif not quiet:
        _show(said)


def _random_graph(output: str, users: int, items: int, user_law: Any, item_law: Any, seed: int) -> dict[str, Any]:
    from considerate.data.output import write_likes
    from considerate.simulation.simulate import balanced_item_law, random_graph

    item_law = balanced_item_law(user_law, item_law, users=users, items=items)
    graph = random_graph(users, items, user_law, item_law, seed=seed)
    write_likes(output, graph.users, graph.items)
    return {
        "path": output,
        "users": users,
        "items": items,
        "edges": len(graph.users),
        "user_law": graph.user_law.describe(),
        "item_law": graph.item_law.describe(),
        "redraws": graph.redraws,
        "repairs": graph.repairs,
        "seed": seed,
    }


def _from_model(output: str, users: int, items: int, factors: int, how: dict[str, Any]) -> dict[str, Any]:
    from considerate.simulation.files import write_sample
    from considerate.simulation.simulate import simulate_from_model

    sample = simulate_from_model(users, items, factors, **how)
    paths = write_sample(output, sample, how["seed"])
    return paths | {
        "users": users,
        "items": items,
        "edges": int(sample.liked.sum()),
        "considered": len(sample.liked),
        "factors": factors,
        "user_law": how["user_law"].describe(),
        "item_law": how["item_law"].describe(),
        "seed": how["seed"],
    }


def _show(said: dict[str, Any]) -> None:
    facts = screen.facts()
    facts.add_row("graph", f"{said['users']:,} users, {said['items']:,} items, {said['edges']:,} likes")
    if "considered" in said:
        facts.add_row("considered", f"{said['considered']:,} pairs, the edges of H")
    facts.add_row("law of users", said["user_law"])
    facts.add_row("law of items", said["item_law"])
    facts.add_row("took", f"{said['seconds']:.1f} s")
    for name in ("path", "truth", "titles"):
        if said.get(name):
            facts.add_row("saved" if name == "path" else name, said[name])
    screen.stdout().print(facts)
