"""Views of tensors against NumPy on the same data: which elements they reach, in which order, and what they refuse.

The oracle is an array of element numbers: a NumPy operation on the numbers 0, 1, 2, … says which elements a view must
hold. A kernel copies the view out, so that the bytes agree too.
"""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim
from neurosim.errors import IllegalOperand
from neurosim.shell.loading import load_module

MEMORIES = (nl.shared_hbm, nl.sbuf, nl.psum)


seen_views = load_module(Path(__file__).with_name("seen_views.py"))
numbers, copied, asked = seen_views.numbers, seen_views.copied, seen_views.asked


def addresses(tensor):
    """Return offset + Σ index · stride for every element, as the language guide defines a view."""
    grids = np.indices(tensor.shape)
    return tensor.offset + sum(grid * stride for grid, stride in zip(grids, tensor.strides, strict=True))


# -- one operation at a time ------------------------------------------------------------------------------------------

FREE_AXES = {
    "whole": (lambda t: t[...], lambda a: a),
    "slice": (lambda t: t[:, 1:3, 2:7], lambda a: a[:, 1:3, 2:7]),
    "steps": (lambda t: t[:, ::2, 1::3], lambda a: a[:, ::2, 1::3]),
    "step that does not divide": (lambda t: t[:, :, 0:8:3], lambda a: a[:, :, 0:8:3]),
    "negative bounds": (lambda t: t[:, -3:-1, -8:], lambda a: a[:, -3:-1, -8:]),
    "int drops an axis": (lambda t: t[:, 2], lambda a: a[:, 2]),
    "negative int": (lambda t: t[:, :, -1], lambda a: a[:, :, -1]),
    "numpy int": (lambda t: t[:, np.int64(2), np.int8(1) :], lambda a: a[:, 2, 1:]),
    "ellipsis in front": (lambda t: t[..., 3], lambda a: a[..., 3]),
    "ellipsis that stands for nothing": (lambda t: t[:, ..., 1, :], lambda a: a[:, 1, :]),
    "ds": (lambda t: t[:, nl.ds(1, 2), nl.ds(start=3, size=5)], lambda a: a[:, 1:3, 3:8]),
    "ds of one": (lambda t: t[:, nl.ds(3, 1)], lambda a: a[:, 3:4]),
    "slice method": (lambda t: t.slice(2, 1, 7, 2), lambda a: a[:, :, 1:7:2]),
    "slice method by name": (lambda t: t.slice(dim=1, start=1, end=4), lambda a: a[:, 1:4]),
    "select": (lambda t: t.select(1, 3), lambda a: a[:, 3]),
    "permute": (lambda t: t.permute((0, 2, 1)), lambda a: a.transpose(0, 2, 1)),
    "permute a slice": (lambda t: t[:, 1:, ::2].permute((0, 2, 1)), lambda a: a[:, 1:, ::2].transpose(0, 2, 1)),
    "expand": (lambda t: t.expand_dim(1), lambda a: a[:, None]),
    "expand at the end": (lambda t: t.expand_dim(3), lambda a: a[..., None]),
    "expand from behind": (lambda t: t.expand_dim(-1), lambda a: a[..., None]),
    "squeeze": (lambda t: t[:, 1:2].squeeze_dim(1), lambda a: a[:, 1]),
    "broadcast": (
        lambda t: t.expand_dim(2).broadcast(2, 3),
        lambda a: np.broadcast_to(a[:, :, None, :], (*a.shape[:2], 3, a.shape[2])),
    ),
    "broadcast a column": (
        lambda t: t[:, :, 2:3].broadcast(2, 5),
        lambda a: np.broadcast_to(a[:, :, 2:3], (*a.shape[:2], 5)),
    ),
    "reshape merges": (lambda t: t.reshape((t.shape[0], 32)), lambda a: a.reshape(a.shape[0], 32)),
    "reshape splits": (lambda t: t.reshape((t.shape[0], 2, 2, 4, 2)), lambda a: a.reshape(a.shape[0], 2, 2, 4, 2)),
    "reshape over a group": (lambda t: t.reshape((t.shape[0], 16, 2)), lambda a: a.reshape(a.shape[0], 16, 2)),
    "reshape with -1": (lambda t: t.reshape((t.shape[0], -1, 4)), lambda a: a.reshape(a.shape[0], -1, 4)),
    "reshape of a slice": (lambda t: t[:, 1:3].reshape((t.shape[0], 16)), lambda a: a[:, 1:3].reshape(-1, 16)),
    "reshape keeps gaps apart": (
        lambda t: t[:, :, :4].reshape((t.shape[0], 2, 2, 2, 2)),
        lambda a: a[:, :, :4].reshape(-1, 2, 2, 2, 2),
    ),
    "reshape of a permutation": (
        lambda t: t.permute((0, 2, 1)).reshape((t.shape[0], 2, 4, 4)),
        lambda a: a.transpose(0, 2, 1).reshape(-1, 2, 4, 4),
    ),
    "reshape_dim": (lambda t: t.reshape_dim(2, (2, 4)), lambda a: a.reshape(-1, 4, 2, 4)),
    "reshape_dim with -1": (lambda t: t.reshape_dim(2, (-1, 2)), lambda a: a.reshape(-1, 4, 4, 2)),
    "reshape_dim of a stepped axis": (
        lambda t: t[:, :, ::2].reshape_dim(2, (2, 2)),
        lambda a: a[:, :, ::2].reshape(-1, 4, 2, 2),
    ),
    "trivial reshape_dim of partitions": (lambda t: t.reshape_dim(0, (t.shape[0],)), lambda a: a),
    "flatten": (lambda t: t.flatten_dims(1, 2), lambda a: a.reshape(a.shape[0], -1)),
    "flatten one axis": (lambda t: t.flatten_dims(1, 1), lambda a: a),
    "flatten from behind": (lambda t: t.flatten_dims(-2, -1), lambda a: a.reshape(a.shape[0], -1)),
    "chain": (
        lambda t: t.permute((0, 2, 1))[:, 1:7:2].expand_dim(1).broadcast(1, 2)[:, 1, :, 3],
        lambda a: a[:, 3, 1:7:2],
    ),
}


