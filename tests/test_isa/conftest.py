"""Running one instruction on arrays, and independent conversions between formats to compare with."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim

SATURATING = {ml_dtypes.float8_e4m3: 240.0, ml_dtypes.float8_e4m3fn: 448.0, ml_dtypes.float8_e5m2: 57344.0}


def execute(body, *arrays, psum=(), chip="trn2"):
    """Run ``body`` on on-chip tiles that hold ``arrays``; return the result of the run.

    Tiles whose numbers are in ``psum`` are in PSUM. ``outputs`` has an array for each tile that ``body`` returns.
    """

    def kernel(*tensors):
        tiles = []
        for index, tensor in enumerate(tensors):
            tile = nl.ndarray(tensor.shape, tensor.dtype, nl.sbuf, name=f"tile{index}")
            nisa.dma_copy(dst=tile, src=tensor)
            if index in psum:
                bank = nl.ndarray(tensor.shape, tensor.dtype, nl.psum, name=f"tile{index}")
                nisa.tensor_copy(dst=bank, src=tile)
                tile = bank
            tiles.append(tile)
        made = body(*tiles)
        single = not isinstance(made, (list, tuple))
        outputs = [stored(tile) for tile in ([made] if single else made)]
        return outputs[0] if single else tuple(outputs)

    return neurosim.simulate(kernel, chip)(*arrays)


def stored(tile):
    """Store a tile from anywhere into a new HBM tensor."""
    if tile.buffer is nl.psum:
        copy = nl.ndarray(tile.shape, tile.dtype, nl.sbuf)
        nisa.tensor_copy(dst=copy, src=tile)
        tile = copy
    out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def tile_like(tile, dtype=None, buffer=nl.sbuf, shape=None):
    """Return a new tile with the shape of another."""
    return nl.ndarray(shape or tile.shape, dtype or tile.dtype, buffer)


def scattered(shape, dtype, buffer=nl.sbuf, axes=2):
    """Return a new view of the shape's extents that has gaps: an offset, a step of 2, and perhaps a third axis."""
    count = int(np.prod(shape[1:]))
    view = nl.ndarray((shape[0], 2 * count + 3), dtype, buffer)[:, 3 : 2 * count + 3 : 2]
    return view.reshape_dim(1, (2, count // 2)) if axes == 3 and count % 2 == 0 else view


def from_views(body, axes, *arrays, **options):
    """Run ``body(out, *tiles)`` with all tiles and everything that ``out(shape, dtype)`` makes being such views."""

    def spread(*tiles):
        views = []
        for tile in tiles:
            view = scattered(tile.shape, tile.dtype, tile.buffer, axes)
            nisa.tensor_copy(dst=view, src=tile)
            views.append(view)
        return body(lambda shape, dtype, flat=False: scattered(shape, dtype, axes=2 if flat else axes), *views)

    return execute(spread, *arrays, **options)


def single(array):
    """Return float32 of an array, as an engine reads it."""
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(np.float32)


def rounded(values, dtype):
    """Round float32 values to a format: nearest even; integers and 8-bit floats saturate; NaN is 0 as an integer."""
    values, dtype = np.asarray(values, np.float32), np.dtype(dtype)
    with np.errstate(all="ignore"):
        if dtype == np.bool_:
            return values != 0
        if np.issubdtype(dtype, np.integer):
            limits = np.iinfo(dtype)
            whole = np.rint(np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=1e30, neginf=-1e30))
            return np.clip(whole, limits.min, limits.max).astype(dtype)
        if dtype.type in SATURATING:
            top = SATURATING[dtype.type]
            values = np.where(np.isfinite(values), np.clip(values, -top, top), values).astype(np.float32)
        return values.astype(dtype)


def assert_same(got, expected):
    """Assert equal dtypes, shapes and bits; NaNs only need to be NaNs of either pattern."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if np.issubdtype(got.dtype, np.integer) or got.dtype == np.bool_:
        np.testing.assert_array_equal(got, expected)
        return
    nans = np.isnan(single(expected))
    np.testing.assert_array_equal(np.isnan(single(got)), nans)
    unsigned = f"u{got.dtype.itemsize}"
    bits = [np.ascontiguousarray(array).view(unsigned)[~nans] for array in (got, expected)]
    np.testing.assert_array_equal(*bits)


class Machine:
    """What a test of an instruction needs."""

    run = staticmethod(execute)
    tile_like = staticmethod(tile_like)
    single = staticmethod(single)
    rounded = staticmethod(rounded)
    assert_same = staticmethod(assert_same)

    def outputs(self, body, *arrays, **options):
        """Run ``body`` and return the arrays of the tiles that it returns."""
        return execute(body, *arrays, **options).outputs

    def same_from_views(self, body, *arrays, **options):
        """Run ``body(out, *tiles)`` on whole tiles and on views with gaps; assert equal bits, return the arrays."""

        def whole(*tiles):
            return body(lambda shape, dtype, flat=False: nl.ndarray(shape, dtype, nl.sbuf), *tiles)

        plain = execute(whole, *arrays, **options).outputs
        plain = plain if isinstance(plain, tuple) else (plain,)
        for axes in (2, 3):
            others = from_views(body, axes, *arrays, **options).outputs
            for one, other in zip(plain, others if isinstance(others, tuple) else (others,), strict=True):
                np.testing.assert_array_equal(
                    one.reshape(-1).view(np.uint8), np.ascontiguousarray(other).reshape(-1).view(np.uint8)
                )
        return plain[0] if len(plain) == 1 else plain

    def time(self, mnemonic, body, *arrays, chip="trn2", **options):
        """Return (busy, completion) in ns of the last ``mnemonic`` that ``body`` issues, alone on its engine."""
        result = execute(body, *arrays, chip=chip, **options)
        timeline = result.timeline
        names = [result.program.record(index).signature.instruction for index in range(len(result.program))]
        record = len(names) - 1 - names[::-1].index(mnemonic)
        ops = timeline.ops[timeline.ops["record"] == record]
        busy = ops["busy_ps"].sum() if mnemonic != "dma_transpose" else 0
        return busy / 1000, (timeline.complete_ps[record] - timeline.start_ps[record]) / 1000

    def refused(self, body, *arrays, error=None, **options):
        """Run ``body``, which must raise; return the error, whose place must be in the test's file."""
        from neurosim.errors import IllegalOperand

        with pytest.raises(error or IllegalOperand) as caught:
            execute(body, *arrays, **options)
        assert type(caught.value) is (error or IllegalOperand) or error is None
        assert "tests/test_isa/test_" in caught.value.where[0]
        return str(caught.value)


@pytest.fixture(scope="session")
def machine():
    return Machine()


@pytest.fixture
def rng():
    return np.random.default_rng(7)


#: Values around which formats and operators differ.
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.5, 1.5, 300.0, -200.0, 1e-40, -1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan],
    np.float32,
)


@pytest.fixture
def special():
    return SPECIAL.copy()
