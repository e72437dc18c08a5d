"""The settings of a recommender, written once: the Python constructor, its checks and the shell's options all read
these fields."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields, replace
from textwrap import fill
from typing import Any

from considerate.errors import UsageError

AUTO, AUTO_TOP = "auto", "auto-top"  # settings that are chosen on likes held out
DRIFT = 1e-3  # variance that a coordinate of a vector, or a bias, gains a day, in an update
TUNED = ("negatives", "gamma", "likelihood_weight", "popularity", "lift")  # those that can be


def setting(
    default: Any,
    text: str,
    reason: str,
    *,
    low: float | None = None,
    high: float | None = None,
    above: float | None = None,
    integer: bool = False,
    words: tuple[str, ...] = (),
) -> Any:
    """A field of `Parameters` with its help text, its default's reason and its range. Words may stand in place of a
    number; without a range they are the choices."""
    choices, words = (words, ()) if high is None else ((), words)
    metadata = {"text": text, "reason": reason, "low": low, "high": high, "above": above, "integer": integer}
    return field(default=default, metadata=metadata | {"choices": choices, "words": words, "optional": default is None})


def described_range(parameter: Field[Any]) -> str:
    """The range of a setting in words."""
    meta = parameter.metadata
    if meta["choices"]:
        return ("None or " if meta["optional"] else "") + "one of " + ", ".join(meta["choices"])
    if isinstance(parameter.default, bool):
        return "True or False"
    kind = "a whole number" if meta["integer"] else "a number"
    limits = (("above", "above"), ("at least", "low"), ("at most", "high"))
    parts = [f"{words} {_shown(meta[limit])}" for words, limit in limits if meta[limit] is not None]
    range_ = f"{kind} {' and '.join(parts)}".strip()
    answers = [*(["None"] if meta["optional"] else []), range_, *(repr(word) for word in meta["words"])]
    return " or ".join(answers)


def short_range(parameter: Field[Any]) -> str:
    """The range of a setting for a line of help: `1 to 4096`, `above 0, up to 1`, `sampled or expected`."""
    meta = parameter.metadata
    if meta["choices"]:
        return " or ".join(meta["choices"])
    least = f"above {_shown(meta['above'])}, up to" if meta["above"] is not None else f"{_shown(meta['low'])} to"
    return " or ".join([f"{least} {_shown(meta['high'])}", *meta["words"]])


def _shown(limit: float) -> str:
    return f"{limit}" if isinstance(limit, int) else f"{limit:g}"


def described_parameters(cls: type[Parameters] | type[GraphParameters]) -> str:
    """The section "Parameters" of a docstring: every setting with its meaning, its range and its default's reason."""
    entries = ["Parameters\n----------"]
    for parameter in fields(cls):
        text, reason = (parameter.metadata[part] for part in ("text", "reason"))
        about = f"{text[0].upper()}{text[1:]}. Range: {described_range(parameter)}. Default: {reason}."
        head = f"{parameter.name} : {parameter.type}, default {parameter.default!r}"
        entries.append(f"{head}\n{fill(about, 110, initial_indent='    ', subsequent_indent='    ')}")
    return "\n".join(entries)


def check_setting(parameter: Field[Any], value: Any) -> None:
    """One clear sentence for a value outside its range."""
    meta = parameter.metadata
    if meta and not (value is None and meta["optional"]) and not _fits(parameter, value):
        raise UsageError(f"{parameter.name} is {value!r}; it must be {described_range(parameter)}.")


def _fits(parameter: Field[Any], value: Any) -> bool:
    meta = parameter.metadata
    if meta["choices"]:
        return isinstance(value, str) and value in meta["choices"]
    if isinstance(parameter.default, bool):
        return isinstance(value, bool)
    if isinstance(value, bool | str):
        return isinstance(value, str) and value in meta["words"]
    try:
        number = value if isinstance(value, int) else float(value)  # 2^63 - 1 is no float
    except (TypeError, ValueError, OverflowError):
        return False
    if isinstance(number, float) and (not math.isfinite(number) or (meta["integer"] and number != int(number))):
        return False
    return (
        (meta["above"] is None or number > meta["above"])
        and (meta["low"] is None or number >= meta["low"])
        and (meta["high"] is None or number <= meta["high"])
    )


