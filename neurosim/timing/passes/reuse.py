"""Reuse: what a load would bring is left out where it is on the chip already.

A kernel that loads a tile in an inner loop, although the last trip of the outer loop loaded the same bytes, moves them
again and again; a compiler keeps the first copy where there is space. So does this pass: a tile that only loads fill
is left out, with these loads, where an earlier one of the same core was filled by the same loads and is complete and
never overwritten; it is kept until the last reader of the other.

The rule goes by tensor: loads of a tensor in HBM are left out where all its different tiles together take no more than
``KEPT_SHARE`` of SBUF. They are kept in the order of the program, as long as they fit beside all that is live in
program order, within the same share; the rest is for loads that run ahead. What was seen:

- A product of 1024 × 2048 by 2048 × 4096 in bfloat16 (trn2, 20 MB) whose loads alone would take 446 µs at the
  achievable rate takes 278 µs without its launch: both operands stayed. A swiglu on trn1 whose source loads its input
  of 17 MB six times read it about once.
- Products of 4096 × 8192 by 8192 × 8192 in bfloat16 (trn1, 67 and 134 MB) take as long as all their loads, even those
  of rows of blocks that would fit for a while.

Of kernels of NKI 0.1, arithmetic is left out in the same way (:mod:`~neurosim.timing.passes.products`); what newer
compilers do is not known.

Left alone are loads in ``no_reorder`` blocks and with edges of their own, loads at an index, and what a loop on the
device loads: its trips are one code.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from neurosim import tiers
from neurosim.engines import Memory
from neurosim.program import Access, Program, Signature, present
from neurosim.record.storages import Storages
from neurosim.timing.passes.keeping import keep
from neurosim.timing.passes.operands import READ, Bools, Columns, Ints, alike, free, is_whole, named
from neurosim.timing.passes.products import Products, products
from neurosim.versions import NKI_0_1
from neurosim.work import Transfer

KEPT_SHARE: Final = 0.75
"""Share of SBUF that may be in use where tiles are kept. The first example above needs 0.71 of it, the second 0.67."""

_MOST_BLOCKS: Final = 1 << 16
"""Beyond so many records, space is looked at by blocks of several."""


class Reused(NamedTuple):
    """What is left out.

    Attributes:
        stand_ins: by record, the load that brought the same; itself where it is executed.
        storages: by operand, the tile that holds its contents.
    """

    stand_ins: Ints
    storages: Ints


class _Loads(NamedTuple):
    """Loads of whole tiles, or of parts of them, in program order.

    Attributes:
        rows: the operand that each writes.
        sources: the tensor in HBM that it reads.
        names: what it brings, and to which bytes of its tile: loads with one number do the same.
    """

    rows: Ints
    sources: Ints
    names: Ints


class _Tiles(NamedTuple):
    """Tiles that only loads fill, before the first reader comes, in order of their first write.

    Attributes:
        storages: what they are.
        classes: what they hold: tiles with one number hold the same.
        sources: the tensor in HBM that their first load reads.
        cores: whose they are.
    """

    storages: Ints
    classes: Ints
    sources: Ints
    cores: Ints

    def only(self, which: Bools) -> _Tiles:
        """Return some of them."""
        return _Tiles(*(column[which] for column in self))


class _Lives(NamedTuple):
    """By storage, the records of its first and last write, its first read, and its last access, and its bytes."""

    first: Ints
    last_write: Ints
    first_read: Ints
    last: Ints
    size_bytes: Ints


def reused(program: Program, columns: Columns, storages: Ints, infos: Storages, sbuf_bytes: int) -> Reused:
    """Return which loads are left out of a program whose tiles were renamed, and what stands in for them.

    Args:
        program: the record.
        columns: its operands.
        storages: by operand, its storage.
        infos: by storage.
        sbuf_bytes: bytes per partition that a core has.
    """
    instead = np.arange(len(infos))
    loads = _loads(program, columns, storages)
    found = products(program, columns, storages, len(infos)) if program.nki_version == NKI_0_1 else None
    if found is not None:
        loads = _with_products(loads, found, storages)
    if int(loads.names.max(initial=-1)) + 1 == len(loads.names):  # none brings what another one brought
        return Reused(np.arange(len(program)), storages)
    lives = _lives(program, columns, storages, infos)
    tiles = _tiles(program, columns, storages, infos, loads, lives)
    limit_bytes = int(KEPT_SHARE * sbuf_bytes)
    tiles = tiles.only(_worth_keeping(tiles, lives, limit_bytes))
    for core in present(tiles.cores).tolist():
        mine = tiles.only(tiles.cores == core)
        used_bytes = _used_bytes(program, columns, storages, infos, lives, core)
        others = _kept(mine, lives, used_bytes, limit_bytes)
        instead[mine.storages] = np.where(others >= 0, others, mine.storages)
    result = _without(loads, columns, storages, instead, len(program))
    if found is not None:
        found.leave_out_unread(columns, result.storages, result.stand_ins)
    return result


def _loads(program: Program, columns: Columns, storages: Ints) -> _Loads:
    """Find the loads that may be left out, and give the same name to those that bring the same."""
    mine = free(program, _is_load)[columns.record]
    is_read = columns.role == READ
    reads, writes = np.flatnonzero(mine & is_read), np.flatnonzero(mine & ~is_read)
    record, source = columns.record[writes], storages[reads]
    # how often the tensor was written before: what is between two writes is the same
    stores = np.flatnonzero(~is_read & ~mine)
    keys = np.sort(storages[stores] * len(program) + columns.record[stores])
    version = np.searchsorted(keys, source * len(program) + record)
    same = (*(each[record] for each in alike(program)), version, source)
    return _Loads(writes, source, named(*same, columns.offset[reads], columns.offset[writes]))


def _with_products(loads: _Loads, found: Products, storages: Ints) -> _Loads:
    """Return loads and what is computed, in program order. Each product that is new is a source of its own."""
    rows = np.concatenate([loads.rows, found.rows])
    order = np.argsort(rows, kind="stable")
    _, firsts, names = np.unique(found.names, return_index=True, return_inverse=True)
    sources = np.concatenate([loads.sources, storages[found.rows[firsts]][names]])
    names = np.concatenate([loads.names, names + int(loads.names.max(initial=-1)) + 1])
    return _Loads(rows[order], sources[order], names[order])


def _is_load(signature: Signature) -> bool:
    """Return whether an instruction copies one tensor in HBM, and nothing else, to one tile in SBUF."""
    if len(signature.work) != 1 or len(signature.patterns) != 2 or not is_whole(signature):
        return False
    item = signature.work[0]
    accesses = {pattern.access: pattern.memory for pattern in signature.patterns}
    return (
        isinstance(item, Transfer)
        and accesses.get(Access.WRITE) is Memory.sbuf
        and Access.READ in accesses
        and accesses[Access.READ].is_hbm
    )


def _lives(program: Program, columns: Columns, storages: Ints, infos: Storages) -> _Lives:
    count, is_write = len(infos), columns.role != READ
    first, last_write, last = (np.full(count, -1, dtype=np.int64) for _ in range(3))
    first_read = np.full(count, len(program), dtype=np.int64)
    writes, reads = np.flatnonzero(is_write), np.flatnonzero(~is_write)[::-1]
    # of several values for one index, numpy keeps the last
    first[storages[writes[::-1]]] = columns.record[writes[::-1]]
    last_write[storages[writes]] = columns.record[writes]
    first_read[storages[reads]] = columns.record[reads]
    last[storages] = columns.record
    return _Lives(first, last_write, first_read, last, infos.column(lambda info: info.reserved_bytes))


def _tiles(program: Program, columns: Columns, storages: Ints, infos: Storages, loads: _Loads, lives: _Lives) -> _Tiles:
    """Return the tiles in SBUF that only loads fill, all of them before the first read, and that one core accesses."""
    may_go = infos.column(lambda info: info.role == "tile" and info.memory is Memory.sbuf, bool)
    may_go &= (lives.first >= 0) & (lives.last_write < lives.first_read)
    is_load = np.zeros(len(storages), dtype=bool)
    is_load[loads.rows] = True
    may_go[storages[(columns.role != READ) & ~is_load]] = False
    cores = np.array(program.cores, dtype=np.int64)
    owner = cores[lives.first]
    may_go[storages[cores[columns.record] != owner[storages]]] = False
    classes, sources = _classes(storages[loads.rows], loads, len(infos))
    found = np.flatnonzero(may_go)
    found = found[np.argsort(lives.first[found], kind="stable")]
    return _Tiles(found, classes[found], sources[found], owner[found])


def _classes(tiles: Ints, loads: _Loads, count: int) -> tuple[Ints, Ints]:
    """Return, by storage, a number for the loads that fill it, in order, and what the first of them reads."""
    order = np.argsort(tiles, kind="stable")
    starts = np.searchsorted(tiles[order], np.arange(count + 1))
    classes, sources = np.zeros(count, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    filled = np.flatnonzero(np.diff(starts))
    sources[filled] = loads.sources[order[starts[filled]]]
    numbers = np.diff(starts)
    for place in range(int(numbers.max(initial=0))):
        names = np.full(count, -1, dtype=np.int64)
        has = numbers > place
        names[has] = loads.names[order[starts[:-1][has] + place]]
        classes = named(classes, names)
    return classes, sources


def _worth_keeping(tiles: _Tiles, lives: _Lives, limit_bytes: int) -> Bools:
    """Return which tiles hold what others hold, too, of a tensor whose different tiles all fit together."""
    _, once, members, counts = np.unique(
        tiles.classes * (tiles.cores.max(initial=0) + 1) + tiles.cores,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    need = np.zeros(len(lives.size_bytes), dtype=np.int64)
    np.add.at(need, tiles.sources[once], lives.size_bytes[tiles.storages[once]])
    result: Bools = (counts[members] > 1) & (need[tiles.sources] <= limit_bytes)
    return result


def _used_bytes(program: Program, columns: Columns, storages: Ints, infos: Storages, lives: _Lives, core: int) -> Ints:
    """Return, by record, the bytes per partition of SBUF that a core's tiles use, and its tensors with an address."""
    cores = np.array(program.cores, dtype=np.int64)
    in_sbuf = infos.column(lambda info: info.memory is Memory.sbuf, bool)
    is_plane = infos.column(lambda info: info.role == "plane", bool)
    mine = np.zeros(len(infos), dtype=bool)
    mine[storages[cores[columns.record] == core]] = True
    live = np.flatnonzero(in_sbuf & mine & ~is_plane & (lives.first >= 0))
    change = np.zeros(len(program) + 1, dtype=np.int64)
    np.add.at(change, lives.first[live], lives.size_bytes[live])
    np.subtract.at(change, lives.last[live] + 1, lives.size_bytes[live])
    used_bytes: Ints = np.cumsum(change[:-1]) + lives.size_bytes[in_sbuf & mine & is_plane].sum()
    return used_bytes


