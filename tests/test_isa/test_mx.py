"""``quantize_mx`` and ``nc_matmul_mx`` against plain loops over blocks, and ml_dtypes for the formats."""

from __future__ import annotations

import math

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim
from neurosim.errors import IllegalOperand, Uninitialized, UnknownBehavior
from neurosim.memory import Allocation

F = np.float32
BF16 = ml_dtypes.bfloat16
VALUES = {
    nl.float8_e4m3fn_x4: ml_dtypes.float8_e4m3fn,
    nl.float8_e5m2_x4: ml_dtypes.float8_e5m2,
    nl.float4_e2m1fn_x4: ml_dtypes.float4_e2m1fn,
}
LARGEST = {nl.float8_e4m3fn_x4: (8, 448.0), nl.float8_e5m2_x4: (15, 57344.0)}
QUANTIZED = list(LARGEST)


def reference(values, dtype, doubled=True):
    """Quantize by the manual's formula, in Python's floats, block by block; return (values, codes of scales)."""
    rows, columns = values.shape
    exponent, most = LARGEST[dtype]
    quantized = np.zeros(values.shape, F)
    codes = np.zeros((rows // 8, columns // 4), np.uint8)
    for r in range(0, rows, 8):
        for c in range(0, columns, 4):
            block = values[r : r + 8, c : c + 4].astype(np.float64)
            largest = float(np.abs(block).max())
            scale = -127
            if largest > 0:
                scale = max(math.floor(math.log2(largest)) - (exponent - (1 if doubled else 0)), -127)
            codes[r // 8, c // 4] = scale + 127
            quantized[r : r + 8, c : c + 4] = np.clip(block / 2.0**scale, -most, most).astype(F)
    return quantized.astype(VALUES[dtype]), codes


def rows_of(scales, partitions):
    """Return the rows that hold scales: four at the beginning of each 32."""
    return np.vstack([scales[start : start + 4] for start in range(0, partitions, 32)])


def quantizer(dtype, scale_dtype=nl.uint8, spare=0):
    """Quantize an array into (packed, all rows of the scale tile)."""

    def kernel(x):
        rows, columns = x.shape
        packed, scale = nl.ndarray((rows, columns // 4), dtype), nl.ndarray((rows + spare, columns // 4), scale_dtype)
        nisa.memset(dst=scale.view(nl.uint8), value=7)
        nisa.quantize_mx(dst=packed, src=nl.load(x), dst_scale=scale)
        outs = [nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm) for tile in (packed, scale)]
        for out, tile in zip(outs, (packed, scale), strict=True):
            nisa.dma_copy(dst=out, src=tile)
        return tuple(outs)

    return kernel


def quantized(x, dtype, scale_dtype=nl.uint8, version=None):
    packed, scale = neurosim.simulate(quantizer(dtype, scale_dtype), "trn3", nki_version=version)(x).outputs
    return packed.view(VALUES[dtype]).reshape(x.shape), scale.view(np.uint8)


def bits(array):
    return np.ascontiguousarray(array).view(np.uint8)


# -- quantize_mx ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", QUANTIZED)
@pytest.mark.parametrize("source", [BF16, np.float16])
@pytest.mark.parametrize("shape", [(32, 4), (64, 40), (96, 8), (128, 512)])
@pytest.mark.parametrize("version", ["0.4", "0.5", "0.6"])
def test_quantizes_by_the_formula(rng, dtype, source, shape, version):
    x = (rng.standard_normal(shape) * 10.0 ** rng.uniform(-3, 3, (shape[0], 1))).astype(source)
    values, scales = quantized(x, dtype, version=version)
    expected, codes = reference(x, dtype, doubled=version != "0.4")
    np.testing.assert_array_equal(bits(values), bits(expected))
    np.testing.assert_array_equal(rows_of(scales, shape[0]), codes)


def test_the_scale_of_one_block_by_hand():
    """Largest magnitude 7 = 1.75 · 2²: E4M3 ends at 2⁸, so 2 ** (2 - 7) since NKI 0.5 and 2 ** (2 - 8) before."""
    x = np.zeros((32, 4), BF16)
    x[3, 1], x[0, 0] = -7, 0.5
    values, scales = quantized(x, nl.float8_e4m3fn_x4)
    assert scales[0, 0] == 127 - 5
    assert (float(values[3, 1]), float(values[0, 0])) == (-224.0, 16.0)
    values, scales = quantized(x, nl.float8_e4m3fn_x4, version="0.3")
    assert scales[0, 0] == 127 - 6
    assert (float(values[3, 1]), float(values[0, 0])) == (-448.0, 32.0)
    assert (scales[1:4, 0] == 0).all()  # blocks of zeros


def test_the_older_scale_clamps_what_the_newer_one_rounds():
    """1.96875 · 2⁸ is beyond 448: the release notes of NKI 0.5 call that a rounding bias."""
    x = np.zeros((32, 4), BF16)
    x[0, 0] = 1.9921875
    older, _ = quantized(x, nl.float8_e4m3fn_x4, version="0.4")
    newer, scales = quantized(x, nl.float8_e4m3fn_x4, version="0.5")
    assert float(older[0, 0]) / 256 == 1.75
    assert float(newer[0, 0]) * 2.0 ** (int(scales[0, 0]) - 127) == 2.0


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_blocks_of_zeros_and_of_denormals(dtype):
    """A zero block has the smallest scale, 2⁻¹²⁷, and so has one whose scale the format does not hold."""
    x = np.zeros((32, 16), BF16)
    x[8:16, 4:8] = -0.0
    x[0, 8], x[9, 13] = 2.0**-133, -(2.0**-120)
    values, scales = quantized(x, dtype)
    expected, codes = reference(x, dtype)
    assert codes[0, 0] == codes[1, 1] == codes[0, 2] == 0
    np.testing.assert_array_equal(scales[:4], codes)
    np.testing.assert_array_equal(bits(values), bits(expected))
    assert float(values[9, 13]) * 2.0 ** (int(scales[1, 3]) - 127) == -(2.0**-120)


def test_the_largest_values(rng):
    top = np.full((32, 4), ml_dtypes.finfo(BF16).max, BF16)
    values, scales = quantized(top, nl.float8_e5m2_x4)
    assert scales[0, 0] == 127 + 127 - 14
    assert (values.astype(F) == 2.0**15).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_inf_and_nan_are_not_guessed(machine, value):
    x = np.ones((32, 8), BF16)
    x[5, 6] = value
    with pytest.raises(UnknownBehavior, match="src holds Inf or NaN") as caught:
        quantized(x, nl.float8_e4m3fn_x4)
    assert "not finite: [5:6, 6:7] (1 of 256 elements)" in str(caught.value)


def test_what_lies_between_scales_stays(rng):
    x = rng.standard_normal((128, 8)).astype(BF16)
    for scale_dtype in (nl.uint8, nl.float8_e8m0fnu):
        _, scales = quantized(x, nl.float8_e5m2_x4, scale_dtype)
        between = np.arange(128) % 32 >= 4
        assert (scales[between] == 7).all()
        np.testing.assert_array_equal(scales[~between], reference(x, nl.float8_e5m2_x4)[1])


def test_only_scales_count_as_written(rng):
    def kernel(x):
        packed, scale = nl.ndarray((64, 2), nl.float8_e5m2_x4), nl.ndarray((64, 2), nl.uint8)
        nisa.quantize_mx(dst=packed, src=nl.load(x), dst_scale=scale)
        out = nl.ndarray((64, 2), nl.uint8, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=scale)
        return out

    with pytest.raises(Uninitialized, match=r"\[4:64, 0:2\]"):
        neurosim.simulate(kernel, "trn3")(rng.standard_normal((64, 8)).astype(BF16))


@pytest.mark.parametrize("column", [0, 1, 2, 3])
def test_a_hole_reaches_its_block(rng, column):
    """A value that nobody wrote makes its 32 values and their scale unwritten, and no others."""

    def kernel(x):
        tile, packed = nl.ndarray((32, 16), nl.bfloat16), nl.ndarray((32, 4), nl.float8_e5m2_x4)
        scale = nl.ndarray((4, 4), nl.uint8)
        nisa.dma_copy(dst=tile[:, 0:9], src=x[:, 0:9])
        nisa.dma_copy(dst=tile[0:31, 9:16], src=x[0:31, 9:16])
        nisa.dma_copy(dst=tile[:, 10:16], src=x[:, 10:16])  # element [31, 9] stays unwritten
        nisa.quantize_mx(dst=packed, src=tile, dst_scale=scale)
        outs = [nl.ndarray((rows, 1), made.dtype, nl.shared_hbm) for made, rows in ((packed, 24), (scale, 3))]
        outs += [nl.ndarray((rows, 1), made.dtype, nl.shared_hbm) for made, rows in ((packed, 8), (scale, 1))]
        nisa.dma_copy(dst=outs[0], src=packed[0:24, column : column + 1])
        nisa.dma_copy(dst=outs[1], src=scale[0:3, column : column + 1])
        nisa.dma_copy(dst=outs[2], src=packed[24:32, column : column + 1])
        nisa.dma_copy(dst=outs[3], src=scale[3:4, column : column + 1])
        return tuple(outs)

    x = rng.standard_normal((32, 16)).astype(BF16)
    run = neurosim.simulate(kernel, "trn3")
    if column == 2:
        with pytest.raises(Uninitialized, match=r"src of quantize_mx|first read"):
            run(x)
        return
    expected, codes = reference(x, nl.float8_e5m2_x4)
    outs = run(x).outputs
    np.testing.assert_array_equal(np.vstack([outs[1], outs[3]])[:, 0], codes[:, column])
    packed = np.vstack([outs[0], outs[2]])
    np.testing.assert_array_equal(bits(packed).reshape(32, 4), bits(expected[:, 4 * column : 4 * column + 4]))


def test_views_and_more_axes(rng):
    """Groups of four lie side by side in the operand's own order, whatever its steps."""
    x = rng.standard_normal((32, 3, 2, 8)).astype(np.float16)

    def kernel(x):
        packed, scale = nl.ndarray((32, 3, 4), nl.float8_e4m3fn_x4), nl.ndarray((4, 3, 4), nl.uint8)
        tile = nl.load(x)
        nisa.quantize_mx(dst=packed[:, :, 1:3], src=tile[:, :, 1, :], dst_scale=scale[:, :, 2:4])
        outs = [nl.ndarray((made.shape[0], 3, 2), made.dtype, nl.shared_hbm) for made in (packed, scale)]
        nisa.dma_copy(dst=outs[0], src=packed[:, :, 1:3])
        nisa.dma_copy(dst=outs[1], src=scale[:, :, 2:4])
        return tuple(outs)

    packed, scale = neurosim.simulate(kernel, "trn3")(x).outputs
    expected, codes = reference(x[:, :, 1, :].reshape(32, 24), nl.float8_e4m3fn_x4)
    np.testing.assert_array_equal(bits(packed.view(np.uint32)).reshape(32, 24), bits(expected))
    np.testing.assert_array_equal(scale.reshape(4, 6), codes)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_block(data):
    """Exponents from end to end of bfloat16, in either format and version."""
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    dtype = data.draw(st.sampled_from(QUANTIZED))
    version = data.draw(st.sampled_from(["0.4", "0.6"]))
    exponents = data.draw(st.integers(-133, 127)) + rng.integers(-12, 1, (32, 8))
    signs = rng.choice([-1.0, 1.0], (32, 8))
    x = np.clip(np.ldexp(signs * rng.uniform(1, 2, (32, 8)), exponents), -3e38, 3e38).astype(BF16)
    values, scales = quantized(x, dtype, version=version)
    expected, codes = reference(x, dtype, doubled=version == "0.6")
    np.testing.assert_array_equal(bits(values), bits(expected))
    np.testing.assert_array_equal(scales[:4], codes)


# -- nc_matmul_mx -----------------------------------------------------------------------------------------------------


def unpacked(array, dtype):
    """Return packed elements [K, F] as float32 [K, F, 4], by ml_dtypes."""
    array = np.ascontiguousarray(array)
    if dtype == nl.float4_e2m1fn_x4:
        codes = array.view(np.uint8).reshape(*array.shape, 2)
        codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*array.shape, 4)
        return codes.astype(np.uint8).view(ml_dtypes.float4_e2m1fn).astype(F)
    return array.view(VALUES[dtype]).reshape(*array.shape, 4).astype(F)


def scaled(array, dtype, scales):
    """Return [4 K, F] values times their scales, the four of an element after each other."""
    factors = np.repeat(np.ldexp(1.0, rows_of(scales, len(array)).astype(int) - 127), 8, axis=0)
    values = unpacked(array, dtype).astype(np.float64) * factors[..., None]
    return values.transpose(0, 2, 1).reshape(-1, array.shape[1]).astype(F)


def loop(stationary, moving):
    """Return stationary.T @ moving in float32, k ascending."""
    total = np.zeros((stationary.shape[1], moving.shape[1]), F)
    for k in range(len(stationary)):
        total = total + stationary[k][:, None] * moving[k]
    return total


def random_operand(rng, dtype, shape):
    """Return (packed bits, scales with noise between them)."""
    codes = rng.integers(0, 64, (*shape, dtype.size_bytes)) | rng.choice([0, 128], (*shape, dtype.size_bytes))
    return codes.astype(np.uint8).view(dtype.bits)[..., 0], rng.integers(122, 131, shape).astype(np.uint8)


def matmul_kernel(formats, dst=nl.float32, scale_dtype=nl.uint8, repeat=1, **options):
    def kernel(a, a_scale, b, b_scale):
        tiles = [nl.load(a.view(formats[0])), nl.load(b.view(formats[1]))]
        tiles += [nl.load(scale.view(scale_dtype)) for scale in (a_scale, b_scale)]
        psum = nl.ndarray((a.shape[1], b.shape[1]), dst, nl.psum)
        for _ in range(repeat):
            nisa.nc_matmul_mx(psum, *tiles, **options)
        copy, out = nl.ndarray(psum.shape, dst), nl.ndarray(psum.shape, dst, nl.shared_hbm)
        nisa.tensor_copy(dst=copy, src=psum)
        nisa.dma_copy(dst=out, src=copy)
        return out

    return kernel


def multiplied(formats, a, b, **options):
    return neurosim.simulate(matmul_kernel(formats, **options), "trn3")(*a, *b)


@pytest.mark.parametrize("one", VALUES)
@pytest.mark.parametrize("other", VALUES)
@pytest.mark.parametrize("shape", [(32, 2, 1), (128, 64, 40), (96, 6, 33)])
def test_multiplies_scaled_blocks(rng, one, other, shape):
    """MXFP8 and MXFP4 in any combination; K is four times the partitions."""
    K, M, N = shape
    a, b = random_operand(rng, one, (K, M)), random_operand(rng, other, (K, N))
    got = multiplied((one, other), a, b).outputs
    np.testing.assert_array_equal(got, loop(scaled(a[0], one, a[1]), scaled(b[0], other, b[1])))


def test_a_product_by_hand():
    """Four ones and their scales 2 and 8 in each of 32 partitions: 4 · 32 · 16."""
    ones = np.full((32, 4), 0x38383838, np.uint32)  # 1.0 in float8_e4m3fn
    scales = [np.full((4, 4), code, np.uint8) for code in (128, 130)]
    got = multiplied([nl.float8_e4m3fn_x4] * 2, (ones, scales[0]), (ones, scales[1])).outputs
    assert (got == 4 * 32 * 16).all()


@pytest.mark.parametrize("scale_dtype", [nl.uint8, nl.float8_e8m0fnu])
def test_quantized_operands_give_the_product(rng, scale_dtype):
    """From bfloat16 through both instructions: as close as the formats are."""
    x, y = rng.standard_normal((128, 128)).astype(BF16), rng.standard_normal((128, 256)).astype(BF16)

    def kernel(x, y):
        packed, scales = [], []
        for tensor in (x, y):
            packed.append(nl.ndarray((128, tensor.shape[1] // 4), nl.float8_e4m3fn_x4))
            scales.append(nl.ndarray((128, tensor.shape[1] // 4), scale_dtype))
            nisa.quantize_mx(dst=packed[-1], src=nl.load(tensor), dst_scale=scales[-1])
        psum = nl.ndarray((32, 64), nl.float32, nl.psum)
        nisa.nc_matmul_mx(psum, packed[0], packed[1], scales[0], scales[1])
        copy, out = nl.ndarray((32, 64), nl.float32), nl.ndarray((32, 64), nl.float32, nl.shared_hbm)
        nisa.tensor_copy(dst=copy, src=psum)
        nisa.dma_copy(dst=out, src=copy)
        return out

    got = neurosim.simulate(kernel, "trn3")(x, y).outputs
    exact = np.einsum("kiq,kjq->ij", x.astype(F).reshape(128, 32, 4), y.astype(F).reshape(128, 64, 4))
    assert np.abs(got - exact).max() < 0.16 * np.sqrt(512)  # four deviations of the rounding of both
    assert np.corrcoef(got.reshape(-1), exact.reshape(-1))[0, 1] > 0.998


def test_scales_of_four_tiles_in_one(rng):
    """Offsets 0, 4, 8 and 12 within each quadrant: written by quantize_mx, read by nc_matmul_mx."""
    x = rng.standard_normal((4, 64, 16)).astype(BF16)

    def kernel(x):
        shared = nl.ndarray((64, 4), nl.uint8)
        packed = [nl.ndarray((64, 4), nl.float8_e5m2_x4) for _ in range(4)]
        for index in range(4):
            nisa.quantize_mx(dst=packed[index], src=nl.load(x[index]), dst_scale=shared[4 * index :, :])
        psum = nl.ndarray((4, 4), nl.float32, nl.psum)
        nisa.nc_matmul_mx(psum, packed[1], packed[3], shared[4:, :], shared[12:, :])
        copy, out = nl.ndarray((4, 4), nl.float32), nl.ndarray((4, 4), nl.float32, nl.shared_hbm)
        nisa.tensor_copy(dst=copy, src=psum)
        nisa.dma_copy(dst=out, src=copy)
        return out

    got = neurosim.simulate(kernel, "trn3")(x).outputs
    parts = []
    for index in (1, 3):
        values, codes = reference(x[index], nl.float8_e5m2_x4)
        factors = np.repeat(np.repeat(np.ldexp(1.0, codes.astype(int) - 127), 8, axis=0), 4, axis=1)
        parts.append(
            (values.astype(np.float64) * factors).reshape(64, 4, 4).transpose(0, 2, 1).reshape(256, 4).astype(F)
        )
    np.testing.assert_array_equal(got, loop(*parts))


def test_sums_over_calls_and_in_bfloat16(rng):
    formats = (nl.float8_e5m2_x4, nl.float4_e2m1fn_x4)
    a, b = random_operand(rng, formats[0], (32, 4)), random_operand(rng, formats[1], (32, 6))
    once = loop(scaled(a[0], formats[0], a[1]), scaled(b[0], formats[1], b[1]))
    np.testing.assert_array_equal(multiplied(formats, a, b, repeat=2).outputs, once + once)
    np.testing.assert_array_equal(multiplied(formats, a, b, repeat=2, accumulate=False).outputs, once)
    got = multiplied(formats, a, b, dst=nl.bfloat16, repeat=2).outputs
    np.testing.assert_array_equal(bits(got), bits((once.astype(BF16).astype(F) + once).astype(BF16)))
    with pytest.raises(Uninitialized, match="nc_matmul_mx: accumulate=True onto PSUM that nobody wrote"):
        multiplied(formats, a, b, accumulate=True)


def test_nan_scales_and_values(rng):
    """Code 0xFF is NaN, for all that its block reaches; Inf and NaN of float8_e5m2 flow as in other sums."""
    formats = [nl.float8_e5m2_x4] * 2
    a, b = random_operand(rng, formats[0], (32, 4)), random_operand(rng, formats[1], (32, 6))
    a[1][1, 2] = 0xFF
    b[0].view(np.uint8)[7, 4 * 3] = 0x7C  # Inf
    got = multiplied(formats, a, b).outputs
    assert np.isnan(got[2]).all()
    assert not np.isfinite(got[:, 3]).any()
    assert np.isfinite(np.delete(np.delete(got, 2, 0), 3, 1)).all()


def test_rows_of_the_array(rng):
    formats = [nl.float8_e4m3fn_x4] * 2
    a, b = random_operand(rng, formats[0], (64, 4)), random_operand(rng, formats[1], (64, 6))
    whole = multiplied(formats, a, b)
    tiled = multiplied(formats, a, b, tile_position=(64, 0), tile_size=(64, 128))
    np.testing.assert_array_equal(whole.outputs, tiled.outputs)
    works = [result.program.record(4).signature.work[0] for result in (whole, tiled)]
    assert [(work.tile_row, work.tile_rows, work.depth) for work in works] == [(0, 0, 4), (64, 64, 4)]


def test_time_is_that_of_a_quarter_of_the_rows(machine, rng):
    """ "4x throughput compared to BF16": K = 512 in the time of K = 128, at a peak of 315 TFLOPS."""
    formats = [nl.float8_e4m3fn_x4] * 2
    a, b = random_operand(rng, formats[0], (128, 128)), random_operand(rng, formats[1], (128, 512))
    timeline = multiplied(formats, a, b).timeline

    def plain(x, y):
        psum = nl.ndarray((128, 512), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=x, moving=y)
        return x

    busy, _ = machine.time("nc_matmul", plain, np.ones((128, 128), BF16), np.ones((128, 512), BF16), chip="trn3")
    assert timeline.busy_ps["tensor"] / 1000 == pytest.approx(busy)
    assert timeline.flops == {"float8_e4m3fn_x4": 2 * 512 * 128 * 512}
    assert timeline.peak_ps == pytest.approx(2 * 512 * 128 * 512 / 314.6, rel=1e-3)


def test_quantization_takes_a_quarter_of_a_cycle_per_element():
    """trainium3_arch.rst: four input elements per partition and cycle, at 1.2 GHz."""
    times = []
    for columns in (1024, 5120):
        result = neurosim.profile(quantizer(nl.float8_e4m3fn_x4), "trn3")(np.ones((128, columns), BF16))
        ops = result.timeline.ops
        mnemonic = [result.program.record(index).signature.instruction for index in range(len(result.program))]
        mine = ops[(ops["record"] == mnemonic.index("quantize_mx")) & (ops["unit"] == 1)]
        times.append(int(mine["end_ps"][0] - mine["start_ps"][0]))
    assert (times[1] - times[0]) / 4096 == pytest.approx(1000 / 1.2 / 4, rel=0.05)


def test_operands_that_offsets_choose(rng):
    """Data and scales by the same offsets, each quadrant by its own; dst by itself."""
    formats = [nl.float8_e4m3fn_x4] * 2
    a, b = random_operand(rng, formats[0], (64, 6)), random_operand(rng, formats[1], (64, 5))
    index = rng.permuted(np.tile(np.arange(6, dtype=np.uint16), (64, 1)), axis=1)

    def kernel(a, a_scale, b, b_scale, index, same=True):
        tiles = [nl.load(tensor) for tensor in (a.view(formats[0]), b.view(formats[1]), a_scale, b_scale, index)]
        psum = nl.ndarray((4, 5), nl.float32, nl.psum)
        chosen = [tile.indirect(tiles[4], num_elem=4) for tile in (tiles[0], tiles[2])]
        nisa.nc_matmul_mx(psum, chosen[0], tiles[1], chosen[1] if same else tiles[2][:, 0:4], tiles[3])
        copy, out = nl.ndarray((4, 5), nl.float32), nl.ndarray((4, 5), nl.float32, nl.shared_hbm)
        nisa.tensor_copy(dst=copy, src=psum)
        nisa.dma_copy(dst=out, src=copy)
        return out

    got = neurosim.simulate(kernel, "trn3")(*a, *b, index).outputs
    picked = [np.vstack([x[r : r + 32][:, index[r : r + 4, 0]] for r in (0, 32)]) for x in a]
    np.testing.assert_array_equal(got, loop(scaled(picked[0], formats[0], picked[1]), scaled(b[0], formats[1], b[1])))
    with pytest.raises(IllegalOperand, match="stationary and stationary_scale are not chosen by the same offsets"):
        neurosim.simulate(lambda *tensors: kernel(*tensors, same=False), "trn3")(*a, *b, index)


def test_offsets_that_look_alike_are_others(rng):
    """A call that differs from one before it only in which offsets choose the scales is refused."""
    format_ = nl.float8_e4m3fn_x4
    data, scale = random_operand(rng, format_, (64, 4))
    index = np.tile(np.arange(4, dtype=np.uint16), (64, 1))

    def kernel(data, scale, index):
        psum, data, scale = nl.ndarray((4, 4), nl.float32, nl.psum), nl.load(data.view(format_)), nl.load(scale)
        one, other = nl.load(index), nl.load(index)
        for second in (one, other):
            chosen = data.indirect(one, num_elem=4), scale.indirect(second, num_elem=4)
            nisa.nc_matmul_mx(psum, chosen[0], data, chosen[1], scale)

    with pytest.raises(IllegalOperand, match="stationary and stationary_scale are not chosen by the same offsets"):
        neurosim.simulate(kernel, "trn3")(data, scale, index)


@settings(max_examples=15, deadline=None)
@given(st.sampled_from([32, 64]), st.integers(1, 4), st.integers(1, 9), st.integers(0, 9999))
def test_any_product_is_the_loop(K, half, N, seed):
    rng = np.random.default_rng(seed)
    one, other = (list(VALUES)[index] for index in rng.integers(0, 3, 2))
    a, b = random_operand(rng, one, (K, 2 * half)), random_operand(rng, other, (K, N))
    got = multiplied((one, other), a, b).outputs
    np.testing.assert_array_equal(got, loop(scaled(a[0], one, a[1]), scaled(b[0], other, b[1])))


# -- what is refused --------------------------------------------------------------------------------------------------


def refusal(instruction, chip="trn3", **shapes):
    """Issue an instruction on zeroed tiles given as (shape, dtype, buffer, start); return what it says."""

    def kernel(x):
        tiles = {}
        for name, (shape, dtype, *where) in shapes.items():
            buffer, start = (*where, *(nl.sbuf, 0)[len(where) :])
            made = nl.ndarray((shape[0] + start, *shape[1:]), dtype, buffer)
            nisa.memset(dst=made.view(nl.uint8), value=0)
            tiles[name] = made[start:]
        instruction(**tiles)

    with pytest.raises(IllegalOperand) as caught:
        neurosim.simulate(kernel, chip)(np.zeros((1, 1), F))
    return str(caught.value)


E4 = nl.float8_e4m3fn_x4
GOOD = {"dst": ((64, 4), E4), "src": ((64, 16), nl.bfloat16), "dst_scale": ((64, 4), nl.uint8)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"src": ((64, 16), nl.float32)}, "src is float32; it must be float16 or bfloat16"),
        ({"dst": ((64, 4), nl.float4_e2m1fn_x4)}, "dst is float4_e2m1fn_x4; it must be float8_e4m3fn_x4 or"),
        ({"dst": ((64, 5), E4)}, "dst is 64 × 5 and src is 64 × 16"),
        ({"src": ((40, 16), nl.bfloat16)}, "src has 40 partitions; blocks need a multiple of 32"),
        ({"dst_scale": ((64, 4), nl.int8)}, "dst_scale is int8; it must be float8_e8m0fnu or uint8"),
        ({"dst_scale": ((64, 5), nl.uint8)}, "dst_scale has 5 elements per partition; src has 4 blocks"),
        ({"dst_scale": ((8, 4), nl.uint8)}, "the scales of 64 partitions are spread over 36"),
        ({"dst_scale": ((64, 4), nl.uint8, nl.sbuf, 2)}, "the scales of src begin at 0, 4, 8, 12"),
        ({"dst_scale": ((64, 4), nl.uint8, nl.sbuf, 32)}, "dst_scale begins at partition 32"),
        ({"dst": ((64, 4), E4, nl.psum)}, "dst is in PSUM; it must be in SBUF"),
    ],
)
def test_quantize_refuses(changes, message):
    assert message in refusal(nisa.quantize_mx, **(GOOD | changes))


PRODUCT = {
    "dst": ((4, 6), nl.float32, nl.psum),
    "stationary": ((64, 4), E4),
    "moving": ((64, 6), nl.float8_e5m2_x4),
    "stationary_scale": ((64, 4), nl.uint8),
    "moving_scale": ((64, 6), nl.float8_e8m0fnu),
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stationary": ((64, 4), nl.bfloat16)}, "stationary is bfloat16; it must be float8_e4m3fn_x4 or"),
        ({"moving": ((32, 6), E4)}, "stationary has 64 partitions and moving has 32"),
        ({"dst": ((4, 6), nl.float16, nl.psum)}, "dst is float16; it must be float32 or bfloat16"),
        ({"dst": ((6, 4), nl.float32, nl.psum)}, "dst is 6 × 4; the product is 4 × 6"),
        (
            {
                "stationary": ((64, 3), E4),
                "stationary_scale": ((64, 3), nl.uint8),
                "dst": ((3, 6), nl.float32, nl.psum),
            },
            "stationary has 3 columns; they must be even",
        ),
        ({"moving_scale": ((4, 6), nl.uint8)}, "the scales of 64 partitions are spread over 36"),
        ({"moving_scale": ((64, 8), nl.uint8)}, "moving_scale has 8 elements per partition; moving has 6 blocks"),
    ],
)
def test_matmul_refuses(changes, message):
    assert message in refusal(nisa.nc_matmul_mx, **(PRODUCT | changes))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tile_position": (0, 0), "tile_size": (64, 64)}, "the column size must be 128"),
        ({"tile_position": (0, 32), "tile_size": (64, 128)}, "a tile of 128 columns begins at 0"),
        ({"tile_position": (0, 0), "tile_size": (32, 128)}, "its tile of the array is 32 × 128"),
        ({"tile_size": (64, 128)}, "tile_position=None is not a (rows, columns) pair"),
        ({"accumulate": "yes"}, "accumulate='yes'"),
    ],
)
def test_matmul_refuses_modes(options, message):
    assert message in refusal(lambda **tiles: nisa.nc_matmul_mx(**tiles, **options), **PRODUCT)


@pytest.mark.parametrize("chip", ["trn1", "trn2"])
def test_older_generations(chip):
    plain = {"dst": ((64, 4), nl.uint32), "src": ((64, 16), nl.bfloat16), "dst_scale": ((64, 4), nl.uint8)}
    assert "quantize_mx: it needs NeuronCore-v4 (trn3)" in refusal(nisa.quantize_mx, chip, **plain)


def test_holes_of_scales_reach_their_rows_and_columns(rng, monkeypatch):
    """What lies between scales may be unwritten; a missing scale makes a column of the product unwritten.

    Words for where a hole comes from cost more than a matmul: what reaches nothing is not described.
    """
    formats = [nl.float8_e4m3fn_x4] * 2
    a, b = random_operand(rng, formats[0], (64, 4)), random_operand(rng, formats[1], (64, 6))

    def kernel(a, a_scale, b, b_scale, missing=False):
        tiles = [nl.load(a.view(formats[0])), nl.load(b.view(formats[1])), nl.load(a_scale)]
        scale = nl.ndarray((64, 6), nl.uint8)
        for start in (0, 32):
            last = 5 if missing else 6
            nisa.dma_copy(dst=scale[start : start + 4, 0:last], src=b_scale[start : start + 4, 0:last])
        psum = nl.ndarray((4, 6), nl.float32, nl.psum)
        nisa.nc_matmul_mx(psum, tiles[0], tiles[1], tiles[2], scale)
        copy, out = nl.ndarray((4, 6), nl.float32), nl.ndarray((4, 6), nl.float32, nl.shared_hbm)
        nisa.tensor_copy(dst=copy, src=psum)
        nisa.dma_copy(dst=out, src=copy)
        return out

    with monkeypatch.context() as patch:
        patch.delattr(Allocation, "describe")
        got = neurosim.simulate(kernel, "trn3")(*a, *b).outputs
    np.testing.assert_array_equal(got, loop(scaled(a[0], formats[0], a[1]), scaled(b[0], formats[1], b[1])))
    with pytest.raises(Uninitialized, match=r"\[0:4, 5:6\]"):
        neurosim.simulate(lambda *tensors: kernel(*tensors, missing=True), "trn3")(*a, *b)
