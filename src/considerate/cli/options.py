"""The options of the commands, in groups.

A group is a dataclass whose fields are options, and `panel` the panel of the help that they are in. A command takes it
as one argument; `grouped` puts the options in its place. The options of a fit are the fields of `Parameters`, those of
reading the fields of `ReaderOptions`: each is written once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple, cast, get_args, get_type_hints

import typer

from considerate.cli import screen
from considerate.data.options import ReaderOptions
from considerate.errors import UsageError
from considerate.parameters import Parameters, short_range

# --- Groups of options ---


class Panel(NamedTuple):
    """Goes with a group that has no panel of its own: `Annotated[Group, Panel(title, the fields that are options)]`."""

    title: str
    fields: tuple[str, ...]


def option(text: str, default: Any, *flags: str) -> Any:
    """A field of a group: an option with its help. A default of ... means that it is needed."""
    return field(default=MISSING if default is ... else default, metadata={"text": text, "flags": flags})


def grouped(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with each group replaced by its options, from which the group is made."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group, *notes = cast(list[Any], get_args(parameter.annotation) or [parameter.annotation])
        if not hasattr(group, "__dataclass_fields__"):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        kinds = get_type_hints(group)
        chosen = [entry for entry in fields(group) if not notes or entry.name in notes[0].fields]
        chosen.sort(key=lambda entry: entry.name not in group.__annotations__)  # what is inherited comes last
        title = notes[0].title if notes else group.panel
        parameters += [_parameter(entry, kinds[entry.name], title) for entry in chosen]
        groups[parameter.name] = group, [entry.name for entry in chosen]

    def run(**values: Any) -> Any:
        for name, (group, names) in groups.items():
            values[name] = group(**{option: values.pop(option) for option in names})
        return command(**values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameter(setting: Field[Any], kind: Any, panel: str | None) -> inspect.Parameter:
    """The option of a field. `Parameters` checks its ranges itself, so that there is one message for each."""
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
    """A number where it is one; of a word, `Parameters.check` says whether it is allowed."""
    try:
        return float(text)
    except ValueError:
        return text


# --- Options that several commands share ---

Backend = StrEnum("Backend", ["local", "ray"])
Score = StrEnum("Score", ["like", "popularity", "popularity_x_like", "p_like"])
Interval = StrEnum("Interval", ["structural", "posterior"])
OF_FITS = ("time_column", "considered_where")
READER = tuple(entry.name for entry in fields(ReaderOptions) if entry.name not in OF_FITS)

Seed = Annotated[int, typer.Option(help="Seed of every draw; a whole number at least 0.")]
Data = Annotated[
    str, typer.Argument(help="Parquet file or folder, CSV or other delimited text, or the address of a database.")
]
Reader = Annotated[ReaderOptions, Panel("Reading the data", READER)]
StudyReader = Annotated[ReaderOptions, Panel("Reading the data", (*READER, "considered_where"))]
DatedReader = Annotated[ReaderOptions, Panel("Reading the data", (*READER, *OF_FITS))]
UntitledReader = Annotated[
    ReaderOptions, Panel("Reading the data", tuple(name for name in READER if "title" not in name))
]
DatedUntitledReader = Annotated[
    ReaderOptions, Panel("Reading the data", tuple(name for name in (*READER, *OF_FITS) if "title" not in name))
]
SETTINGS = tuple(entry.name for entry in fields(Parameters))
Settings = Annotated[Parameters, Panel("The model", SETTINGS)]
StudySettings = Annotated[Parameters, Panel("The model", tuple(name for name in SETTINGS if name != "popularity"))]
HiddenSettings = Annotated[Parameters, Panel("The model", ("negatives", "rate", "gamma", "head_correction", "seed"))]


@dataclass(frozen=True, kw_only=True)
class Output:
    panel: ClassVar[str] = "Output"
    quiet: bool = option("No progress, notes or summaries.", False, "--quiet", "-q")
    json: bool = option("Print JSON on stdout.", False)

    def report(self, values: Any, shown: str | Callable[[Any], None]) -> None:
        """A result: as JSON, or unless quiet as a sentence or as `shown` shows it."""
        if self.json:
            screen.print_json(values)
        elif self.quiet:
            return
        elif isinstance(shown, str):
            screen.show(shown, wrap=False)
        else:
            shown(values)


@dataclass(frozen=True, kw_only=True)
class ModelOutput(Output):
    verify: bool = option(
        "Check the whole model file first: every checksum and every value. Otherwise a file of more than 64 MB is "
        "checked as far as it is used.",
        False,
    )


@dataclass(frozen=True, kw_only=True)
class Cluster:
    panel: ClassVar[str] = "Where it runs"
    backend: Backend = option("Threads here, or a Ray cluster.", Backend.local)
    address: str | None = option(
        "Of the Ray cluster: HOST:6379, or auto on one of its machines; a local Ray is started if not given.", None
    )


@dataclass(frozen=True, kw_only=True)
class RankingGroup:
    popularity: float | None = option(
        "The weight of popularity: 0, with a lift of 0, ranks by liking alone, 1 and 1, with a sharpness of 1, by the "
        "odds of a like being observed; the model's own if not given.",
        None,
    )
    lift: float | None = option(
        "The weight of lift: how much more likely than by popularity the user is to consider an item; the "
        "model's own if not given. For models fitted with --consideration walk.",
        None,
    )
    score: Score | None = option(
        "In place of these weights: one of the paper's scores, like, popularity or popularity_x_like; or p_like, which "
        "is p(like) as it is shown, recalibrated.",
        None,
    )


@dataclass(frozen=True, kw_only=True)
class KnownGroup:
    panel: ClassVar[str] = "What is known beside the likes"
    considered: str | None = option(
        "Pairs that were considered and not liked, read as the likes are; of their own file unless --considered-where "
        "says which rows of it they are.",
        None,
    )
    impossible: str | None = option("Pairs that could not be considered: never drawn, never recommended.", None)
    available: str | None = option(
        "A file of items with the columns from and until: an item is impossible for users whose time does not meet its "
        "own.",
        None,
    )
    active: str | None = option(
        "A file of users with the columns from and until, for --available; their first and last like by --time-column "
        "if not given.",
        None,
    )
    user_groups: str | None = option("A file of users and the groups that they are in.", None)
    item_groups: str | None = option("A file of items and the groups of users that alone may have them.", None)

    def beside(self) -> dict[str, Any]:
        """What a fit is given beside the likes, by the names of its arguments."""
        from considerate.data.known_tables import Impossible

        rules = Impossible(self.impossible, self.available, self.active, self.user_groups, self.item_groups)
        return {"considered": self.considered, "impossible": None if rules == Impossible() else rules}


def read_ids(values: list[str] | None) -> list[str] | None:
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
