"""Options that several commands share, in groups.

A group is a class whose fields are options. A command takes a group as one argument, and `expand_groups` shows the
group's options to Typer. The options of a fit are the fields of `Parameters`, and those of reading are the fields of
`ReaderOptions`: each option is declared once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, dataclass_transform, get_args, get_type_hints

import typer

from considerate.cli import screen
from considerate.data.options import ReaderOptions
from considerate.errors import UsageError
from considerate.inference.plan import Parameters
from considerate.settings import short_range

if TYPE_CHECKING:
    from considerate.recommender import Recommender

# --- Groups of options ---


@dataclass_transform(frozen_default=True, kw_only_default=True)
class OptionGroup:
    """A group of options: a frozen dataclass, made with `class Size(OptionGroup, panel="...")`.

    Each field is an option. `panel` is the heading in the help; a subclass inherits it.
    """

    panel: ClassVar[str | None] = None

    def __init_subclass__(cls, panel: str | None = None) -> None:
        super().__init_subclass__()
        cls.panel = panel or cls.panel
        dataclass(frozen=True, kw_only=True)(cls)


class Panel(NamedTuple):
    """Heading and fields of a group that is no `OptionGroup`: `Annotated[Parameters, Panel(title, fields)]`."""

    title: str | None
    fields: tuple[str, ...]


def option(text: str, default: Any, *flags: str) -> Any:
    """Declare a field of a group with its help text. The default ... makes the option mandatory."""
    return field(default=MISSING if default is ... else default, metadata={"text": text, "flags": flags})


def expand_groups(command: Callable[..., Any]) -> Callable[..., Any]:
    """Replace each group in a command's parameters by the group's options, because Typer reads one option a parameter.

    Typer sees `update(model, since: Since)` as `update(*, model, days, drift, removed, threads)`. It calls `run` with
    these values; `run` builds the `Since` and calls the command.
    """
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, Panel]] = {}  # parameter of the command -> its class, heading and fields
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        found = _group_of(parameter.annotation)
        if found is None:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        else:
            groups[parameter.name] = found
            group, panel = found
            kinds, settings = get_type_hints(group), {entry.name: entry for entry in fields(group)}
            parameters += [_option_parameter(settings[name], kinds[name], panel.title) for name in panel.fields]

    def run(**values: Any) -> Any:
        for name, (group, panel) in groups.items():
            values[name] = group(**{option: values.pop(option) for option in panel.fields})
        return command(**values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _group_of(annotation: Any) -> tuple[Any, Panel] | None:
    """Return (class, panel) if a parameter is a group. A group's own options come before the inherited ones."""
    kind, *notes = get_args(annotation) or (annotation,)
    if notes and isinstance(notes[0], Panel):
        return kind, notes[0]
    if not (isinstance(kind, type) and issubclass(kind, OptionGroup)):
        return None
    own = kind.__annotations__
    names: list[str] = [entry.name for entry in fields(kind)]  # type: ignore[arg-type]
    return kind, Panel(kind.panel, tuple(sorted(names, key=lambda name: name not in own)))


def _option_parameter(setting: Field[Any], kind: Any, panel: str | None) -> inspect.Parameter:
    """Make the option of a field. `Parameters` checks its ranges itself, so each error has one wording."""
    meta, text = setting.metadata, setting.metadata["text"]
    parser: dict[str, Any] = {}
    if "words" in meta:  # a field of `Parameters`
        text = text[0].upper() + text[1:] + "."
        if not meta["choices"] and not isinstance(setting.default, bool):
            text += f" {short_range(setting).capitalize()}."
        if meta["words"]:
            kind, parser = float, {"parser": _number_or_word, "metavar": "NUMBER|" + "|".join(meta["words"])}
    declared = typer.Option(
        *(meta.get("flags") or ["--" + setting.name.replace("_", "-")]),
        help=text.replace("[", r"\["),
        rich_help_panel=panel,
        show_default=setting.default is not None,
        **parser,
    )
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if setting.default is MISSING else setting.default,
        annotation=Annotated[list[str] | None if meta.get("many") else str | None if kind is Any else kind, declared],
    )


def _number_or_word(text: str | float) -> Any:
    """Parse a number, or return the word as it is; `Parameters.check` refuses words that are not allowed."""
    try:
        return float(text)
    except ValueError:
        return text


# --- Options that several commands share ---

