"""One Parquet file on a laptop: fit, look at one person, write everyone's recommendations.

python examples/laptop.py ratings.parquet --where "rating >= 4" --titles items.parquet -o recommendations.parquet
"""

from __future__ import annotations

import argparse

import pyarrow.parquet

from considerate import Recommender, read_interactions


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ratings", help="Parquet, CSV, or anything else that considerate reads")
    parser.add_argument("--where", help='which rows are likes, such as "rating >= 4"')
    parser.add_argument("--titles", help="a file of items and titles")
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("-o", "--output", default="recommendations.parquet")
    given = parser.parse_args(arguments)

    likes = read_interactions(given.ratings, where=given.where, titles=given.titles)
    print(f"{likes.rows_kept:,} likes of {len(likes.user_ids):,} users and {len(likes.item_ids):,} items")
    model = Recommender(factors=given.factors).fit(likes, show_progress=True)

    someone = likes.user_ids.id_of(0)
    print(f"for {someone}, by the default weights:")
    print(model.recommend_table([someone], N=5).to_pandas().round(3).to_string(index=False))
    print(f"for {someone}, by liking alone:")
    print(model.recommend_table([someone], N=5, popularity=0.0, lift=0.0).to_pandas().round(3).to_string(index=False))

    batches = model.recommend_batches(N=20)  # some thousand users at a time: memory stays small
    first = next(batches)
    with pyarrow.parquet.ParquetWriter(given.output, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
    print(f"everyone's first 20 are in {given.output}")


if __name__ == "__main__":
    main()
