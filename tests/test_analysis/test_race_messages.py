"""What a data race's message says of the elements at which the cores meet."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import DataRace


def caught(body, *arrays):
    with pytest.raises(DataRace) as found:
        neurosim.simulate(nki.jit(body)[2])(*arrays)
    return found.value


def zeros():
    return np.zeros((16, 24), np.float32)


def test_a_race_names_the_elements_that_the_cores_leave_differently():
    """Both write columns 4 to 12 of all rows; in rows 3 to 9 they write the same."""

    def body(x):
        own = nl.ndarray((16, 8), x.dtype)
        nisa.memset(own, value=float(nl.program_id(0)))
        same = nl.ndarray((6, 8), x.dtype)
        nisa.memset(same, value=5.0)
        nisa.dma_copy(dst=own[3:9], src=same)
        nl.store(x[:, 4:12], own)

    assert caught(body, zeros()).numbers[2] == "both reach [0:16, 4:12]"

    def few(x):
        row = nl.ndarray((16, 8), x.dtype)
        nisa.memset(row, value=2.0)
        nisa.memset(row[:2], value=float(nl.program_id(0)))
        nl.store(x[:, 4:12], row)

    assert caught(few, zeros()).numbers[2] == "both reach [0:2, 4:12]"


def test_a_race_of_scattered_rows_names_them_and_what_leaves_rows_out():
    """Rows 9 and 12 are chosen by both cores."""

    def body(x, rows):
        index = nl.ndarray((4, 1), rows.dtype)
        nisa.dma_copy(dst=index, src=rows[:, nl.ds(nl.program_id(0), 1)])
        values = nl.ndarray((4, 24), x.dtype)
        nisa.memset(values, value=1.0 + nl.program_id(0))
        nisa.dma_copy(dst=x.ap([[24, 4], [1, 24]], vector_offset=index, indirect_dim=0), src=values)

    error = caught(body, zeros(), np.array([[0, 9], [12, 3], [2, 12], [9, 5]], np.int32))
    assert error.numbers[2] == "both reach [9:13, 0:24]"
    assert "oob_mode=nisa.oob_mode.skip" in error.advice


def test_a_race_of_bytes_that_go_on_in_the_next_row():
    def body(x):
        flat = x.reshape((384,))
        if nl.program_id(0):
            nl.load(flat.reshape((1, 384))[:, 20:100])
        else:
            ones = nl.ndarray((1, 50), x.dtype)
            nisa.memset(ones, value=1.0)
            nl.store(flat.reshape((1, 384))[:, 30:80], ones)

    assert caught(body, zeros()).numbers[2] == "both reach [1:4, 0:24]"
