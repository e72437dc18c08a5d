"""Requests and answers. Every schema of the OpenAPI document comes from here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from considerate.data.column import ID, Column
from considerate.model.columns import COLUMNS
from considerate.model.ranking import RankingOptions
from considerate.service.problems import ProblemDetails

MOST_ITEMS = 1_000  # in one list
MOST_USERS = 10_000  # in one batch
MOST_LIKES = 10_000  # of someone who is folded in
MOST_EVENTS = 1_000  # in one request
MOST_POINTS = 20_000  # of a landscape

Text = Annotated[str, Meta(min_length=1, max_length=1_024)]
Id = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | Text
Count = Annotated[int, Meta(ge=1, le=MOST_ITEMS)]
Weight = Annotated[float, Meta(ge=-1e6, le=1e6)]
Share = Annotated[float, Meta(ge=0, le=1)]
Likes = Annotated[list[Id], Meta(max_length=MOST_LIKES)]
Interval = Literal["structural", "posterior"]  # what the interval of p(like) is about


class Asked(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of all requests: an unknown field is an error."""


# --- Recommendations ---


class ListOptions(Asked, kw_only=True):
    """Options of a list; knobs that are not given are the model's own."""

    n: Count = 10
    popularity: Weight | None = None
    lift: Weight | None = None
    diversity: Share = 0.0
    allow: Annotated[list[Id], Meta(max_length=MOST_LIKES)] | None = None
    deny: Annotated[list[Id], Meta(max_length=MOST_LIKES)] | None = None
    explain: bool = False
    score: Literal["like", "popularity", "popularity_x_like", "p_like"] | None = None  # in place of the knobs
    interval: Interval = "structural"

    def ranking(self) -> RankingOptions:
        """The options of the library."""
        return RankingOptions(
            popularity=self.popularity,
            lift=self.lift,
            score=self.score,
            diversity=self.diversity,
            allow=self.allow,
            deny=self.deny,
            interval=self.interval,
        )


class UserQuery(ListOptions, kw_only=True):
    """Options for a user in the model, or one with events. `allow` and `deny` may be repeated."""

    cold: Literal["error", "popular"] = "error"
    user: Text | None = None  # where the path does not have it
    allow: list[Text] | None = None  # type: ignore[assignment]
    deny: list[Text] | None = None  # type: ignore[assignment]


class LikesRequest(ListOptions, kw_only=True):
    """Request for someone who is not in the model, from items that they like."""

    likes: Likes
    considered: Likes | None = None  # and did not like


class BatchRequest(ListOptions, kw_only=True):
    """Request for many users at once."""

    users: Annotated[list[Id], Meta(min_length=1, max_length=MOST_USERS)]
    cold: Literal["error", "popular"] = "error"


class LikedReason(msgspec.Struct):
    """A liked item with its term in the logit of p(like)."""

    item: Id
    title: str
    logit: float


class ConsideredReason(msgspec.Struct):
    """A liked item with its share of the chance that the user meets the item."""

    item: Id
    title: str
    share: float


class FeatureReason(msgspec.Struct):
    """A feature of the item with its term in the logit of p(like)."""

    feature: str
    logit: float


class JudgedReason(msgspec.Struct):
    """A number that the recalibration reads, with its term in the logit of p(like)."""

    number: str
    logit: float


class Why(msgspec.Struct):
    """Reasons of a recommendation."""

    because: list[LikedReason]
    considered_because: list[ConsideredReason]
    by_popularity: float  # the share of popularity in the chance to meet the item
    because_of: list[FeatureReason] | UnsetType = UNSET  # of a model with features
    recalibrated_by: list[JudgedReason] | UnsetType = UNSET  # of a recalibrated model


ITEM_COLUMNS = tuple(column for column in COLUMNS if column.of != "user")
PAIR_COLUMNS = tuple(column for column in COLUMNS if column.of == "pair")  # without a list


def _type(column: Column) -> Any:
    """Type of a column's values, with its help for the OpenAPI document."""
    kind = Id if column.kind is ID else column.kind.python
    return Annotated[kind | None if column.nullable else kind, Meta(description=column.help)]


