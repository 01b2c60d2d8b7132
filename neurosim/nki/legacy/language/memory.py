"""Legacy ``nki.language``: tensors, constants, loads and stores.

Source: NKI 0.1 documentation of each function; block dimensions: ``nki.compiler.sbuf.alloc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from neurosim.datapath.rules import is_number
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand
from neurosim.execution import seen
from neurosim.memory import array_bytes
from neurosim.nki import isa
from neurosim.nki.legacy.compiler import AUTOMATIC, Placement, psum
from neurosim.nki.legacy.index import Box, boxes_of, is_int
from neurosim.nki.legacy.lowering import copied, in_place, lanewise, moved_to_sbuf, number, result, tile, wrap
from neurosim.nki.legacy.promotion import chosen, result_dtype
from neurosim.nki.legacy.roots import Blocks
from neurosim.nki.legacy.state import begin, run_of
from neurosim.nki.legacy.tensor import READ, WRITE, Tensor, view_of


class par_dim(int):
    """The extent of a tensor's partition axis, as in ``nl.ndarray((4, nl.par_dim(128), 512), …)``.

    Axes before it count tiles.
    """

    __slots__ = ()

    def __new__(cls, extent: Any) -> par_dim:
        """Return the extent; IllegalOperand where it is no int."""
        if not is_int(extent):
            raise IllegalOperand(f"nl.par_dim({extent!r})", advice="give an int")
        return super().__new__(cls, extent)


def ndarray(
    shape: Sequence[Any], dtype: Any, *, buffer: Any = None, name: str = "", lazy_initialization: bool = False
) -> Tensor:
    """Return a new tensor, unwritten.

    Args:
        shape: extents; on chip ``nl.par_dim`` marks the partition axis, the first one by default.
        dtype: an NKI dtype.
        buffer: ``nl.sbuf`` (the default), ``nl.psum``, a kind of HBM, or ``nki.compiler.….alloc(…)``.
        name: for messages and traces.
        lazy_initialization: a hint to the compiler that changes nothing here.
    """
    return _new("nl.ndarray", shape, dtype, buffer, name, None)


def _new(call: str, shape: Sequence[Any], dtype: Any, buffer: Any, name: str, fill: Any) -> Tensor:
    run = begin(call)
    with run.kernel.located():
        extents = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        if not all(is_int(extent) for extent in extents):
            raise IllegalOperand(f"{call}: shape {shape!r} is not made of ints", advice="pass a tuple of Python ints")
        known = chosen(dtype, call)
        if isinstance(buffer, Memory) and buffer.is_hbm:
            return _in_hbm(extents, known, buffer, name, fill, call)
        marked = [axis for axis, extent in enumerate(extents) if isinstance(extent, par_dim)]
        if len(marked) > 1:
            raise IllegalOperand(
                f"{call}: shape {shape!r} has more than one nl.par_dim",
                advice="mark the partition axis alone; axes before it are blocks",
            )
        memory, place = Memory.sbuf, None
        if isinstance(buffer, Placement):
            traced = run.tracker.traced(run.kernel.stack(), buffer)
            memory, place = traced.memory, traced.placer(run.kernel.chip)
        elif isinstance(buffer, Memory):
            memory = buffer
        elif buffer is psum:
            memory = Memory.psum
        elif buffer is not None and not isinstance(buffer, AUTOMATIC):
            raise IllegalOperand(f"{call}: buffer={buffer!r} is not a memory", advice="use nl.sbuf, nl.psum, …")
        whole = tuple(int(extent) for extent in extents)
        return view_of(Blocks(run, whole, known, memory, marked[0] if marked else 0, name, fill, place))


def _in_hbm(extents: tuple[Any, ...], dtype: Any, buffer: Memory, name: str, fill: Any, call: str) -> Tensor:
    """Return an HBM tensor; programs of a grid share those that are not private. Only the first of them fills one."""
    kernel = run_of(call).kernel
    made = kernel.allocate(extents, dtype, buffer, name)
    if fill is not None and (buffer is Memory.private_hbm or not any(kernel.program_id)):
        _fill_hbm(made, fill, call)
    return wrap(made)


def _fill_hbm(tensor: Any, fill: Any, call: str) -> None:
    """Fill an HBM tensor: a row of SBUF is filled and stored."""
    from neurosim.nki.legacy.roots import fill_value

    run = begin(call)
    flat = tensor.reshape((tensor.size,))
    pmax = run.kernel.chip.partitions
    width = max(1, min(2048, tensor.size // pmax))
    patch = run.kernel.allocate((pmax, width), tensor.dtype, Memory.sbuf)
    isa.memset(dst=patch, value=fill_value(fill, tensor.dtype))
    for start in range(0, tensor.size, pmax * width):
        count = min(pmax * width, tensor.size - start)
        rows, rest = divmod(count, width)
        if rows:
            isa.dma_copy(dst=flat[start : start + rows * width], src=patch[0:rows])
        if rest:
            isa.dma_copy(dst=flat[start + rows * width : start + count], src=patch[0:1, 0:rest])


def full(shape: Any, fill_value: Any, dtype: Any, *, buffer: Any = None, name: str = "", **options: Any) -> Tensor:
    """Return a new tensor that holds ``fill_value``; a tile is filled when it is first used."""
    _known_options("nl.full", options)
    number(fill_value, "fill_value", "nl.full")
    return _new("nl.full", shape, dtype, buffer, name, fill_value)


def zeros(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **options: Any) -> Tensor:
    """Return a new tensor of zeros. In PSUM the first matmul overwrites instead of adding to them."""
    _known_options("nl.zeros", options)
    return _new("nl.zeros", shape, dtype, buffer, name, 0)


def ones(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **options: Any) -> Tensor:
    """Return a new tensor of ones."""
    _known_options("nl.ones", options)
    return _new("nl.ones", shape, dtype, buffer, name, 1)


def _known_options(call: str, options: dict[str, Any]) -> None:
    unknown = set(options) - {"lazy_initialization"}
    if unknown:
        raise IllegalOperand(f"{call}: no option {', '.join(sorted(unknown))}", advice="leave it out")


def zeros_like(a: Tensor, dtype: Any = None, *, buffer: Any = None, name: str = "") -> Tensor:
    """Return a new tensor of zeros with the shape of ``a``, and its dtype and memory unless given."""
    return _new("nl.zeros_like", *_like(a, dtype, buffer), name, 0)


def empty_like(a: Tensor, dtype: Any = None, *, buffer: Any = None, name: str = "") -> Tensor:
    """Return a new, unwritten tensor with the shape of ``a``, and its dtype and memory unless given."""
    return _new("nl.empty_like", *_like(a, dtype, buffer), name, None)


def full_like(a: Tensor, fill_value: Any, dtype: Any = None, *, buffer: Any = None, name: str = "") -> Tensor:
    """Return a new tensor of ``fill_value`` with the shape of ``a``, and its dtype and memory unless given."""
    return _new("nl.full_like", *_like(a, dtype, buffer), name, fill_value)


def _like(a: Any, dtype: Any, buffer: Any) -> tuple[list[Any], Any, Any]:
    if not isinstance(a, Tensor):
        raise IllegalOperand(f"{a!r} is no tensor that another could be like", advice="pass a tensor of the kernel")
    shape: list[Any] = list(a.shape)
    if a.par > 0:
        shape[a.par] = par_dim(shape[a.par])
    return shape, a.format if dtype is None else dtype, a.buffer if buffer is None else buffer


def shared_constant(constant: Any, dtype: Any = None) -> Tensor:
    """Return an HBM tensor with the values of an array."""
    call = "nl.shared_constant"
    run = begin(call)
    array = np.asarray(constant)
    if dtype is None and array.dtype == np.float64:
        dtype = np.float32
    known = chosen(array.dtype if dtype is None else dtype, call)
    values = np.ascontiguousarray(array.astype(known.numpy))
    if not values.ndim or not values.size:
        raise IllegalOperand(
            f"{call}: an array of shape {values.shape}", advice="pass an array with at least one axis and one element"
        )
    return wrap(run.kernel.adopt(values.shape, known, values.nbytes, array_bytes(values), "constant"))


def shared_identity_matrix(n: int, dtype: Any = np.uint8) -> Tensor:
    """Return an identity matrix in HBM."""
    if not is_int(n) or n < 1:
        raise IllegalOperand(f"nl.shared_identity_matrix({n!r})", advice="give its extent")
    return shared_constant(np.eye(int(n)), chosen(dtype, "nl.shared_identity_matrix"))


def load(src: Any, *, mask: Any = None, dtype: Any = None) -> Tensor:
    """Return a new SBUF tile with the values of an HBM tensor; what a mask leaves out is not written."""
    call = "nl.load"
    run = begin(call)
    with run.kernel.located():
        source = _in(src, call)
        boxes = boxes_of(mask, source.shape, call)
        parts = [(box, source.resolve(call, box)) for box in boxes]

        def issue(target: Tensor) -> None:
            for box, moved in parts:
                place = target.resolve(call, box if len(box) > 1 else (*box, (0, 1)), WRITE)
                isa.dma_copy(dst=place, src=moved)

        known = result_dtype(dtype, call, source)
        return result(call, source.shape, known, issue, boxes=boxes, buffers=(Memory.sbuf,))


def _in(value: Any, call: str) -> Tensor:
    if not isinstance(value, Tensor) or not value.buffer.is_hbm:
        what = value.describe() if isinstance(value, Tensor) else repr(value)
        raise IllegalOperand(
            f"{call} of {what}: it must be a tensor in HBM",
            advice="pass an argument of the kernel, or an nl.ndarray with buffer=nl.shared_hbm",
        )
    return value


def store(dst: Any, value: Any, *, mask: Any = None) -> None:
    """Store a tile into an HBM tensor; what a mask leaves out is not written. From PSUM a copy goes before."""
    call = "nl.store"
    run = begin(call)
    with run.kernel.located():
        target = _in(dst, call)
        if is_number(value):
            value = full(target.shape, value, target.format)
        source = tile(value, "value", call)
        if source.shape != target.shape:
            source, target = _matched(source, target, mask)
        boxes = in_place(call, mask, target)
        if source.buffer is Memory.psum:
            source = moved_to_sbuf(source, call) if mask is None else _copied(source, target, mask)
        for box in boxes:
            moved = source.resolve(call, box if source.ndim == len(box) else (*box, (0, 1)), READ)
            isa.dma_copy(dst=target.resolve(call, box, WRITE), src=moved)


def _copied(source: Tensor, target: Tensor, mask: Any) -> Tensor:
    return lanewise(
        "nl.store",
        source.shape,
        source.format,
        mask if source.shape == target.shape else None,
        (source,),
        lambda dst, one: isa.tensor_copy(dst=dst, src=one),
    )


def _matched(source: Tensor, target: Tensor, mask: Any) -> tuple[Tensor, Tensor]:
    """Return both with one shape: by axes of extent 1, by broadcasting, or by the order of elements."""
    fitted = source.fitted(target.shape)
    if fitted is not None:
        return fitted, target
    wide = target.fitted(source.shape)
    if wide is not None:
        return source, wide
    if source.size == target.size and mask is None:
        return source, _reshaped(target, source.shape)
    return source.spread(target.shape), target


def _reshaped(target: Tensor, shape: tuple[int, ...]) -> Tensor:
    return wrap(target.resolve("nl.store", use="").reshape(shape))


def atomic_rmw(dst: Any, value: Any, op: Any, *, mask: Any = None) -> None:
    """Add a tile to rows of an HBM tensor that a tile of indices chooses; ``op`` is ``np.add``."""
    from neurosim.nki.legacy.isa import dma_copy

    dma_copy(dst=_in(dst, "nl.atomic_rmw"), src=value, mask=mask, dst_rmw_op=op)


def load_transpose2d(src: Any, *, mask: Any = None, dtype: Any = None) -> Tensor:
    """Return a new SBUF tile with the transpose of an HBM matrix, moved by the DMA engines."""
    call = "nl.load_transpose2d"
    begin(call)
    source = _in(src, call)
    if source.ndim != 2:
        raise IllegalOperand(f"{call}: src has {source.ndim} axes; it must have 2", advice="reshape it to two axes")
    boxes = boxes_of(mask, source.shape, call)
    turned: list[Box] = [(box[1], box[0]) for box in boxes]
    parts = [(cut, source.resolve(call, box)) for cut, box in zip(turned, boxes, strict=True)]

    def issue(target: Tensor) -> None:
        for cut, moved in parts:
            isa.dma_transpose(dst=target.resolve(call, cut, WRITE), src=moved)

    made = result(call, source.shape[::-1], source.format, issue, boxes=turned, buffers=(Memory.sbuf,), exact=True)
    known = result_dtype(dtype, call, source)
    return made if known == source.format else copied(made, known, turned, call)


def broadcast_to(src: Any, *, shape: Any) -> Tensor:
    """Return a tile repeated along axes of extent 1."""
    return tile(src, "src", "nl.broadcast_to").broadcast_to(shape)


def expand_dims(data: Any, axis: int) -> Tensor:
    """Return a tile with an axis of extent 1 more."""
    return tile(data, "data", "nl.expand_dims").expand_dims(axis)


def copy(src: Any, *, mask: Any = None, dtype: Any = None) -> Tensor:
    """Return a copy of a tile."""
    call = "nl.copy"
    source = tile(src, "src", call)
    return lanewise(
        call,
        source.shape,
        result_dtype(dtype, call, source),
        mask,
        (source,),
        lambda dst, one: isa.tensor_copy(dst=dst, src=one),
    )


def static_cast(value: Any, dtype: Any) -> Any:
    """Return a number, an array or a tile as another dtype; scripts prepare a kernel's arguments with it, too."""
    if isinstance(value, Tensor):
        return copy(value, dtype=dtype)
    call = "nl.static_cast"
    if isinstance(value, np.ndarray):
        return value.astype(chosen(dtype, call).numpy)
    number(value, "value", call)
    return chosen(dtype, call).numpy.type(value)


def device_print(prefix: str, x: Any = None, *, mask: Any = None) -> None:
    """Print a tile's values now, behind a prefix."""
    begin("nl.device_print")
    seen.note("nl.device_print shows values")
    print(prefix, x)