@pytest.mark.parametrize("buffer", MEMORIES, ids=["hbm", "sbuf", "psum"])
@pytest.mark.parametrize("name", FREE_AXES)
def test_view_reads_what_numpy_reads(name, buffer):
    view, oracle = FREE_AXES[name]
    array = numbers((4, 4, 8))
    expected = oracle(array)
    got = copied(view, array, buffer)
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("view", "oracle"),
    [
        (lambda t: t[1], lambda a: a[1:2]),
        (lambda t: t[-1, 2], lambda a: a[3:4, 2]),
        (lambda t: t[0, 0, 5], lambda a: a[0:1, 0, 5:6]),
        (lambda t: t[:, 1, 3], lambda a: a[:, 1, 3:4]),
        (lambda t: t[1:3, 0], lambda a: a[1:3, 0]),
        (lambda t: t[nl.ds(2, 2)], lambda a: a[2:4]),
        (lambda t: t[::2], lambda a: a[::2]),
        (lambda t: t[2, ..., :], lambda a: a[2:3]),
        (lambda t: t.select(0, 2), lambda a: a[2:3]),
    ],
)
def test_on_chip_the_partition_axis_stays(view, oracle):
    array = numbers((4, 4, 8))
    got = copied(view, array, nl.sbuf)
    assert got.shape == oracle(array).shape
    np.testing.assert_array_equal(got, oracle(array))


@pytest.mark.parametrize(
    ("view", "oracle"),
    [
        (lambda t: t[1], lambda a: a[1]),
        (lambda t: t[1, 2], lambda a: a[1, 2]),
        (lambda t: t[1, 2, 3], lambda a: a[1, 2, 3:4]),
        (lambda t: t[-4, :, 5], lambda a: a[0, :, 5]),
        (lambda t: t.permute((2, 0, 1)), lambda a: a.transpose(2, 0, 1)),
        (lambda t: t.expand_dim(0), lambda a: a[None]),
        (lambda t: t[0:1].squeeze_dim(0), lambda a: a[0]),
        (lambda t: t.reshape((8, 16)), lambda a: a.reshape(8, 16)),
        (lambda t: t.reshape((128,)), lambda a: a.reshape(128)),
        (lambda t: t.flatten_dims(0, 1), lambda a: a.reshape(16, 8)),
        (lambda t: t.reshape_dim(0, (2, 2)), lambda a: a.reshape(2, 2, 4, 8)),
        (lambda t: t[2:3].broadcast(0, 3), lambda a: np.broadcast_to(a[2:3], (3, 4, 8))),
        (lambda t: t.select(0, -1), lambda a: a[-1]),
    ],
)
def test_hbm_has_no_partition_axis(view, oracle):
    array = numbers((4, 4, 8))
    got = copied(view, array)
    assert got.shape == oracle(array).shape
    np.testing.assert_array_equal(got, oracle(array))


