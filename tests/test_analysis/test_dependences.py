"""Dependences against all pairs of byte sets."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurosim import dtypes
from neurosim.analysis.dependences import Dependence, dependences
from neurosim.engines import Engine, Memory
from neurosim.errors import SimulatorBug
from neurosim.program import Access, Frame, Pattern, Program, Signature, StorageInfo

READ, WRITE, ACCUMULATE = Access
RAW, WAR, WAW, EDGE, MEET = Dependence


class Builder:
    """A program, written by hand."""

    def __init__(self):
        self.program = Program("trn2", 3)
        self.program.stacks.append((Frame("kernel.py", 1, "kernel"),))
        self.signatures = {}

    def storage(self, memory=Memory.sbuf, role="tile", shape=(128, 64)):
        infos = self.program.storages
        infos.append(StorageInfo(f"t{len(infos)}", memory, shape, dtypes.bfloat16, 128, 128, 0, role))
        return len(infos) - 1

    def record(self, *operands):
        """Append a record of (pattern, storage, offset) operands."""
        patterns = tuple(one for one, _, _ in operands)
        if patterns not in self.signatures:
            self.signatures[patterns] = len(self.program.signatures)
            engines = frozenset({Engine.vector})
            self.program.signatures.append(Signature("op", patterns, (), Engine.vector, engines, ()))
        slots = [value for _, storage, offset in operands for value in (storage, offset)]
        return self.program.append(self.signatures[patterns], slots, 0)

    def edges(self):
        found = dependences(self.program)
        return {(i, p): kind for i in range(len(self.program)) for p, kind in found.of(i)}


def sbuf(access, shape=(128, 64), steps=None, start=0, dtype=dtypes.bfloat16):
    steps = steps or (1,) * len(shape)
    return Pattern("x", access, Memory.sbuf, dtype, shape, steps, 0, start, 128)


def hbm(access, shape=(128, 512), steps=(2048, 1), dtype=dtypes.bfloat16):
    return Pattern("x", access, Memory.hbm, dtype, shape, steps, -1, 0, 0)


def state(access):
    return Pattern("accumulator", access, Memory.state, dtypes.float32, (1,), (1,), -1, 0, 0)


def brute(one, storage, offset):
    found = set()
    for index in product(*(range(extent) for extent in one.shape)):
        partition, byte = one.start_partition, offset
        for axis, (i, step) in enumerate(zip(index, one.steps, strict=True)):
            if axis == one.partition_axis:
                partition += i * step
            else:
                byte += i * step * one.dtype.size_bytes
        found.update((storage, partition, byte + k) for k in range(one.dtype.size_bytes))
    return found


def closure(edges, length):
    """Ancestors of each record, as bit masks."""
    above = [0] * length
    for consumer, producer in sorted(edges):
        above[consumer] |= above[producer] | 1 << producer
    return above


def all_pairs(accesses, explicit=()):
    """The direct edges by definition, without pruning."""
    touched = [[(one.access, brute(one, storage, at)) for one, storage, at in ops] for ops in accesses]
    edges = set(explicit)
    for i, mine in enumerate(touched):
        for j, theirs in enumerate(touched[:i]):
            if any((a != READ or b != READ) and x & y for a, x in mine for b, y in theirs):
                edges.add((i, j))
    return edges


PATTERNS = (
    *(sbuf(access, (4, 8)) for access in Access),
    *(sbuf(access, (4, 4)) for access in Access),
    *(sbuf(access, (2, 4), (2, 2)) for access in Access),
    *(sbuf(access, (2, 3), (1, 1), 2) for access in Access),
    sbuf(WRITE, (4, 3), (1, 3), 0, dtypes.float8_e5m2),
    sbuf(READ, (3, 2, 2), (1, 4, 0), 1),
    sbuf(READ, (4, 0)),
)


@st.composite
def programs(draw):
    operand = st.tuples(st.sampled_from(PATTERNS), st.integers(0, 1), st.integers(0, 8))
    accesses = draw(st.lists(st.lists(operand, min_size=1, max_size=3), min_size=2, max_size=24))
    consumers = st.integers(1, len(accesses) - 1)
    pair = consumers.flatmap(lambda consumer: st.tuples(st.just(consumer), st.integers(0, consumer - 1)))
    return accesses, draw(st.lists(pair, max_size=2))


@settings(max_examples=400, deadline=None)
@given(programs())
def test_closure_is_that_of_all_pairs(drawn):
    accesses, explicit = drawn
    build = Builder()
    build.storage(), build.storage()
    for operands in accesses:
        build.record(*operands)
    build.program.edges.extend(explicit)
    found = dependences(build.program)

    assert len(found.starts) == len(accesses) + 1
    assert found.starts[0] == 0
    assert found.starts[-1] == len(found.producers) == len(found.kinds)
    expected = all_pairs(accesses, explicit)
    edges = set()
    for i in range(len(accesses)):
        producers = found.producers[found.starts[i] : found.starts[i + 1]].tolist()
        assert producers == sorted(set(producers))
        edges.update((i, producer) for producer in producers)
    assert edges <= expected
    assert closure(edges, len(accesses)) == closure(expected, len(accesses))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PATTERNS), st.integers(0, 40)), min_size=10, max_size=40))
def test_closure_with_an_index(operands):
    """Enough places that candidates come from the grid rather than from all pairs."""
    build = Builder()
    build.storage()
    accesses = [[(one, 0, offset)] for one, offset in operands]
    for ops in accesses:
        build.record(*ops)
    expected = all_pairs(accesses)
    assert closure(build.edges(), len(accesses)) == closure(expected, len(accesses))


def test_kinds():
    build = Builder()
    tile, other = build.storage(), build.storage()
    build.record((sbuf(WRITE), tile, 0))
    build.record((sbuf(READ), tile, 0), (sbuf(WRITE), other, 0))
    build.record((sbuf(WRITE), tile, 0))
    build.record((sbuf(WRITE), tile, 0))
    build.program.edges.append((3, 1))
    assert build.edges() == {(1, 0): RAW, (2, 0): WAW, (2, 1): WAR, (3, 2): WAW, (3, 1): EDGE}


def test_accumulation():
    build = Builder()
    tile = build.storage(Memory.psum)
    for access in (WRITE, ACCUMULATE, ACCUMULATE, READ, ACCUMULATE):
        build.record((sbuf(access), tile, 0))
    assert build.edges() == {(1, 0): WAW, (2, 1): WAW, (3, 2): RAW, (4, 2): WAW, (4, 3): WAR}


def test_the_strongest_kind_of_a_pair_is_kept():
    build = Builder()
    tile, other = build.storage(), build.storage()
    build.record((sbuf(WRITE), tile, 0), (sbuf(WRITE), other, 0))
    build.record((sbuf(READ), tile, 0), (sbuf(WRITE), other, 0))
    build.program.edges.append((1, 0))
    assert build.edges() == {(1, 0): RAW}


def test_a_record_does_not_wait_for_itself():
    build = Builder()
    tile = build.storage()
    for _ in range(3):
        build.record((sbuf(WRITE), tile, 0), (sbuf(READ), tile, 0))
    assert build.edges() == {(1, 0): RAW, (2, 1): RAW}


def test_engine_state_is_like_memory():
    build = Builder()
    register = build.storage(Memory.state, "state", (1,))
    build.record((state(WRITE), register, 0))
    build.record((state(ACCUMULATE), register, 0))
    build.record((state(READ), register, 0))
    assert build.edges() == {(1, 0): WAW, (2, 1): RAW}


HALF = sbuf(WRITE, (64, 64))
ODD = sbuf(READ, (64, 64), (2, 1), 1)
FP8 = {"shape": (4, 4), "dtype": dtypes.float8_e4m3}


@pytest.mark.parametrize(
    ("one", "offset", "other", "other_offset", "conflict"),
    [
        pytest.param(hbm(WRITE), 0, hbm(WRITE), 1024, False, id="column blocks of a row-major output"),
        pytest.param(hbm(WRITE), 0, hbm(WRITE), 128 * 4096, False, id="row blocks"),
        pytest.param(hbm(WRITE), 0, hbm(READ), 1022, True, id="one shared column"),
        pytest.param(HALF, 0, sbuf(READ, (64, 64), None, 64), 0, False, id="partitions apart"),
        pytest.param(HALF, 0, sbuf(READ, (64, 64), None, 63), 0, True, id="one partition shared"),
        pytest.param(sbuf(WRITE, (64, 64), (2, 1)), 0, ODD, 0, False, id="odd and even partitions"),
        pytest.param(sbuf(WRITE, (4, 8), (1, 2)), 0, sbuf(READ, (4, 8), (1, 2)), 2, False, id="interleaved"),
        pytest.param(sbuf(WRITE, (4, 2)), 0, sbuf(READ, (4, 8), (1, 0)), 4, False, id="step 0 beside"),
        pytest.param(sbuf(WRITE, (4, 2)), 0, sbuf(READ, (4, 8), (1, 0)), 2, True, id="step 0 inside"),
        pytest.param(sbuf(WRITE, **FP8), 0, sbuf(READ, **FP8), 4, False, id="adjacent bytes of fp8"),
    ],
)
def test_exactness(one, offset, other, other_offset, conflict):
    build = Builder()
    tile = build.storage()
    build.record((one, tile, offset))
    build.record((other, tile, other_offset))
    assert bool(build.edges()) == conflict


def test_reads_alone_are_free():
    build = Builder()
    weights = build.storage(Memory.hbm, "input")
    for column in range(20):
        build.record((hbm(READ), weights, 2 * column))
    found = dependences(build.program)
    assert (len(found.producers), found.exact_tests) == (0, 0)


def test_a_covering_write_hides_what_it_covers():
    build = Builder()
    tile = build.storage()
    for column in range(4):
        build.record((sbuf(WRITE, (128, 16)), tile, 32 * column))
    build.record((sbuf(READ), tile, 0))
    build.record((sbuf(WRITE), tile, 0))
    build.record((sbuf(READ, (128, 16)), tile, 32))
    build.record((sbuf(WRITE), tile, 0))
    edges = build.edges()
    assert {pair for pair in edges if pair[0] == 4} == {(4, i) for i in range(4)}
    assert {pair for pair in edges if pair[0] >= 6} == {(6, 5), (7, 5), (7, 6)}


def tiled_output(rows, columns, height=100, width=300):
    """A program that stores an output tile by tile, tiles not aligned to any power of two."""
    build = Builder()
    pitch = columns * width
    out = build.storage(Memory.hbm, "output", (rows * height, pitch))
    tile = hbm(WRITE, (height, width), (pitch, 1))
    for row, column in product(range(rows), range(columns)):
        build.record((tile, out, 2 * (row * height * pitch + column * width)))
    return build


def test_an_output_of_many_tiles_costs_linear_work():
    found = dependences(tiled_output(128, 128).program)
    assert not len(found.producers)
    assert found.exact_tests == 0


def test_exact_tests_grow_linearly():
    """Tiles that overlap their neighbours by a row and a column: the index leaves a few tests per tile."""

    def tests(count):
        build = tiled_output(count, count)
        pitch = count * 300
        halo = hbm(READ, (101, 301), (pitch, 1))
        for row, column in product(range(count - 1), range(count - 1)):
            build.record((halo, 0, 2 * (row * 100 * pitch + column * 300)))
        return dependences(build.program).exact_tests

    small, large = tests(16), tests(32)
    assert small >= 15 * 15 * 4
    assert large <= 4.5 * small


def test_edges_grow_linearly_when_a_tile_is_written_and_read_in_turn():
    """Each column of a tile is written, then the whole tile read: all pairs are quadratic, edges are not."""
    build = Builder()
    tile = build.storage()
    for column in range(64):
        build.record((sbuf(WRITE, (128, 1)), tile, 2 * column))
        build.record((sbuf(READ), tile, 0))
    assert len(build.edges()) < 3 * len(build.program)


def test_equal_tiles_are_solved_once():
    build = Builder()
    for _ in range(100):
        tile = build.storage()
        build.record((sbuf(WRITE), tile, 0))
        build.record((sbuf(READ, (128, 32)), tile, 64))
    found = dependences(build.program)
    assert found.exact_tests == 1
    assert build.edges() == {(2 * i + 1, 2 * i): RAW for i in range(100)}


def test_cached_until_the_program_grows():
    build = Builder()
    tile = build.storage()
    build.record((sbuf(WRITE), tile, 0))
    first = dependences(build.program)
    assert dependences(build.program) is first
    build.record((sbuf(READ), tile, 0))
    second = dependences(build.program)
    assert second.of(1) == [(0, RAW)]
    build.program.edges.append((1, 0))
    assert dependences(build.program) is not second


def test_an_empty_program_has_no_dependences():
    found = dependences(Program("trn2", 3))
    assert [each.tolist() for each in (found.starts, found.producers, found.kinds)] == [[0], [], []]


def test_an_edge_must_point_back():
    build = Builder()
    build.record((sbuf(WRITE), build.storage(), 0))
    build.program.edges.append((0, 0))
    with pytest.raises(SimulatorBug, match="does not point to an earlier record"):
        dependences(build.program)


def test_slots_must_match_the_signature():
    build = Builder()
    build.record((sbuf(WRITE), build.storage(), 0))
    build.program.append(0, [0, 0, 0, 0], 0)
    with pytest.raises(SimulatorBug, match="do not match"):
        dependences(build.program)


def test_an_access_before_its_storage_is_refused():
    build = Builder()
    build.record((sbuf(WRITE, (128, 4), (1, -1)), build.storage(), 0))
    with pytest.raises(SimulatorBug, match="does not fit the index"):
        dependences(build.program)


def test_equal_parts_of_a_tensor_are_solved_once():
    build = Builder()
    tensor = build.storage(Memory.hbm, "tile", (100, 64))
    for row in range(100):
        build.record((hbm(WRITE, (1, 64), (64, 1)), tensor, 128 * row))
        build.record((hbm(READ, (1, 32), (64, 1)), tensor, 128 * row + 64))
    found = dependences(build.program)
    assert found.exact_tests == 1
    assert build.edges() == {(2 * i + 1, 2 * i): RAW for i in range(100)}


def test_an_access_joins_the_parts_that_it_spans():
    build = Builder()
    tensor = build.storage(Memory.hbm, "tile", (4, 64))
    for row in range(4):
        build.record((hbm(WRITE, (1, 64), (64, 1)), tensor, 128 * row))
    build.record((hbm(READ, (2, 64), (64, 1)), tensor, 128))
    build.record((hbm(WRITE, (1, 64), (64, 1)), tensor, 128 * 3))
    assert build.edges() == {(4, 1): RAW, (4, 2): RAW, (5, 3): WAW}
