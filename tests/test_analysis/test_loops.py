"""Loops and trips are read off the source and the order of records."""

from __future__ import annotations

from pathlib import Path

import nki.isa as nisa
import nki.language as nl
import numpy as np

import neurosim
from neurosim.analysis.loops import trips


def nest(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(2):  # outer
        tile = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[4 * row : 4 * row + 4, :])
        for _ in range(3):  # inner
            double(tile)
        nisa.dma_copy(dst=out[4 * row : 4 * row + 4, :], src=tile)
    return out


def double(tile):
    for column in range(2):  # in the callee
        half = tile[:, 4 * column : 4 * column + 4]
        nisa.tensor_tensor(dst=half, data1=half, data2=half, op=nl.add)


def test_trips_count_each_loop_from_zero():
    result = neurosim.simulate(nest)(np.ones((8, 8), np.float32))
    assert (result.outputs == 8).all()
    seen = [tuple(trip.index for trip in around) for around in trips(result.program)]
    expected = []
    for row in range(2):
        expected.append((row,))
        # the body of the inner loop holds nothing but the callee's loop, which counts its trips too
        expected += [(row, 0, column) for column in range(6)]
        expected.append((row,))
    assert seen == expected


def test_loops_have_the_lines_of_their_statements():
    result = neurosim.simulate(nest)(np.ones((8, 8), np.float32))
    around = list(trips(result.program))[1]
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert [source[trip.line - 1].split("# ")[-1] for trip in around] == ["outer", "inner", "in the callee"]