@pytest.mark.parametrize("buffer", [nl.shared_hbm, nl.sbuf])
@pytest.mark.parametrize("name", [name for name in FREE_AXES if "broadcast" not in name and name != "chain"])
def test_writing_through_a_view_writes_the_same_elements(name, buffer):
    view, oracle = FREE_AXES[name]
    array = numbers((4, 4, 8))
    values = -1 - oracle(array)
    expected = array.copy()
    expected.ravel()[oracle(array).ravel()] = values.ravel()

    def kernel(a, x):
        target = nl.ndarray(a.shape, a.dtype, buffer)
        nisa.dma_copy(dst=target, src=a)
        nisa.dma_copy(dst=view(target), src=x)
        out = nl.ndarray(a.shape, a.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=target)
        return out

    np.testing.assert_array_equal(neurosim.simulate(kernel)(array, values).outputs, expected)


def test_views_share_storage():
    """The example of the language guide, "Views share storage"."""

    def kernel():
        t = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        u = t.reshape((128, 8, 8))
        nisa.memset(dst=u, value=1.0)
        out = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=t[:, 16:32])
        return out

    assert (neurosim.simulate(kernel)().outputs == 1.0).all()


# -- chains -----------------------------------------------------------------------------------------------------------


def draw_index(data, shape):
    """Draw one index per leading axis, as (for the view, for NumPy with ints kept as slices, dropped axes)."""
    keys, numpy_keys, dropped = [], [], []
    for axis in range(data.draw(st.integers(0, len(shape)), label="indices")):
        extent = shape[axis]
        kind = data.draw(st.sampled_from(["all", "int", "slice", "ds"]), label="kind")
        start = data.draw(st.integers(0, extent - 1), label="start")
        if kind == "all":
            keys.append(slice(None))
            numpy_keys.append(slice(None))
        elif kind == "int":
            keys.append(start - extent * data.draw(st.booleans(), label="negative"))
            numpy_keys.append(slice(start, start + 1))
            dropped.append(axis)
        elif kind == "slice":
            stop = data.draw(st.integers(start + 1, extent), label="stop")
            step = data.draw(st.integers(1, 3), label="step")
            keys.append(slice(start, stop, step))
            numpy_keys.append(slice(start, stop, step))
        else:
            size = data.draw(st.integers(1, extent - start), label="size")
            keys.append(nl.ds(start, size))
            numpy_keys.append(slice(start, start + size))
    return tuple(keys), tuple(numpy_keys), dropped


def factors(number):
    return [part for part in range(1, number + 1) if number % part == 0]


def draw_shape(data, size):
    shape = []
    while size > 1 and len(shape) < 3:
        shape.append(data.draw(st.sampled_from(factors(size)), label="factor"))
        size //= shape[-1]
    return (*shape, size)


