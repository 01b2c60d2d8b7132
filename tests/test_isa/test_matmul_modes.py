"""``nc_matmul`` in its modes: tiles of the array, 8-bit double rows, bfloat16 sums, tfloat32."""

from __future__ import annotations

import itertools
import json

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim
from neurosim.errors import IllegalOperand, UnknownBehavior
from neurosim.numerics import matmul
from neurosim.timing import Op

F = np.float32
BF16 = ml_dtypes.bfloat16
E4, E4FN, E5 = ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
DOUBLE = nisa.matmul_perf_mode.double_row


def product(stationary, moving):
    """Return stationary.T @ moving: k ascending, each product and each sum rounded to float32."""
    a, b = stationary.astype(F), moving.astype(F)
    total = np.zeros((a.shape[1], b.shape[1]), F)
    for k in range(a.shape[0]):
        total = total + a[k][:, None] * b[k]
    return total


def random(rng, *shape, dtype=BF16):
    return rng.standard_normal(shape).astype(dtype)


def multiplier(dtype=nl.float32, **options):
    def body(stationary, moving):
        double = options.get("perf_mode") in (DOUBLE, "double_row")
        free = [tile.size // tile.shape[0] // (2 if double else 1) for tile in (stationary, moving)]
        psum = nl.ndarray(free, dtype, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=stationary, moving=moving, **options)
        return psum

    return body


# -- tiles of the array -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chip", "size", "position"),
    [
        ("trn1", (64, 128), (64, 0)),
        ("trn1", (128, 64), (0, 64)),
        ("trn1", (64, 64), (64, 64)),
        ("trn2", (32, 128), (96, 0)),
        ("trn2", (32, 32), [32, 64]),
        ("trn3", (128, 32), (0, 96)),
        ("trn2", np.array([64, 32]), (np.int64(64), 32)),
    ],
)
def test_a_tile_gives_the_bits_of_the_whole_array(machine, rng, chip, size, position):
    a, b = random(rng, 30, 20), random(rng, 30, 40)
    tiled = machine.run(multiplier(tile_size=tuple(size), tile_position=position), a, b, chip=chip)
    machine.assert_same(tiled.outputs, product(a, b))
    (work,) = tiled.program.record(2).signature.work
    assert (work.tile_row, work.tile_column, work.tile_rows, work.tile_columns) == (*position, *size)


def refusal(machine, rng, chip="trn2", shape=(30, 20, 40), **options):
    arrays = random(rng, *shape[:2]), random(rng, shape[0], shape[2])
    return machine.refused(multiplier(**options), *arrays, chip=chip)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tile_size": (64, 128)}, "tile_position=() is not a (rows, columns) pair"),
        ({"tile_position": (64, 0)}, "tile_size=() is not a (rows, columns) pair"),
        ({"tile_position": (0, 0), "tile_size": 64}, "tile_size=64 is not a (rows, columns) pair"),
        ({"tile_position": (0, 0.5), "tile_size": (64, 64)}, "tile_position=(0, 0.5) is not a (rows, columns) pair"),
        ({"tile_position": (0, 0), "tile_size": (48, 128)}, "the row size must be 32 or 64 or 128 on trn2"),
        ({"tile_position": (0, 0), "tile_size": (64, 16)}, "the column size must be 32 or 64 or 128 on trn2"),
        ({"tile_position": (32, 0), "tile_size": (64, 128)}, "a tile of 64 rows begins at 0, 64"),
        ({"tile_position": (0, 128), "tile_size": (64, 32)}, "a tile of 32 columns begins at 0, 32, 64, 96"),
        ({"tile_position": (-32, 0), "tile_size": (32, 32)}, "a tile of 32 rows begins at 0, 32, 64, 96"),
        (
            {"tile_position": (0, 0), "tile_size": (32, 32), "shape": (40, 20, 40)},
            "stationary is 40 × 20; its tile of the array is 32 × 32",
        ),
        (
            {"tile_position": (0, 0), "tile_size": (32, 32), "shape": (30, 40, 40)},
            "stationary is 30 × 40; its tile of the array is 32 × 32",
        ),
    ],
)
def test_tiles_that_cannot_be(machine, rng, options, message):
    assert message in refusal(machine, rng, **options)


def test_the_first_generation_has_half_arrays_only(machine, rng):
    text = refusal(machine, rng, "trn1", tile_position=(0, 0), tile_size=(32, 128))
    assert "the row size must be 64 or 128 on trn1 (32 needs NeuronCore-v3, trn2)" in text


