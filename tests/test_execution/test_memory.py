"""Memory: what was written, what depends on it, who lives where, and how much fits."""

from __future__ import annotations

import resource
import weakref

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim
from neurosim import dtypes
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand, Uninitialized, UnwrittenOutput
from neurosim.memory import HOLE, MATMUL, UNWRITTEN, WRITTEN, Allocation, Storage
from neurosim.view import whole

F = np.float32


def run(kernel, *arrays, **options):
    return neurosim.simulate(kernel, **options)(*arrays).outputs


def store(tile):
    """Store an SBUF tile into a new output."""
    out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm, name="out")
    nisa.dma_copy(dst=out, src=tile)
    return out


def line_of(function, offset):
    return f"tests/test_execution/test_memory.py:{function.__code__.co_firstlineno + offset}"


# -- the shadow, against a state per byte -----------------------------------------------------------------------------


def tensor_in(memory, shape, dtype):
    partitions = shape[0] if memory.is_on_chip else 0
    row = int(np.prod(shape[1:] if partitions else shape)) * dtype.itemsize
    storage = Storage(memory, partitions, row, dtype.itemsize)
    return whole(Allocation(storage, "t", shape, dtype, memory, 0, 0, row, 0, (), 1))


def random_view(data, tensor):
    """Return a random window of a tensor, perhaps as bytes."""
    keys = []
    for extent in tensor.shape:
        start = data.draw(st.integers(0, extent - 1))
        keys.append(slice(start, data.draw(st.integers(start + 1, extent)), data.draw(st.integers(1, 2))))
    view = tensor[tuple(keys)]
    if keys[-1].step == 1 and data.draw(st.integers(0, 3)) == 0:
        view = view.view(nl.uint8)
        first = data.draw(st.integers(0, view.shape[-1] - 1))
        view = view.slice(view.ndim - 1, first, data.draw(st.integers(first + 1, view.shape[-1])))
    return view


def model_of(view, model):
    """Return the states of the bytes under a view, one more axis for the bytes of an element."""
    states = view.over(model, 1)
    return states if states.ndim > view.ndim else states[..., None]


@settings(max_examples=150)
@given(st.data())
def test_shadow_is_a_state_per_byte(data):
    memory = data.draw(st.sampled_from([Memory.sbuf, Memory.hbm]))
    dtype = data.draw(st.sampled_from([dtypes.float32, dtypes.bfloat16, dtypes.int8]))
    tensor = tensor_in(memory, (3, 2, 4), dtype)
    storage = tensor.allocation.storage
    model = np.zeros(storage.size_bytes, np.uint8)
    for _ in range(data.draw(st.integers(1, 12))):
        view = tensor if data.draw(st.integers(0, 4)) == 0 else random_view(data, tensor)
        action = data.draw(st.sampled_from(["mark", "holes", "only", "look"]))
        under = model_of(view, model)
        state = data.draw(st.sampled_from([WRITTEN, MATMUL]))
        if action == "mark":
            storage.mark(view, state)
            under[...] = state
        elif action in ("holes", "only"):
            mask = data.draw(st.lists(st.booleans(), min_size=view.size, max_size=view.size))
            mask = np.array(mask).reshape(view.shape)
            storage.mark(view, state, **{action: mask})
            kept = under if action == "only" else np.full_like(under, HOLE)
            under[...] = np.where(mask[..., None] == (action == "only"), state, kept)
        holes = (under < WRITTEN).any(axis=-1)
        found = storage.unwritten(view)
        np.testing.assert_array_equal(np.zeros(view.shape, bool) if found is None else found, holes)
        assert (found is None) == (not holes.any())
        states = storage.states(view)
        np.testing.assert_array_equal(np.unique(states), np.unique(under))
        lowest = states.min(axis=-1) if states.ndim > view.ndim else states
        np.testing.assert_array_equal(lowest, under.min(axis=-1))
        same = np.unique(under)
        assert storage.uniform_state(view) == (same[0] if len(same) == 1 else -1)


