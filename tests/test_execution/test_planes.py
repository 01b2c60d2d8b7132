"""Planes: what tensors that share addresses see of each other, against tables with an entry for every byte."""

from __future__ import annotations

import nki.language as nl
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from neurosim import dtypes
from neurosim.engines import Memory
from neurosim.memory import HOLE, MATMUL, UNWRITTEN, WRITTEN, Allocation
from neurosim.plane import Plane
from neurosim.view import whole

PARTITIONS, ROW = 4, 16
TABLE = [dtypes.of(name) for name in (nl.float32, nl.bfloat16, nl.uint8)]


class Model:
    """Who wrote each byte last, and its state."""

    def __init__(self):
        self.states = np.zeros(PARTITIONS * ROW, np.uint8)
        self.owners = np.zeros(PARTITIONS * ROW, np.uint8)

    def under(self, view):
        """Return states and owners of the bytes under a view, one more axis for the bytes of an element."""
        parts = (view.over(table, 1) for table in (self.states, self.owners))
        return [part if part.ndim > view.ndim else part[..., None] for part in parts]

    def seen(self, view):
        states, owners = self.under(view)
        return np.where(owners == view.allocation.index, states, UNWRITTEN)


@st.composite
def tensors(draw, plane):
    """Up to five tensors at addresses of the plane, in the order of their numbers."""
    made = []
    for index in range(1, draw(st.integers(2, 5)) + 1):
        dtype = draw(st.sampled_from(TABLE))
        first = draw(st.integers(0, PARTITIONS - 1))
        start = draw(st.integers(0, ROW // dtype.size_bytes - 1)) * dtype.size_bytes
        count = draw(st.integers(1, (ROW - start) // dtype.size_bytes))
        shape = draw(st.integers(1, PARTITIONS - first)), count
        home = Allocation(
            plane, f"t{index}", shape, dtype, Memory.psum, first, start, count * dtype.size_bytes, 0, (), index, "plane"
        )
        made.append(whole(home))
    return made


def window(data, tensor):
    """Return all of a tensor, or a window of it, perhaps with gaps, perhaps transposed."""
    if data.draw(st.booleans()):
        return tensor
    keys = []
    for extent in tensor.shape:
        start = data.draw(st.integers(0, extent - 1))
        keys.append(slice(start, data.draw(st.integers(start + 1, extent)), data.draw(st.integers(1, 2))))
    keys[0] = slice(keys[0].start, keys[0].stop)
    return tensor[tuple(keys)]


def mark(data, plane, model, view):
    """Write through a view: in one state, in part, with holes, or so that nobody wrote it."""
    states, owners = model.under(view)
    state = data.draw(st.sampled_from([WRITTEN, MATMUL, UNWRITTEN]))
    kind = "plain" if state == UNWRITTEN else data.draw(st.sampled_from(["plain", "plain", "holes", "only"]))
    some = np.array(data.draw(st.lists(st.booleans(), min_size=view.size, max_size=view.size))).reshape(view.shape)
    if kind == "holes":
        plane.mark(view, state, holes=some)
        states[...] = np.where(some[..., None], HOLE, state)
        owners[...] = view.allocation.index
    elif kind == "only":
        plane.mark(view, state, only=some)
        states[some], owners[some] = state, view.allocation.index
    else:
        plane.mark(view, state)
        states[...] = state
        if state != UNWRITTEN:
            owners[...] = view.allocation.index


def check(plane, model, view):
    seen = model.seen(view)
    index = view.allocation.index
    np.testing.assert_array_equal(plane.byte_states(view), seen)
    np.testing.assert_array_equal(plane.element_states(view), seen.min(axis=-1))
    assert plane.uniform_state(view) == (seen.flat[0] if (seen == seen.flat[0]).all() else -1)
    unwritten, holes = plane.unwritten(view), (seen < WRITTEN).any(axis=-1)
    np.testing.assert_array_equal(np.zeros(view.shape, bool) if unwritten is None else unwritten, holes)
    owners = model.under(view)[1]
    foreign = np.where(owners == index, 0, owners).max(axis=-1)
    found = plane.foreign_owners(view)
    np.testing.assert_array_equal(np.zeros(view.shape, int) if found is None else found, foreign)
    if plane.settled(view) >= WRITTEN:
        assert found is None
        assert unwritten is None


@settings(max_examples=60)
@given(st.data())
def test_planes_answer_as_tables_of_bytes_do(data):
    plane, model = Plane(Memory.psum, PARTITIONS, ROW, 2), Model()
    made = data.draw(tensors(plane))
    for _ in range(data.draw(st.integers(1, 12))):
        view = window(data, data.draw(st.sampled_from(made)))
        if data.draw(st.integers(0, 2)):
            mark(data, plane, model, view)
        else:
            check(plane, model, view)
    for tensor in made:
        check(plane, model, tensor)


def placed(plane, index, start, count):
    home = Allocation(plane, f"t{index}", (4, count), TABLE[0], Memory.sbuf, 0, start, 4 * count, 0, (), index, "plane")
    return whole(home)


def test_columns_written_one_by_one_settle_as_one():
    plane = Plane(Memory.sbuf, 4, 64, 2)
    tensor = placed(plane, 1, 0, 8)
    for column in range(8):
        assert plane.settled(tensor[:, 0 : column + 1]) != WRITTEN
        plane.mark(tensor[:, column : column + 1], WRITTEN)
        assert plane.settled(tensor[:, 0 : column + 1]) == WRITTEN


def test_a_strided_write_settles_once_all_is_written():
    plane = Plane(Memory.sbuf, 4, 64, 2)
    tensor = placed(plane, 1, 0, 8)
    plane.mark(tensor[:, 0:8:2], WRITTEN)
    assert plane.settled(tensor) == -1
    plane.mark(tensor[:, 1:8:2], WRITTEN)
    assert plane.settled(tensor) == WRITTEN


def test_another_tensor_settles_a_part_of_the_first_no_longer():
    plane = Plane(Memory.sbuf, 4, 64, 2)
    first, second = placed(plane, 1, 0, 8), placed(plane, 2, 16, 2)
    plane.mark(first, WRITTEN)
    plane.mark(second, WRITTEN)
    assert plane.settled(first) == -1
    assert plane.settled(second) == WRITTEN
    np.testing.assert_array_equal(plane.foreign_owners(first)[0], [0, 0, 0, 0, 2, 2, 0, 0])
