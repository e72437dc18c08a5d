"""The commands `considerate fit-graph` and `considerate evaluate-graph`."""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.fit import CheckpointGroup, steps_on_screen
from considerate.cli.options import (
    READER,
    ModelOutput,
    Output,
    Panel,
    RankingGroup,
    check_output,
    expand_groups,
    option,
)
from considerate.data.options import ReaderOptions
from considerate.inference.parts.vertices import GraphParameters

Edges = Annotated[str, typer.Argument(help="Edges in two columns: Parquet, CSV or other text, or a database.")]
EdgeReader = Annotated[ReaderOptions, Panel("Reading the edges", READER)]
GraphSettings = Annotated[GraphParameters, Panel("The model", tuple(entry.name for entry in fields(GraphParameters)))]
Weights = Annotated[RankingGroup, Panel("Weights of the score of a pair", ("popularity", "lift"))]


class GraphOutput(Output):
    output: str = option("The model file to write.", ..., "--output", "-o")


@expand_groups
def fit_graph(
    edges: Edges, reader: EdgeReader, settings: GraphSettings, output: GraphOutput, checkpoints: CheckpointGroup
) -> None:
    """Fit the model to a graph with vertices of one kind, such as friends or links, and save it.

    The two columns are src and dst, source and target, or from and to; --user-column and --item-column name others.
    Edges have no direction. `recommend`, `similar`, `find` and `inspect` open the model like any other: the vertex that
    asks is the user, the other one the item, and p_like is p(link | considered).
    """
    from considerate.graph_recommender import GraphRecommender

    recommender = GraphRecommender(**vars(settings))
    request = replace(recommender.fit_request(edges, reader), checkpoint=checkpoints.parse(), say=output.note)
    check_output(output.output, edges, reader.titles)
    begun = time.perf_counter()
    with screen.library_messages(output.quiet):
        with steps_on_screen(recommender, request, output.quiet) as steps:
            for _ in steps:
                pass
        recommender.save(output.output)
    checkpoints.remove()
    model = recommender.model_
    summary = {
        "source": recommender.data_.source,
        "vertices": model.item_count,
        "edges": model.users.edges // 2,
        "factors": model.factors,
        "signed": bool(model.plan.signed),
        "sweeps": recommender.n_iter_,
        "converged": recommender.converged_,
        "seconds": time.perf_counter() - begun,
        "bound": float(recommender.bound_[-1]),
        "precision": model.precisions.item.mean,
        "prior_spread": model.shared.prior_spread(),
        "popularity_weight": model.plan.popularity,
        "lift_weight": model.plan.lift,
        "path": output.output,
    }
    ended = "converged" if recommender.converged_ else "the cap on sweeps was reached: more may help (--sweeps)"
    facts = {
        "graph": "{vertices:,} vertices, {edges:,} edges",
        "fit": "{sweeps} sweeps in {seconds:.1f} s; " + ended,
        "bound": "{bound:,.0f}",
        "E[tau]": "{precision:.3g} of the vectors; u'u has a prior standard deviation of {prior_spread:.3g}",
        "ranked by": "popularity {popularity_weight:g}, lift {lift_weight:g}",
        "saved": "{path}",
    }
    output.report(summary, lambda values: screen.show_facts(facts, values))


@expand_groups
def evaluate_graph(
    model: Annotated[str, typer.Argument(help="A model file of `considerate fit-graph`.")],
    edges: Edges,
    reader: EdgeReader,
    weights: Weights,
    output: ModelOutput,
) -> None:
    """Score held-out edges against 100,000 pairs without an edge: AUC, and the share of edges above the 50th best pair.

    Edges of training are left out, and so are edges of vertices that the model does not have.
    """
    from considerate.graph_recommender import GraphRecommender

    with screen.library_messages(output.quiet):
        recommender = GraphRecommender.load(model, verify=output.verify or None)
        values = recommender.evaluate(edges, popularity=weights.popularity, lift=weights.lift, reader=reader)
    facts: dict[str, Any] = {"edges": "{edges:,} held out, against {pairs:,} pairs without an edge"}
    facts |= {"AUC": "{auc:.4f}", "hits@50": "{hits@50:.4f}"}
    output.report(values, lambda values: screen.show_facts(facts, values))
