"""Digests of the bits of some fits and of a saved model's answers, per instruction set.

    python tests/golden/digests.py plain     fits in this process, and the answers
    python tests/golden/digests.py ray       fits on Ray

prints JSON: instruction set -> fit -> name -> sha256. test_golden.py compares it with release-0.4.json. In fits of
light items nobody runs out of items, and they have had the same bits since 0.2. In the others many users do, and the
offset of their logits is new with 0.4.

NumPy and OpenBLAS choose their own kernels by the processor; here they are held to AVX2, so that machines agree.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HELD = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512F AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
if __name__ == "__main__" and not HELD.items() <= os.environ.items():  # both libraries read these when they load
    os.execve(sys.executable, [sys.executable, "-W", "ignore", *sys.argv], os.environ | HELD)

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402

from considerate import Recommender  # noqa: E402
from considerate.kernels import compiled  # noqa: E402

FITS: dict[str, dict[str, Any]] = {
    f"{hidden} K={factors}": {"hidden": hidden, "factors": factors}
    for hidden in ("sampled", "expected")
    for factors in (20, 64, 96)
} | {
    "user biases": {"factors": 20, "user_bias": True},
    "head correction, likelihood weight": {
        "factors": 20,
        "hidden": "expected",
        "head_correction": True,
        "likelihood_weight": 6.5,
    },
    "out of core": {"factors": 20, "user_bias": True, "backend": "disk"},
    "resumed": {"factors": 20, "user_bias": True, "resumed": True},
    "light items": {"factors": 20, "light": True},
    "light items, expected": {"factors": 20, "light": True, "hidden": "expected"},
    "light items, out of core": {"factors": 20, "light": True, "backend": "disk"},
    "the walk, opened": {"factors": 20, "light": True, "consideration": "walk", "opening": 2, "sweeps": 4},
}
RAY_FITS: dict[str, dict[str, Any]] = {
    "Ray by users": {"factors": 20, "hidden": "expected", "user_bias": True, "division": "users"},
    "Ray by items": {"factors": 64, "division": "items"},
    "Ray, light items": {"factors": 20, "light": True, "division": "users"},
}


def likes() -> pa.Table:
    """1,600 users and 120 items, strings for ids: two tastes, popular and rare items, three parts of each side."""
    random = np.random.default_rng(7)
    users, items = 1600, 120
    same = np.arange(users)[:, None] % 2 == np.arange(items) % 2
    appeal = 0.95 / (1.0 + np.arange(items) // 12)
    liked = random.random((users, items)) < np.where(same, appeal, 0.3 * appeal)
    liked[:1200, :60] |= random.random((1200, 60)) < 0.6
    liked[np.arange(users), np.arange(users) % items] = True
    rows, columns = np.nonzero(liked)
    return pa.table({"user": [f"u{m:04}" for m in rows], "item": [f"i{n:03}" for n in columns]})


def likes_of_many_items() -> pa.Table:
    """2,000 users and 4,000 items, most of them of few likes: light and heavy ones, three parts of the users."""
    random = np.random.default_rng(8)
    appeal = 1.0 / (1.0 + np.arange(4000)) ** 0.7
    rows = np.repeat(np.arange(2000), 40)
    columns = random.choice(4000, len(rows), p=appeal / appeal.sum())
    return pa.table({"user": rows, "item": columns}).group_by(["user", "item"]).aggregate([])


def digest(*arrays: Any) -> str:
    total = hashlib.sha256()
    for array in arrays:
        array = np.ascontiguousarray(array)
        total.update(f"{array.dtype.str}{array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()[:32]


def posterior(model: Any) -> dict[str, str]:
    q = model.posterior_
    precisions = model.precisions_
    return {
        "users": digest(q.users.rows, *q.users.biases),
        "items": digest(q.items.rows, *q.items.biases),
        "precisions": digest(*(np.float64(precisions[name]) for name in sorted(precisions))),
        "bounds": digest(model.bound_),
    }


def answers(model: Any, table: pa.Table) -> dict[str, str]:
    """What a model from its file answers."""
    users, items = np.arange(0, 1600, 7), np.arange(0, 1600, 7) % 120
    folded = model.fold_in([3, 14, 15, 92], by="row")
    tables = {
        "recommend_table": model.recommend_table(["u0000", "u0042", "u1599"], N=12),
        "recommend_for": model.recommend_for(["i001", "i077"], N=9, popularity=0.3),
    }
    return {
        "recommend": digest(*model.recommend(users, N=15, by="row")),
        "recommend, explored": digest(*model.recommend(users, N=15, explore_kappa=0.7, popularity=1.0, by="row")),
        "recommend, drawn": digest(*model.recommend(users, N=15, thompson_seed=5, by="row")),
        "predict_logit": digest(*model.predict_logit(users, items, by="row")),
        "predict_proba": digest(model.predict_proba(users, items, by="row")),
        "fold_in": digest(folded.rows, *folded.biases),
        "similar_items": digest(*model.similar_items(11, N=10, by="row")),
        "explain": digest(*(np.array(share, np.float64) for share in model.explain(5, 7, by="row")[1])),
        "export_vectors": digest(*model.export_vectors()),
    } | {
        name: hashlib.sha256(json.dumps(found.to_pydict(), sort_keys=True).encode()).hexdigest()[:32]
        for name, found in ((name, table.drop_columns(["p_considered"])) for name, table in tables.items())
    }


def fit(table: pa.Table, folder: Path, options: dict[str, Any]) -> Any:
    options = {name: value for name, value in options.items() if name != "light"}
    backend, resumed, division = (options.pop(name, None) for name in ("backend", "resumed", "division"))
    settings = {
        "sweeps": 3,
        "tolerance": 0.0,
        "threads": 2,
        "seed": 11,
        "negatives": 2.0,
        "likelihood_weight": 4.0,
        "consideration": "popularity",
    } | options
    if resumed:
        Recommender(**settings | {"sweeps": 2}).fit(table, checkpoint=folder / "kept", checkpoint_every=1)
        return Recommender(**settings).fit(table, checkpoint=folder / "kept", resume=True)
    if backend == "disk":
        from considerate.backends.out_of_core import OutOfCore

        return Recommender(**settings).fit(table, backend=OutOfCore(folder / "parts", 2, division="users"))
    if division is not None:
        from considerate.backends.ray import RayBackend

        return Recommender(**settings).fit(table, backend=RayBackend(workers=2, threads=1, division=division))
    return Recommender(**settings).fit(table)


def digests(fits: dict[str, dict[str, Any]], with_answers: bool) -> dict[str, dict[str, dict[str, str]]]:
    table, light, found = likes(), likes_of_many_items(), {}
    for name in compiled.instruction_sets():
        compiled.use_instruction_set(name)
        found[name] = {}
        for what, options in fits.items():
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "parts").mkdir()
                model = fit(light if options.get("light") else table, Path(folder), options)
                found[name][what] = posterior(model)
                if with_answers and what in ("user biases", "head correction, likelihood weight"):
                    model.save(Path(folder) / "model")
                    found[name][f"answers, {what}"] = answers(Recommender.load(Path(folder) / "model"), table)
    return found


def on_ray() -> dict[str, dict[str, dict[str, str]]]:
    import logging

    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        return digests(RAY_FITS, with_answers=False)
    finally:
        ray.shutdown()


if __name__ == "__main__":
    result = on_ray() if sys.argv[1:] == ["ray"] else digests(FITS, with_answers=True)
    print(json.dumps(result, indent=1))
