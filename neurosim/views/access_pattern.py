"""``NkiTensor.ap``: explicit [step, count] patterns over a tensor, with a static or a dynamic start.

Source: AWS Neuron SDK, ``nki-aps.rst`` and ``nki/api/nki/language/__init__.py``, ``NkiTensor.ap``.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_int
from typing import Any

from neurosim.errors import IllegalOperand, OutOfBounds
from neurosim.view import NkiTensor, whole
from neurosim.views.indirect import by_lane, by_scalar
from neurosim.views.unusable import unusable

Pairs = list[tuple[int, int]]


def access_pattern(
    tensor: NkiTensor,
    pattern: Sequence[Sequence[int]],
    offset: int | None,
    scalar_offset: Any,
    vector_offset: Any,
    indirect_dim: int,
    dtype: Any,
) -> NkiTensor:
    """Return the view that ``tensor.ap(…)`` stands for; see there."""
    base = tensor if dtype is None else _reinterpreted(tensor, dtype)
    call = f"ap({pattern}, offset={offset}) of {tensor.describe()}"
    try:
        pairs = [(as_int(step), as_int(count)) for step, count in pattern]
    except (TypeError, ValueError):
        pairs = []
    if not pairs or any(count < 1 for _, count in pairs):
        raise IllegalOperand(
            f"{call}: give [step, count] pairs, each count at least 1",
            advice="such as pattern=[[512, 128], [1, 512]]: partitions first on chip, the innermost axis last",
        )
    try:
        start = base.offset + (0 if offset is None else as_int(offset))
    except TypeError:
        raise IllegalOperand(f"{call}: offset {offset!r} is not an int", advice="count elements of the dtype") from None
    pairs = _with_row_step(tensor, base, pairs, start - base.offset, call)
    if scalar_offset is None and vector_offset is None:
        try:
            return _static(base, pairs, start, call)
        except OutOfBounds as error:
            shape, steps = tuple(count for _, count in pairs), tuple(step for step, _ in pairs)
            return unusable(base, shape, steps, base.partition_axis, error)
    if scalar_offset is not None and vector_offset is not None:
        raise IllegalOperand(
            f"{call}: scalar_offset and vector_offset exclude each other",
            advice="pass one of them: scalar_offset for one place, vector_offset for a row per index",
        )
    return _dynamic(base, pairs, start, scalar_offset, vector_offset, base.axis(indirect_dim, "ap"), call)


def _with_row_step(tensor: NkiTensor, base: NkiTensor, pairs: Pairs, offset: int, call: str) -> Pairs:
    """Return ``pairs``; where the first step is the free size of the view ``tensor``, with that of the whole tensor.

    Both mean the next partition. nki-library computes steps from the shape of a slice as if it were a tensor of its
    own, and runs on trn2 with them (``core/utils/tensor_view.py``, used in ``mlp_tkg_gate_up_projection.py``).

    Raises:
        IllegalOperand: an offset of a row of the view or more, which could be counted in rows of either length.
    """
    if base.partition_axis < 0:
        return pairs
    (step, count), row = pairs[0], base.row_elements
    of_view = tensor.free_elements * tensor.dtype.size_bytes // base.dtype.size_bytes
    if count == 1 or step == row or step != of_view:
        return pairs
    if not 0 <= offset < step:
        raise IllegalOperand(
            f"{call}: the first step is the free size of the view, and the offset leaves its first row",
            numbers=(f"offset {offset}, free size {step} of the view and {row} of its tensor",),
            advice="slice the view at the partition and column that the pattern begins at, and leave offset out",
        )
    return [(row, count), *pairs[1:]]


def _dynamic(base: NkiTensor, pairs: Pairs, start: int, scalar: Any, vector: Any, dim: int, call: str) -> NkiTensor:
    """Return a pattern that an index moves, by the base's stride of axis ``dim``."""
    if dim == base.partition_axis:
        raise IllegalOperand(
            f"{call}: an index cannot choose partitions",
            advice="pass the indirect_dim of a free axis, or of an axis of a tensor in HBM",
        )
    step, extent = base.steps[dim], base.shape[dim]
    if scalar is not None:
        return by_scalar(_static(base, pairs, start, call), scalar, step, extent, call)
    if dim != 0:
        raise IllegalOperand(
            f"{call}: vector_offset chooses along axis 0 only, not {dim}",
            advice="pass indirect_dim=0, or scalar_offset",
        )
    return by_lane(_static(base, [(0, 1), *pairs[1:]], start, call), vector, step, extent, call, rows=pairs[0][1])


def _reinterpreted(tensor: NkiTensor, dtype: Any) -> NkiTensor:
    """Return the whole tensor as another dtype, from where ``tensor`` begins."""
    if tensor.is_indirect():
        raise IllegalOperand(
            f"ap of {tensor.describe()} as {dtype}: its place is known at run time only",
            advice="view the tensor before selecting from it",
        )
    base = whole(tensor.allocation).view(dtype)
    start = tensor.free_offset * tensor.dtype.size_bytes
    if start % base.dtype.size_bytes:
        raise IllegalOperand(
            f"ap of {tensor.describe()}: the view does not begin on a whole {base.dtype}",
            advice="slice the view at a multiple of the larger element first",
        )
    return base.moved(tensor.relative_partition, start // base.dtype.size_bytes)


def _static(base: NkiTensor, pairs: Pairs, start: int, call: str) -> NkiTensor:
    """Return a pattern that begins ``start`` elements after the tensor, partitions laid end to end."""
    steps, shape = tuple(step for step, _ in pairs), tuple(count for _, count in pairs)
    row = base.row_elements
    on_chip = base.partition_axis >= 0
    free, first = pairs, 0
    if on_chip:
        first, start = divmod(start, row)
        step, count = pairs[0]
        if count > 1 and step != row:
            raise IllegalOperand(
                f"{call}: the first pair walks partitions, so its step must be the free size",
                numbers=(f"step {step}, free size {row} elements",),
                advice="neighbouring partitions only: an access cannot skip any",
            )
        partitions = base.allocation.shape[0]
        if first < 0 or first + count > partitions:
            raise OutOfBounds(
                f"{call}: partitions {first}:{first + count} of {partitions}",
                advice="check the first pair, which is of partitions, and the partition that offset begins at",
            )
        free, steps = pairs[1:], (1, *steps[1:])
    low = start + sum(step * (count - 1) for step, count in free if step < 0)
    high = start + sum(step * (count - 1) for step, count in free if step > 0)
    if low < 0 or high >= row:
        where = "of a partition" if on_chip else "of the tensor"
        raise OutOfBounds(
            f"{call} reaches elements {low} to {high}",
            numbers=(f"{row} elements {where}",),
            advice="check offset, and step · (count - 1) of each pair",
        )
    if on_chip and len(shape) == 1:
        shape, steps = (*shape, 1), (*steps, 1)
    return base.patterned(shape, steps, 0 if on_chip else -1, first, start)
