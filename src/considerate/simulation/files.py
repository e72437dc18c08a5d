"""Simulated data to files: the likes, and beside them the truth that they were drawn from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.output import write_likes, write_titles
from considerate.simulation.catalogue import readable_titles
from considerate.simulation.simulate import ModelSample
from considerate.storage.container import TRUTH, write_tensors
from considerate.storage.files import check_writable

PathLike = str | os.PathLike[str]


def truth_path(path: PathLike) -> Path:
    """likes.parquet -> likes.truth.safetensors"""
    return Path(path).with_suffix(".truth.safetensors")


def titles_path(path: PathLike) -> Path:
    """likes.parquet -> likes.titles.parquet"""
    return Path(path).with_suffix(".titles" + Path(path).suffix)


def write_sample(path: PathLike, sample: ModelSample, seed: int) -> dict[str, Any]:
    """Likes to `path`, the truth beside it, and titles where items have genres; returns where each went."""
    truth, titles = truth_path(path), titles_path(path) if sample.genres is not None else None
    for file in (truth, titles):
        if file is not None:
            check_writable(file)
    write_tensors(truth, truth_tensors(sample), {"kind": TRUTH, "seed": seed})
    if titles is not None:
        write_titles(titles, readable_titles(sample.item_count, seed, genres=sample.genres))
    write_likes(path, sample.users, sample.items)
    return {
        "path": os.fspath(path),
        "truth": str(truth),
        "titles": None if titles is None else str(titles),
    }


def truth_tensors(sample: ModelSample) -> dict[str, NDArray[Any]]:
    """All that a sample knows beyond its likes."""
    tensors = {name: value for name, value in vars(sample).items() if isinstance(value, np.ndarray)}
    if sample.genres is not None:
        tensors["genres"] = np.asarray(sample.genres, np.int64)
    return tensors
