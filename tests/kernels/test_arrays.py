"""Large arrays begin at a cache line, and their memory is used again once nobody holds them."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from considerate.inference.posterior import Side
from considerate.kernels.arrays import LARGE, LINE, Spare, empty

SHAPE = (LARGE // 192 + 5, 48)


def address(array: np.ndarray) -> int:
    return int(array.ctypes.data)


@pytest.mark.parametrize("spare", [None, Spare()], ids=["plain", "spare"])
@pytest.mark.parametrize("shape", [(3, 5), SHAPE], ids=["small", "large"])
def test_arrays_begin_at_a_cache_line(spare, shape):
    held = [empty(shape, np.float32, spare) for _ in range(4)]
    for i, array in enumerate(held):
        assert address(array) % LINE == 0
        assert array.shape == shape
        assert array.dtype == np.float32
        assert array.flags.writeable
        assert array.flags.c_contiguous
        array[:] = i
    assert [float(array.max()) for array in held] == [0, 1, 2, 3]
    assert all(
        address(side.rows) % LINE == 0 for side in (Side.constant(7, 20, 1.0), Side.constant(7, 5, 1.0).empty_like())
    )


@pytest.mark.slow
def test_memory_comes_back_when_the_last_view_is_gone():
    spare = Spare()
    array = empty(SHAPE, np.float32, spare)
    place, view = address(array), array[10:20, 3]
    view[:] = 7.0
    del array
    gc.collect()
    other = empty(SHAPE, np.float32, spare)
    other[:] = 0.0
    assert address(other) != place
    assert (view == 7.0).all()
    del view
    gc.collect()
    assert address(empty(SHAPE, np.float32, spare)) == place


def test_an_array_outlives_its_spare():
    spare = Spare()
    array = empty(SHAPE, np.float32, spare)
    array[:] = 3.0
    del spare
    gc.collect()
    assert (array == 3.0).all()


def test_what_does_not_fit_is_not_kept():
    spare = Spare()
    for factor in (1, 2, 4, 1):
        array = empty((factor * SHAPE[0], 48), np.float32, spare)
        array[:] = factor
        del array
    assert len(spare._memory) == 1
