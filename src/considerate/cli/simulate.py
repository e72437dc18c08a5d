"""The command `considerate simulate`."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from enum import StrEnum
from typing import Any

from considerate.cli import screen
from considerate.cli.options import OptionGroup, Output, Seed, expand_groups, option
from considerate.errors import UsageError

HiddenGraph = StrEnum("HiddenGraph", ["popularity", "random_graph"])


class Size(OptionGroup):
    users: int | None = option("Number of users; 10,000 if not given.", None)
    items: int | None = option("Number of items; 1,000 if not given.", None)
    xbox: bool = option("The sizes of the paper's Xbox sample: 6.2 million users and 12,000 items.", False)


class Laws(OptionGroup, panel="Degree laws"):
    user_exponent: float = option("Exponent of the users' law d^-exponent exp(-d / cutoff).", 1.4)
    user_cutoff: float = option("Cut-off of the users' law; inf for none.", 70.0)
    user_minimum: int | None = option("The smallest degree of a user; 1 if not given, and 8 with --from-model.", None)
    item_exponent: float = option("Exponent of the items' law d^-exponent, cut off so that eq. 1 holds.", 0.77)


class FromModel(OptionGroup, panel="With --from-model"):
    from_model: bool = option(
        "Draw vectors, biases, a hidden graph and coins from the model (eq. 5). The truth is written to "
        "OUTPUT.truth.safetensors, and with --genres the titles to OUTPUT.titles.parquet or .csv.",
        False,
    )
    factors: int = option("Length of the vectors.", 20)
    tau_user: float = option("Precision of user vectors.", 2.0)
    tau_item: float = option("Precision of item vectors.", 3.5)
    tau_user_bias: float = option("Precision of user biases; inf for none.", math.inf)
    tau_item_bias: float = option("Precision of item biases; inf for none.", math.inf)
    hidden: HiddenGraph = option(
        "How the considered pairs are drawn. popularity: by popularity, as q(H) assumes; random_graph: with the two "
        "laws.",
        HiddenGraph.popularity,
    )
    genres: int = option("Gather the items around this many genres, 2 to 8, and give them titles.", 0)


class SimulateOutput(Output):
    output: str = option("The .parquet or .csv file to write.", ..., "--output", "-o")


@expand_groups
def simulate(size: Size, laws: Laws, model: FromModel, output: SimulateOutput, seed: Seed = 0) -> None:
    """Write simulated likes: a random graph with given degree laws, or data from the model itself."""
    from considerate.data.output import check_output_file, write_columns
    from considerate.simulation.degrees import PowerLaw
    from considerate.simulation.simulate import XBOX_SAMPLE, balanced_item_law, random_graph, simulate_from_model

    path, begun = output.output, time.perf_counter()
    check_output_file(path)
    for name, value in (("users", size.users), ("items", size.items)):
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}; it must be a whole number at least 1.")
        if value is not None and size.xbox:
            raise UsageError("--xbox has its own sizes; leave out --users and --items.")
    if model.genres and not model.from_model:
        raise UsageError("--genres goes with --from-model.")
    users, items = (XBOX_SAMPLE.users, XBOX_SAMPLE.items) if size.xbox else (size.users or 10_000, size.items or 1_000)
    minimum = laws.user_minimum
    if minimum is None:
        minimum = min(8, items) if model.from_model else 1
    user_law, item_law = PowerLaw(laws.user_exponent, laws.user_cutoff, minimum), PowerLaw(laws.item_exponent)
    values: dict[str, Any] = {"users": users, "items": items, "seed": seed}
    with screen.library_messages(output.quiet):
        if model.from_model:
            options = asdict(model) | {"hidden": model.hidden.value, "user_law": user_law, "item_law": item_law}
            del options["from_model"]
            sample = simulate_from_model(users, items, **options, seed=seed)
            values |= sample.write(path, seed) | {"factors": model.factors, "considered": len(sample.liked)}
            values["edges"] = int(sample.liked.sum())
        else:
            item_law = balanced_item_law(user_law, item_law, users=users, items=items)
            graph = random_graph(users, items, user_law, item_law, seed=seed)
            write_columns(path, user=graph.users, item=graph.items)
            user_law, item_law = graph.user_law, graph.item_law
            values |= {"path": path, "redraws": graph.redraws, "repairs": graph.repairs, "edges": len(graph.users)}
    values |= {"user_law": user_law.describe(), "item_law": item_law.describe(), "seconds": time.perf_counter() - begun}
    facts = {
        "graph": "{users:,} users, {items:,} items, {edges:,} likes",
        "considered": "{considered:,} pairs, the edges of H" if model.from_model else None,
        "law of users": "{user_law}",
        "law of items": "{item_law}",
        "took": "{seconds:.1f} s",
        "saved": "{path}",
        "truth": "{truth}" if values.get("truth") else None,
        "titles": "{titles}" if values.get("titles") else None,
    }
    output.report(values, lambda values: screen.show_facts(facts, values))