def step(data, view, ids, on_chip):
    """Apply one random operation to both; returns (view, ids), unchanged where NKI must refuse it."""
    first = 1 if on_chip else 0
    free = list(range(first, ids.ndim))
    operations = ["index", "expand", "permute", "reshape"]
    operations += ["reshape_dim"] if free else []
    operations += ["flatten"] if free else []
    ones = [axis for axis in free if ids.shape[axis] == 1]
    operations += ["squeeze"] if ones and len(ids.shape) > first + 1 else []
    operations += ["broadcast"] if ones and ids.size < 500 else []
    operation = data.draw(st.sampled_from(operations), label="operation")
    if operation == "index":
        keys, numpy_keys, dropped = draw_index(data, ids.shape)
        new = ids[numpy_keys]
        gone = [axis for axis in dropped if not (on_chip and axis == 0)]
        while gone and new.ndim - len(gone) < (2 if on_chip else 1):
            gone.pop()
        # what is kept at extent 1 moves to the end
        kept = [axis for axis in dropped if axis not in gone and not (on_chip and axis == 0)]
        new = new.reshape(
            [extent for axis, extent in enumerate(new.shape) if axis not in (*gone, *kept)] + [1] * len(kept)
        )
        return view[keys], new
    if operation == "expand":
        axis = data.draw(st.integers(first, ids.ndim), label="axis")
        return view.expand_dim(axis), np.expand_dims(ids, axis)
    if operation == "squeeze":
        axis = data.draw(st.sampled_from(ones), label="axis")
        return view.squeeze_dim(axis), np.squeeze(ids, axis)
    if operation == "broadcast":
        axis, size = data.draw(st.sampled_from(ones), label="axis"), data.draw(st.integers(1, 3), label="size")
        shape = (*ids.shape[:axis], size, *ids.shape[axis + 1 :])
        return view.broadcast(axis, size), np.broadcast_to(ids, shape)
    if operation == "permute":
        order = tuple(range(first)) + tuple(data.draw(st.permutations(free), label="order"))
        return view.permute(order), ids.transpose(order)
    if operation == "reshape_dim":
        axis = data.draw(st.sampled_from(free), label="axis")
        parts = draw_shape(data, ids.shape[axis])
        return view.reshape_dim(axis, parts), ids.reshape(ids.shape[:axis] + parts + ids.shape[axis + 1 :])
    if operation == "flatten":
        low, high = sorted(data.draw(st.tuples(st.sampled_from(free), st.sampled_from(free)), label="axes"))
        shape = (*ids.shape[:low], int(np.prod(ids.shape[low : high + 1])), *ids.shape[high + 1 :])
        return refused_or_same(lambda: view.flatten_dims(low, high), view, ids, shape)
    shape = ids.shape[:first] + draw_shape(data, ids.size // int(np.prod(ids.shape[:first])))
    return refused_or_same(lambda: view.reshape(shape), view, ids, shape)


def refused_or_same(call, view, ids, shape):
    """A reshape must work exactly where NumPy needs no copy."""
    new = ids.reshape(shape)
    if np.shares_memory(new, ids):
        return call(), new
    with pytest.raises(IllegalOperand):
        call()
    return view, ids


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_chains_of_views(data):
    """Any chain of views reaches the elements that NumPy says, at the addresses that shape and strides say."""
    buffer = data.draw(st.sampled_from([nl.shared_hbm, nl.sbuf]), label="buffer")
    shape = data.draw(st.sampled_from([(4, 6), (3, 4, 5), (2, 12), (5, 2, 2, 6), (1, 8), (6, 1)]), label="shape")
    array = numbers(shape)
    on_chip = buffer is nl.sbuf
    seen = {}

    def chain(view):
        ids = array
        for _ in range(data.draw(st.integers(1, 5), label="length")):
            view, ids = step(data, view, ids, on_chip)
        assert view.shape == ids.shape
        assert (view.ndim, view.size) == (ids.ndim, ids.size)
        assert view.get_pattern() == [[stride, extent] for stride, extent in zip(view.strides, view.shape, strict=True)]
        np.testing.assert_array_equal(addresses(view), ids)
        per_partition = ids[0] if on_chip else ids
        dense = np.arange(per_partition.size) + per_partition.ravel()[0]
        assert view.is_contiguous() == bool((per_partition.ravel() == dense).all())
        seen["ids"] = ids
        return view

    got = copied(chain, array, buffer)
    np.testing.assert_array_equal(got, seen["ids"])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_engines_see_the_same_elements_as_dma(data):
    """``tensor_copy`` of a view of SBUF gives what NumPy gives, where its pattern fits the hardware."""
    array = numbers((4, 3, 4, 6))
    seen = {}

    def kernel(a):
        tile = nl.ndarray(a.shape, a.dtype, nl.sbuf)
        nisa.dma_copy(dst=tile, src=a)
        view, ids = tile, array
        for _ in range(data.draw(st.integers(1, 4), label="length")):
            view, ids = step(data, view, ids, True)
        steps_partitions = view.strides[0] != tile.strides[0] and view.shape[0] > 1
        if steps_partitions or ids[0].ravel()[0] >= tile.strides[0]:
            view, ids = tile, array  # start partitions and steps along partitions: test_instruction.py
        copy = nl.ndarray(view.shape, view.dtype, nl.sbuf)
        seen["ids"] = ids
        try:
            nisa.tensor_copy(dst=copy, src=view)
        except IllegalOperand as error:
            if "free axes; the hardware has 4" not in str(error):
                raise
            nisa.dma_copy(dst=copy, src=view)
        out = nl.ndarray(copy.shape, copy.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=copy)
        return out

    np.testing.assert_array_equal(neurosim.simulate(kernel)(array).outputs, seen["ids"])


# -- other dtypes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buffer", [nl.shared_hbm, nl.sbuf], ids=["hbm", "sbuf"])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        (np.float32, nl.uint8),
        (np.uint8, nl.float32),
        (np.float32, nl.int32),
        (np.int32, nl.bfloat16),
        (ml_dtypes.bfloat16, nl.uint16),
        (np.uint16, nl.float8_e4m3),
        (np.int8, nl.bool_),
    ],
)
def test_view_as_another_dtype(source, target, buffer):
    raw = np.random.default_rng(3).integers(0, 256, (4, 6, 8 * np.dtype(source).itemsize), np.uint8)
    array = raw.view(source) if source is not np.int8 else (raw & 1).view(np.int8)
    got = copied(lambda t: t[:, 1:5:2].view(target), array, buffer)
    expected = np.ascontiguousarray(array[:, 1:5:2]).view(target.numpy)
    assert got.dtype == target.numpy
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()
    again = copied(lambda t: t[:, 1:5:2].reinterpret_cast(target), array, buffer)
    assert again.tobytes() == expected.tobytes()


