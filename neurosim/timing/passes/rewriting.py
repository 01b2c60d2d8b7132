"""A program without the records that are left out, and with its tiles renamed; the rest of timing takes it as any."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from neurosim.program import Program
from neurosim.record.storages import Storages
from neurosim.timing.passes.operands import Bools, Columns, Ints


def rewritten(program: Program, columns: Columns, storages: Ints, infos: Storages, kept: Bools) -> Program:
    """Return a program of the kept records, whose operands are in the given storages.

    It shares signatures, stacks, trips and notes with the program that it was made from.
    """
    made = Program(program.chip_name, program.generation, program.nki_version)
    made.signatures, made.stacks, made.trips, made.notes = (
        program.signatures,
        program.stacks,
        program.trips,
        program.notes,
    )
    made.storages = infos
    for name in ("signature_ids", "cores", "stack_ids", "blocks", "trip_ids"):
        made.put(**{name: np.array(getattr(program, name))[kept]})
    rows = kept[columns.record]
    starts = np.zeros(int(kept.sum()) + 1, dtype=np.int64)
    counts = np.bincount(columns.record, minlength=len(program))
    np.cumsum(2 * counts[kept], out=starts[1:])
    made.put(slots=np.stack([storages[rows], columns.offset[rows]], axis=1).reshape(-1), slot_starts=starts)
    places = np.cumsum(kept) - 1
    made.names = {int(places[record]): name for record, name in program.names.items() if kept[record]}
    made.edges = _moved(program.edges, places)
    made.meetings = [(int(places[first]), count) for first, count in program.meetings]
    return made


def _moved(edges: Iterable[tuple[int, int]], places: Ints) -> list[tuple[int, int]]:
    return [(int(places[consumer]), int(places[producer])) for consumer, producer in edges]
