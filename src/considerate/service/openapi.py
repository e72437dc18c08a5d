"""The OpenAPI document, made of the routes and their structs, and a page of it for readers."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from typing import Any

import msgspec

from considerate._version import __version__
from considerate.service.problems import KINDS, PROBLEM, ProblemDetails
from considerate.service.routes import ROUTES, Route

TEMPLATE = "#/components/schemas/{name}"


@cache
def document() -> dict[str, Any]:
    """The document as a dict; the service sends it as JSON."""
    structs = [kind for route in ROUTES for kind in (route.answer, route.query, route.body) if isinstance(kind, type)]
    _, schemas = msgspec.json.schema_components([*structs, ProblemDetails], ref_template=TEMPLATE)
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    queries = {route.query.__name__ for route in ROUTES if route.query is not None}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "considerate",
            "version": __version__,
            "description": "Recommendations from likes alone: p(like | considered), told apart from p(considered).",
        },
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in schemas.items() if name not in queries},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, schemas: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": f"{route.method.lower()}_{_slug(route.path)}", "summary": route.summary}
    in_path = re.findall(r"\{(\w+)\}", route.path)
    text = {"type": "string", "minLength": 1}
    parameters = [{"name": name, "in": "path", "required": True, "schema": text} for name in in_path]
    if route.query is not None:
        fields = schemas[route.query.__name__]["properties"]
        needed = {"user"} - set(in_path)
        parameters += [
            {"name": name, "in": "query", "required": name in needed, "schema": _of_query(schema)}
            for name, schema in fields.items()
            if name not in in_path
        ]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        schema = {"$ref": TEMPLATE.format(name=route.body.__name__)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    media = route.answer if isinstance(route.answer, str) else "application/json"
    content: Any = {} if isinstance(route.answer, str) else {"$ref": TEMPLATE.format(name=route.answer.__name__)}
    operation["responses"] = {
        "200": {"description": route.summary, "content": {media: {"schema": content}}},
        "default": {
            "description": "What was wrong, and what to do",
            "content": {PROBLEM: {"schema": {"$ref": TEMPLATE.format(name="ProblemDetails")}}},
        },
    }
    if route.needs != "nothing":
        operation["security"] = [{}, {"key": [] if route.needs == "any key" else [route.needs]}]
    return operation


def _of_query(schema: dict[str, Any]) -> dict[str, Any]:
    """A field of a query; what may be left out is never null there."""
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    if not kinds:
        return {name: value for name, value in schema.items() if (name, value) != ("default", None)}
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _slug(path: str) -> str:
    return re.sub(r"\W+", "_", path).strip("_") or "page"


@cache
def docs_page() -> str:
    """The document for readers: one small page without scripts."""
    described = document()
    parts = [
        f"<h1>considerate {escape(__version__)}</h1>",
        f"<p>{escape(described['info']['description'])} <a href='/'>The page</a>, "
        "<a href='/openapi.json'>openapi.json</a>.</p>",
        "<h2>Addresses</h2>",
    ]
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            parts.append(f"<h3><code>{method.upper()} {escape(path)}</code></h3><p>{escape(operation['summary'])}</p>")
            rows = [
                (parameter["name"], parameter["in"], parameter["schema"])
                for parameter in operation.get("parameters", [])
            ]
            if "requestBody" in operation:
                reference = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                fields = described["components"]["schemas"][reference.rpartition("/")[2]]["properties"]
                rows += [(name, "body", schema) for name, schema in fields.items()]
            if rows:
                cells = (f"<tr><td>{escape(n)}<td>{where}<td>{escape(_short(kind))}" for n, where, kind in rows)
                parts.append(f"<table><tr><th>name<th>in<th>type{''.join(cells)}</table>")
    parts.append("<h2>Errors</h2><p>An error is <code>application/problem+json</code> (RFC 9457).</p><dl>")
    parts += [
        f"<dt id='{kind}'>{status} {kind}</dt><dd>{escape(title)}</dd>" for kind, (status, title) in KINDS.items()
    ]
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>considerate: the API</title>"
        "<meta name='viewport' content='width=device-width'><link rel='stylesheet' href='/page/style.css'>"
        f"<main class='docs'>{''.join(parts)}</dl></main></html>"
    )


def _short(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "anyOf" in schema:
        return " or ".join(_short(kind) for kind in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    kind = schema.get("type", schema.get("$ref", "").rpartition("/")[2])
    if kind == "array" and "items" in schema:
        return f"list of {_short(schema['items'])}" if schema["items"] else "list"
    ends = [str(schema[name]) for name in ("minimum", "maximum") if name in schema]
    default = f", {schema['default']} if not given" if schema.get("default") not in (None, []) else ""
    return f"{kind}{' ' + ' to '.join(ends) if ends else ''}{default}"
