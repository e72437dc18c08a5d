"""considerate fit"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from considerate.cli import screen
from considerate.cli.features import FeatureFiles
from considerate.cli.options import Backend, Cluster, Data, DatedReader, KnownGroup, Output, Settings, grouped, option
from considerate.errors import UsageError

if TYPE_CHECKING:
    from considerate.fitting.session import FitBackend, FitRequest
    from considerate.fitting.stopping import FitStep
    from considerate.graph_recommender import GraphRecommender
    from considerate.recommender import Recommender

INTERRUPTED = 130
Division = StrEnum("Division", ["auto", "users", "items"])
Inner = StrEnum("Inner", ["one", "all"])


@dataclass(frozen=True, kw_only=True)
class FitOutput(Output):
    output: str = option(
        "The model file to write; with --sharded a folder, or an address such as s3://bucket/name.",
        ...,
        "--output",
        "-o",
    )
    no_likes: bool = option(
        "Leave out of the file what each user liked; it then cannot be kept out of recommendations.", False
    )
    sharded: bool = option(
        "Write a folder of shards, each by the worker that has its users, in place of one file; no likes or vectors of "
        "users then pass through this machine.",
        False,
    )
    save_interrupted: bool = option(
        "On Ctrl-C save the posterior of the last finished sweep; else what was at OUTPUT stays.", False
    )


@dataclass(frozen=True, kw_only=True)
class CheckpointFolder:
    panel: ClassVar[str] = "Checkpoints"
    checkpoint: str | None = option(
        "Folder, or address such as s3://bucket/name, to write the state of the fit to every few sweeps.", None
    )
    checkpoint_every: int = option("Sweeps from one checkpoint to the next.", 5)
    resume: bool = option(
        "Go on from the last checkpoint there, to the same model; from the beginning if there is none.", False
    )
    remove_checkpoint: bool = option(
        "Remove the checkpoints once the model is saved; else they stay, and --resume with more --sweeps goes on.",
        False,
    )


@dataclass(frozen=True, kw_only=True)
class FitCluster(Cluster):
    workers: int | None = option(
        "Processes of Ray; one a machine of a cluster, or a processor of a local Ray, if not given.", None
    )
    worker_threads: int | None = option("Threads of each worker of Ray; the processors shared out if not given.", None)
    division: Division = option(
        "The side whose vectors stay with their part of a divided graph; auto: the checkpoint's, else users.",
        Division.auto,
    )
    item_shards: int | None = option(
        "Ask for the items' sums in so many shards; as few as memory allows if not given.", None
    )
    inner_sweeps: int = option(
        "Local sweeps of a part before it sends its messages. With more than 1 it is another posterior: see "
        "docs/scaling.md.",
        1,
    )
    inner: Inner = option("With inner sweeps: one part at a time, or all at once.", Inner.one)
    out_of_core: bool = option(
        "Keep the parts of the graph in files beside the output: for graphs larger than the memory.", False
    )
    memory: str | None = option(
        "The memory that the fit may take here, such as 8GB, or unlimited; what the system says is free if not given.",
        None,
    )

    def choose(self, output: str, threads: int | None) -> Any:
        """The backend that divides the graph, or None where it stays whole in memory."""
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
                raise UsageError(f"{flag} goes with --backend ray; here --threads says how many threads there are.")
        if self.out_of_core:
            from considerate.distributed import OutOfCore
            from considerate.storage.filesystems import Folder

            local = Folder.at(output).local
            beside = None if local is None else os.path.dirname(local)
            return OutOfCore(folder=beside, threads=None if threads is None else int(threads), **division)
        if replace(self, memory=None) != FitCluster():
            raise UsageError(
                "--division, --item-shards, --inner-sweeps and --inner are for a divided graph: --backend ray, or "
                "--out-of-core."
            )
        return None


@grouped
def fit(
    data: Data,
    reader: DatedReader,
    known: KnownGroup,
    features: FeatureFiles,
    settings: Settings,
    output: FitOutput,
    checkpoints: CheckpointFolder,
    where: FitCluster,
) -> None:
    """Fit the model to likes and save it.

    Ctrl-C ends the fit with exit code 130. What was at OUTPUT stays as it was; --save-interrupted saves the posterior
    of the last finished sweep there, and --checkpoint keeps the fit so that --resume goes on with it.
    """
    from considerate.cli.describe import describe_fit
    from considerate.data.output import check_apart
    from considerate.data.side_information import read_side
    from considerate.distributed.session import room_for_shards
    from considerate.fitting.checkpoint import Checkpoints
    from considerate.fitting.memory import memory_override
    from considerate.fitting.resume import CheckpointOptions
    from considerate.recommender import Recommender
    from considerate.storage.files import check_writable, folder_beside

    path, quiet, folder = output.output, output.quiet, checkpoints.checkpoint
    recommender = Recommender(**vars(settings))
    request = replace(
        recommender.fit_request(data, reader=reader),
        side=read_side(data, reader, **known.beside()).with_features(**features.tables()),
        checkpoint=CheckpointOptions.parse(folder, checkpoints.checkpoint_every, checkpoints.resume),
        likes=not output.no_likes,
        keep_unfinished=output.save_interrupted,
        say=lambda note: None if quiet else screen.say("note", note),
    )
    backend = where.choose(path, recommender.threads)
    if output.sharded and backend is None:
        raise UsageError("--sharded is for a divided graph: --backend ray, or --out-of-core.")
    check_apart(path, data, reader.titles, features.item_features, features.user_features, *vars(known).values())
    if output.sharded:
        room_for_shards(path)
    else:
        check_writable(path)
    begun, interrupted = time.perf_counter(), False
    with screen.library_messages(quiet), ExitStack() as stack:
        try:
            if where.memory is not None:
                stack.enter_context(memory_override("--memory", where.memory))
            if backend is not None:
                model_folder = path if output.sharded else stack.enter_context(folder_beside(path))
                request = replace(request, model_folder=model_folder)
            with steps_on_screen(recommender, request, backend, quiet) as steps:
                for _ in steps:
                    pass
        except KeyboardInterrupt:
            if not (output.save_interrupted and recommender.__sklearn_is_fitted__()):
                later = "go on with --resume" if folder else "with --checkpoint FOLDER it could go on later"
                text = (
                    f"interrupted; {path} is as it was. --save-interrupted saves what such a fit has reached; {later}."
                )
                raise typer.Exit(screen.complain(text, INTERRUPTED)) from None
            interrupted = True
        if not output.sharded:
            recommender.save(path, likes=not output.no_likes)
        summary = describe_fit(recommender, time.perf_counter() - begun)
    if folder is not None and checkpoints.remove_checkpoint and not interrupted:
        Checkpoints(folder, {}).remove()
    summary |= {"interrupted": interrupted, "path": path}
    output.report(summary, _show)
    if interrupted:
        screen.say("warning", f"interrupted; the posterior of sweep {recommender.n_iter_} is saved in {path}.")
        raise typer.Exit(INTERRUPTED)


@contextmanager
def steps_on_screen(
    recommender: Recommender | GraphRecommender, request: FitRequest, backend: FitBackend | None, quiet: bool
) -> Iterator[Iterator[FitStep]]:
    """The steps of a fit, with a bar on stderr. After Ctrl-C the recommender is as the last finished sweep left it."""
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
