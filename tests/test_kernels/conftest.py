"""Running kernels, and bounds on their errors that follow from the formats.

Notation of the bounds: a float32 operation is exact up to a factor 1 + δ with |δ| ≤ u = 2⁻²⁴, n of them in a row up to
gamma(n); a float64 oracle is exact next to that. The last rounding, to the dtype of the result, is added by
``assert_within``.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

import neurosim
from neurosim.devices import available
from neurosim.shell.loading import load_kernel, packaged_kernel

UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
SMALLEST = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}


class Kernels:
    """Runs kernels by file and name, makes inputs, and judges outputs."""

    u = UNIT["float32"]
    chips = tuple(available())

    @staticmethod
    @functools.cache
    def load(target):
        """Return the kernel that ``file.py:name`` names."""
        file, _, name = target.partition(":")
        return load_kernel(f"{packaged_kernel(file)}:{name}")

    def run(self, target, *arrays, chip="trn2", cores=None, **options):
        """Return the outputs of a kernel; ``cores`` launches it on that many."""
        simulated = neurosim.simulate(self.load(target), chip)
        return (simulated if cores is None else simulated[cores])(*arrays, **options).outputs

    @staticmethod
    def normal(seed, *shape, dtype=np.float32, scale=1.0, mean=0.0):
        """Return normal numbers in a dtype, the same for the same arguments."""
        rng = np.random.default_rng([seed, *shape])
        return (rng.standard_normal(shape) * scale + mean).astype(dtype)

    @staticmethod
    def wide(*arrays):
        """Return float64 of arrays; of one, not in a tuple."""
        widened = tuple(np.asarray(array).astype(np.float64) for array in arrays)
        return widened[0] if len(widened) == 1 else widened

    def gamma(self, count):
        """Return the largest relative error of ``count`` roundings to float32."""
        return count * self.u / (1 - count * self.u)

    @staticmethod
    def unit(dtype):
        """Return the largest relative error of one rounding to a dtype."""
        return UNIT[np.dtype(dtype).name]

    def assert_within(self, got, exact, error, dtype):
        """Assert shape, dtype, and a distance of at most ``error`` before the result was rounded to ``dtype``."""
        name = np.dtype(dtype).name
        assert got.dtype.name == name
        assert got.shape == exact.shape
        assert np.isfinite(exact).all()
        distance = np.abs(got.astype(np.float64) - exact)
        bound = error + UNIT[name] * (np.abs(exact) + error) + SMALLEST[name]
        assert (distance <= bound).all(), f"{np.nanmax(distance / bound)} of the bound"


@pytest.fixture(scope="session")
def kernels():
    return Kernels()
