"""Products: what an instruction would compute again from the same tiles.

The compiler of NKI 0.1 takes out of a loop what does not change in it. What was seen, in scans over states, where each
trip of the loop over states multiplies two tiles from outside of it:

- trn2 (Jerry2423/kda-for-trainium@90770f2): Vector is active for 1.39 ms in mamba_v2, as in mamba_v4, whose source
  takes the product out; with it, that would be 1.6 ms. Those with tiles of 256, 448 and 1024 columns are alike.
- trn1 (AWS fused-mamba tutorial, v3): 3.3 to 24.2 ms for 1024 to 7168 columns in tiles of 512 are what the rest takes;
  with the products it would be a fourth more.
- Where each trip loads the two tiles itself, the profile shows every product (v1 of the tutorial).

So records of such programs count as equal where they do the same to the same tiles, which nobody wrote in between; a
load of the same bytes into another tile makes it another one. Whether the first result is kept until the last reader is
decided as for loads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from neurosim.engines import Memory
from neurosim.program import Access, Program, Signature
from neurosim.timing.passes.operands import READ, Columns, Ints, alike, free, is_whole
from neurosim.work import Lanewise


class Products(NamedTuple):
    """Results of arithmetic on tiles, in program order.

    Attributes:
        rows: the operand that each writes.
        keys: by product, what it computes: equal rows are equal products.
    """

    rows: Ints
    keys: tuple[Ints, ...]


def products(program: Program, columns: Columns, storages: Ints) -> Products:
    """Return the results that depend on nothing but tiles, each with what it is made of."""
    is_read, mine = columns.role == READ, free(program, _is_product)[columns.record]
    writes, reads = np.flatnonzero(~is_read), np.flatnonzero(mine & is_read)
    written = np.sort(storages[writes] * len(program) + columns.record[writes])
    version = np.searchsorted(written, storages[reads] * len(program) + columns.record[reads])
    rows = np.flatnonzero(mine & ~is_read)
    record = columns.record[rows]
    keys = [*(each[record] for each in alike(program)), columns.offset[rows]]
    place = _places(columns.record[reads])
    for number in range(int(place.max(initial=-1)) + 1):
        here = reads[place == number]
        at = np.searchsorted(record, columns.record[here])
        for values in (storages[here], columns.offset[here], version[place == number]):
            column = np.full(len(rows), -1, dtype=np.int64)
            column[at] = values
            keys.append(column)
    return Products(rows, tuple(keys))


def _places(records: Ints) -> Ints:
    """Return, by operand of records in order, how many of the same record come before."""
    starts = np.flatnonzero(np.diff(records, prepend=-1))
    return np.arange(len(records)) - np.repeat(starts, np.diff(np.append(starts, len(records))))


def _is_product(signature: Signature) -> bool:
    """Return whether an instruction computes one tile in SBUF from others, and nothing else."""
    written = [pattern for pattern in signature.patterns if pattern.access is not Access.READ]
    return (
        len(written) == 1 < len(signature.patterns)
        and written[0].memory is Memory.sbuf
        and all(pattern.memory is not Memory.state for pattern in signature.patterns)
        and all(isinstance(item, Lanewise) for item in signature.work)
        and is_whole(signature)
    )
