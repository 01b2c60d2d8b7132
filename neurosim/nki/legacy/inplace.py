"""``tile += value`` and its kin: the destination is an operand, and an associative reduction in a loop."""

from __future__ import annotations

from typing import Any

from neurosim.datapath.operators import Operator
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand
from neurosim.memory import UNWRITTEN
from neurosim.nki import isa
from neurosim.nki.legacy.index import boxes_of
from neurosim.nki.legacy.lowering import moved_to_sbuf, result, spread_partitions, tile
from neurosim.nki.legacy.operators import operator
from neurosim.nki.legacy.promotion import result_dtype
from neurosim.nki.legacy.roots import Fresh
from neurosim.nki.legacy.state import begin
from neurosim.nki.legacy.statements import held_by_name
from neurosim.nki.legacy.tensor import ACCUMULATE, Tensor
from neurosim.numerics.alu import ALU


def update(target: Tensor, value: Any, op: Operator) -> Tensor:
    """Return ``target`` after ``target = target <op> value``, in place and with target's dtype."""
    call = f"'{op.name}' in place"
    if target.buffer.is_hbm:
        raise IllegalOperand(
            f"{call} of {target.describe()}: HBM is written by nl.store",
            advice="write nl.store(tensor, nl.load(tensor) + value)",
        )
    root = value.root if isinstance(value, Tensor) else None
    if isinstance(root, Fresh) and root.is_open and root.accumulates is not None and op.name == "add":
        fitted = target.fitted(root.shape)
        if target.buffer is Memory.psum and fitted is not None and target.format == root.dtype:
            root.bind(fitted, root.accumulates)
            return target
    begin(call)
    _combine(target, target, value, op, target, call)
    return target


def _combine(target: Tensor, left: Tensor, value: Any, op: Operator, shape_of: Tensor, call: str) -> None:
    """Issue ``target = left <op> value``, where reading ``left`` is part of the reduction."""
    old = left.resolve(call, use="")
    if not isinstance(value, Tensor):
        number = int(value) if ALU[op.name].kind == "bitvec" else float(value)
        isa.tensor_scalar(dst=target.resolve(call, use=ACCUMULATE), data=old, op0=op, operand0=number)
        return
    other = tile(value, "value", call)
    if other.buffer is left.buffer is Memory.psum:
        other = moved_to_sbuf(other, call)
    other = other.like(shape_of.shape).spread(shape_of.shape)
    moved = spread_partitions(other, call).resolve(call)
    isa.tensor_tensor(dst=target.resolve(call, use=ACCUMULATE), data1=old, data2=moved, op=op)


def loop_reduce(
    x: Any, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None, name: str | None = None
) -> Tensor:
    """Return the reduction of ``x`` over loops; the tile that it is assigned to is the other operand.

    That is ``tile`` of both ``tile[...] = nl.loop_reduce(…)`` and ``tile = nl.loop_reduce(…)``. Where it was never
    written, ``x`` is copied there. ``loop_indices`` name the loops, and change nothing here: what reduces is that the
    destination is read.
    """
    call = "nl.loop_reduce"
    held = held_by_name()
    source, known = tile(x, "x", call), operator(op, call)
    begin(call)
    boxes = boxes_of(mask, source.shape, call)
    parts = [(box, source.resolve(call, box)) for box in boxes]

    def issue(target: Tensor) -> None:
        for box, moved in parts:
            old = target.resolve(call, box, "")
            other = moved
            if old.allocation.storage.uniform_state(old) == UNWRITTEN:
                isa.tensor_copy(dst=target.resolve(call, box, ACCUMULATE), src=other, name=name)
                continue
            if old.buffer is other.buffer is Memory.psum:
                raise IllegalOperand(f"{call}: x and the destination are both in PSUM", advice="reduce into SBUF")
            isa.tensor_tensor(dst=target.resolve(call, box, ACCUMULATE), data1=old, data2=other, op=known, name=name)

    if isinstance(held, Tensor) and not held.buffer.is_hbm:
        issue(held.like(source.shape))
        return held
    return result(call, source.shape, result_dtype(dtype, call, source), issue, boxes=boxes, needs_target=True)
