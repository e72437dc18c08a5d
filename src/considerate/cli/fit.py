"""considerate fit"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from considerate.cli import screen
from considerate.cli.options import (
    CHECKPOINT_PANEL,
    OUTPUT_PANEL,
    Address,
    Backend,
    BackendName,
    Division,
    DivisionName,
    Inner,
    InnerName,
    InnerSweeps,
    ItemShards,
    Json,
    OutOfCoreFlag,
    Quiet,
    RayWorkers,
    WorkerThreads,
    check_inputs_kept,
    chosen_backend,
    with_reader,
    with_settings,
)
from considerate.data import ReaderOptions
from considerate.errors import UsageError

if TYPE_CHECKING:
    from considerate.recommender import Recommender


@with_reader
@with_settings()
def fit(
    data: Annotated[
        str, typer.Argument(help="Parquet file or folder, CSV or other delimited text, or the address of a database.")
    ],
    reader: ReaderOptions,
    settings: dict[str, Any],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="The model file to write; with --sharded a folder, or an address such as s3://bucket/name.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ],
    no_likes: Annotated[
        bool,
        typer.Option(
            "--no-likes",
            help="Leave out of the file what each user liked; it then cannot be kept out of recommendations.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Folder, or address such as s3://bucket/name, to write the state of the fit to every few sweeps.",
            show_default=False,
            rich_help_panel=CHECKPOINT_PANEL,
        ),
    ] = None,
    checkpoint_every: Annotated[
        int, typer.Option(help="Sweeps from one checkpoint to the next.", rich_help_panel=CHECKPOINT_PANEL)
    ] = 5,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on from the last checkpoint there, to the same model; from the beginning if there is none.",
            rich_help_panel=CHECKPOINT_PANEL,
        ),
    ] = False,
    remove_checkpoint: Annotated[
        bool,
        typer.Option(
            "--remove-checkpoint",
            help="Remove the checkpoints once the model is saved; else they stay, and --resume with more --sweeps "
            "goes on.",
            rich_help_panel=CHECKPOINT_PANEL,
        ),
    ] = False,
    backend: Backend = BackendName.local,
    address: Address = None,
    workers: RayWorkers = None,
    worker_threads: WorkerThreads = None,
    division: Division = DivisionName.auto,
    item_shards: ItemShards = None,
    inner_sweeps: InnerSweeps = 1,
    inner: Inner = InnerName.one,
    out_of_core: OutOfCoreFlag = False,
    sharded: Annotated[
        bool,
        typer.Option(
            "--sharded",
            help="Write a folder of shards, each by the worker that has its users, in place of one file; no likes "
            "or vectors of users then pass through this machine.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Fit the model to likes and save it.

    Ctrl-C ends the fit after the last finished sweep: its posterior is saved, and the exit code is 130.
    """
    from considerate.cli.describe import describe_fit
    from considerate.data import read_likes
    from considerate.distributed.divided_shards import room_for_shards
    from considerate.fitting.checkpoint import Checkpoints
    from considerate.fitting.resume import Keeping
    from considerate.recommender import Recommender
    from considerate.storage.files import check_writable, folder_beside

    recommender = Recommender(**settings)
    recommender.check()
    Keeping.asked(checkpoint, checkpoint_every, resume)
    how = (address, workers, worker_threads, division, item_shards, inner_sweeps, inner, out_of_core)
    dividing = chosen_backend(backend, output, *how, recommender.threads)
    if sharded and dividing is None:
        raise UsageError("--sharded is for a divided graph: --backend ray, or --out-of-core.")
    check_inputs_kept(output, data, reader.titles)
    if sharded:
        room_for_shards(output)
    else:
        check_writable(output)
    begun = time.perf_counter()
    keeping = {"checkpoint": checkpoint, "checkpoint_every": checkpoint_every, "resume": resume}
    with screen.told(quiet), ExitStack() as stack:

        def say(note: str) -> None:
            if not quiet:
                screen.say("note", note)

        if dividing is None:
            interactions = read_likes(data, reader)
            for note in interactions.notes:
                say(note)
            whole = run(recommender, interactions, quiet, **keeping)
        else:
            folder = output if sharded else stack.enter_context(folder_beside(output))
            where = {"backend": dividing, "reader": reader, "model_folder": folder, "likes": not no_likes, "say": say}
            whole = run(recommender, data, quiet, **where, **keeping)
        if not sharded:
            recommender.save(output, likes=not no_likes)
        summary = describe_fit(recommender, time.perf_counter() - begun)
    if checkpoint is not None and remove_checkpoint and whole:
        Checkpoints(checkpoint, {}).remove()
    summary |= {"interrupted": not whole, "path": output}
    if json:
        screen.print_json(summary)
    elif not quiet:
        screen.stdout().print(_summary(summary))
    if not whole:
        screen.say("warning", f"interrupted; the posterior of sweep {recommender.n_iter_} is saved in {output}.")
        raise typer.Exit(130)


def run(recommender: Recommender, source: Any, quiet: bool, **how: Any) -> bool:
    """Fit with a bar on stderr; False where Ctrl-C ended it early. If no sweep was finished, Ctrl-C goes on."""
    from considerate.fitting.progress import progress, reading_progress

    console = screen.stderr()
    shown = not quiet and console.is_terminal
    with reading_progress(console) as reading:
        steps = recommender.fit_steps(source, reading=reading if shown else None, **how)
        try:
            for _ in progress(steps, recommender.sweeps, console, later="backend" in how) if shown else steps:
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
