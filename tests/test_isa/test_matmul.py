"""``nc_matmul`` against plain loops: the order of sums, what accumulates where, what the array takes."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim
from neurosim.engines import Engine
from neurosim.errors import IllegalOperand, Uninitialized, UnknownBehavior, UnwrittenOutput
from neurosim.work import Matmul

F = np.float32
BF16 = ml_dtypes.bfloat16


def product(stationary, moving):
    """Return stationary.T @ moving: k ascending, each product and each sum rounded to float32."""
    a, b = stationary.astype(F), moving.astype(F)
    total = np.zeros((a.shape[1], b.shape[1]), F)
    with np.errstate(all="ignore"):
        for k in range(a.shape[0]):
            total = total + a[k][:, None] * b[k]
    return total


def multiplier(**options):
    def body(stationary, moving):
        psum = nl.ndarray((stationary.shape[1], moving.shape[1]), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=stationary, moving=moving, **options)
        return psum

    return body


def operands(rng, shape, dtype=BF16, other=None):
    K, M, N = shape
    return rng.standard_normal((K, M)).astype(dtype), rng.standard_normal((K, N)).astype(other or dtype)


NARROW = [BF16, np.float16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("shape", [(128, 128, 512), (1, 1, 1), (3, 5, 7), (127, 33, 130), (64, 128, 1)])
def test_narrow_formats_sum_in_order(machine, rng, shape, dtype):
    """A4: exactly the float32 arithmetic on widened operands, k ascending."""
    a, b = operands(rng, shape, dtype)
    machine.assert_same(machine.outputs(multiplier(), a, b), product(a, b))


def test_narrow_formats_may_be_mixed(machine, rng):
    for one in NARROW:
        for other in NARROW:
            a, b = operands(rng, (40, 17, 23), one, other)
            machine.assert_same(machine.outputs(multiplier(), a, b), product(a, b))


@pytest.mark.parametrize("shape", [(128, 128, 512), (5, 3, 2), (100, 128, 33)])
def test_float32_is_more_exact_than_bfloat16(machine, rng, shape):
    a, b = operands(rng, shape, F)
    got = machine.outputs(multiplier(), a, b)
    exact = a.astype(np.float64).T @ b.astype(np.float64)
    bound = np.abs(a.astype(np.float64)).T @ np.abs(b.astype(np.float64)) * shape[0] * 2.0**-24
    assert (np.abs(got - exact) <= bound + 1e-30).all()


def test_float32_keeps_bits_that_bfloat16_loses(machine):
    """A8: entries of 1 + 2**-20 survive float32, and not bfloat16; float32 costs four passes."""
    a = np.full((1, 1), 1 + 2.0**-20, F)
    b = np.full((1, 1), 1.0, F)
    exact = machine.run(multiplier(), a, b)
    lossy = machine.run(multiplier(), a.astype(BF16), b.astype(BF16))
    assert exact.outputs[0, 0] == F(1 + 2.0**-20)
    assert lossy.outputs[0, 0] == 1.0
    works = [result.program.record(2).signature.work for result in (exact, lossy)]
    assert [work.passes for (work,) in works] == [4, 1]


@pytest.mark.parametrize("dtype", [F, BF16])
def test_nan_and_inf_flow_through_sums(machine, dtype):
    """A non-finite operand reaches the outputs of its row and column, and no other."""
    a, b = np.ones((4, 3), dtype), np.ones((4, 5), dtype)
    a[1, 0], a[2, 1], b[3, 4] = np.inf, np.nan, -np.inf
    got = machine.outputs(multiplier(), a, b)
    expected = np.full((3, 5), 4, F)
    expected[0], expected[:, 4] = np.inf, -np.inf
    expected[1] = np.nan
    expected[0, 4] = np.nan
    machine.assert_same(got, expected)


def test_zero_times_inf_is_nan(machine):
    a, b = np.zeros((2, 2), BF16), np.ones((2, 2), BF16)
    b[0, 0] = np.inf
    machine.assert_same(machine.outputs(multiplier(), a, b), np.array([[np.nan, 0], [np.nan, 0]], F))


def test_more_axes_count_as_one(machine, rng):
    """M3: operands with more than one free axis are their 2-D reshapes."""
    a, b = operands(rng, (64, 24, 60))

    def body(stationary, moving):
        psum = nl.ndarray((24, 4, 15), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=stationary.reshape((64, 2, 12)), moving=moving.reshape((64, 3, 5, 4)))
        return psum

    machine.assert_same(machine.outputs(body, a, b), product(a, b).reshape(24, 4, 15))


def test_views_as_operands(machine, rng):
    a, b = operands(rng, (32, 20, 60))

    def body(stationary, moving):
        psum = nl.ndarray((10, 512), nl.float32, nl.psum)
        nisa.memset(dst=psum, value=5.0)
        window = moving.reshape((32, 6, 10))[:, 1:4, ::2]
        nisa.nc_matmul(dst=psum[:, 7:37:2], stationary=stationary[:, 1::2], moving=window, accumulate=False)
        return psum

    expected = np.full((10, 512), 5, F)
    expected[:, 7:37:2] = product(a[:, 1::2], b.reshape(32, 6, 10)[:, 1:4, ::2].reshape(32, 15))
    machine.assert_same(machine.outputs(body, a, b), expected)


def test_partition_windows(machine, rng):
    a, b = operands(rng, (128, 32, 16))

    def body(stationary, moving):
        psum = nl.ndarray((64, 16), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum[0:32], stationary=stationary[64:128], moving=moving[64:128])
        nisa.nc_matmul(dst=psum[32:64], stationary=stationary[32:64], moving=moving[32:64])
        return psum

    expected = np.vstack([product(a[64:], b[64:]), product(a[32:64], b[32:64])])
    machine.assert_same(machine.outputs(body, a, b), expected)


# -- accumulation -----------------------------------------------------------------------------------------------------


def tiled(flags, M=32, N=48):
    """Multiply tiles of K = 64 into one PSUM tile with the given accumulate flags."""

    def body(*tiles):
        psum = nl.ndarray((M, N), nl.float32, nl.psum)
        for index, flag in enumerate(flags):
            nisa.nc_matmul(dst=psum, stationary=tiles[2 * index], moving=tiles[2 * index + 1], accumulate=flag)
        return psum

    return body


def tiles_for(rng, count, dtype=BF16):
    pairs = [operands(rng, (64, 32, 48), dtype) for _ in range(count)]
    return pairs, [array for pair in pairs for array in pair]


@pytest.mark.parametrize(
    "flags",
    [(False, True, True), (None, None, None), (False, None, True), (None, True, None), (np.False_, np.True_, True)],
)
def test_sums_tiles_in_program_order(machine, rng, flags):
    """A22: each pass sums on its own and is then added to what the earlier ones left."""
    pairs, arrays = tiles_for(rng, 3)
    expected = product(*pairs[0])
    for pair in pairs[1:]:
        expected = expected + product(*pair)
    machine.assert_same(machine.outputs(tiled(flags), *arrays), expected)


def test_order_of_tiles_is_the_order_of_sums(machine, rng):
    pairs, arrays = tiles_for(rng, 3)
    swapped = [array for pair in pairs[::-1] for array in pair]
    one, other = (machine.outputs(tiled((False, True, True)), *given) for given in (arrays, swapped))
    assert (one != other).any()
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("flag", [False, np.False_, 0])
def test_false_overwrites_what_a_matmul_wrote(machine, rng, flag):
    pairs, arrays = tiles_for(rng, 2)
    machine.assert_same(machine.outputs(tiled((False, flag)), *arrays), product(*pairs[1]))


def test_none_overwrites_where_nothing_was_written_and_adds_elsewhere(machine, rng):
    """B3: overlapping regions 0:32 then 16:48, as convolutions do."""
    pairs = [operands(rng, (64, 32, 32)) for _ in range(2)]

    def body(a, b, c, d):
        psum = nl.ndarray((32, 48), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum[:, 0:32], stationary=a, moving=b)
        nisa.nc_matmul(dst=psum[:, 16:48], stationary=c, moving=d)
        return psum

    one, other = (product(*pair) for pair in pairs)
    expected = np.hstack([one[:, :16], one[:, 16:] + other[:, :16], other[:, 16:]])
    machine.assert_same(machine.outputs(body, *pairs[0], *pairs[1]), expected)


def test_a_new_tile_begins_unwritten(machine, rng):
    """Re-allocating the PSUM tile in a loop begins a new sum."""
    pairs, arrays = tiles_for(rng, 2)

    def body(*tiles):
        made = []
        for index in range(2):
            psum = nl.ndarray((32, 48), nl.float32, nl.psum)
            nisa.nc_matmul(dst=psum, stationary=tiles[2 * index], moving=tiles[2 * index + 1])
            made.append(psum)
        return made

    for got, pair in zip(machine.outputs(body, *arrays), pairs, strict=True):
        machine.assert_same(got, product(*pair))


def onto(prepare, accumulate):
    """Prepare a PSUM tile, then multiply into it."""

    def body(stationary, moving):
        psum = nl.ndarray((4, 8), nl.float32, nl.psum)
        prepare(psum)
        nisa.nc_matmul(dst=psum, stationary=stationary, moving=moving, accumulate=accumulate)
        return psum

    return body


def test_accumulating_onto_unwritten_psum(machine, rng):
    arrays = operands(rng, (16, 4, 8))
    text = machine.refused(onto(lambda psum: None, True), *arrays, error=Uninitialized)
    assert "nc_matmul: accumulate=True onto PSUM that nobody wrote" in text
    assert "unwritten: [0:4, 0:8] (32 of 32 elements)" in text
    assert "accumulate=(k > 0)" in text


def test_accumulating_beyond_what_a_matmul_wrote(machine, rng):
    arrays = operands(rng, (16, 4, 8))

    def body(a, b):
        psum = nl.ndarray((4, 8), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum[:, 0:6], stationary=a, moving=b[:, 0:6], accumulate=False)
        nisa.nc_matmul(dst=psum, stationary=a, moving=b, accumulate=True)

    assert "unwritten: [0:4, 6:8] (8 of 32 elements)" in machine.refused(body, *arrays, error=Uninitialized)


def test_accumulating_onto_what_another_instruction_wrote(machine, rng):
    """Documented as undefined before NeuronCore-v4, zero or not; None is refused where it would matter."""
    arrays = operands(rng, (16, 4, 8))
    zeros = onto(lambda psum: nisa.memset(dst=psum, value=0.0), True)
    assert "another instruction than a matmul wrote" in machine.refused(zeros, *arrays, error=UnknownBehavior)
    ones = onto(lambda psum: nisa.memset(dst=psum[:, 0:2], value=1.0), None)
    text = machine.refused(ones, *arrays, error=UnknownBehavior)
    assert "accumulate=None onto values that another instruction than a matmul wrote" in text
    assert "written otherwise: [0:4, 0:2] (8 of 32 elements)" in text


def test_zeroed_psum_and_none(machine, rng):
    """A common pattern in public kernels: memset to zero, then matmuls without accumulate."""
    arrays = operands(rng, (16, 4, 8))
    body = onto(lambda psum: nisa.memset(dst=psum, value=0.0), None)
    machine.assert_same(machine.outputs(body, *arrays), product(*arrays))
    body = onto(lambda psum: nisa.memset(dst=psum[:, 3:5], value=-0.0), None)
    machine.assert_same(machine.outputs(body, *arrays), product(*arrays))


def test_a_matmul_that_was_overwritten_is_no_matmul(machine, rng):
    arrays = operands(rng, (16, 4, 8))

    def body(a, b):
        psum = nl.ndarray((4, 8), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=a, moving=b)
        nisa.tensor_scalar(dst=psum, data=psum, op0=nl.multiply, operand0=2.0)
        nisa.nc_matmul(dst=psum, stationary=a, moving=b, accumulate=True)

    machine.refused(body, *arrays, error=UnknownBehavior)


def test_holes_survive_a_second_matmul(machine, rng):
    """B4: rows that were never loaded make the product unwritten; a later tile must not hide that."""

    def body(a, b):
        partial = nl.ndarray((16, 4), BF16, nl.sbuf)
        nisa.tensor_copy(dst=partial[0:8], src=a[0:8])
        psum = nl.ndarray((4, 8), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=partial, moving=b)
        nisa.nc_matmul(dst=psum, stationary=a, moving=b)
        return psum

    text = machine.refused(body, *operands(rng, (16, 4, 8)), error=Uninitialized)
    assert "[8:16, 0:4]" in text


@pytest.mark.parametrize("flag", [None, True])
def test_sums_go_on_beside_columns_that_are_holes(machine, rng, flag):
    """A tail that was never loaded: its columns stay unwritten, and raise where one is stored."""

    def body(a, b, stored=5):
        partial = nl.ndarray((16, 8), BF16, nl.sbuf)
        nisa.tensor_copy(dst=partial[:, 0:5], src=b[:, 0:5])
        psum = nl.ndarray((4, 8), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=a, moving=partial)
        nisa.nc_matmul(dst=psum, stationary=a, moving=partial, accumulate=flag)
        nisa.nc_matmul(dst=psum, stationary=a, moving=b, accumulate=flag)  # whole, and hides no hole
        return psum[:, 0:stored]

    a, b = operands(rng, (16, 4, 8))
    once = product(a, b)
    machine.assert_same(machine.outputs(body, a, b), (once + once + once)[:, 0:5])
    with pytest.raises((Uninitialized, UnwrittenOutput)):
        machine.outputs(lambda a, b: body(a, b, 6), a, b)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_sequence_of_windows_and_flags(data):
    """PSUM's three states against a NumPy model of them."""
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    a, b = operands(rng, (8, 4, 12))
    value, state = np.zeros((4, 12), F), np.zeros((4, 12), int)  # 0 unwritten, 1 written, 2 by matmul
    steps = []
    for _ in range(data.draw(st.integers(1, 6))):
        low = data.draw(st.integers(0, 11))
        high = data.draw(st.integers(low + 1, 12))
        flag = data.draw(st.sampled_from([None, True, False, "zero"]))
        steps.append((low, high, flag))
    error = None

    def kernel(x, y):
        psum = nl.ndarray((4, 12), nl.float32, nl.psum)
        left, right = nl.load(x), nl.load(y)
        for low, high, flag in steps:
            if flag == "zero":
                nisa.memset(dst=psum[:, low:high], value=0.0)
            else:
                nisa.nc_matmul(dst=psum[:, low:high], stationary=left, moving=right[:, low:high], accumulate=flag)
        out = nl.ndarray((4, 12), nl.float32, nl.shared_hbm)
        copy = nl.ndarray((4, 12), nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=copy, src=psum)
        nisa.dma_copy(dst=out, src=copy)
        return out

    for low, high, flag in steps:
        window = np.s_[:, low:high]
        if flag == "zero":
            value[window], state[window] = 0, 1
            continue
        fresh = product(a, b[window])
        before = state[window]
        if flag is True and (before != 2).any():
            error = Uninitialized if (before == 0).any() else UnknownBehavior
            break
        add = (before == 2) if flag is None else np.full_like(before, flag, bool)
        value[window] = np.where(add, value[window] + fresh, fresh)
        state[window] = 2
    if error is None and (state == 0).any():
        error = Uninitialized
    if error:
        with pytest.raises(error):
            neurosim.simulate(kernel)(a, b)
    else:
        np.testing.assert_array_equal(neurosim.simulate(kernel)(a, b).outputs, value)


