"""Tensor indirection: compute instructions that gather from and scatter to offsets which a tile holds."""

from __future__ import annotations

from dataclasses import replace

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neurosim
from neurosim.analysis.dependences import dependences
from neurosim.engines import Engine
from neurosim.errors import IllegalOperand, OutOfBounds, Uninitialized, UnknownBehavior
from neurosim.timing.laws import lanewise_cost

RANDOM = np.random.default_rng(5)


def run(kernel, *arrays, chip="trn3", **options):
    return neurosim.simulate(kernel, chip=chip, **options)(*arrays).outputs


def load(array, dtype=None):
    tile = nl.ndarray(array.shape, dtype=array.dtype if dtype is None else dtype)
    nisa.dma_copy(dst=tile, src=array)
    return tile


def store(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def gather(table, index, count):
    tile = nl.ndarray((table.shape[0], count), dtype=table.dtype)
    nisa.tensor_copy(dst=tile, src=load(table).indirect(load(index), count))
    return store(tile)


def scatter(values, index, width):
    tile = nl.ndarray((values.shape[0], width), dtype=values.dtype)
    nisa.memset(dst=tile, value=-1)
    nisa.tensor_copy(dst=tile.indirect(load(index), values.shape[1]), src=load(values))
    return store(tile)


def offset(index, partition, number, group=16):
    """Where the manual says that offset ``number`` of a partition lies."""
    return index[partition // group * group + number % group, number // group]


def table_of(rows, width):
    return (np.arange(rows)[:, None] * 1000 + np.arange(width)).astype(np.float32)


def test_the_manual_s_example():
    """Elements 0, 128 and 384 of each of 128 partitions (trainium3_arch.rst)."""
    table = table_of(128, 512)
    index = np.zeros((128, 1), np.uint16)
    index[[p for p in range(128) if p % 16 == 1]] = 128
    index[[p for p in range(128) if p % 16 == 2]] = 384
    assert (run(gather, table, index, 3) == table[:, [0, 128, 384]]).all()


def test_offsets_snake_through_the_rows_of_a_group_and_then_the_columns():
    table = table_of(32, 100)
    index = np.arange(32 * 2, dtype=np.uint16).reshape(2, 32).T.copy()  # index[r, c] = r + 32 c
    out = run(gather, table, index, 20)
    assert (out[:16] == table[:16, [*range(16), 32, 33, 34, 35]]).all()
    assert (out[16:] == table[16:, [*range(16, 32), 48, 49, 50, 51]]).all()


@pytest.mark.parametrize("dtype", [np.uint16, np.int16, np.uint32, np.int32])
def test_formats_of_offsets(dtype):
    index = RANDOM.integers(0, 40, (32, 1)).astype(dtype)
    table = table_of(32, 40)
    expected = [[table[p, offset(index, p, i)] for i in range(16)] for p in range(32)]
    assert (run(gather, table, index, 16) == np.array(expected)).all()


@st.composite
def cases(draw):
    rows = draw(st.sampled_from([16, 32, 64, 96, 128, 8, 40]))
    columns, width = draw(st.integers(1, 3)), draw(st.integers(1, 50))
    capacity = rows % 16 or 16 * columns
    count = draw(st.integers(1, capacity))
    seed = draw(st.integers(0, 2**16))
    index = np.random.default_rng(seed).integers(0, width, (rows, columns)).astype(np.uint16)
    return index, width, count


@given(case=cases())
def test_gathering_is_the_scalar_twin(case):
    index, width, count = case
    table = table_of(index.shape[0], width)
    expected = [[table[p, offset(index, p, i)] for i in range(count)] for p in range(len(table))]
    assert (run(gather, table, index, count) == np.array(expected)).all()


@given(case=cases())
def test_scattering_is_the_scalar_twin(case):
    """Of several elements with one offset the last stays."""
    index, width, count = case
    values = table_of(index.shape[0], count)
    expected = np.full((len(values), width), -1, np.float32)
    for p in range(len(values)):
        for i in range(count):
            expected[p, offset(index, p, i)] = values[p, i]
    assert (run(scatter, values, index, width) == expected).all()


def test_the_default_is_all_of_the_index():
    def default(table, index):
        view = load(table).indirect(load(index))
        assert view.shape == (16, 32)
        assert view.is_indirect()
        tile = nl.ndarray((16, 32), dtype=table.dtype)
        nisa.tensor_copy(dst=tile, src=view)
        return store(tile)

    index = RANDOM.integers(0, 9, (16, 2)).astype(np.uint16)
    table = table_of(16, 9)
    assert (run(default, table, index) == table[:, index.T.reshape(-1)]).all()


@pytest.mark.parametrize(
    ("view", "columns"),
    [
        (lambda t: t[:, 8:24], slice(8, 24)),
        (lambda t: t[:, 1:40:3], slice(1, 40, 3)),
        (lambda t: t.reshape((32, 4, 10))[:, 1:3], slice(10, 30)),
    ],
)
def test_offsets_count_elements_of_the_view(view, columns):
    table = table_of(32, 40)
    part = table[:, columns]
    index = RANDOM.integers(0, part.shape[1], (32, 1)).astype(np.uint16)

    def kernel(table, index):
        tile = nl.ndarray((32, 16), dtype=table.dtype)
        nisa.tensor_copy(dst=tile, src=view(load(table)).indirect(load(index), 16))
        return store(tile)

    expected = [[part[p, offset(index, p, i)] for i in range(16)] for p in range(32)]
    assert (run(kernel, table, index) == np.array(expected)).all()


def test_arithmetic_gathers_and_scatters_at_once():
    table, index = table_of(32, 40), RANDOM.integers(0, 40, (32, 1)).astype(np.uint16)
    places = np.concatenate([RANDOM.permutation(30)[:16], RANDOM.permutation(30)[:16]]).astype(np.uint16)[:, None]

    def kernel(table, index, places):
        out = nl.ndarray((32, 30), dtype=table.dtype)
        nisa.memset(dst=out, value=0)
        twos = nl.ndarray((32, 16), dtype=table.dtype)
        nisa.memset(dst=twos, value=2)
        target = out.indirect(load(places), 16)
        nisa.tensor_tensor(dst=target, data1=load(table).indirect(load(index), 16), data2=twos, op=nl.multiply)
        return store(out)

    expected = np.zeros((32, 30), np.float32)
    for p in range(32):
        for i in range(16):
            expected[p, offset(places, p, i)] = table[p, offset(index, p, i)] * 2
    assert (run(kernel, table, index, places) == expected).all()


def test_a_predicate_leaves_out_what_an_equal_offset_wrote():
    """An element that is not copied writes nothing, also where another one has its place."""

    def kernel(values, predicate, index):
        tile = nl.ndarray((16, 4), dtype=values.dtype)
        nisa.memset(dst=tile, value=-1)
        nisa.tensor_copy_predicated(dst=tile.indirect(load(index), 3), src=load(values), predicate=load(predicate))
        return store(tile)

    index = np.zeros((16, 1), np.uint16)
    index[1] = 2  # offsets 0, 2, 0
    predicate = np.tile(np.array([1, 1, 0], np.uint8), (16, 1))
    values = np.tile(np.array([5, 6, 7], np.float32), (16, 1))
    assert (run(kernel, values, predicate, index) == [5, -1, 6, -1]).all()


def test_the_tensor_engine_has_groups_of_32():
    stationary = RANDOM.integers(-3, 4, (64, 40)).astype(nl.bfloat16.numpy)
    moving = RANDOM.integers(-3, 4, (64, 50)).astype(nl.bfloat16.numpy)
    rows, columns = (RANDOM.integers(0, width, (64, 1)).astype(np.uint16) for width in (40, 50))

    def kernel(stationary, moving, rows, columns):
        psum = nl.ndarray((32, 20), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(
            dst=psum,
            stationary=load(stationary).indirect(load(rows), 32),
            moving=load(moving).indirect(load(columns), 20),
        )
        out = nl.ndarray((32, 20), dtype=nl.float32)
        nisa.tensor_copy(dst=out, src=psum)
        return store(out)

    def chosen(table, index, count):
        return np.array([[table[p, offset(index, p, i, 32)] for i in range(count)] for p in range(64)], np.float32)

    expected = chosen(stationary, rows, 32).T @ chosen(moving, columns, 20)
    assert (run(kernel, stationary, moving, rows, columns) == expected).all()


def accumulating(ones, index, width):
    """Multiply twice into scattered columns."""
    psum = nl.ndarray((32, width), dtype=nl.float32, buffer=nl.psum)
    idx, tile = load(index), load(ones)
    for _ in range(2):
        nisa.nc_matmul(dst=psum.indirect(idx, 3), stationary=tile, moving=tile[:, 0:3])
    out = nl.ndarray((32, width), dtype=nl.float32)
    nisa.memset(dst=out, value=-1)
    nisa.tensor_copy(dst=out[:, 0:3], src=psum.indirect(idx[0:32], 3))
    return store(out)


def test_a_matmul_adds_to_the_columns_that_it_wrote():
    index = np.zeros((32, 1), np.uint16)
    index[[0, 1, 2]] = [[7], [0], [3]]
    index[16:19] = index[:3]  # Vector reads it in groups of 16, the tensor engine in groups of 32
    ones = np.ones((32, 32), nl.bfloat16.numpy)
    assert (run(accumulating, ones, index, 8)[:, :3] == 64).all()


def test_adding_twice_to_one_place_is_refused():
    ones = np.ones((32, 32), nl.bfloat16.numpy)
    with pytest.raises(UnknownBehavior, match="adding twice to one place"):
        run(accumulating, ones, np.zeros((32, 1), np.uint16), 8)


@pytest.mark.parametrize("chip", ["trn1", "trn2"])
def test_other_generations_name_trn3(chip):
    with pytest.raises(IllegalOperand, match=r"NeuronCore-v4 \(trn3\)") as error:
        run(gather, table_of(32, 40), np.zeros((32, 1), np.uint16), 16, chip=chip)
    assert f"chip {chip}" in str(error.value)


@pytest.mark.parametrize("bad", [-1, 40, 2**15 - 1])
def test_an_offset_out_of_range_names_lane_value_and_limit(bad):
    index = np.zeros((32, 2), np.int16)
    index[17, 1] = bad
    with pytest.raises(OutOfBounds) as error:
        run(gather, table_of(32, 40), index, 18)
    assert f"index[17, 1] is {bad}" in str(error.value)
    assert "chooses element 17 of" in str(error.value)
    assert "40 offsets are valid: 0 to 39" in str(error.value)


def test_offsets_that_are_not_used_may_be_anything():
    index = np.zeros((32, 2), np.int16)
    index[18, 1], index[2:16, 1] = 4000, -7
    assert (run(gather, table_of(32, 40), index, 18) == table_of(32, 40)[:, :1]).all()


def test_offsets_that_are_not_used_need_not_be_written():
    def kernel(table, used):
        index = nl.ndarray((16, 2), dtype=nl.uint16)
        nisa.memset(dst=index[:, 0:1], value=used)
        tile = nl.ndarray((16, 17), dtype=table.dtype)
        nisa.tensor_copy(dst=tile[:, 0:16], src=load(table).indirect(index, 16))
        nisa.tensor_copy(dst=tile, src=load(table).indirect(index, 17))
        return store(tile)

    with pytest.raises(Uninitialized, match=r"index of src .*16, 2.*\n.*\n.*\[0:1, 1:2\]") as error:
        run(kernel, table_of(16, 4), 3)
    assert "test_indirection.py" in str(error.value)


def test_holes_are_gathered_one_by_one():
    def kernel(table, index):
        source = nl.ndarray((16, 8), dtype=table.dtype)
        nisa.dma_copy(dst=source[:, 0:4], src=table[:, 0:4])
        tile = nl.ndarray((16, 3), dtype=table.dtype)
        nisa.tensor_copy(dst=tile, src=source.indirect(load(index), 3))
        return store(tile[:, 0:2]) if index.shape[1] == 1 else store(tile)

    index = np.zeros((16, 1), np.uint16)
    index[[0, 1, 2], 0] = [3, 1, 6]
    assert (run(kernel, table_of(16, 8), index) == table_of(16, 8)[:, [3, 1]]).all()
    with pytest.raises(Uninitialized, match=r"\[0:16, 2:3\]"):
        run(kernel, table_of(16, 8), np.repeat(index, 2, axis=1))


def test_scattering_marks_only_what_it_wrote():
    def kernel(values, index):
        tile = nl.ndarray((16, 4), dtype=values.dtype)
        nisa.tensor_copy(dst=tile.indirect(load(index), 3), src=load(values))
        return store(tile)

    index = np.zeros((16, 1), np.uint16)
    index[[0, 1, 2], 0] = [3, 1, 0]
    with pytest.raises(Uninitialized, match=r"unwritten here: \[0:16, 2:3\]"):
        run(kernel, table_of(16, 3), index)


def test_scattering_into_an_address_owns_what_it_wrote():
    def kernel(values, index):
        first = nl.ndarray((16, 4), dtype=values.dtype, buffer=nl.sbuf, address=(0, 0))
        second = nl.ndarray((16, 4), dtype=values.dtype, buffer=nl.sbuf, address=(0, 0))
        nisa.memset(dst=first, value=0)
        nisa.tensor_copy(dst=second.indirect(load(index), 1), src=load(values))
        out = nl.ndarray((16, 4), dtype=values.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[:, 0:2], src=first[:, 0:2])
        nisa.dma_copy(dst=out[:, 2:4], src=first[:, 2:4])
        return out

    with pytest.raises(Uninitialized, match="was overwritten through") as error:
        run(kernel, table_of(16, 1), np.full((16, 1), 2, np.uint16))
    assert "2:4" in str(error.value) or "[16, 2]" in str(error.value)


def test_a_gather_may_reach_everything():
    """A write to any part of the source waits for the gather, and the gather for every write."""

    def kernel(table, index):
        source, idx = load(table), load(index)
        tile = nl.ndarray((32, 16), dtype=table.dtype)
        nisa.memset(dst=source[:, 39:40], value=1, name="before")
        nisa.tensor_copy(dst=tile, src=source.indirect(idx, 16), name="gather")
        nisa.memset(dst=source[:, 0:1], value=2, name="after")
        nisa.memset(dst=idx[:, 0:1], value=0, name="index")
        return store(tile)

    program = neurosim.profile(kernel, chip="trn3")(table_of(32, 40), np.zeros((32, 2), np.uint16)).program
    number = {name: index for index, name in program.names.items()}
    found = dependences(program)

    def waits(consumer, producer):
        return number[producer] in [other for other, _ in found.of(number[consumer])]

    assert waits("gather", "before")
    assert waits("after", "gather")
    assert waits("index", "gather")


def test_without_values_offsets_are_assumed_in_range_and_all_is_written():
    def kernel(values, index):
        tile = nl.ndarray((16, 40), dtype=values.dtype)
        nisa.tensor_copy(dst=tile.indirect(load(index), 3), src=load(values))
        return store(tile)

    specs = (neurosim.spec((16, 3), nl.float32), neurosim.spec((16, 1), nl.uint16))
    result = neurosim.profile(kernel, chip="trn3", values=False)(*specs)
    assert [record.signature.instruction for record in result.program].count("tensor_copy") == 1


def test_elements_pass_at_the_rate_of_a_wide_step():
    """Assumed: half of the rate of neighbours, which is what a step of 16 bytes costs."""
    arrays = table_of(16, 512), np.zeros((16, 32), np.uint16)
    signatures = neurosim.profile(gather, chip="trn3")(*arrays, 511).program.signatures
    (work,) = next(signature.work for signature in signatures if signature.instruction == "tensor_copy")
    chip = neurosim.load_chip("trn3")
    near, stepped = (
        replace(work, inputs=(replace(work.inputs[0], step_bytes=step, contiguous=step == 4),)) for step in (4, 16)
    )
    assert work.elements == 512 - 1
    took, least, most = (lanewise_cost(entry, Engine.vector, chip).issue_ps for entry in (work, near, stepped))
    assert took == most > 1.5 * least


REFUSED = [
    (lambda t, i: t.indirect(3), "the index is 3"),
    (lambda t, i: t.indirect(t), "the index is t"),
    (lambda t, i: t[0:16].indirect(i), "have 16 partitions"),
    (lambda t, i: t.indirect(i, 0), "num_elem 0 is not a positive int"),
    (lambda t, i: t.indirect(i, 1.5), "num_elem 1.5 is not a positive int"),
    (lambda t, i: t.indirect(i, 4).indirect(i, 4), "must be a static view"),
    (lambda t, i: t.indirect(i, 4)[:, 0:2], "which offsets choose"),
    (lambda t, i: t.indirect(i, 4).view(nl.int32), "which offsets choose"),
    (lambda t, i: t.indirect(i, 4).ap([[8, 32], [1, 2]]), "which offsets choose"),
    (lambda t, i: t.indirect(i, 4).ap([[8, 32], [1, 2]], dtype=nl.int32), "known at run time only"),
    (lambda t, i: t.indirect(i, 17), None),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_views_that_cannot_be(call, message):
    def kernel(table):
        tile = nl.ndarray((32, 8), dtype=nl.float32, name="t")
        index = nl.ndarray((32, 1), dtype=nl.uint16, name="i")
        call(tile, index)
        return store(load(table))

    if message is None:
        assert run(kernel, table_of(32, 8)).shape == (32, 8)  # how many offsets there are depends on the engine
        return
    with pytest.raises(IllegalOperand, match=message):
        run(kernel, table_of(32, 8))


def test_only_documented_operands_take_it():
    def copied(table, index):
        tile = nl.ndarray((32, 16), dtype=table.dtype)
        nisa.dma_copy(dst=tile, src=load(table).indirect(load(index), 16))
        return store(tile)

    def second(table, index):
        tile = nl.ndarray((32, 16), dtype=table.dtype)
        chosen = load(table).indirect(load(index), 16)
        nisa.tensor_tensor(dst=tile, data1=chosen, data2=chosen, op=nl.add)
        return store(tile)

    for kernel, name in ((copied, "dma_copy: src"), (second, "tensor_tensor: data2")):
        with pytest.raises(IllegalOperand, match=f"{name} .* is chosen by offsets"):
            run(kernel, table_of(32, 40), np.zeros((32, 1), np.uint16))


def test_hbm_has_none():
    def kernel(table, index):
        table.indirect(load(index), 16)
        return table

    with pytest.raises(IllegalOperand, match="static view in SBUF or PSUM"):
        run(kernel, table_of(32, 40), np.zeros((32, 1), np.uint16))


def test_address_arithmetic_is_not_guessed():
    def kernel(table, index):
        tile = nl.ndarray((32, 16), dtype=nl.int32)
        nisa.tensor_scalar(dst=tile, data=load(table).indirect(load(index), 16), op0=nl.add, operand0=1.0)
        return store(tile)

    with pytest.raises(UnknownBehavior, match="address arithmetic"):
        run(kernel, np.zeros((32, 40), np.int32), np.zeros((32, 1), np.uint16))