def test_view_of_columns_keeps_their_place():
    array = np.random.default_rng(4).standard_normal((4, 16)).astype(np.float32)
    got = copied(lambda t: t[:, 4:8].view(nl.uint16)[:, 2:], array, nl.sbuf)
    np.testing.assert_array_equal(got, np.ascontiguousarray(array[:, 4:8]).view(np.uint16)[:, 2:])


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (lambda t: t[:, ::2].view(nl.uint8), "its last axis is not dense"),
        (lambda t: t[:, 0:3].view(nl.uint8).view(nl.float32)[:, 0:1].view(nl.uint8)[:, 0:2].view(nl.float32), "dense"),
        (lambda t: t.view(nl.uint8)[:, 1:5].view(nl.float32), "do not begin on whole elements"),
        (lambda t: t.view("float128"), "not an NKI dtype"),
        (lambda t: t.view(np.float64), "not an NKI dtype"),
    ],
)
def test_view_refuses_dtypes_that_do_not_fit(view, message):
    with pytest.raises(IllegalOperand, match=message):
        asked(view)


# -- the examples of the documentation --------------------------------------------------------------------------------


def test_attributes_of_a_new_tensor():
    """Language guide, "Anatomy of a tensor"."""

    def question(t):
        assert t.shape == (128, 64)
        assert t.strides == (64, 1)
        assert t.offset == 0
        assert t.dtype == nl.float32 == "float32"
        assert t.buffer == nl.sbuf
        assert (t.ndim, t.size, t.name) == (2, 128 * 64, "t")
        assert t.is_contiguous()
        assert not t.is_indirect()
        return True

    assert asked(question)


@pytest.mark.parametrize(
    ("view", "shape"),
    [
        (lambda t: t[0, 0, 10], (1, 1)),
        (lambda t: t[:, 0], (64, 64)),
        (lambda t: t[:, 0, 10], (64, 1)),
        (lambda t: t[0:64, 0, 0:64], (64, 64)),
        (lambda t: t[:, 0, :], (64, 64)),
        (lambda t: t[:, :, ::2], (64, 64, 32)),
        (lambda t: t[...], (64, 64, 64)),
        (lambda t: t[:, ...], (64, 64, 64)),
        (lambda t: t[0, ..., :], (1, 64, 64)),
        (lambda t: t[0, ...][:, 0:32, :], (1, 32, 64)),
    ],
)
def test_indexing_of_the_language_guide(view, shape):
    """Language guide, "Tensor Indexing"."""
    assert asked(lambda t: view(t).shape, (64, 64, 64)) == shape