def test_a_wholly_written_storage_keeps_no_shadow():
    tensor = tensor_in(Memory.sbuf, (4, 8), dtypes.float32)
    storage = tensor.allocation.storage
    for column in reversed(range(8)):
        assert storage.state in (UNWRITTEN, -1)
        storage.mark(tensor[:, column], WRITTEN)
    assert storage.state == WRITTEN
    assert storage._shadow is None


@pytest.mark.parametrize(("memory", "rows"), [(Memory.sbuf, 4), (Memory.hbm, 1)])
def test_what_is_written_from_the_left_to_the_right_needs_no_shadow(memory, rows):
    tensor = tensor_in(memory, (rows, 8), dtypes.float32)
    storage = tensor.allocation.storage
    for first, last in ((0, 3), (3, 4), (4, 8)):
        storage.mark(tensor[:, first:last], MATMUL)
        assert storage._shadow is None
        assert storage.state == (-1 if last < 8 else MATMUL)
    storage.mark(tensor[:, 2:5], WRITTEN)
    assert storage.element_states(tensor)[0].tolist() == [MATMUL] * 2 + [WRITTEN] * 3 + [MATMUL] * 3


@settings(max_examples=150)
@given(st.data())
def test_pieces_from_the_left_to_the_right_are_a_state_per_byte(data):
    """And what else is written meanwhile, of which nobody asks before the end."""
    memory = data.draw(st.sampled_from([Memory.sbuf, Memory.hbm]))
    dtype = data.draw(st.sampled_from([dtypes.float32, dtypes.bfloat16]))
    tensor = tensor_in(memory, data.draw(st.sampled_from([(3, 8), (1, 8), (8, 3)])), dtype)
    storage, model, end = tensor.allocation.storage, np.zeros(tensor.size_bytes, np.uint8), 0
    axis = 0 if memory is Memory.hbm else 1  # along which pieces are side by side
    for _ in range(data.draw(st.integers(1, 8))):
        view, state = random_view(data, tensor), WRITTEN
        if end < tensor.shape[axis] and data.draw(st.integers(0, 5)):
            first, end = end, data.draw(st.integers(end + 1, tensor.shape[axis]))
            view = tensor.slice(axis, first, end)
            if data.draw(st.booleans()):
                view = view.view(nl.uint8)
        else:
            state = data.draw(st.sampled_from([WRITTEN, MATMUL]))
        storage.mark(view, state)
        model_of(view, model)[...] = state
    np.testing.assert_array_equal(storage.byte_states(tensor), model_of(tensor, model))
    same = np.unique(model)
    assert storage.uniform_state(tensor) == (same[0] if len(same) == 1 else -1)


# -- reading what nobody wrote ----------------------------------------------------------------------------------------


def test_reading_a_new_tile():
    """B1: the message has the allocation's line and the extent."""

    def kernel():
        tile = nl.ndarray((128, 64), nl.float32, nl.sbuf, name="fresh")
        result = nl.ndarray((128, 64), nl.float32, nl.sbuf)
        nisa.reciprocal(dst=result, data=tile)

    with pytest.raises(Uninitialized) as caught:
        run(kernel)
    text = str(caught.value)
    assert text.startswith("reciprocal: data fresh [128, 64] float32 in SBUF: bytes that nobody wrote are read")
    assert "unwritten here: [0:128, 0:64] (8192 of 8192 elements)" in text
    assert f"allocated at {line_of(kernel, 1)}" in text.replace(str(neurosim.__file__), "")
    assert line_of(kernel, 3) in caught.value.where[0]


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum, nl.private_hbm])
def test_new_tensors_of_every_memory_are_unwritten(buffer):
    def kernel():
        tile = nl.ndarray((4, 4), nl.float32, nl.sbuf)
        fresh = nl.ndarray((4, 4), nl.float32, buffer)
        if buffer is nl.private_hbm:
            nisa.dma_copy(dst=tile, src=fresh)
        else:
            nisa.tensor_copy(dst=tile, src=fresh)

    with pytest.raises(Uninitialized, match="bytes that nobody wrote are read"):
        run(kernel)


