"""Write the files of a release, and its answers: `python write_release.py FOLDER`, run by the release itself.

It ran on the last commits of 0.2 and 0.3, each installed beside this repository. Files of 0.1 were written before it.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa

import considerate
from considerate import Recommender

LATER = considerate.__version__ >= "0.3"  # has features, impossible pairs, updates and events
SETTINGS = {"factors": 3, "user_bias": True, "seed": 7, "threads": 1, "sweeps": 4, "tolerance": 0.0}
COLUMNS = ("user", "item", "title", "score", "p_like", "low", "high")
TITLES = pa.table({"item": [f"i{n}" for n in range(12)], "title": [f"Title {n}" for n in range(12)]})


def likes() -> pa.Table:
    """tests/helpers/likes.py, planted(30, 12), by ids."""
    random = np.random.default_rng(0)
    same = np.arange(30)[:, None] % 2 == np.arange(12)[None, :] % 2
    users, items = np.nonzero(random.random((30, 12)) < np.where(same, 0.5, 0.03))
    return pa.table({"user": [f"u{user}" for user in users], "item": [f"i{item}" for item in items]})


def answers(model: Recommender) -> dict[str, Any]:
    """Answers of a model, with seven digits."""
    table = model.recommend_table([f"u{user}" for user in range(6, 16)], N=4).to_pydict()
    rounded = {
        name: [float(f"{value:.7g}") if isinstance(value, float) else value for value in table[name]]
        for name in COLUMNS
    }
    similar = [str(item) for item in model.similar_items("i3", 5)[0]]
    return {
        "params": model.get_params(),
        "table": rounded,
        "bound": [float(bound) for bound in model.bound_],
        "similar": similar,
    }


def called(start: Any, *given: Any) -> None:
    """Call what answers by a callback, and wait for it."""
    ended, results = Event(), list[Any]()
    start(*given, lambda *result: (results.append(result), ended.set()))
    ended.wait()
    assert results[0][1] is None, results


def write_later(folder: Path, plain: Recommender) -> dict[str, Any]:
    """An updated model, events, and a model that learned them."""
    from considerate.service.events import EventStore, NewEvent
    from considerate.service.metrics import Metrics
    from considerate.service.refit import Refit

    updated = plain.update(pa.table({"user": ["u1", "new"], "item": ["i4", "i5"]}), days=3).forget("u5")
    updated.save(folder / "updated.safetensors")
    updated.save(folder / "refitted.safetensors")
    store = EventStore(str(folder / "events.db"), Metrics())
    given = [("u1", "i7", "like", "first"), ("u2", "i4", "considered", None), ("u3", "i3", "unlike", None)]
    given += [("ann", "i2", "like", None), ("ann", "i4", "like", None), ("gone", "i4", "like", "k")]
    called(store.append, [NewEvent(*event) for event in given])
    called(store.erase, "gone")
    assert Refit(str(folder / "refitted.safetensors"), store, "update").run().swapped
    rows = [list(row[:4]) for row in store.everything().rows]
    events = {"identity": store.identity, "mark": list(store.mark()), "gone": store.hashed("gone").hex(), "rows": rows}
    store.close()
    refitted = Recommender.load(folder / "refitted.safetensors")
    return {"updated.safetensors": answers(updated), "refitted.safetensors": answers(refitted), "events": events}


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings, more = SETTINGS | ({"opening": 2} if LATER else {}), dict[str, pa.Table]()
    if LATER:
        more["impossible"] = pa.table({"user": ["u0", "u1", "u2"], "item": ["i11", "i10", "i9"]})
        items = [f"i{n}" for n in range(13)]
        more["item_features"] = pa.table({"item": items, "kind": [f"k{n % 3}" for n in range(13)]})
    model = Recommender(**settings).fit(likes(), titles=TITLES, **more)
    model.save(folder / "model.safetensors")
    plain = Recommender(**settings).fit(likes(), titles=TITLES)
    plain.save(folder / "sharded", shards=2)
    short = Recommender(**settings | {"sweeps": 2})
    short.fit(likes(), titles=TITLES, checkpoint=folder / "checkpoint", checkpoint_every=2)
    (folder / "checkpoint" / "lock").unlink(missing_ok=True)
    found = {"model.safetensors": answers(model), "sharded": answers(plain)}
    if LATER:
        found |= write_later(folder, plain)
    (folder / "answers.json").write_text(json.dumps(found, separators=(",", ":")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
