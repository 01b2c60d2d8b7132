"""When everything happens: engines in order, DMA engines in order of arrival, space in program order.

A record starts when all its constraints are met: the record before it on its engine, results that it needs, space
for tiles that it writes first, room in its DMA queue. Each is met at a known time, so instructions need no clock:
a record is issued as soon as its last constraint is known. Only what is shared in order of *time* goes through the
heap: arrivals at the DMA engines, and tiles whose space becomes free. (A single pass in program order cannot do
that: a store that waits for its result would hold up the movement of every later load.)
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush

from neurosim.errors import SimulatorBug
from neurosim.timing.dma import DmaEngines, SharedHbm, TransferCost
from neurosim.timing.laws import ARRAY_CUTS, MatmulCost
from neurosim.timing.lower import ComputeCost, Plan, Pool
from neurosim.timing.timeline import ENGINES, Op, Stall

_NONE = int(Stall.NONE)
_DATA_ENGINE = int(Stall.DATA_ENGINE)
_BUFFER = int(Stall.BUFFER)
_QUEUE = int(Stall.QUEUE)
_MEETING = int(Stall.MEETING)
_LOAD_STATIONARY = int(Op.LOAD_STATIONARY)
_MATMUL = int(Op.MATMUL)
_TABLE_LOAD = int(Op.TABLE_LOAD)
_TRIGGER = int(Op.TRIGGER)


class _Space:
    """Hands out the space of one pool in program order, as it becomes free."""

    __slots__ = ("free_bytes", "next", "sizes", "tiles")

    def __init__(self, pool: Pool) -> None:
        self.tiles = pool.tiles
        self.sizes = {tile: size_bytes for tile, _, size_bytes in pool.tiles}
        self.free_bytes = pool.capacity_bytes
        self.next = 0


class Schedule:
    """A plan's schedule, computed when it is made.

    Attributes:
        starts_ps: by record, when its engine took it (until then, the latest of the constraints that are met).
        completes_ps: by record, when its result can be used.
        reasons, waited_for: by record, what decided its start, and which record.
        queued_behind: by record, the DMA that moved first, -1 for none.
        ops: rows of (record, unit, op, reason, start, end), flat.
        movers: the DMA engines of each core, with their logs.
    """

    def __init__(self, plan: Plan, dma_engines: int) -> None:
        records, units = len(plan.signatures), len(plan.cores) * len(ENGINES)
        self.starts_ps = [0] * records
        self.completes_ps = [-1] * records
        self.reasons = [_NONE] * records
        self.waited_for = [-1] * records
        self.queued_behind = [-1] * records
        self.ops = array("q")
        hbm = SharedHbm() if len(plan.cores) > 1 else None
        self.movers = [DmaEngines(dma_engines, hbm) for _ in plan.cores]
        self._plan = plan
        self._remaining = plan.remaining.copy()
        self._arrivals: dict[int, int] = {}  # by record of a meeting, when its core is there
        self._moved: dict[int, int] = {}  # by transfer of a meeting, when it has moved
        self._ready: list[int] = []  # records whose constraints are all met
        self._heap: list[tuple[int, int]] = []  # (time, DMA that arrives) or (time, -1 - tile that dies)
        self._unit_free = [0] * units
        self._unit_last = [-1] * units
        self._unit_retired = [0] * units  # an engine completes in order
        self._cells_free: list[list[int]] = [[] for _ in range(units)]  # empty: as the unit
        self._tables: list[str | None] = [None] * units
        self._quadrants: list[tuple[int, ...] | None] = [None] * units
        self._queue_free = [0] * plan.queue_count
        self._queue_last = [-1] * plan.queue_count
        self._queue_arrival = [0] * plan.queue_count  # a queue keeps order up to the DMA engines
        self._spaces: dict[int, _Space] = {}  # by tile
        self._touches_left = plan.touch_counts.copy()
        self._deaths: dict[int, tuple[int, int]] = {}  # by tile, its last access so far: (time, record)
        self._run()

    def _run(self) -> None:
        ready, heap = self._ready, self._heap
        ready.extend(record for record, count in enumerate(self._remaining) if count == 0)
        for pool in self._plan.pools:
            space = _Space(pool)
            self._spaces.update((tile, space) for tile in space.sizes)
            self._hand_out(space, 0, -1)
        while ready or heap:
            while ready:
                self._issue(ready.pop())
            if heap:
                time_ps, key = heappop(heap)
                if key >= 0:
                    self._arrive(key, time_ps)
                else:
                    self._die(-1 - key, time_ps)
        if -1 in self.completes_ps:
            raise SimulatorBug(
                f"timing: record {self.completes_ps.index(-1)} can never start",
                advice="report it with the program",
            )

    def _meet(self, record: int, time_ps: int, reason: int, by: int) -> None:
        """Meet one constraint of a record."""
        if time_ps > self.starts_ps[record]:
            self.starts_ps[record] = time_ps
            self.reasons[record] = reason
            self.waited_for[record] = by
        self._remaining[record] -= 1
        if self._remaining[record] == 0:
            self._ready.append(record)

    def _issue(self, record: int) -> None:
        """Issue a record whose constraints are all met, unless it has to wait for another core's."""
        partner = self._plan.partners[record]
        if partner < 0:
            self._start(record)
            return
        unit = self._plan.units[record]
        self._arrivals[record] = max(self.starts_ps[record], self._unit_free[unit])
        if partner not in self._arrivals:
            return
        last_ps = max(self._arrivals[record], self._arrivals[partner])
        for each, other in sorted(((record, partner), (partner, record))):
            if self._arrivals[each] < last_ps:
                self.starts_ps[each], self.reasons[each], self.waited_for[each] = last_ps, _MEETING, other
            self._start(each)

    def _start(self, record: int) -> None:
        plan = self._plan
        unit = plan.units[record]
        if self.starts_ps[record] <= self._unit_free[unit]:
            self.reasons[record] = _NONE
            self.waited_for[record] = self._unit_last[unit]
        cost = plan.costs[plan.signatures[record]]
        complete_ps = -1
        if isinstance(cost, MatmulCost):
            next_ps, complete_ps = self._multiply(record, unit, cost)
        elif isinstance(cost, TransferCost):
            next_ps = self._trigger(record, unit, cost)
        else:
            next_ps, complete_ps = self._compute(record, unit, cost)
        self._unit_last[unit] = record
        following = plan.following[record]
        if following >= 0:
            self._meet(following, next_ps, _NONE, record)
        if complete_ps >= 0:
            complete_ps = max(complete_ps, self._unit_retired[unit])
            self._unit_retired[unit] = complete_ps
            self._finish(record, complete_ps)

    def _compute(self, record: int, unit: int, cost: ComputeCost) -> tuple[int, int]:
        """Issue the steps of a lane-wise instruction; return when the engine is free, and the completion."""
        if cost.table is not None and cost.table != self._tables[unit]:
            self._load_table(record, unit, cost.table)
        if cost.quadrants is not None:
            self._turn_quadrants(record, unit, cost.quadrants)
        begin, reason = self.starts_ps[record], self.reasons[record]
        complete = 0
        for kind, issue_ps, latency_ps in cost.steps:
            end = begin + issue_ps
            self.ops.extend((record, unit, kind, reason, begin, end))
            if begin + latency_ps > complete:
                complete = begin + latency_ps
            begin, reason = end, _NONE
        self._unit_free[unit] = begin
        return begin, complete

    def _load_table(self, record: int, unit: int, table: str) -> None:
        """Load another activation table. That needs no data: it starts as soon as the engine is free."""
        self._tables[unit] = table
        free = self._unit_free[unit]
        loaded = free + self._plan.table_load_ps
        self.ops.extend((record, unit, _TABLE_LOAD, _NONE, free, loaded))
        self._unit_free[unit] = loaded
        if self.starts_ps[record] <= loaded:
            self.starts_ps[record] = loaded
            self.reasons[record] = _NONE
            self.waited_for[record] = self._unit_last[unit]

    def _turn_quadrants(self, record: int, unit: int, quadrants: tuple[int, ...]) -> None:
        """Let a transpose between other quadrants than the last one's wait until the engine is empty."""
        before = self._quadrants[unit]
        self._quadrants[unit] = quadrants
        if before is not None and before != quadrants and self.starts_ps[record] < self._unit_retired[unit]:
            self.starts_ps[record] = self._unit_retired[unit]
            self.reasons[record] = _DATA_ENGINE
            self.waited_for[record] = self._unit_last[unit]

    def _multiply(self, record: int, unit: int, cost: MatmulCost) -> tuple[int, int]:
        """Issue LoadStationary and MATMUL pairs; return when the next load may begin, and the completion.

        A load fills spare weight registers while the MATMUL before it streams. They are spare again once the
        load's own MATMUL has begun. Tiles of the array that share no cell stream at the same time.
        """
        load, reason, free = self.starts_ps[record], self.reasons[record], self._unit_free[unit]
        pairs, load_ps, stream_ps, latency_ps, cells = cost
        parts = self._cells_free[unit]
        if cells:
            parts = parts or [free] * ARRAY_CUTS**2
            free = max(parts[cell] for cell in cells)
        stream = load
        for _ in range(pairs):
            loaded = load + load_ps
            stream = loaded if loaded > free else free
            free = stream + stream_ps
            self.ops.extend((record, unit, _LOAD_STATIONARY, reason, load, loaded))
            self.ops.extend((record, unit, _MATMUL, _NONE, stream, free))
            load, reason = stream, _NONE
        if cells:
            for cell in cells:
                parts[cell] = free
            self._cells_free[unit], free = parts, max(free, self._unit_free[unit])
        elif parts:
            self._cells_free[unit] = []  # all of them are free when the whole array is
        self._unit_free[unit] = free
        return stream, stream + latency_ps

    def _trigger(self, record: int, unit: int, cost: TransferCost) -> int:
        """Execute a DMA instruction, whose data arrives at the DMA engines later; return when the engine is free."""
        queue = self._plan.queues[record]
        if self._queue_free[queue] > self.starts_ps[record]:
            self.starts_ps[record] = self._queue_free[queue]
            self.reasons[record] = _QUEUE
            self.waited_for[record] = self._queue_last[queue]
        begin = self.starts_ps[record]
        end = begin + cost.trigger_ps
        if self._plan.partners[record] >= 0:
            end += self._plan.meeting_ps
        self.ops.extend((record, unit, _TRIGGER, self.reasons[record], begin, end))
        self._unit_free[unit] = end
        self._queue_free[queue] = begin + cost.interval_ps
        self._queue_last[queue] = record
        self._queue_arrival[queue] = max(end + cost.first_data_ps, self._queue_arrival[queue])
        heappush(self._heap, (self._queue_arrival[queue], record))
        return end

    def _arrive(self, record: int, time_ps: int) -> None:
        """Move a transfer's data."""
        plan = self._plan
        cost = plan.costs[plan.signatures[record]]
        assert isinstance(cost, TransferCost)
        movers = self.movers[plan.units[record] // len(ENGINES)]
        moved_ps, self.queued_behind[record] = movers.move(record, time_ps, cost, plan.turns[record])
        partner = plan.partners[record]
        if partner < 0:
            self._finish(record, moved_ps + cost.semaphore_ps)
            return
        self._moved[record] = moved_ps + cost.semaphore_ps
        if partner in self._moved:  # a core has its tile when the other one's DMA has brought it
            done_ps = max(self._moved[record], self._moved[partner])
            for each in sorted((record, partner)):
                self._finish(each, done_ps)

    def _finish(self, record: int, time_ps: int) -> None:
        """Tell those who wait for a record when it completes, and count its accesses to tiles."""
        plan = self._plan
        self.completes_ps[record] = time_ps
        consumers, delays_ps, reasons = plan.edge_consumers, plan.edge_delays_ps, plan.edge_reasons
        for edge in range(plan.edge_starts[record], plan.edge_starts[record + 1]):
            self._meet(consumers[edge], time_ps + delays_ps[edge], reasons[edge], record)
        for touch in range(plan.touch_starts[record], plan.touch_starts[record + 1]):
            tile = plan.touches[touch]
            death = self._deaths.get(tile)
            if death is None or time_ps > death[0]:
                death = self._deaths[tile] = (time_ps, record)
            self._touches_left[tile] -= 1
            if self._touches_left[tile] == 0:
                heappush(self._heap, (death[0], -1 - tile))

    def _die(self, tile: int, time_ps: int) -> None:
        """Take back a tile's space and hand it on."""
        space = self._spaces[tile]
        space.free_bytes += space.sizes[tile]
        self._hand_out(space, time_ps, self._deaths[tile][1])

    def _hand_out(self, space: _Space, time_ps: int, by: int) -> None:
        while space.next < len(space.tiles):
            _, record, size_bytes = space.tiles[space.next]
            if size_bytes > space.free_bytes:
                return
            space.free_bytes -= size_bytes
            space.next += 1
            self._meet(record, time_ps, _BUFFER, by)
