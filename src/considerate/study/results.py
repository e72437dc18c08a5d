"""Results of a study, as plain values for the figures, the page and a JSON file.

A list marked `[bins]` has one entry per bin, NaN for an empty bin (in JSON: null).

Every scorer has one name in all tables:

considerate                   the best of our trials; its weights are the best on validation by mean S_rank
considerate, first places     the same posterior with weights chosen by NDCG@20
considerate, for the tail     the same posterior with weights chosen by S_rank of the tail
considerate, default          the settings as given, if a trial beat them
like, r = 1; like, r = 1/2; popularity x like, r = 1; popularity x like, r = 1/2      the paper's settings and scores
popularity, BPR-uniform, BPR-popularity, ALS, EASE, walk, GF-CF, and the user's own   the peers

The models behind p(like) are "default", "the paper's, r = 1" and "the paper's, r = 1/2".
"""

from __future__ import annotations

import json
import math
import re
import types
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from considerate.errors import DataError

Interval = tuple[float, float]  # 95 %, by bootstrap over users
PAPER_TAUS = {"user": 2.0, "item": 3.5, "item_bias": 0.4}  # E[tau] that the paper reports
OUR_SCORERS = re.compile(r"^(considerate|like|popularity [x×] like)\b")  # ours, and the paper's scores of our models


@dataclass(frozen=True)
class Data:
    """The data of a study."""

    name: str
    source: str
    rule: str | None  # rule of the rows that are likes
    users: int
    items: int
    likes: int
    duplicates: int
    notes: list[str]
    split: str  # in words
    splits: int  # number of splits, each with its own seed
    held_out: int  # likes held out in one split
    judged: int  # pairs known to have been considered and not liked, to check p(like) with; 0 if unknown


@dataclass(frozen=True)
class Degrees:
    """Degrees of one side of a graph (fig. 1), in logarithmic bins, with the law fitted to them."""

    side: str  # "users" or "items"
    graph: str  # "G", or "H drawn"
    centre: list[float]  # [bins]
    density: list[float]  # [bins] vertices per unit of degree
    law: str  # in words, with its parameters
    law_degree: list[float]  # [points]
    law_density: list[float]  # [points]


@dataclass(frozen=True)
class Balance:
    """Positives to negatives of every item in one draw of H (fig. 3)."""

    name: str  # "r = 1", "r = 1/2, head corrected", "r = 1, half-edges"
    degree: list[int]  # [items] of at least one like
    negatives: list[float]  # [items] drawn, or expected
    bin_centre: list[float]  # [bins] of degree
    bin_ratio: list[float]  # [bins] positives / negatives, summed over the bin


@dataclass(frozen=True)
class ErrorByDegree:
    """Share of held-out likes with p(like) < 1/2, by the user's degree (fig. 4)."""

    name: str  # the model
    low: list[int]  # [bins] lowest degree
    high: list[int]  # [bins] highest degree, inclusive
    error: list[float]  # [bins]
    interval: list[Interval]  # [bins]
    count: list[int]  # [bins]


@dataclass(frozen=True)
class LikeHistogram:
    """Histograms of p(like) of held-out likes by the user's degree (fig. 5)."""

    name: str  # the model
    edges: list[float]  # [cells + 1] of p(like)
    low: list[int]  # [rows] lowest degree
    high: list[int]  # [rows] highest degree, inclusive
    share: list[list[float]]  # [rows][cells]
    count: list[int]  # [rows]


@dataclass(frozen=True)
class RankByDegree:
    """S_rank of held-out likes in strata of degree: means (fig. 6) and percentiles (fig. 7)."""

    score: str  # "like, r = 1/2", "BPR-uniform", ...
    by: str  # "user" or "item"
    low: list[int]  # [bins]
    high: list[int]  # [bins] inclusive
    mean: list[float]  # [bins]
    interval: list[Interval]  # [bins]
    percentiles: dict[str, list[float]]  # "5", "25", "50", "75", "95" -> [bins]
    count: list[int]  # [bins]