Backend = StrEnum("Backend", ["local", "ray"])
Score = StrEnum("Score", ["like", "popularity", "popularity_x_like", "p_like"])
Interval = StrEnum("Interval", ["structural", "posterior"])
READING = "Reading the data"
READER = tuple(
    entry.name for entry in fields(ReaderOptions) if entry.name not in ("time_column", "considered_where")
)  # options of every command that reads likes
UNTITLED = tuple(name for name in READER if "title" not in name)
SETTINGS = tuple(entry.name for entry in fields(Parameters))

Seed = Annotated[int, typer.Option(help="Seed of all random draws; a whole number at least 0.")]
Data = Annotated[
    str, typer.Argument(help="Parquet file or folder, CSV or other delimited text, or the address of a database.")
]
ModelPath = Annotated[str, typer.Argument(help="The model file, or the folder of a model in shards.")]
Reader = Annotated[ReaderOptions, Panel(READING, READER)]
StudyReader = Annotated[ReaderOptions, Panel(READING, (*READER, "considered_where"))]
DatedReader = Annotated[ReaderOptions, Panel(READING, (*READER, "time_column", "considered_where"))]
UntitledReader = Annotated[ReaderOptions, Panel(READING, UNTITLED)]
DatedUntitledReader = Annotated[ReaderOptions, Panel(READING, (*UNTITLED, "time_column", "considered_where"))]
Settings = Annotated[Parameters, Panel("The model", SETTINGS)]
StudySettings = Annotated[Parameters, Panel("The model", tuple(name for name in SETTINGS if name != "popularity"))]
HiddenSettings = Annotated[Parameters, Panel("The model", ("negatives", "rate", "gamma", "head_correction", "seed"))]


class Output(OptionGroup, panel="Output"):
    quiet: bool = option("No progress, notes or summaries.", False, "--quiet", "-q")
    json: bool = option("Print JSON on stdout.", False)

    def report(self, values: Any, shown: str | Callable[[Any], None]) -> None:
        """Print a result: as JSON, else as a sentence or by the function `shown`; nothing if quiet."""
        if self.json:
            screen.print_json(values)
        elif self.quiet:
            return
        elif isinstance(shown, str):
            screen.show(shown, wrap=False)
        else:
            shown(values)

    def note(self, *notes: str) -> None:
        """Print notes on stderr, a line each, unless quiet."""
        for text in () if self.quiet else notes:
            screen.say("note", text)


class ModelOutput(Output):
    verify: bool = option(
        "First check every checksum and every value of the model file. Without it, a file of more than 64 MB is "
        "checked only where it is used.",
        False,
    )

    def load(self, path: str) -> Recommender:
        """Open the model file."""
        from considerate.recommender import Recommender

        return Recommender.load(path, verify=self.verify or None)


class NewModelOutput(ModelOutput):
    output: str = option("The model file to write; a folder for a model in shards.", ..., "--output", "-o")

    def shards_like(self, recommender: Recommender) -> int | None:
        """Return the number of shards of a model, to save the new one alike.

        None means one file, which is then checked to be writable.
        """
        from considerate.model.shards import ShardedUsers
        from considerate.storage.files import check_writable

        users = recommender.model_.users
        if isinstance(users, ShardedUsers):
            return len(users.first) - 1
        check_writable(self.output)
        return None


class Cluster(OptionGroup, panel="Where it runs"):
    backend: Backend = option("Threads on this machine, or a Ray cluster.", Backend.local)
    address: str | None = option(
        "Address of the Ray cluster: HOST:6379, or auto on one of its machines. Starts a local Ray if not given.", None
    )


class RankingGroup(OptionGroup):
    popularity: float | None = option(
        "The weight of popularity; the model's own if not given. 0, with a lift of 0, ranks by liking alone. 1, with a "
        "lift of 1 and a sharpness of 1, ranks by the odds that a like is observed.",
        None,
    )
    lift: float | None = option(
        "The weight of lift; the model's own if not given. Lift is how much more likely the user is to consider an "
        "item than its popularity suggests. For models fitted with --consideration walk.",
        None,
    )
    score: Score | None = option(
        "Rank by this score in place of both weights: one of the paper's scores (like, popularity or "
        "popularity_x_like), or p_like, the recalibrated p(like) that is shown.",
        None,
    )


def check_output(path: str, *sources: str | None) -> None:
    """Raise UsageError or OutputError if `path` cannot be written, or if writing it would replace a source."""
    from considerate.data.output import check_apart
    from considerate.storage.files import check_writable

    check_apart(path, *sources)
    check_writable(path)


def read_ids(values: list[str] | None) -> list[str] | None:
    """Return the ids given one by one, or one per line in @FILE; None if there are none."""
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
