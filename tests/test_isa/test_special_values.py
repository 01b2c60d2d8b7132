"""NaN and Inf are values: they flow, and nobody refuses them."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

F = np.float32


def load(array):
    tile = nl.ndarray(array.shape, dtype=array.dtype, buffer=nl.sbuf, name=f"{array.name}_tile")
    nisa.dma_copy(dst=tile, src=array)
    return tile


INPUT = np.array([[np.nan, np.inf, -np.inf, -0.0, 1.0, -3.0]], F)


def moved(tile):
    copy = nl.ndarray(tile.shape, dtype=tile.dtype)
    nisa.dma_copy(dst=copy, src=tile)
    return copy


def unary(instruction, dtype=None, **options):
    def body(tile):
        made = nl.ndarray(tile.shape, dtype=dtype or tile.dtype)
        instruction(dst=made, **{"src" if instruction is nisa.tensor_copy else "data": tile}, **options)
        return made

    return body


def with_ones(op):
    def body(tile):
        made, ones = nl.ndarray(tile.shape, dtype=tile.dtype), nl.ones(tile.shape, tile.dtype)
        nisa.tensor_tensor(dst=made, data1=tile, data2=ones, op=op)
        return made

    return body


def reduced(op, first, last):
    def body(tile):
        made = nl.ndarray((1, 1), dtype=tile.dtype)
        nisa.tensor_reduce(dst=made, op=op, data=tile[:, first:last], axis=1)
        return made

    return body


def by_matmul(tile):
    """Multiply each element with 1 and with 0."""
    bank = nl.ndarray((2, 6), dtype=nl.float32, buffer=nl.psum)
    weights = nl.ndarray((1, 2), dtype=nl.float32)
    nisa.iota(dst=weights, pattern=[[1, 2]])
    nisa.nc_matmul(dst=bank, stationary=weights, moving=tile)
    made = nl.ndarray((2, 6), dtype=nl.float32)
    nisa.tensor_copy(dst=made, src=bank)
    return made


def masked(tile):
    made = nl.ndarray(tile.shape, dtype=tile.dtype)
    nisa.affine_select(
        dst=made,
        pattern=[[1, 6]],
        channel_multiplier=0,
        offset=-3,
        on_true_tile=tile,
        on_false_value=0.0,
        cmp_op=nl.less,
    )
    return made


nan, inf = np.nan, np.inf
FLOWS = {
    "dma": (moved, [[nan, inf, -inf, -0.0, 1, -3]]),
    "copy": (unary(nisa.tensor_copy), [[nan, inf, -inf, -0.0, 1, -3]]),
    "bfloat16": (unary(nisa.tensor_copy, nl.bfloat16), [[nan, inf, -inf, -0.0, 1, -3]]),
    "float16": (unary(nisa.tensor_copy, nl.float16), [[nan, inf, -inf, -0.0, 1, -3]]),
    "float8_e5m2": (unary(nisa.tensor_copy, nl.float8_e5m2), [[nan, inf, -inf, -0.0, 1, -3]]),
    "int8": (unary(nisa.tensor_copy, nl.int8), [[0, 127, -128, 0, 1, -3]]),
    "uint8": (unary(nisa.tensor_copy, nl.uint8), [[0, 255, 0, 0, 1, 0]]),
    "add": (with_ones(nl.add), [[nan, inf, -inf, 1, 2, -2]]),
    "maximum": (with_ones(nl.maximum), [[nan, inf, 1, 1, 1, 1]]),
    "minimum": (with_ones(nl.minimum), [[nan, 1, -inf, -0.0, 1, -3]]),
    "equal": (with_ones(nl.equal), [[0, 0, 0, 0, 1, 0]]),
    "not_equal": (with_ones(nl.not_equal), [[1, 1, 1, 1, 0, 1]]),
    "less": (with_ones(nl.less), [[0, 0, 1, 1, 0, 1]]),
    "reciprocal": (unary(nisa.reciprocal), [[nan, 0, -0.0, -inf, 1, -1 / F(3)]]),
    "exp": (unary(nisa.activation, op=nl.exp), [[nan, inf, 0, 1, np.exp(F(1)), np.exp(F(-3))]]),
    "relu": (unary(nisa.activation, op=nl.relu), [[nan, inf, 0, 0, 1, 0]]),
    "tanh": (unary(nisa.activation, op=nl.tanh), [[nan, 1, -1, -0.0, np.tanh(F(1)), np.tanh(F(-3))]]),
    "sum": (reduced(nl.add, 0, 6), [[nan]]),
    "sum of infinities": (reduced(nl.add, 1, 3), [[nan]]),
    "sum to infinity": (reduced(nl.add, 2, 6), [[-inf]]),
    "largest": (reduced(nl.maximum, 0, 6), [[nan]]),
    "largest without NaN": (reduced(nl.maximum, 1, 6), [[inf]]),
    "matmul": (by_matmul, [[nan, nan, nan, 0, 0, 0], [nan, inf, -inf, 0, 1, -3]]),
    "select": (masked, [[nan, inf, -inf, 0, 0, 0]]),
}


@pytest.mark.parametrize("name", FLOWS)
def test_nan_and_inf_flow(name):
    """They are values, not errors: no exception, no warning, and what the documented arithmetic makes of them."""
    body, expected = FLOWS[name]

    def kernel(x):
        tile = body(load(x))
        out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    got = nki.simulate(kernel)(INPUT).astype(F)
    expected = np.array(expected, F)
    np.testing.assert_allclose(got, expected, rtol=3e-7, equal_nan=True)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(expected[known]))
