"""``dma_copy``: bits move, other dtypes go through float32, element counts decide."""

from __future__ import annotations

from itertools import permutations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.engines import Engine
from neurosim.errors import IllegalCall, IllegalOperand, UnwrittenOutput
from neurosim.work import Transfer

FORMATS = (
    nl.float32,
    nl.bfloat16,
    nl.float16,
    nl.float8_e4m3,
    nl.float8_e4m3fn,
    nl.float8_e5m2,
    nl.int8,
    nl.int16,
    nl.int32,
    nl.uint8,
    nl.uint16,
    nl.uint32,
    nl.bool_,
)


def through(array, shape=None, dtype=None, **options):
    """Load an array into SBUF and store it again."""

    def kernel(a):
        tile = nl.ndarray(shape or a.shape, dtype or a.dtype, nl.sbuf)
        nisa.dma_copy(dst=tile, src=a, **options)
        out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    return neurosim.simulate(kernel)(array)


@pytest.mark.parametrize("dtype", FORMATS)
def test_equal_dtypes_move_bits(dtype):
    """Every 8- and 16-bit pattern, and random wider ones: NaN payloads and signalling NaNs stay what they are."""
    if dtype == nl.bool_:
        raw = np.arange(256, dtype=np.uint8) & 1
    elif dtype.itemsize < 4:
        raw = np.arange(256**dtype.itemsize, dtype=dtype.bits)
    else:
        raw = np.random.default_rng(1).integers(0, 2**32, 4096, np.uint32)
        raw[:4] = 0x7F800001, 0xFFC12345, 0x80000000, 1
    array = raw.view(dtype.numpy).reshape(128, -1)
    outputs = through(array).outputs
    assert outputs.dtype == array.dtype
    assert outputs.tobytes() == array.tobytes()


VALUES = {
    "float": np.array([0, -0.0, 1, -1, 2.5, -2.5, 0.5, 1.5, 300, -200, 1e9, -1e9, 448, 464, 500, 240, 248, 57344, 1e6]),
    "tiny": np.array([2.0**-9, 2.0**-10, -(2.0**-17), 2.0**-24, 2.0**-25, 2.0**-133, 2.0**-149, 1e-40]),
    "special": np.array([np.inf, -np.inf, np.nan]),
}


@pytest.mark.parametrize(("source", "target"), list(permutations(FORMATS, 2)))
def test_casts_go_through_float32(source, target, machine):
    values = np.concatenate([VALUES["float"], VALUES["tiny"], VALUES["special"]]).astype(np.float32)
    if not source.is_float:
        values = np.clip(values[np.isfinite(values)], max(source.min_value, -1e9), min(source.max_value, 1e9))
    with np.errstate(all="ignore"):
        array = values.astype(source.numpy).reshape(1, -1)
    outputs = through(array, dtype=target).outputs
    machine.assert_same(outputs, machine.rounded(array.astype(np.float32), target.numpy))


def test_integers_lose_bits_between_dtypes_only():
    """K7: int32 to int32 is a byte move; int32 to uint32 goes through float32 and loses the low bit."""
    array = np.array([[16777217, 2**31 - 1]], np.int32)
    np.testing.assert_array_equal(through(array).outputs, array)
    np.testing.assert_array_equal(through(array, dtype=nl.uint32).outputs, [[16777216, 2**31]])


@pytest.mark.parametrize(
    ("source", "target"),
    [((128,), (128, 1)), ((128, 6), (128, 2, 3)), ((2, 64, 3), (128, 3)), ((6, 4), (4, 6)), ((1, 24), (24, 1))],
)
def test_only_the_number_of_elements_counts(source, target):
    array = np.arange(np.prod(source), dtype=np.int32).reshape(source)
    np.testing.assert_array_equal(through(array, shape=target).outputs, array.reshape(target))


def test_between_hbm_tensors_and_between_sbuf_tiles():
    def kernel(a):
        copy = nl.ndarray(a.shape, a.dtype, nl.private_hbm)
        nisa.dma_copy(dst=copy, src=a)
        first = nl.ndarray((4, 8), a.dtype, nl.sbuf)
        nisa.dma_copy(dst=first, src=copy)
        second = nl.ndarray((8, 4), a.dtype, nl.sbuf)
        nisa.dma_copy(dst=second, src=first)
        out = nl.ndarray((8, 4), a.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=second)
        return out

    array = np.arange(32, dtype=np.int16).reshape(4, 8)
    np.testing.assert_array_equal(neurosim.simulate(kernel)(array).outputs, array.reshape(8, 4))


@pytest.mark.parametrize("shift", [1, -1, 3])
def test_overlapping_copy_reads_before_it_writes(shift):
    """C5: a DMA within one tensor gives what a copy through a buffer gives."""
    array = np.arange(64, dtype=np.int32).reshape(2, 32)

    def kernel(a):
        tile = nl.ndarray(a.shape, a.dtype, nl.sbuf)
        nisa.dma_copy(dst=tile, src=a)
        low, high = max(shift, 0), min(shift, 0)
        nisa.dma_copy(dst=tile[:, low : 32 + high], src=tile[:, -high : 32 - low])
        out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    expected = array.copy()
    low, high = max(shift, 0), min(shift, 0)
    expected[:, low : 32 + high] = array[:, -high : 32 - low]
    np.testing.assert_array_equal(neurosim.simulate(kernel)(array).outputs, expected)


