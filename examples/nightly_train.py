"""Retrain every night, and publish the new model only if it is sane.

python examples/nightly_train.py likes/ --where "rating >= 4" --time-column when --published model.safetensors

The latest like of each user is the test: a model is fitted without it and must clearly beat popularity. A broken feed,
such as one with shuffled ids, fails here, and last night's model stays. Then the model is fitted to everything. `save`
writes beside the old file and renames, so a service never reads half a model.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from considerate import Recommender, evaluate, read_interactions


def main(arguments: list[str] | None = None) -> bool:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("likes", help="a Parquet file or folder, or anything else that considerate reads")
    parser.add_argument("--where", help='which rows are likes, such as "rating >= 4"')
    parser.add_argument("--time-column", help="when each like was; without it a random like of each user is the test")
    parser.add_argument("--published", type=Path, default=Path("model.safetensors"))
    parser.add_argument("--factors", type=int, default=64)
    given = parser.parse_args(arguments)

    likes = read_interactions(given.likes, where=given.where, time_column=given.time_column)
    model = Recommender(factors=given.factors)
    result = evaluate(model, likes, k=20)
    print(result)
    if result["popularity"].difference["NDCG@20"].high >= 0:
        print("not clearly better than popularity: the published model stays")
        return False
    model.fit(likes).save(given.published)
    print(f"published {given.published}")
    return True


if __name__ == "__main__":
    raise SystemExit(0 if main() else 1)
