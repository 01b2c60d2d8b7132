"""What-ifs that are worth asking of any kernel, each timed, those that gain most first.

Some can be had by changing the kernel, and say how; the others are limits: what an ideal chip would gain says what the
kernel spends there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from neurosim.chip import Chip
from neurosim.engines import Engine
from neurosim.errors import NeurosimError
from neurosim.program import Program
from neurosim.timing.edits import has_wide_matmuls
from neurosim.timing.options import TimingOptions
from neurosim.timing.what_if import WhatIf, what_if
from neurosim.work import Transfer

LINES: Final = 5
"""Lines of the critical path that are left out, one by one."""


class Question(NamedTuple):
    """A what-if that is worth asking.

    Attributes:
        text: the change in words.
        changes: as :func:`neurosim.timing.what_if.what_if` takes them.
    """

    text: str
    changes: Mapping[str, Any]


_DMA: Final = (
    Question("DMA engines and HBM twice as fast", {"dma_bandwidth": 2, "hbm_bandwidth": 2}),
    Question("no DMA latency", {"dma_latency": 0}),
    Question("DMAs issued at once", {"dma_issue": 0, "queue_depth": math.inf}),
    Question("descriptors that cost nothing", {"descriptor_overhead": 0}),
)
_ENGINES: Final = {
    "tensor": (Question("a tensor engine twice as fast", {"tensor_clock": 2}),),
    "vector": (
        Question("Vector twice as fast", {"vector_clock": 2}),
        Question("no overhead of Vector's instructions", {"vector_overhead": 0}),
        Question("no latency of Vector", {"vector_latency": 0}),
    ),
    "scalar": (
        Question("Scalar twice as fast", {"scalar_clock": 2}),
        Question("no overhead of Scalar's instructions", {"scalar_overhead": 0}),
        Question("no latency of Scalar", {"scalar_latency": 0}),
        Question("activation tables loaded at once", {"table_load": 0}),
    ),
    "gpsimd": (
        Question("GpSimd twice as fast", {"gpsimd_clock": 2}),
        Question("no overhead of GpSimd's instructions", {"gpsimd_overhead": 0}),
    ),
}
_ALWAYS: Final = (
    Question("no end of SBUF and PSUM", {"sbuf_space": math.inf, "psum_space": math.inf}),
    Question("as many buffers as each tile needs", {"overwrites": False}),
    Question("semaphores that take no time", {"semaphore_latency": 0}),
)


def questions(program: Program, chip: Chip, timing: TimingOptions, places: Sequence[str] = ()) -> list[Question]:
    """Return the what-ifs that can change a program's time.

    Args:
        program: what was recorded.
        chip: what it ran on.
        timing: how it was timed.
        places: kernel lines to leave out, one by one.
    """
    used = {signature.engine for signature in program.signatures}
    found = [Question(f"{place.rpartition('/')[2]} took no time", {"without": place}) for place in places]
    if any(isinstance(work, Transfer) for signature in program.signatures for work in signature.work):
        found += _DMA
    for name, asked in _ENGINES.items():
        if Engine[name] in used:
            found += asked
    if Engine.tensor in used and timing.throttle and chip.tensor.throttle_window_ns:
        found.append(Question("a tensor engine that is never throttled", {"throttle": False}))
    if has_wide_matmuls(program):
        found.append(Question("bfloat16 operands of matmuls in place of float32", {"matmul": "bfloat16"}))
    if timing.schedule == "program":
        found.append(Question("engines in the compiler's order", {"schedule": "compiler"}))
    else:  # whoever takes what may start may start what should have waited
        found.append(Question("engines in program order (nl.no_reorder)", {"schedule": "program"}))
    return [*found, *_ALWAYS]


def what_ifs(
    program: Program, chip: Chip, timing: TimingOptions, before_ps: int, places: Sequence[str] = ()
) -> list[WhatIf]:
    """Return the ready-made what-ifs that make the kernel shorter, by their gain.

    Args:
        program, chip, timing, places: see :func:`questions`.
        before_ps: the kernel's makespan.
    """
    found = []
    for question in questions(program, chip, timing, places):
        try:
            answer = what_if(program, chip, timing, question.changes, before_ps, question.text)
        except NeurosimError:
            continue  # a line that cannot be left out, a figure that this chip cannot have
        if answer.gain_ps > 0:
            found.append(answer)
    return sorted(found, key=lambda each: (-each.gain_ps, each.text))