def test_conv_windows_and_transposing_patterns():
    """C9: shifted windows, steps, a step-0 read, and a transposing pattern in HBM."""
    array = np.arange(2 * 6 * 7, dtype=np.float32).reshape(2, 6, 7)
    views = [
        (lambda t, i=i, j=j: t[:, i : i + 3, j : j + 4], array[:, i : i + 3, j : j + 4])
        for i in range(4)
        for j in range(4)
    ]
    views += [
        (lambda t: t[:, ::2, 1::3], array[:, ::2, 1::3]),
        (lambda t: t.permute((2, 1, 0)), array.transpose(2, 1, 0)),
        (lambda t: t[1:2].broadcast(0, 3), np.broadcast_to(array[1:2], (3, 6, 7))),
    ]

    def kernel(a):
        made = []
        for view, _ in views:
            source = view(a)
            tile = nl.ndarray(source.shape, a.dtype, nl.sbuf)
            nisa.dma_copy(dst=tile, src=source)
            made.append(nl.ndarray(source.shape, a.dtype, nl.shared_hbm))
            nisa.dma_copy(dst=made[-1], src=tile)
        return made

    for got, (_, expected) in zip(neurosim.simulate(kernel)(array).outputs, views, strict=True):
        np.testing.assert_array_equal(got, expected)


# -- who triggers, and what moves -------------------------------------------------------------------------------------


def test_documented_engines_make_descriptors():
    """dge_mode: swdge is GpSimd's; hwdge is Sync's or Scalar's, as asked."""
    array = np.zeros((4, 4), np.float32)
    modes, engine = nisa.dge_mode, nisa.engine

    def trigger(**options):
        return next(iter(through(array, **options).program)).signature.engine

    assert trigger(dge_mode=modes.swdge) is Engine.gpsimd
    assert trigger(dge_mode=modes.hwdge, engine=engine.scalar) is Engine.scalar
    assert trigger(dge_mode=modes.hwdge, engine=engine.sync) is Engine.sync
    assert trigger(dge_mode=modes.hwdge) in (Engine.sync, Engine.scalar)
    assert trigger() in (Engine.sync, Engine.scalar, Engine.gpsimd)


def transfer_of(source, target, dtypes=(nl.float32, nl.float32)):
    """Return the work of a load of ``source`` of an HBM tensor into ``target`` of an SBUF tile."""

    def kernel(a):
        tile = nl.ndarray((128, 512), dtypes[1], nl.sbuf)
        nisa.dma_copy(dst=target(tile), src=source(a))

    program = neurosim.simulate(kernel)(np.zeros((256, 512), dtypes[0].numpy)).program
    (work,) = program.record(0).signature.work
    assert isinstance(work, Transfer)
    return work


@pytest.mark.parametrize(
    ("source", "target", "descriptors", "size"),
    [
        (lambda t: t[0:128], lambda t: t, 128, 2048),
        (lambda t: t[0:1], lambda t: t[0:1], 1, 2048),
        (lambda t: t[0:128, 0:100], lambda t: t[:, 0:100], 128, 400),
        (lambda t: t[0:128, ::2], lambda t: t[:, 0:256], 128 * 256, 4),
        (lambda t: t[0:128], lambda t: t.permute((0, 1)), 128, 2048),
        (lambda t: t[0:128].reshape((128, 8, 64)), lambda t: t.reshape((128, 64, 8)).permute((0, 2, 1)), 65536, 4),
        (lambda t: t[0:1, 0:8].broadcast(0, 128), lambda t: t[:, 0:8], 128, 32),
    ],
)
def test_descriptors_are_runs_that_are_dense_on_both_sides(source, target, descriptors, size):
    work = transfer_of(source, target)
    assert (work.descriptors, work.descriptor_bytes) == (descriptors, size)
    assert work.read_bytes == work.written_bytes == descriptors * size


def test_bytes_of_a_casting_transfer():
    work = transfer_of(lambda t: t[0:128], lambda t: t, (nl.float32, nl.bfloat16))
    assert (work.read_bytes, work.written_bytes) == (128 * 512 * 4, 128 * 512 * 2)
    assert work.descriptors * work.descriptor_bytes == 128 * 512 * 4


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 1}, "priority= needs NeuronCore-v4"),
        ({"oob_mode": "error"}, "oob_mode='error' is not a nisa.oob_mode"),
        ({"dge_mode": 5}, "dge_mode=5 is not a nisa.dge_mode"),
        ({"engine": nisa.engine.sync}, "without dge_mode.hwdge"),
        ({"dge_mode": nisa.dge_mode.hwdge, "engine": nisa.engine.vector}, "cannot trigger hardware descriptors"),
        ({"dge_mode": nisa.dge_mode.hwdge, "engine": nisa.engine.gpsimd}, "cannot trigger hardware descriptors"),
    ],
)
def test_refuses_options(options, message):
    with pytest.raises(IllegalOperand) as caught:
        through(np.zeros((4, 4), np.float32), **options)
    assert message in str(caught.value)
    assert caught.value.what.startswith("dma_copy: ")


