"""The formats of MX and tfloat32 through kernels: arguments, allocations, views, copies, outputs."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand, UnknownBehavior

PACKED = [nl.float8_e4m3fn_x4, nl.float8_e5m2_x4, nl.float4_e2m1fn_x4]
WIDTH = {nl.float8_e4m3fn_x4: np.uint32, nl.float8_e5m2_x4: np.uint32, nl.float4_e2m1fn_x4: np.uint16}


def run(kernel, *arrays, chip="trn3"):
    return neurosim.simulate(kernel, chip)(*arrays).outputs


def random_bits(dtype, *shape):
    return np.random.default_rng(5).integers(0, 1 << 16, shape).astype(WIDTH[dtype]) * WIDTH[dtype](0x8001)


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("engine", ["unknown", "vector", "gpsimd"])
def test_bits_pass_through_copies(dtype, engine):
    """An array of the format goes in, by DMA and by an engine, through a view with gaps, and comes out as it was."""

    def kernel(x):
        tile, other = nl.ndarray(x.shape, x.dtype), nl.ndarray((x.shape[0], 2 * x.shape[1]), x.dtype)
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_copy(dst=other[:, 1::2], src=tile, engine=getattr(nisa.engine, engine))
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=other[:, 1::2])
        assert x.dtype == dtype == str(dtype)
        return out

    bits = random_bits(dtype, 8, 6)
    out = run(kernel, bits.view(np.dtype(dtype)))
    assert out.dtype == np.dtype(dtype)
    assert np.array_equal(out.view(bits.dtype), bits)


@pytest.mark.parametrize("dtype", PACKED)
def test_integers_stand_for_it_through_a_view(dtype):
    """How frameworks pass weights that they have no dtype for: bytes or words, and a view in the kernel."""

    def kernel(x):
        packed = x.view(dtype) if x.dtype.size_bytes == dtype.size_bytes else x.view(nl.uint8).view(dtype)
        tile = nl.ndarray(packed.shape, dtype)
        nisa.dma_copy(dst=tile, src=packed)
        assert tile.dtype.itemsize == dtype.size_bytes
        back = tile.view(nl.uint8)
        out = nl.ndarray(back.shape, nl.uint8, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=back)
        return out

    bits = random_bits(dtype, 8, 6)
    for array in (bits, bits.view(np.uint8), bits.view(np.uint16)):
        out = run(kernel, array)
        assert out.shape == (8, 6 * dtype.size_bytes)
        assert np.array_equal(out.view(bits.dtype), bits)


def test_a_view_holds_the_parts_in_order():
    """Element j of a row is values 4j … 4j + 3 of the row seen as 8-bit floats."""

    def kernel(x):
        tile = nl.ndarray((4, 2), nl.float8_e5m2_x4)
        nisa.dma_copy(dst=tile, src=x.view(nl.float8_e5m2_x4))
        values = nl.ndarray((4, 8), nl.float32)
        nisa.tensor_copy(dst=values, src=tile.view(nl.float8_e5m2))
        out = nl.ndarray((4, 8), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=values)
        return out

    x = np.arange(32, dtype=np.float32).reshape(4, 8).astype(ml_dtypes.float8_e5m2)
    assert np.array_equal(run(kernel, x), x.astype(np.float32))


@pytest.mark.parametrize("dtype", PACKED)
def test_in_place_and_zero(dtype):
    """The caller's array gets its elements back; memset takes 0 and nothing else."""

    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype)
        nisa.memset(dst=tile, value=0)
        nisa.dma_copy(dst=x[:, 0:2], src=tile[:, 0:2])
        return x

    bits = random_bits(dtype, 8, 6)
    x = bits.copy().view(np.dtype(dtype))
    run(kernel, x)
    assert (x.view(bits.dtype)[:, :2] == 0).all()
    assert np.array_equal(x.view(bits.dtype)[:, 2:], bits[:, 2:])

    def wrong(x):
        nisa.memset(dst=nl.ndarray((8, 6), dtype), value=1)

    with pytest.raises(IllegalOperand, match="values in one element: 0 is the only one"):
        run(wrong, x)


def test_torch_gets_words():
    torch = pytest.importorskip("torch")

    def kernel(x):
        tile = nl.ndarray((4, 2), nl.float8_e4m3fn_x4)
        nisa.dma_copy(dst=tile, src=x.view(nl.float8_e4m3fn_x4))
        out = nl.ndarray((4, 2), nl.float8_e4m3fn_x4, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    x = torch.arange(32, dtype=torch.uint8).reshape(4, 8)
    out = run(kernel, x)
    assert out.dtype == torch.uint32
    assert torch.equal(out.view(torch.uint8), x)


def used(dtype, chip="trn3"):
    """Run one instruction after the other on a tile of the format; return what each says."""

    def attempt(body):
        def kernel(x):
            tile = nl.ndarray((32, 8), dtype)
            nisa.memset(dst=tile, value=0)
            body(tile)

        with pytest.raises(IllegalOperand) as caught:
            run(kernel, np.zeros((1, 1), np.float32), chip=chip)
        return str(caught.value)

    return attempt


@pytest.mark.parametrize("dtype", PACKED)
def test_no_arithmetic(dtype):
    says = used(dtype)
    message = says(lambda tile: nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0))
    assert f"tensor_scalar: dst is {dtype}, 4 values in one element, which no engine computes with here" in message
    message = says(lambda tile: nisa.tensor_copy(dst=nl.ndarray((32, 8), nl.float32), src=tile))
    assert f"dst is float32 and src is {dtype}; packed formats do not convert" in message
    message = says(lambda tile: nisa.tensor_copy(dst=tile, src=tile, engine=nisa.engine.scalar))
    assert f"Scalar goes through float32, and src is {dtype}" in message
    message = says(lambda tile: nisa.dma_copy(dst=nl.ndarray((32, 8), nl.uint8, nl.shared_hbm), src=tile))
    assert f"dst is uint8 and src is {dtype}; packed formats do not convert" in message
    assert "take a .view() of one of them" in message


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("chip", ["trn1", "trn2"])
def test_older_generations_have_none(dtype, chip):
    message = used(dtype, chip)(lambda tile: None)
    assert f"memset: {dtype} needs NeuronCore-v4 (trn3)" in message


