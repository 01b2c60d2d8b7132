"""Views whose place an index decides at run time, gathered from and scattered to by dma_copy."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neurosim
from neurosim.errors import IllegalOperand, OutOfBounds, Uninitialized, UnwrittenOutput

TABLE = np.arange(40 * 6, dtype=np.float32).reshape(40, 6)


def column(values, dtype=np.int32):
    return np.array(values, dtype).reshape(-1, 1)


def load(array):
    tile = nl.ndarray(array.shape, dtype=array.dtype)
    nisa.dma_copy(dst=tile, src=array)
    return tile


def gather(table, index, how, **options):
    rows, width = index.shape[0], table.shape[1]
    tile = nl.ndarray((rows, width), dtype=table.dtype)
    nisa.memset(dst=tile, value=-1)
    idx = load(index)
    if how == "ap":
        view = table.ap([[width, rows], [1, width]], vector_offset=idx, indirect_dim=0)
    else:
        view = table.vector_select(0, idx)
    assert view.shape == (rows, width)
    assert view.is_indirect()
    nisa.dma_copy(dst=tile, src=view, **options)
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.mark.parametrize("how", ["ap", "vector_select"])
@given(index=st.lists(st.integers(0, 39), min_size=1, max_size=128))
def test_gather_takes_the_rows(how, index):
    out = nki.simulate(gather)(TABLE, column(index), how)
    assert (out == TABLE[index]).all()


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_a_part_of_each_row_from_an_offset(dtype):
    def part(table, index):
        idx = load(index)
        tile = nl.ndarray((3, 2), dtype=table.dtype)
        nisa.dma_copy(dst=tile, src=table.ap([[6, 3], [1, 2]], offset=3, vector_offset=idx, indirect_dim=0))
        out = nl.ndarray((3, 2), dtype=table.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    out = nki.simulate(part)(TABLE, column([5, 0, 39], dtype))
    assert (out == TABLE[[5, 0, 39], 3:5]).all()


def test_the_pattern_says_how_many_rows_there_are():
    """Indices after these are not used, and need not be written."""

    def part(table, index):
        idx = nl.ndarray((5, 1), dtype=index.dtype)
        nisa.dma_copy(dst=idx[0:3], src=index)
        tile = nl.ndarray((3, 6), dtype=table.dtype)
        nisa.dma_copy(dst=tile, src=table.ap([[6, 3], [1, 6]], vector_offset=idx, indirect_dim=0))
        out = nl.ndarray((3, 6), dtype=table.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    assert (nki.simulate(part)(TABLE, column([5, 0, 39])) == TABLE[[5, 0, 39]]).all()


def test_a_row_without_an_index_is_refused():
    def more(table, index):
        return table.ap([[6, 4], [1, 6]], vector_offset=load(index), indirect_dim=0)

    with pytest.raises(IllegalOperand, match="4 rows and 3 indices"):
        nki.simulate(more)(TABLE, column([5, 0, 39]))


def test_several_columns_are_for_transposes():
    def copied(table, index):
        tile = nl.ndarray((4, 6), dtype=table.dtype)
        nisa.dma_copy(dst=tile, src=table.ap([[6, 4], [1, 6]], vector_offset=load(index), indirect_dim=0))
        return table

    with pytest.raises(IllegalOperand, match="the index has 2 columns; it must have one"):
        nki.simulate(copied)(TABLE, np.zeros((2, 2), np.int32))


@pytest.mark.parametrize("bad", [-1, 40, 2**31 - 1])
def test_an_index_out_of_range_names_lane_index_and_limit(bad):
    with pytest.raises(OutOfBounds) as error:
        nki.simulate(gather)(TABLE, column([3, bad, 5]), "ap")
    text = str(error.value)
    assert f"index {bad} of lane 1" in text
    assert "40 indices are valid: 0 to 39" in text
    assert "test_indirect.py" in text


@pytest.mark.parametrize("how", ["ap", "vector_select"])
def test_skip_leaves_rows_as_they_were(how):
    out = nki.simulate(gather)(TABLE, column([3, -1, 5, 2**30]), how, oob_mode=nisa.oob_mode.skip)
    expected = np.full((4, 6), -1, np.float32)
    expected[[0, 2]] = TABLE[[3, 5]]
    assert (out == expected).all()


def test_a_skipped_row_that_nobody_wrote_is_a_hole():
    def holes(table, index):
        idx = load(index)
        tile = nl.ndarray((3, 6), dtype=table.dtype)
        nisa.dma_copy(dst=tile, src=table.vector_select(0, idx), oob_mode=nisa.oob_mode.skip)
        out = nl.ndarray((3, 6), dtype=table.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    with pytest.raises(Uninitialized, match=r"\[1:2, 0:6\]"):
        nki.simulate(holes)(TABLE, column([0, 99, 1]))


def scatter(values, index, rows, **options):
    out = nl.ndarray((rows, values.shape[1]), dtype=values.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out.vector_select(0, load(index)), src=load(values), **options)
    return out


def test_scatter_writes_the_rows():
    order = np.random.default_rng(0).permutation(40)
    out = nki.simulate(scatter)(TABLE, column(order), 40)
    assert (out[order] == TABLE).all()


def test_scatter_marks_only_what_it_wrote():
    with pytest.raises(UnwrittenOutput, match=r"never stored: \[2:3, 0:6\]") as error:
        nki.simulate(scatter)(TABLE[:3], column([0, 3, 1]), 4)
    assert (error.value.outputs[[0, 3, 1]] == TABLE[:3]).all()


def test_a_repeated_index_does_not_count_twice():
    with pytest.raises(UnwrittenOutput, match=r"\[1:2, 0:6\]"):
        nki.simulate(scatter)(TABLE[:2], column([0, 0]), 2)


def test_scatter_skips_rows_out_of_bounds():
    def into(out, values, index):
        view = out.vector_select(0, load(index))
        nisa.dma_copy(dst=view, src=load(values), oob_mode=nisa.oob_mode.skip)
        return out

    before = np.zeros((4, 6), np.float32)
    out = nki.simulate(into)(before, TABLE[:3], column([2, -7, 4]))
    expected = np.zeros((4, 6), np.float32)
    expected[2] = TABLE[0]
    assert (out == expected).all()
    assert (before == expected).all()


class TestOneIndexForAll:
    def batch(self, table, which, how):
        table = table.reshape((5, 8, 6))
        idx = load(which)
        tile = nl.ndarray((8, 6), dtype=table.dtype)
        if how == "select":
            view = table.select(0, idx)
        else:
            view = table.ap([[6, 8], [1, 6]], scalar_offset=idx, indirect_dim=0)
        nisa.dma_copy(dst=tile, src=view)
        out = nl.ndarray((8, 6), dtype=table.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    @pytest.mark.parametrize("how", ["select", "ap"])
    @pytest.mark.parametrize("which", range(5))
    def test_select_equals_a_static_slice(self, how, which):
        out = nki.simulate(self.batch)(TABLE, column([which]), how)
        assert (out == TABLE.reshape(5, 8, 6)[which]).all()

    @pytest.mark.parametrize("how", ["select", "ap"])
    def test_past_the_end_is_refused(self, how):
        with pytest.raises(OutOfBounds, match="index 5 of lane 0"):
            nki.simulate(self.batch)(TABLE, column([5]), how)

    def test_a_column_of_an_sbuf_tile(self):
        def pick(table, which):
            tile, idx = load(table), load(which)
            out = nl.ndarray((40, 1), dtype=table.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=out, src=tile.select(1, idx).reshape((40, 1)))
            return out

        out = nki.simulate(pick)(TABLE, column([4]))
        assert (out == TABLE[:, 4:5]).all()

    def test_views_of_it_keep_its_place(self):
        def slices(table, which):
            view = table.reshape((5, 8, 6)).select(0, load(which))[2:4, ::2]
            out = nl.ndarray((2, 3), dtype=table.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=out, src=view)
            return out

        out = nki.simulate(slices)(TABLE, column([3]))
        assert (out == TABLE.reshape(5, 8, 6)[3, 2:4, ::2]).all()


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (lambda: nl.ndarray((3, 2), nl.int32), "SBUF tile of shape"),
        (lambda: nl.ndarray((3, 1), nl.float32), "of int32 or uint32"),
        (lambda: nl.ndarray((3, 1), nl.int32, buffer=nl.shared_hbm), "give an SBUF tile"),
        (lambda: 3, "the index is 3"),
    ],
)
def test_indices_of_the_wrong_kind(index, words):
    def kernel(table):
        table.vector_select(0, index())
        return table

    with pytest.raises(IllegalOperand, match=words):
        nki.simulate(kernel)(TABLE)


def test_unwritten_indices_are_refused_at_the_read():
    def kernel(table):
        tile = nl.ndarray((3, 6), nl.float32)
        nisa.dma_copy(dst=tile, src=table.vector_select(0, nl.ndarray((3, 1), nl.int32)))
        return table

    with pytest.raises(Uninitialized, match="index of src"):
        nki.simulate(kernel)(TABLE)


def test_other_instructions_refuse_a_dynamic_place():
    def kernel(table, which):
        tile = load(table)
        nisa.reciprocal(dst=nl.ndarray((40, 1), nl.float32), data=tile.select(1, load(which)))
        return table

    with pytest.raises(IllegalOperand, match="known at run time only"):
        nki.simulate(kernel)(TABLE, column([0]))


def test_a_gather_is_a_software_dma_that_waits_for_its_indices():
    result = neurosim.simulate(gather)(TABLE, column(range(40)), "ap")
    records = list(result.program)
    indirect = next(record for record in records if len(record.signature.patterns) == 3)
    assert indirect.signature.engine is nisa.engine.gpsimd
    assert [pattern.role for pattern in indirect.signature.patterns] == ["dst", "index of src", "src"]
    (work,) = indirect.signature.work
    assert (work.generation, work.descriptors) == ("swdge", 40)
    loaded = next(r.index for r in records if r.signature.patterns[0].dtype == nl.int32)
    assert result.timeline.start_ps[indirect.index] >= result.timeline.complete_ps[loaded]


def test_without_values_indices_are_assumed_in_range():
    result = neurosim.simulate(gather, values=False)(
        neurosim.spec((40, 6), nl.float32), neurosim.spec((40, 1), nl.int32), "ap"
    )
    assert result.timeline.makespan_ps == neurosim.simulate(gather)(TABLE, column(range(40)), "ap").timeline.makespan_ps
