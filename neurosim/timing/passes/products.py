"""Products: what an instruction would compute again from the same tiles.

The compiler of NKI 0.1 takes out of a loop what does not change in it. What was seen, in scans over states, where each
trip of the loop over states multiplies two tiles from outside of it:

- trn2 (Jerry2423/kda-for-trainium@90770f2): Vector is active for 1.39 ms in mamba_v2, as in mamba_v4, whose source
  takes the product out; with it, that would be 1.6 ms. Those with tiles of 256, 448 and 1024 columns are alike.
- trn1 (AWS fused-mamba tutorial, v3): 3.3 to 24.2 ms for 1024 to 7168 columns in tiles of 512 are what the rest takes;
  with the products it would be a fourth more.
- trn1 (ucb-bar/autocomp@dd26a56, attention steps 5 to 7): 681 to 690 us are what is left when the transposes of V, made
  again for each block of queries, are copied to SBUF once; with them it would be 826 to 859 us.
- Where each trip loads the two tiles itself, the profile shows every product (v1 of the tutorial).

So records of such programs count as equal where they do the same to the same tiles, which nobody wrote in between; a
load of the same bytes into another tile makes it another one. Whether the first result is kept until the last reader is
decided as for loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from neurosim.engines import Memory
from neurosim.program import Access, Program, Signature
from neurosim.timing.passes.operands import READ, Columns, Ints, alike, free, is_whole, named
from neurosim.work import Lanewise, Matmul, Work


class Products(NamedTuple):
    """Results of arithmetic on tiles, in program order; results with one name are equal.

    Attributes:
        rows, names: the operands that write tiles in SBUF.
        passing_rows, passing_names: those that write tiles in PSUM, each of which is written once.
    """

    rows: Ints
    names: Ints
    passing_rows: Ints
    passing_names: Ints

    def leave_out_unread(self, columns: Columns, storages: Ints, stand_ins: Ints) -> None:
        """Let an earlier result stand for each in PSUM whose readers are all left out; changes ``stand_ins``."""
        executed = stand_ins[columns.record] == columns.record
        is_read = columns.role == READ
        tiles, records = storages[self.passing_rows], columns.record[self.passing_rows]
        unread = np.isin(tiles, storages[is_read]) & ~np.isin(tiles, storages[is_read & executed])
        order = np.flatnonzero(~unread)
        names, firsts = np.unique(self.passing_names[order], return_index=True)
        if not len(names):
            return
        place = np.minimum(np.searchsorted(names, self.passing_names), len(names) - 1)
        first = records[order[firsts[place]]]
        gone = unread & (names[place] == self.passing_names) & (first < records)
        stand_ins[records[gone]] = first[gone]


def products(program: Program, columns: Columns, storages: Ints, count: int) -> Products:
    """Return the results that depend on nothing but tiles. There are ``count`` storages.

    A tile in PSUM that is written once is what was computed into it: so transposes that are copied to SBUF are equal.
    """
    is_read, mine = columns.role == READ, free(program, _is_product)[columns.record]
    writes, reads = np.flatnonzero(~is_read), np.flatnonzero(mine & is_read)
    written = np.sort(storages[writes] * len(program) + columns.record[writes])
    version = np.searchsorted(written, storages[reads] * len(program) + columns.record[reads])
    rows = np.flatnonzero(mine & ~is_read)
    in_psum = program.storages.column(lambda info: info.memory is Memory.psum, bool)[columns.storage[rows]]
    once = np.bincount(storages[writes], minlength=count) == 1
    passing = in_psum & once[storages[rows]]
    contents = storages[reads]
    names = named(*_keys(program, columns, rows, reads, contents, version))
    held = np.full(count, -1, dtype=np.int64)
    held[storages[rows[passing]]] = names[passing]
    is_held = held[contents] >= 0
    contents, version = np.where(is_held, count + held[contents], contents), np.where(is_held, 0, version)
    names = named(*_keys(program, columns, rows, reads, contents, version))
    return Products(rows[~in_psum], names[~in_psum], rows[passing], names[passing])


def _keys(program: Program, columns: Columns, rows: Ints, reads: Ints, contents: Ints, version: Ints) -> Iterator[Ints]:
    """Return what results are made of: equal where all columns are. ``reads`` are the operands of the same records."""
    record = columns.record[rows]
    yield from (each[record] for each in alike(program))
    yield columns.offset[rows]
    place = _places(columns.record[reads])
    for number in range(int(place.max(initial=-1)) + 1):
        here = place == number
        at = np.searchsorted(record, columns.record[reads[here]])
        for values in (contents[here], columns.offset[reads[here]], version[here]):
            column = np.full(len(rows), -1, dtype=np.int64)
            column[at] = values
            yield column


def _places(records: Ints) -> Ints:
    """Return, by operand of records in order, how many of the same record come before."""
    starts = np.flatnonzero(np.diff(records, prepend=-1))
    return np.arange(len(records)) - np.repeat(starts, np.diff(np.append(starts, len(records))))


def _is_product(signature: Signature) -> bool:
    """Return whether an instruction computes or transposes one tile from others, and nothing else."""
    written = [pattern for pattern in signature.patterns if pattern.access is not Access.READ]
    return (
        len(written) == 1 < len(signature.patterns)
        and written[0].access is Access.WRITE
        and written[0].memory.is_on_chip
        and all(pattern.memory is not Memory.state for pattern in signature.patterns)
        and (all(_is_transpose(item) for item in signature.work) or _is_lanewise(signature))
    )


def _is_transpose(item: Work) -> bool:
    return isinstance(item, Matmul) and item.transpose


def _is_lanewise(signature: Signature) -> bool:
    return all(isinstance(item, Lanewise) for item in signature.work) and is_whole(signature)
