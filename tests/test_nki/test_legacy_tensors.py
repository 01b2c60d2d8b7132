"""Legacy tensors: loads, masks, views, block dimensions, assignment, PSUM, and their errors; against NumPy."""

import functools

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from neuronxcc.nki.language import par_dim

import neurosim
from neurosim.errors import IllegalOperand, OutOfBounds, Uninitialized, Unsupported
from neurosim.nki.legacy import UnwrittenOutputWarning
from neurosim.nki.legacy.launch import SpillWarning


def numbers(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def instructions(kernel, *args):
    program = neurosim.simulate(kernel)(*args).program
    return [program.record(index).signature.instruction for index in range(len(program))]


@nki.jit
def tails(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows, columns = a.shape
    ix, iy = nl.arange(128)[:, None], nl.arange(64)[None, :]
    for i in nl.affine_range(-(-rows // 128)):
        for j in nl.affine_range(-(-columns // 64)):
            mask = (i * 128 + ix < rows) & (j * 64 + iy < columns)
            x = nl.load(a[i * 128 + ix, j * 64 + iy], mask=mask)
            y = nl.multiply(x, 3.0, mask=mask)
            nl.store(out[i * 128 + ix, j * 64 + iy], value=y, mask=mask)
    return out


@pytest.mark.parametrize("shape", [(1, 1), (127, 63), (128, 64), (129, 65), (200, 130)])
def test_tails_by_mask(shape):
    a = numbers(*shape)
    np.testing.assert_array_equal(tails(a), a * np.float32(3))


@nki.jit
def partly(a, columns):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    _, iy = nl.mgrid[0:8, 0:16]
    y = nl.square(x, mask=iy < columns)
    nl.store(out, y)
    return out


def test_what_a_mask_leaves_out_is_not_written():
    a = numbers(8, 16)
    np.testing.assert_array_equal(partly(a, 16), a * a)
    with pytest.raises(Uninitialized, match=r"unwritten here: \[0:8, 5:16\]"):
        partly(a, 5)


@nki.jit
def chosen(a, narrow, low):
    """Two masked results for one tile, of its dtype or of another."""
    out = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.ndarray(a.shape, dtype=nl.float32)
    x = nl.load(a)
    i = nl.arange(a.shape[1])[None, :]
    dtype = nl.bfloat16 if narrow else nl.float32
    t[...] = nl.multiply(x, 2.0, dtype=dtype, mask=i < low)
    t[...] = nl.multiply(x, 4.0, dtype=dtype, mask=i >= low)
    nl.store(out, t)
    return out


@pytest.mark.parametrize("low", [0, 3, 16])
@pytest.mark.parametrize("narrow", [False, True])
def test_a_masked_result_leaves_the_rest_of_its_place(narrow, low):
    a = numbers(8, 16)
    expected = np.where(np.arange(16) < low, a * 2, a * 4)
    if narrow:
        expected = expected.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(chosen(a, narrow, low), expected)


@nki.jit
def anywhere(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.zeros(a.shape, dtype=a.dtype)
    x = nl.load(a)
    for i in nl.static_range(a.shape[0]):
        t[i, 0] = float(i)
        t[i, 1:4] = x[i, 4:7]
    nl.store(out, t)
    return out


def test_single_partitions_are_reached_by_dma():
    a = numbers(5, 8)
    expected = np.zeros_like(a)
    expected[:, 0], expected[:, 1:4] = np.arange(5), a[:, 4:7]
    np.testing.assert_array_equal(anywhere(a), expected)


@nki.jit
def blocks(a):
    count, rows, columns = a.shape
    out = nl.ndarray((count, rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray((count, par_dim(rows), columns), dtype=a.dtype, buffer=nl.sbuf)
    for b in nl.affine_range(count):
        tiles[b] = nl.load(a[b])
    for b in nl.affine_range(count):
        tiles[b, :, 0:2] = nl.exp(tiles[b, :, 0:2])
        nl.store(out[b], tiles[b])
    return out


def test_block_dimensions_are_tiles_of_their_own():
    a = numbers(5, 16, 8)
    expected = a.copy()
    expected[:, :, :2] = np.exp(a[:, :, :2])
    np.testing.assert_allclose(blocks(a), expected, rtol=1e-6)
    result = neurosim.simulate(blocks)(a)
    tiles = [info for info in result.program.storages if info.memory is nl.sbuf]
    assert [info.shape for info in tiles] == [(16, 8)] * 5


@nki.jit
def assigned(a):
    out = nl.ndarray((4, 8), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    t = nl.ndarray((par_dim(4), 8), dtype=nl.bfloat16)
    t[...] = nl.exp(nl.load(a))
    nl.store(out, t)
    return out


def test_a_result_goes_where_it_is_assigned_without_a_copy():
    a = numbers(4, 8)
    assert instructions(assigned, a) == ["dma_copy", "activation", "dma_copy"]
    np.testing.assert_array_equal(assigned(a), np.exp(a).astype(ml_dtypes.bfloat16))


@nki.jit
def kept(a):
    out = nl.ndarray((4, 8), dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.zeros((4, 8), dtype=nl.bfloat16)
    e = nl.exp(nl.load(a))
    t[...] = e
    t[...] = 0.0
    nl.store(out, e)
    return out


def test_a_result_in_a_variable_is_copied():
    a = numbers(4, 8)
    np.testing.assert_allclose(kept(a), np.exp(a), rtol=1e-6)
    assert instructions(kept, a).count("tensor_copy") == 1


def _made(a, keep):
    keep.append(nl.exp(a))
    return keep[0]


@nki.jit
def hidden(a, overwrites):
    out = nl.ndarray((4, 8), dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((4, 8), dtype=a.dtype)
    keep = []
    t[...] = _made(nl.load(a), keep)
    if overwrites:
        t[...] = 0.0
    nl.store(out, keep[0])
    return out


def test_a_result_that_was_overwritten_is_refused():
    a = numbers(4, 8)
    np.testing.assert_allclose(hidden(a, False), np.exp(a), rtol=1e-6)
    with pytest.raises(Unsupported, match="to a tile that was overwritten since, and is used again"):
        hidden(a, True)


@nki.jit
def forms(a):
    """Views of views, ints, numbers, columns, and two axes in one."""
    out = nl.ndarray((4, 6, 8), dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((par_dim(4), 6, 8), dtype=a.dtype)
    whole = nl.load(a)
    i_p, i_a, i_b = nl.mgrid[0:4, 0:6, 0:8]
    t[i_p, i_a, i_b] = nl.copy(whole[i_p, 8 * i_a + i_b])
    part = t[:, 1:5]
    t[:, 1:3] = part[:, 2:4, :]
    t[:, 0, :] = 7.0
    t[:, 5, 3] = nl.copy(t[:, 4, 2])
    t[0:1, 5, 0:2] = whole[0, 4:6]
    nl.store(out, t)
    return out


def test_views_against_numpy():
    a = numbers(4, 48)
    expected = a.reshape(4, 6, 8).copy()
    expected[:, 1:3] = expected[:, 3:5].copy()
    expected[:, 0, :] = 7
    expected[:, 5, 3] = expected[:, 4, 2]
    expected[0:1, 5, 0:2] = a[0, 4:6]
    np.testing.assert_array_equal(forms(a), expected)


@nki.jit
def reshaped_by_name(x):
    out = nl.ndarray((4, 6, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    flat = out.reshape(shape=(4, 48))
    nl.store(flat, nl.load(x.reshape(shape=(4, 48))))
    return out


def test_a_shape_may_be_given_by_name():
    a = numbers(8, 24)
    np.testing.assert_array_equal(reshaped_by_name(a), a.reshape(4, 6, 8))


def test_whole_floats_in_a_reshape_are_ints():
    """Where kernels divide by the size of a pool with ``/``; of other floats nobody knows what to make."""

    @nki.jit(mode="simulation")
    def pooled(x, size):
        tile = nl.load(x).reshape((4, 6 / size, size, 8))
        out = nl.ndarray((4, 3, 8), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.max(tile, axis=2))
        return out

    a = numbers(4, 48)
    np.testing.assert_array_equal(pooled(a, 2), a.reshape(4, 3, 2, 8).max(axis=2))
    with pytest.raises(IllegalOperand, match=r"reshape: shape \[4, 1.5, 4, 8\] is not made of ints"):
        pooled(a, 4)


def test_a_shape_is_given_once():
    @nki.jit
    def twice(x):
        return x.reshape(8, 24, shape=(8, 24))

    with pytest.raises(IllegalOperand, match=r"both \(8, 24\) and shape=\(8, 24\)"):
        twice(numbers(8, 24))


@nki.jit
def rows_in_order(table, order):
    out = nl.ndarray((8, 2), dtype=table.dtype, buffer=nl.shared_hbm)
    columns = nl.load(order)
    for i in nl.affine_range(2):
        nl.store(out[:, i], nl.load(table[columns[:, i].as_tile(), 0]))
    return out


def test_brackets_as_a_tile_are_an_index():
    table, order = numbers(16, 1), np.random.default_rng(1).permutation(16).reshape(8, 2).astype(np.uint32)
    np.testing.assert_array_equal(rows_in_order(table, order), table[order, 0])


@nki.jit
def product(a, b, groups):
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    psum = nl.zeros((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
    step = a.shape[0] // groups
    for k in nl.affine_range(groups):
        psum += nisa.nc_matmul(nl.load(a[nl.ds(k * step, step), :]), nl.load(b[nl.ds(k * step, step), :]))
    nl.store(out, psum)
    return out


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_matmul_accumulates_in_psum(groups):
    a, b = numbers(256 if groups > 1 else 64, 32), numbers(256 if groups > 1 else 64, 48, seed=1)
    np.testing.assert_allclose(product(a, b, groups), a.T @ b, rtol=2e-5, atol=1e-4)
    made = instructions(product, a, b, groups)
    assert made.count("nc_matmul") == groups
    assert "memset" not in made  # the first matmul overwrites


@nki.jit
def columns_of_psum(a, b):
    out = nl.ndarray((32, 64), dtype=nl.float32, buffer=nl.shared_hbm)
    psum = nl.zeros((2, par_dim(32), 64), dtype=nl.float32, buffer=nl.psum)
    x, y = nl.load(a), nl.load(b)
    psum[1, :, 0:32] += nl.matmul(x, y, transpose_x=True)
    psum[1, 0:32, 0:32] += nl.matmul(x, y, transpose_x=True)
    nl.store(out, psum[1])
    return out


def test_what_no_matmul_reached_is_zero():
    a, b = numbers(16, 32), numbers(16, 32, seed=1)
    expected = np.zeros((32, 64), np.float32)
    expected[:, :32] = 2 * (a.T @ b)
    np.testing.assert_allclose(columns_of_psum(a, b), expected, rtol=1e-5, atol=1e-5)


@nki.jit
def matmuls(a, b):
    out = nl.ndarray((32, 48), dtype=nl.float32, buffer=nl.shared_hbm)
    t = nl.ndarray((32, 48), dtype=nl.float32)
    t[...] = nl.matmul(nl.load(a), nl.load(b))
    nl.store(out, t)
    return out


def test_matmul_transposes_its_left_side():
    a, b = numbers(32, 16), numbers(16, 48, seed=1)
    np.testing.assert_allclose(matmuls(a, b), a @ b, rtol=1e-5, atol=1e-5)


@nki.jit
def masked_matmul(a, b, m, n, k, by_operand):
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    x, y = nl.load(a), nl.load(b)
    i_k, i_m, i_n = nl.arange(64)[:, None], nl.arange(32)[None, :], nl.arange(48)[None, :]
    if by_operand:
        psum = nisa.nc_matmul(x[(i_m < m) & (i_k < k)], y[(i_n < n) & (i_k < k)])
    else:
        psum = nisa.nc_matmul(x[i_k, i_m], y[i_k, i_n], mask=(i_k < k) & (i_m < m) & (i_n < n))
    nl.store(out, psum[0:m, 0:n])
    return out


@pytest.mark.parametrize("by_operand", [False, True])
def test_masks_of_a_matmul(by_operand):
    a, b = numbers(64, 32), numbers(64, 48, seed=1)
    found = masked_matmul(a, b, 20, 33, 40, by_operand)
    np.testing.assert_allclose(found, a[:40, :20].T @ b[:40, :33], rtol=1e-5, atol=1e-5)


@nki.jit
def rows_of(a, index, direct):
    out = nl.ndarray((16, 8), dtype=a.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:16, 0:8]
    chosen = nl.load(index[i_p])
    if direct:
        nl.store(out, nl.load(a[chosen[i_p, 0], i_f]))
    else:
        nl.store(out[chosen, i_f], nl.load(a[0:16, 0:8]))
    return out


def test_rows_by_a_tile_of_indices():
    a, index = numbers(64, 8), np.random.default_rng(2).permutation(64)[:16].astype(np.int32)
    np.testing.assert_array_equal(rows_of(a, index, True), a[index])
    index = np.random.default_rng(3).permutation(16).astype(np.int32)
    expected = np.zeros((16, 8), np.float32)
    expected[index] = a[:16]
    np.testing.assert_array_equal(rows_of(a, index, False), expected)
    with pytest.raises(OutOfBounds, match="index 64 of lane 0"):
        rows_of(a, np.full(16, 64, np.int32), True)


@nki.jit
def in_part(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out[0:2], nl.load(a[0:2]))
    return out


def test_an_output_stored_in_part_is_returned_with_a_warning():
    a = numbers(4, 8)
    with pytest.warns(UnwrittenOutputWarning, match="output was never fully stored"):
        found = in_part(a)
    np.testing.assert_array_equal(found, np.vstack([a[:2], 0 * a[2:]]))


@nki.jit
def placed(a, count):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    size = a.shape[0]
    tiles = nl.ndarray(
        (size, par_dim(16), 8), dtype=a.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=64, num_free_tiles=(count,))
    )
    for b in nl.affine_range(size):
        tiles[b] = nl.load(a[b])
        if count == size or b < count:
            continue
        nl.store(out[b], tiles[b])
    for b in nl.affine_range(size):
        if count == size or b >= size - count:
            nl.store(out[b], tiles[b])
    for b in nl.affine_range(size):
        if count < size and b < count:
            nl.store(out[b], tiles[b])
    return out


def test_modulo_allocation_aliases():
    a = numbers(4, 16, 8)
    np.testing.assert_array_equal(placed(a, 4), a)
    with pytest.raises(Uninitialized, match="was overwritten through"):
        placed(a, 2)


@nki.jit
def too_much(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    many = nl.ndarray((40, par_dim(128), 2048), dtype=nl.float32)
    for b in nl.affine_range(40):
        many[b] = nl.load(a)
    total = nl.zeros((128, 2048), dtype=nl.float32)
    for b in nl.affine_range(40):
        total += many[b]
    nl.store(out, total)
    return out


def test_what_does_not_fit_was_spilled_and_says_so():
    a = np.ones((128, 2048), np.float32)
    with pytest.warns(SpillWarning, match="SBUF"):
        result = neurosim.simulate(too_much)(a)
    assert (result.outputs == 40).all()
    # 25 of 41 tiles of 1 MiB fit into what is handed out; 16 go once, and come back for the sum
    assert "move 16777216 bytes of them to HBM and 16777216 back" in result.program.notes["Spills"]
    assert result.timeline.hbm_written_bytes == result.outputs.nbytes + 16777216


def _kernel(body):
    @nki.jit
    def kernel(a):
        return body(a)

    return kernel


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (lambda a: nl.load(a[nl.arange(9)[:, None], nl.arange(8)[None, :]]), OutOfBounds, "indices 0 to 8 on axis 0"),
        (lambda a: nl.load(nl.load(a)), IllegalOperand, "must be a tensor in HBM"),
        (lambda a: nl.exp(a), IllegalOperand, "x is in HBM"),
        (lambda a: nl.add(nl.load(a), nl.load(a[:, 0:3])), IllegalOperand, "shapes do not go together"),
        (lambda a: nl.sum(nl.load(a), axis=0), IllegalOperand, "free axes can be reduced"),
        (lambda a: a.__setitem__(0, 1.0), IllegalOperand, "HBM is written by nl.store"),
        (lambda a: nisa.nc_matmul(nl.load(a), nl.load(a), mask=nl.arange(8)[None, :] < 3), IllegalOperand, "either"),
        (lambda a: nl.load(a[0:4])[nl.arange(6)[:, None], 0].resolve("test"), OutOfBounds, "there are 4|has 4"),
        (lambda a: nl.load(a)[:, 0:4][:, 5].resolve("test"), OutOfBounds, "a view of"),
        (lambda a: nl.ndarray((4, par_dim(8), 8), dtype=a.dtype)[5].resolve("test"), OutOfBounds, "block index 5"),
        (lambda a: nl.exp(nl.ndarray((4, par_dim(8), 8), dtype=a.dtype)), Unsupported, "over several tiles"),
        (lambda a: nl.loop_reduce(nl.load(a), np.add, [0]) + 1.0, Unsupported, "is not assigned to a tile"),
        (lambda a: nl.load(a, mask=nl.load(a)), IllegalOperand, "no comparison of index tensors"),
    ],
)
def test_errors_in_words(body, error, text):
    with pytest.raises(error, match=text):
        _kernel(body)(numbers(8, 8))


def test_outside_of_a_kernel():
    with pytest.raises(neurosim.errors.KernelError, match="called outside of a legacy kernel"):
        nl.zeros((4, 4), dtype=nl.float32)


@nki.jit
def one_of_a_grid(a, gathered):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.hbm)
    assert nl.program_ndim() == 2
    assert nl.num_programs() == nl.num_programs(0) * nl.num_programs([1])
    i, j = nl.program_id(0), nl.program_id(1)
    t = nl.load(a[i, j])
    nl.store(out[i, j], t + 1.0)
    nl.store(gathered[i : i + 1, j : j + 1], nl.sum(t, axis=1)[0:1, 0:1])
    return out


@pytest.mark.parametrize("grid", [(4, 2), (nl.nc(2) * 2, 2), (2 * nl.nc(2), 2), (nl.spmd_dim(nl.nc(2), 2), 2)])
def test_programs_of_a_grid_share_outputs(grid):
    a, gathered = numbers(4, 2, 3, 8), np.zeros((4, 2), np.float32)
    np.testing.assert_array_equal(one_of_a_grid[grid](a, gathered), a + np.float32(1))
    np.testing.assert_allclose(gathered, a[:, :, 0].sum(axis=-1), rtol=1e-5)


def test_a_grid_of_zero_is_none():
    kernel = _kernel(lambda a: nl.full((2, 2), nl.program_ndim(), dtype=np.float32))
    assert kernel[0](numbers(2, 2)).max() == 0
    assert kernel[1](numbers(2, 2)).max() == 1


def test_grids_that_cannot_be():
    for grid in ((), (0, 2), (2, -1), (2.5,), "2", True):
        with pytest.raises(IllegalOperand, match="launch grid"):
            one_of_a_grid[grid]
    with pytest.raises(IllegalOperand, match="axis 1"):
        _kernel(lambda a: nl.program_id(1))[2](numbers(2, 2))


def bank_of(banks, idx, pdim_size, fdim_size):
    return banks[idx], 0, 0


def by_place(block, partitions, size_bytes):
    return block[0], 0, size_bytes


@pytest.mark.parametrize("function", [functools.partial(bank_of, banks={(0,): 5, (1,): 2}), by_place])
def test_a_function_that_places_is_called_by_name_or_by_place(function):
    """nki-samples, allocated_attention.py: ``functools.partial`` binds the first parameter, so names are the way."""

    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tiles = nl.ndarray((2, par_dim(16), 8), dtype=np.float32, buffer=ncc.psum.alloc(function))
        for b in nl.affine_range(2):
            tiles[b] = nl.copy(nl.load(a[b]))
        for b in nl.affine_range(2):
            nl.store(out[b], nl.copy(tiles[b]))
        return out

    a = numbers(2, 16, 8)
    np.testing.assert_array_equal(kernel(a), a)


def test_a_function_that_places_and_takes_something_else_is_refused():
    @nki.jit
    def kernel(a):
        nl.ndarray((par_dim(16), 8), dtype=np.float32, buffer=ncc.sbuf.alloc(lambda block: (0, 0)))

    with pytest.raises(IllegalOperand, match="give it the parameters idx, pdim_size and fdim_size"):
        kernel(numbers(16, 8))


@pytest.mark.parametrize("loop", [nl.affine_range, nl.sequential_range])
def test_an_address_that_a_loop_counts_up_is_that_of_its_first_iteration(loop):
    """The old compiler traced a loop once (nki-samples, allocated_attention.py); this would leave SBUF otherwise."""

    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        address = 0
        for b in loop(4):
            size = 60_000
            for half in loop(2):
                held = nl.ndarray((par_dim(16), 4), dtype=a.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=address))
                address += size
                rows, columns = nl.mgrid[0:16, 0:4]
                held[...] = nl.load(a[b, rows, half * 4 + columns])
                nl.store(out[b, rows, half * 4 + columns], held)
        return out

    a = numbers(4, 16, 8)
    np.testing.assert_array_equal(kernel(a), a)
