"""Places that are known at run time only: HBM rows chosen by a tile of indices, offsets that a tile holds."""

from __future__ import annotations

from typing import Any

from neurosim.engines import Memory
from neurosim.errors import Unsupported
from neurosim.nki.legacy.index import Box
from neurosim.view import NkiTensor
from neurosim.views.indirect import by_lane, by_scalar


def attached(view: Any, tensor: NkiTensor, box: Box, call: str) -> NkiTensor:
    """Return the machine's dynamic view.

    Args:
        view: the legacy view, with tiles of indices.
        tensor: its static part.
        box: what of it is meant.
        call: for messages.

    Raises:
        Unsupported: more than one dynamic axis, or one that does not go with the first axis.
    """
    if len(view.dynamic) != 1:
        raise Unsupported(
            f"{call}: {view.describe()} has {len(view.dynamic)} axes with tiles of indices; one is built",
            advice="index one axis by a tile, and the others by nl.arange, in several calls if need be",
        )
    ((axis, index),) = view.dynamic.items()
    static_axis = axis - view.root.blocks
    tile = view.root.tile((0,) * view.root.blocks)
    step, extent = tile.steps[static_axis], tile.shape[static_axis]
    if index.buffer is not Memory.sbuf:
        raise Unsupported(f"{call}: indices are in {index.buffer.label}", advice="load them into SBUF")
    if index.size == 1:
        return by_scalar(tensor, index.resolve(call), step, extent, call)
    rows = index.fitted((index.shape[index.par], 1))
    if rows is None or not tensor.buffer.is_hbm:
        raise Unsupported(
            f"{call}: indices {index.describe()}", advice="give one index per partition: a tile of shape (n, 1)"
        )
    if tensor.steps[0] or rows.shape[0] != view.shape[0]:
        raise Unsupported(
            f"{call}: {view.describe()} with indices {index.describe()}",
            advice="the tile of indices goes with the first axis of what is selected",
        )
    lanes = rows.resolve(call, (box[0], (0, 1)))
    row = tensor.patterned((1, *tensor.shape[1:]), (0, *tensor.steps[1:]), -1, 0, tensor.free_offset)
    return by_lane(row, lanes, step, extent, call)
