"""Runs in which narrow formats round nothing: ``precise=False``, and ``NKI_PRECISE_FP=0``."""

from __future__ import annotations

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand
from neurosim.shell.loading import load_kernel, packaged_kernel

NARROW = (nl.bfloat16, nl.float16, nl.tfloat32, nl.float8_e4m3, nl.float8_e5m2)
BETWEEN = np.float32(1.0 + 2.0**-20)
"""Between two neighbours in every narrow format."""


def loaded(x, dtype=None):
    tile = nl.ndarray(x.shape, dtype or x.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def stored(tile, dtype=None):
    out = nl.ndarray(tile.shape, dtype or tile.dtype, nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def through(dtype):
    """Return a kernel that takes float32 through ``dtype`` and back."""

    def kernel(x):
        tile = loaded(x)
        narrow = nl.ndarray(x.shape, dtype, nl.sbuf)
        nisa.tensor_copy(dst=narrow, src=tile)
        wide = nl.ndarray(x.shape, nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=wide, src=narrow)
        return stored(wide)

    return kernel


def run(kernel, *arrays, precise=False, chip=None):
    return neurosim.simulate(kernel, chip, precise=precise)(*arrays).outputs


@pytest.mark.parametrize("dtype", NARROW)
def test_what_a_narrow_format_would_round_stays(dtype):
    x = np.full((4, 8), BETWEEN)
    assert (run(through(dtype), x, precise=True) == 1.0).all()
    assert (run(through(dtype), x) == BETWEEN).all()


def test_what_float8_would_clip_stays():
    x = np.array([[1000.0, -1e6, np.inf]], np.float32)
    np.testing.assert_array_equal(run(through(nl.float8_e4m3), x, precise=True), [[240.0, -240.0, np.inf]])
    np.testing.assert_array_equal(run(through(nl.float8_e4m3), x), x)


@pytest.mark.parametrize("dtype", [nl.int8, nl.int32, nl.uint8, nl.float32])
def test_other_formats_hold_what_they_hold(dtype):
    x = np.array([[1000.5, -3.0, 2.5, 1.4]], np.float32)
    np.testing.assert_array_equal(run(through(dtype), x), run(through(dtype), x, precise=True))


def test_outputs_in_a_narrow_format_are_float32():
    def kernel(x):
        return stored(loaded(x), nl.bfloat16), stored(loaded(x))

    narrow, wide = run(kernel, np.full((2, 3), BETWEEN))
    assert narrow.dtype == wide.dtype == np.float32
    assert (narrow == BETWEEN).all()
    assert run(kernel, np.full((2, 3), BETWEEN), precise=True)[0].dtype == ml_dtypes.bfloat16


def test_an_argument_that_is_written_in_place_rounds_to_its_own_format():
    def kernel(x, y):
        nisa.dma_copy(dst=y, src=loaded(x, nl.bfloat16))
        return y

    y = np.zeros((2, 3), ml_dtypes.bfloat16)
    out = run(kernel, np.full((2, 3), BETWEEN), y)
    assert (out == BETWEEN).all()
    assert (y == 1).all()


@pytest.mark.parametrize("setting", ["0", "1", ""])
def test_the_variable_decides_unless_the_call_does(monkeypatch, setting):
    monkeypatch.setenv("NKI_PRECISE_FP", setting)
    x = np.full((2, 3), BETWEEN)
    expected = BETWEEN if setting == "0" else 1.0
    assert (nki.simulate(through(nl.bfloat16))(x) == expected).all()
    assert (nki.jit(through(nl.bfloat16))(x) == expected).all()
    assert (run(through(nl.bfloat16), x, precise=None) == expected).all()
    assert (run(through(nl.bfloat16), x, precise=True) == 1.0).all()
    assert (run(through(nl.bfloat16), x, precise=False) == BETWEEN).all()


def test_precise_is_a_bool():
    with pytest.raises(IllegalOperand, match="precise='no' is not a bool"):
        neurosim.simulate(through(nl.bfloat16), precise="no")


def test_record_and_time_are_those_of_the_declared_formats():
    attention = load_kernel(f"{packaged_kernel('attention.py')}:attention")
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal((512, 128)).astype(ml_dtypes.bfloat16) for _ in range(3)]
    precise, wide = (neurosim.profile(attention, precise=precise)(*arrays) for precise in (True, False))
    assert precise.program.listing(0) == wide.program.listing(0)
    np.testing.assert_array_equal(precise.timeline.ops, wide.timeline.ops)
    assert "Precision" in wide.program.notes
    assert "Precision" not in precise.program.notes
    assert np.abs(precise.outputs.astype(np.float32) - wide.outputs).max() > 1e-4


# -- values go where elements go --------------------------------------------------------------------------------------


def columns(tile, count):
    index = nl.ndarray((tile.shape[0], count), nl.uint32, nl.sbuf)
    nisa.iota(index, [[1, count]], offset=0, channel_multiplier=0)
    return index


def by_dma(tile):
    return loaded(stored(tile))


def by_dma_transpose(tile):
    out = nl.ndarray(tile.shape[::-1], tile.dtype, nl.sbuf)
    nisa.dma_transpose(dst=out, src=tile)
    return out


def by_transpose(tile):
    out = nl.ndarray(tile.shape[::-1], tile.dtype, nl.psum)
    nisa.nc_transpose(dst=out, data=tile)
    copy = nl.ndarray(out.shape, out.dtype, nl.sbuf)
    nisa.tensor_copy(dst=copy, src=out)
    return copy


def by_gather(tile):
    out = nl.ndarray(tile.shape, tile.dtype, nl.sbuf)
    nisa.nc_n_gather(dst=out, data=tile, indices=columns(tile, tile.shape[1]))
    return out


def by_shuffle(tile):
    out = nl.ndarray(tile.shape, tile.dtype, nl.sbuf)
    nisa.nc_stream_shuffle(dst=out, src=tile, shuffle_mask=list(range(31, -1, -1)))
    return out


def by_predicate(tile):
    out, where = nl.ndarray(tile.shape, tile.dtype, nl.sbuf), nl.ndarray(tile.shape, nl.uint8, nl.sbuf)
    nisa.memset(out, 0.0)
    nisa.memset(where, 1)
    nisa.tensor_copy_predicated(dst=out, src=tile, predicate=where)
    return out


def by_selection(tile):
    out = nl.ndarray(tile.shape, tile.dtype, nl.sbuf)
    nisa.affine_select(
        dst=out,
        pattern=[[1, tile.shape[1]]],
        channel_multiplier=0,
        on_true_tile=tile,
        on_false_value=0.0,
        cmp_op=nl.greater_equal,
    )
    return out


def by_reading_wider(tile):
    out = nl.ndarray(tile.shape, nl.float32, nl.sbuf)
    nisa.dma_copy(dst=out, src=tile)
    return out


def by_columns(tile):
    out = nl.ndarray(tile.shape, tile.dtype, nl.sbuf)
    nisa.tensor_copy(dst=out[:, ::2], src=tile[:, ::2])
    nisa.tensor_copy(dst=out[:, 1::2], src=tile[:, 1::2])
    return out


def by_rows(tile):
    source, out = stored(tile), nl.ndarray(tile.shape, tile.dtype, nl.sbuf)
    index = nl.ndarray((tile.shape[0], 1), nl.uint32, nl.sbuf)
    nisa.iota(index, [[1, 1]], offset=0, channel_multiplier=1)
    nisa.dma_copy(dst=out, src=source.vector_select(0, index))
    back = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
    nisa.dma_copy(dst=back.vector_select(0, index), src=out)
    return loaded(back)


def at_an_address(tile):
    out = nl.ndarray(tile.shape, tile.dtype, nl.sbuf, address=(0, 1024))
    nisa.tensor_copy(dst=out, src=tile)
    return out


MOVES = (
    by_dma,
    by_dma_transpose,
    by_transpose,
    by_gather,
    by_shuffle,
    by_predicate,
    by_selection,
    by_reading_wider,
    by_columns,
    by_rows,
    at_an_address,
)


@pytest.mark.parametrize("move", MOVES)
def test_a_value_moves_with_its_element(move):
    def kernel(x):
        return stored(move(loaded(x, nl.bfloat16)))

    x = np.full((32, 32), BETWEEN)
    assert (run(kernel, x) == BETWEEN).all()
    assert (run(kernel, x, precise=True) == 1).all()


def test_rows_that_a_shuffle_leaves_alone_keep_their_values():
    def kernel(x):
        tile, out = loaded(x, nl.bfloat16), nl.ndarray(x.shape, nl.bfloat16, nl.sbuf)
        nisa.memset(out, 0.1)
        nisa.nc_stream_shuffle(dst=out, src=tile, shuffle_mask=[255] * 16 + [0] * 16)
        return stored(out)

    out = run(kernel, np.full((32, 4), BETWEEN))
    assert (out[:16] == np.float32(0.1)).all()
    assert (out[16:] == BETWEEN).all()


def test_the_two_cores_exchange_values():
    def kernel(x):
        rank = nl.program_id(0)
        tile, other = loaded(x, nl.bfloat16), nl.ndarray(x.shape, nl.bfloat16, nl.sbuf)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=float(1 + rank))
        nisa.sendrecv(src=tile, dst=other, send_to_rank=1 - rank, recv_from_rank=1 - rank, pipe_id=0)
        out = nl.ndarray((2, *x.shape), nl.bfloat16, nl.shared_hbm)
        nisa.dma_copy(dst=out[rank], src=other)
        return out

    x = np.full((4, 8), BETWEEN)
    out = neurosim.simulate(kernel, precise=False)[2](x).outputs
    assert (out[0] == 2 * BETWEEN).all()
    assert (out[1] == BETWEEN).all()


