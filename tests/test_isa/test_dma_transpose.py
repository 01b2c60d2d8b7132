"""``dma_transpose``: the three permutations, gathered sources, modes, and how long it takes against a copy."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.engines import Engine
from neurosim.errors import IllegalOperand, OutOfBounds, Uninitialized, Unsupported

ORDER = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def kernel(from_sbuf=False, dtype=None, shape=None, **options):
    def transposed(source):
        order = ORDER.get(source.ndim, (0,))
        if from_sbuf:
            tile = nl.ndarray(source.shape, source.dtype, nl.sbuf)
            nisa.dma_copy(dst=tile, src=source)
            source = tile
        made = nl.ndarray(shape or tuple(source.shape[axis] for axis in order), dtype or source.dtype, nl.sbuf)
        nisa.dma_transpose(dst=made, src=source, **options)
        out = nl.ndarray(made.shape, made.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=made)
        return out

    return transposed


def run(function, *arrays, chip="trn2"):
    return neurosim.simulate(function, chip)(*arrays).outputs


def refused(function, *arrays, error=IllegalOperand, chip="trn2"):
    with pytest.raises(error) as caught:
        run(function, *arrays, chip=chip)
    assert "tests/test_isa/test_dma_transpose.py" in caught.value.where[0]
    return str(caught.value)


@pytest.mark.parametrize("from_sbuf", [False, True])
@pytest.mark.parametrize("shape", [(16, 128), (128, 128), (100, 7), (1, 5), (6, 3, 20), (128, 2, 9), (4, 2, 3, 50)])
def test_permutations(rng, shape, from_sbuf):
    source = rng.standard_normal(shape).astype(np.float32).astype(ml_dtypes.bfloat16)
    expected = np.transpose(source, ORDER[source.ndim])
    for axes in (None, ORDER[source.ndim], list(ORDER[source.ndim])):
        got = run(kernel(from_sbuf, axes=axes), source)
        assert got.shape == expected.shape
        np.testing.assert_array_equal(got.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.int16, np.uint32])
def test_bits_move_as_they_are(rng, dtype):
    size = np.dtype(dtype).itemsize
    source = rng.integers(0, 256, (16, 64 * size), dtype=np.uint8).view(np.dtype(dtype))
    unsigned = f"u{size}"
    np.testing.assert_array_equal(run(kernel(), source).view(unsigned), source.view(unsigned).T)


def test_parts_of_tensors(rng):
    """A pattern of the source, columns of the destination: 16 rows at a time."""
    source = rng.standard_normal((48, 96)).astype(np.float16)

    def body(source):
        made = nl.ndarray((32, 3, 48), nl.float16, nl.sbuf)
        nisa.memset(dst=made, value=0.0)
        for row in range(0, 48, 16):
            part = source.ap(pattern=[[96, 16], [1, 32]], offset=96 * row + 64)
            nisa.dma_transpose(dst=made[:, 1, row : row + 16], src=part, dge_mode=nisa.dge_mode.hwdge)
        out = nl.ndarray(made.shape, made.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=made)
        return out

    got = run(body, source)
    np.testing.assert_array_equal(got[:, 1], source[:, 64:].T)
    assert not got[:, ::2].any()


def test_steps_and_overlap(rng):
    source = rng.standard_normal((16, 32)).astype(np.float32)

    def body(source):
        tile = nl.ndarray((16, 64), nl.float32, nl.sbuf)
        nisa.memset(dst=tile, value=0.0)
        nisa.dma_copy(dst=tile[:, 1:33:2], src=source[:, 0:16])
        nisa.dma_transpose(dst=tile[:, 1:33:2], src=tile[:, 1:33:2])
        out = nl.ndarray((16, 16), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile[:, 1:33:2])
        return out

    np.testing.assert_array_equal(run(body, source), source[:, :16].T)


def test_holes_are_transposed():
    def body(rows):
        def filled(source):
            part, made = nl.ndarray((16, 8), nl.float16, nl.sbuf), nl.ndarray((8, 16), nl.float16, nl.sbuf)
            nisa.memset(dst=part[:, 0:6], value=1.0)
            nisa.dma_transpose(dst=made, src=part)
            nisa.dma_copy(dst=source[0:rows], src=made[0:rows])
            return source

        return filled

    source = np.zeros((8, 16), np.float16)
    np.testing.assert_array_equal(run(body(6), source)[:6], np.ones((6, 16)))
    with pytest.raises(Uninitialized, match=r"\[6:7, 0:16\]"):
        run(body(7), source)


# -- sources whose place is known at run time only ----------------------------------------------------------------


def gathered(shape=(64, 32), axes=None, **options):
    def body(source, index):
        rows = nl.ndarray(index.shape, index.dtype, nl.sbuf)
        nisa.dma_copy(dst=rows, src=index)
        made = nl.ndarray((source.shape[-1], *source.shape[1:-1], index.shape[0]), source.dtype, nl.sbuf)
        nisa.memset(dst=made, value=0)
        nisa.dma_transpose(dst=made, src=source.vector_select(0, rows), axes=axes, **options)
        out = nl.ndarray(made.shape, made.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=made)
        return out

    return body


@pytest.mark.parametrize("mode", [nisa.dge_mode.unknown, nisa.dge_mode.swdge])
@pytest.mark.parametrize("shape", [(64, 32), (64, 4, 32), (64, 1, 4, 32)])
def test_gathered_rows(rng, shape, mode):
    source = rng.integers(0, 2**15, shape).astype(np.uint16)
    index = rng.integers(0, 64, (48, 1)).astype(np.uint32)
    got = run(gathered(dge_mode=mode), source, index)
    np.testing.assert_array_equal(got, np.transpose(source[index[:, 0]], ORDER[len(shape)]))


@pytest.mark.parametrize("rows", [256, 240, 128])
@pytest.mark.parametrize("shape", [(300, 32), (300, 4, 32), (300, 1, 4, 32)])
def test_an_index_of_several_columns_counts_column_after_column(rng, shape, rows):
    """flat_indices = indices.T.flatten()[:src.shape[0]], as documented."""

    def body(source, index):
        tile = nl.ndarray(index.shape, index.dtype, nl.sbuf)
        nisa.dma_copy(dst=tile, src=index)
        (step, _), *rest = source.get_pattern()
        made = nl.ndarray((source.shape[-1], *source.shape[1:-1], rows), source.dtype, nl.sbuf)
        nisa.dma_transpose(dst=made, src=source.ap([[step, rows], *rest], vector_offset=tile, indirect_dim=0))
        out = nl.ndarray(made.shape, made.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=made)
        return out

    source = rng.integers(0, 2**15, shape).astype(np.uint16)
    index = rng.integers(0, 300, (128, 2)).astype(np.uint32)
    flat = index.T.flatten()[:rows]
    index.T.reshape(-1)[rows:] = 2**31  # what is not used may be anything
    np.testing.assert_array_equal(run(body, source, index), np.transpose(source[flat], ORDER[len(shape)]))
    index[5, 0] = 300
    with pytest.raises(OutOfBounds, match=r"index 300 of row 5, index\[5, 0\], into"):
        run(body, source, index)


def test_indices_out_of_bounds(rng):
    source = rng.integers(1, 99, (64, 32)).astype(np.uint16)
    index = np.arange(16, dtype=np.uint32).reshape(16, 1)
    index[3] = 64
    with pytest.raises(OutOfBounds, match="index 64 of lane 3"):
        run(gathered(), source, index)
    got = run(gathered(oob_mode=nisa.oob_mode.skip), source, index)
    expected = source[:16].T.copy()
    expected[:, 3] = 0  # as before
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("mode", [nisa.dge_mode.unknown, nisa.dge_mode.swdge])
def test_one_index_for_all(rng, mode):
    source = rng.integers(0, 99, (5, 16, 32)).astype(np.uint16)

    def body(source, index):
        place = nl.ndarray((1, 1), nl.int32, nl.sbuf)
        nisa.dma_copy(dst=place, src=index)
        made = nl.ndarray((32, 16), nl.uint16, nl.sbuf)
        nisa.dma_transpose(dst=made, src=source.select(0, place), dge_mode=mode)
        out = nl.ndarray((32, 16), nl.uint16, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=made)
        return out

    np.testing.assert_array_equal(run(body, source, np.array([[3]], np.int32)), source[3].T)


@pytest.mark.parametrize(
    ("source", "index", "options", "message"),
    [
        (((64, 32), np.float32), ((16, 1), np.uint32), {}, "gathered rows are a multiple of 16, of elements of 2"),
        (((64, 32), np.uint16), ((20, 1), np.uint32), {}, "gathered rows are a multiple of 16, of elements of 2"),
        (((64, 32), np.uint16), ((16, 1), np.int32), {}, "the index is int32; it must be uint32"),
        (((64, 2, 2, 32), np.uint16), ((16, 1), np.uint32), {}, "src has 4 axes; then one of the two in the middle"),
        (((64, 32), np.uint16), ((16, 1), np.uint32), {"dge_mode": nisa.dge_mode.hwdge}, "with one index per row"),
        (((64, 32), np.uint16), ((16, 1), np.uint32), {"dge_mode": nisa.dge_mode.none}, "with one index per row"),
    ],
)
def test_refuses_to_gather(source, index, options, message):
    arrays = np.zeros(source[0], source[1]), np.zeros(index[0], index[1])
    assert message in refused(gathered(**options), *arrays)


def test_gathering_needs_trn2():
    older = neurosim.load_chip("trn2").replace(chip__generation=2)
    arrays = np.zeros((64, 32), np.uint16), np.zeros((16, 1), np.uint32)
    assert "a gathered source needs NeuronCore-v3 (trn2)" in refused(gathered(), *arrays, chip=older)


# -- rules --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (((16, 32), np.float16), {"dtype": nl.bfloat16}, "dst is bfloat16 and src is float16; they must have"),
        (((16, 32), np.uint8), {}, "src is uint8; the DMA transposes elements of 2 or 4 bytes"),
        (((16, 32), np.float16), {"axes": (0, 1)}, "axes=(0, 1); for 2 axes it is (1, 0)"),
        (((16, 2, 32), np.float16), {"axes": (1, 0)}, "axes=(1, 0); for 3 axes it is (2, 1, 0)"),
        (((16, 32), np.float16), {"axes": 1}, "axes=1; for 2 axes it is (1, 0)"),
        (((16, 32), np.float16), {"shape": (16, 32)}, "dst has shape (16, 32); the transpose has (32, 16)"),
        (((16, 1, 32), np.float16), {"shape": (32, 16)}, "dst has shape (32, 16); the transpose has (32, 1, 16)"),
        (((2, 2, 2, 2, 2), np.float16), {"shape": (2, 2)}, "src has 5 axes; it may have 2, 3 or 4"),
        (((16, 32), np.float16), {"priority": 1}, "priority= needs NeuronCore-v4 (trn3)"),
        (((16, 32), np.float16), {"oob_mode": nisa.oob_mode.skip}, "oob_mode.skip with a source whose place is known"),
        (((16, 32), np.float16), {"oob_mode": 7}, "oob_mode=7 is not a nisa.oob_mode"),
        (((16, 32), np.float16), {"dge_mode": "hwdge"}, "dge_mode='hwdge' is not a nisa.dge_mode"),
        (((16, 32), np.float16), {"dge_mode": nisa.dge_mode.swdge}, "software descriptors transpose dynamic sources"),
        (((16, 32), np.float32), {"dge_mode": nisa.dge_mode.hwdge}, "src is float32, not a dtype of 2 bytes"),
        (((32, 32), np.float16), {"dge_mode": nisa.dge_mode.hwdge}, "src.shape[0] is 32, not 16"),
        (((3, 16, 8), np.float16), {"dge_mode": nisa.dge_mode.hwdge}, "src.shape[0] is 3, not 1, 2, 4, 8 or 16"),
        (((2, 7, 8), np.float16), {"dge_mode": nisa.dge_mode.hwdge}, "is 2 × 7, no multiple of 16"),
    ],
)
def test_refuses(source, options, message):
    assert message in refused(kernel(**options), np.zeros(*source))


def test_generations():
    source = np.zeros((16, 32), np.float16)
    older, newer = (neurosim.load_chip("trn2").replace(chip__generation=generation) for generation in (2, 4))
    text = refused(kernel(dge_mode=nisa.dge_mode.hwdge), source, chip=older)
    assert "dge_mode.hwdge needs NeuronCore-v3 (trn2)" in text
    assert run(kernel(), source, chip=older).shape == (32, 16)
    with pytest.raises(Unsupported, match="priority=0 is not built yet"):
        run(kernel(priority=0), source, chip=newer)
    assert "priority 4" in refused(kernel(priority=4), source, chip=newer)


def test_refuses_memories():
    def to_hbm(source):
        nisa.dma_transpose(dst=nl.ndarray((32, 16), nl.float16, nl.shared_hbm), src=source)

    assert "dst is in HBM; it must be in SBUF" in refused(to_hbm, np.zeros((16, 32), np.float16))

    def from_psum(source):
        bank = nl.ndarray((16, 32), nl.float16, nl.psum)
        nisa.dma_transpose(dst=nl.ndarray((32, 16), nl.float16, nl.sbuf), src=bank)

    assert "src is in PSUM; it must be in SBUF or HBM" in refused(from_psum, np.zeros((16, 32), np.float16))


# -- time ---------------------------------------------------------------------------------------------------------


def moved_ns(function, *arrays):
    """Return how long the DMA engines move data for the transpose (or copy) of ``function``, summed over engines."""
    result = neurosim.profile(function, "trn2")(*arrays)
    timeline = result.timeline
    names = [result.program.record(index).signature.instruction for index in range(len(result.program))]
    record = names.index("dma_transpose")
    ops = timeline.ops[timeline.ops["record"] == record]
    moving = ops["unit"] >= timeline.units.index("dma0")
    return float(ops["busy_ps"][moving].sum()) / 1000, result.program.record(record).signature


@pytest.mark.parametrize(
    ("from_sbuf", "dtype", "ratio"),
    [(False, np.float16, 0.9), (True, np.float16, 0.5), (False, np.float32, 0.45), (True, np.float32, 0.25)],
)
def test_part_of_a_copy_s_throughput(from_sbuf, dtype, ratio):
    """0.9 from HBM and 0.5 from SBUF, half of that for 4 bytes; blocks of 16 rows are the descriptors."""
    source = np.zeros((128, 128), dtype)
    rate = 27.2 if from_sbuf else 23.0
    descriptor = source.nbytes / 8
    expected = 8 * max(4.5 + descriptor / 27.2, descriptor / rate) / ratio
    assert moved_ns(kernel(from_sbuf), source)[0] == pytest.approx(expected, rel=1e-3)


def test_who_makes_the_descriptors():
    half, wide = np.zeros((16, 32), np.float16), np.zeros((32, 32), np.float16)
    modes = nisa.dge_mode
    for source, options, generation, engine in [
        (half, {}, "hwdge", Engine.sync),
        (half, {"dge_mode": modes.hwdge}, "hwdge", Engine.sync),
        (half, {"dge_mode": modes.none}, "none", Engine.sync),
        (wide, {}, "none", Engine.sync),
    ]:
        signature = moved_ns(kernel(**options), source)[1]
        assert (signature.work[0].generation, signature.engine) == (generation, engine)


# Versions of NKI


def test_a_dst_of_fewer_axes_before_0_4():
    array = np.arange(16 * 64, dtype=np.float32).reshape(16, 1, 1, 64)
    lower = kernel(shape=(64, 1, 16))
    with pytest.raises(IllegalOperand, match=r"dst has shape \(64, 1, 16\); the transpose has \(64, 1, 1, 16\)"):
        neurosim.simulate(lower, nki_version="0.4")(array)
    got = neurosim.simulate(lower, nki_version="0.3")(array).outputs
    np.testing.assert_array_equal(got, array.reshape(16, 64).T[:, None, :])
    with pytest.raises(IllegalOperand, match="the transpose has"):
        neurosim.simulate(kernel(shape=(32, 2, 16)), nki_version="0.3")(array)


def test_hardware_descriptors_took_16_rows_of_128_before_0_6():
    asked = kernel(dge_mode=nisa.dge_mode.hwdge)
    for shape, old in (((16, 128), True), ((16, 64), False), ((4, 4, 128), False)):
        array = np.zeros(shape, ml_dtypes.bfloat16)
        neurosim.simulate(asked, nki_version="0.6")(array)
        if old:
            neurosim.simulate(asked, nki_version="0.5")(array)
            continue
        with pytest.raises(IllegalOperand, match=r"not 16 of 128, as before NKI 0\.6"):
            neurosim.simulate(asked, nki_version="0.5")(array)
