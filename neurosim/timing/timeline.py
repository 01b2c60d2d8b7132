"""What timing gives back: every op with its start and end, and an account of each engine's time.

All times are integer picoseconds from the start of the kernel's body; the launch comes before and is not in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim.chip import Chip
from neurosim.program import Program
from neurosim.timing.events.names import ENGINES as ENGINES
from neurosim.timing.events.names import REASONS as REASONS
from neurosim.timing.events.names import Op as Op
from neurosim.timing.events.names import Stall as Stall
from neurosim.timing.passes import Compiled
from neurosim.work import Matmul

Ints = NDArray[np.int64]

OP_DTYPE: Final = np.dtype(
    [
        ("record", np.int32),
        ("unit", np.int16),
        ("kind", np.int8),
        ("reason", np.int8),
        ("start_ps", np.int64),
        ("end_ps", np.int64),
        ("stall_ps", np.int64),
        ("held_ps", np.int64),
        ("busy_ps", np.int64),
    ]
)
"""Columns of ``Timeline.ops``.

``unit`` indexes ``Timeline.units``; ``reason`` (a :class:`Stall`) says why the unit did nothing for ``stall_ps``
before ``start_ps``; of the time from start to end, ``held_ps`` waited for HBM's bandwidth (a DMA engine) or for the
throttle (the tensor engine), ``busy_ps`` is the unit's own work, and what is left went on behind the op before (a
LoadStationary behind a MATMUL).
"""


@dataclass(frozen=True, slots=True)
class Account:
    """Where an engine's time went: ``busy_ps + sum(stall_ps.values()) + idle_ps`` is the makespan.

    Attributes:
        busy_ps: doing its own work.
        stall_ps: waiting before or within an op, by reason, each reason present.
        idle_ps: after its last op.
    """

    busy_ps: int
    stall_ps: dict[str, int]
    idle_ps: int


@dataclass(frozen=True, eq=False)
class Timeline:
    """One core's run of a program.

    Attributes:
        core: which core.
        chip: what was timed.
        schedule: by which rule engines took their instructions, a name of ``neurosim.timing.SCHEDULES``.
        throttle: whether the tensor engine was throttled until it was busy enough, where the chip does that.
        makespan_ps: from the start of the body to the last completion.
        launch_ps: what the call costs beside the body; not part of the makespan.
        units: names of the engines, in the order of ``ops["unit"]``.
        ops: structured array (``OP_DTYPE``), by unit, then by start.
        engines: an account per name of ``units``.
        records: indices of this core's records, without those that were left out.
        left_out: records that a compiler leaves out, as an earlier one left the same behind (``timing/passes``): none
            in program order.
        compiled: what a compiler made of the program.
        start_ps: by record of the program (of any core), when its engine took it; of one that was left out, when the
            result of the other, which it ``waited_for``, could be used.
        complete_ps: by record, when its result can be used, on its own engine or in memory.
        data_ps: by record, when the first data of a DMA reaches the DMA engines, -1 for the rest.
        reason: by record, the :class:`Stall` that decided its start; NONE when it was its engine.
        waited_for: by record, the record that decided its start, -1 for none.
        queued_behind: by record, the DMA whose data moved first, -1 for none.
        hbm_read_bytes, hbm_written_bytes: traffic with HBM.
        flops: useful floating-point operations of the tensor engine, by dtype.
        peak_ps: how long these take at each dtype's peak rate.
    """

    core: int
    chip: Chip
    schedule: str
    throttle: bool
    makespan_ps: int
    launch_ps: int
    units: tuple[str, ...]
    ops: NDArray[Any]
    engines: Mapping[str, Account]
    records: Ints
    left_out: Ints
    compiled: Compiled
    start_ps: Ints
    complete_ps: Ints
    data_ps: Ints
    reason: NDArray[np.int8]
    waited_for: Ints
    queued_behind: Ints
    hbm_read_bytes: int
    hbm_written_bytes: int
    flops: Mapping[str, int]
    peak_ps: float

    def __repr__(self) -> str:
        return f"Timeline(core {self.core} on {self.chip.name}: {len(self.ops)} ops in {self.makespan_ps} ps)"

    def plot(self, path: str | Path | None = None, *, first_ps: int = 0, last_ps: int | None = None) -> Any:
        """Draw when each engine worked, by matplotlib (the extra ``report``), and return the figure.

        Args:
            path: the .png, .svg or .pdf file to write; None to only return the figure.
            first_ps, last_ps: the time to show; by default all of it.

        Raises:
            ConfigurationError: matplotlib is not installed, no such time, or the file cannot be written.
        """
        from neurosim.report.plots import plot_timeline  # reports load when they are asked for

        return plot_timeline(self, path, first_ps=first_ps, last_ps=last_ps)

    def _repr_html_(self) -> str:
        from neurosim.report.notebook import timeline_html

        return timeline_html(self)

    def copy(self, program: Program, other: Program) -> Timeline:
        """Return a timeline with arrays and tables of its own, for ``other`` where this one is of ``program``."""
        made = other if self.compiled.program is program else self.compiled.program.copy()
        accounts = {name: replace(each, stall_ps=dict(each.stall_ps)) for name, each in self.engines.items()}
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        arrays: dict[str, Any] = {name: value.copy() for name, value in values if isinstance(value, np.ndarray)}
        compiled = Compiled(made, self.compiled.records.copy(), self.compiled.stand_ins.copy())
        return replace(self, compiled=compiled, engines=accounts, flops=dict(self.flops), **arrays)

    @property
    def total_ps(self) -> int:
        """Launch and makespan."""
        return self.launch_ps + self.makespan_ps

    @cached_property
    def busy_ps(self) -> dict[str, int]:
        """Busy time, by engine."""
        return {name: account.busy_ps for name, account in self.engines.items()}

    @cached_property
    def stall_ps(self) -> dict[str, dict[str, int]]:
        """Waiting time, by engine and reason."""
        return {name: account.stall_ps for name, account in self.engines.items()}

    @cached_property
    def idle_ps(self) -> dict[str, int]:
        """Time after the last op, by engine."""
        return {name: account.idle_ps for name, account in self.engines.items()}

    @property
    def mfu(self) -> float:
        """Useful FLOPs, each against its dtype's peak, as a share of the makespan: 0 to 1."""
        return self.peak_ps / self.makespan_ps if self.makespan_ps else 0.0

    @property
    def mbu(self) -> float:
        """HBM traffic against HBM's bandwidth, as a share of the makespan: 0 to 1."""
        size_bytes = self.hbm_read_bytes + self.hbm_written_bytes
        moved_ps = size_bytes / self.chip.hbm.bandwidth_gb_per_s * 1000
        return moved_ps / self.makespan_ps if self.makespan_ps else 0.0


def least_ps(work: Matmul, chip: Chip) -> float:
    """Return how long a matmul's useful operations take at the peak rate of its dtype, in picoseconds."""
    return work.flops / chip.tensor.peak_tflop_per_s(work.passes) / work.depth


def unit_names(chip: Chip) -> tuple[str, ...]:
    """Return the names of a core's units, in their fixed order."""
    return (*ENGINES, *(f"dma{index}" for index in range(chip.dma.engines)))


def held_reasons(units: Ints) -> Ints:
    """Return, by op, what ``held_ps`` waited for, from the index of its unit."""
    return np.where(units < len(ENGINES), int(Stall.THROTTLE), int(Stall.BANDWIDTH))


def accounts(totals_ps: Ints, units: tuple[str, ...], makespan_ps: int) -> dict[str, Account]:
    """Return an account per unit, from its waiting by reason and its work behind that."""
    result = {}
    for name, (*stalls, working) in zip(units, totals_ps.tolist(), strict=True):
        stall_ps = dict(zip(REASONS[1:], stalls[1:], strict=True))
        result[name] = Account(working, stall_ps, makespan_ps - working - sum(stalls))
    return result
