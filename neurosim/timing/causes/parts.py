"""What an engine's busy time goes into: elements that pass, and what each instruction costs beside them.

Nothing here knows a law: an instruction is costed once more without its elements, a matmul on a chip whose array has
no overhead, a transfer on one whose descriptors cost nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neurosim.chip import Chip
from neurosim.engines import Engine
from neurosim.program import Program, Signature
from neurosim.timing.causes.names import NUMBERS
from neurosim.timing.causes.phases import descriptor_share
from neurosim.timing.laws import MatmulCost, lanewise_cost
from neurosim.timing.lower import cost_of
from neurosim.timing.timeline import ENGINES, Op, Timeline
from neurosim.work import Lanewise, Matmul

Ints = NDArray[np.int64]

_WHOLE = {Op.LOAD_STATIONARY: "weights", Op.TABLE_LOAD: "table_load", Op.TRIGGER: "trigger"}
"""Ops that are one cause as a whole."""


def busy_parts(program: Program, timeline: Timeline) -> tuple[Ints, Ints]:
    """Return, by op, the main cause of its busy time, and how much of that is overhead, in picoseconds."""
    ops = timeline.ops
    cause = np.full(len(ops), NUMBERS["work"])
    for kind, name in _WHOLE.items():
        cause[ops["kind"] == kind] = NUMBERS[name]
    if not len(ops):
        return cause, np.zeros(0, dtype=np.int64)
    signatures = np.array(program.signature_ids, dtype=np.int64)[ops["record"]]
    width, kinds = len(ENGINES) + 1, len(Op)
    units = np.minimum(ops["unit"].astype(np.int64), len(ENGINES))
    keys, index = np.unique((signatures * width + units) * kinds + ops["kind"], return_inverse=True)
    fixed = _Fixed(timeline.chip)
    rows = [
        fixed.of(program.signatures[key // kinds // width], key // kinds % width, Op(key % kinds))
        for key in keys.tolist()
    ]
    table = np.array(rows, dtype=np.int64).reshape(-1, 2)
    busy = ops["busy_ps"]
    overhead = np.minimum(busy, table[index, 0]) + busy * table[index, 1] // _PARTS
    return cause, np.minimum(overhead, busy)


_PARTS = 1 << 20
"""Shares are held as whole numbers of this many parts."""


class _Fixed:
    """What ops cost beside their elements on a chip."""

    def __init__(self, chip: Chip) -> None:
        self._chip = chip
        self._descriptors = chip.replace(dma__descriptor_ns=0.0)
        self._array = chip.replace(tensor__pass_overhead_cycles=0.0, tensor__minimum_cycles=1)

    def of(self, signature: Signature, unit: int, kind: Op) -> tuple[int, int]:
        """Return the overhead of one op in picoseconds, and as parts of its time."""
        if kind is Op.TRANSFER:
            return 0, int(_PARTS * descriptor_share(signature, self._chip, self._descriptors))
        if kind is Op.MATMUL:
            return self._stream_ps(signature, self._chip) - self._stream_ps(signature, self._array), 0
        if kind is Op.ACCUMULATOR_READ:
            return 0, _PARTS
        if kind is not Op.INSTRUCTION:
            return 0, 0
        passing = [item for item in signature.work if isinstance(item, Lanewise)]
        if not passing:
            return 0, _PARTS  # registers, heads of loops, meetings
        engine, bare = Engine[ENGINES[unit]], [replace(item, elements=0, results=0) for item in passing]
        return sum(lanewise_cost(item, engine, self._chip).issue_ps for item in bare) // len(bare), 0

    def _stream_ps(self, signature: Signature, chip: Chip) -> int:
        cost: Any = cost_of(signature, chip) if isinstance(signature.work[0], Matmul) else None
        return cost.stream_ps if isinstance(cost, MatmulCost) else 0