@dataclass(frozen=True)
class Reliability:
    """p(like) and the observed share of likes, if pairs are known that were considered and not liked."""

    name: str  # "default", "the paper's", "default, recalibrated"
    edges: list[float]  # [bins + 1]
    predicted: list[float]  # [bins] mean p(like)
    observed: list[float]  # [bins] share of likes, with equal weight for both classes
    count: list[int]  # [bins] pairs
    calibration_error: float
    brier: float
    log_loss: float
    auc: float


@dataclass(frozen=True)
class ConsideredByDegree:
    """Separation of pairs considered and not liked from pairs never rated by a score: AUC of each user, by degree."""

    name: str  # the score: "pi", "w", "a" or "a + log w"
    auc: float  # mean over all users with both kinds of pairs
    auc_interval: Interval
    low: list[int]  # [bins] degrees of users
    high: list[int]  # [bins] inclusive
    mean: list[float]  # [bins]
    interval: list[Interval]  # [bins]
    count: list[int]  # [bins] users


@dataclass(frozen=True)
class KnobCurve:
    """Metrics as functions of the popularity weight."""

    name: str  # the model
    knob: list[float]
    mean_rank: list[float]
    tail_rank: list[float]  # of held-out items of degree under 100
    recall: list[float]  # at 20
    coverage: list[float]  # share of the catalogue in someone's top 20
    popularity: list[float]  # mean degree of the recommended items
    chosen: float  # weight chosen on validation


@dataclass(frozen=True)
class Trace:
    """The bound and E[tau] by sweep."""

    name: str
    sweep: list[int]
    bound: list[float]
    taus: dict[str, list[float]]  # "user", "item", "item_bias"
    spread: list[float]  # sqrt(K / (tau_u tau_v))
    rank: list[float]  # S_rank on validation after the sweep


@dataclass(frozen=True)
class TimeCurve:
    """Quality against seconds of fitting."""

    name: str
    seconds: list[float]
    mean_rank: list[float]
    recall: list[float]  # at 20


@dataclass(frozen=True)
class ScorerResult:
    """One scorer on the test edges of all splits; every metric is a mean over users with an interval."""

    name: str
    settings: str  # chosen settings, in words
    trials: int  # on the validation split
    fit_seconds: float
    metrics: dict[str, float]  # "S_rank", "S_rank tail", "Recall@20", "NDCG@20", "MRR", "MAP@20", "hit rate@20", ...
    intervals: dict[str, Interval]
    difference: dict[str, float] = field(default_factory=dict)  # ours minus this one, paired by user
    difference_intervals: dict[str, Interval] = field(default_factory=dict)


@dataclass(frozen=True)
class DifferenceByDegree:
    """S_rank of ours minus S_rank of a peer on the same held-out likes of all splits, in strata of degree.

    The last row is all of the tail: held-out items of degree under 100.
    """

    ours: str  # "considerate" or "considerate, for the tail"
    peer: str  # "BPR-popularity", ...
    by: str  # "item"
    low: list[int]  # [bins]
    high: list[int]  # [bins] inclusive
    difference: list[float]  # [bins]
    interval: list[Interval]  # [bins]
    count: list[int]  # [bins]

    def separate_bins(self) -> list[int]:
        """Indices of the strata that do not lie inside an earlier one, such as all of the tail."""
        return [at for at, low in enumerate(self.low) if at == 0 or low > max(self.high[:at])]


@dataclass(frozen=True)
class Statement:
    """A statement of the paper, and the finding on these data."""

    paper: str
    here: str
    agrees: bool | None  # None if the data cannot tell
    why: str


@dataclass(frozen=True)
class Example:
    """A user of the first split: some likes, the held-out likes, and the first items of several lists.

    Items are titles, or ids if a title is not known.
    """

    user: str
    degree: int  # likes in training
    liked: list[str]  # the least popular of them
    held_out: list[str]
    lists: dict[str, list[str]]  # scorer -> items, best first
    p_like: list[float]  # of the first list


