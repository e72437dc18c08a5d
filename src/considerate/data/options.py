"""Options of the reader, one object from the caller to the tasks, and the usual names of columns.

The shell's options and their help are made from the fields of `ReaderOptions`. Columns that are not named are found by
their usual names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypedDict

from considerate.data.rules import parse
from considerate.data.weights import SCALES, SHAPES, HalfLife, Weighting, any_of, parse_signals
from considerate.errors import DataError, UsageError


def _option(text: str) -> Any:
    return field(default=None, metadata={"text": text})


@dataclass(frozen=True)
class ReaderOptions:
    """Options of the reader: the columns and rows that are likes, and the source of titles; checked when made."""

    user_column: str | None = _option("Column of the users; guessed from the usual names if not given.")
    item_column: str | None = _option("Column of the items; guessed if not given.")
    rating_column: str | None = _option("Column of ratings under an unusual name; `rating` in the rule means it.")
    where: str | None = _option('Which rows are likes, such as "rating >= 4"; needed where there are ratings.')
    titles: Any = field(default=None, metadata={"text": "A file of item ids and titles."})
    title_id_column: str | None = _option("Its column of item ids; guessed if not given.")
    title_column: str | None = _option("Its column of titles; guessed if not given.")
    query: str | None = _option("Query for a database such as sqlite:///likes.db.")
    time_column: str | None = _option(
        "Column of the times of the likes. The latest likes are then held out, and --half-life reads it."
    )
    weight_column: str | None = _option("Column of how much a like counts: plays, hours, confidence.")
    weight: str | None = _option(f"What the sum over a pair's rows becomes as its weight: {', '.join(SHAPES)}; raw.")
    weight_scale: str | None = _option(
        f"Weights have a mean of 1 over all likes, or over those of each user, or stay: {', '.join(SCALES)}; mean."
    )
    half_life: Any = field(
        default=None,
        metadata={"text": "The age at which a like counts half, such as 90d; s, m, h, d, w and y are units."},
    )
    signals: Any = field(
        default=None,
        metadata={
            "text": "A kind of row that is a like, and its weight, such as \"event = 'buy' : 3\"; may be repeated.",
            "flags": ("--signal",),
            "many": True,
        },
    )
    considered_where: str | None = _option(
        'Which rows are pairs that were considered and not liked, such as "event = \'view\'" or "rating <= 2".'
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "signals", parse_signals(self.signals))
        if self.titles is None and (self.title_id_column is not None or self.title_column is not None):
            raise UsageError("--title-id-column and --title-column go with --titles, a table of items and titles.")
        for rule in (self.where, self.considered_where):
            if rule is not None:
                parse(rule)
        Weighting(self.weight or "raw", self.weight_scale or "mean")
        if self.half_life is not None:
            HalfLife.of(self.half_life)

    @classmethod
    def of(cls, options: ReaderOptions | Mapping[str, Any] | None) -> ReaderOptions:
        """Make options from a mapping; UsageError names an unknown one."""
        if isinstance(options, ReaderOptions):
            return options
        if not isinstance(options, Mapping | None):
            raise UsageError(f"reader is {options!r}; expected a mapping such as {{'where': 'rating >= 4'}}.")
        names = [option.name for option in fields(cls)]
        for name in options or {}:
            if name not in names:
                raise UsageError(f"{name!r} is no option of the reader; it takes {', '.join(names)}.")
        return cls(**(options or {}))

    @classmethod
    def choose(cls, options: ReaderOptions | Mapping[str, Any] | None, named: Mapping[str, Any]) -> ReaderOptions:
        """Choose `options` if given, else the named ones; UsageError if there are both."""
        if options is not None and named:
            raise UsageError(f"reader came with {', '.join(named)}; put them all into reader, or leave it out.")
        return cls.of(named if options is None else options)

    @property
    def is_default(self) -> bool:
        """True if no option is set."""
        return all(value is None for value in vars(self).values())

    @property
    def has_weights(self) -> bool:
        """True if likes have weights from columns."""
        return not (self.weight_column is None and self.half_life is None and self.signals is None)

    @property
    def weighting(self) -> Weighting | None:
        """The rule that turns amounts into weights; None if every like counts once."""
        if not self.has_weights and self.weight is None and self.weight_scale is None:
            return None
        return Weighting(self.weight or "raw", self.weight_scale or "mean")

    @property
    def rule(self) -> str | None:
        """The rule of the rows that are likes: `where`, and any of the signals."""
        return any_of(self.signals, self.where)

    @property
    def headers(self) -> list[str]:
        """The named columns of the likes; the first line of a text file is a header if it has one of them."""
        names = (self.user_column, self.item_column, self.rating_column, self.time_column, self.weight_column)
        return [name for name in names if isinstance(name, str)]

    @property
    def title_headers(self) -> list[str]:
        """The named columns of the titles."""
        return [name for name in (self.title_id_column, self.title_column) if isinstance(name, str)]

    def untitled(self) -> ReaderOptions:
        """A copy without titles."""
        return replace(self, titles=None, title_id_column=None, title_column=None)


class ReaderKeywords(TypedDict, total=False):
    """The fields of `ReaderOptions`, as keywords."""

    user_column: str | None
    item_column: str | None
    rating_column: str | None
    where: str | None
    titles: Any
    title_id_column: str | None
    title_column: str | None
    query: str | None
    time_column: str | None
    weight_column: str | None
    weight: str | None
    weight_scale: str | None
    half_life: str | float | None
    signals: Mapping[str, float] | Sequence[str] | None
    considered_where: str | None


# --- Columns by their usual names ---

# Names as `plain` writes them, each also with "id" at its end. General names come before special ones; between two
# different special names the user has to choose.
GENERAL = {"user": ("user", "uid"), "item": ("item", "iid")}
_USER = "account client customer listener member person profile reader reviewer subscriber username viewer visitor"
_ITEM = (
    "album anime app article artist asin beer book business content course doc document film game isbn joke location "
    "movie news paper place podcast poi product recipe restaurant show sku song track venue video"
)
SPECIAL = {"user": _USER.split(), "item": _ITEM.split()}
RATINGS = ("rating", "ratings", "stars", "starrating", "score", "bookrating", "userrating", "overall")
_HOW_MUCH = (
    "amount clicks confidence count counts duration freq frequency hours listens minutes playcount plays playtime "
    "purchases qty quantity seconds strength views watchtime weight weights"
)
WEIGHTS = frozenset(_HOW_MUCH.split())  # words in the names of counts and weights
TITLES = (
    *("title", "name", "movietitle", "booktitle", "itemtitle", "producttitle", "originaltitle", "itemname"),
    *("productname", "artistname", "trackname", "label"),
)
TIMES = ("timestamp", "time", "datetime", "date", "when", "unixtime", "eventtime", "ratedat", "likedat", "createdat")
GUESS = "guess"  # as the name of the time column: the first of the usual ones, if there is any
OTHERS = ("id", "timestamp", "time", "date", "datetime", "genres", "genre", "author", "authors")
_STEMS = {*GENERAL["user"], *GENERAL["item"], *SPECIAL["user"], *SPECIAL["item"]}


def plain(name: str) -> str:
    """Remove case and punctuation of a name: 'User-ID', 'user_id' and 'userId' become the same."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def is_known(name: str) -> bool:
    """True if a name is usual in the headers of files."""
    word = plain(name)
    return word in _STEMS or word.removesuffix("id") in _STEMS or word in (*RATINGS, *TITLES, *OTHERS)


