"""Fixtures and settings for all tests. How much of a randomised suite runs: tests/randomised.py."""

from __future__ import annotations

import os
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores: one thread of BLAS each, set before numpy loads
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import pytest

pytest_plugins = ["servers"]  # s3_bucket, postgres
# Long groups start first, so that no worker is left with one of them at the end.
FIRST = ("ray", "test_docs", "test_study", "test_figures")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its xdist group: a file is a group, and so are all tests on Ray together."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            file = item.path.stem
            item.add_marker(pytest.mark.xdist_group("ray" if file.startswith("test_ray") else file))
    rank = {name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: rank.get(group_of(item), len(FIRST)))


def group_of(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    assert marker is not None
    return str(marker.kwargs["name"] if "name" in marker.kwargs else marker.args[0])


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data: CONSIDERATE_DATA, else ../shared/data beside the repository."""
    given = os.environ.get("CONSIDERATE_DATA")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (folder / "ml-100k" / "ratings.parquet").is_file():
        message = f"no real data in {folder}; set CONSIDERATE_DATA to the folder that has ml-100k"
        if os.environ.get("CONSIDERATE_REQUIRE_DATA") == "1":
            pytest.fail(message)
        pytest.skip(message)
    return folder