# -- transposes and hints ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F, BF16, np.float16, ml_dtypes.float8_e4m3])
def test_transpose_mode_moves_bits(machine, rng, dtype):
    """From NeuronCore-v3 on, NaN and Inf and every other pattern survive."""
    raw = rng.integers(0, 256, (48, 32 * np.dtype(dtype).itemsize), np.uint8)
    a = raw.view(dtype)
    identity = np.eye(48).astype(dtype)

    def body(stationary, moving):
        psum = nl.ndarray((32, 48), stationary.dtype, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=stationary, moving=moving, is_transpose=True)
        return psum

    result = machine.run(body, a, identity)
    assert result.outputs.tobytes() == np.ascontiguousarray(a.T).tobytes()
    (work,) = result.program.record(2).signature.work
    assert (work.transpose, work.flops) == (True, 0)


def test_transpose_mode_needs_an_identity(machine, rng):
    def body(stationary, moving):
        psum = nl.ndarray((4, 8), stationary.dtype, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=stationary, moving=moving, is_transpose=True)

    arrays = rng.standard_normal((8, 4)).astype(F), np.ones((8, 8), F)
    assert "needs an identity matrix" in machine.refused(body, *arrays, error=UnknownBehavior)


def test_one_zero_hints(machine, rng):
    """They halve the passes of float32, and are an error where the operand holds anything else."""
    a = rng.integers(0, 2, (32, 16)).astype(F)
    b = rng.standard_normal((32, 24)).astype(F)
    plain = machine.run(multiplier(), a, b)
    hinted = machine.run(multiplier(is_stationary_onezero=True), a, b)
    machine.assert_same(hinted.outputs, plain.outputs)
    assert [r.program.record(2).signature.work[0].passes for r in (plain, hinted)] == [4, 2]
    text = machine.refused(multiplier(is_moving_onezero=True), a, b, error=UnknownBehavior)
    assert "moving holds other values than 0 and 1" in text


