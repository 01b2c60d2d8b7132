"""When tiles are live, and what the message says when they do not fit."""

from __future__ import annotations

import pytest

from neurosim import dtypes
from neurosim.analysis.lifetimes import check_capacity, lifetimes
from neurosim.analysis.spills import Traffic, spill_traffic
from neurosim.engines import Engine, Memory
from neurosim.errors import CapacityExceeded
from neurosim.program import Access, Frame, Pattern, Program, Signature, StorageInfo

READ, WRITE, ACCUMULATE = Access
KIB = 1024


class Builder:
    """A program of whole-tile accesses."""

    def __init__(self):
        self.program = Program("trn2", 3)
        self.signatures = {}

    def stack(self, *lines):
        self.program.stacks.append(tuple(Frame("kernels/attention.py", line, name) for line, name in lines))
        return len(self.program.stacks) - 1

    def storage(self, name, row_bytes, memory=Memory.sbuf, role="tile", stack=0, partitions=128):
        dtype = dtypes.uint8 if role == "plane" else dtypes.bfloat16
        info = StorageInfo(
            name, memory, (partitions, row_bytes // dtype.size_bytes), dtype, partitions, row_bytes, stack, role
        )
        self.program.storages.append(info)
        return len(self.program.storages) - 1

    def record(self, *operands, name="tensor_copy", stack=0, core=0):
        """Append a record of (access, storage) operands."""
        patterns = []
        for access, storage in operands:
            info = self.program.storages[storage]
            axis = 0 if info.memory.is_on_chip else -1
            memory, row = info.memory, info.row_bytes
            patterns.append(Pattern("x", access, memory, info.dtype, info.shape, (1, 1), axis, 0, row))
        key = (name, tuple(patterns))
        if key not in self.signatures:
            self.signatures[key] = len(self.program.signatures)
            engines = frozenset({Engine.vector})
            self.program.signatures.append(Signature(name, key[1], (), Engine.vector, engines, ()))
        slots = [value for _, storage in operands for value in (storage, 0)]
        return self.program.append(self.signatures[key], slots, stack, core)


def by_tile(tiles, column):
    return dict(zip(tiles.tolist(), column.tolist(), strict=True))


def test_from_first_write_to_last_access():
    build = Builder()
    build.stack((1, "kernel"))
    source = build.storage("source", 64, Memory.hbm, "input")
    a, b = build.storage("a", 256), build.storage("b", 512)
    bank = build.storage("bank", 1024, Memory.psum)
    unused = build.storage("unused", 64)
    build.record((WRITE, a), (READ, source))
    build.record((ACCUMULATE, bank), (READ, a))
    build.record((WRITE, b), (READ, bank))
    build.record((WRITE, a), (READ, b))
    life = lifetimes(build.program)
    assert by_tile(life.tiles, life.starts) == {a: 0, b: 2, bank: 1}
    assert by_tile(life.tiles, life.ends) == {a: 3, b: 3, bank: 2}
    assert by_tile(life.tiles, life.sizes_bytes) == {a: 256, b: 512, bank: 1024}
    assert by_tile(life.tiles, life.starts) == {a: 0, bank: 1, b: 2}
    assert by_tile(life.tiles, life.ends) == {a: 3, b: 3, bank: 2}
    assert unused not in life.tiles


def test_only_tiles_have_lifetimes():
    build = Builder()
    build.stack((1, "kernel"))
    for memory, role in ((Memory.sbuf, "plane"), (Memory.state, "state"), (Memory.hbm, "output")):
        build.record((WRITE, build.storage(role, 64, memory, role)))
    assert lifetimes(build.program).tiles.size == 0


def test_cached_until_the_program_grows():
    build = Builder()
    build.stack((1, "kernel"))
    tile = build.storage("tile", 64)
    build.record((WRITE, tile))
    first = lifetimes(build.program)
    assert lifetimes(build.program) is first
    build.record((READ, tile))
    life = lifetimes(build.program)
    assert by_tile(life.tiles, life.ends) == {tile: 1}


def test_usage_reports_the_fullest_moment():
    build = Builder()
    build.stack((1, "kernel"))
    plane = build.storage("plane", KIB, role="plane")
    a, b = build.storage("a", KIB), build.storage("b", 2 * KIB, partitions=64)
    bank = build.storage("bank", KIB, Memory.psum)
    build.record((WRITE, a), (READ, plane))
    build.record((WRITE, b), (READ, a))
    build.record((WRITE, bank), (READ, b))
    usage = check_capacity(build.program, "trn2", 8 * KIB, 2 * KIB)
    assert (usage.sbuf.bytes, usage.sbuf.plane_bytes, usage.sbuf.record) == (4 * KIB, KIB, 1)
    assert usage.sbuf.limit_bytes == 8 * KIB
    assert usage.sbuf.filled == pytest.approx(3 / 8)
    assert (usage.psum.bytes, usage.psum.record, usage.psum.limit_bytes) == (KIB, 2, 2 * KIB)


def test_space_is_free_after_the_last_access():
    build = Builder()
    build.stack((1, "kernel"))
    for _ in range(10):
        tile = build.storage("tile", KIB)
        build.record((WRITE, tile))
        build.record((READ, tile))
    assert check_capacity(build.program, "trn2", KIB, KIB).sbuf.bytes == KIB


def test_space_is_not_free_at_the_last_access():
    build = Builder()
    build.stack((1, "kernel"))
    a, b = build.storage("a", KIB), build.storage("b", KIB)
    build.record((WRITE, a))
    build.record((WRITE, b), (READ, a))
    with pytest.raises(CapacityExceeded):
        check_capacity(build.program, "trn2", 2 * KIB - 1, KIB)


def test_the_message_names_the_live_tiles_largest_first():
    build = Builder()
    here = build.stack((61, "qk_tile"), (12, "attention"))
    allocations = [build.stack((line, "load")) for line in (40, 41, 42)]
    small = build.storage("q_tile", 16 * KIB, stack=allocations[0])
    large = build.storage("v_tile", 96 * KIB, stack=allocations[1])
    loops = [build.storage(f"k{i}", 32 * KIB, stack=allocations[2]) for i in range(4)]
    for tile in (small, large, *loops):
        build.record((WRITE, tile), name="dma_copy", stack=here)
    build.record(*((READ, tile) for tile in (small, large, *loops)), name="nc_matmul", stack=here)
    with pytest.raises(CapacityExceeded) as caught:
        check_capacity(build.program, "trn2", 192 * KIB, 16 * KIB)
    assert str(caught.value) == "\n  ".join(
        [
            "dma_copy: the live tiles do not fit into SBUF of trn2",
            "kernels/attention.py:61  in qk_tile",
            "kernels/attention.py:12  in attention",
            "212992 bytes per partition are live at kernels/attention.py:61 (record 4); "
            "the limit is 196608 (16384 over)",
            "one instruction alone needs more than there is: nothing could be spilled",
            "v_tile  (128, 49152) bfloat16  98304 bytes per partition  kernels/attention.py:41",
            "k0 and 2 like it  (128, 16384) bfloat16  3 × 32768 bytes per partition  kernels/attention.py:42",
            "q_tile  (128, 8192) bfloat16  16384 bytes per partition  kernels/attention.py:40",
            "a tile is live from its first write to its last access: use the largest ones sooner after they "
            "are written, or split them into smaller blocks",
        ]
    )


def test_planes_count_and_are_named():
    build = Builder()
    build.stack((1, "kernel"))
    plane, tile = build.storage("plane", KIB, role="plane"), build.storage("tile", KIB)
    build.record((WRITE, plane))
    build.record((WRITE, tile), (READ, plane))
    with pytest.raises(CapacityExceeded, match="1024 of these bytes are reserved by tensors with address="):
        check_capacity(build.program, "trn2", 1536, KIB)


def test_long_lists_are_cut():
    build = Builder()
    stacks = [build.stack((line, "kernel")) for line in range(1, 21)]
    tiles = [build.storage(f"t{i}", 2 * KIB - 64 * i, stack=stack) for i, stack in enumerate(stacks)]
    build.record(*((WRITE, tile) for tile in tiles))
    with pytest.raises(CapacityExceeded, match="and 8 smaller tiles, 8448 bytes per partition"):
        check_capacity(build.program, "trn2", 16 * KIB, KIB)


def test_psum_has_its_own_limit_and_advice():
    build = Builder()
    build.stack((1, "kernel"))
    tiles = [build.storage(f"bank{i}", 2 * KIB, Memory.psum) for i in range(9)]
    for tile in tiles:
        build.record((WRITE, tile), name="nc_matmul")
    build.record(*((READ, tile) for tile in tiles))
    with pytest.raises(CapacityExceeded, match=r"PSUM of trn2[\s\S]*copy results to SBUF"):
        check_capacity(build.program, "trn2", 192 * KIB, 16 * KIB)


def test_each_core_has_its_own_space():
    build = Builder()
    build.stack((1, "kernel"))
    tiles = [build.storage(f"t{core}", KIB) for core in range(2)]
    for core, tile in enumerate(tiles):
        build.record((WRITE, tile), core=core)
    for core, tile in enumerate(tiles):
        build.record((READ, tile), core=core)
    usage = check_capacity(build.program, "trn2", KIB, KIB)
    assert (usage.sbuf.bytes, usage.sbuf.core) == (KIB, 0)
    with pytest.raises(CapacityExceeded, match="SBUF of core 0 of trn2"):
        check_capacity(build.program, "trn2", KIB - 1, KIB)


def test_an_empty_program_uses_nothing():
    usage = check_capacity(Program("trn2", 3), "trn2", KIB, KIB)
    assert (usage.sbuf.bytes, usage.sbuf.record, usage.psum.bytes) == (0, -1, 0)


def test_what_would_be_spilled():
    """Three tiles, room for two: the one that is needed last goes, and is written once, since nothing changes it."""
    build = Builder()
    build.stack((1, "kernel"))
    tiles = a, b, c = [build.storage(name, KIB) for name in "abc"]
    for tile in tiles:
        build.record((WRITE, tile))  # c takes b's place: a is needed before
    for tile in (c, a, b, c, a):  # b takes a's place, then a takes c's or b's, which nobody needs any more
        build.record((READ, tile))
    size = 128 * KIB
    assert spill_traffic(build.program, tiles, 0, 3 * KIB) == Traffic(0, 0)
    assert spill_traffic(build.program, tiles, 0, 2 * KIB) == Traffic(2 * size, 2 * size)
    assert spill_traffic(build.program, tiles, 0, KIB - 1) is None
    assert spill_traffic(build.program, tiles, 1, 0) == Traffic(0, 0)
    with pytest.raises(CapacityExceeded, match=rf"write about {2 * size} bytes to HBM and read {2 * size} again"):
        check_capacity(build.program, "trn2", 2 * KIB, KIB)
    with pytest.raises(CapacityExceeded, match="one instruction alone needs more than there is"):
        check_capacity(build.program, "trn2", KIB - 1, KIB)


def test_what_was_written_since_is_spilled_again():
    """A tile that changes each time it is here is written each time it goes; one that does not, once."""
    build = Builder()
    build.stack((1, "kernel"))
    constant, changing = build.storage("constant", KIB), build.storage("changing", KIB)
    build.record((WRITE, constant))
    for _ in range(3):
        build.record((WRITE, changing))
        build.record((READ, constant))
    build.record((READ, changing))
    size = 128 * KIB
    # constant goes and comes back three times; changing goes three times, and comes back as often
    assert spill_traffic(build.program, [constant, changing], 0, KIB) == Traffic(4 * size, 6 * size)
