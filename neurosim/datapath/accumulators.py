"""The accumulator registers of the Vector engine: one float32 per lane, shared by the instructions that reduce.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, "Accumulator behavior" of ``tensor_scalar_reduce``,
``select_reduce`` and ``exponential``.

*Assumed*, where the manual says nothing: the registers take the elements one by one in ascending order, beginning
with what they hold, in float32 (``exponential`` says so of its own sum); lane i of an operand uses register i,
whatever partition the operand begins at; and a ``reduce`` over more lanes than were reset reads registers of unknown
content, which is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

import numpy as np

from neurosim.datapath.modes import ReduceCmd
from neurosim.datapath.opcodes import one_of
from neurosim.datapath.operators import Operator
from neurosim.datapath.rules import Broken, column
from neurosim.errors import Uninitialized
from neurosim.execution.lanes import Float32s, Lanes
from neurosim.execution.registers import ACCUMULATOR
from neurosim.instruction import Holes, Tile
from neurosim.memory import WRITTEN, Mask
from neurosim.numerics import reduce
from neurosim.program import Access

IDENTITY: Final = {"add": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}
"""What ``reduce_cmd.reset_reduce`` puts into the registers, by reduction."""

MAXIMUM: Final = Operator("maximum")
"""The one reduction of instructions that select."""

_UNKNOWN: Final = np.uint32(0x7FA00000)
"""Bits that mark a register of unknown content: a NaN that no operator makes, since theirs is 0x7FC00000."""


def command_rule(command: Any, allowed: tuple[ReduceCmd, ...]) -> Broken | None:
    """The command is one that the instruction knows."""
    if command in allowed:
        return None
    names = ", ".join(f"reduce_cmd.{entry.name}" for entry in allowed)
    return Broken(f"reduce_cmd={command!r}", (f"it takes {names}",))


def state(command: ReduceCmd) -> tuple[tuple[str, Access], ...]:
    """Return the use of the registers, for ``Instruction.state``. Also ``idle`` writes them: see :func:`forget`."""
    return ((ACCUMULATOR, Access.ACCUMULATE if command is ReduceCmd.reduce else Access.WRITE),)


def scalar_state(command: ReduceCmd, is_read: bool) -> tuple[tuple[str, Access], ...]:
    """Return the use of the registers of Scalar, where ``idle`` leaves them alone, for ``Instruction.state``."""
    if command in (ReduceCmd.reset, ReduceCmd.reset_reduce):
        return ((ACCUMULATOR, Access.WRITE),)
    if command is ReduceCmd.reduce:
        return ((ACCUMULATOR, Access.ACCUMULATE),)
    return ((ACCUMULATOR, Access.READ),) if is_read else ()


def accumulate(lanes: Lanes, command: ReduceCmd, op: str, values: Float32s, start: Float32s | float = 0.0) -> Float32s:
    """Reduce ``values`` [P, N] onto the registers and return what they hold then, [P, 1].

    Args:
        lanes: the running instruction's.
        command: ``reset_reduce``, ``reduce`` or ``load_reduce``.
        op: a reduction of :data:`IDENTITY`.
        values: float32, one row per register.
        start: what ``load_reduce`` loads, a number or [P, 1].

    Raises:
        Uninitialized: ``reduce`` over registers that hold nothing known.
    """
    registers = begin(lanes, command, IDENTITY[op], len(values), start)
    result = reduce.reduce_onto(op, registers.reshape(-1, 1), values)
    registers[:] = result[:, 0]
    return result


def begin(lanes: Lanes, command: ReduceCmd, identity: float, count: int, start: Float32s | float = 0.0) -> Float32s:
    """Return the registers of the first ``count`` lanes, to reduce onto in place, after what the command does first.

    ``reset_reduce`` puts ``identity`` there and ``load_reduce`` ``start``, a number or [count, 1]; both leave the other
    lanes unknown.

    Raises:
        Uninitialized: ``reduce`` over registers that hold nothing known.
    """
    registers = lanes.registers(ACCUMULATOR)
    if command is ReduceCmd.reduce:
        check_known(lanes, count)
    else:
        forget(lanes)
        registers[:count] = identity if command is ReduceCmd.reset_reduce else np.reshape(start, -1)
    return registers[:count]


def check_known(lanes: Lanes, count: int) -> None:
    """Refuse to use registers 0 to ``count`` where one holds nothing known."""
    unknown = np.flatnonzero(lanes.registers(ACCUMULATOR).view(np.uint32)[:count] == _UNKNOWN)
    if unknown.size:
        raise Uninitialized(
            f"accumulator register {unknown[0]} of the {lanes.engine.name} engine holds nothing known",
            numbers=(f"{count} lanes accumulate",),
            advice="reset as many lanes as accumulate later, and reset after reduce_cmd.idle",
        )


def taint(lanes: Lanes, *tiles: Any, where: Mask | None = None) -> None:
    """Leave unknown the registers of lanes that were reduced from unwritten elements of ``tiles``.

    ``where`` [P, N] says which elements took part; all of them by default.
    """
    for tile in tiles:
        if isinstance(tile, Tile) and not lanes.is_written(tile):
            holes = np.less(lanes.states(tile), WRITTEN).reshape(tile.partitions, -1)
            rows = (holes if where is None else holes & where).any(axis=1)
            lanes.registers(ACCUMULATOR).view(np.uint32)[: tile.partitions][rows] = _UNKNOWN


def forget(lanes: Lanes) -> None:
    """Leave the registers unknown: "even when reduce_cmd is set to idle, the accumulator state may be modified"."""
    lanes.fill_registers(ACCUMULATOR, _UNKNOWN)


def reduced_holes(mask: Mask, reduce_res: Tile | None) -> Holes:
    """Return the holes of ``reduce_res``: a hole anywhere in a row of ``mask`` [P, N] reaches that row's result.

    What stays in the registers is :func:`taint`'s.
    """
    if reduce_res is None:
        return {}
    return {"reduce_res": mask.any(axis=1).reshape(reduce_res.shape)}


class RunningMaximum:
    """Base of the instructions that select elements, which keep the maximum of what they select."""

    mnemonic: ClassVar[str]
    dst: Tile
    reduce_res: Tile | None
    reduce_cmd: ReduceCmd
    reduce_op: Operator
    chooses = True
    taken: Mask | None = None  # which elements come from the tile, once the predicate's values are known

    def state(self) -> tuple[tuple[str, Access], ...]:
        """Use the accumulator registers."""
        return state(self.reduce_cmd)

    def reduce_rules(self) -> Iterator[Broken | None]:
        """A maximum, a command that takes no start, and no result without reducing."""
        yield one_of("reduce_op", self.reduce_op, ("maximum",))
        yield command_rule(self.reduce_cmd, (ReduceCmd.idle, ReduceCmd.reset_reduce, ReduceCmd.reduce))
        yield column("reduce_res", self.reduce_res, self.dst, None)
        if self.reduce_res is not None and self.reduce_cmd is ReduceCmd.idle:
            yield Broken(
                "reduce_res with reduce_cmd.idle, which does not reduce",
                (f"reduce_res  {self.reduce_res.describe()}",),
                "pass reduce_cmd=nisa.reduce_cmd.reset_reduce",
            )

    def reduce(self, lanes: Lanes, values: Float32s) -> Float32s | None:
        """Return the maximum so far, [P, 1], or None with ``idle``."""
        if self.reduce_cmd is ReduceCmd.idle:
            forget(lanes)
            return None
        return accumulate(lanes, self.reduce_cmd, MAXIMUM.name, values)

    def spread(self, mask: Mask) -> Holes:
        """Return the holes that those of the selected elements, [P, N], make."""
        return {"dst": mask.reshape(self.dst.shape), **reduced_holes(mask, self.reduce_res)}