def test_an_integer_tile_is_no_exception():
    """B7: integers have no sentinel value; bits know."""

    def kernel():
        index = nl.ndarray((4, 4), nl.int32, nl.sbuf)
        nisa.tensor_tensor(dst=index, data1=index, data2=index, op=nl.bitwise_xor)

    with pytest.raises(Uninitialized):
        run(kernel)


def test_the_written_part_may_be_read():
    def kernel(a):
        tile = nl.ndarray((128, 512), nl.float32, nl.sbuf)
        nisa.dma_copy(dst=tile[0:100, 0:256], src=a)
        nisa.activation(dst=tile[0:100, 256:512], op=nl.copy, data=tile[0:100, 0:256])
        return store(tile[0:100])

    array = np.ones((100, 256), F)
    np.testing.assert_array_equal(run(kernel, array), np.ones((100, 512), F))


HOLEY = np.ones((128, 256), F)


def partly(a, rows=128, columns=256):
    """Return a [128, 512] tile of which [0:rows, 0:columns] is written."""
    tile = nl.ndarray((128, 512), nl.float32, nl.sbuf, name="partial")
    nisa.dma_copy(dst=tile[0:rows, 0:columns], src=a[0:rows, 0:columns])
    return tile


def psum_copy(tile):
    copy = nl.ndarray(tile.shape, tile.dtype, nl.sbuf)
    nisa.tensor_copy(dst=copy, src=tile)
    return copy


def reduced(tile):
    result = nl.ndarray((128, 1), nl.float32, nl.sbuf)
    nisa.tensor_reduce(dst=result, op=nl.add, data=tile, axis=1)
    return result


def multiplied(tile):
    """Multiply with ones on the side of the stationary operand."""
    ones = nl.ones((128, 4), nl.float32)
    psum = nl.ndarray((4, 512), nl.float32, nl.psum)
    nisa.nc_matmul(dst=psum, stationary=ones, moving=tile)
    return psum_copy(psum)


def scaled(tile):
    result = nl.ndarray((128, 512), nl.bfloat16, nl.sbuf)
    nisa.tensor_scalar(dst=result, data=tile, op0=nl.multiply, operand0=2.0)
    return result


def added(tile):
    full = nl.ones((128, 512), nl.float32)
    nisa.tensor_tensor(dst=full, data1=full, data2=tile, op=nl.add)
    return full


def exponential(tile):
    result = nl.ndarray(tile.shape, nl.float32, nl.sbuf)
    total = nl.ndarray((128, 1), nl.float32, nl.sbuf)
    nisa.activation_reduce(dst=result, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total)
    return total


def transposed(tile):
    psum = nl.ndarray((128, 128), nl.float32, nl.psum)
    nisa.nc_transpose(dst=psum, data=tile[:, 192:320])
    return psum_copy(psum)


def selected(tile):
    result = nl.ndarray((128, 512), nl.float32, nl.sbuf)
    nisa.affine_select(
        dst=result,
        pattern=[[1, 512]],
        channel_multiplier=0,
        offset=-300,
        on_true_tile=tile,
        on_false_value=0.0,
        cmp_op=nl.less,
    )
    return result


#: operation: (consumer, where the output's hole is when columns 256:512 of partial were never written)
CONSUMERS = {
    "store": (lambda tile: tile, "[0:128, 256:512] (32768 of 65536 elements)"),
    "reduce": (reduced, "[0:128, 0:1] (128 of 128 elements)"),
    "matmul": (multiplied, "[0:4, 256:512] (1024 of 2048 elements)"),
    "tensor_scalar": (scaled, "[0:128, 256:512]"),
    "tensor_tensor": (added, "[0:128, 256:512]"),
    "activation_reduce": (exponential, "[0:128, 0:1]"),
    "transpose": (transposed, "[64:128, 0:128] (8192 of 16384 elements)"),
    "select": (selected, "[0:128, 256:300] (5632 of 65536 elements)"),
    "twice": (lambda tile: scaled(added(tile)), "[0:128, 256:512]"),
}


