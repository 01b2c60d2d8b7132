"""``tile[...] = value``: the result of an instruction goes straight there, a tile is copied, a number fills."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from neurosim import dtypes
from neurosim.datapath.rules import Broken, access_rules, is_number
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand
from neurosim.kernel import current
from neurosim.nki import isa
from neurosim.nki.legacy.index import Box
from neurosim.nki.legacy.lowering import spread_partitions
from neurosim.nki.legacy.roots import Fresh, fill_value
from neurosim.nki.legacy.state import begin, run_of
from neurosim.nki.legacy.tensor import WRITE, Tensor
from neurosim.view import NkiTensor


def assign(target: Tensor, value: Any, is_temporary: bool) -> None:
    """Write ``value`` into a view.

    Args:
        target: of a tile in SBUF or PSUM.
        value: a tile, a result, or a number.
        is_temporary: whether nothing else holds ``value``, so that a waiting instruction may write here at once.

    Raises:
        IllegalOperand: shapes that do not go together, a target in HBM.
    """
    run = run_of("assignment")
    if isinstance(value, Tensor) and value.is_same_place(target):
        return  # what += returns
    with run.kernel.located():
        if target.buffer.is_hbm:
            raise IllegalOperand(
                f"assignment to {target.describe()}: HBM is written by nl.store", advice="use nl.store(dst[...], value)"
            )
        if isinstance(value, Tensor):
            if isinstance(value.root, Fresh) and value.root.is_open and _binds(target, value, is_temporary):
                return
            boxes = value.root.boxes if is_temporary and isinstance(value.root, Fresh) else None
            begin("assignment")
            if boxes is not None and value.shape == value.root.shape == target.like(value.shape).shape:
                _copy_boxes(target.like(value.shape), value, boxes)
            else:
                copy_into(target, value)
        elif is_number(value) or isinstance(value, bool):
            begin("assignment")
            number = fill_value(value, target.format)
            _fill(target.resolve("assignment", use=WRITE), number)
        else:
            raise IllegalOperand(f"assignment of {value!r} to {target.describe()}", advice="give a tile or a number")


def _binds(target: Tensor, value: Tensor, is_temporary: bool) -> bool:
    """Let the waiting instruction write the target, where that gives the same values as a copy."""
    root = value.root
    assert isinstance(root, Fresh)
    narrows = root.dtype in (target.format, dtypes.float32)
    fitted = target.fitted(root.shape) if value.shape == root.shape else None
    if fitted is not None and root.needs_target:
        root.bind(fitted, root.issue)
        return True
    if not is_temporary or not narrows or fitted is None or target.buffer not in root.buffers:
        return False
    if root.exact and root.dtype != target.format:
        return False
    root.bind(fitted, root.issue)
    return True


def _copy_boxes(target: Tensor, value: Tensor, boxes: list[Box]) -> None:
    """Copy what of a result was computed; the rest of the target keeps its values."""
    for box in boxes:
        moved = value.resolve("assignment", box)
        _copy(target.resolve("assignment", box, WRITE), moved)


def copy_into(target: Tensor, value: Tensor) -> None:
    """Copy a tile into a view, broadcast where it has extent 1."""
    source = value.fitted(target.shape)
    if source is None and value.size == target.size:
        moved = value.resolve("assignment")
        _copy(target.resolve("assignment", use=WRITE), moved)
        return
    source = value.spread(target.shape) if source is None else source
    source = spread_partitions(source, "assignment")
    if source.buffer is Memory.shared_hbm or source.buffer.is_hbm:
        raise IllegalOperand(
            f"assignment of {value.describe()}: load it with nl.load first", advice="write tile[...] = nl.load(tensor)"
        )
    moved = source.resolve("assignment")
    _copy(target.resolve("assignment", use=WRITE), moved)


def _fill(place: NkiTensor, number: Any) -> None:
    """Fill a place; one that no engine can begin at takes a copy from where one can."""
    if not _is_out_of_reach(place):
        isa.memset(dst=place, value=number)
        return
    made = current("assignment").allocate(place.shape, place.dtype, Memory.sbuf)
    isa.memset(dst=made, value=number)
    isa.dma_copy(dst=place, src=made)


def _copy(place: NkiTensor, source: NkiTensor) -> None:
    """Copy a tile; a DMA moves what begins at a partition that no engine can begin at (*assumed*)."""
    if _is_out_of_reach(place) or _is_out_of_reach(source):
        isa.dma_copy(dst=place, src=source)
    else:
        isa.tensor_copy(dst=place, src=source)


def _is_out_of_reach(view: NkiTensor) -> bool:
    """Return whether a view in SBUF begins at a partition that engines cannot begin at."""
    if view.buffer is not Memory.sbuf:
        return False
    return any(broken is not None and "covers partitions" in broken.what for broken in _rules(view))


def _rules(view: NkiTensor) -> Iterator[Broken | None]:
    return access_rules("tile", view, current("assignment").chip)
