"""Tables of items and users as features: kinds of columns, ids, rare values, and reading more of the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from considerate.data.features import INTERCEPT, FeatureTable
from considerate.data.read_features import read_features, read_more
from considerate.errors import DataError, UsageError
from tests.data.test_features import dense

ITEMS = {
    "item": ["a", "b", "c", "d"],
    "title": ["Up", "Up", "Heat", "Heat"],
    "genres": ["Drama, Comedy", "Comedy", None, "Drama,War"],
    "kind": ["film", "film", "show", "show"],
    "year": [1990.0, 1994.0, None, 1998.0],
    "in_print": [True, False, None, True],
}


def values(table: FeatureTable) -> dict[str, list[float]]:
    """The column of each feature; the last is 1 in every row."""
    names, columns = table.features.names, dense(table.features).T
    assert names[-1] == INTERCEPT
    assert (columns[-1] == 1.0).all()
    return {name: column.tolist() for name, column in zip(names[:-1], columns)}


def test_categories_tags_numbers_and_flags_of_a_table() -> None:
    table = read_features(ITEMS, "item")
    deviation = np.std([1990, 1994, 1998])
    assert table.ids is not None
    assert table.ids.ids_of(range(4)) == ["a", "b", "c", "d"]
    assert values(table) == {
        "genres: Comedy": [1, 1, 0, 0],
        "genres: Drama": [1, 0, 0, 1],  # War, of one row, is left out
        "kind: film": [1, 1, 0, 0],
        "kind: show": [0, 0, 1, 1],
        "year": pytest.approx([-4 / deviation, 0, 0, 4 / deviation]),
        "in_print": [1, 0, 0, 1],
    }
    assert table.notes == (
        "6 features of 4 items from 'genres', 'kind', 'year', 'in_print'; 1 values of fewer than 2 rows are left out",
    )


def test_a_table_may_have_a_row_for_each_tag_and_ids_in_any_order() -> None:
    tags = {"itemId": [7, 3, 7, 3, 7], "tagID": [11, 12, 12, 12, 13]}
    table = read_features(tags, "item", min_rows=1)
    assert values(table) == {"tagID: 11": [0, 1], "tagID: 12": [1, 1], "tagID: 13": [0, 1]}


def test_a_bar_parts_tags_in_any_column_and_a_comma_only_where_the_name_says_so() -> None:
    table = {"id": [1, 2], "mood": ["sad|slow", "slow|sad"], "place": ["Paris, France", "Paris, France"]}
    assert list(values(read_features(table))) == ["mood: sad", "mood: slow", "place: Paris, France"]


def test_lists_and_embeddings() -> None:
    table = pa.table({"user": [1, 2], "likes": [["x", "y"], ["x"]], "text": [[0.0, 5.0], [2.0, 5.0]]})
    read = values(read_features(table, "user", min_rows=1))
    assert read == {"likes: x": [1, 1], "likes: y": [1, 0], "text[0]": [-1, 1]}  # text[1] never varies


@pytest.mark.parametrize("form", [list, lambda lists: np.array(lists, object), tuple])
def test_a_dict_may_have_lists_and_arrays_of_rows(form: Any) -> None:
    table = {"user": [1, 2], "likes": form([["x", "y"], ["x"]]), "text": np.array([[0.0, 5.0], [2.0, 5.0]])}
    read = values(read_features(table, "user", min_rows=1))
    assert read == {"likes: x": [1, 1], "likes: y": [1, 0], "text[0]": [-1, 1]}
    same = {"user": [1, 2], "likes": form([["x", "y"], ["x", "z"]])}  # of one length each
    assert list(values(read_features(same, "user", min_rows=1))) == ["likes: x", "likes: y", "likes: z"]


def test_a_column_is_read_as_one_says() -> None:
    pairs = read_features({"user": [1, 2], "place": [[0.0, 1.0], [1.0, 0.0]]}, "user", columns=["place:number"])
    assert values(pairs) == {"place[0]": [-1, 1], "place[1]": [1, -1]}
    users = {"user": [1, 2, 3], "age": [18, 25, 25], "zip": ["1", "2", "2"]}
    assert values(read_features(users, "user", columns=["age:category"])) == {"age: 25": [0, 1, 1]}
    assert list(values(read_features(users, "user", columns={"zip": "number"}))) == ["zip"]
    with pytest.raises(UsageError, match="it can be read as 'category', 'tags'"):
        read_features(users, "user", columns=["age:colour"])
    with pytest.raises(DataError, match="no column 'agee'"):
        read_features(users, "user", columns=["agee"])


def test_text_files_and_parquet_say_the_same(tmp_path: Path) -> None:
    csv, parquet = tmp_path / "items.csv", tmp_path / "items.parquet"
    csv.write_text("item,kind,size\n10,a,3\n9,b,4\n11,a,\n12,b,8\n")
    pq.write_table(pa.table({"item": [10, 9, 11, 12], "kind": list("abab"), "size": [3, 4, None, 8]}), parquet)
    assert read_features(csv).digest() == read_features(parquet).digest()


def test_more_of_the_same_are_read_with_the_first_ones_means_and_values() -> None:
    first = read_features(ITEMS, "item")
    new = {"id": ["e"], "genres": ["War,Comedy"], "year": [1998.0], "colour": ["red"]}
    more = read_more(new, "item", first.features)
    assert more.features.names == first.features.names
    assert values(more)["year"] == [values(first)["year"][3]]
    assert values(more)["genres: Comedy"] == [1.0]
    assert more.notes == ("1 values in the given dict are not features of the model; they are left out",)
    assert read_more(ITEMS, "item", first.features).digest() == first.digest()
    with pytest.raises(DataError, match="the model's features come from 'genres', 'kind'"):
        read_more({"id": ["e"], "colour": ["red"]}, "item", first.features)


def test_matrices_are_used_as_they_are() -> None:
    from scipy.sparse import csr_matrix

    matrix = np.array([[1.0, 0.0, 2.5], [0.0, 0.0, -1.0]], np.float32)
    for source in (matrix, csr_matrix(matrix)):
        table = read_features(source)
        assert table.ids is None
        assert np.array_equal(dense(table.features), np.hstack([matrix, np.ones((2, 1))]))
    with pytest.raises(DataError, match="2 features; the model's items have 3"):
        read_more(np.ones((1, 2)), "item", table.features)
    with pytest.raises(DataError, match="not finite"):
        read_features(np.array([[np.nan]]))


def test_columns_that_cannot_be_features_are_refused() -> None:
    with pytest.raises(DataError, match="'big' has numbers up to 1e\\+308; give them in a larger unit"):
        read_features({"item": [1, 2], "big": [1e308, -1e308]})
    with pytest.raises(DataError, match="values of more than one type"):
        read_features({"item": [1, 2], "big": [2**64, -1]})
    with pytest.raises(DataError, match="'big' has numbers beyond single precision"):
        read_features({"item": [1, 2], "big": [1e300, 0.0]}, columns={"big": "flag"})
    with pytest.raises(DataError, match="not finite in single precision"):
        read_features(np.array([[1e300], [1.0]]))
    with pytest.raises(DataError, match="no value in any column except the ids has 2 rows"):
        read_features({"item": [1, 2], "title": ["x", "x"]})
    with pytest.raises(DataError, match="no column looks like the users' ids"):
        read_features({"name": ["ann"], "age": [3]}, "user")
    with pytest.raises(UsageError, match="'item' or of a 'user'"):
        read_features(ITEMS, "items")
