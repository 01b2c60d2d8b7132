"""``mask=`` of legacy instructions that move, choose or scan: what it leaves out keeps its values."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from neurosim.errors import IllegalOperand, Unsupported

OLD = np.float32(-7)


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(body, *arrays, shape, dtype=np.float32):
    """Return a tile that held ``OLD``, after ``body`` of it and of the loaded arrays."""

    @nki.jit(platform_target="trn2")
    def kernel(*inputs):
        tile = nl.full(shape, float(OLD), dtype=dtype)
        body(tile, *[nl.load(entry) for entry in inputs])
        out = nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    return kernel(*arrays)


def box(shape, rows, columns):
    """Return where a mask of the first rows and columns holds."""
    return (np.arange(shape[0])[:, None] < rows) & (np.arange(shape[1])[None, :] < columns)


def mask_of(shape, rows, columns):
    i, j = nl.mgrid[0 : shape[0], 0 : shape[1]]
    return (i < rows) & (j < columns)


def test_dma_transpose_masks_its_source():
    a = numbers(16, 32)

    def turn(tile, x):
        tile[...] = nisa.dma_transpose(x, mask=mask_of((16, 32), 5, 20))

    np.testing.assert_array_equal(run(turn, a, shape=(32, 16)), np.where(box(a.shape, 5, 20), a, OLD).T)


def test_dma_transpose_has_one_order_of_axes():
    with pytest.raises(IllegalOperand, match=r"axes are \(1, 0\)"):
        run(lambda tile, x: nisa.dma_transpose(x, axes=(0, 1)), numbers(8, 8), shape=(8, 8))


def test_transpose_and_load_transpose_leave_the_rest():
    a = numbers(16, 24).astype(np.float32)

    @nki.jit
    def kernel(a):
        out = nl.ndarray((2, 24, 16), dtype=a.dtype, buffer=nl.shared_hbm)
        for n in range(2):
            tile = nl.full((24, 16), float(OLD), dtype=a.dtype)
            mask = mask_of((16, 24), 9, 17)
            if n:
                tile[...] = nl.load_transpose2d(a, mask=mask, dtype=nl.bfloat16)
            else:
                tile[...] = nl.transpose(nl.load(a), mask=mask)
            nl.store(out[n], tile)
        return out

    by_engine, by_dma = kernel(a)
    np.testing.assert_array_equal(by_engine, np.where(box(a.shape, 9, 17), a, OLD).T)
    np.testing.assert_array_equal(by_dma, np.where(box(a.shape, 9, 17), a.astype(nl.bfloat16), OLD).T)


def test_where_into_a_tile_of_another_dtype():
    a, b = numbers(8, 16).round(), numbers(8, 16, seed=1).round()

    def choose(tile, x, y):
        tile[...] = nl.where(x > y, x, y, mask=mask_of((8, 16), 8, 5))

    found = run(choose, a, b, shape=(8, 16), dtype=nl.bfloat16)
    np.testing.assert_array_equal(found.astype(np.float32), np.where(box(a.shape, 8, 5), np.maximum(a, b), OLD))


def test_means_of_rows_that_a_mask_leaves_out():
    a = np.round(4 * numbers(8, 6, 4))

    def average(tile, x):
        i, j = nl.arange(8)[:, None, None], nl.arange(6)[None, :, None]
        tile[...] = nl.mean(x, axis=2, mask=(i < 5) & (j < 4))

    np.testing.assert_array_equal(run(average, a, shape=(8, 6)), np.where(box((8, 6), 5, 4), a.mean(axis=2), OLD))


def test_range_select_counts_from_the_mask():
    a, low, high = numbers(8, 16), np.full((8, 1), 6, np.float32), np.full((8, 1), 11, np.float32)
    columns = np.arange(16)

    def choose(tile, x, one, other):
        j = nl.arange(16)[None, :]
        tile[...] = nisa.range_select(
            on_true_tile=x,
            comp_op0=np.greater_equal,
            comp_op1=np.less,
            bound0=one,
            bound1=other,
            mask=(j >= 4) & (j < 14),
        )

    chosen = np.where((columns >= 6) & (columns < 11), a, np.finfo(np.float32).min)
    inside = (columns >= 4) & (columns < 14)
    np.testing.assert_array_equal(run(choose, a, low, high, shape=(8, 16)), np.where(inside, chosen, OLD))


@pytest.mark.parametrize("reduces", [False, True])
def test_select_reduce_within_a_mask(reduces):
    a, predicate = numbers(8, 16), (numbers(8, 16, seed=1) > 0).astype(np.uint8)
    where = box(a.shape, 6, 10)

    def choose(tile, x, chooser):
        top = nl.zeros((8, 1), dtype=np.float32)
        options = {"reduce_res": top, "reduce_cmd": nisa.reduce_cmd.reset_reduce} if reduces else {}
        nisa.select_reduce(
            dst=tile, predicate=chooser, on_true=x, on_false=0.5, mask=mask_of((8, 16), 6, 10), **options
        )
        if reduces:
            tile[:, 15:16] = top

    chosen = np.where(predicate, a, np.float32(0.5))
    expected = np.where(where, chosen, OLD)
    if reduces:
        expected[:, 15] = np.where(where.any(axis=1), np.where(where, chosen, -np.inf).max(axis=1), 0)
    np.testing.assert_array_equal(run(choose, a, predicate, shape=(8, 16)), expected)


def test_stream_shuffle_masks_its_destination():
    a = numbers(64, 8)

    def shuffle(tile, x):
        nisa.nc_stream_shuffle(x, tile, [(i + 3) % 32 for i in range(32)], mask=mask_of((64, 8), 50, 5))

    expected = np.where(box(a.shape, 50, 5), np.roll(a.reshape(2, 32, 8), -3, axis=1).reshape(64, 8), OLD)
    np.testing.assert_array_equal(run(shuffle, a, shape=(64, 8)), expected)

    def late(tile, x):
        nisa.nc_stream_shuffle(x, tile, list(range(32)), mask=nl.arange(64)[:, None] >= 3)

    with pytest.raises(Unsupported, match="begins at partition 3"):
        run(late, a, shape=(64, 8))


def test_local_gather_takes_the_first_rows_and_indices():
    a = numbers(32, 20)
    index = np.random.default_rng(1).integers(0, 20, (32, 2)).astype(np.uint16)

    def gather(tile, x, places):
        tile[...] = nisa.local_gather(x, places, mask=mask_of((32, 32), 16, 21))

    flat = np.repeat(index.reshape(2, 16, 2).transpose(0, 2, 1).reshape(2, 32), 16, axis=0)
    expected = np.where(box((32, 32), 16, 21), np.take_along_axis(a, flat.astype(int), axis=1), OLD)
    np.testing.assert_array_equal(run(gather, a, index, shape=(32, 32)), expected)

    def late(tile, x, places):
        tile[...] = nisa.local_gather(x, places, mask=nl.arange(32)[None, :] > 3)

    with pytest.raises(Unsupported, match="the first partitions"):
        run(late, a, index, shape=(32, 32))


def test_running_sums_of_a_box():
    a = np.round(4 * numbers(8, 16))

    def scan(tile, x):
        j = nl.arange(16)[None, :]
        nisa.tensor_scalar_cumulative(
            src=x, dst=tile, op0=np.multiply, op1=np.add, imm0=2.0, mask=(nl.arange(8)[:, None] < 6) & (j >= 3)
        )

    expected = np.full((8, 16), OLD)
    expected[:6, 3:] = np.cumsum(2 * a[:6, 3:], axis=1)
    np.testing.assert_array_equal(run(scan, a, shape=(8, 16)), expected)


@pytest.mark.parametrize("into", [False, True])
def test_dynamic_copies_within_a_mask(into):
    a, offset = numbers(8, 24), np.array([[5]], np.int32)

    def move(tile, x, start):
        i, j = nl.mgrid[0:8, 0:12]
        mask = (i < 6) & (j < 7)
        if into:
            nisa.tensor_copy_dynamic_dst(dst=tile[i, start[0, 0] + j], src=x[i, j], mask=mask)
        else:
            tile[i, j] = nisa.tensor_copy_dynamic_src(x[i, start[0, 0] + j], mask=mask)

    expected = np.full((8, 24), OLD)
    if into:
        expected[:6, 5:12] = a[:6, :7]
    else:
        expected[:6, :7] = a[:6, 5:12]
    np.testing.assert_array_equal(run(move, a, offset, shape=(8, 24)), expected)


def joined_masks(scale):
    """Return a kernel that joins masks with ``and``, and keeps a variable and defaults of its own."""

    @nki.jit
    def kernel(a, rows, *, columns=5):
        """Keep a corner."""
        i, j = nl.mgrid[0:8, 0:16]
        out = nl.full((8, 16), float(OLD), dtype=a.dtype, buffer=nl.shared_hbm)
        x = nl.load(a)
        x[...] = nl.multiply(x, scale)
        nl.store(out[i, j], x[i, j], mask=(i < rows and j < columns and True))
        return out

    return kernel


def test_masks_joined_with_and():
    a = numbers(8, 16)
    kernel = joined_masks(2.0)
    np.testing.assert_array_equal(kernel(a, 3), np.where(box(a.shape, 3, 5), 2 * a, OLD))
    np.testing.assert_array_equal(kernel(a, 4, columns=9), np.where(box(a.shape, 4, 9), 2 * a, OLD))
    assert kernel.__doc__ == "Keep a corner."
    with pytest.raises(IllegalOperand, match="join comparisons"):
        _nothing_to_join(a)


@nki.jit
def _nothing_to_join(a):
    i = nl.arange(8)[:, None]
    return nl.load(a, mask=(i < 3 and None))
