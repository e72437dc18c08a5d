"""One call of the kernel for all requests that wait.

A thread takes all requests that came in while it was busy; nobody waits for a timer. A list does not depend on the
others in the call: the kernel adds in an order of its own, and each user is folded in alone. So the answers are those
of `Recommender.recommend_table` and `recommend_for`, to the last digit.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from considerate._version import __version__
from considerate.data.graph import Adjacency
from considerate.data.vocabulary import Id
from considerate.errors import UsageError
from considerate.inference.posterior import Side
from considerate.model.explain import explain_item
from considerate.model.model import Model
from considerate.model.pairs import UserBatch
from considerate.model.predict import strangers
from considerate.model.ranking import RankingOptions
from considerate.model.serving import BLOCK, Ranker
from considerate.model.users import UserRows
from considerate.service.events import CONSIDERED, LIKE, UNLIKE, EventStore, EventsUnavailable
from considerate.service.metrics import Metrics
from considerate.service.problems import Problem, shortened
from considerate.service.schemas import ITEM_COLUMNS, RecommendedItem, Why
from considerate.service.state import ModelHolder, ServedModel
from considerate.service.threads import Ended, Pause

MOST_CONSIDERED = 500  # items that a user considered and did not like, the latest, that count
REASONS = 3  # of an item, where a list is explained
EventOfUser = tuple[int, str, int]  # sequence, item, number of the kind
Done = Callable[[Any, BaseException | None], None]


@dataclass(frozen=True, slots=True)
class Question:
    """A question for a list: a user by id, or someone new by likes, and the options."""

    options: RankingOptions
    count: int
    user: Id | None = None
    likes: list[Id] | None = None
    considered: list[Id] | None = None
    cold: str = "error"
    explain: bool = False
    etags: str | None = None  # answers that the client has: If-None-Match

    @property
    def takes_long(self) -> bool:
        """True if other questions should not wait for it."""
        lists = self.likes, self.considered, self.options.allow, self.options.deny
        return (
            self.explain
            or sum(len(each or ()) for each in lists) > 500
            or (self.options.diversity > 0 and self.count > 50)
        )


class Asker(NamedTuple):
    """A user of the model or of the events, or someone new by items that they like and that they did not like."""

    user: Id | None
    likes: list[Id] | None = None
    considered: list[Id] | None = None


class Taste(NamedTuple):
    """Rows of the items that someone likes, and of those that they considered and did not like, the latest last."""

    likes: set[int]
    considered: list[int]


@dataclass(frozen=True, slots=True)
class Person:
    """State of one user at the time of a request."""

    side: Side
    row: int  # of the side
    key: int  # the row in the model, or -1
    liked: NDArray[np.int32]  # rows, ascending
    warm: bool  # whether anything is known
    sequence: int  # of the last event; 0: there is none
    ignored: list[Id]  # likes that the model does not know
    folded: bool = False

    @property
    def posterior(self) -> Side:
        """Posterior of this user alone."""
        return self.side.take(np.array([self.row]))


@dataclass(frozen=True, slots=True)
class ListAnswer:
    """The answer to a question; `items` is None where the client has it already."""

    served: ServedModel
    person: Person
    ranker: Ranker
    items: list[RecommendedItem] | None


def no_pause() -> None:
    """The pause of work that is never ended early."""


def etag(served: ServedModel, sequence: int) -> str:
    """Tag of all that an answer to an address depends on: the model, the user's events, and this code."""
    return f'W/"{served.digest[:24]}-{sequence}-{__version__}"'


def has_etag(known: str | None, tag: str) -> bool:
    """True if If-None-Match has a tag: * is any tag, and W/ is ignored (RFC 9110, 13.1.2)."""
    return known is not None and (known.strip() == "*" or tag.removeprefix("W/") in known)


def event_id(given: Id) -> str:
    """An id as events keep it: a text, without the white space that readers of data remove, too."""
    return str(given).strip() or str(given)