def listed(names: Sequence[str]) -> str:
    """List names in a message, the first twenty of them."""
    shown = ", ".join(repr(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def find(name: str, names: Sequence[str], source: str, option: str) -> str:
    """Find the column `name`: by its exact name, or if only one fits, without regard to case and spaces."""
    if not isinstance(name, str):
        raise UsageError(f"{option}: a column is named by a string, not by {name!r}.")
    fits = [column for column in names if column == name]
    fits = fits or [column for column in names if column.strip().lower() == name.strip().lower()]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise DataError(f"{source}: {len(fits)} columns are called {name!r}; rename all but one of them.")
    raise DataError(f"{source}: no column {name!r}; it has {listed(names)}. Name one of these with {option}.")


def usual_name(names: Sequence[str], words: Sequence[str]) -> str | None:
    """The column with the first of these words that any column has for a name; words are as `plain` writes them."""
    columns = {plain(name): name for name in reversed(names)}
    return next((columns[word] for word in words if word in columns), None)


def pick_id(side: str, names: Sequence[str], source: str, *likely: str) -> str | None:
    """The column of ids in a table about items or users: a likely name, the side's own, `id`, or another usual name."""
    own = [word for stem in GENERAL[side] for word in (stem, stem + "id")]
    return usual_name(names, (*likely, *own, "id")) or guess(side, names, source)


def guess(kind: str, names: Sequence[str], source: str) -> str | None:
    """Find the column of users or items by its usual names; None if there is none."""
    words = [plain(name) for name in names]
    for stem in GENERAL[kind]:
        for word in (stem, stem + "id"):
            if word in words:
                return find(names[words.index(word)], names, source, f"--{kind}-column")
    stems = [stem for stem in SPECIAL[kind] if stem in words or stem + "id" in words]
    if len(stems) > 1:
        fits = [name for name, word in zip(names, words) if word in stems or word.removesuffix("id") in stems]
        raise DataError(
            f"{source}: each of the columns {listed(fits)} could hold the {kind}s; "
            f"name one with --{kind}-column ({kind}_column= in Python)."
        )
    if not stems:
        return None
    word = stems[0] + "id" if stems[0] + "id" in words else stems[0]
    return find(names[words.index(word)], names, source, f"--{kind}-column")


def guess_rating(names: Sequence[str]) -> str | None:
    """Find the column of ratings by its usual names."""
    return next((name for name in names if plain(name) in RATINGS), None)


def guess_time(types: Mapping[str, Any]) -> str | None:
    """Find the column of times by its usual names, if it has numbers or moments."""
    import pyarrow.types as at

    return usual_name([name for name, kind in types.items() if at.is_primitive(kind)], TIMES)


def unused_weights(names: Sequence[str], options: ReaderOptions) -> list[str]:
    """Columns that look like counts, weights or ratings and are not used, by resolved options."""
    rules = [rule for rule in (options.rule, options.considered_where) if rule is not None]
    rule = [column.lower() for each in rules for column in parse(each).columns]
    named = (options.user_column, options.item_column, options.time_column, options.weight_column)
    used = {str(name).lower() for name in named} | set(rule)
    if "rating" in rule:
        used.add(str(options.rating_column).lower())
    return [name for name in names if _is_weight(name) and name.strip().lower() not in used]


def _is_weight(name: str) -> bool:
    """True if a word of a name is usual for counts and weights."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    return plain(name) in RATINGS or any(word.lower() in WEIGHTS for word in words)


def quoted(column: str) -> str:
    """Quote the name of a column for a rule."""
    return column if column.isidentifier() else f"`{column}`"


def pick_pair(names: Sequence[str], user: str | None, item: str | None, source: str) -> tuple[str, str, list[str]]:
    """Pick the columns of users and items: the named ones, else by usual names, else the only two."""
    chosen = {
        kind: find(given, names, source, f"--{kind}-column") if given is not None else guess(kind, names, source)
        for kind, given in (("user", user), ("item", item))
    }
    if len(names) == 2:
        rest = iter([name for name in names if name not in chosen.values()])
        chosen = {kind: name if name is not None else next(rest) for kind, name in chosen.items()}
    for kind, name in chosen.items():
        if name is None:
            raise refuse_column(f"{kind}s", kind, names, source)
    if chosen["user"] == chosen["item"]:
        raise UsageError(f"{source}: the column {chosen['user']!r} cannot hold both the users and the items.")
    note = f"users are taken from the column {chosen['user']!r}, items from {chosen['item']!r}"
    return str(chosen["user"]), str(chosen["item"]), [note] if user is None or item is None else []


def refuse_column(what: str, option: str, names: Sequence[str], source: str) -> DataError:
    return DataError(
        f"{source}: no column looks like the {what}; it has {listed(names)}. "
        f"Name one with --{option}-column ({option.replace('-', '_')}_column= in Python)."
    )
