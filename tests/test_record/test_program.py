"""The record: interned signatures, slots and columns, and what comes back out of them."""

from __future__ import annotations

import threading

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim import dtypes
from neurosim.engines import Engine, Memory
from neurosim.program import Access, Frame, Pattern, Program, Record, Signature

F = np.float32


def pattern(shape, dtype=dtypes.bfloat16):
    return Pattern("dst", Access.WRITE, Memory.sbuf, dtype, shape, (1,) * len(shape), 0, 0, 128)


def by_hand():
    """Return a program of three records with zero, one and two operands."""
    program = Program("trn2", 3)
    program.stacks += [(Frame("k.py", 1, "kernel"),), (Frame("k.py", 9, "helper"), Frame("k.py", 2, "kernel"))]
    for count in range(3):
        patterns = (pattern((4, 8)),) * count
        program.signatures.append(Signature(f"op{count}", patterns, (), Engine.vector, frozenset(), ()))
    assert program.append(0, [], 0) == 0
    assert program.append(1, [5, 64], 1, core=1, block=7) == 1
    assert program.append(2, [5, 0, 6, 2**40], 0) == 2
    program.names[1] = "mine"
    return program


def test_columns_give_records_back():
    program = by_hand()
    assert len(program) == 3
    signatures = program.signatures
    assert list(program) == [
        Record(0, signatures[0], (), 0, 0, None, -1, -1),
        Record(1, signatures[1], ((5, 64),), 1, 1, "mine", 7, -1),
        Record(2, signatures[2], ((5, 0), (6, 2**40)), 0, 0, None, -1, -1),
    ]
    assert program.record(2) == list(program)[2]


def test_records_are_counted_from_the_end_too():
    program = by_hand()
    assert program.record(-1) == program.record(2)
    assert program.record(-3) == program.record(0)
    for index in (3, -4):
        with pytest.raises(IndexError):
            program.record(index)


def test_frames():
    program = by_hand()
    assert [str(frame) for frame in program.where(1)] == ["k.py:9  in helper", "k.py:2  in kernel"]


def test_payload_of_a_pattern():
    assert pattern((4, 8)).size_bytes == 64
    assert pattern((128, 2, 3), dtypes.float32).size_bytes == 128 * 6 * 4
    assert pattern((1, 1), dtypes.int8).size_bytes == 1


# -- what a run records -----------------------------------------------------------------------------------------------


def matmul(a, b):
    out = nl.ndarray((a.shape[1], b.shape[1]), nl.float32, nl.shared_hbm, name="out")
    psum = nl.ndarray((a.shape[1], b.shape[1]), nl.float32, nl.psum, name="psum")
    for k in range(0, a.shape[0], 128):
        left, right = nl.load(a[k : k + 128]), nl.load(b[k : k + 128])
        nisa.nc_matmul(dst=psum, stationary=left, moving=right, accumulate=k > 0)
    tile = nl.ndarray(psum.shape, nl.float32, nl.sbuf)
    nisa.tensor_copy(dst=tile, src=psum, name="drain")
    nisa.dma_copy(dst=out, src=tile)
    return out


@pytest.fixture(scope="module")
def recorded():
    a, b = np.ones((512, 64), F), np.ones((512, 96), F)
    return neurosim.simulate(matmul)(a, b).program


def test_instructions_in_program_order(recorded):
    names = [record.signature.instruction for record in recorded]
    assert names == ["dma_copy", "dma_copy", "nc_matmul"] * 4 + ["tensor_copy", "dma_copy"]
    assert recorded.names == {12: "drain"}
    assert (recorded.chip_name, recorded.generation) == ("trn2", 3)


def test_loops_intern_signatures_and_stacks(recorded):
    """Two loads, two kinds of matmul (overwriting and accumulating), a copy and a store."""
    assert len(recorded.signatures) == 6
    assert len({recorded.signature_ids[index] for index in (2, 5, 8, 11)}) == 2
    assert len(set(recorded.stack_ids[2:12:3])) == 1
    assert recorded.where(2)[0].function == "matmul"


def test_storages_say_what_they_hold(recorded):
    infos = {info.name: info for info in recorded.storages}
    assert (infos["a"].role, infos["a"].memory, infos["a"].shape) == ("input", Memory.private_hbm, (512, 64))
    assert (infos["a"].partitions, infos["a"].row_bytes) == (0, 512 * 64 * 4)
    assert (infos["psum"].memory, infos["psum"].partitions, infos["psum"].row_bytes) == (Memory.psum, 64, 96 * 4)
    assert infos["out"].memory is Memory.shared_hbm
    tiles = [info for info in recorded.storages if info.memory is Memory.sbuf]
    assert len(tiles) == 9
    assert {info.role for info in tiles} == {"tile"}


