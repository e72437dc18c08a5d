"""The programs of examples/ run, on small data."""

from __future__ import annotations

import importlib.util
import json
import os
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from considerate import Recommender
from tests.helpers.likes import skewed
from tests.helpers.paths import ROOT

FOLDER = ROOT / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def ratings(tmp_path: Path) -> Path:
    """Ratings of users 1000, 1001, ... of items 500, 501, ..."""
    users, items = skewed(users=150, items=40).nonzero()
    random = np.random.default_rng(0)
    table = {
        "user": users + 1000,
        "item": items + 500,
        "rating": random.choice([2, 4, 5], len(users), p=[0.2, 0.4, 0.4]),
    }
    pq.write_table(pa.table(table | {"when": random.integers(0, 10**6, len(users))}), tmp_path / "ratings.parquet")
    return tmp_path / "ratings.parquet"


def test_every_program_is_described_and_tested() -> None:
    named = (FOLDER / "README.md").read_text()
    tests = Path(__file__).read_text()
    for path in FOLDER.glob("*.py"):
        assert f"[{path.name}]({path.name})" in named
        assert f'example("{path.stem}")' in tests


def test_laptop(ratings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "recommendations.parquet"
    example("laptop").main([str(ratings), "--where", "rating >= 4", "--factors", "4", "-o", str(output)])
    table = pq.read_table(output)
    assert set(table["user"].to_pylist()) <= set(range(1000, 1150))
    assert table.num_rows > 150 * 10
    assert "by liking alone" in capsys.readouterr().out


def test_nightly(ratings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published = tmp_path / "model.safetensors"
    train = example("nightly_train").main
    options = ["--published", str(published), "--factors", "4", "--time-column", "when", "--where"]
    assert train([str(ratings), *options, "rating >= 4"])
    before = published.read_bytes()
    noise = pq.read_table(ratings).to_pydict()
    noise["item"] = np.random.default_rng(1).integers(0, 500, len(noise["item"])).tolist()  # a broken feed
    pq.write_table(pa.table(noise), tmp_path / "broken.parquet")
    assert not train([str(tmp_path / "broken.parquet"), *options, "rating >= 4"])
    assert published.read_bytes() == before
    assert "published model stays" in capsys.readouterr().out

    with example("nightly_serve").server(published, 0) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()

        def ask(query: str) -> Any:
            url = f"http://127.0.0.1:{running.server_port}/recommend?{query}"
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as reply:
                return json.load(reply)

        model = Recommender.load(published)
        expected = model.recommend_table([1003], N=3, popularity=0.0)["item"].to_pylist()
        assert [row["item"] for row in ask("user=1003&n=3&popularity=0")] == expected
        assert [row["item"] for row in ask("likes=503&likes=505&n=2")] == model.recommend_for([503, 505], N=2)[
            "item"
        ].to_pylist()
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask("n=3")
        later = Recommender(factors=3, sweeps=4)
        later.fit(str(ratings), where="rating == 5").save(published)
        os.utime(published, (1, 1))
        fresh = later.recommend_table([1003], N=3)["item"].to_pylist()
        assert [row["item"] for row in ask("user=1003&n=3")] == fresh
        running.shutdown()
        thread.join()


def test_research(capsys: pytest.CaptureFixture[str]) -> None:
    errors = example("research").main(["--users", "800", "--items", "150"])
    assert max(errors.values()) < 0.1
    assert "cosine" in capsys.readouterr().out