@dataclass(eq=False)
class Parameters:
    """What a fit can be told; `Recommender` inherits these fields."""

    factors: int = setting(
        64,
        "length of the user and item vectors (K)",
        "64 rank better than 32 on MovieLens-1M and anime; 128 take a multiple of the time",
        low=1,
        high=4096,
        integer=True,
    )
    hidden: str = setting(
        "sampled",
        "how to average over the hidden graph: draw it (sampled, the paper's way), in closed form (expected), or, for "
        "study, draw it by the paper's other scheme, from degrees of users and items (half-edges)",
        "draws rank better, and their p(like) is better calibrated; expected takes less time",
        words=("sampled", "expected", "half-edges"),
    )
    negatives: float | str = setting(
        5.0,
        "items considered and not liked, per like (c). Fractions are allowed, auto tries more on likes held out",
        "more help the first places of a list and hurt items of under ten likes; 5 is the compromise",
        above=0,
        high=1000,
        words=(AUTO,),
    )
    considered_are: str = setting(
        "some",
        "what the pairs given as considered are: some of what was considered, so that the rest is drawn (some); a "
        "sample of what was not liked, so that H has no other unliked edges and p(like) stays that of a fair coin "
        "(sample); all that was considered, so that p(like) is the share of likes in it (all)",
        "a log rarely has all that a user considered",
        words=("some", "sample", "all"),
    )
    rate: float = setting(
        1.0,
        "what the most popular item gets of its share of unliked edges (r)",
        "1 draws unliked items in proportion to their likes",
        low=1e-9,
        high=1,
    )
    gamma: float | str | None = setting(
        None,
        "exponent of the popularity histogram; from `rate` if not given, auto tries flatter ones on likes held out",
        "0.9 and 1.1 only move quality between popular and rare items, which the popularity weight does too",
        low=-2,
        high=2,
        words=(AUTO,),
    )
    consideration: str = setting(
        "walk",
        "whom the unliked edges lead to: what a short walk from the user's likes meets (walk), or popular items, the "
        "same for everyone (popularity, the paper's way)",
        "the walk tells what a user considered from what they never saw better than popularity does",
        words=("walk", "popularity"),
    )
    neighbours: int = setting(
        500,
        "entries kept of each item's row of the walk, fewer where the table would have more than 2^26 and more than "
        "eight a like; the rest is popularity's",
        "fewer hardly change the ranking, but p(like) is less well calibrated",
        low=1,
        high=100_000,
        integer=True,
    )
    mixing: float | None = setting(
        None,
        "share of popularity that is mixed into the walk. If not given 0.05, or more where data is sparse and the walk "
        "tells much more than popularity does",
        "on sparse data a walk without enough popularity makes the vectors collapse",
        low=0,
        high=1,
    )
    tilt: float = setting(
        0.0,
        "how far draws (t) lean away from what the user would like (1: people consider first and flip coins after), or "
        "towards it (below 0: people look at what they like). Likes alone cannot tell: choose it on pairs known to be "
        "considered. hidden must be sampled",
        "likes alone do not say which way to lean",
        low=-1,
        high=1,
    )
    head_correction: bool = setting(
        False,
        "give popular items the unliked edges that discarded draws take from them",
        "rankings were worse with it",
    )
    opening: int | None = setting(
        None,
        "sweeps in closed form before H is drawn; 0 is the paper's way. If not given 5 with the walk, else 0",
        "a sweep in closed form is cheap and free of noise: five of them come near the final ranking",
        low=0,
        high=100_000,
        integer=True,
    )
    groups: int = setting(
        32,
        "groups of items that share a bound, where hidden is expected",
        "four times as many changed little and took longer",
        low=1,
        high=4096,
        integer=True,
    )
    likelihood_weight: float | str | None = setting(
        None,
        "the power that the likelihood is raised to (rho); 1 is Bayes, auto tries some on likes held out. 1.5 if not "
        "given",
        "a factorised posterior shrinks vectors too much, and 1.5 to 2 undoes that. It is tuned, not learned, and "
        "sparser data wants more",
        above=0,
        high=100,
        words=(AUTO,),
    )
    popularity: float | str | None = setting(
        None,
        "the weight of log popularity in the score, beside liking, where a recommendation does not say its own. auto "
        "fits it, and lift, to the whole ranking of likes held out, auto-top to its first 20. 0.5 if not given, "
        "0.3 with the walk",
        "0.3 is near the best on MovieLens-1M, anime and goodbooks",
        low=-1_000_000,
        high=1_000_000,
        words=(AUTO, AUTO_TOP),
    )
    lift: float | str | None = setting(
        None,
        "the weight of log lift in the score: how much more likely than by popularity the user is to consider an "
        "item. If not given it is fitted where popularity is, and else 1.2 with the walk; without the walk it is 0",
        "1.2 is near the best on MovieLens-1M, anime and goodbooks",
        low=-1_000_000,
        high=1_000_000,
        words=(AUTO, AUTO_TOP),
    )
    sharpness: int = setting(
        2,
        "the power that the walk's rows are raised to in log lift: larger ones count an item's nearest more. With 1, "
        "popularity 1 and lift 1 rank by the odds of a like being observed",
        "2 ranks better than 1 on MovieLens-1M, anime and goodbooks; 3 ranks goodbooks worse",
        low=1,
        high=8,
        integer=True,
    )
    user_bias: bool = setting(
        False,
        "whether users have biases; the paper clamps them at zero",
        "a user's bias changes no order within that user's list",
    )
    posterior: str = setting(
        "factorised",
        "the shape of a vector's posterior: independent coordinates (factorised, the paper's), or with covariances of "
        "items (full-items) or of items and users (full), which take K / 4 times the memory of such a row. hidden must "
        "be sampled with these",
        "covariances rank a little better and take five times the time or more; what widens intervals to what they say "
        "is logistic='quadrature'",
        words=("factorised", "full-items", "full"),
    )
    prior: str = setting(
        "gamma",
        "the hyperprior of the vectors: one learned precision for each side around zero (gamma), or a learned mean and "
        "a full precision matrix (wishart). hidden must be sampled with the latter",
        "wishart ranked ml-100k better and MovieLens-1M no better, in six times the time",
        words=("gamma", "wishart"),
    )
    logistic: str | None = setting(
        None,
        "how the likelihood of a coin is averaged over the posterior: by the paper's lower bound (bound), which makes "
        "intervals too narrow, or by quadrature, whose intervals hold what they say where H is known. If not given "
        "bound where the posterior is factorised, else quadrature. hidden must be sampled with the latter",
        "the bound is faster, has a closed form, and never falls",
        words=("bound", "quadrature"),
    )
    sweeps: int = setting(
        30,
        "at most so many sweeps",
        "fits stop by themselves after 13 or 14 on the data sets of docs/quality.md",
        low=1,
        high=100_000,
        integer=True,
    )
    tolerance: float | None = setting(
        None,
        "stop when the bound's relative change per sweep is below this; 0 never stops. 0.002 if not given, 0.0005 "
        "where hidden is sampled without an opening",
        "the bound of draws without an opening is noisy, and more sweeps average over more draws",
        low=0,
        high=1,
    )
    step_delay: int | None = setting(
        None,
        "sweeps at full step before steps shrink (t_epsilon). If not given those of the opening, 10 without one",
        "after an opening the posterior is nearly there, so steps shrink from the third draw on",
        low=0,
        high=100_000,
        integer=True,
    )
    precision_delay: int | None = setting(
        None,
        "sweeps before the precisions are learned (t_tau). 5 if not given, 2 where hidden is expected",
        "10 was no better than 5",
        low=0,
        high=100_000,
        integer=True,
    )
    prior_shape: float = setting(
        0.01, "alpha of the precisions' Gamma prior", "nearly flat: the data decides", above=0, high=1e6
    )
    prior_rate: float = setting(
        0.01, "beta of the precisions' Gamma prior", "nearly flat: the data decides", above=0, high=1e6
    )
    seed: int = setting(
        0, "seed of every draw", "the same seed and data give the same bits", low=0, high=2**63 - 1, integer=True
    )
    threads: int | None = setting(
        None,
        "threads; as many as there are processors if not given",
        "the result does not depend on it",
        low=1,
        high=4096,
        integer=True,
    )

    def check(self) -> None:
        """One clear sentence for the first setting outside its range."""
        for parameter in fields(self):
            check_setting(parameter, getattr(self, parameter.name))
        if isinstance(self.lift, str) and self.consideration != "walk":
            raise UsageError(
                f"lift is {self.lift!r} and consideration is {self.consideration!r}; lift is of the walk: set "
                "consideration to 'walk', or leave lift out."
            )
        if isinstance(self.lift, str) and isinstance(self.popularity, str) and self.lift != self.popularity:
            raise UsageError(
                f"popularity is {self.popularity!r} and lift is {self.lift!r}; they are chosen together: give the same "
                "word, or one of them as a number."
            )
        if self.opening and self.hidden == "expected":
            raise UsageError(
                f"opening is {self.opening} and hidden is 'expected', which is in closed form to the end: leave "
                "opening out, or set hidden='sampled'."
            )
        if self.considered_are != "some" and (self.hidden, self.opening or 0, self.tilt) != ("sampled", 0, 0):
            raise UsageError(
                f"considered_are is {self.considered_are!r}, which leaves nothing of H to draw or to expect; leave "
                "hidden, opening and tilt out, or set considered_are='some'."
            )
        if self.considered_are != "some" and self.negatives == AUTO:
            raise UsageError(
                f"negatives is 'auto' and considered_are is {self.considered_are!r}, where the pairs that are given "
                "decide how many there are to a like; leave negatives out."
            )
        if self.tilt != 0 and self.hidden != "sampled":
            raise UsageError(
                f"tilt is {self.tilt} and hidden is {self.hidden!r}; only draws are tilted: set hidden='sampled'."
            )
        full = {"posterior": "factorised", "prior": "gamma", "logistic": "bound"}
        given = [name for name, usual in full.items() if getattr(self, name) not in (usual, None)]
        if given and self.hidden == "expected":
            raise UsageError(
                f"{given[0]} is {getattr(self, given[0])!r} and hidden is 'expected', whose closed form has the "
                "logistic bound of a factorised posterior in it: set hidden='sampled'."
            )

    def plan(self) -> FitPlan:
        """The settings of one fit, checked, each of its own type and with every default resolved."""
        self.check()
        words = {name: word for name in TUNED if isinstance(word := getattr(self, name), str)}
        values: dict[str, Any] = {}
        for option in fields(FitPlan):
            value: Any = getattr(self, option.name, option.default)
            if option.name in words:
                value = type(self).__dataclass_fields__[option.name].default  # until it is chosen
            if value is None and option.name in _DEFAULTS:
                value = _DEFAULTS[option.name](self)
            if type(option.default) in (int, float):
                value = int(value) if isinstance(option.default, int) else float(value)
            values[option.name] = value
        both = {"lift"} if "popularity" in words and self.lift is None and self.consideration == "walk" else set()
        criterion = AUTO_TOP if AUTO_TOP in words.values() else AUTO
        return FitPlan(**values | {"tuned": frozenset(words) | both, "criterion": criterion})


