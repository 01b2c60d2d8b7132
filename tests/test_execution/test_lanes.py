"""Lanes: whether what is to be written has bytes of where it goes."""

from __future__ import annotations

import itertools

import numpy as np

from neurosim.execution.lanes import _may_share


def test_arrays_that_share_bytes_are_known_to() -> None:
    """Against NumPy's own answer, which takes it longer."""
    owner, other = np.zeros((4, 6), np.float32), np.zeros((4, 6), np.float32)
    foreign = np.frombuffer(bytearray(96), np.float32).reshape(4, 6)
    around = np.ndarray((4, 6), np.float32, owner.data)  # what a storage's bytes are seen through
    arrays = [view for array in (owner, other, foreign, around) for view in (array, array[::-1], array.T, array[1:3])]
    for values, array in itertools.product(arrays, repeat=2):
        if values is not array and values.base is not None:  # others are told before, or own their bytes
            assert _may_share(values, array) >= np.may_share_memory(values, array)
    assert not _may_share(other[::-1], owner)