def test_refuses_different_numbers_of_elements():
    with pytest.raises(IllegalOperand) as caught:
        through(np.zeros((4, 4), np.float32), shape=(4, 5))
    text = str(caught.value)
    assert "dma_copy: dst has 20 elements and src has 16" in text
    assert "[4, 5] float32 in SBUF" in text
    assert "a [4, 4] float32 in HBM" in text


@pytest.mark.parametrize("role", ["dst", "src"])
def test_refuses_psum(role):
    """Since NKI 0.3, DMA does not reach PSUM."""

    def kernel(a):
        bank = nl.ndarray(a.shape, a.dtype, nl.psum)
        tile = nl.ndarray(a.shape, a.dtype, nl.sbuf)
        nisa.memset(dst=bank, value=0.0)
        nisa.memset(dst=tile, value=0.0)
        nisa.dma_copy(**{"dst": tile, "src": tile, role: bank})

    with pytest.raises(IllegalOperand, match=f"{role} is in PSUM; it must be in SBUF or HBM"):
        neurosim.simulate(kernel)(np.zeros((4, 4), np.float32))


def test_refuses_a_broadcast_destination():
    def kernel(a):
        tile = nl.ndarray((4, 1), a.dtype, nl.sbuf)
        nisa.dma_copy(dst=tile.broadcast(1, 4), src=a)

    with pytest.raises(IllegalOperand, match="reaches the same element twice"):
        neurosim.simulate(kernel)(np.zeros((4, 4), np.float32))


def test_removed_operands_are_named():
    """F14: 0.2's ``dst_rmw_op`` is gone."""
    with pytest.raises(IllegalCall, match="no operand 'dst_rmw_op'"):
        through(np.zeros((4, 4), np.float32), dst_rmw_op=nl.add)


def test_bfloat16_chain_to_int8(machine):
    """K7: float32 to bfloat16 to int8 rounds at each step."""
    array = np.array([[126.6, 127.6, -128.6, 2.5, 3.5, 0.49]], np.float32)

    def kernel(a):
        half = nl.ndarray(a.shape, nl.bfloat16, nl.sbuf)
        nisa.dma_copy(dst=half, src=a)
        out = nl.ndarray(a.shape, nl.int8, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=half)
        return out

    expected = machine.rounded(array.astype(ml_dtypes.bfloat16).astype(np.float32), np.int8)
    np.testing.assert_array_equal(neurosim.simulate(kernel)(array).outputs, expected)


def test_a_copy_onto_itself_writes_nothing_anew():
    """Kernels wait for all DMAs that way: what was never stored is still not written."""

    def kernel(x):
        out = nl.ndarray((4, 8), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=out[0:2], src=x)
        nisa.dma_copy(dst=out, src=out)
        return out

    data = np.arange(16, dtype=np.float32).reshape(2, 8)
    result = neurosim.simulate(kernel, partial_outputs=["output"])(data)
    assert (result.outputs[:2] == data).all()
    assert (result.outputs[2:] == 0).all()
    with pytest.raises(UnwrittenOutput):
        neurosim.simulate(kernel)(data)


def test_modes_by_number():
    """Kernels in use write dge_mode=3 (nki-library's norms)."""

    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
        nisa.dma_copy(dst=tile, src=x, dge_mode=3, oob_mode=0)
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile, dge_mode=nisa.dge_mode.none)
        return out

    result = neurosim.simulate(kernel)(np.ones((4, 4), np.float32))
    first, second = (result.program.record(index).signature for index in range(2))
    assert dict(first.parameters)["dge_mode"] is dict(second.parameters)["dge_mode"] is nisa.dge_mode.none
    with pytest.raises(IllegalOperand, match=r"dge_mode=4 is not a nisa\.dge_mode"):
        neurosim.simulate(lambda x: nisa.dma_copy(dst=x, src=x, dge_mode=4))(np.ones((4, 4), np.float32))


@pytest.mark.parametrize(
    ("chip", "mode", "generations"),
    [
        ("trn1", "unknown", ["none", "none"]),
        ("trn1", "swdge", ["swdge", "swdge"]),
        ("trn2", "unknown", ["hwdge", "swdge"]),
        ("trn2", "none", ["none", "none"]),
    ],
)
def test_who_makes_the_descriptors(chip, mode, generations):
    """NeuronCore-v2 has no hardware for it, and rings that are ready where addresses are known."""

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x, dge_mode=nisa.dge_mode[mode])
        nisa.dma_copy(dst=out, src=tile, dge_mode=nisa.dge_mode[mode])
        return out

    program = neurosim.simulate(kernel, chip=chip)(np.ones((8, 4), np.float32)).program
    assert [program.signatures[index].work[0].generation for index in program.signature_ids] == generations