@pytest.mark.parametrize("name", CONSUMERS)
def test_holes_travel_to_the_output(name):
    """B2, B4: a hole in a partly written operand raises where it matters, and names the first read."""
    consumer, hole = CONSUMERS[name]

    def kernel(a):
        return store(consumer(partly(a)))

    with pytest.raises(Uninitialized) as caught:
        run(kernel, HOLEY)
    text = str(caught.value)
    assert "bytes that nobody wrote are read" in text
    assert f"unwritten here: {hole}" in text
    assert "partial[128, 512] float32 in SBUF" in text
    assert f"allocated at {line_of(partly, 2)}" in text
    assert "256:512]" in text.split("first read: ")[1] or "64:128]" in text.split("first read: ")[1]


def test_a_hole_in_a_column_reaches_its_partition():
    def kernel(a):
        tile = partly(a, rows=100)
        full = nl.ones((128, 8), nl.float32)
        nisa.tensor_scalar(dst=full, data=full, op0=nl.multiply, operand0=tile[:, 0])
        return store(full)

    with pytest.raises(Uninitialized) as caught:
        run(kernel, HOLEY)
    assert "unwritten here: [100:128, 0:8] (224 of 1024 elements)" in str(caught.value)
    assert "first read: operand0 of tensor_scalar at " in str(caught.value)


@pytest.mark.parametrize("name", ["store", "matmul", "reduce", "activation_reduce"])
def test_missing_rows_travel_too(name):
    """B4: load 100 of 128 rows, exp, sum over partitions by a matmul: an error, not a plausible number."""

    def kernel(a):
        tile = nl.ndarray((128, 256), nl.float32, nl.sbuf, name="partial")
        nisa.dma_copy(dst=tile[0:100], src=a[0:100])
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        if name == "matmul":
            psum = nl.ndarray((1, 256), nl.float32, nl.psum)
            nisa.nc_matmul(dst=psum, stationary=nl.ones((128, 1), nl.float32), moving=tile)
            tile = psum_copy(psum)
        elif name != "store":
            tile = CONSUMERS[name][0](tile)
        return store(tile)

    with pytest.raises(Uninitialized) as caught:
        run(kernel, HOLEY)
    assert "first read: data of activation at " in str(caught.value)
    assert "[100:128, 0:256] (7168 of 32768 elements) of partial[128, 256] float32 in SBUF" in str(caught.value)


def test_holes_that_reach_nothing_are_fine():
    """B8: partial tiles may be processed whole, as long as only the written part is used."""

    def kernel(a):
        tile = partly(a, rows=100)
        nisa.activation(dst=tile, op=nl.square, data=tile)
        psum = nl.ndarray((128, 128), nl.float32, nl.psum)
        nisa.nc_transpose(dst=psum, data=tile[:, 0:128])
        result = psum_copy(psum)
        return store(result[:, 0:100])

    np.testing.assert_array_equal(run(kernel, HOLEY * 3), np.full((128, 100), 9, F))


def test_unselected_holes_are_fine():
    """B8: affine_select reads the tile only where the predicate holds."""

    def kernel(a):
        tile = partly(a)
        nisa.affine_select(
            dst=tile,
            pattern=[[1, 512]],
            channel_multiplier=0,
            offset=-256,
            on_true_tile=tile,
            on_false_value=-1.0,
            cmp_op=nl.less,
        )
        return store(tile)

    np.testing.assert_array_equal(run(kernel, HOLEY), np.hstack([HOLEY, -HOLEY]))


def test_a_hole_that_is_overwritten_is_gone():
    def kernel(a):
        tile = partly(a)
        copy = nl.ndarray(tile.shape, tile.dtype, nl.sbuf)
        nisa.tensor_copy(dst=copy, src=tile)
        nisa.memset(dst=copy[:, 256:512], value=7.0)
        return store(copy)

    np.testing.assert_array_equal(run(kernel, HOLEY), np.hstack([HOLEY, HOLEY * 7]))