@dataclass(frozen=True)
class Results:
    """All results of a study."""

    data: Data
    degrees: list[Degrees] = field(default_factory=list)
    balance: list[Balance] = field(default_factory=list)
    errors: list[ErrorByDegree] = field(default_factory=list)
    histograms: list[LikeHistogram] = field(default_factory=list)
    ranks: list[RankByDegree] = field(default_factory=list)
    reliability: list[Reliability] = field(default_factory=list)
    considered: list[ConsideredByDegree] = field(default_factory=list)
    knobs: list[KnobCurve] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    times: list[TimeCurve] = field(default_factory=list)
    comparisons: list[ScorerResult] = field(default_factory=list)
    differences: list[DifferenceByDegree] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)
    seconds: float = 0.0  # of this run
    reused_seconds: float = 0.0  # spent by earlier runs on the stages that this run reused
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def ours(self) -> ScorerResult | None:
        """The scorer that the others are compared with: the only one without a difference."""
        return next((scorer for scorer in self.comparisons if "S_rank" not in scorer.difference), None)

    @property
    def peers(self) -> list[ScorerResult]:
        """Other recommenders, without ours in another setting and the paper's scores."""
        ours = self.ours
        return [peer for peer in self.comparisons if peer is not ours and not OUR_SCORERS.search(peer.name)]


def degree_range(low: int, high: int) -> str:
    """Format a bin of degrees."""
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def duration(seconds: float) -> str:
    """Format seconds: 4.2 s, 58 s, 12 min, 3 h 5 min."""
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def took(results: Results) -> str:
    """Format the time of the study, with the stages of earlier runs."""
    if results.reused_seconds < 0.05:
        return duration(results.seconds)
    whole = duration(results.seconds + results.reused_seconds)
    return f"{whole}: {duration(results.seconds)} in this run, {duration(results.reused_seconds)} in earlier ones"


# --- To and from JSON ---


def results_to_json(results: Results) -> str:
    """Write strict JSON, the same text for the same results; numbers that are not finite become null."""
    return json.dumps(_finite(asdict(results)), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def results_from_json(text: str) -> Results:
    """Read the text of `results_to_json`; null becomes NaN in place of a number. Other texts raise DataError."""
    try:
        plain = json.loads(text)
    except ValueError as error:
        raise DataError(f"the results are not JSON ({error}); run the study again.") from error
    results: Results = _read(Results, plain, "results")
    return results


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _read(kind: Any, value: Any, path: str) -> Any:
    """Convert a plain value to the type that is declared for its path."""
    if is_dataclass(kind):
        return _read_dataclass(kind, value, path)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):  # T | None
        return None if value is None else _read(next(part for part in inner if part is not type(None)), value, path)
    if origin is list and isinstance(value, list):
        return [_read(inner[0], part, path) for part in value]
    if origin is tuple and isinstance(value, list) and len(value) == len(inner):
        return tuple(_read(part, element, path) for part, element in zip(inner, value))
    if origin is dict and isinstance(value, dict):
        return {key: _read(inner[1], part, path) for key, part in value.items()}
    if kind is float and value is None:
        return math.nan
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind in (int, str, bool) and type(value) is kind:
        return value
    name = kind.__name__ if isinstance(kind, type) and origin is None else str(kind)
    raise DataError(f"{path} holds {str(value)[:40]!r}, not {name}; run the study again.")


def _read_dataclass(kind: Any, value: Any, path: str) -> Any:
    names = [part.name for part in fields(kind)]
    if not isinstance(value, dict) or set(value) != set(names):
        seen = ", ".join(map(str, value)) if isinstance(value, dict) else str(value)[:40]
        raise DataError(
            f"{path} holds {seen!r}, not {', '.join(names)}: another version of considerate wrote it, "
            "or it is damaged; run the study again."
        )
    types_of = get_type_hints(kind)
    return kind(**{name: _read(types_of[name], value[name], f"{path}.{name}") for name in names})
