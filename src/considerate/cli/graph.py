"""considerate fit-graph, considerate evaluate-graph"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.fit import CheckpointFolder, steps_on_screen
from considerate.cli.options import READER, ModelOutput, Output, Panel, RankingGroup, grouped, option
from considerate.data.options import ReaderOptions
from considerate.parameters import GraphParameters

Edges = Annotated[str, typer.Argument(help="Edges in two columns: Parquet, CSV or other text, or a database.")]
EdgeReader = Annotated[ReaderOptions, Panel("Reading the edges", READER)]
GraphSettings = Annotated[GraphParameters, Panel("The model", tuple(entry.name for entry in fields(GraphParameters)))]
Weights = Annotated[RankingGroup, Panel("What pairs are ranked by", ("popularity", "lift"))]


@dataclass(frozen=True, kw_only=True)
class GraphOutput(Output):
    output: str = option("The model file to write.", ..., "--output", "-o")


@grouped
def fit_graph(
    edges: Edges, reader: EdgeReader, settings: GraphSettings, output: GraphOutput, checkpoints: CheckpointFolder
) -> None:
    """Fit the model to a graph whose vertices are of one kind, such as friends or links, and save it.

    The two columns are src and dst, source and target, from and to, or named by --user-column and --item-column; edges
    have no direction. `recommend`, `similar`, `find` and `inspect` open the model as any other: the vertex that asks is
    the user, the other the item, and p_like is p(link | considered).
    """
    from considerate.data.output import check_apart
    from considerate.fitting.checkpoint import Checkpoints
    from considerate.fitting.resume import CheckpointOptions
    from considerate.graph_recommender import GraphRecommender
    from considerate.storage.files import check_writable

    recommender, folder = GraphRecommender(**vars(settings)), checkpoints.checkpoint
    request = replace(
        recommender.fit_request(edges, reader),
        checkpoint=CheckpointOptions.parse(folder, checkpoints.checkpoint_every, checkpoints.resume),
        say=lambda note: None if output.quiet else screen.say("note", note),
    )
    check_apart(output.output, edges, reader.titles)
    check_writable(output.output)
    begun = time.perf_counter()
    with screen.library_messages(output.quiet):
        with steps_on_screen(recommender, request, None, output.quiet) as steps:
            for _ in steps:
                pass
        recommender.save(output.output)
    if folder is not None and checkpoints.remove_checkpoint:
        Checkpoints(folder, {}).remove()
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
        "popularity_weight": model.plan.popularity_weight,
        "lift_weight": model.plan.lift_weight,
        "path": output.output,
    }
    output.report(summary, _show_fit)


def _show_fit(values: dict[str, Any]) -> None:
    ended = "converged" if values["converged"] else "the cap on sweeps was reached: more may help (--sweeps)"
    facts = {
        "graph": "{vertices:,} vertices, {edges:,} edges",
        "fit": "{sweeps} sweeps in {seconds:.1f} s; " + ended,
        "bound": "{bound:,.0f}",
        "E[tau]": "{precision:.3g} of the vectors; u'u has a prior standard deviation of {prior_spread:.3g}",
        "ranked by": "popularity {popularity_weight:g}, lift {lift_weight:g}",
        "saved": "{path}",
    }
    screen.show_facts(facts, values)


@grouped
def evaluate_graph(
    model: Annotated[str, typer.Argument(help="A model file of `considerate fit-graph`.")],
    edges: Edges,
    reader: EdgeReader,
    weights: Weights,
    output: ModelOutput,
) -> None:
    """Score edges that were held out against 100,000 pairs without an edge: AUC, and the share above the 50th best.

    Edges of training, and those of vertices that the model does not have, are left out.
    """
    from considerate.graph_recommender import GraphRecommender

    with screen.library_messages(output.quiet):
        recommender = GraphRecommender.load(model, verify=output.verify or None)
        values = recommender.evaluate(edges, popularity=weights.popularity, lift=weights.lift, reader=reader)
    output.report(values, _show_evaluation)


def _show_evaluation(values: dict[str, Any]) -> None:
    facts = {"edges": "{edges:,} held out, against {pairs:,} pairs without an edge"}
    screen.show_facts(facts | {"AUC": "{auc:.4f}", "hits@50": "{hits@50:.4f}"}, values)