class Scoring:
    """Answers questions with the model of the moment and the events that are on disk."""

    def __init__(self, holder: ModelHolder, events: EventStore | None, metrics: Metrics) -> None:
        self.holder, self.events, self.metrics = holder, events, metrics
        self._queue: queue.SimpleQueue[tuple[Question, Done] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="scoring", daemon=True)
        self._thread.start()

    def ask(self, question: Question, done: Done) -> None:
        """`done` is called with a `ListAnswer` or an error, from the thread that scores."""
        self._queue.put((question, done))

    def waiting(self) -> int:
        return self._queue.qsize()

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        asked = self._queue.get()
        while asked is not None:
            waiting = [asked]
            while len(waiting) < BLOCK:
                try:
                    following = self._queue.get_nowait()
                except queue.Empty:
                    break
                if following is None:
                    self._queue.put(None)
                    break
                waiting.append(following)
            answers = self.answer([question for question, _ in waiting])
            for (_, done), answer in zip(waiting, answers):
                if isinstance(answer, BaseException):
                    done(None, answer)
                else:
                    done(answer, None)
            asked = self._queue.get()

    # --- Users ---

    def served(self) -> ServedModel:
        """The model in use."""
        served = self.holder.current
        if served is None:
            raise Problem("no-model", "The model is being read; try again in a moment.", {"Retry-After": "1"})
        return served

    def people(self, served: ServedModel, askers: Sequence[Asker]) -> list[Person]:
        """Users by id, with their events, or by likes."""
        names = [asker.user for asker in askers if asker.user is not None]
        rows = served.users.rows(np.array(names, object), unknown=True) if names else np.empty(0, np.int64)
        known = rows >= 0
        some, local = served.model.users.some(rows[known])
        places = np.full(len(rows), -1)
        places[known] = local
        events = {} if served.model.one_kind else self._events_of(names)  # an edge would be of both ends
        of_model = iter(zip(rows.tolist(), places.tolist()))
        people = []
        for asker in askers:
            if asker.user is None:
                likes, unknown = served.known_likes(asker.likes or [])
                shown, others = served.known_likes(asker.considered or [])
                taste = Taste(set(likes), [row for row in dict.fromkeys(shown) if row not in likes])
                people.append(self._folded(served, taste, ignored=unknown + others))
            else:
                people.append(self._known(served, some, *next(of_model), events.get(event_id(asker.user), [])))
        return people

    def _known(self, served: ServedModel, users: UserRows, row: int, place: int, events: list[EventOfUser]) -> Person:
        """A user by the row in the model, which is at a place of `users`, and by events; the row may be -1."""
        sequence = events[-1][0] if events else 0
        if row < 0:
            return self._folded(served, _after(served, set(), events), row, sequence)
        liked, degree = users.liked.row(place), int(users.degree[place])
        if events:
            trained = set(liked.tolist())
            taste = _after(served, trained, events)
            if len(liked) == degree and not self._is_learned(served, taste, trained, events):
                return self._folded(served, taste, row, sequence)
            liked = _rows(taste.likes)  # a model saved without likes keeps its posterior: events alone know less
        return Person(users.side, place, row, liked, degree > 0, sequence, [])

    def _is_learned(self, served: ServedModel, taste: Taste, trained: set[int], events: list[EventOfUser]) -> bool:
        """True if the posterior of training knows a user's taste: the same likes, and nothing considered since then
        that counts."""
        learned = served.model.events
        assert self.events is not None
        until = learned.up_to(self.events.identity) if learned.considered else 0
        shown = taste.considered and any(sequence > until for sequence, _, kind in events if kind == CONSIDERED)
        return taste.likes == trained and not shown

    def person(self, served: ServedModel, user: Id | None, likes: list[Id] | None) -> Person:
        """One user; a problem where nothing is known of them, unless no likes were given: that is anyone."""
        (person,) = self.people(served, [Asker(user, likes)])
        if not person.warm and likes != []:
            raise unknown_user(user)
        return person

    def _events_of(self, names: list[Id]) -> dict[str, list[EventOfUser]]:
        if self.events is None or not names:
            return {}
        try:
            return self.events.of_users({event_id(name) for name in names})
        except EventsUnavailable as error:
            raise Problem(
                "no-events", "The events cannot be read; try again in a moment.", {"Retry-After": "5"}
            ) from error

    def _folded(
        self, served: ServedModel, taste: Taste, row: int = -1, sequence: int = 0, ignored: Sequence[Id] = ()
    ) -> Person:
        """Someone by likes and by considered items; without likes, the prior."""
        model, liked = served.model, _rows(taste.likes)
        side = strangers(1, model.shared, model.variance_scale)
        if taste.likes:
            self.metrics.folded.inc()
            shown = Adjacency.of_rows([_rows(set(taste.considered))]) if taste.considered else None
            side = model.fold_in.users(Adjacency.of_rows([liked]), considered=shown)
        return Person(side, 0, row, liked, len(liked) > 0, sequence, list(ignored), folded=True)

    # --- Answers ---

    def answer(
        self,
        questions: Sequence[Question],
        served: ServedModel | None = None,
        pause: Pause = no_pause,
        ranker: Ranker | None = None,
    ) -> list[ListAnswer | BaseException]:
        """Answer or error of each question; those with the same options are ranked in one call. A given ranker of this
        model has the options of all."""
        pause()
        try:
            served = served or self.served()
            people = self.people(served, [Asker(each.user, each.likes, each.considered) for each in questions])
        except Exception as error:
            if len(questions) == 1:
                return [error]
            return [answer for question in questions for answer in self.answer([question], served, pause, ranker)]
        answers: list[ListAnswer | BaseException] = [RuntimeError()] * len(questions)
        groups: dict[tuple[RankingOptions, int, bool], list[int]] = {}
        for place, (question, person) in enumerate(zip(questions, people)):
            if question.cold == "error" and not person.warm:
                answers[place] = unknown_user(question.user)
            else:
                knows_likes = served.model.users.knows_likes or person.folded
                groups.setdefault((question.options, question.count, knows_likes), []).append(place)
        for (options, count, _), places in groups.items():
            try:
                chosen = ranker or served.ranker(options, count)
                self._rank(served, chosen, questions, people, places, answers, pause)
            except Ended:
                raise
            except Exception as error:
                for place in places:
                    answers[place] = error
        return answers

    def _rank(
        self,
        served: ServedModel,
        ranker: Ranker,
        questions: Sequence[Question],
        people: list[Person],
        places: list[int],
        answers: list[ListAnswer | BaseException],
        pause: Pause,
    ) -> None:
        """Write the answers of the questions at some places, which have the same options."""
        asked = []
        for place in places:
            if has_etag(questions[place].etags, etag(served, people[place].sequence)):
                answers[place] = ListAnswer(served, people[place], ranker, None)
            else:
                asked.append(place)
        for first in range(0, len(asked), BLOCK):
            some = asked[first : first + BLOCK]
            lists = ranked(served, ranker, [people[place] for place in some])
            for place, items in zip(some, lists):
                for item in items if questions[place].explain else ():
                    pause()
                    item.why = why(served, people[place], item)
            self.metrics.batch.observe(len(some))
            for place, items in zip(some, lists):
                answers[place] = ListAnswer(served, people[place], ranker, items)


