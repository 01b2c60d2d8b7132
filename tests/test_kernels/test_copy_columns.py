"""``kernels/copy_columns.py``: every element arrives, and descriptors are as large as a block is wide."""

from __future__ import annotations

import ml_dtypes
import nki
import numpy as np
import pytest

import neurosim
from neurosim.shell.loading import load_kernel, packaged_kernel
from neurosim.work import Transfer

copy_columns = load_kernel(f"{packaged_kernel('copy_columns.py')}:copy_columns")


@pytest.mark.parametrize("columns", [7, 100, 1000])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8])
def test_it_is_a_copy(columns, dtype):
    x = np.random.default_rng(1).integers(-100, 100, (131, 100)).astype(dtype)
    np.testing.assert_array_equal(nki.simulate(copy_columns)(x, columns), x)


@pytest.mark.parametrize("columns", [16, 128, 512])
def test_a_descriptor_is_a_block_wide(columns):
    program = neurosim.simulate(copy_columns, values=False)(neurosim.spec((128, 512), "float32"), columns).program
    sizes = {
        work.descriptor_bytes for record in program for work in record.signature.work if isinstance(work, Transfer)
    }
    assert sizes == {4 * columns}
    assert len(program) == 2 * 512 // columns


def test_no_columns():
    with pytest.raises(AssertionError, match="blocks of 0 columns"):
        nki.simulate(copy_columns)(np.ones((2, 2), np.float32), 0)
