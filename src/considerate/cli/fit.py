"""The command `considerate fit`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import typer

from considerate.cli import screen
from considerate.cli.features import SideGroup
from considerate.cli.options import (
    Backend,
    Cluster,
    Data,
    DatedReader,
    OptionGroup,
    Output,
    Settings,
    expand_groups,
    option,
)
from considerate.errors import UsageError

if TYPE_CHECKING:
    from considerate.fitting.resume import CheckpointOptions
    from considerate.fitting.session import FitBackend, FitRequest
    from considerate.fitting.stopping import FitStep
    from considerate.graph_recommender import GraphRecommender
    from considerate.recommender import Recommender

INTERRUPTED = 130
Division = StrEnum("Division", ["auto", "users", "items"])
Inner = StrEnum("Inner", ["one", "all"])


class FitOutput(Output):
    output: str = option(
        "The model file to write; with --sharded a folder, or an address such as s3://bucket/name.",
        ...,
        "--output",
        "-o",
    )
    no_likes: bool = option(
        "Do not write to the file what each user liked. Recommendations then cannot leave out liked items.", False
    )
    sharded: bool = option(
        "Write a folder of shards in place of one file. Each worker writes the shard of its users, so no likes or "
        "vectors of users pass through this machine.",
        False,
    )
    save_interrupted: bool = option(
        "On Ctrl-C save the posterior of the last finished sweep; without this option OUTPUT stays as it was.", False
    )


class CheckpointGroup(OptionGroup, panel="Checkpoints"):
    checkpoint: str | None = option(
        "Write the state of the fit every few sweeps to this folder, or to an address such as s3://bucket/name.", None
    )
    checkpoint_every: int = option("Number of sweeps between two checkpoints.", 5)
    resume: bool = option(
        "Continue from the last checkpoint, to the same model; start from the beginning if there is none.", False
    )
    remove_checkpoint: bool = option(
        "Remove the checkpoints once the model is saved. If they stay, --resume with more --sweeps continues the fit.",
        False,
    )

    def parse(self) -> CheckpointOptions | None:
        """Return the checkpoint options of a fit request."""
        from considerate.fitting.resume import CheckpointOptions

        return CheckpointOptions.parse(self.checkpoint, self.checkpoint_every, self.resume)

    def remove(self) -> None:
        """Remove the checkpoints, if --remove-checkpoint is given."""
        from considerate.fitting.checkpoint import Checkpoints

        if self.checkpoint is not None and self.remove_checkpoint:
            Checkpoints(self.checkpoint, {}).remove()


class FitCluster(Cluster):
    workers: int | None = option(
        "Number of Ray processes; if not given, one per machine of a cluster, or one per processor of a local Ray.",
        None,
    )
    worker_threads: int | None = option(
        "Threads of each Ray worker; if not given, the processors are shared among the workers.", None
    )
    division: Division = option(
        "The side whose vectors stay with their part of a divided graph; auto: as in the checkpoint, else users.",
        Division.auto,
    )
    item_shards: int | None = option(
        "Collect the items' sums in this many shards; as few as the memory allows if not given.", None
    )
    inner_sweeps: int = option(
        "Local sweeps of a part before it sends its messages. More than 1 gives another posterior: see "
        "docs/scaling.md.",
        1,
    )
    inner: Inner = option("With inner sweeps: one part at a time, or all at once.", Inner.one)
    out_of_core: bool = option(
        "Keep the parts of the graph in files next to the output, for graphs larger than the memory.", False
    )
    memory: str | None = option(
        "The memory that the fit may use on this machine, such as 8GB, or unlimited; the free memory if not given.",
        None,
    )

    def make_backend(self, output: str, threads: int | None) -> FitBackend | None:
        """Make the backend that divides the graph; None for a fit of the whole graph in memory."""
        division: dict[str, Any] = {
            "division": self.division.value,
            "item_shards": self.item_shards,
            "inner_sweeps": self.inner_sweeps,
            "inner": self.inner.value,
        }
        if self.backend is Backend.ray:
            if self.out_of_core:
                raise UsageError("--out-of-core is for --backend local: on Ray the parts are in the workers' memory.")
            from considerate.distributed import RayBackend

            return RayBackend(address=self.address, workers=self.workers, threads=self.worker_threads, **division)
        for name in ("address", "workers", "worker_threads"):
            if getattr(self, name) is not None:
                flag = "--" + name.replace("_", "-")
                raise UsageError(f"{flag} needs --backend ray; without it --threads sets the number of threads.")
        if self.out_of_core:
            from considerate.distributed import OutOfCore
            from considerate.storage.filesystems import Folder

            local = Folder.at(output).local
            folder = None if local is None else os.path.dirname(local)
            return OutOfCore(folder=folder, threads=None if threads is None else int(threads), **division)
        if vars(self) | {"memory": None} != vars(FitCluster()):
            raise UsageError(
                "--division, --item-shards, --inner-sweeps and --inner are for a divided graph: --backend ray, or "
                "--out-of-core."
            )
        return None


@expand_groups
def fit(
    data: Data,
    reader: DatedReader,
    side: SideGroup,
    settings: Settings,
    output: FitOutput,
    checkpoints: CheckpointGroup,
    cluster: FitCluster,
) -> None:
    """Fit the model to likes and save it.

    Ctrl-C ends the fit with exit code 130 and leaves OUTPUT as it was. With --save-interrupted it saves the posterior
    of the last finished sweep. With --checkpoint a later --resume continues the fit.
    """
    from considerate.cli.describe import describe_fit
    from considerate.data.output import check_apart
    from considerate.data.side_information import read_side
    from considerate.distributed.session import room_for_shards
    from considerate.fitting.memory import memory_override
    from considerate.recommender import Recommender
    from considerate.storage.files import check_writable, folder_beside

    path = output.output
    recommender = Recommender(**vars(settings))
    request = replace(
        recommender.fit_request(data, reader=reader),
        side=read_side(data, reader, **side.pairs()).with_features(**side.features()),
        checkpoint=checkpoints.parse(),
        likes=not output.no_likes,
        keep_unfinished=output.save_interrupted,
        say=output.note,
    )
    backend = cluster.make_backend(path, recommender.threads)
    if output.sharded and backend is None:
        raise UsageError("--sharded is for a divided graph: --backend ray, or --out-of-core.")
    check_apart(path, data, reader.titles, *side.sources())
    if output.sharded:
        room_for_shards(path)
    else:
        check_writable(path)
    begun, interrupted = time.perf_counter(), False
    with screen.library_messages(output.quiet), ExitStack() as stack:
        try:
            if cluster.memory is not None:
                stack.enter_context(memory_override("--memory", cluster.memory))
            if backend is not None:
                model_folder = path if output.sharded else stack.enter_context(folder_beside(path))
                request = replace(request, model_folder=model_folder)
            with steps_on_screen(recommender, request, output.quiet, backend) as steps:
                for _ in steps:
                    pass
        except KeyboardInterrupt:
            if not (output.save_interrupted and recommender.__sklearn_is_fitted__()):
                later = "continue with --resume" if checkpoints.checkpoint else "with --checkpoint FOLDER it can resume"
                text = f"interrupted; {path} is as it was. --save-interrupted saves an unfinished fit; {later}."
                raise typer.Exit(screen.complain(text, INTERRUPTED)) from None
            interrupted = True
        if not output.sharded:
            recommender.save(path, likes=not output.no_likes)
        summary = describe_fit(recommender, time.perf_counter() - begun)
    if not interrupted:
        checkpoints.remove()
    summary |= {"interrupted": interrupted, "path": path}
    output.report(summary, _show)
    if interrupted:
        screen.say("warning", f"interrupted; the posterior of sweep {recommender.n_iter_} is saved in {path}.")
        raise typer.Exit(INTERRUPTED)


@contextmanager
def steps_on_screen(
    recommender: Recommender | GraphRecommender, request: FitRequest, quiet: bool, backend: FitBackend | None = None
) -> Iterator[Iterator[FitStep]]:
    """The steps of a fit, with a bar on stderr. Ctrl-C leaves the recommender as of the last finished sweep."""
    from considerate.fitting.progress import progress, reading_progress

    console = screen.stderr()
    shown = not quiet and console.is_terminal
    with reading_progress(console) as on_read_progress:
        request = replace(request, on_read_progress=on_read_progress if shown else None)
        with closing(recommender.fit_steps(request, backend)) as steps:
            opening = request.plan.opening
            bar = progress(steps, recommender.sweeps, console, later=backend is not None, opening=opening)
            yield bar if shown else steps


def _show(values: dict[str, Any]) -> None:
    ended = "the cap on sweeps was reached: more may help (--sweeps)"
    if values["converged"] or values["interrupted"]:
        ended = "converged" if values["converged"] else "interrupted"
    opened = " ({opening} of them an opening in closed form)" if values["opening"] else ""
    folded = " ({duplicates:,} duplicates folded)" if values["duplicates"] else ""
    facts = {
        "data": "{users:,} users, {items:,} items, {edges:,} likes" + folded,
        "fit": "{sweeps} sweeps" + opened + " in {seconds:.1f} s; " + ended,
        "bound": "{bound:,.0f} ({bound_per_edge:.4f} an edge of H)",
        "E[tau]": screen.precisions(values["precisions"]),
        "prior spread": "{prior_spread:.3g}, the standard deviation of u'v",
        "saved": "{path}",
        "chosen": "{chosen[told]}" if values["chosen"] else None,
    }
    screen.show_facts(facts, values)
