"""Routes of the service, for the application and for the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from considerate.service import schemas
from considerate.service.access import Needed
from considerate.service.problems import Problem


@dataclass(frozen=True)
class Route:
    """One method of one address; `handler` names the method of `Handlers` that answers."""

    method: str
    path: str  # a segment in braces is a parameter
    handler: str
    summary: str
    answer: Any = None  # a struct, or the media type of another answer
    query: type | None = None
    body: type | None = None
    needs: Needed = "serve"  # scope of the key, if the service has keys

    @property
    def segments(self) -> list[str]:
        return self.path.split("/")[1:]


def user_routes(
    method: str, name: str, handler: str, summary: str, answer: type, query: type, needs: Needed = "serve"
) -> tuple[Route, Route]:
    """Make both routes of a user: with the id in the path, and with the id as ?user=."""
    by_query = f"{summary}, with the user's id as ?user="
    return (
        Route(method, f"/v1/users/{{user}}/{name}", handler, summary, answer, query, needs=needs),
        Route(method, f"/v1/{name}", handler, by_query, answer, query, needs=needs),
    )


ROUTES = (
    *user_routes(
        "GET",
        "recommendations",
        "recommend",
        "The best items for a user",
        schemas.RecommendedList,
        schemas.UserQuery,
    ),
    Route(
        "POST",
        "/v1/recommendations",
        "recommend_for",
        "The best items for a new user, from the items they like",
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
        "How honest p(like) is, by the events since the training, or by the judged pairs of the recalibration",
        schemas.ReliabilityAnswer,
    ),
    Route(
        "POST",
        "/v1/events",
        "store_events",
        "Store events of users; they are on disk before the answer",
        schemas.EventsAnswer,
        body=schemas.EventsRequest,
    ),
    *user_routes(
        "GET",
        "events",
        "list_events",
        "The stored events of a user",
        schemas.UserEventsAnswer,
        schemas.EventsQuery,
        "history",
    ),
    *user_routes(
        "DELETE",
        "events",
        "erase_events",
        "Erase the stored events of a user",
        schemas.ErasedAnswer,
        schemas.EraseQuery,
        "history",
    ),
    Route(
        "POST",
        "/admin/reload",
        "reload",
        "Read the model at the configured path again",
        schemas.ReloadAnswer,
        needs="admin",
    ),
    Route("GET", "/health/live", "live", "Check that the process answers", schemas.Health, needs="nothing"),
    Route("GET", "/health/ready", "ready", "Check that requests can be answered", schemas.Health, needs="nothing"),
    Route("GET", "/metrics", "show_metrics", "Metrics for Prometheus", "text/plain", needs="any key"),
    Route("GET", "/openapi.json", "openapi", "This document", "application/json", needs="nothing"),
    Route("GET", "/docs", "docs", "This document for readers", "text/html", needs="nothing"),
    Route("GET", "/", "page", "The page", "text/html", needs="nothing"),
    Route("GET", "/page/{name}", "page", "A file of the page", "application/octet-stream", needs="nothing"),
)


class RouteTable:
    """Finds the route of a request by its raw path."""

    def __init__(self) -> None:
        self._by_length: dict[int, list[tuple[list[str], dict[str, Route]]]] = {}
        templates: dict[str, dict[str, Route]] = {}
        for route in ROUTES:
            templates.setdefault(route.path, {})[route.method] = route
        for methods in templates.values():
            segments = next(iter(methods.values())).segments
            self._by_length.setdefault(len(segments), []).append((segments, methods))

    def find(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
        """Find (route, its parameters by name); raise a problem if there is none."""
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
        raise Problem("unknown-route", "There is nothing at this address; /docs lists all addresses.")