def test_a_product_takes_the_values():
    def kernel(x, y):
        psum = nl.ndarray((x.shape[1], y.shape[1]), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=loaded(x, nl.bfloat16), moving=loaded(y, nl.float8_e4m3))
        tile = nl.ndarray(psum.shape, nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=tile, src=psum)
        return stored(tile)

    x, y = np.full((1, 2), BETWEEN), np.full((1, 3), np.float32(1000.0))
    assert (run(kernel, x, y) == BETWEEN * np.float32(1000.0)).all()
    assert (run(kernel, x, y, precise=True) == 240.0).all()


@pytest.mark.parametrize("dtype", NARROW)
def test_arithmetic_takes_the_values(dtype):
    def kernel(x):
        tile = loaded(x, dtype)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
        return stored(tile, nl.float32)

    x = np.full((4, 8), BETWEEN)
    assert (run(kernel, x) == 2 * BETWEEN).all()
    assert (run(kernel, x, precise=True) == 2).all()


def test_a_constant_is_float32():
    def kernel(x):
        tile = nl.ndarray(x.shape, nl.bfloat16, nl.sbuf)
        nisa.memset(tile, 0.1)
        return stored(tile)

    assert (run(kernel, np.ones((2, 2), np.float32)) == np.float32(0.1)).all()


