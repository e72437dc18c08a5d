"""considerate fit"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import OUTPUT_PANEL, Json, Quiet, check_inputs_kept, with_reader, with_settings

if TYPE_CHECKING:
    from considerate.interactions import Interactions
    from considerate.recommender import Recommender


@with_reader
@with_settings()
def fit(
    data: Annotated[
        str, typer.Argument(help="Parquet file or folder, CSV or other delimited text, or the address of a database.")
    ],
    reader: dict[str, Any],
    settings: dict[str, Any],
    output: Annotated[
        str, typer.Option("--output", "-o", help="The model file to write.", rich_help_panel=OUTPUT_PANEL)
    ],
    no_likes: Annotated[
        bool,
        typer.Option(
            "--no-likes",
            help="Leave out of the file what each user liked; it then cannot be kept out of recommendations.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Fit the model to likes and save it.

    Ctrl-C ends the fit after the last finished sweep: its posterior is saved, and the exit code is 130.
    """
    from considerate.files import check_writable
    from considerate.inspection import describe_fit
    from considerate.interactions import read_interactions
    from considerate.recommender import Recommender

    recommender = Recommender(**settings)
    recommender.check()
    check_inputs_kept(output, data, reader["titles"])
    check_writable(output)
    begun = time.perf_counter()
    with screen.told(quiet):
        interactions = read_interactions(data, **reader)
        if not quiet:
            for note in interactions.notes:
                screen.say("note", note)
        whole = run(recommender, interactions, quiet)
    recommender.save(output, likes=not no_likes)
    summary = describe_fit(recommender, interactions, time.perf_counter() - begun)
    summary |= {"interrupted": not whole, "path": output}
    if json:
        screen.print_json(summary)
    elif not quiet:
        screen.stdout().print(_summary(summary))
    if not whole:
        screen.say("warning", f"interrupted; the posterior of sweep {recommender.n_iter_} is saved in {output}.")
        raise typer.Exit(130)


def run(recommender: Recommender, interactions: Interactions, quiet: bool) -> bool:
    """Fit with a bar on stderr; False where Ctrl-C ended it early. If no sweep was finished, Ctrl-C goes on."""
    from considerate.progress import progress

    steps = recommender.fit_steps(interactions)
    console = screen.stderr()
    shown = not quiet and console.is_terminal
    try:
        for _ in progress(steps, recommender.sweeps, console) if shown else steps:
            pass
    except KeyboardInterrupt:
        steps.close()
        if not recommender.__sklearn_is_fitted__():
            raise
        return False
    return True


def _summary(said: dict[str, Any]) -> Any:
    facts = screen.facts()
    counted = f"{said['users']:,} users, {said['items']:,} items, {said['edges']:,} likes"
    if said["duplicates"]:
        counted += f" ({said['duplicates']:,} duplicates folded)"
    facts.add_row("data", counted)
    ended = "the cap on sweeps was reached: more may help (--sweeps)"
    if said["converged"] or said["interrupted"]:
        ended = "converged" if said["converged"] else "interrupted"
    facts.add_row("fit", f"{said['sweeps']} sweeps in {said['seconds']:.1f} s; {ended}")
    facts.add_row("bound", f"{said['bound']:,.0f} ({said['bound_per_edge']:.4f} an edge of H)")
    facts.add_row("E\\[tau]", screen.precisions(said["precisions"]))
    facts.add_row("prior spread", f"{said['prior_spread']:.3g}, the standard deviation of u'v")
    facts.add_row("saved", said["path"])
    return facts
