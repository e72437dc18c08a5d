"""Options that several commands share. Those of a fit are made from the fields of `Parameters`, where they are
written once; those of the reader from the fields of `ReaderOptions`."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import Field, fields
from enum import StrEnum
from typing import Annotated, Any

import typer

from considerate.data import ReaderOptions
from considerate.errors import UsageError
from considerate.parameters import Parameters, short_range

READER_PANEL, SETTINGS_PANEL, OUTPUT_PANEL = "Reading the data", "The model", "Output"
CHECKPOINT_PANEL = "Checkpoints"

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.", rich_help_panel=OUTPUT_PANEL)]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, notes or summaries.", rich_help_panel=OUTPUT_PANEL)
]
Seed = Annotated[int, typer.Option(help="Seed of every draw; a whole number at least 0.")]


def with_reader(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command whose argument `reader`, `ReaderOptions`, comes from options of the shell."""
    return _with_reader(command, [option for option in fields(ReaderOptions) if option.name != "time_column"])


def with_untitled_reader(command: Callable[..., Any]) -> Callable[..., Any]:
    """`with_reader` without what is about titles."""
    chosen = [option for option in fields(ReaderOptions) if not option.name.startswith(("title", "time"))]
    return _with_reader(command, chosen)


def _with_reader(command: Callable[..., Any], chosen: Iterable[Field[Any]]) -> Callable[..., Any]:
    options = [
        _keyword(
            option.name,
            str | None,
            None,
            typer.Option(help=option.metadata["text"], rich_help_panel=READER_PANEL, show_default=False),
        )
        for option in chosen
    ]
    return _widened(command, "reader", options, ReaderOptions)


def with_settings(names: Iterable[str] | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A command whose argument `settings`, a dictionary, comes from options made of fields of `Parameters`."""
    chosen = [one for one in fields(Parameters) if names is None or one.name in set(names)]

    def widen(command: Callable[..., Any]) -> Callable[..., Any]:
        return _widened(command, "settings", [_setting(one) for one in chosen])

    return widen


def _setting(one: Field[Any]) -> inspect.Parameter:
    """The option of one setting. Ranges are checked by `Parameters.check`, so that there is one message for each."""
    meta = one.metadata
    flag = "--" + one.name.replace("_", "-")
    about: dict[str, Any] = {"rich_help_panel": SETTINGS_PANEL}
    if isinstance(one.default, bool):
        option = typer.Option(flag, help=_sentence(meta["text"]), **about)
        return _keyword(one.name, bool, one.default, option)
    kind: Any = str if meta["choices"] else int if meta["integer"] else float
    parser: dict[str, Any] = (
        {"parser": _number_or_word, "metavar": "NUMBER|" + "|".join(meta["words"])} if meta["words"] else {}
    )
    text = _sentence(meta["text"])
    if not meta["choices"]:
        text += f" {short_range(one).capitalize()}."
    option = typer.Option(flag, help=text, show_default=one.default is not None, **about, **parser)
    return _keyword(one.name, kind | None if meta["optional"] else kind, one.default, option)


def _number_or_word(text: str | float) -> Any:
    """A number where it is one; of a word, `Parameters.check` says whether it is allowed."""
    try:
        return float(text)
    except ValueError:
        return text


def _sentence(text: str) -> str:
    """With a capital and a full stop; a symbol of the paper keeps its case."""
    words = text.replace("[", r"\[")
    first = words.split(" ", 1)[0]
    return (words if len(first.rstrip(":")) == 1 or first == "rho:" else words[0].upper() + words[1:]) + "."


def _keyword(name: str, kind: Any, default: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _widened(
    command: Callable[..., Any], argument: str, options: list[inspect.Parameter], make: Callable[..., Any] = dict
) -> Callable[..., Any]:
    """The command with one argument replaced by the options of which `make` makes it."""
    signature = inspect.signature(command, eval_str=True)
    names = [option.name for option in options]

    @functools.wraps(command)
    def widened(**given: Any) -> Any:
        given[argument] = make(**{name: given.pop(name) for name in names})
        return command(**given)

    parameters: list[inspect.Parameter] = []
    for one in signature.parameters.values():
        parameters += options if one.name == argument else [one.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
    del widened.__wrapped__  # what typer is to see is the signature below
    widened.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    widened.__annotations__ = {one.name: one.annotation for one in parameters}
    return widened


def given_ids(values: list[str] | None) -> list[str] | None:
    """Ids given one by one, or with @FILE one a line; None where there are none."""
    if not values:
        return None
    ids: list[str] = []
    for value in values:
        if not value.startswith("@"):
            ids.append(value)
            continue
        try:
            with open(value[1:], encoding="utf-8") as file:
                ids += [line.strip() for line in file if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise UsageError(f"{value[1:]}: cannot be read ({reason}); @FILE is a text with one id a line.") from error
    return ids


def check_inputs_kept(output: str, *sources: str | None) -> None:
    """UsageError where writing `output` would replace a file that is read, or add one to a folder that is."""
    from considerate.data.inputs import files_of, would_be_read
    from considerate.data.output import check_apart

    for source in sources:
        if source is None:
            continue
        for file in files_of(source):
            check_apart(output, file)
        if would_be_read(output, source):
            raise UsageError(f"{output}: is in {source}, a folder whose Parquet files are read; choose another place.")


def id_files(*options: list[str] | None) -> list[str]:
    """The files that @FILE names in lists of ids."""
    return [value[1:] for values in options for value in values or [] if value.startswith("@")]


class Score(StrEnum):
    """The paper's three scores."""

    like = "like"
    popularity = "popularity"
    popularity_x_like = "popularity_x_like"


def score_option(panel: str) -> Any:
    """The option of one of the paper's scores, in a panel of the command's help."""
    text = "One of the paper's scores in place of the knob: like, popularity or popularity_x_like."
    return typer.Option(help=text, show_default=False, rich_help_panel=panel)


class Cold(StrEnum):
    """What becomes of a user of whom nothing is known."""

    error = "error"
    popular = "popular"


class HiddenGraph(StrEnum):
    """How a simulated H is made."""

    popularity = "popularity"
    random_graph = "random_graph"


class BackendName(StrEnum):
    """Where the work is done."""

    local = "local"
    ray = "ray"


BACKEND_PANEL = "Where it runs"
Backend = Annotated[
    BackendName, typer.Option("--backend", help="Threads here, or a Ray cluster.", rich_help_panel=BACKEND_PANEL)
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Of the Ray cluster: HOST:6379, or auto on one of its machines; a local Ray is started if not given.",
        show_default=False,
        rich_help_panel=BACKEND_PANEL,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="How many: threads here, processes of Ray; as many as there are processors or machines if not given.",
        show_default=False,
        rich_help_panel=BACKEND_PANEL,
    ),
]
RayWorkers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="Processes of Ray; one a machine of a cluster, or a processor of a local Ray, if not given.",
        show_default=False,
        rich_help_panel=BACKEND_PANEL,
    ),
]
WorkerThreads = Annotated[
    int | None,
    typer.Option(
        help="Threads of each worker of Ray; the processors shared out if not given.",
        show_default=False,
        rich_help_panel=BACKEND_PANEL,
    ),
]