def test_one_zero_hints_have_no_impact_on_narrow_formats(machine, rng):
    """ "the field has no impact for non-float32 stationary"."""
    a, b = operands(rng, (32, 16, 24))
    got = machine.outputs(multiplier(is_stationary_onezero=True, is_moving_onezero=True), a, b)
    machine.assert_same(got, product(a, b))


def test_work(machine, rng):
    result = machine.run(multiplier(), *operands(rng, (100, 17, 33)))
    signature = result.program.record(2).signature
    assert signature.engines == {Engine.tensor}
    (work,) = signature.work
    assert isinstance(work, Matmul)
    assert (work.rows, work.columns, work.moving, work.passes, work.loads) == (100, 17, 33, 1, 1)
    assert work.flops == 2 * 100 * 17 * 33
    assert work.dtype == nl.bfloat16


# -- what is refused --------------------------------------------------------------------------------------------------


def with_dst(shape, dtype=nl.float32, buffer=nl.psum, view=lambda t: t, **options):
    def body(stationary, moving):
        dst = nl.ndarray(shape, dtype, buffer)
        nisa.nc_matmul(dst=view(dst), stationary=stationary, moving=moving, **options)

    return body


@pytest.mark.parametrize(
    ("body", "shape", "message"),
    [
        (with_dst((16, 24), buffer=nl.sbuf), (8, 16, 24), "dst is in SBUF; it must be in PSUM"),
        (with_dst((16, 24), buffer=nl.shared_hbm), (8, 16, 24), "dst is in HBM; it must be in PSUM"),
        (with_dst((16, 25)), (8, 16, 24), "dst is 16 × 25; the product is 16 × 24"),
        (with_dst((24, 16)), (8, 16, 24), "dst is 24 × 16; the product is 16 × 24"),
        (with_dst((128, 24)), (8, 129, 24), "stationary has 129 columns; the array is 128 wide"),
        (with_dst((16, 513)), (8, 16, 513), "moving has 513 columns; one PSUM bank holds 512 float32"),
        (with_dst((16, 24), nl.bfloat16), (8, 16, 24), "dst is bfloat16; it must be float32"),
        (with_dst((16, 24), nl.int32), (8, 16, 24), "dst is int32; it must be float32"),
        (
            with_dst((16, 1024), view=lambda t: t[:, 500:524]),
            (8, 16, 24),
            "dst covers bytes 2000 to 2095 of a partition and crosses a PSUM bank of 2048 bytes",
        ),
        (
            with_dst((16, 1024), view=lambda t: t[:, 0:552:24]),
            (8, 16, 23),
            "crosses a PSUM bank of 2048 bytes",
        ),
        (with_dst((16, 24), accumulate="yes"), (8, 16, 24), "accumulate='yes'"),
        (with_dst((16, 24), accumulate=2), (8, 16, 24), "accumulate=2"),
        (with_dst((16, 24), perf_mode="double"), (8, 16, 24), "perf_mode='double' is not a nisa.matmul_perf_mode"),
    ],
)
def test_refuses(machine, rng, body, shape, message):
    text = machine.refused(body, *operands(rng, shape))
    assert text.startswith("nc_matmul: ")
    assert message in text