# -- bytes are bytes --------------------------------------------------------------------------------------------------


def test_a_view_as_bits_sees_what_the_hardware_has():
    def kernel(x):
        return stored(loaded(x, nl.bfloat16).view(nl.uint16))

    assert (run(kernel, np.full((2, 4), BETWEEN)) == 0x3F80).all()


@pytest.mark.parametrize(("dtype", "value"), [(nl.uint16, 0x3F80), (nl.uint8, 0x3F), (nl.uint32, 0x3F803F80)])
def test_what_is_written_as_bits_has_no_value_beside_it(dtype, value):
    """Also where the bytes are the same as before."""

    def kernel(x):
        tile = loaded(x, nl.bfloat16)
        nisa.memset(tile.view(dtype)[:, 0:2], value)
        return stored(tile, nl.float32)

    out = run(kernel, np.full((2, 8), BETWEEN))
    touched = 2 * dtype.size_bytes // 2
    bits = 0x3F3F if dtype == nl.uint8 else 0x3F80
    assert (out[:, :touched] == np.uint16(bits).view(ml_dtypes.bfloat16)).all()
    assert (out[:, touched:] == BETWEEN).all()


def test_another_format_of_the_same_size_does_not_see_the_value():
    def kernel(x):
        return stored(loaded(x, nl.bfloat16).view(nl.float16), nl.float32)

    expected = np.array([0x3F80], np.uint16).view(np.float16).astype(np.float32)
    assert (run(kernel, np.full((2, 4), BETWEEN)) == expected).all()


def test_a_tensor_at_the_same_address_overwrites_values():
    def kernel(x):
        one = nl.ndarray(x.shape, nl.bfloat16, nl.sbuf, address=(0, 0))
        nisa.dma_copy(dst=one, src=x)
        other = nl.ndarray(x.shape, nl.float8_e4m3, nl.sbuf, address=(0, 0))
        nisa.memset(other, 1.0)
        nisa.memset(one, 1.0)
        return stored(one)

    assert (run(kernel, np.full((2, 4), BETWEEN)) == 1.0).all()
