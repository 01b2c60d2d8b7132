"""Instructions of the legacy dialect that move, choose and search, against NumPy."""

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import OutOfBounds


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@nki.jit
def gathered(a, offsets, direct):
    out = nl.ndarray((8, offsets.shape[1], 4), dtype=a.dtype, buffer=nl.shared_hbm)
    source, places = nl.load(a), nl.load(offsets)
    tiles = nl.ndarray((8, offsets.shape[1], 4), dtype=a.dtype)
    i_p, i_f = nl.mgrid[0:8, 0:4]
    for i in nl.affine_range(offsets.shape[1]):
        if direct:
            tiles[i_p, i, i_f] = nisa.tensor_copy_dynamic_src(source[i_p, places[0, i] + i_f])
        else:
            nisa.tensor_copy_dynamic_dst(dst=tiles[i_p, places[0, i], i_f], src=source[i_p, 4 * i + i_f])
    nl.store(out, tiles)
    return out


def test_copies_from_and_to_places_known_at_run_time():
    a, offsets = numbers(8, 16), np.array([[5, 0, 12]], np.int32)
    expected = np.stack([a[:, at : at + 4] for at in offsets[0]], axis=1)
    np.testing.assert_array_equal(gathered(a, offsets, True), expected)
    order = np.array([[2, 0, 1]], np.int32)
    expected = np.zeros((8, 3, 4), np.float32)
    expected[:, order[0]] = a[:, :12].reshape(8, 3, 4)
    np.testing.assert_array_equal(gathered(a, order, False), expected)
    with pytest.raises(OutOfBounds, match="index 13"):
        gathered(a, np.array([[13]], np.int32), True)


@nki.jit
def added(a, index, by_language):
    out = nl.ndarray((16, 8), dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.ones((16, 8), dtype=a.dtype))
    rows, f = nl.load(index), nl.arange(8)[None, :]
    if by_language:
        nl.atomic_rmw(out[rows, f], value=nl.load(a), op=np.add)
    else:
        nisa.dma_copy(dst=out[rows, f], src=nl.load(a), dst_rmw_op=np.add)
    return out


@pytest.mark.parametrize("by_language", [False, True])
def test_rows_that_are_added_to(by_language):
    a, index = numbers(4, 8), np.array([[3], [15], [0], [7]], np.int32)
    expected = np.ones((16, 8), np.float32)
    expected[index[:, 0]] += a
    np.testing.assert_array_equal(added(a, index, by_language), expected)


@nki.jit
def searched(a):
    best = nl.ndarray((8, 8), dtype=a.dtype, buffer=nl.shared_hbm)
    places = nl.ndarray((8, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
    rest = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    top = nisa.max8(src=x)
    nl.store(best, top)
    nl.store(places, nisa.nc_find_index8(data=x, vals=top))
    nl.store(rest, nisa.nc_match_replace8(data=x, vals=top, imm=0.0))
    return best, places, rest


def test_search():
    a = numbers(8, 32)
    best, places, rest = searched(a)
    order = np.argsort(-a, axis=1)[:, :8]
    np.testing.assert_array_equal(best, np.take_along_axis(a, order, axis=1))
    np.testing.assert_array_equal(places, order)
    expected = a.copy()
    np.put_along_axis(expected, order, 0.0, axis=1)
    np.testing.assert_array_equal(rest, expected)


@nki.jit
def merged(a, b, columns):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    t, x = nl.load(a), nl.load(b)
    i_f = nl.arange(a.shape[1])[None, :]
    nisa.tensor_copy_predicated(src=x, dst=t, predicate=nl.greater(x, 0.0, dtype=nl.uint8), mask=i_f < columns)
    nl.store(out, t)
    return out


@pytest.mark.parametrize("columns", [5, 16])
def test_predicated_copies_within_a_mask(columns):
    a, b = numbers(8, 16), numbers(8, 16, seed=1)
    expected = np.where((b > 0) & (np.arange(16) < columns), b, a)
    np.testing.assert_array_equal(merged(a, b, columns), expected)


@nki.jit
def statistics(a):
    out = nl.ndarray((8, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nisa.bn_aggr(nisa.bn_stats(nl.load(a), dtype=nl.float32)))
    return out


def test_statistics():
    a = numbers(8, 64)
    expected = np.stack([a.mean(axis=1), a.var(axis=1)], axis=1)
    np.testing.assert_allclose(statistics(a), expected, rtol=1e-4, atol=1e-6)


@nki.jit
def others(a):
    total = nl.ndarray((1, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    turned = nl.ndarray((16, 32), dtype=nl.float32, buffer=nl.shared_hbm)
    running = nl.ndarray((32, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    shuffled = nl.ndarray((32, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    x = nl.load(a)
    nl.store(total, nisa.tensor_partition_reduce(np.add, x))
    nl.store(turned, nisa.dma_transpose(a))
    t, s = nl.ndarray((32, 16), dtype=nl.float32), nl.ndarray((32, 16), dtype=nl.float32)
    nisa.tensor_scalar_cumulative(src=x, dst=t, op0=np.multiply, op1=np.add, imm0=2.0)
    nl.store(running, t)
    nisa.nc_stream_shuffle(x, s, [(i + 1) % 32 for i in range(32)])
    nl.store(shuffled, s)
    return total, turned, running, shuffled


def test_other_movements():
    a = numbers(32, 16)
    total, turned, running, shuffled = others(a)
    np.testing.assert_allclose(total, a.sum(axis=0, keepdims=True), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(turned, a.T)
    np.testing.assert_allclose(running, np.cumsum(2 * a, axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(shuffled, np.roll(a, -1, axis=0))


@nki.jit(platform_target="trn2")
def gathered_and_turned(blocks, chosen):
    rows = nl.arange(16)[:, None]
    middle, columns = nl.arange(3)[None, :, None], nl.arange(32)[None, None, :]
    index = nl.load(chosen)
    out = nl.ndarray((32, 3, 16), dtype=blocks.dtype, buffer=nl.shared_hbm)
    nl.store(out, nisa.dma_transpose(blocks[index[rows, 0], middle, columns], axes=(2, 1, 0)))
    return out


def test_a_column_of_indices_goes_with_the_first_axis_of_what_it_selects():
    blocks = np.arange(40 * 3 * 32, dtype=np.uint16).reshape(40, 3, 32)
    chosen = np.random.default_rng(3).permutation(40)[:16].astype(np.uint32)
    found = gathered_and_turned(blocks, chosen[:, None])
    np.testing.assert_array_equal(found, blocks[chosen].transpose(2, 1, 0))


@pytest.mark.parametrize(("chip", "engines"), [("trn1", ["sync", "gpsimd"]), ("trn2", ["gpsimd", "gpsimd"])])
def test_who_triggers_dmas(chip, engines):
    """The compiler of NKI 0.1 left them to GpSimd's software on trn2; trn1 has rings that are ready."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    program = neurosim.simulate(kernel, chip=chip)(np.ones((8, 4), np.float32)).program
    assert [program.signatures[index].engine.name for index in program.signature_ids] == engines


def test_arrays_are_cast_where_a_script_prepares_arguments():
    a = numbers(4, 8)
    cast = nl.static_cast(a, nl.bfloat16)
    assert cast.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(cast, a.astype(ml_dtypes.bfloat16))
