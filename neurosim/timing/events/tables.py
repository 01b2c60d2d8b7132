"""What the loop over a program reads and writes: tables, each a NumPy array of records with named columns.

Columns hold numbers of rows of other tables, -1 for none, and times in picoseconds. Where a row owns several rows of
another table, these lie side by side, and it says where they begin and end.

(Few arrays with many columns, instead of many arrays: they are handed on at each call.)
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Table = Any
"""An array of records: ``table["column"]`` is a column, ``table[row].column`` a value of it."""

_BLOCK: Final = 4096
"""Rows of a table that are filled in together."""

NEVER: Final = 1 << 62
"""A time that does not come."""

COMPUTE: Final = 0
MULTIPLY: Final = 1
TRANSFER: Final = 2


def _columns(numbers: str, times: str) -> np.dtype[Any]:
    return np.dtype([(name, np.int64) for name in times.split()] + [(name, np.int32) for name in numbers.split()])


COST: Final = _columns(
    "kind step_start step_end table quadrants pairs cells busy_rows level may_turn share_start share_end",
    "port_ps load_ps stream_ps latency_ps trigger_ps interval_ps first_data_ps hbm_ps payload_ps semaphore_ps",
)
"""What a signature costs; which columns count depends on its ``kind``: ``COMPUTE``, ``MULTIPLY`` or ``TRANSFER``.

Steps, the activation ``table`` that it needs, the ``quadrants`` between which it transposes, and for how long it needs
a port (``port_ps``); ``pairs`` of
LoadStationary and MATMUL, the ``cells`` of the array that they use, a bit each, 0 for all, and its ``busy_rows``; of a
transfer, its shares of the DMA engines, whether these are all engines and equal (``level``), and whether any engine may
come first.
"""

STEP: Final = _columns("kind", "issue_ps latency_ps")
SHARE: Final = _columns("engine", "busy_ps")

RECORD: Final = _columns(
    "signature unit position group epoch queue turn partner gone remaining issued reason waited_for queued_behind "
    "edge_start edge_split edge_end touch_start touch_end claim_start claim_end",
    "ready_ps start_ps complete_ps arrival_ps data_ps moved_ps",
)
"""A record, and what is known of it so far.

Its ``unit`` is an engine, counted over all cores, five per core; ``position`` counts the records of its unit before
it; ``group`` is where it waits: with those that need the same table, or the same queue, or neither. ``epoch`` grows
from meeting to meeting of its core; nothing moves from one to another. ``turn`` is the first DMA engine of a transfer
that may begin anywhere, ``partner`` the other core's record of the same meeting. A record that is ``gone`` is not in
the rows of its unit: it ends as soon as all its constraints are met. ``remaining`` constraints are to be met;
``ready_ps`` is the latest that was, ``reason`` says which, and ``waited_for`` by which record. Edges before
``edge_split`` are met when its engine, or its port, is free again, the others when its result is there. Its claims are
the ports that it needs, where these go to whoever comes first. ``queued_behind`` is the DMA that moved first,
``data_ps`` when its own data reaches the DMA engines; at a meeting, ``arrival_ps`` is when its core was there, and
``moved_ps`` when its own transfer had moved. Times are -1 until they are known.
"""

EDGE: Final = _columns("consumer reason", "delay_ps")

UNIT: Final = _columns(
    "start end head last table quadrants cells_split throttled future_first future_size group_start group_end",
    "next_ps free_ps retired_ps wake_ps window_end_ps activity",
)
"""An engine: its records in program order (rows of ``unit_records``), the first of them that is not issued (``head``).