def test_transposes_in_tiles(machine, rng):
    """Nothing says that a transpose takes no tile; its bits are the same."""
    a = rng.integers(0, 1 << 16, (32, 20)).astype(np.uint16).view(BF16)

    def body(stationary, identity):
        psum = nl.ndarray((20, 32), nl.bfloat16, nl.psum)
        options = {"tile_position": (32, 64), "tile_size": (32, 32)}
        nisa.nc_matmul(dst=psum, stationary=stationary, moving=identity, is_transpose=True, **options)
        return psum

    got = machine.outputs(body, a, np.eye(32).astype(BF16))
    assert got.tobytes() == np.ascontiguousarray(a.T).tobytes()


def tiled_run(tiles, N=512, chip="trn2"):
    """Run a matmul of K = M = 32 on each of the tiles (None for the whole array), and time it."""
    rng = np.random.default_rng(3)

    def kernel(x, y):
        left, right = nl.load(x), nl.load(y)
        for index, tile in enumerate(tiles):
            psum = nl.ndarray((32, N), nl.float32, nl.psum, name=f"psum{index}")
            position, size = (None, None) if tile is None else tile
            nisa.nc_matmul(dst=psum, stationary=left, moving=right, tile_position=position, tile_size=size)
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nl.store(out, left)
        return out

    return neurosim.profile(kernel, chip, throttle=False)(random(rng, 32, 32), random(rng, 32, N))


def streams(result):
    """Return the MATMULs as rows of (record, start, end) in ps."""
    ops = result.timeline.ops
    return ops[["record", "start_ps", "end_ps"]][ops["kind"] == Op.MATMUL]


def busy_ns(tiles, count=8):
    """Return how long the tensor engine works on ``count`` matmuls, on the tiles in turn."""
    ops = streams(tiled_run([tiles[index % len(tiles)] for index in range(count)]))
    return (ops["end_ps"].max() - ops["start_ps"].min()) / 1000