def _like(name: str, default: Any, reason: str, text: str | None = None, **changes: Any) -> Any:
    """A setting of `Parameters` with another default, or other words."""
    meta = {**Parameters.__dataclass_fields__[name].metadata, "reason": reason, "optional": default is None}
    return field(default=default, metadata=meta | ({} if text is None else {"text": text}) | changes)


@dataclass(eq=False)
class GraphParameters:
    """What a fit to a graph of vertices of one kind can be told; `GraphRecommender` inherits these fields. Figures in
    the reasons are of validation edges (docs/graphs.md)."""

    factors: int = _like(
        "factors", 32, "64 ranked hidden edges about as well in twice the time", "length of the vectors (K)"
    )
    negatives: float = _like(
        "negatives",
        10.0,
        "fewer ranked hidden edges worse on three graphs of four, more take longer",
        "pairs that were considered and not linked, for each edge (c); each end draws half of them",
        words=(),
    )
    signed: bool = setting(
        False,
        "let half of the coordinates repel, u'S u with signs: for graphs whose links are between unlike vertices",
        "in most graphs links are between like vertices",
    )
    consideration: str = _like(
        "consideration",
        "walk",
        "hidden edges are ranked far better with the walk's lift where vertices have few edges",
        "whom the edges without a link lead to: vertices that a walk of two to four steps meets (walk), or vertices of "
        "many edges, the same for everyone (popularity)",
    )
    neighbours: int = _like("neighbours", 500, "as for likes", "entries kept of each vertex's row of the walk")
    mixing: float | None = _like(
        "mixing",
        None,
        "as for likes",
        "share of popularity that is mixed into the walk. If not given 0.05, or more where the walk tells much more "
        "than popularity does",
    )
    likelihood_weight: float = _like(
        "likelihood_weight",
        3.0,
        "the vectors of sparse graphs collapse at 1.5; dense ones want no more than 3",
        "the power that the likelihood is raised to (rho); 1 is Bayes",
        words=(),
    )
    popularity: float | str = _like(
        "popularity",
        0.3,
        "0 to 0.6 were best, by graph",
        "the weight of log popularity in the score. auto chooses it and lift by the AUC of a tenth of the edges held "
        "out, auto-top by their hits@50",
    )
    lift: float = _like(
        "lift",
        1.2,
        "0.6 to 3 were best, by graph: more where vertices have few edges",
        "the weight of log lift: how much more likely than by popularity one end considers the other. It is chosen "
        "where popularity is",
        words=(),
    )
    sharpness: int = _like(
        "sharpness", 2, "1 was better on Cora, 2 on USAir", "the power that the walk's rows are raised to in log lift"
    )
    sweeps: int = _like("sweeps", 30, "fits stop by themselves")
    tolerance: float = _like(
        "tolerance",
        0.002,
        "smaller ones did not rank better",
        "stop when the bound's relative change per sweep is below this; 0 never stops",
    )
    step_delay: int = _like(
        "step_delay", 5, "10 ranked no better", "sweeps at full step before steps shrink (t_epsilon)"
    )
    precision_delay: int = _like(
        "precision_delay", 3, "5 ranked no better", "sweeps before the precisions are learned (t_tau)"
    )
    prior_shape: float = _like("prior_shape", 0.01, "nearly flat: the data decides")
    prior_rate: float = _like("prior_rate", 0.01, "nearly flat: the data decides")
    seed: int = _like("seed", 0, "the same seed and data give the same bits")
    threads: int | None = _like("threads", None, "the result does not depend on it")

    def check(self) -> None:
        """One clear sentence for the first setting outside its range."""
        for parameter in fields(self):
            check_setting(parameter, getattr(self, parameter.name))

    def plan(self) -> FitPlan:
        """The settings of one fit, checked. Vertices have biases, and H is drawn from the first sweep on."""
        self.check()
        given = {parameter.name: getattr(self, parameter.name) for parameter in fields(self)}
        signed, walk = given.pop("signed"), given["consideration"] == "walk"
        if isinstance(given["popularity"], str) or not walk:
            given["lift"] = given["popularity"] if walk else None
        return replace(Parameters(**given, user_bias=True, opening=0).plan(), signed=signed)