def test_a_wholly_unwritten_operand_raises_at_the_read_also_when_the_hole_travelled():
    def kernel(a):
        tile = partly(a)
        copy = nl.ndarray(tile.shape, tile.dtype, nl.sbuf)
        nisa.tensor_copy(dst=copy, src=tile)
        nisa.reciprocal(dst=copy[:, 300:400], data=copy[:, 300:400])

    with pytest.raises(Uninitialized) as caught:
        run(kernel, HOLEY)
    assert line_of(kernel, 4) in caught.value.where[0]
    assert "first read: src of tensor_copy" in str(caught.value)


def test_bytes_of_an_element():
    """Half of an element is a hole in it."""

    def kernel(a):
        tile = nl.ndarray((4, 8), nl.float32, nl.sbuf, name="halves")
        nisa.memset(dst=tile, value=1.0)
        other = nl.ndarray((4, 8), nl.float32, nl.sbuf, name="halves")
        nisa.dma_copy(dst=other.view(nl.uint16)[:, ::2], src=a)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=other, op=nl.add)

    with pytest.raises(Uninitialized, match=r"\[0:4, 0:8\] \(32 of 32 elements\)"):
        run(kernel, np.zeros((4, 8), np.uint16))


def test_both_halves_make_an_element():
    array = np.arange(32, dtype=F).reshape(4, 8)

    def kernel(low, high):
        tile = nl.ndarray((4, 8), nl.float32, nl.sbuf)
        nisa.dma_copy(dst=tile.view(nl.uint16)[:, ::2], src=low)
        nisa.dma_copy(dst=tile.view(nl.uint16)[:, 1::2], src=high)
        return store(tile)

    halves = array.view(np.uint16)
    np.testing.assert_array_equal(run(kernel, halves[:, ::2], halves[:, 1::2]), array)


# -- outputs ----------------------------------------------------------------------------------------------------------


def test_an_output_that_was_never_stored():
    """B5: the hole has coordinates, and the exception carries the arrays."""

    def kernel(a):
        out = nl.ndarray((128, 64), nl.float32, nl.shared_hbm, name="result")
        tile = nl.load(a)
        nisa.dma_copy(dst=out[0:127], src=tile[0:127])
        return out

    array = np.arange(128 * 64, dtype=F).reshape(128, 64)
    with pytest.raises(UnwrittenOutput) as caught:
        run(kernel, array)
    text = str(caught.value)
    assert text.startswith("kernel: output result [128, 64] float32 in HBM was never fully stored")
    assert "never stored: [127:128, 0:64] (64 of 8192 elements)" in text
    assert line_of(kernel, 1) in caught.value.where[0]
    assert "store every tile of it with nisa.dma_copy" in text
    np.testing.assert_array_equal(caught.value.outputs[:127], array[:127])


def test_storing_to_a_copy():
    """B5: a store to another tensor leaves the output unwritten."""

    def kernel(a):
        out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
        copy = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=copy, src=nl.load(a))
        return copy, out

    with pytest.raises(UnwrittenOutput, match=r"never stored: \[0:4, 0:4\] \(16 of 16 elements\)") as caught:
        run(kernel, np.ones((4, 4), F))
    np.testing.assert_array_equal(caught.value.outputs[0], np.ones((4, 4), F))


def test_an_output_in_sbuf():
    def kernel(a):
        return nl.load(a)

    with pytest.raises(IllegalOperand, match="an output must be in HBM") as caught:
        run(kernel, np.ones((4, 4), F))
    assert "buffer=nl.shared_hbm" in str(caught.value)


def test_a_part_of_a_tensor_as_output():
    def kernel(a):
        out = nl.ndarray((4, 8), a.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out[:, 0:4], src=a)
        return out[:, 0:4]

    np.testing.assert_array_equal(run(kernel, np.ones((4, 4), F)), np.ones((4, 4), F))


# -- HBM --------------------------------------------------------------------------------------------------------------