class DivisionName(StrEnum):
    """The side that stays with its parts."""

    auto = "auto"
    users = "users"
    items = "items"


class InnerName(StrEnum):
    """Which parts make their inner sweeps together."""

    one = "one"
    all = "all"


Division = Annotated[
    DivisionName,
    typer.Option(
        help="The side whose vectors stay with their part of a divided graph; auto: the checkpoint's, else users.",
        rich_help_panel=BACKEND_PANEL,
    ),
]
ItemShards = Annotated[
    int | None,
    typer.Option(
        help="Ask for the items' sums in so many shards; as few as memory allows if not given.",
        show_default=False,
        rich_help_panel=BACKEND_PANEL,
    ),
]
InnerSweeps = Annotated[
    int,
    typer.Option(
        help="Local sweeps of a part before it sends its messages. With more than 1 it is another posterior: see "
        "docs/scaling.md.",
        rich_help_panel=BACKEND_PANEL,
    ),
]
Inner = Annotated[
    InnerName,
    typer.Option(help="With inner sweeps: one part at a time, or all at once.", rich_help_panel=BACKEND_PANEL),
]
OutOfCoreFlag = Annotated[
    bool,
    typer.Option(
        "--out-of-core",
        help="Keep the parts of the graph in files beside the output: for graphs larger than the memory.",
        rich_help_panel=BACKEND_PANEL,
    ),
]


def chosen_backend(
    backend: BackendName,
    output: str,
    address: str | None,
    workers: int | None,
    worker_threads: int | None,
    division: DivisionName,
    item_shards: int | None,
    inner_sweeps: int,
    inner: InnerName,
    out_of_core: bool,
    threads: int | None,
) -> Any:
    """The backend that divides the graph, or None where it stays whole in memory."""
    how: dict[str, Any] = {
        "division": division.value,
        "item_shards": item_shards,
        "inner_sweeps": inner_sweeps,
        "inner": inner.value,
    }
    if backend is BackendName.ray:
        if out_of_core:
            raise UsageError("--out-of-core is for --backend local: on Ray the parts are in the workers' memory.")
        from considerate.distributed.backends.ray import RayBackend

        return RayBackend(address=address, workers=workers, threads=worker_threads, **how)
    for flag, value in (("--address", address), ("--workers", workers), ("--worker-threads", worker_threads)):
        if value is not None:
            raise UsageError(f"{flag} goes with --backend ray; here --threads says how many threads there are.")
    if out_of_core:
        from considerate.distributed.backends.out_of_core import OutOfCore
        from considerate.storage.filesystems import Folder

        local = Folder.at(output).local
        beside = None if local is None else os.path.dirname(local)
        return OutOfCore(folder=beside, threads=None if threads is None else int(threads), **how)
    if how != {"division": "auto", "item_shards": None, "inner_sweeps": 1, "inner": "one"}:
        raise UsageError(
            "--division, --item-shards, --inner-sweeps and --inner are for a divided graph: --backend ray, or "
            "--out-of-core."
        )
    return None
