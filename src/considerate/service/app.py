"""The ASGI application: limits, keys, routes and answers. Any ASGI server runs it; `considerate serve` uses uvicorn.

Paths are matched as they came over the wire (`raw_path`), segment by segment, and decoded then: an id may have any
character, a slash too. `?user=` takes ids that proxies would change.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
import traceback
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote

import msgspec
from msgspec import UNSET
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from considerate.errors import ModelFileError, UnknownIdError, UsageError
from considerate.service import answers, schemas
from considerate.service.events import EventStore, EventsUnavailable, NewEvent
from considerate.service.limits import ApiKey, RateLimit
from considerate.service.logs import configure_logs
from considerate.service.metrics import Metrics
from considerate.service.openapi import PROBLEM, docs_page, document
from considerate.service.page_files import PAGE_HEADERS, page_files
from considerate.service.problems import Problem, shortened
from considerate.service.routes import Route, RouteTable
from considerate.service.scoring import ListAnswer, Question, Scoring, etag, event_id
from considerate.service.settings import ServiceSettings
from considerate.service.state import ModelHolder

logger = logging.getLogger("considerate.service")
Struct = TypeVar("Struct", bound=msgspec.Struct)
Result = TypeVar("Result")
JSON = "application/json"
ARROW = "application/vnd.apache.arrow.stream"
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
LISTS = ("allow", "deny")  # parameters of a query that may be repeated
SLOW_THREADS = 2  # for batches, searches, landscapes: what is not one user's list
MOST_SLOW = 64  # of those that may wait


def create_app(settings: ServiceSettings) -> ASGIApp:
    """The application. Its lifespan opens the model and the events."""
    service = Service(settings)
    app: ASGIApp = Router(default=service.handle, lifespan=service.lifespan, redirect_slashes=False)
    app = GZipMiddleware(app, minimum_size=1_400, compresslevel=4)
    if settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key", "If-None-Match"],
            expose_headers=["ETag", "X-Request-ID"],
        )
    return app


def from_environment() -> ASGIApp:
    """The application by the settings in the environment, for worker processes and for other servers."""
    configure_logs()
    return create_app(ServiceSettings.from_environment())


@dataclass
class Call:
    """A request as handlers read it."""

    scope: Scope
    receive: Receive
    settings: ServiceSettings
    headers: dict[bytes, bytes]
    route: Route
    path: dict[str, str]  # its parameters

    def header(self, name: str) -> str | None:
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1")

    def query(self, kind: type[Struct]) -> Struct:
        """The query string, checked."""
        values: dict[str, Any] = {}
        try:
            pairs = parse_qsl(self.scope["query_string"].decode(), keep_blank_values=True, errors="strict")
        except ValueError:
            raise Problem("unreadable", "The query is not UTF-8; percent-encode the bytes of UTF-8 text.") from None
        for name, value in pairs:
            if name in LISTS:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise Problem("invalid", f"The parameter {shortened(name)} is given twice; give it once.")
            else:
                values[name] = value
        try:
            return msgspec.convert(values, kind, strict=False)
        except msgspec.ValidationError as error:
            raise Problem("invalid", f"The query is not as it should be: {error}. See /docs.") from None

    async def body(self, kind: type[Struct]) -> Struct:
        """The body, read within the limits of size and time, and checked."""
        media = (self.header("content-type") or "").partition(";")[0].strip().lower()
        if media != JSON:  # also where it is not said: a page of another origin may send that without being asked
            raise Problem("wrong-type", f"The Content-Type is {shortened(media)}; send {JSON}.")
        try:
            return msgspec.json.decode(await self._read(), type=kind)
        except msgspec.ValidationError as error:
            raise Problem("invalid", f"The body is not as it should be: {error}. See /docs.") from None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise Problem("unreadable", "The body is not JSON; see /docs for what is expected.") from None

    async def _read(self) -> bytes:
        most, parts, size, more = self.settings.max_body, [], 0, True
        length = self.header("content-length") or "0"
        if length.isdecimal() and int(length) > most:
            raise _too_large(most)
        try:
            async with asyncio.timeout(self.settings.timeout):
                while more:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        raise Problem("unreadable", "The body ended early.")
                    parts.append(message.get("body", b""))
                    size, more = size + len(parts[-1]), message.get("more_body", False)
                    if size > most:
                        raise _too_large(most)
        except TimeoutError:
            detail = f"The body did not come within {self.settings.timeout:g} seconds; send it faster."
            raise Problem("slow-body", detail, {"Connection": "close"}) from None
        return b"".join(parts)

    def user(self, query: Any) -> str:
        """The id of the user, in the path or in the query."""
        name = self.path.get("user", query.user)
        if not name:
            raise Problem("invalid", "No user is named; give an id in the path, or as ?user=.")
        return str(name)


def _too_large(most: int) -> Problem:
    return Problem("too-large", f"The body has more than {most} bytes; send less at once.", {"Connection": "close"})


class Service:
    """Handlers of the routes, and what they share."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.routes = RouteTable()
        self.key = ApiKey(settings.api_key())
        self.rate = RateLimit(settings.rate)
        self.holder = ModelHolder(settings.model, self.metrics)
        self.events: EventStore | None = None
        self.scoring: Scoring
        self._slow = ThreadPoolExecutor(SLOW_THREADS, "slow")
        self._slow_waiting = 0
        self._draining = False
        self._ids, self._numbers = secrets.token_hex(6), count()  # of requests

    @asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        await asyncio.to_thread(self.holder.load, force=True)
        if self.settings.events is not None:
            self.events = EventStore(self.settings.events, self.metrics)
        self.scoring = Scoring(self.holder, self.events, self.metrics)
        watcher = asyncio.create_task(self._watch())
        yield
        self._draining = True
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher
        self.scoring.close()
        self._slow.shutdown()
        if self.events is not None:
            self.events.close()

    async def _watch(self) -> None:
        """Look at the model's path, and swap in what is new there."""
        while True:
            await asyncio.sleep(self.settings.poll)
            with suppress(ModelFileError):  # it was logged and counted
                await asyncio.to_thread(self.holder.load)

    # --- One request ---

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # a websocket: the server closes it
        began = time.perf_counter()
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request = given.decode() if REQUEST_ID.fullmatch(given) else f"{self._ids}-{next(self._numbers):x}"
        template = "unknown"
        try:
            raw_path = scope.get("raw_path") or quote(scope["path"]).encode()
            route, path = self.routes.find(scope["method"], raw_path.partition(b"?")[0])
            template = route.path
            self._check_client(scope, headers, route)
            call = Call(scope, receive, self.settings, headers, route, path)
            response = await getattr(self, route.handler)(call)
        except Problem as problem:
            response = problem_response(problem, request)
        except (UsageError, UnknownIdError) as error:
            response = problem_response(Problem("invalid", _sentence(str(error))), request)
        except EventsUnavailable:
            response = problem_response(_no_events(), request)
        except TimeoutError:
            detail = f"The answer did not come within {self.settings.timeout:g} seconds; try again."
            response = problem_response(Problem("busy", detail, {"Retry-After": "1"}), request)
        except Exception as error:
            logger.error("request failed", extra={"fields": {"request": request, "error": _frames(error)}})
            detail = "The service failed; the log has the reason under the id of the request."
            response = problem_response(Problem("failed", detail), request)
        response.headers["X-Request-ID"] = request
        response.headers["X-Content-Type-Options"] = "nosniff"
        await response(scope, receive, send)
        self._count(scope["method"], template, response, request, time.perf_counter() - began)

    def _check_client(self, scope: Scope, headers: dict[bytes, bytes], route: Route) -> None:
        client = scope.get("client")
        if not route.path.startswith("/health/"):
            self.rate.check(client[0] if client else "")
        if route.path.startswith("/admin/") and not self.key.is_set:
            raise Problem("no-admin", "Start the service with --api-key-file to use this address.")
        if not route.is_open:
            self.key.check(headers)

    def _count(self, method: str, template: str, response: Response, request: str, seconds: float) -> None:
        known = method if method in ("GET", "HEAD", "POST", "DELETE") else "other"
        self.metrics.requests.labels(template, known, response.status_code).inc()
        self.metrics.seconds.labels(template).observe(seconds)
        if self.settings.access_log:
            fields = {"request": request, "method": known, "route": template, "status": response.status_code}
            logger.info("request", extra={"fields": fields | {"ms": round(1e3 * seconds, 3)}})

    # --- Work in threads ---

    async def _called_back(self, start: Callable[[Callable[[Any, BaseException | None], None]], None]) -> Any:
        """Wait for what a thread says through a callback."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():
                return  # nobody waits any more
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def tell(result: Any, error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(settle, result, error)

        start(tell)
        async with asyncio.timeout(self.settings.timeout):
            return await future

    async def _in_thread(self, run: Callable[..., Result], *arguments: Any) -> Result:
        """Run what takes longer beside the requests of single users."""
        if self._slow_waiting >= MOST_SLOW:
            raise _busy()
        self._slow_waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._slow, run, *arguments)
        future.add_done_callback(self._slow_done)
        async with asyncio.timeout(self.settings.timeout):
            return await asyncio.shield(future)

    def _slow_done(self, future: asyncio.Future[Any]) -> None:
        self._slow_waiting -= 1
        if not future.cancelled():
            future.exception()  # it was raised where it was waited for, or nobody waits any more

    # --- Recommendations ---

    async def recommend(self, call: Call) -> Response:
        query = call.query(schemas.UserQuery)
        user, etags = call.user(query), call.header("if-none-match")
        question = Question(query.ranking(), query.n, user, cold=query.cold, explain=query.explain, etags=etags)
        answer = await self._asked(question)
        headers = {"ETag": etag(answer.served, answer.person.sequence), "Cache-Control": "private, no-cache"}
        if answer.items is None:
            return Response(status_code=304, headers=headers)
        return json_response(_list(answer, user), headers)

    async def recommend_for(self, call: Call) -> Response:
        request = await call.body(schemas.LikesRequest)
        question = Question(
            request.ranking(), request.n, likes=request.likes, considered=request.considered, explain=request.explain
        )
        answer = await self._asked(question)
        return json_response(_list(answer, None, answer.person.ignored))

    async def _asked(self, question: Question) -> ListAnswer:
        if question.takes_long:
            (answer,) = await self._in_thread(self.scoring.answer, [question])
            if isinstance(answer, BaseException):
                raise answer
            return answer
        if self.scoring.waiting() >= self.settings.most_waiting:
            raise _busy()
        asked: ListAnswer = await self._called_back(lambda done: self.scoring.ask(question, done))
        return asked

    async def batch(self, call: Call) -> Response:
        request = await call.body(schemas.BatchRequest)
        wants_arrow = ARROW in (call.header("accept") or "")
        if wants_arrow and request.explain:
            raise Problem("invalid", "An Arrow stream has no reasons; leave explain out, or ask for JSON.")
        served, ranker, entries = await self._in_thread(answers.batch, self.scoring, request)
        if wants_arrow:
            return Response(await self._in_thread(answers.batch_stream, served, entries), media_type=ARROW)
        return json_response(schemas.BatchAnswer(served.digest, ranker.popularity, ranker.lift, entries))

    async def landscape(self, call: Call) -> Response:
        request = await call.body(schemas.LandscapeRequest)
        return json_response(await self._in_thread(answers.landscape, self.scoring, request))

    async def explain(self, call: Call) -> Response:
        request = await call.body(schemas.ExplanationRequest)
        return json_response(await self._in_thread(answers.explanation, self.scoring, request))

    # --- Items and the model ---

    async def search(self, call: Call) -> Response:
        query, served = call.query(schemas.SearchQuery), self.scoring.served()
        return json_response(await self._in_thread(answers.search, served, query))

    async def item(self, call: Call) -> Response:
        return json_response(answers.item(self.scoring.served(), call.path["item"]))

    async def similar(self, call: Call) -> Response:
        query, served = call.query(schemas.SimilarQuery), self.scoring.served()
        return json_response(await self._in_thread(answers.similar, served, call.path["item"], query))

    async def model(self, call: Call) -> Response:
        return json_response(answers.model_answer(self.scoring.served(), self.events))

    async def reload(self, call: Call) -> Response:
        try:
            changed = await asyncio.to_thread(self.holder.load, force=True)
        except ModelFileError:
            detail = "What is at the configured path is no whole model; the log has the reason. Write it again."
            raise Problem("refused-model", detail) from None
        return json_response(schemas.ReloadAnswer(self.scoring.served().digest, changed))

    # --- Events ---

    def _store(self) -> EventStore:
        if self.events is None:
            raise Problem("no-events", "This service keeps no events; start it with --events FILE.")
        if self.events.waiting() >= self.settings.most_waiting:
            raise _busy()
        return self.events

    async def store_events(self, call: Call) -> Response:
        store, request = self._store(), await call.body(schemas.EventsRequest)
        events = [
            NewEvent(event_id(event.user), event_id(event.item), event.kind, event.key) for event in request.events
        ]
        stored = await self._called_back(lambda done: store.append(events, done))
        _, unknown = self.scoring.served().known_likes([event.item for event in request.events])
        entries = [schemas.StoredEvent(sequence, duplicate) for sequence, duplicate in stored]
        return json_response(schemas.EventsAnswer(entries, list(dict.fromkeys(unknown))))

    async def list_events(self, call: Call) -> Response:
        store, query = self._store(), call.query(schemas.EventsQuery)
        user = event_id(call.user(query))
        rows = await self._in_thread(store.page, user, query.after, query.n + 1)
        events = [
            schemas.UserEvent(row.sequence, datetime.fromtimestamp(row.seconds, UTC).isoformat(), row.kind, row.item)
            for row in rows[: query.n]
        ]
        return json_response(schemas.UserEventsAnswer(user, events, len(rows) > query.n), {"Cache-Control": "no-store"})

    async def erase_events(self, call: Call) -> Response:
        store, user = self._store(), event_id(call.user(call.query(schemas.EraseQuery)))
        erased = await self._called_back(lambda done: store.erase(user, done))
        return json_response(schemas.ErasedAnswer(user, erased))

    # --- The service itself ---

    async def live(self, call: Call) -> Response:
        return json_response(schemas.Health("live"))

    async def ready(self, call: Call) -> Response:
        served = self.scoring.served()
        if self._draining:
            raise Problem("busy", "The service is shutting down; ask another one.")
        if self.events is not None and self.events.failing:
            await self._called_back(self.events.probe)  # raises what is answered with 503
        return json_response(schemas.Health("ready", served.digest))

    async def show_metrics(self, call: Call) -> Response:
        content, media_type = await self._in_thread(self.metrics.text)
        return Response(content, media_type=media_type)

    async def openapi(self, call: Call) -> Response:
        return json_response(document())

    async def docs(self, call: Call) -> Response:
        return Response(docs_page(), headers=PAGE_HEADERS, media_type="text/html")

    async def page(self, call: Call) -> Response:
        file = page_files().get(call.path.get("name", "index.html"))
        if file is None:
            raise Problem("unknown-route", "There is no such file; / is the page.")
        headers = PAGE_HEADERS | {"ETag": file.etag}
        if file.etag in (call.header("if-none-match") or ""):
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.media_type)


def _list(answer: ListAnswer, user: str | None, ignored: Any = UNSET) -> schemas.RecommendedList:
    person, ranker = answer.person, answer.ranker
    head = answer.served.digest, user, ranker.popularity, ranker.lift, not person.warm, person.sequence
    return schemas.RecommendedList(*head, answer.items or [], ignored)


def json_response(value: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), headers=headers, media_type=JSON)


def problem_response(problem: Problem, request: str) -> Response:
    content = msgspec.json.encode(problem.details(request))
    return Response(content, problem.status, headers=problem.headers, media_type=PROBLEM)


def _busy() -> Problem:
    return Problem("busy", "Too many requests wait; try again in a moment.", {"Retry-After": "1"})


def _no_events() -> Problem:
    detail = (
        "The events cannot be stored or read now; nothing of this request was stored. Send it again, with its keys."
    )
    return Problem("no-events", detail, {"Retry-After": "5"})


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _frames(error: BaseException) -> str:
    """Where an error came from. Its message is left out: it may name a user."""
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    places = " < ".join(
        f"{frame.name} {frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in reversed(frames)
    )
    return f"{type(error).__name__} in {places}"
