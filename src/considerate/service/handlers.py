"""Handlers of the routes; `routes.py` names the handler of each route."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from considerate.errors import ModelFileError
from considerate.service import answers, schemas
from considerate.service.call import JSON, Call
from considerate.service.compression import asks_gzip, packed_response
from considerate.service.events import EventStore, EventsUnavailable, NewEvent
from considerate.service.honesty import Honesty
from considerate.service.metrics import Metrics
from considerate.service.openapi import docs_page, document
from considerate.service.page_files import PAGE_HEADERS, page_files
from considerate.service.problems import Problem, busy
from considerate.service.scoring import ListAnswer, Question, Scoring, etag, event_id, has_etag, no_pause
from considerate.service.settings import ServiceSettings
from considerate.service.state import ModelHolder
from considerate.service.threads import Lane, Pause, Threads

ARROW = "application/vnd.apache.arrow.stream"


@dataclass
class Handlers:
    """A method for each route, with the objects that they share."""

    settings: ServiceSettings
    metrics: Metrics
    holder: ModelHolder
    events: EventStore | None
    scoring: Scoring
    threads: Threads
    honesty: Honesty = field(default_factory=Honesty)

    # --- Recommendations ---

    async def recommend(self, call: Call) -> Response:
        query = call.query(schemas.UserQuery)
        user, etags = call.user(query), call.header("if-none-match")
        question = Question(query.ranking(), query.n, user, cold=query.cold, explain=query.explain, etags=etags)
        return await self._list(call, question)

    async def recommend_for(self, call: Call) -> Response:
        request = await call.body(schemas.LikesRequest)
        question = Question(
            request.ranking(), request.n, likes=request.likes, considered=request.considered, explain=request.explain
        )
        return await self._list(call, question)

    async def _list(self, call: Call, question: Question) -> Response:
        """Answer with the list of one user: in a thread if it takes long, else in the next call of the kernel."""
        if question.takes_long:

            def answered(pause: Pause) -> Response:
                (answer,) = self.scoring.answer([question], None, pause)
                if isinstance(answer, BaseException):
                    raise answer
                return _list_response(question, answer, asks_gzip(call.headers), pause)

            return await self.threads.in_thread(answered)
        self._check_waiting(self.scoring.waiting())
        answer = await self.threads.called_back(lambda done: self.scoring.ask(question, done))
        return _list_response(question, answer)

    def _check_waiting(self, waiting: int) -> None:
        if waiting >= self.settings.most_waiting:
            raise busy(f"{self.settings.most_waiting} requests wait, which is the limit; try again in a moment.")

    async def batch(self, call: Call) -> Response:
        request = await call.body(schemas.BatchRequest)
        wants_arrow = ARROW in (call.header("accept") or "")
        if wants_arrow and request.explain:
            raise Problem("invalid", "An Arrow stream has no reasons; leave explain out, or ask for JSON.")
        answers.check_cost(request)
        make, media_type = (answers.batch_stream, ARROW) if wants_arrow else (answers.batch_json, JSON)
        try:
            return await self._packed(
                call, lambda pause: make(self.scoring, request, pause), media_type, self.threads.batches
            )
        except TimeoutError:
            raise busy(
                f"The lists of {len(request.users):,} users were not ready within {self.settings.timeout:g} seconds; "
                "ask for fewer at once, or try again later."
            ) from None

    async def landscape(self, call: Call) -> Response:
        request = await call.body(schemas.LandscapeRequest)
        return await self._packed(call, lambda _: answers.landscape(self.scoring, request))

    async def explain(self, call: Call) -> Response:
        request = await call.body(schemas.ExplanationRequest)
        return await self._packed(call, lambda _: answers.explanation(self.scoring, request))

    async def _packed(
        self, call: Call, make: Callable[[Pause], Any], media_type: str = JSON, lane: Lane | None = None
    ) -> Response:
        """Make and encode an answer in a thread."""
        zipped = asks_gzip(call.headers)
        return await self.threads.in_thread(
            lambda pause: packed_response(make(pause), media_type, {}, zipped, pause), lane
        )

    # --- Items and the model ---

    async def search(self, call: Call) -> Response:
        query, served = call.query(schemas.SearchQuery), self.scoring.served()
        return await self._packed(call, lambda _: answers.search(served, query))

    async def item(self, call: Call) -> Response:
        return json_response(answers.item(self.scoring.served(), call.path["item"]))

    async def similar(self, call: Call) -> Response:
        query, served = call.query(schemas.SimilarQuery), self.scoring.served()
        return await self._packed(call, lambda _: answers.similar(served, call.path["item"], query))

    async def model(self, call: Call) -> Response:
        return json_response(answers.model_answer(self.scoring.served(), self.events))

    async def reliability(self, call: Call) -> Response:
        served = self.scoring.served()
        return await self._packed(call, lambda _: self.honesty.answer(served, self.events))

    async def reload(self, call: Call) -> Response:
        try:
            changed = await asyncio.to_thread(self.holder.load, force=True)
        except ModelFileError:
            detail = "The file at the configured path is no complete model; the log has the reason. Write it again."
            raise Problem("refused-model", detail) from None
        return json_response(schemas.ReloadAnswer(self.scoring.served().digest, changed))

    # --- Events ---

    def _store(self) -> EventStore:
        if self.events is None:
            raise Problem("events-off", "This service stores no events; start it with --events FILE.")
        self._check_waiting(self.events.waiting())
        return self.events

    async def store_events(self, call: Call) -> Response:
        store, request = self._store(), await call.body(schemas.EventsRequest)
        if self.scoring.served().model.one_kind:
            raise Problem(
                "invalid",
                "This model of a graph of vertices takes no events, because a link belongs to both its ends. Add new "
                "links to the edges and fit again.",
            )
        events = [
            NewEvent(event_id(event.user), event_id(event.item), event.kind, event.key) for event in request.events
        ]
        stored = await self.threads.called_back(lambda done: store.append(events, done))
        _, unknown = self.scoring.served().known_likes([event.item for event in events])
        entries = [schemas.StoredEvent(sequence, duplicate) for sequence, duplicate in stored]
        return json_response(schemas.EventsAnswer(entries, list(dict.fromkeys(unknown))))

    async def list_events(self, call: Call) -> Response:
        store, query = self._store(), call.query(schemas.EventsQuery)
        user = event_id(call.user(query))
        rows = await self.threads.in_thread(lambda _: store.page(user, query.after, query.n + 1))
        events = [
            schemas.UserEvent(row.sequence, datetime.fromtimestamp(row.seconds, UTC).isoformat(), row.kind, row.item)
            for row in rows[: query.n]
        ]
        return json_response(schemas.UserEventsAnswer(user, events, len(rows) > query.n), {"Cache-Control": "no-store"})

    async def erase_events(self, call: Call) -> Response:
        store, user = self._store(), event_id(call.user(call.query(schemas.EraseQuery)))
        erased = await self.threads.called_back(lambda done: store.erase(user, done))
        return json_response(schemas.ErasedAnswer(user, erased))

    # --- The service itself ---

    async def live(self, call: Call) -> Response:
        return json_response(schemas.Health("live"))

    async def ready(self, call: Call) -> Response:
        served = self.scoring.served()
        if self.threads.is_overloaded() or self.scoring.waiting() >= self.settings.most_waiting:
            raise busy("There are more requests than this server can answer in time; ask another server.")
        if self.events is not None and self.events.failing:
            await self.threads.called_back(self.events.probe)  # its errors are answered with 503
        return json_response(schemas.Health("ready", served.digest))

    async def show_metrics(self, call: Call) -> Response:
        content, media_type = await self.threads.in_thread(lambda _: self._metrics(), self.threads.watching)
        return Response(content, media_type=media_type)

    def _metrics(self) -> tuple[bytes, str]:
        served = self.holder.current
        if self.events is not None and served is not None:
            with suppress(EventsUnavailable):
                last, learned = self.events.mark()[0], served.model.events.up_to(self.events.identity)
                self.metrics.unlearned.set(max(0, last - learned))
        return self.metrics.text()

    async def openapi(self, call: Call) -> Response:
        return json_response(document())

    async def docs(self, call: Call) -> Response:
        return Response(docs_page(), headers=PAGE_HEADERS, media_type="text/html")

    async def page(self, call: Call) -> Response:
        file = page_files().get(call.path.get("name", "index.html"))
        if file is None:
            raise Problem("unknown-route", "There is no such file; / is the page.")
        headers = PAGE_HEADERS | {"ETag": file.etag}
        if has_etag(call.header("if-none-match"), file.etag):
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.media_type)


def _list_response(question: Question, answer: ListAnswer, zipped: bool = False, pause: Pause = no_pause) -> Response:
    person, ranker, headers = answer.person, answer.ranker, dict[str, str]()
    if question.user is not None:
        headers = {"ETag": etag(answer.served, person.sequence), "Cache-Control": "private, no-cache"}
    if answer.items is None:
        return Response(status_code=304, headers=headers)
    head = answer.served.digest, question.user, ranker.popularity, ranker.lift, not person.warm, person.sequence
    ignored = person.ignored if question.user is None else UNSET
    return packed_response(schemas.RecommendedList(*head, answer.items, ignored), JSON, headers, zipped, pause)


def json_response(value: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), headers=headers, media_type=JSON)
