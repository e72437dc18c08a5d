"""What several tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest_plugins = ["servers"]  # s3_bucket, postgres


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
