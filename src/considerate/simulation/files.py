"""Simulated data to files: the likes, and beside them the truth that they were drawn from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from considerate.data.output import write_columns
from considerate.simulation.catalogue import readable_titles
from considerate.simulation.simulate import ModelSample
from considerate.storage.container import TRUTH, write_tensors
from considerate.storage.files import check_writable

PathLike = str | os.PathLike[str]


def write_sample(path: PathLike, sample: ModelSample, seed: int) -> dict[str, Any]:
    """Likes to `path`, the truth beside it (likes.parquet -> likes.truth.safetensors), and titles where items have
    genres (likes.titles.parquet); returns where each went."""
    truth = Path(path).with_suffix(".truth.safetensors")
    titles = None if sample.genres is None else Path(path).with_suffix(".titles" + Path(path).suffix)
    for file in filter(None, (truth, titles)):
        check_writable(file)
    tensors = {name: value for name, value in vars(sample).items() if isinstance(value, np.ndarray)}
    write_tensors(truth, tensors, {"kind": TRUTH, "seed": seed})
    if titles is not None:
        names = readable_titles(sample.item_count, seed, genres=sample.genres)
        write_columns(titles, item=np.arange(len(names), dtype=np.int32), title=names)
    write_columns(path, user=sample.users, item=sample.items)
    return {"path": os.fspath(path), "truth": str(truth), "titles": None if titles is None else str(titles)}
