"""Renaming: a tile in SBUF that is overwritten as a whole is another tile from then on.

A kernel that allocates a tile before a loop and fills it again in each trip makes the next trip's write wait for the
last trip's readers. A compiler gives each contents a place of its own, as far as there is space; so does this pass:
the space of tiles is handed out in program order anyway. What was seen on trn2: a convolution that loads each row of
its input into one tile takes 3.8 ms, where waiting for that tile would take 10.9 ms.

A write begins a new tile where it covers all that is ever accessed of the old one, and where nothing of the old one
goes into it in the same instruction. Left alone are tensors with an address, which the kernel placed, tiles that
several cores access, and those that loops on the device access: all trips are one code. So are tiles in PSUM: a product
that goes through a single PSUM tile was measured as slow as its source says (366 µs on trn2, where tiles of its own
would make 253 µs).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from neurosim.engines import Memory
from neurosim.program import Program
from neurosim.timing.passes.operands import WRITE, Bools, Columns, Ints


class Renamed(NamedTuple):
    """Tiles after renaming.

    Attributes:
        storages: by operand, its storage, or one behind the program's where it was renamed.
        origins: by storage behind the program's, which of these it was.
    """

    storages: Ints
    origins: Ints


def renamed(program: Program, columns: Columns) -> Renamed:
    """Return each operand's storage, with a new one for each contents of a tile that covers the last."""
    storages = columns.storage.copy()
    tiles = program.storages.column(lambda info: info.role == "tile" and info.memory is Memory.sbuf, bool)
    of_tiles = np.flatnonzero(tiles[storages])
    rows = of_tiles[np.argsort(storages[of_tiles], kind="stable")]
    storage = storages[rows]
    fresh = np.ones(len(rows), dtype=bool)
    fresh[1:] = storage[1:] != storage[:-1]
    starts, group = np.flatnonzero(fresh), np.cumsum(fresh) - 1
    begins = _covers(columns, rows, starts, group) & ~fresh & ~_in_place(columns, rows, storage)
    begins &= _is_private(program, columns.record[rows], starts)[group]
    count = np.cumsum(begins)
    is_new = count > count[starts][group]
    storages[rows] = np.where(is_new, len(program.storages) + count - 1, storage)
    return Renamed(storages, storage[begins])


def _covers(columns: Columns, rows: Ints, starts: Ints, group: Ints) -> Bools:
    """Return which operands write all that is ever accessed of their tile."""
    result: Bools = (columns.role[rows] == WRITE) & columns.solid[rows]
    for column, reduce in (
        (columns.low, np.minimum),
        (columns.first, np.minimum),
        (columns.high, np.maximum),
        (columns.last, np.maximum),
    ):
        values = column[rows]
        result &= values == reduce.reduceat(values, starts)[group]
    return result


def _in_place(columns: Columns, rows: Ints, storage: Ints) -> Bools:
    """Return which operands have another one of the same tile in their record."""
    record = columns.record[rows]
    same = (storage[1:] == storage[:-1]) & (record[1:] == record[:-1])
    result = np.zeros(len(rows), dtype=bool)
    result[1:] |= same
    result[:-1] |= same
    return result


def _is_private(program: Program, records: Ints, starts: Ints) -> Bools:
    """Return, by tile, whether one core accesses it, and no loop on the device."""
    cores, trips = (np.array(column, dtype=np.int64)[records] for column in (program.cores, program.trip_ids))
    is_of_one_core: Bools = np.minimum.reduceat(cores, starts) == np.maximum.reduceat(cores, starts)
    return is_of_one_core & (np.maximum.reduceat(trips, starts) < 0)
