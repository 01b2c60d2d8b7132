"""What a compiler makes of a program before it orders it: the passes that ``schedule="compiler"`` stands for.

Values never depend on them, and neither do errors: they work on the record of a program that has run. Each is a general
rule with its evidence in its module, taken where the record proves it legal:

1. :mod:`~neurosim.timing.passes.renaming`: a tile that is overwritten as a whole is another tile from then on;
2. :mod:`~neurosim.timing.passes.reuse`: what is on the chip already is not loaded again, and in kernels of NKI 0.1
   not computed again either.

What is left is a program like any other, which is lowered and scheduled. ``schedule="reorder"`` does without them.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from neurosim.chip import Chip
from neurosim.program import Program
from neurosim.timing.passes.operands import Columns, Ints
from neurosim.timing.passes.renaming import renamed
from neurosim.timing.passes.reuse import reused
from neurosim.timing.passes.rewriting import rewritten


class Compiled(NamedTuple):
    """A program as a compiler leaves it.

    Attributes:
        program: what is executed.
        records: by record of it, the record that it was.
        stand_ins: by record of the program as it was, the one that left the same behind; itself where it is executed.
    """

    program: Program
    records: Ints
    stand_ins: Ints


_CACHE: WeakKeyDictionary[Program, tuple[tuple[int, int, int], Compiled | None]] = WeakKeyDictionary()


def unchanged(program: Program) -> Compiled:
    """Return a program as it is."""
    records = np.arange(len(program))
    return Compiled(program, records, records)


def compiled(program: Program, chip: Chip) -> Compiled:
    """Return a program after all passes, computed again only if it has grown, or for another size of SBUF."""
    key = (len(program), len(program.edges), chip.sbuf.partition_bytes)
    cached = _CACHE.get(program)
    if cached is None or cached[0] != key:
        cached = _CACHE[program] = (key, _compile(program, chip.sbuf.partition_bytes))
    return cached[1] or unchanged(program)


def _compile(program: Program, sbuf_bytes: int) -> Compiled | None:
    """Return None where a program stays as it is: an entry of the cache must not hold its own key."""
    if not len(program):
        return None
    columns = Columns.of(program)
    storages, origins = renamed(program, columns)
    infos = program.storages.copy()
    for origin in origins.tolist():
        infos.append(infos[origin])
    found = reused(program, columns, storages, infos, sbuf_bytes)
    kept = found.stand_ins == np.arange(len(program))
    if kept.all() and not len(origins):
        return None
    made = rewritten(program, columns, found.storages, infos, kept)
    return Compiled(made, np.flatnonzero(kept), found.stand_ins)