@pytest.mark.parametrize(
    ("start", "view", "shape"),
    [
        ((128, 4, 8), lambda t: t.permute((0, 2, 1)), (128, 8, 4)),
        ((128, 1, 64), lambda t: t.broadcast(1, 8), (128, 8, 64)),
        ((128, 64), lambda t: t.expand_dim(1), (128, 1, 64)),
        ((128, 1, 64), lambda t: t.squeeze_dim(1), (128, 64)),
        ((128, 24), lambda t: t.reshape_dim(1, (4, 6)), (128, 4, 6)),
        ((128, 24), lambda t: t.reshape_dim(1, (4, -1)), (128, 4, 6)),
        ((128, 2, 3, 4), lambda t: t.flatten_dims(1, 2), (128, 6, 4)),
        ((128, 4, 6), lambda t: t.reshape((128, 24)), (128, 24)),
        ((128, 4, 6), lambda t: t.reshape((128, 2, 12)), (128, 2, 12)),
        ((128, 64), lambda t: t.slice(1, 8, 24, 1), (128, 16)),
        ((128, 64), lambda t: t.slice(1, 0, 64, 2), (128, 32)),
        ((128, 8, 64), lambda t: t.select(1, 3), (128, 64)),
        ((128, 64), lambda t: t.view(nl.uint8), (128, 256)),
        ((128, 64), lambda t: t.view(nl.int32), (128, 64)),
        ((128, 32), lambda t: t.ap(pattern=[[32, 128], [1, 32]]), (128, 32)),
        ((128, 4, 16), lambda t: t[0:64, :, :].permute((0, 2, 1))[:, 0, :], (64, 4)),
    ],
)
def test_shapes_of_the_api_reference(start, view, shape):
    """NkiTensor's method documentation."""
    assert asked(lambda t: view(t).shape, start) == shape


def test_a_permutation_is_not_contiguous():
    """Language guide, "Querying layout"."""
    assert asked(lambda t: t.permute((0, 2, 1)).is_contiguous(), (128, 4, 8)) is False
    assert asked(lambda t: t[0:3].is_contiguous(), (128, 4, 8)) is True
    assert asked(lambda t: t[:, :, 0:4].is_contiguous(), (128, 4, 8)) is False
    assert asked(lambda t: t[0:3, :].is_contiguous(), (128, 4), buffer=nl.hbm) is True
    assert asked(lambda t: t[:, 0:3].is_contiguous(), (128, 4), buffer=nl.hbm) is False


def test_a_tensor_prints_its_values():
    def kernel(a):
        t = nl.ndarray((2, 2), nl.int32, nl.sbuf, name="mine")
        nisa.dma_copy(dst=t, src=a)
        return repr(t), str(t), f"{t[:, 1:]!r}"

    plain, values, view = neurosim.simulate(kernel)(numbers((2, 2))).outputs
    assert plain == "NkiTensor(mine [2, 2] int32 in SBUF)"
    assert values == "mine [2, 2] int32 in SBUF\n[[0 1]\n [2 3]]"
    assert view == "NkiTensor([2, 1] int32 in SBUF, a view of mine[2, 2] int32 in SBUF)"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (lambda t: t + t, "'\\+' of t.*op=nl.add"),
        (lambda t: 2.0 * t, "'\\*' of t.*2.0.*op=nl.multiply"),
        (lambda t: t @ t, "call nisa.nc_matmul"),
        (lambda t: t > 0, "'>' of t.*op=nl.greater"),
        (lambda t: -t, "'-' of t"),
        (lambda t: abs(t), "'abs' of t"),
    ],
)
def test_python_operators_say_which_instruction_to_call(expression, words):
    with pytest.raises(IllegalOperand) as caught:
        asked(expression)
    assert re.search(words, str(caught.value), re.DOTALL)


@pytest.mark.parametrize("key", [np.s_[:, :], np.s_[0:4, 0:8], np.s_[:4, 0:], np.s_[:, 0:7], np.s_[1:, :]])
def test_a_view_of_all_of_a_tensor_is_the_tensor(key):
    def body():
        tile = nl.ndarray((4, 8), nl.float32, nl.sbuf)
        view = tile[key]
        assert (view is tile) == (view.shape == tile.shape)
        part = tile[1:3, 2:4]
        assert part[0:2, 0:2] is part

    neurosim.simulate(body)()
