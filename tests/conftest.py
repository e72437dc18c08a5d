"""Fixtures and settings for all tests. How much of a randomised suite runs: tests/helpers/randomised.py."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores: one thread of BLAS each, set before numpy loads
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script: tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest

from considerate.kernels import compiled

# browser; s3_bucket, postgres; one study
pytest_plugins = ["tests.helpers.browsers", "tests.helpers.servers", "tests.helpers.study_fixtures"]
GROUPS = {  # files that share what one process makes once
    **dict.fromkeys(("test_page", "test_page_browser", "test_captions", "test_figures"), "figures"),
    **dict.fromkeys(("test_study", "test_study_stages", "test_study_truth", "test_study_report"), "study"),
}
# Long groups start first, so that no worker is left with one of them at the end.
FIRST = ("ray", "test_docs", "study", "figures")


def group_of(nodeid: str) -> str:
    """The tests of a group run in one process: a file is a group, and so are all tests on Ray together."""
    file, _, test = nodeid.partition("::")
    name = Path(file).stem
    on_ray = name.startswith("test_ray") or test.split("[")[0].endswith("_on_ray")
    return "ray" if on_ray else GROUPS.get(name, name)


@pytest.fixture(params=compiled.instruction_sets())
def each_instruction_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """The kernels' builds that this machine runs, one after the other."""
    before = compiled.instruction_set()
    compiled.use_instruction_set(request.param)
    yield request.param
    compiled.use_instruction_set(before)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort by group. The tests that stop the shared Ray come last of those on Ray."""
    rank = {name: number for number, name in enumerate(FIRST)}
    items.sort(key=lambda item: (rank.get(group_of(item.nodeid), len(FIRST)), "test_ray_nodes.py" in item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups by `group_of`: with pytest 9.2, which computes node ids, xdist's own `--dist loadgroup` has none."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)


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