It can take the next one at ``next_ps``, and is done with all that it took at ``free_ps``; it completes in order, the
last one at ``retired_ps``. ``future`` is its heap of records that will be ready, by time. It is looked at again at
``wake_ps``. It is throttled or not until ``window_end_ps``, with so much ``activity`` in the window so far. Where
``cells_split`` is 0, all parts of its array are free when it is.
"""

GROUP: Final = _columns("first held table queue", "")
"""Records of a unit that need the same: a heap of the ``held`` ones that are ready, in program order."""

QUEUE: Final = _columns("start issued depth", "free_ps arrival_ps")
"""A DMA queue: what it took (rows of ``queue_records``) and how many may be on their way. Its last DMA reaches the
DMA engines at ``arrival_ps``."""

TILE: Final = _columns("pool size_bytes touches death_by", "death_ps")
"""A storage. In a pool, it dies when no more ``touches`` are to come and the last has ended, at ``death_ps``."""

POOL: Final = _columns("next end", "free_bytes")
"""A scarce memory of one core; its tiles get its space in program order."""

PORT: Final = _columns("vector_by other_by", "vector_ps other_ps")
"""A port at which Vector and another engine take turns: until when each of the two has it, and by which record."""

POOL_TILE: Final = _columns("tile record takes", "")
"""A record that writes a tile of a pool; the tile's first row ``takes`` its space, and all others have it then, too."""

HEAP: Final = _columns("entry", "key")
CORE: Final = _columns("level last", "hbm_free_ps")
"""A core's DMA engines: whether all are free from the same time on, and the last transfer that moved."""

SPAN: Final = _columns("", "start_ps end_ps")
OP: Final = _columns("record unit kind reason", "start_ps end_ps held_ps")
"""What an engine did; ``held_ps`` it was held up by its throttle."""

MOVE: Final = _columns("record engine count", "start_ps end_ps held_ps")
"""A transfer on ``count`` DMA engines from ``engine`` on; ``held_ps`` waited for HBM."""

TOTALS: Final = _columns(
    "window dma_window dma_engines shares_hbm events_first events ops moves spans",
    "table_load_ps meeting_ps window_ps slow_ppm latency_ps up down",
)
"""One row: how many records an engine may look at, and at how many for a DMA, figures of the chip (the last five are
those of :class:`neurosim.timing.laws.Throttle`), and how many rows of other tables are used."""


class Tables(NamedTuple):
    """All tables of a program; the loop fills them in, so that they serve once.

    Attributes:
        costs, steps, shares: by signature, and what belongs to it.
        records, edges, touches: by record, and who waits for it, and the tiles of scarce memory that it accesses.
        units, unit_records, groups: engines, their records, and where these wait.
        queues, queue_records: DMA queues and what they took.
        ports, claims: what two engines take turns at, and the ports that records need.
        tiles, pools, pool_tiles: storages, scarce memories, and who gets their space.
        heap: all heaps; the last one is of events: arrivals of DMAs, and, as -1 - tile, deaths of tiles.
        cells_free_ps: by unit and part of the array.
        movers_free_ps: by core and DMA engine.
        cores: by core.
        spans: what several cores have taken of HBM, in order, neighbours joined.
        ops, moves: the logs of engines and of DMA engines.
        totals: one row.
    """

    costs: Table
    steps: Table
    shares: Table
    records: Table
    edges: Table
    touches: Ints
    units: Table
    unit_records: Ints
    groups: Table
    queues: Table
    queue_records: Ints
    ports: Table
    claims: Ints
    tiles: Table
    pools: Table
    pool_tiles: Table
    heap: Table
    cells_free_ps: Ints
    movers_free_ps: Ints
    cores: Table
    spans: Table
    ops: Table
    moves: Table
    totals: Table


def table(form: np.dtype[Any], rows: int, **columns: Any) -> Table:
    """Return a table with the given columns; the others are 0."""
    made = np.zeros(rows, dtype=form)
    for start in range(0, rows, _BLOCK):  # rows stay in the processor's cache until all their columns are there
        block = slice(start, start + _BLOCK)
        for name, values in columns.items():
            made[name][block] = values if np.ndim(values) == 0 else values[block]
    return made.view(np.recarray)