# The weights of log pi and of log lift, by what is considered; docs/quality.md says how they were chosen.
RANKING_WEIGHTS = {"walk": (0.3, 1.2), "popularity": (0.5, 0.0)}

OPENING = 5  # sweeps; docs/quality.md


def _opening(given: Parameters) -> int:
    if given.opening is not None:
        return int(given.opening)
    walks = (given.hidden, given.consideration, given.considered_are) == ("sampled", "walk", "some")
    return OPENING if walks else 0


# Defaults that depend on other settings. Algorithm 1 alone averages over many draws, and its bound is noisy; the closed
# form ends when its bound does, and what it opens is nearly there when the draws begin.
_DEFAULTS: dict[str, Callable[[Parameters], Any]] = {
    "opening": _opening,
    "tolerance": lambda given: 5e-4 if given.hidden != "expected" and not _opening(given) else 2e-3,
    "step_delay": lambda given: _opening(given) or 10,
    "precision_delay": lambda given: 2 if given.hidden == "expected" else 5,
    "likelihood_weight": lambda given: 1.5,
    "logistic": lambda given: "bound" if given.posterior == "factorised" else "quadrature",
    "popularity": lambda given: RANKING_WEIGHTS[given.consideration][0],
}


@dataclass(frozen=True)
class Chosen:
    """Settings that were words, as likes held out chose them, and what they were chosen from."""

    settings: dict[str, float]
    criteria: dict[str, str]  # of each: what it made largest
    likes: int  # held out and ranked
    latest: bool  # whether they were each user's latest like; else a random one
    trials: tuple[dict[str, float], ...]  # of each short fit: its settings, its best weights, and their score

    def told(self) -> str:
        """What was chosen and why, in a sentence."""
        if not self.likes:
            return f"too few to choose settings by: {_listed(self.settings)} as by default"
        parts = []
        for criterion in dict.fromkeys(self.criteria.values()):
            those = {name: value for name, value in self.settings.items() if self.criteria[name] == criterion}
            parts.append(f"{_listed(those)} by {criterion}")
        whose = "each user's latest" if self.latest else "one of each user"
        fits = f"{len(self.trials)} short fits" if len(self.trials) > 1 else "a short fit"
        return f"{' and '.join(parts)}, chosen in {fits} on {self.likes:,} likes held out ({whose})"

    @classmethod
    def parse(cls, given: Any) -> Chosen | None:
        """From what JSON keeps of it; ValueError where it is not that."""
        if given is None:
            return None
        try:
            chosen = cls(**given | {"trials": tuple(given["trials"])})
            for name, value in chosen.settings.items():
                check_setting(Parameters.__dataclass_fields__[name], value)
            numbers = [number for each in (chosen.settings, *chosen.trials) for number in each.values()]
            right = (
                {*chosen.settings} <= {*TUNED}
                and all(isinstance(text, str) for text in chosen.criteria.values())
                and {*chosen.criteria} in ({*chosen.settings}, set())
                and all(type(number) in (int, float) and math.isfinite(number) for number in numbers)
                and (type(chosen.likes), type(chosen.latest)) == (int, bool)
                and bool(chosen.criteria) == (chosen.likes > 0)
            )
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError, UsageError):
            right = False
        if not right:
            raise ValueError("what it says of the settings that were chosen cannot be read")
        return chosen