def test_tiles_without_a_common_cell_work_at_the_same_time():
    """Eight matmuls of 512 columns: one after the other on the whole array or on one tile, four at a time on four."""
    rows = [((32 * index, 0), (32, 128)) for index in range(4)]
    blocks = [((32 * (index // 4), 32 * (index % 4)), (32, 32)) for index in range(8)]
    halves = [((0, 0), (64, 128)), ((64, 0), (64, 128))]
    whole = busy_ns([None])
    stream = 512 / 2.4
    assert whole == pytest.approx(8 * stream, rel=0.05)
    assert busy_ns(rows[:1]) == pytest.approx(whole, rel=0.01)
    assert busy_ns(halves) == pytest.approx(4 * stream, rel=0.1)
    assert busy_ns(rows) == pytest.approx(2 * stream, rel=0.3)
    assert busy_ns(blocks) < 2 * stream
    assert busy_ns([rows[0], ((0, 32), (32, 32))]) == pytest.approx(whole, rel=0.01)  # they overlap


def test_the_whole_array_waits_for_tiles_and_tiles_for_it():
    tile, whole = ((0, 0), (32, 32)), ((0, 0), (128, 128))
    stream = 512 / 2.4
    assert busy_ns([tile, whole]) == pytest.approx(8 * stream, rel=0.05)


TILES = [
    ((row, column), (rows, columns))
    for rows in (32, 64, 128)
    for columns in (32, 64, 128)
    for row in range(0, 128, rows)
    for column in range(0, 128, columns)
]


def cells(tile):
    """Return the 32 × 32 cells of a tile."""
    (row, column), (rows, columns) = tile or ((0, 0), (128, 128))
    return {(r, c) for r in range(row // 32, (row + rows) // 32) for c in range(column // 32, (column + columns) // 32)}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([None, *TILES]), min_size=1, max_size=10), st.sampled_from([16, 200, 512]))
def test_a_cell_does_one_thing_at_a_time(tiles, N):
    """MATMULs that share a cell never overlap, they begin in program order, and the account adds up."""
    result = tiled_run(tiles, N)
    ops = np.sort(streams(result), order="record")
    assert (np.diff(ops["start_ps"]) >= 0).all()
    for first in range(len(tiles)):
        for second in range(first + 1, len(tiles)):
            if cells(tiles[first]) & cells(tiles[second]):
                assert ops["start_ps"][second] >= ops["end_ps"][first]
    for account in result.timeline.engines.values():
        assert account.busy_ps + sum(account.stall_ps.values()) + account.idle_ps == result.timeline.makespan_ps
        assert min(account.busy_ps, account.idle_ps, *account.stall_ps.values()) >= 0


def test_a_trace_shows_tiles_side_by_side(tmp_path):
    """Slices of one track do not overlap: what streams at the same time has tracks of its own."""
    result = tiled_run([TILES[index] for index in (0, 1, 2, 0, 3, 4)])
    result.perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    found = {}
    for event in events:
        if event["ph"] == "X" and names[event["tid"]].startswith("tensor"):
            found.setdefault(names[event["tid"]], []).append((event["ts"], event["ts"] + event["dur"]))
    assert sorted(found) == ["tensor", "tensor (2)", "tensor (3)", "tensor (load stationary)"]
    assert sum(map(len, found.values())) == 12
    for slices in found.values():
        slices.sort()
        assert all(one[1] <= other[0] + 1e-9 for one, other in itertools.pairwise(slices))


# -- double_row -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [DOUBLE, "double_row"])
@pytest.mark.parametrize("formats", [(E4, E4), (E5, E5), (E4, E5)])
@pytest.mark.parametrize("shape", [(128, 128, 512), (1, 1, 1), (33, 17, 40)])
def test_double_row_contracts_twice_the_partitions(machine, rng, mode, formats, shape):
    """K is the partition and the first free axis: [K / 2, 2, M] and [K / 2, 2, N]."""
    K, M, N = shape
    a, b = random(rng, K, 2, M, dtype=formats[0]), random(rng, K, 2, N, dtype=formats[1])
    result = machine.run(multiplier(perf_mode=mode), a, b)
    machine.assert_same(result.outputs, product(a.reshape(2 * K, M), b.reshape(2 * K, N)))
    (work,) = result.program.record(2).signature.work
    assert (work.rows, work.columns, work.moving, work.depth, work.flops) == (K, M, N, 2, 4 * K * M * N)


def test_double_row_takes_the_time_of_bfloat16_with_half_the_rows(machine, rng):
    """trainium2_arch.rst: K = 256 in the time of K = 128, so twice the peak rate."""
    a, b = random(rng, 128, 2, 128, dtype=E4), random(rng, 128, 2, 512, dtype=E4)
    double = machine.time("nc_matmul", multiplier(perf_mode=DOUBLE), a, b)
    single = machine.time("nc_matmul", multiplier(), random(rng, 128, 128), random(rng, 128, 512))
    assert double == single
    timeline = machine.run(multiplier(perf_mode=DOUBLE), a, b).timeline
    assert timeline.flops == {"float8_e4m3": 2 * 256 * 128 * 512}
    assert timeline.peak_ps == pytest.approx(2 * 256 * 128 * 512 / 157.3, rel=1e-3)


def test_double_row_from_views_and_with_more_axes(machine, rng):
    a, b = random(rng, 16, 2, 6, dtype=E4), random(rng, 16, 2, 4, 5, dtype=E5)

    def body(stationary, moving):
        psum = nl.ndarray((3, 4, 5), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=stationary[:, :, 1::2], moving=moving, perf_mode=DOUBLE)
        return psum

    expected = product(a[:, :, 1::2].reshape(32, 3), b.reshape(32, 20)).reshape(3, 4, 5)
    machine.assert_same(machine.outputs(body, a, b), expected)


def test_double_row_in_row_tiles(machine, rng):
    a, b = random(rng, 32, 2, 6, dtype=E4), random(rng, 32, 2, 5, dtype=E4)
    tile = {"tile_position": (64, 0), "tile_size": (32, 128)}
    got = machine.outputs(multiplier(perf_mode=DOUBLE, **tile), a, b)
    machine.assert_same(got, product(a.reshape(64, 6), b.reshape(64, 5)))


@pytest.mark.parametrize(
    ("options", "dtype", "chip", "message"),
    [
        ({}, E4, "trn1", "perf_mode double_row needs NeuronCore-v3 (trn2)"),
        ({}, BF16, "trn2", "stationary is bfloat16; it must be float8_e4m3 or float8_e5m2"),
        ({}, E4FN, "trn2", "stationary is float8_e4m3fn; it must be float8_e4m3 or float8_e5m2"),
        ({"is_transpose": True}, E4, "trn2", "is_transpose with perf_mode double_row"),
        (
            {"tile_position": (0, 0), "tile_size": (128, 64)},
            E4,
            "trn3",
            "column tiling (tile_size=(128, 64)) with perf_mode double_row",
        ),
    ],
)
def test_double_row_refuses(machine, rng, options, dtype, chip, message):
    a, b = random(rng, 16, 2, 6, dtype=dtype), random(rng, 16, 2, 5, dtype=dtype)
    assert message in machine.refused(multiplier(perf_mode=DOUBLE, **options), a, b, chip=chip)


@pytest.mark.parametrize("shape", [(16, 12), (16, 3, 4)])
def test_double_row_needs_the_axis_of_two(machine, rng, shape):
    a, b = random(rng, *shape, dtype=E4), random(rng, 16, 2, 5, dtype=E4)
    text = machine.refused(multiplier(perf_mode=DOUBLE), a, b)
    assert f"stationary is {list(shape)}; with double_row its first free axis must be 2" in text


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 20), st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_double_row_is_the_loop(K, M, N, seed):
    rng = np.random.default_rng(seed)
    a, b = random(rng, K, 2, M, dtype=E4), random(rng, K, 2, N, dtype=E5)

    def kernel(x, y):
        psum = nl.ndarray((M, N), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=nl.load(x), moving=nl.load(y), perf_mode=DOUBLE)
        out, copy = nl.ndarray((M, N), nl.float32, nl.shared_hbm), nl.ndarray((M, N), nl.float32)
        nisa.tensor_copy(dst=copy, src=psum)
        nl.store(out, copy)
        return out

    expected = np.zeros((M, N), F)
    wide, moving = a.astype(F), b.astype(F)
    for m in range(M):
        for n in range(N):
            total = F(0)
            for k in range(K):
                for j in range(2):
                    total = F(total + F(wide[k, j, m] * moving[k, j, n]))
            expected[m, n] = total
    np.testing.assert_array_equal(neurosim.simulate(kernel)(a, b).outputs, expected)


# -- bfloat16 sums ----------------------------------------------------------------------------------------------------


def test_a_product_rounds_once_into_bfloat16_psum(machine, rng):
    """trainium3_arch.rst: summed in float32 within the array, converted right before the write."""
    a, b = random(rng, 128, 16), random(rng, 128, 24)
    got = machine.outputs(multiplier(nl.bfloat16), a, b, chip="trn3")
    machine.assert_same(got, product(a, b).astype(BF16))


def test_sums_in_bfloat16_psum_round_at_each_matmul(machine, rng):
    """What PSUM holds is widened, added in float32, and rounded again."""
    arrays = [random(rng, 32, n) for _ in range(3) for n in (16, 24)]

    def body(*tiles):
        psum = nl.ndarray((16, 24), nl.bfloat16, nl.psum)
        for index in range(3):
            nisa.nc_matmul(dst=psum, stationary=tiles[2 * index], moving=tiles[2 * index + 1])
        return psum

    got = machine.outputs(body, *arrays, chip="trn3")
    first, second, third = (product(*arrays[2 * index : 2 * index + 2]) for index in range(3))
    total = first.astype(BF16)
    total = (total.astype(F) + second).astype(BF16)
    machine.assert_same(got, (total.astype(F) + third).astype(BF16))
    assert (got != (first + second + third).astype(BF16)).any()


def test_bfloat16_sums_begin_where_no_matmul_wrote(machine, rng):
    a, b = random(rng, 32, 16), random(rng, 32, 24)

    def body(stationary, moving):
        psum = nl.ndarray((16, 24), nl.bfloat16, nl.psum)
        nisa.nc_matmul(dst=psum[:, 0:10], stationary=stationary, moving=moving[:, 0:10])
        nisa.nc_matmul(dst=psum, stationary=stationary, moving=moving)
        return psum

    expected = product(a, b)
    once = expected.astype(BF16)
    twice = (once.astype(F) + expected).astype(BF16)
    machine.assert_same(machine.outputs(body, a, b, chip="trn3"), np.hstack([twice[:, :10], once[:, 10:]]))


@pytest.mark.parametrize("values", [True, False])
def test_float32_operands_and_bfloat16_sums(values):
    """Four passes write PSUM: whether each rounds is not documented."""

    def kernel(a, b):
        psum = nl.ndarray((16, 24), nl.bfloat16, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=nl.load(a), moving=nl.load(b))

    with pytest.raises(UnknownBehavior, match="no public text says whether each rounds") as caught:
        neurosim.simulate(kernel, "trn3", values=values)(np.ones((8, 16), F), np.ones((8, 24), F))
    assert "give dst float32" in str(caught.value)


def test_bfloat16_psum_holds_twice_the_columns(machine, rng):
    """All eight banks at once, from NeuronCore-v4 on: 8192 columns in bfloat16, 4096 in float32."""
    a, b = random(rng, 4, 2), random(rng, 4, 8192)
    machine.assert_same(machine.outputs(multiplier(nl.bfloat16), a, b, chip="trn3"), product(a, b).astype(BF16))
    machine.assert_same(machine.outputs(multiplier(), a, b[:, :4096], chip="trn3"), product(a, b[:, :4096]))


# -- formats ----------------------------------------------------------------------------------------------------------


def as_tfloat32(kernel_body, *arrays, chip="trn2"):
    """Run ``kernel_body`` on tiles of tfloat32 made from float32 arrays by a DMA."""

    def kernel(*tensors):
        tiles = []
        for tensor in tensors:
            tile = nl.ndarray(tensor.shape, nl.tfloat32)
            nisa.dma_copy(dst=tile, src=tensor)
            tiles.append(tile)
        psum = kernel_body(*tiles)
        copy, out = nl.ndarray(psum.shape, psum.dtype), nl.ndarray(psum.shape, psum.dtype, nl.shared_hbm)
        nisa.tensor_copy(dst=copy, src=psum)
        nisa.dma_copy(dst=out, src=copy)
        return out

    return neurosim.simulate(kernel, chip)(*arrays)


def test_tfloat32_takes_one_pass(rng):
    """Operands of 11 significant bits, at the documented rate of bfloat16."""
    a, b = random(rng, 40, 16, dtype=F), random(rng, 40, 24, dtype=F)
    result = as_tfloat32(multiplier(), a, b)
    cut = [
        np.ldexp(np.rint(np.ldexp(fraction, 11)), exponent - 11).astype(F)
        for fraction, exponent in map(np.frexp, (a, b))
    ]
    np.testing.assert_array_equal(result.outputs, product(*cut))
    (work,) = result.program.record(2).signature.work
    assert (work.passes, work.loads) == (1, 1)


def test_tfloat32_goes_with_float32(machine, rng):
    """ "If one of the input tiles is tfloat32/float32, the other tile must also be tfloat32/float32." """
    a, b = (rng.integers(-9, 9, shape).astype(F) for shape in ((40, 16), (40, 24)))

    def mixed(left, right):
        psum, wide = nl.ndarray((16, 24), nl.float32, nl.psum), nl.ndarray(right.shape, nl.float32)
        nisa.tensor_copy(dst=wide, src=right)
        nisa.nc_matmul(dst=psum, stationary=left, moving=wide)
        return psum

    result = as_tfloat32(mixed, a, b)
    np.testing.assert_array_equal(result.outputs, a.T @ b)
    assert result.program.record(3).signature.work[0].passes == 4

    def narrow(left, right):
        other = nl.ndarray(right.shape, nl.bfloat16)
        nisa.tensor_copy(dst=other, src=right)
        nisa.nc_matmul(dst=nl.ndarray((16, 24), nl.float32, nl.psum), stationary=left, moving=other)

    with pytest.raises(IllegalOperand, match="tfloat32 goes with float32 and tfloat32 only"):
        as_tfloat32(narrow, a, b)


def test_the_two_e4m3_do_not_mix(machine, rng):
    a, b = random(rng, 8, 4, dtype=E4), random(rng, 8, 5, dtype=E4FN)
    text = machine.refused(multiplier(), a, b, chip="trn3")
    assert "stationary is float8_e4m3 and moving is float8_e4m3fn; the two cannot be mixed" in text
    a = a.astype(F).astype(E4FN)
    machine.assert_same(machine.outputs(multiplier(), a, b, chip="trn3"), product(a, b))
    machine.assert_same(
        machine.outputs(multiplier(), a, b.astype(F).astype(E5), chip="trn3"), product(a, b.astype(F).astype(E5))
    )


def test_one_pass_is_one_pass(rng):
    """The loop of this file and the kernels of numerics agree where both are asked for one pass."""
    a, b = random(rng, 8, 4, dtype=F), random(rng, 8, 5, dtype=F)
    np.testing.assert_array_equal(matmul.matmul(a, b, 1), product(a, b))
