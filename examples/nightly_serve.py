"""Serve recommendations over HTTP, by the standard library alone.

python examples/nightly_serve.py model.safetensors --port 8000

    /recommend?user=42&n=10                     someone of the training data
    /recommend?user=42&popularity=0&lift=0      with weights of your own
    /recommend?likes=7&likes=9                  someone new, from what they like

A model file that was replaced is opened at the next request. Answers are JSON; a bad request is one clear sentence.
"""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from considerate import Recommender
from considerate.errors import ConsiderateError


class Published:
    """The model at a path, opened again when the file is another one."""

    def __init__(self, path: Path) -> None:
        self.path, self.stamp, self.lock = path, None, Lock()
        self.model()

    def model(self) -> Recommender:
        with self.lock:
            found = self.path.stat()
            stamp = found.st_mtime_ns, found.st_ino
            if stamp != self.stamp:
                self.current, self.stamp = Recommender.load(self.path), stamp
            return self.current


def answer(model: Recommender, query: dict[str, list[str]]) -> list[dict[str, Any]]:
    weights: Any = {name: float(query[name][0]) for name in ("popularity", "lift") if name in query}
    count = int(query.get("n", ["10"])[0])
    if "likes" in query:
        table = model.recommend_for(query["likes"], N=count, **weights)
    else:
        table = model.recommend_table(query["user"], N=count, cold="popular", **weights)
    return list(table.to_pylist())


def server(path: Path, port: int) -> ThreadingHTTPServer:
    published = Published(path)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                status, body = 200, answer(published.model(), parse_qs(urlsplit(self.path).query))
            except (ConsiderateError, KeyError, ValueError) as error:
                status, body = 400, {"error": str(error)}
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments: Any) -> None:
            """Quiet."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    with server(given.model, given.port) as running:
        print(f"http://127.0.0.1:{running.server_port}/recommend?user=...")
        running.serve_forever()


if __name__ == "__main__":
    main()
