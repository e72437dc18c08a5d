"""scipy's sparse matrices: rows are users, columns are items, every stored value is one like."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from considerate.data.encode import MOST_ROWS
from considerate.errors import DataError


def is_sparse(source: Any) -> bool:
    """Whether a source is a sparse matrix; scipy is not imported to find that out."""
    scipy_sparse = sys.modules.get("scipy.sparse")
    return scipy_sparse is not None and bool(scipy_sparse.issparse(source))


def matrix_pairs(matrix: Any) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Users and items of the stored values, after a look at these."""
    if len(matrix.shape) != 2:
        raise DataError(f"the matrix has {len(matrix.shape)} dimensions; expected two, users and items.")
    if max(matrix.shape) > MOST_ROWS:
        raise DataError(f"the matrix is {matrix.shape[0]} x {matrix.shape[1]}; at most {MOST_ROWS} rows fit.")
    pairs = matrix.tocoo()
    values = pairs.data
    if not len(values):
        raise DataError(f"the {matrix.shape[0]} x {matrix.shape[1]} matrix stores no values; expected likes.")
    if values.dtype.kind not in "biuf":
        raise DataError(f"the matrix holds {values.dtype}; expected positive numbers, one per like.")
    wrong = int(len(values) - np.count_nonzero(values > 0))  # NaN is not above zero
    if wrong:
        raise DataError(
            f"{wrong} of the {len(values)} stored values of the matrix are zero, negative or NaN; "
            "each stored value is one like: call eliminate_zeros() or drop them."
        )
    if values.min() != values.max():
        warnings.warn(
            "the stored values of the matrix vary; they are not used as weights, each is one like",
            UserWarning,
            stacklevel=4,
        )
    return pairs.row.astype(np.int32), pairs.col.astype(np.int32)
