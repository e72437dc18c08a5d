"""The addresses of the service. The application and the OpenAPI document are both made of this table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from considerate.service import schemas
from considerate.service.access import Needed
from considerate.service.problems import Problem


@dataclass(frozen=True)
class Route:
    """One method of one address. `handler` is a method of the application."""

    method: str
    path: str  # a segment in braces is a parameter
    handler: str
    summary: str
    answer: Any = None  # a struct; a text is the media type of another answer
    query: type | None = None
    body: type | None = None
    needs: Needed = "serve"  # where the service has keys

    @property
    def segments(self) -> list[str]:
        return self.path.split("/")[1:]


USER = "/v1/users/{user}"
ROUTES = (
    Route(
        "GET",
        f"{USER}/recommendations",
        "recommend",
        "The best items for a user",
        schemas.RecommendedList,
        schemas.UserQuery,
    ),
    Route(
        "GET",
        "/v1/recommendations",
        "recommend",
        "The same, with the user's id as ?user=",
        schemas.RecommendedList,
        schemas.UserQuery,
    ),
    Route(
        "POST",
        "/v1/recommendations",
        "recommend_for",
        "The best items for someone who is not in the model, from what they like",
        schemas.RecommendedList,
        body=schemas.LikesRequest,
    ),
    Route(
        "POST",
        "/v1/recommendations:batch",
        "batch",
        "The best items for many users; with Accept: application/vnd.apache.arrow.stream as an Arrow stream",
        schemas.BatchAnswer,
        body=schemas.BatchRequest,
    ),
    Route(
        "POST",
        "/v1/landscape",
        "landscape",
        "The items that the knobs can bring up, with the parts of their scores",
        schemas.LandscapeAnswer,
        body=schemas.LandscapeRequest,
    ),
    Route("GET", "/v1/items", "search", "Items by their titles", schemas.ItemsAnswer, schemas.SearchQuery),
    Route("GET", "/v1/items/{item}", "item", "One item", schemas.ItemDetail),
    Route(
        "GET",
        "/v1/items/{item}/similar",
        "similar",
        "The items most like one",
        schemas.SimilarAnswer,
        schemas.SimilarQuery,
    ),
    Route(
        "POST",
        "/v1/explanations",
        "explain",
        "Why a user would like and consider an item",
        schemas.ExplanationAnswer,
        body=schemas.ExplanationRequest,
    ),
    Route("GET", "/v1/model", "model", "The model that is served", schemas.ModelAnswer),
    Route(
        "GET",
        "/v1/reliability",
        "reliability",
        "Whether p(like) is honest, by what users did since the model was trained, or by what is stored with it",
        schemas.ReliabilityAnswer,
    ),
    Route(
        "POST",
        "/v1/events",
        "store_events",
        "Store what users did; the answer means that it is on disk",
        schemas.EventsAnswer,
        body=schemas.EventsRequest,
    ),
    Route(
        "GET",
        f"{USER}/events",
        "list_events",
        "What is stored of a user",
        schemas.UserEventsAnswer,
        schemas.EventsQuery,
        needs="history",
    ),
    Route(
        "GET",
        "/v1/events",
        "list_events",
        "The same, with the user's id as ?user=",
        schemas.UserEventsAnswer,
        schemas.EventsQuery,
        needs="history",
    ),
    Route(
        "DELETE",
        f"{USER}/events",
        "erase_events",
        "Erase what is stored of a user",
        schemas.ErasedAnswer,
        schemas.EraseQuery,
        needs="history",
    ),
    Route(
        "DELETE",
        "/v1/events",
        "erase_events",
        "The same, with the user's id as ?user=",
        schemas.ErasedAnswer,
        schemas.EraseQuery,
        needs="history",
    ),
    Route(
        "POST",
        "/admin/reload",
        "reload",
        "Read the model at the configured path again",
        schemas.ReloadAnswer,
        needs="admin",
    ),
    Route("GET", "/health/live", "live", "Whether the process answers", schemas.Health, needs="nothing"),
    Route("GET", "/health/ready", "ready", "Whether requests can be answered", schemas.Health, needs="nothing"),
    Route("GET", "/metrics", "show_metrics", "Metrics for Prometheus", "text/plain", needs="any key"),
    Route("GET", "/openapi.json", "openapi", "This document", "application/json", needs="nothing"),
    Route("GET", "/docs", "docs", "The same for readers", "text/html", needs="nothing"),
    Route("GET", "/", "page", "The page", "text/html", needs="nothing"),
    Route("GET", "/page/{name}", "page", "A file of the page", "application/octet-stream", needs="nothing"),
)


class RouteTable:
    """Finds the route of a request by its path, as it came over the wire."""

    def __init__(self) -> None:
        self._by_length: dict[int, list[tuple[list[str], dict[str, Route]]]] = {}
        templates: dict[str, dict[str, Route]] = {}
        for route in ROUTES:
            templates.setdefault(route.path, {})[route.method] = route
        for methods in templates.values():
            segments = next(iter(methods.values())).segments
            self._by_length.setdefault(len(segments), []).append((segments, methods))

    def find(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
        """(route, its parameters by name); a problem where there is none."""
        try:
            segments = [unquote(segment, errors="strict") for segment in raw_path.decode().split("/")[1:]]
        except UnicodeDecodeError:
            raise Problem("unreadable", "The path is not UTF-8; percent-encode the bytes of UTF-8 text.") from None
        for template, methods in self._by_length.get(len(segments), ()):
            if all(part.startswith("{") or part == segment for part, segment in zip(template, segments)):
                route = methods.get("GET" if method == "HEAD" else method)
                if route is None:
                    allowed = ", ".join(sorted(methods))
                    raise Problem("wrong-method", f"This address takes {allowed}.", {"Allow": allowed})
                named = zip(template, segments)
                return route, {part[1:-1]: segment for part, segment in named if part.startswith("{")}
        raise Problem("unknown-route", "There is nothing at this address; /docs lists what there is.")