if TYPE_CHECKING:
    RecommendedItem: TypeAlias = Any
    LandscapeAnswer: TypeAlias = Any
else:
    RecommendedItem = msgspec.defstruct(
        "RecommendedItem",
        [*((column.name, _type(column)) for column in ITEM_COLUMNS), ("why", Why | UnsetType | None, UNSET)],
        namespace={"__doc__": "One item of a list; `why` is there if it was asked for."},
        module=__name__,
    )


class RecommendedList(msgspec.Struct):
    """The best items for one user."""

    model: str  # digest of the model that answered
    user: Id | None
    popularity: float  # the knobs that the list was made with
    lift: float
    cold: bool  # whether nothing is known of the user, and popular items are listed
    events: int  # the last of the user's events in the answer; 0: none
    items: list[RecommendedItem]
    ignored: list[Id] | UnsetType = UNSET  # likes that the model does not know


class BatchEntry(msgspec.Struct):
    """One user of a batch: a list, or an error."""

    user: Id
    cold: bool | UnsetType = UNSET
    events: int | UnsetType = UNSET
    items: list[RecommendedItem] | UnsetType = UNSET
    error: ProblemDetails | UnsetType = UNSET


class BatchAnswer(msgspec.Struct):
    """One entry for each user, in the order of the request."""

    model: str
    popularity: float
    lift: float
    results: list[BatchEntry]


# --- Items, reasons, the landscape ---


class SearchQuery(Asked, kw_only=True):
    """`q` are letters or words of a title; without it the most liked items are listed."""

    q: Annotated[str, Meta(max_length=512)] = ""
    n: Count = 10


class SimilarQuery(Asked, kw_only=True):
    n: Count = 10


class ItemAnswer(msgspec.Struct):
    """An item as the model knows it."""

    item: Id
    title: str | None
    likes: int  # in training


class SimilarItem(msgspec.Struct):
    """An item whose vector has a large cosine with another's."""

    rank: int
    item: Id
    title: str | None
    likes: int
    cosine: float


class ItemsAnswer(msgspec.Struct):
    model: str
    items: list[ItemAnswer]


class SimilarAnswer(msgspec.Struct):
    model: str
    item: Id
    items: list[SimilarItem]


class ItemDetail(msgspec.Struct):
    model: str
    item: Id
    title: str | None
    likes: int
    log_popularity: float


class ExplanationRequest(Asked, kw_only=True):
    """Request for the reasons of a pair. Give a `user`, or `likes` of someone new."""

    item: Id
    user: Id | None = None
    likes: Likes | None = None
    n: Count = 10


class ExplanationAnswer(msgspec.Struct):
    model: str
    user: Id | None
    item: Id
    title: str | None
    p_like: float
    p_considered: float | None
    because: list[LikedReason]
    considered_because: list[ConsideredReason]
    by_popularity: float
    ignored: list[Id] | UnsetType = UNSET


class LandscapeRequest(Asked, kw_only=True):
    """The items that the knobs can bring into the first `n`, for a `user` or for `likes` of someone new."""

    user: Id | None = None
    likes: Likes | None = None
    n: Count = 10
    popularity: tuple[Weight, Weight] = (0.0, 1.0)  # the ranges of the knobs
    lift: tuple[Weight, Weight] = (0.0, 2.0)
    points: Annotated[int, Meta(ge=1, le=MOST_POINTS)] = 2_000
    interval: Interval = "structural"


class LandscapeHead(msgspec.Struct):
    """The fields of `LandscapeAnswer` that are not columns."""

    model: str
    user: Id | None
    events: int
    total: int  # items that may be recommended
    reached: int
    complete: bool  # whether all that can be reached are here
    item: list[Id]
    title: list[str | None]
    logit: list[float]
    log_popularity: list[float]
    log_lift: list[float] | None  # None: this model has no lift


if not TYPE_CHECKING:
    LandscapeAnswer = msgspec.defstruct(
        "LandscapeAnswer",
        [
            *((column.name, list[_type(column)]) for column in PAIR_COLUMNS if column.values),
            ("ignored", list[Id] | UnsetType, UNSET),
        ],
        bases=(LandscapeHead,),
        namespace={
            "__doc__": """Arrays, one entry an item; score = logit + popularity * log_popularity + lift * log_lift.

    The first `reached` of them are all that any setting of the knobs can bring into the first n, and perhaps some more,
    unless there are more than `points`; the others are a sample of the rest.
    """
        },
        module=__name__,
    )


