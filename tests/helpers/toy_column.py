"""A column declared here alone, and everything that shows it: prints one JSON object. Run as a process of its own.

python -m tests.helpers.toy_column MODEL
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from considerate.data.column import DECIMALS, NUMBER, Column
from considerate.model import columns

TOY = Column("toy", NUMBER, "a toy", lambda pairs: np.where(pairs.item % 2, 0.5, np.nan), True, "pair", "Toy", DECIMALS)
columns.COLUMNS = (*columns.COLUMNS[:-1], TOY, columns.COLUMNS[-1])


def found(path: Path) -> dict[str, object]:
    """The toy column of one user's list wherever a list is given."""
    from considerate import Recommender
    from tests.helpers.service_fixtures import fitted, running
    from tests.helpers.shell import answer, run

    fitted().save(path)
    model = Recommender.load(path)
    (batch,) = model.recommend_batches(["u20"], N=4)
    arrow = "application/vnd.apache.arrow.stream"
    with running(path) as client:
        asked = {"users": ["u20"], "n": 4}
        stream = client.post("/v1/recommendations:batch", json=asked, headers={"accept": arrow}).content
        document = client.get("/openapi.json").json()["components"]["schemas"]
        place = client.post("/v1/landscape", json={"user": "u20"}).json()
        page = client.get("/page/columns.js").text
        http = [item["toy"] for item in client.recommendations("u20", n=4)["items"]]
    file = path.with_name("list.csv")
    assert run("recommend", path, "u20", "--count", 4, "-o", file).exit_code == 0
    return {
        "table": model.recommend_table(["u20"], N=4)["toy"].to_pylist(),
        "batch": batch["toy"].to_pylist(),
        "new user": model.recommend_for(["i20"], N=4).column_names,
        "csv": file.read_text().splitlines()[0],
        "json": [row["toy"] for row in answer("recommend", path, "u20", "--count", 4)],
        "shell": run("recommend", path, "u20", "--count", 4).output,
        "http": http,
        "arrow": pa.ipc.open_stream(io.BytesIO(stream)).read_all()["toy"].to_pylist(),
        "openapi": document["RecommendedItem"]["properties"]["toy"],
        "landscape": dict(zip(place["item"], place["toy"])),
        "items": model.recommend_table(["u20"], N=4)["item"].to_pylist(),
        "page": json.loads(page.removeprefix("export const COLUMNS = ").rstrip(";\n"))[-1],
    }


if __name__ == "__main__":
    print(json.dumps(found(Path(sys.argv[1]))))