def test_fresh_tiles_are_fresh_storages(recorded):
    loaded = [recorded.record(index).slots[0][0] for index in (0, 3, 6, 9)]
    assert len(set(loaded)) == 4


def test_slots_hold_byte_offsets(recorded):
    assert [recorded.record(index).slots[1][1] for index in (0, 3, 6, 9)] == [k * 64 * 4 for k in (0, 128, 256, 384)]


def test_tensors_with_addresses_share_a_plane():
    def kernel():
        for start in (0, 64, 32):
            tile = nl.ndarray((16, 16), nl.float32, nl.sbuf, address=(32, start))
            nisa.memset(dst=tile, value=0.0)

    program = neurosim.simulate(kernel)().program
    (plane,) = program.storages
    assert plane.role == "plane"
    assert plane.row_bytes == 64 + 64
    assert [record.slots[0] for record in program] == [(0, 0), (0, 64), (0, 32)]
    assert {record.signature.patterns[0].start_partition for record in program} == {32}


def test_registers_are_storages():
    def kernel():
        tile = nl.ones((4, 4), nl.float32)
        nisa.activation(dst=tile, op=nl.copy, data=tile, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce)

    program = neurosim.simulate(kernel)().program
    record = program.record(1)
    roles = [pattern.role for pattern in record.signature.patterns]
    assert roles == ["dst", "data", "accumulator"]
    info = program.storages[record.slots[2][0]]
    assert (info.role, info.memory) == ("state", Memory.state)


def test_blocks_keep_their_order():
    """nl.no_reorder: each instruction inside depends on the one before it."""

    def kernel():
        tile = nl.ones((4, 4), nl.float32)
        with nl.no_reorder():
            nisa.memset(dst=tile, value=1.0)
            nisa.memset(dst=tile, value=2.0)
            with nl.no_reorder():
                nisa.memset(dst=tile, value=3.0)
        nisa.memset(dst=tile, value=4.0)
        with nl.no_reorder():
            nisa.memset(dst=tile, value=5.0)

    program = neurosim.simulate(kernel)().program
    assert list(program.blocks) == [-1, 0, 0, 0, -1, 1]
    assert program.edges == [(2, 1), (3, 2)]


def test_runs_do_not_share_records():
    """J4: a run starts from nothing, also after an exception and also nested in another run."""

    def broken():
        nisa.memset(dst=nl.ndarray((4, 4), nl.float32, nl.sbuf), value=0.0)
        raise ValueError("mine")

    def outer():
        tile = nl.ones((4, 4), nl.float32)
        with pytest.raises(ValueError, match="mine"):
            neurosim.simulate(broken)()
        inner = neurosim.simulate(matmul)(np.ones((128, 4), F), np.ones((128, 4), F))
        assert len(inner.program) == 5
        nisa.reciprocal(dst=tile, data=tile)

    with pytest.raises(ValueError, match="mine"):
        neurosim.simulate(broken)()
    assert [record.signature.instruction for record in neurosim.simulate(outer)().program] == ["memset", "reciprocal"]


def test_recording_without_values_gives_the_same_program():
    a, b = np.ones((256, 64), F), np.ones((256, 96), F)
    full = neurosim.simulate(matmul)(a, b).program
    bare = neurosim.simulate(matmul, values=False)(
        neurosim.spec((256, 64), nl.float32), neurosim.spec((256, 96), nl.float32)
    ).program
    assert list(bare) == list(full)
    assert bare.storages == full.storages
    assert bare.stacks == full.stacks


def test_length_while_another_thread_moves_rows():
    """Rows are in the columns before they are gone from where they waited: none is counted twice."""
    program = Program("trn2", 3)
    lengths = []

    class Rows(list):
        def __delitem__(self, place):
            reader.start()
            reader.join(0.1)
            super().__delitem__(place)

    reader = threading.Thread(target=lambda: lengths.append(len(program)))
    program.rows = Rows([(0, 0, 0, -1, -1), (0, 0, 0, -1, -1)])
    program.settle()
    reader.join()
    assert lengths == [2]


def test_listing_of_a_numpy_number():
    def kernel():
        tile = nl.ndarray((1, 4), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=1.0)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=np.float32(1.5))
        out = nl.ndarray((1, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    assert "operand0=1.5" in neurosim.simulate(kernel)().program.listing()