def _listed(settings: dict[str, float]) -> str:
    return ", ".join(f"{name} {settings[name]:g}" for name in TUNED if name in settings)


@dataclass(frozen=True)
class FitPlan:
    """The settings of one fit, by the names of `Parameters`: what the driver, inference and its workers read. A setting
    that is still to be chosen stands here with the number that it has if it cannot be."""

    factors: int = 20  # K
    hidden: str = "sampled"  # or "expected", "half-edges"
    negatives: float = 1.0  # c
    considered_are: str = "some"  # or "sample" or "all"
    rate: float = 1.0  # r
    gamma: float | None = None
    consideration: str = "popularity"  # or "walk"
    neighbours: int = 500  # L
    mixing: float | None = None  # eps; None: as the walk's table has it
    tilt: float = 0.0  # t
    head_correction: bool = False
    opening: int = 0  # sweeps in closed form before the draws
    groups: int = 32
    likelihood_weight: float = 1.0  # rho
    popularity: float = 0.5  # the ranking's weight of log pi
    lift: float | None = None  # the ranking's weight of log lift; None: the default
    sharpness: int = 1  # of the ranking's lift
    user_bias: bool = False
    item_bias: bool = True
    posterior: str = "factorised"  # or "full-items", "full"
    prior: str = "gamma"  # or "wishart"
    logistic: str = "bound"  # or "quadrature"
    sweeps: int = 30
    tolerance: float = 5e-4
    step_delay: int = 10  # t_eps
    precision_delay: int = 5  # t_tau
    prior_shape: float = 0.01  # alpha
    prior_rate: float = 0.01  # beta
    seed: int = 0
    threads: int | None = None
    expected_offsets: bool = True  # offsets follow the unliked edges that users have; False: -log c, as before 0.4
    unlinked: float = 0.0  # expected pairs of H without a link, for each link of a graph of vertices; 0: c
    signed: bool | None = None  # of vertices of one kind: whether half of the coordinates repel; None: users and items
    tuned: frozenset[str] = frozenset()  # names of the settings that are to be chosen on held-out likes
    criterion: str = field(default=AUTO, compare=False)  # what the ranking's weights are chosen by
    chosen: Chosen | None = field(default=None, compare=False)  # how those were that are

    @property
    def offset(self) -> float:
        """-log c, inside the logit; of a graph of vertices -log of the pairs without a link for each link."""
        return -math.log(self.unlinked or self.negatives)

    @property
    def observed(self) -> bool:
        """Whether the pairs that are given as considered are all the unliked edges of H."""
        return self.considered_are != "some"

    @property
    def edges_per_like(self) -> float:
        """Edges that a pass visits for each like: the like itself, and where H is drawn c more."""
        return 1.0 if self.hidden == "expected" else 1.0 + self.negatives

    @property
    def is_full(self) -> bool:
        """Whether rows are stepped with covariances, a full prior or quadrature."""
        return (self.posterior, self.prior, self.logistic) != ("factorised", "gamma", "bound")

    def keeps_covariance(self, side: str, sweep: int | None = None) -> bool:
        """Whether the rows of a side ("users" or "items") have covariances after a sweep, or at the end."""
        opened = sweep is None or sweep > self.opening
        return opened and (self.posterior == "full" or (self.posterior == "full-items" and side == "items"))

    @property
    def opens_closed(self) -> bool:
        """Whether the first sweep is in closed form."""
        return self.hidden == "expected" or self.opening > 0

    @property
    def weight(self) -> float:
        """rho."""
        return self.likelihood_weight

    @property
    def popularity_weight(self) -> float:
        """The ranking's weight of log pi."""
        return self.popularity

    @property
    def lift_weight(self) -> float:
        """The ranking's weight of log lift."""
        return RANKING_WEIGHTS[self.consideration][1] if self.lift is None else self.lift


__all__ = [
    "AUTO",
    "AUTO_TOP",
    "RANKING_WEIGHTS",
    "TUNED",
    "Chosen",
    "FitPlan",
    "GraphParameters",
    "Parameters",
    "check_setting",
    "described_parameters",
    "described_range",
    "setting",
    "short_range",
]