def ranked(served: ServedModel, ranker: Ranker, people: list[Person]) -> list[list[RecommendedItem]]:
    """Lists of some people, by one call of the kernel. The likes of all of them are known, or of none."""
    model = served.model
    knows_likes = model.users.knows_likes or people[0].folded
    if not knows_likes and ranker.options.lift:
        raise UsageError("lift needs the user's likes, and this model was saved without them; leave lift out.")
    pairs = ranker.answer(user_batch(people, model))
    items = [RecommendedItem(*values) for values in zip(*served.values(ITEM_COLUMNS, pairs))]
    ends = np.searchsorted(pairs.user, np.arange(len(people)), side="right").tolist()
    return [items[start:end] for start, end in zip([0, *ends[:-1]], ends)]


def why(served: ServedModel, person: Person, item: RecommendedItem) -> Why | None:
    """Reasons of one recommendation, as in the shell; None if nothing is known of the person."""
    if not person.warm:
        return None
    check_explains(served, person)
    user = user_batch([person], served.model)
    explanation = explain_item(served.model, user, served.items.row(item.item), REASONS, served.items)
    return Why(**explanation.to_dict(served.model))


def check_explains(served: ServedModel, person: Person) -> None:
    """Raise UsageError if the likes that would explain are not known."""
    if not served.model.users.knows_likes and not person.folded:
        raise UsageError("this model was saved without likes, and cannot explain by them.")


def user_batch(people: list[Person], model: Model) -> UserBatch:
    """People as one batch. Users of the model are not copied."""
    side, rows = people[0].side, np.array([person.row for person in people])
    if any(person.side is not side for person in people):
        parts = [person.posterior.arrays() for person in people]
        joined = (None if first is None else np.concatenate(arrays) for first, *arrays in zip(parts[0], *parts))
        side, rows = Side(side.factors, *joined), np.arange(len(people))  # type: ignore[arg-type]
    warm = np.array([person.warm for person in people])
    keys = np.array([person.key for person in people])
    liked = Adjacency.of_rows([person.liked for person in people])
    return UserBatch(side, rows, keys, liked, None if warm.all() else warm, model.limits_of(keys), people[0].folded)


def _after(served: ServedModel, liked: set[int], events: list[EventOfUser]) -> Taste:
    """Likes after all events, and what was considered."""
    if not events:
        return Taste(liked, [])
    rows = served.items.rows(np.array([item for _, item, _ in events], object), unknown=True).tolist()
    return taste_after(liked, rows, [kind for _, _, kind in events])


def taste_after(liked: set[int], rows: Sequence[int], kinds: Sequence[int]) -> Taste:
    """Taste after events by rows; unknown items, row -1, change nothing yet."""
    likes, shown = set(liked), dict[int, None]()
    for row, kind in zip(rows, kinds):
        if row < 0:
            continue
        if kind == LIKE:
            likes.add(row)
        elif kind == UNLIKE:
            likes.discard(row)
        else:
            shown.pop(row, None)
            shown[row] = None
    return Taste(likes, [row for row in shown if row not in likes][-MOST_CONSIDERED:])


def _rows(likes: set[int]) -> NDArray[np.int32]:
    return np.array(sorted(likes), np.int32)


def unknown_user(user: Id | None) -> Problem:
    if user is None:
        return Problem("invalid", "None of the likes is an item of the model; give at least one that is.")
    return Problem(
        "unknown-user",
        f"Nothing is known of user {shortened(user)}; ask with cold=popular for popular items, or send likes to "
        "POST /v1/recommendations or POST /v1/events.",
    )