# --- The model ---


class KnownNumber(msgspec.Struct):
    """A number of each pair, as the recalibration reads it: weight * (the number within low..high - centre)."""

    weight: float
    centre: float
    low: float
    high: float


class Calibration(msgspec.Struct):
    """The correction of the logit of p(like): a slope of 1 and a shift of 0 alone if it was not recalibrated."""

    slope: float
    shift: float
    covariates: dict[str, KnownNumber]  # log_popularity, lift, log_likes
    pairs: int  # judged pairs that it was fitted to; 0: not known
    weights: Literal["each pair", "equal classes"]
    stale: bool  # whether the model was fitted anew since


class Structure(msgspec.Struct):
    """Variance of true logits about the model's, in the interval of p(like)."""

    user: float  # of what all pairs of a user share
    item: float
    pair: float


class ModelAnswer(msgspec.Struct):
    """The model that is served."""

    digest: str
    version: str  # of the library that serves it
    since: str  # when it was swapped in, ISO 8601
    users: int
    items: int
    likes: int
    factors: int
    sweeps: int
    converged: bool
    has_titles: bool
    knows_likes: bool
    popularity: float  # the model's own knobs
    lift: float | None  # None: it does not know who considers what
    calibration: Calibration
    structure: Structure | None  # None: the interval is the posterior's
    settings: dict[str, float | int | str | bool | None]
    chosen: dict[str, float] | None  # settings that were "auto"
    graph: bool  # whether users and items are the same vertices, and a like is one end of a link
    integer_users: bool  # whether ids are integers; a text that is one finds it, too
    integer_items: bool
    takes_events: bool
    event_sequence: int  # of the last event that a refit has put into the model; 0: there was none


class JudgedBin(msgspec.Struct):
    """Judged pairs whose p(like) is about the same."""

    predicted: float  # mean of p(like)
    liked: float  # share that was liked
    low: float  # its 90 % interval
    high: float
    pairs: int


class ReliabilityAnswer(msgspec.Struct):
    """Honesty of p(like): the share of liked pairs among judged pairs of about the same p(like)."""

    model: str
    source: Literal["events", "model"] | None  # None: there is nothing to tell it by yet
    weights: (
        Literal["each pair", "equal classes"] | None
    )  # "equal classes": liked and not liked weigh the same in total
    pairs: int
    error: float | None  # mean over pairs of |liked - predicted| of their bin
    bins: list[JudgedBin]


class ReloadAnswer(msgspec.Struct):
    model: str
    changed: bool


# --- Events ---


class Event(Asked, kw_only=True):
    """An act of a user. `considered`: the item was shown and not taken. A retry with the same `key` is stored once."""

    user: Id
    item: Id
    kind: Literal["like", "unlike", "considered"] = "like"
    key: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class EventsRequest(Asked, kw_only=True):
    events: Annotated[list[Event], Meta(min_length=1, max_length=MOST_EVENTS)]


class StoredEvent(msgspec.Struct):
    sequence: int
    duplicate: bool  # an event with this key was stored before, or was erased


class EventsAnswer(msgspec.Struct):
    """The events are on disk when this is sent."""

    events: list[StoredEvent]
    unknown_items: list[Id]  # that the model does not know yet


class EventsQuery(Asked, kw_only=True):
    after: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0  # events of a higher sequence number
    n: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    user: Text | None = None


class EraseQuery(Asked, kw_only=True):
    user: Text | None = None


class UserEvent(msgspec.Struct):
    sequence: int
    time: str  # when it was stored, ISO 8601
    kind: str
    item: str


class UserEventsAnswer(msgspec.Struct):
    user: str
    events: list[UserEvent]
    more: bool  # ask again, after the last of these


class ErasedAnswer(msgspec.Struct):
    user: str
    erased: int


class Health(msgspec.Struct):
    status: str
    model: str | None = None