def test_a_tile_at_a_bank_boundary_is_fine(machine, rng):
    arrays = operands(rng, (8, 16, 512))

    def body(stationary, moving):
        psum = nl.ndarray((16, 1024), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum[:, 512:1024], stationary=stationary, moving=moving)
        return psum[:, 512:1024]

    machine.assert_same(machine.outputs(body, *arrays), product(*arrays))


@pytest.mark.parametrize(
    ("dtypes", "message"),
    [
        ((F, BF16), "stationary is float32 and moving is bfloat16; float32 goes with float32 only"),
        ((ml_dtypes.float8_e4m3, F), "stationary is float8_e4m3 and moving is float32"),
        ((np.int32, np.int32), "stationary is int32; it must be"),
        ((BF16, np.int8), "moving is int8; it must be"),
        ((ml_dtypes.float8_e4m3fn, BF16), "stationary is float8_e4m3fn; it must be"),
    ],
)
def test_refuses_dtypes(machine, dtypes, message):
    """K1: every matrix format works or says why not; float8_e4m3fn comes with NeuronCore-v4."""
    arrays = np.ones((8, 16), dtypes[0]), np.ones((8, 24), dtypes[1])
    assert message in machine.refused(with_dst((16, 24)), *arrays)


def test_refuses_operands_elsewhere(machine, rng):
    """The tensor engine reads SBUF only."""
    arrays = operands(rng, (8, 16, 24))
    assert "stationary is in PSUM; it must be in SBUF" in machine.refused(with_dst((16, 24)), *arrays, psum={0})
    assert "moving is in PSUM; it must be in SBUF" in machine.refused(with_dst((16, 24)), *arrays, psum={1})

    def kernel(a, b):
        psum = nl.ndarray((16, 24), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=a, moving=b)

    with pytest.raises(IllegalOperand, match="stationary is in HBM; it must be in SBUF") as caught:
        neurosim.simulate(kernel)(*arrays)
    assert "load it into SBUF with nisa.dma_copy first" in str(caught.value)


def test_refuses_different_contraction_sizes(machine, rng):
    arrays = rng.standard_normal((8, 16)).astype(BF16), rng.standard_normal((9, 24)).astype(BF16)
    assert "stationary has 8 rows (K) and moving has 9" in machine.refused(with_dst((16, 24)), *arrays)


def test_the_whole_array_is_no_tiling(machine, rng):
    arrays = operands(rng, (8, 16, 24))
    got = machine.outputs(multiplier(tile_position=(0, 0), tile_size=(128, 128)), *arrays)
    machine.assert_same(got, product(*arrays))
