"""The ASGI application: start, shutdown, access, errors. Any ASGI server runs it; `considerate serve` uses uvicorn.

Paths are split before they are decoded (`raw_path`), so an id may have any character, even a slash. `?user=` is for
ids that proxies would change.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import signal
import time
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from considerate.errors import ModelFileError, UnknownIdError, UsageError
from considerate.service.access import Callers
from considerate.service.call import Call
from considerate.service.compression import GzipWhereAsked, asks_gzip
from considerate.service.events import EventsRemoved, EventStore, EventsUnavailable
from considerate.service.handlers import Handlers
from considerate.service.limits import RateLimit
from considerate.service.logs import configure_logs
from considerate.service.metrics import Metrics
from considerate.service.problems import PROBLEM, Problem, busy
from considerate.service.routes import Route, RouteTable
from considerate.service.scoring import Scoring
from considerate.service.settings import ServiceSettings
from considerate.service.state import ModelHolder
from considerate.service.threads import Threads

logger = logging.getLogger("considerate.service")
REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def create_app(settings: ServiceSettings) -> ASGIApp:
    """Make the application; it opens the model and the events when the server starts it."""
    service = Service(settings)
    app: ASGIApp = Router(default=service.handle, lifespan=service.lifespan, redirect_slashes=False)
    app = GzipWhereAsked(app)
    if settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-API-Key", "X-Request-ID", "If-None-Match"],
            expose_headers=["ETag", "X-Request-ID", "Retry-After"],
        )
    return app


def from_environment() -> ASGIApp:
    """Make the application from the settings in the environment, for worker processes and other servers."""
    configure_logs()
    return create_app(ServiceSettings.from_environment())


class Service:
    """The model, the events and the handlers of the routes, from start to shutdown."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.routes = RouteTable()
        self.keys = settings.keys()
        self.callers = Callers(settings.allowed_hosts, settings.cors_origins)
        self.rate = RateLimit(settings.rate)
        self.holder = ModelHolder(settings.model, self.metrics)
        self.handlers: Handlers
        self._ids, self._numbers = secrets.token_hex(6), count()  # parts of the ids of requests

    @asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        events = await self._open()
        scoring, threads = Scoring(self.holder, events, self.metrics), Threads(self.settings.timeout)
        self.handlers = Handlers(self.settings, self.metrics, self.holder, events, scoring, threads)
        watcher = asyncio.create_task(self._watch())
        yield
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher
        await asyncio.to_thread(threads.close)
        await asyncio.to_thread(scoring.close)
        if events is not None:
            events.close()

    async def _open(self) -> EventStore | None:
        """Read the model and open the events. With `waits`, retry until both work, for example while the file at the
        path is refused: if a new worker ended, uvicorn would end the other workers too."""
        force, signals = True, {}
        if self.settings.waits:  # it answers nothing yet, so signals may end it at once
            signals = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGINT)}
        while True:
            try:
                await asyncio.to_thread(self.holder.load, force=force)
                if self.holder.current is not None:
                    events = self.settings.events
                    store = None if events is None else await asyncio.to_thread(EventStore, events, self.metrics)
                    break
            except (ModelFileError, UsageError) as error:
                if not self.settings.waits:
                    raise
                if isinstance(error, UsageError):  # ModelFileError is logged and counted already
                    logger.error("events not opened", extra={"fields": {"reason": str(error)}})
            force = False
            await asyncio.sleep(self.settings.poll)
        for number, handler in signals.items():
            signal.signal(number, handler)
        return store

    async def _watch(self) -> None:
        """Check the model's path, and load a new model there."""
        while True:
            await asyncio.sleep(self.settings.poll)
            with suppress(ModelFileError):  # logged and counted already
                await asyncio.to_thread(self.holder.load)

    # --- One request ---

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return  # a websocket: the server closes it
        began = time.perf_counter()
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request = given.decode() if REQUEST_ID.fullmatch(given) else f"{self._ids}-{next(self._numbers):x}"
        template = "unknown"
        try:
            raw_path = scope.get("raw_path") or quote(scope["path"]).encode()
            client = scope.get("client")
            if not raw_path.startswith(b"/health/"):
                self.rate.check(client[0] if client else "")
            route, path = self.routes.find(scope["method"], raw_path.partition(b"?")[0])
            template = route.path
            self._check_access(headers, route)
            call = Call(scope, receive, self.settings, headers, route, path)
            response = await getattr(self.handlers, route.handler)(call)
        except Problem as problem:
            response = problem_response(problem, request)
        except (UsageError, UnknownIdError) as error:
            response = problem_response(Problem("invalid", _sentence(str(error))), request)
        except EventsUnavailable as error:
            response = problem_response(_no_events(error), request)
        except TimeoutError:
            late = busy(f"There was no answer within {self.settings.timeout:g} seconds; try again.")
            response = problem_response(late, request)
        except asyncio.CancelledError:  # the server is stopping
            response = problem_response(busy("The service is stopping; ask again."), request)
        except Exception as error:
            logger.error("request failed", extra={"fields": {"request": request, "error": _frames(error)}})
            detail = "The service failed; the log has the reason under the id of the request."
            response = problem_response(Problem("failed", detail), request)
        response.raw_headers += [(b"x-request-id", request.encode()), (b"x-content-type-options", b"nosniff")]
        if not asks_gzip(headers):  # else the middleware adds it
            response.raw_headers.append((b"vary", b"Accept-Encoding"))
        await response(scope, receive, send)
        self._count(scope["method"], template, response, request, time.perf_counter() - began)

    def _check_access(self, headers: dict[bytes, bytes], route: Route) -> None:
        if self.keys is None:
            if not route.path.startswith("/health/"):  # load balancers may use any name there
                self.callers.check(route.method, headers)
            if route.needs == "admin":
                raise Problem("no-admin", "Start the service with --api-key-file to use this address.")
        elif route.needs != "nothing":
            self.keys.check(headers, route.needs)

    def _count(self, method: str, template: str, response: Response, request: str, seconds: float) -> None:
        known = method if method in ("GET", "HEAD", "POST", "DELETE") else "other"
        self.metrics.requests.labels(template, known, response.status_code).inc()
        self.metrics.seconds.labels(template).observe(seconds)
        if self.settings.access_log:
            fields = {"request": request, "method": known, "route": template, "status": response.status_code}
            logger.info("request", extra={"fields": fields | {"ms": round(1e3 * seconds, 3)}})


def problem_response(problem: Problem, request: str) -> Response:
    content = msgspec.json.encode(problem.details(request))
    return Response(content, problem.status, headers=problem.headers, media_type=PROBLEM)


def _no_events(error: EventsUnavailable) -> Problem:
    reason = "The events cannot be stored or read now; nothing of this request was stored."
    if isinstance(error, EventsRemoved):
        reason = "The file of events was removed while the service used it, so nothing is stored until a restart."
    detail = f"{reason} Send it again, with its keys."
    return Problem("no-events", detail, {"Retry-After": "5"})


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _frames(error: BaseException) -> str:
    """Name the type and the last frames of an error, without its message, which may name a user."""
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    places = " < ".join(
        f"{frame.name} {frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in reversed(frames)
    )
    return f"{type(error).__name__} in {places}"
