"""Features of items and users: by id, by row, and what a fit is told of them."""

from __future__ import annotations

import numpy as np
import pytest

from considerate.data.features import Features, FeatureTable
from considerate.data.side_information import SideInformation
from considerate.data.vocabulary import Vocabulary
from considerate.errors import DataError, UsageError


def dense(features: Features) -> np.ndarray:
    """The matrix that features are."""
    matrix = np.zeros((features.rows, features.count), np.float32)
    rows = np.repeat(np.arange(features.rows), np.diff(features.starts))
    matrix[rows, features.indices] = features.values
    return matrix


def sparse(matrix: np.ndarray, names: tuple[str, ...] | None = None) -> Features:
    """Features of a dense matrix."""
    rows, columns = np.nonzero(matrix)
    starts = np.append(0, np.cumsum(np.bincount(rows, minlength=len(matrix)))).astype(np.int64)
    names = names or tuple(f"f{j}" for j in range(matrix.shape[1]))
    return Features(starts, columns.astype(np.int32), matrix[rows, columns].astype(np.float32), names)


MATRIX = np.array([[1, 0, 2], [0, 0, 0], [0, 3, 0], [4, 5, 6]], np.float32)


def test_rows_of_features_are_taken_in_any_order_and_an_unknown_row_has_none() -> None:
    rows = np.array([3, -1, 0, 0, 1])
    expected = np.vstack([MATRIX[3], np.zeros(3), MATRIX[0], MATRIX[0], MATRIX[1]])
    assert np.array_equal(dense(sparse(MATRIX).take(rows)), expected)


def test_a_table_is_aligned_with_ids_of_another_kind_and_order() -> None:
    table = FeatureTable(sparse(MATRIX), Vocabulary.of_integers(np.array([7, 10, 20, 30])))
    aligned = table.align(Vocabulary.of_strings(["10", "30", "7", "8"]))  # sorted as texts
    assert np.array_equal(dense(aligned), np.vstack([MATRIX[1], MATRIX[3], MATRIX[0], np.zeros(3)]))


def test_a_matrix_of_features_goes_with_a_matrix_of_as_many_rows() -> None:
    table = FeatureTable(sparse(MATRIX), None)
    assert np.array_equal(dense(table.align(Vocabulary.range(4))), MATRIX)
    with pytest.raises(DataError, match="4 rows of features for 5 rows"):
        table.align(Vocabulary.range(5))
    with pytest.raises(UsageError, match="give a table with ids"):
        table.align(Vocabulary.of_strings(["a", "b", "c", "d"]))


def test_the_fingerprint_tells_values_names_and_ids_apart() -> None:
    other = MATRIX.copy()
    other[0, 0] = 1.5
    ids, moved = Vocabulary.of_strings("abcd"), Vocabulary.of_strings("abce")
    renamed = sparse(MATRIX, ("f0", "f1", "g2"))
    tables = [(sparse(MATRIX), ids), (sparse(other), ids), (renamed, ids), (sparse(MATRIX), moved)]
    described = [SideInformation(FeatureTable(*table)).describe() for table in tables]
    assert len({text["item_features"] for text in described}) == 4
    assert SideInformation().describe() == {}