def test_offsets_beyond_two_gigabytes():
    """L1: the last row of a 5 GB tensor, in little memory."""
    shape = (320, 2560, 3072)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def kernel(a):
        huge = nl.ndarray(shape, nl.bfloat16, nl.private_hbm)
        nisa.dma_copy(dst=huge[319, 2559:2560], src=a)
        return store(nl.load(huge[319, 2559:2560]))

    array = np.arange(3072).astype(ml_dtypes.bfloat16).reshape(1, 3072)
    np.testing.assert_array_equal(run(kernel, array), array)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 200_000, "kilobytes"


def test_column_blocks_of_an_output():
    array = np.arange(64, dtype=F).reshape(8, 8)

    def kernel(a):
        out = nl.ndarray((8, 8), nl.float32, nl.shared_hbm)
        for column in range(0, 8, 2):
            nisa.dma_copy(dst=out[:, column : column + 2], src=nl.load(a[:, column : column + 2]))
        return out

    np.testing.assert_array_equal(run(kernel, array), array)


# -- random programs --------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.data())
def test_random_writes_and_reads_follow_a_model(data):
    """Windows of one tile are set, copied and scaled; the model holds a value and a written flag per element."""
    shape = (4, 12)
    value, written = np.zeros(shape, F), np.zeros(shape, bool)
    steps = []
    for _ in range(data.draw(st.integers(1, 8))):
        low = data.draw(st.integers(0, 11))
        width = data.draw(st.integers(1, 12 - low))
        source = data.draw(st.integers(0, 12 - width))
        steps.append((data.draw(st.sampled_from(["set", "copy", "scale"])), low, width, source))

    def kernel():
        tile = nl.ndarray(shape, nl.float32, nl.sbuf)
        for index, (action, low, width, source) in enumerate(steps):
            dst, src = tile[:, low : low + width], tile[:, source : source + width]
            if action == "set":
                nisa.memset(dst=dst, value=float(index))
            elif action == "copy":
                nisa.tensor_copy(dst=dst, src=src)
            else:
                nisa.tensor_scalar(dst=dst, data=src, op0=nl.add, operand0=1.0)
        return store(tile)

    error = False
    for index, (action, low, width, source) in enumerate(steps):
        dst, src = np.s_[:, low : low + width], np.s_[:, source : source + width]
        if action == "set":
            value[dst], written[dst] = index, True
        elif not written[src].any():
            error = True
            break
        else:
            value[dst], written[dst] = value[src] + F(action == "scale"), written[src].copy()
    if error or not written.all():
        with pytest.raises(Uninitialized):
            run(kernel)
    else:
        np.testing.assert_array_equal(run(kernel), value)


def test_a_narrowing_copy_onto_its_own_source_reads_first():
    def kernel():
        tile = nl.ndarray((1, 40), nl.float32)
        nisa.iota(dst=tile, pattern=[[1, 40]], offset=1)
        target = tile.view(nl.bfloat16)[:, 4:24]
        nisa.tensor_copy(dst=target, src=tile[:, 0:20])
        return store(target)

    assert (run(kernel) == np.arange(1, 21)).all()


@pytest.mark.parametrize("cores", [1, 2])
def test_bytes_of_a_tile_are_free_once_no_variable_holds_it(cores):
    made = []

    def kernel():
        total = nl.ndarray((4, 8), nl.float32)
        nisa.memset(dst=total, value=0.0)
        for _ in range(5):
            tile = nl.ndarray((4, 8), nl.float32)
            made.append(weakref.ref(tile.allocation.storage))
            nisa.memset(dst=tile[:, 0:4], value=1.0)
            nisa.memset(dst=tile[:, 4:8], value=2.0)
            nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
        assert sum(storage() is not None for storage in made) == 1  # the last
        made.clear()
        return store(total)

    total = run(nki.jit(kernel)[cores])
    np.testing.assert_array_equal(total, np.repeat([[5.0, 10.0]], 4, axis=0).repeat(4, axis=1))
