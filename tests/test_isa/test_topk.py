"""topk: the K largest elements of each group of 16 partitions, and their places."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neurosim
from neurosim.engines import Engine
from neurosim.errors import Uninitialized
from neurosim.timing.laws import lanewise_cost

BFLOAT16 = nl.bfloat16.numpy


def load(array):
    tile = nl.ndarray(array.shape, dtype=array.dtype)
    nisa.dma_copy(dst=tile, src=array)
    return tile


def store(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def top(table, n, k):
    values = nl.ndarray((table.shape[0], k), dtype=nl.bfloat16)
    places = nl.ndarray((table.shape[0], k), dtype=nl.uint32)
    nisa.memset(dst=values, value=-1.0)
    nisa.memset(dst=places, value=7777)
    nisa.topk(val_dst=values, idx_dst=places, src=load(table), n=n)
    return store(values), store(places)


def run(table, n, k, chip="trn2"):
    return neurosim.simulate(top, chip=chip)(table, n, k).outputs


def snaked(rows, columns):
    """[groups, n] laid out as the instruction wants it: element i in partition i mod 16, column i div 16."""
    table = np.zeros((16 * len(rows), columns), BFLOAT16)
    for group, row in enumerate(rows):
        for i, value in enumerate(row):
            table[16 * group + i % 16, i // 16] = value
    return table


def unsnaked(table, count):
    """The first ``count`` elements of each group."""
    return np.array([[table[16 * g + i % 16, i // 16] for i in range(count)] for g in range(len(table) // 16)])


def twin(row, k):
    """The scalar twin: take the largest left over, the first of equal ones; ascending."""
    left, taken = list(range(len(row))), []
    for _ in range(k):
        best = left[0]
        for i in left[1:]:
            if float(row[i]) > float(row[best]):
                best = i
        taken.append(best)
        left.remove(best)
    return taken[::-1]


def test_an_example_by_hand():
    row = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    values, places = run(snaked([row], 1), 11, 4)
    assert unsnaked(values, 4).tolist() == [[5, 5, 6, 9]]
    assert unsnaked(places, 4).tolist() == [[8, 4, 7, 5]]  # of the three fives the first two, the first one last


def test_results_snake_and_leave_the_rest():
    row = np.arange(100, dtype=np.float32)
    values, places = run(snaked([row, -row], 7), 100, 40)
    assert (unsnaked(values, 40)[0] == np.arange(60, 100)).all()
    assert (unsnaked(places, 40)[1] == np.arange(39, -1, -1)).all()
    assert (places[:, 3:] == 7777).all()
    assert (values[:, 3:] == -1).all()
    assert (places[8:16, 2] == 7777).all()
    assert (places[0:8, 2] != 7777).all()


def test_elements_after_n_are_not_looked_at():
    table = snaked([np.arange(48, dtype=np.float32)], 3)
    _, places = run(table, 42, 8)
    assert (unsnaked(places, 8) == np.arange(34, 42)).all()


@given(seed=st.integers(0, 2**16), n=st.integers(8, 90), groups=st.integers(1, 3), share=st.floats(0, 1))
def test_the_scalar_twin(seed, n, groups, share):
    k = max(1, round(share * n))
    random = np.random.default_rng(seed)
    rows = random.integers(-9, 10, (groups, n)).astype(np.float32) + 0.0
    columns = max(-(-n // 16), 1)
    values, places = run(snaked(rows, columns), n, k)
    expected = [twin(row, k) for row in rows]
    assert (unsnaked(places, k) == np.array(expected)).all()
    assert (unsnaked(values, k) == np.take_along_axis(rows, np.array(expected), axis=1)).all()


def test_special_values():
    row = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.0]
    values, places = run(snaked([row], 1), 8, 8)
    assert unsnaked(places, 8).tolist() == [[3, 6, 1, 7, 0, 5, 2, 4]]
    assert np.isnan(unsnaked(values, 8).astype(np.float32)[0, 7])


def test_a_hole_among_the_elements_reaches_its_group_alone():
    def kernel(table):
        source = nl.ndarray((32, 2), dtype=nl.bfloat16)
        nisa.dma_copy(dst=source[0:16], src=table[0:16])
        nisa.dma_copy(dst=source[16:32, 0:1], src=table[16:32, 0:1])
        values = nl.ndarray((32, 1), dtype=nl.bfloat16)
        places = nl.ndarray((32, 1), dtype=nl.uint32)
        nisa.memset(dst=values, value=0.0)
        nisa.topk(val_dst=values, idx_dst=places, src=source, n=20)
        return store(values)

    with pytest.raises(Uninitialized, match=r"unwritten here: \[16:17, 0:1\]"):
        neurosim.simulate(kernel)(snaked([np.arange(32)] * 2, 2))


def test_it_takes_four_cycles_for_each_element_and_one_for_each_result():
    """4 n + K, as documented."""
    program = neurosim.profile(top, chip="trn2")(snaked([np.arange(96)], 6), 96, 32).program
    (work,) = next(entry.work for entry in program.signatures if entry.instruction == "topk")
    chip = neurosim.load_chip("trn2")
    assert lanewise_cost(work, Engine.gpsimd, chip).issue_ps == round((4 * 96 + 32) * 1000 / chip.gpsimd.clock_ghz)


def test_columns_that_the_snake_does_not_reach_are_not_written():
    """The manual's example allocates [P, k] for the results, of which K in each 16 partitions are written."""

    def kernel(x):
        values = nl.ndarray((32, 8), dtype=nl.bfloat16)
        places = nl.ndarray((32, 8), dtype=nl.uint32)
        nisa.topk(val_dst=values, idx_dst=places, src=load(x), n=42)
        return store(values[:, 0:columns])

    x = np.zeros((32, 3), BFLOAT16)
    columns = 8
    with pytest.raises(Uninitialized) as caught:
        neurosim.simulate(kernel)(x)
    words = "topk wrote 16 of 256 elements of it: result j of 16 partitions lies in partition j mod 16, column j div 16"
    assert words in str(caught.value)
