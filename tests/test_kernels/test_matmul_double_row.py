"""``kernels/matmul_double_row.py`` against float64, and in half of the tensor engine's time."""

from __future__ import annotations

import ml_dtypes
import nki
import numpy as np
import pytest

import neurosim
from neurosim.shell.loading import load_kernel, packaged_kernel

double_row = load_kernel(f"{packaged_kernel('matmul_double_row.py')}:matmul_double_row")
matmul = load_kernel(f"{packaged_kernel('matmul.py')}:matmul")


@pytest.mark.parametrize("shape", [(2, 1, 1), (256, 129, 513), (258, 3, 5), (300, 2, 2050)])
@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2])
def test_products(shape, dtype):
    """Within the roundings of K float32 sums and a store in bfloat16."""
    K, M, N = shape
    rng = np.random.default_rng(shape)
    a_t, b = (rng.standard_normal((K, columns)).astype(dtype) for columns in (M, N))
    got = nki.simulate(double_row)(a_t, b)
    assert got.dtype == ml_dtypes.bfloat16
    wide_a, wide_b = a_t.astype(np.float64), b.astype(np.float64)
    exact, terms = wide_a.T @ wide_b, (K + 4) * 2.0**-24 * (np.abs(wide_a).T @ np.abs(wide_b))
    assert (np.abs(got.astype(np.float64) - exact) <= terms + 2.0**-8 * (np.abs(exact) + terms)).all()


def test_half_of_the_rows():
    """The tensor engine streams half as many rows as for bfloat16, without the throttle that hides it."""
    busy = []
    for kernel, dtype in ((matmul, "bfloat16"), (double_row, "float8_e4m3")):
        run = neurosim.simulate(kernel, "trn2", values=False, throttle=False)
        busy.append(run(*[neurosim.spec((512, 1024), dtype)] * 2).timeline.busy_ps["tensor"])
    assert busy[1] / busy[0] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [(((3, 2), (3, 2)), "K is 3; rows are multiplied in pairs"), (((4, 2), (6, 2)), "both are K")],
)
def test_refused(shapes, message):
    with pytest.raises(AssertionError, match=message):
        nki.simulate(double_row)(*[np.ones(shape, ml_dtypes.float8_e4m3) for shape in shapes])
