"""Legacy ``nki.isa``: the tensor engine.

Source: NKI 0.1 documentation, ``nc_matmul``, ``nc_transpose``; masks of matmuls: "NKI API Masking".
"""

from __future__ import annotations

from typing import Any

from neurosim import dtypes
from neurosim.engines import Engine, Memory
from neurosim.errors import IllegalOperand, Unsupported
from neurosim.nki import isa
from neurosim.nki.legacy.index import Affine, Box, Predicate, boxes_of, whole_box
from neurosim.nki.legacy.lowering import copied, result, tile
from neurosim.nki.legacy.promotion import result_dtype
from neurosim.nki.legacy.state import begin
from neurosim.nki.legacy.tensor import ACCUMULATE, WRITE, Tensor

Range = tuple[int, int]
Cuts = tuple[Range, tuple[Range, ...], tuple[Range, ...]]


def nc_matmul(
    stationary: Any,
    moving: Any,
    *,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    tile_position: Any = (),
    tile_size: Any = (),
    mask: Any = None,
    perf_mode: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return the product of stationary, transposed, and moving, in PSUM; with ``psum[...] +=`` it accumulates.

    ``is_transpose`` is a hint here; it is honoured where the result keeps the dtype of ``stationary``.
    """
    call = "nisa.nc_matmul"
    left, right = tile(stationary, "stationary", call), tile(moving, "moving", call)
    begin(call)
    cuts = _cuts(left, right, mask, call)
    hints = {"is_stationary_onezero": bool(is_stationary_onezero), "is_moving_onezero": bool(is_moving_onezero)}
    options: dict[str, Any] = {**hints, "name": name}
    if tile_position or tile_size:
        options |= {"tile_position": tile_position, "tile_size": tile_size}
    if perf_mode is not None:
        options["perf_mode"] = _perf_mode(perf_mode)
    packed = 1 + (options.get("perf_mode") is isa.matmul_perf_mode.double_row)  # then a free axis is contracted, too
    rows, columns = left.shape[packed:], right.shape[packed:]
    parts = []
    if cuts is not None:
        contraction, first, second = cuts
        parts = [
            (
                left.resolve(call, (contraction, *first)),
                right.resolve(call, (contraction, *second)),
                (*first[packed - 1 :], *second[packed - 1 :]),
            )
        ]

    def multiply(target: Tensor, accumulate: bool | None, use: str) -> None:
        for one, two, box in parts:
            dst = target.resolve(call, box, use)
            transposes = is_transpose and dst.dtype == one.dtype == two.dtype and accumulate is False
            isa.nc_matmul(
                dst=dst, stationary=one, moving=two, accumulate=accumulate, is_transpose=transposes, **options
            )

    return result(
        call,
        (*rows, *columns),
        left.format if is_transpose and left.format == right.format else dtypes.float32,
        lambda target: multiply(target, False, WRITE),
        boxes=[box for _, _, box in parts],
        buffer=Memory.psum,
        buffers=(Memory.psum,),
        accumulates=lambda target: multiply(target, None, ACCUMULATE),
        exact=True,
    )


def _perf_mode(mode: Any) -> Any:
    """Return a mode by its name; names end with the generation in this dialect."""
    if not isinstance(mode, str):
        return mode
    name = mode.removesuffix("_gen3")
    known = getattr(isa.matmul_perf_mode, name, None)
    if known is None:
        raise Unsupported(
            f"nisa.nc_matmul: perf_mode={mode!r} is not built",
            advice="leave perf_mode out, and multiply tiles as they are",
        )
    return known


def _cuts(left: Tensor, right: Tensor, mask: Any, call: str) -> Cuts | None:
    """Return what of the contraction, of stationary's columns and of moving's takes part; None for nothing.

    A mask's axis 0 is the contraction. Its axis 1 is the free axis of the operand that has this extent; where both
    have it, a third axis tells them apart, or brackets with a comparison do: ``stationary[i_f < n]``.
    """
    if left.shape[0] != right.shape[0]:
        raise IllegalOperand(
            f"{call}: stationary has {left.shape[0]} partitions and moving has {right.shape[0]}",
            numbers=(f"stationary  {left.describe()}", f"moving      {right.describe()}"),
            advice="both are contracted along their partitions",
        )
    contraction = (0, left.shape[0])
    frees = [tuple((0, extent) for extent in operand.shape[1:]) for operand in (left, right)]
    for place, operand in enumerate((left, right)):
        if operand.operand_mask is not None:
            boxes = boxes_of(operand.operand_mask, operand.shape, call)
            if not boxes:
                return None
            contraction = _met(contraction, boxes[0][0])
            if len(boxes) > 1:
                raise Unsupported(f"{call}: an operand's mask that is no box", advice="mask one axis at a time")
            frees[place] = tuple(boxes[0][1:])
    if not isinstance(mask, Predicate) and not boxes_of(mask, left.shape, call):
        return None
    for term, name in mask.terms if isinstance(mask, Predicate) else ():
        axes = [axis for axis, step in enumerate(term.steps) if step]
        if not axes:
            if not boxes_of(Predicate(((term, name),)), (1,), call):
                return None
            continue
        place = _operand_of(term, axes, left, right, call)
        if place < 0:
            boxes = boxes_of(Predicate(((_axis(term, axes[0]), name),)), (contraction[1],), call)
            contraction = _met(contraction, boxes[0][0] if boxes else (0, 0))
            continue
        extent = (left, right)[place].shape[1]
        boxes = boxes_of(Predicate(((_axis(term, axes[0]), name),)), (extent,), call)
        cut = _met(frees[place][0], boxes[0][0] if boxes else (0, 0))
        frees[place] = (cut, *frees[place][1:])
    if any(low >= high for low, high in (contraction, *frees[0], *frees[1])):
        return None
    return contraction, frees[0], frees[1]


def _operand_of(term: Affine, axes: list[int], left: Tensor, right: Tensor, call: str) -> int:
    """Return -1 for the contraction, 0 for stationary's columns, 1 for moving's."""
    if len(axes) > 1 or left.ndim != 2 or right.ndim != 2:
        raise Unsupported(f"{call}: a mask over several axes of an operand", advice="mask one axis at a time")
    (axis,) = axes
    if term.ndim == 3:
        return axis - 1
    if axis == 0:
        return -1
    extents = [operand.shape[1] == term.shape[axis] for operand in (left, right)]
    if sum(extents) != 1:
        raise IllegalOperand(
            f"{call}: a mask on axis 1, which may be either operand's free axis",
            numbers=(f"stationary  {left.describe()}", f"moving      {right.describe()}"),
            advice="mask the operand: stationary[i_f < n], or moving[i_f < n]",
        )
    return extents.index(True)


def _axis(term: Affine, axis: int) -> Affine:
    return Affine((term.shape[axis],), (term.steps[axis],), term.offset)


def _met(one: Range, other: Range) -> Range:
    return max(one[0], other[0]), min(one[1], other[1])


def nc_transpose(
    data: Any, *, mask: Any = None, dtype: Any = None, engine: Engine = Engine.unknown, name: str | None = None
) -> Tensor:
    """Return the transpose of partitions and free axes: in PSUM from Tensor, in SBUF from Vector (32 × 32 at most).

    Without ``engine``, Tensor transposes what is in SBUF and Vector what is in PSUM; a small result that is assigned
    to an SBUF tile comes from Vector. *Assumed*: the manual says "automatically".
    """
    call = "nisa.nc_transpose"
    source = tile(data, "data", call)
    begin(call)
    boxes = boxes_of(mask, source.shape, call)
    if len(boxes) > 1 or (boxes and source.ndim > 2 and boxes[0] != whole_box(source.shape)):
        raise Unsupported(
            f"{call}: a mask that is no box of partitions and one free axis",
            advice="transpose the tile in several calls, each with a mask of partitions and of one free axis",
        )
    moved = [source.resolve(call, box) for box in boxes]
    turned: list[Box] | None = [(box[1], box[0]) for box in boxes] if mask is not None and source.ndim == 2 else None
    free = source.size // source.shape[source.par]
    small = max(source.shape[source.par], free) <= 32
    on_vector = engine is Engine.vector or (engine is Engine.unknown and source.buffer is Memory.psum)

    def issue(target: Tensor) -> None:
        for box, one in zip(boxes, moved, strict=True):
            whole = one.free_elements == free and one.partitions == source.shape[source.par]
            cut = None if whole else (box[1], box[0])
            isa.nc_transpose(dst=target.resolve(call, cut, WRITE), data=one, engine=engine, name=name)

    buffers: tuple[Memory, ...] = (Memory.psum,)
    if on_vector or (engine is Engine.unknown and small):
        buffers = (Memory.sbuf, Memory.psum)
    made = result(
        call,
        (free, source.shape[source.par]),
        source.format,
        issue,
        boxes=turned if boxes else [],
        buffer=Memory.sbuf if on_vector else Memory.psum,
        buffers=buffers,
        exact=True,
    )
    known = result_dtype(dtype, call, source)
    return made if known == source.format else copied(made, known, turned, call)