def _kept(tiles: _Tiles, lives: _Lives, used_bytes: Ints, limit_bytes: int) -> Ints:
    """Return, by tile, the one that is kept in its place, -1 for none."""
    block = -(-len(used_bytes) // _MOST_BLOCKS)
    most = np.maximum.reduceat(used_bytes, np.arange(0, len(used_bytes), block))
    leaves = 1 << len(most).bit_length()
    tree = np.zeros(2 * leaves, dtype=np.int64)
    tree[leaves : leaves + len(most)] = most
    _, classes = np.unique(tiles.classes, return_inverse=True)
    others = np.full(len(tiles.storages), -1, dtype=np.int64)
    tiers.run(
        len(used_bytes),
        keep,
        tiles.storages,
        classes.astype(np.int64),
        lives.first // block,
        lives.last // block,
        np.stack([lives.last_write, lives.first]),
        lives.size_bytes,
        tree,
        np.zeros(leaves, dtype=np.int64),
        int(block > 1),
        limit_bytes,
        np.full(int(classes.max(initial=-1)) + 1, -1, dtype=np.int64),
        others,
    )
    return others


def _without(loads: _Loads, columns: Columns, storages: Ints, instead: Ints, count: int) -> Reused:
    """Return what is left when tiles have others in their place: what loads the one loads the other, in order."""
    tiles = storages[loads.rows]
    order = np.argsort(tiles, kind="stable")
    starts = np.searchsorted(tiles[order], np.arange(len(instead)))
    owner = tiles[order]
    place = np.arange(len(order)) - starts[owner]
    gone = instead[owner] != owner
    other = order[starts[instead[owner[gone]]] + place[gone]]
    stand_ins = np.arange(count)
    stand_ins[columns.record[loads.rows[order[gone]]]] = columns.record[loads.rows[other]]
    return Reused(stand_ins, instead[storages])