def test_transposes_move_packed_elements():
    """ "The input data tile can be any valid NKI data type." """

    def kernel(x):
        tile, turned = nl.ndarray((6, 4), x.dtype), nl.ndarray((4, 6), x.dtype)
        nisa.dma_copy(dst=tile, src=x)
        nisa.nc_transpose(dst=turned, data=tile, engine=nisa.engine.vector)
        out = nl.ndarray((4, 6), x.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=turned)
        return out

    bits = random_bits(nl.float8_e4m3fn_x4, 6, 4)
    out = run(kernel, bits.view(np.dtype(nl.float8_e4m3fn_x4)))
    assert np.array_equal(out.view(np.uint32), bits.T)


def test_scales():
    """float8_e8m0fnu is a power of two for every engine, and its codes through a view."""

    def kernel(x):
        scale, codes = nl.ndarray((4, 3), nl.float8_e8m0fnu), nl.ndarray((4, 3), nl.float32)
        nisa.dma_copy(dst=scale, src=x)
        nisa.tensor_scalar(dst=codes, data=scale, op0=nl.multiply, operand0=3.0)
        nisa.memset(dst=scale[:, 0:1], value=0.25)
        outs = [nl.ndarray((4, 3), dtype, nl.shared_hbm) for dtype in (nl.float32, nl.float8_e8m0fnu, nl.uint8)]
        for out, tile in zip(outs, (codes, scale, scale.view(nl.uint8)), strict=True):
            nisa.dma_copy(dst=out, src=tile)
        return tuple(outs)

    x = np.arange(120, 132, dtype=np.uint8).reshape(4, 3)
    values, scales, codes = run(kernel, x.view(ml_dtypes.float8_e8m0fnu), chip="trn2")
    assert np.array_equal(values, 3 * 2.0 ** (x.astype(np.float32) - 127))
    assert scales.dtype == ml_dtypes.float8_e8m0fnu
    assert np.array_equal(codes, scales.view(np.uint8))
    assert np.array_equal(codes[:, 1:], x[:, 1:])
    assert (codes[:, 0] == 125).all()


def test_nothing_is_known_to_round_to_scales():
    """Results of an engine and casts are refused in words, before anything is computed."""

    def computed(tile, scale):
        nisa.activation(dst=scale, op=nl.exp, data=tile)

    def copied(tile, scale):
        nisa.tensor_copy(dst=scale, src=tile)

    def cast(tile, scale):
        nisa.dma_copy(dst=scale, src=tile)

    for body in (computed, copied, cast):
        with pytest.raises(UnknownBehavior, match="is float8_e8m0fnu, which holds powers of two") as caught:
            run(lambda x, body=body: body(nl.load(x), nl.ndarray(x.shape, nl.float8_e8m0fnu)), np.ones((2, 3), "f4"))
        assert "write it through .view(nl.uint8)" in str(caught.value)


@pytest.mark.parametrize("value", [0, 3.0, -1.0, 2.0**-128, float("inf")])
def test_what_is_no_scale_is_refused(value):
    def kernel(x):
        nisa.memset(dst=nl.ndarray((4, 3), nl.float8_e8m0fnu), value=value)

    with pytest.raises(IllegalOperand, match="does not fit float8_e8m0fnu"):
        run(kernel, np.zeros((1, 1), np.float32))


def test_tfloat32_rounds_where_it_is_written():
    """Ten bits of mantissa in four bytes; arrays of it are float32."""

    def kernel(x):
        tile, wide = nl.ndarray(x.shape, nl.tfloat32), nl.ndarray(x.shape, nl.float32)
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_copy(dst=wide, src=tile)
        outs = [nl.ndarray(x.shape, dtype, nl.shared_hbm) for dtype in (nl.tfloat32, nl.float32)]
        nisa.dma_copy(dst=outs[0], src=tile)
        nisa.dma_copy(dst=outs[1], src=wide)
        return tuple(outs)

    x = np.array([[1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-10, -0.1, np.inf]], np.float32)
    stored, read = run(kernel, x, chip="trn2")
    assert stored.dtype == read.dtype == np.float32
    assert np.array_equal(stored, read)
    assert stored[0, :3].tolist() == [1.0, 1 + 2.0**-9, 1 + 2.0**-10]
    assert abs(stored[0, 3] + 0.1) < 2.0**-14
    assert np.dtype(nl.tfloat32) == np.float32


def test_arrays_that_nki_lacks_say_so():
    with pytest.raises(IllegalOperand, match="float4_e2m1fn, which is not an NKI dtype"):
        run(lambda x: None, np.zeros((4, 4), ml_dtypes.float4_e2m1fn))
