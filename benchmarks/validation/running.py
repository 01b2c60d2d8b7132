"""Running a row: each of its launches on the simulator, without values; what the timelines say, added up."""

from __future__ import annotations

import copy
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from validation.rows import Call, Row, tuplify
from validation.sources import Absent, own_kernel, public_kernels

import neurosim
from neurosim.chip import Chip
from neurosim.engines import Engine
from neurosim.program import Program
from neurosim.shell.loading import parse_arguments
from neurosim.timing import Op, Timeline
from neurosim.timing import time as time_program
from neurosim.work import Transfer

ENGINES = ("tensor", "vector", "scalar", "gpsimd")

LEAST_BUSY = 0.5
"""Share of the time below which no engine is a bottleneck: the kernel waits for latencies."""


@dataclass(frozen=True)
class Outcome:
    """What the simulator says about a row.

    Attributes:
        id: the row's.
        kernel: ``own`` or ``public``.
        predicted_us: time of all launches, with their overhead where the measurement holds it; None if it did not run.
        busy: share of the time that each engine, and ``dma``, was busy.
        stalls: by engine, the largest stall as (reason, share of the time).
        instructions: records in all.
        seconds: wall time of recording and timing.
        notes: what the run leaves out.
        why_not: the reason, where there is no prediction.
    """

    id: str
    kernel: str
    predicted_us: float | None = None
    busy: dict[str, float] = field(default_factory=dict)
    stalls: dict[str, tuple[str, float]] = field(default_factory=dict)
    instructions: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    why_not: str = ""

    @property
    def bottleneck(self) -> str:
        """The unit that was busy most, or ``latency`` where none was busy most of the time."""
        name = max(self.busy, key=lambda unit: self.busy[unit])
        return name if self.busy[name] >= LEAST_BUSY else "latency"

    def as_json(self) -> dict[str, Any]:
        """Return what ``json.dumps`` takes."""
        return asdict(self)


def run_row(row: Row, kernel: str, public: Path | None) -> Outcome:
    """Run a row and return its outcome; why it could not run is an outcome, too."""
    began = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            if kernel == "own":
                calls, find = row.own, own_kernel
            elif public is None:
                raise Absent("public; give the folder of clones with --public")
            else:
                calls, find = row.calls, public_kernels(row, public, Path(scratch))
            outcome = _measure(row, kernel, calls, find)
    except Absent as error:
        return Outcome(row.id, kernel, why_not=str(error))
    except Exception as error:  # a kernel is others' code: whatever stops it is what the table has to say
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        return Outcome(row.id, kernel, why_not=text, seconds=time.perf_counter() - began)
    return replace(outcome, seconds=time.perf_counter() - began)


def _measure(row: Row, kernel: str, calls: tuple[Call, ...], find: Callable[[Call], Any]) -> Outcome:
    chip = neurosim.load_chip(row.chip)
    total_ps = instructions = 0
    busy_ps: dict[str, float] = {}
    stall_ps: dict[str, Counter[str]] = {}
    notes: list[str] = []
    for call in calls:
        program, timeline = _launch(row, chip, find(call), call)
        total_ps += timeline.makespan_ps + (timeline.launch_ps if row.launch else 0)
        instructions += len(program)
        for unit, share_ps in _busy_ps(timeline):
            busy_ps[unit] = busy_ps.get(unit, 0) + share_ps
            waited = timeline.engines["dma0" if unit == "dma" else unit].stall_ps
            stall_ps.setdefault(unit, Counter()).update(waited)
        notes.extend(f"{name}: {text}" for name, text in program.notes.items() if name != "Values")
    busy = {unit: share_ps / max(total_ps, 1) for unit, share_ps in busy_ps.items()}
    largest = {unit: waits.most_common(1)[0] for unit, waits in stall_ps.items()}
    stalls = {unit: (reason, waited_ps / max(total_ps, 1)) for unit, (reason, waited_ps) in largest.items()}
    return Outcome(row.id, kernel, total_ps / 1e6, busy, stalls, instructions, notes=tuple(notes))


def _launch(row: Row, chip: Chip, function: Callable[..., Any], call: Call) -> tuple[Program, Timeline]:
    arguments = {name: _argument(value) for name, value in call.arguments.items()}
    result = neurosim.simulate(function, chip=chip, values=False)(**arguments)
    if not row.static_rings:
        return result.program, result.timeline
    program = copy.copy(result.program)  # the run's own is there for other runs, too
    program.signatures = list(program.signatures)
    make_static(program)
    return program, max(time_program(program, chip).values(), key=lambda timeline: timeline.makespan_ps)


def _argument(value: Any) -> Any:
    if isinstance(value, str):
        (parsed,), _ = parse_arguments([value], values=False)
        return parsed
    return tuplify(value)


def make_static(program: Program) -> None:
    """Let the rings be ready before the kernel starts, as ``--disable-dge`` does: no descriptor is made at run time.

    Then no DMA needs GpSimd's software: loads are triggered by Sync, and stores by GpSimd, where they hold up no load.
    """
    signatures = program.signatures
    for index, signature in enumerate(signatures):
        item = signature.work[0] if signature.work else None
        if isinstance(item, Transfer):
            engine = Engine.sync if item.source.is_hbm else Engine.gpsimd
            signatures[index] = replace(signature, engine=engine, work=(replace(item, generation="none"),))


def _busy_ps(timeline: Timeline) -> Iterator[tuple[str, int]]:
    """Return for how long each engine was active, as profilers see it: also where its clock was lowered."""
    for engine in ENGINES:
        account = timeline.engines[engine]
        yield engine, account.busy_ps + account.stall_ps["throttle"]
    yield "dma", dma_active_ps(timeline)


def dma_active_ps(timeline: Timeline) -> int:
    """Return for how long at least one DMA engine was moving data, which is what profilers call active."""
    transfers = timeline.ops[timeline.ops["kind"] == Op.TRANSFER]
    if not len(transfers):
        return 0
    order = np.argsort(transfers["start_ps"], kind="stable")
    starts, ends = transfers["start_ps"][order], transfers["end_ps"][order]
    reached = np.maximum.accumulate(ends)
    gaps = np.maximum(starts[1:] - reached[:-1], 0).sum()
    return int(reached[-1] - starts[0] - gaps)
