"""Data races byte by byte: against twins that mark each element, and at the size of large tensors."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from itertools import product

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neurosim
from neurosim.analysis.regions import Region
from neurosim.errors import DataRace
from neurosim.hazards import _Bytes, _Touch


def on_two(body, *arrays, **options):
    return neurosim.simulate(nki.jit(body)[2], **options)(*arrays)


BLOCK = st.tuples(
    st.integers(0, 1),  # core
    st.booleans(),  # writes
    st.integers(0, 15),
    st.integers(1, 4),
    st.integers(0, 23),
    st.integers(1, 8),
    st.integers(1, 3),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(BLOCK, max_size=5), min_size=1, max_size=3))
def test_races_are_those_of_a_byte_by_byte_twin(epochs):
    """Blocks of random places, in epochs between barriers; the twin marks elements one by one."""

    def view(x, block):
        _, _, row, rows, column, columns, step = block
        return x[row : min(row + rows, 16), column : min(column + columns * step, 24) : step]

    def body(x):
        for epoch in epochs:
            for block in epoch:
                if block[0] == nl.program_id(0):
                    if block[1]:
                        nl.store(view(x, block), nl.full(view(x, block).shape, float(nl.program_id(0)), x.dtype))
                    else:
                        nl.load(view(x, block))
            nisa.core_barrier(x, (0, 1))

    racing = False
    for epoch in epochs:
        touched = np.zeros((2, 2, 16, 24), bool)  # by core and by whether it writes
        for block in epoch:
            view(touched[block[0], int(block[1])], block)[...] = True
        racing |= bool((touched[0, 1] & touched[1].any(axis=0)).any() or (touched[1, 1] & touched[0, 0]).any())
    with pytest.raises(DataRace, match="two cores access the same bytes") if racing else contextlib.nullcontext():
        on_two(body, np.zeros((16, 24), np.float32))


@pytest.mark.parametrize("seed", range(40))
def test_bytes_of_columns_are_those_of_a_set(seed):
    """Regions of one or two axes, most of them in rows of equal length."""
    draw = random.Random(seed)

    def touch():
        pitch = draw.choice((64, 64, 64, 96))
        run, count = 4 * draw.randint(1, 3), draw.randint(1, 3)
        axes = ((pitch, draw.randint(2, 4)),) * draw.randint(0, 1) + ((16, count),) * (count > 1)
        return _Touch(0, True, False, Region(1, axes, run), 4 * draw.randrange(40))

    def reached(touch):
        places = (range(0, step * count, step) for step, count in touch.region.axes)
        return {touch.offset + sum(place) + byte for place in product(*places) for byte in range(touch.region.run)}

    touches = [touch() for _ in range(draw.randint(1, 3))]
    bytes_ = _Bytes(touches)
    for some in (touches, touches[:1]):
        first, last = bytes_.places(bytes_.reached_by(some))
        found = {byte for low, high in zip(first, last, strict=True) for byte in range(low, high)}
        assert found == set().union(*map(reached, some))


def test_few_columns_of_a_large_tensor_are_quickly_compared():
    """Both store columns of 1 GiB in two pieces, and read them back."""

    def body(x, y):
        rows = x.shape[0]
        for half in (slice(0, rows // 2), slice(rows // 2, rows)):
            nisa.dma_copy(dst=x[half, 0:8:2], src=y[half, 0:4])
        held = nl.ndarray((rows, 4), nl.float32, nl.private_hbm)
        nisa.dma_copy(dst=held, src=x[0:rows, 0:8:2])

    x, y = neurosim.spec((65536, 4096), "float32"), neurosim.spec((65536, 4), "float32")
    tracemalloc.start()
    on_two(body, x, y, values=False)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 50 << 20
