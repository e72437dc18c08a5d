"""Which column holds the users, the items, the ratings and the titles."""

from __future__ import annotations

from collections.abc import Sequence

from considerate.errors import DataError, UsageError

# Names as `plain` writes them; each also stands for itself with "id" at its end. The general ones win over
# the special ones; between two different special ones the user has to choose.
GENERAL = {"user": ("user", "uid"), "item": ("item", "iid")}
_USER = "account client customer listener member person profile reader reviewer subscriber username viewer visitor"
_ITEM = (
    "album anime app article artist asin beer book business content course doc document film game isbn joke location "
    "movie news paper place podcast poi product recipe restaurant show sku song track venue video"
)
SPECIAL = {"user": _USER.split(), "item": _ITEM.split()}
RATINGS = ("rating", "ratings", "stars", "starrating", "score", "bookrating", "userrating", "overall")
TITLES = (
    *("title", "name", "movietitle", "booktitle", "itemtitle", "producttitle", "originaltitle", "itemname"),
    *("productname", "artistname", "trackname", "label"),
)
OTHERS = ("id", "timestamp", "time", "date", "datetime", "genres", "genre", "author", "authors")
_STEMS = {*GENERAL["user"], *GENERAL["item"], *SPECIAL["user"], *SPECIAL["item"]}


def plain(name: str) -> str:
    """A name without case and punctuation: 'User-ID', 'user_id' and 'userId' are one."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def is_known(name: str) -> bool:
    """Whether a name is one that files use in their header."""
    word = plain(name)
    return word in _STEMS or word.removesuffix("id") in _STEMS or word in (*RATINGS, *TITLES, *OTHERS)


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first twenty of them."""
    shown = ", ".join(repr(name) for name in names[:20])
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def find(name: str, names: Sequence[str], source: str, option: str) -> str:
    """The column called `name`, by its exact name or, where only one fits, without regard to case."""
    if not isinstance(name, str):
        raise UsageError(f"{option}: a column is named by a string, not by {name!r}.")
    fits = [column for column in names if column == name]
    fits = fits or [column for column in names if column.lower() == name.lower()]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise DataError(f"{source}: {len(fits)} columns are called {name!r}; rename all but one of them.")
    raise DataError(f"{source}: no column {name!r}; it has {listed(names)}. Name one of these with {option}.")


def guess(kind: str, names: Sequence[str], source: str) -> str | None:
    """The column of users or of items under its usual names, None if there is none."""
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
    """The column of ratings under its usual names."""
    return next((name for name in names if plain(name) in RATINGS), None)


def pick_pair(names: Sequence[str], user: str | None, item: str | None, source: str) -> tuple[str, str, list[str]]:
    """The columns of users and items: the ones named, else the usual names, else the two there are."""
    chosen = {
        kind: find(given, names, source, f"--{kind}-column") if given is not None else guess(kind, names, source)
        for kind, given in (("user", user), ("item", item))
    }
    notes = []
    if len(names) == 2:
        rest = iter([name for name in names if name not in chosen.values()])
        chosen = {kind: name if name is not None else next(rest) for kind, name in chosen.items()}
    for kind, name in chosen.items():
        if name is None:
            raise DataError(
                f"{source}: no column looks like the {kind}s; it has {listed(names)}. "
                f"Name one with --{kind}-column ({kind}_column= in Python)."
            )
    if chosen["user"] == chosen["item"]:
        raise UsageError(f"{source}: the column {chosen['user']!r} cannot hold both the users and the items.")
    if user is None or item is None:
        notes.append(f"users are taken from the column {chosen['user']!r}, items from {chosen['item']!r}")
    return str(chosen["user"]), str(chosen["item"]), notes
