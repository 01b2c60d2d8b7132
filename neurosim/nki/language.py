"""``nki.language`` as kernels import it.

Source of the names: AWS Neuron SDK, ``nki/api/nki/language/__init__.py`` (NKI 0.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from neurosim.dtypes import bfloat16 as bfloat16
from neurosim.dtypes import bool_ as bool_
from neurosim.dtypes import float4_e2m1fn_x4 as float4_e2m1fn_x4
from neurosim.dtypes import float8_e4m3 as float8_e4m3
from neurosim.dtypes import float8_e4m3fn as float8_e4m3fn
from neurosim.dtypes import float8_e4m3fn_x4 as float8_e4m3fn_x4
from neurosim.dtypes import float8_e5m2 as float8_e5m2
from neurosim.dtypes import float8_e5m2_x4 as float8_e5m2_x4
from neurosim.dtypes import float8_e8m0fnu as float8_e8m0fnu
from neurosim.dtypes import float16 as float16
from neurosim.dtypes import float32 as float32
from neurosim.dtypes import int8 as int8
from neurosim.dtypes import int16 as int16
from neurosim.dtypes import int32 as int32
from neurosim.dtypes import tfloat32 as tfloat32
from neurosim.dtypes import uint8 as uint8
from neurosim.dtypes import uint16 as uint16
from neurosim.dtypes import uint32 as uint32
from neurosim.engines import Memory as MemoryRegion
from neurosim.errors import IllegalOperand
from neurosim.execution import seen
from neurosim.execution.device_loops import dynamic_range as dynamic_range
from neurosim.execution.device_loops import fori_loop as fori_loop
from neurosim.execution.device_loops import while_loop as while_loop
from neurosim.kernel import current
from neurosim.launch.grids import NeuronCores
from neurosim.launch.objects import NKIObject as NKIObject
from neurosim.nki import isa
from neurosim.nki._constants import fill_hbm
from neurosim.nki._constants import shared_constant as shared_constant
from neurosim.nki._constants import shared_identity_matrix as shared_identity_matrix
from neurosim.nki._functions import OPERATORS
from neurosim.nki._missing import missing
from neurosim.nki._moving import broadcast_to as broadcast_to
from neurosim.nki._moving import expand_dims as expand_dims
from neurosim.nki._moving import gather_flattened as gather_flattened
from neurosim.nki._moving import load_transpose2d as load_transpose2d
from neurosim.nki._moving import matmul as matmul
from neurosim.nki._moving import transpose as transpose
from neurosim.nki._moving import where as where
from neurosim.nki._random import dropout as dropout
from neurosim.nki._random import rand as rand
from neurosim.nki._random import random_seed as random_seed
from neurosim.nki._reductions import all as all
from neurosim.nki._reductions import max as max
from neurosim.nki._reductions import mean as mean
from neurosim.nki._reductions import min as min
from neurosim.nki._reductions import prod as prod
from neurosim.nki._reductions import rms_norm as rms_norm
from neurosim.nki._reductions import softmax as softmax
from neurosim.nki._reductions import sum as sum
from neurosim.nki._reductions import var as var
from neurosim.nki._sequences import ceil as ceil
from neurosim.nki._sequences import cos as cos
from neurosim.nki._sequences import floor as floor
from neurosim.nki._sequences import negative as negative
from neurosim.nki._sequences import tan as tan
from neurosim.nki._sequences import trunc as trunc
from neurosim.nki._tile_size import TileSize
from neurosim.record.iterations import iterations
from neurosim.view import NkiTensor as NkiTensor
from neurosim.views.indexing import DynamicSlice
from neurosim.views.ranges import AffineRange

sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
hbm = MemoryRegion.hbm
private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm

tile_size = TileSize()

ds = DynamicSlice
nc = NeuronCores


class par_dim(int):
    """The extent of a tensor's partition axis, said so: ``nl.ndarray((nl.par_dim(128), 512), …)``.

    An older spelling that kernels in use still have; it must stand first, where the partition axis is.
    """


def ndarray(
    shape: Sequence[int],
    dtype: Any,
    buffer: MemoryRegion = sbuf,
    name: str = "",
    address: tuple[int, int] | None = None,
) -> NkiTensor:
    """Return a new, unwritten tensor.

    Args:
        shape: extents; on chip the first axis is partitions, at most 128.
        dtype: an NKI dtype.
        buffer: ``nl.sbuf``, ``nl.psum``, ``nl.hbm``, ``nl.private_hbm`` or ``nl.shared_hbm``.
        name: for messages and traces.
        address: on chip, (partition, byte within the partition); tensors with addresses may overlap, and alias there.

    Raises:
        IllegalOperand, CapacityExceeded, OutOfBounds: the shape, the size or the address is impossible.
    """
    if isinstance(shape, (tuple, list)) and par_dim in map(type, shape):
        if par_dim in map(type, shape[1:]):
            raise IllegalOperand(
                f"nl.ndarray: nl.par_dim in shape {shape!r} is not the first extent",
                advice="the first axis of an on-chip tensor is its partitions",
            )
        shape = [int(shape[0]), *shape[1:]]
    return current("nl.ndarray").allocate(shape, dtype, buffer, name, address)


def full(shape: Sequence[int], fill_value: float, dtype: Any, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """Return a new tensor that holds ``fill_value`` everywhere.

    Lowers to ``memset``; in HBM, which no engine fills, to ``memset`` of an SBUF tile and ``dma_copy`` (*assumed*).
    """
    tensor = ndarray(shape, dtype, buffer, name)
    if tensor.buffer.is_hbm:
        fill_hbm(tensor, fill_value)
    else:
        isa.memset(dst=tensor, value=fill_value)
    return tensor


def zeros(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """Return a new tensor of zeros, as ``full`` does."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Sequence[int], dtype: Any, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """Return a new tensor of ones, as ``full`` does."""
    return full(shape, 1, dtype, buffer, name)


def empty_like(x: NkiTensor, dtype: Any = None, buffer: MemoryRegion | None = None, name: str = "") -> NkiTensor:
    """Return a new, unwritten tensor with the shape of ``x``, and its dtype and memory unless given."""
    _check_tensor("nl.empty_like", "x", x)
    return ndarray(x.shape, x.dtype if dtype is None else dtype, x.buffer if buffer is None else buffer, name)


def zeros_like(x: NkiTensor, dtype: Any = None, buffer: MemoryRegion | None = None, name: str = "") -> NkiTensor:
    """Return a new tensor of zeros with the shape of ``x``, and its dtype and memory unless given.

    *Assumed* of the memory: the manual's text says SBUF, its signature None, as ``empty_like`` has for that of ``x``.
    """
    _check_tensor("nl.zeros_like", "x", x)
    return zeros(x.shape, x.dtype if dtype is None else dtype, x.buffer if buffer is None else buffer, name)


def load(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Return a new SBUF tile with the values of an HBM tensor, cast to ``dtype`` if given: ``dma_copy``.

    Raises:
        IllegalOperand: ``src`` is on the chip: the manual documents loads from HBM alone.
    """
    _check_memory("nl.load", "src", src, shared_hbm)
    tile = ndarray(src.shape, src.dtype if dtype is None else dtype)
    isa.dma_copy(dst=tile, src=src)
    return tile


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Store an SBUF tile into an HBM tensor: ``dma_copy``.

    Raises:
        IllegalOperand: ``dst`` is on the chip, or ``value`` is not in SBUF: the manual documents no other stores.
    """
    _check_memory("nl.store", "dst", dst, shared_hbm)
    _check_memory("nl.store", "value", value, sbuf)
    isa.dma_copy(dst=dst, src=value)


def affine_range(start: int, stop: int | None = None, step: int = 1) -> AffineRange:
    """Return a range whose loop is unrolled and says that its iterations are independent.

    They run in order; iterations that depend on each other are a note in the report
    (:mod:`neurosim.analysis.independence`).
    """
    return AffineRange(sequential_range(start, stop, step), iterations)


def sequential_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Return Python's range; the loop is unrolled."""
    try:
        return range(start) if stop is None else range(start, stop, step)
    except (TypeError, ValueError) as error:
        given = ", ".join(repr(bound) for bound in (start, stop, step))
        raise IllegalOperand(
            f"a loop over range({given}): {error}", advice="give ints; a bound in a register needs nl.fori_loop"
        ) from None


static_range = sequential_range


def no_reorder() -> AbstractContextManager[None]:
    """Return a context manager that keeps the order of all instructions issued inside it.

    Each of them depends on the one before it: recorded as edges, and honoured by timing.
    """
    return current("nl.no_reorder").no_reorder()


def program_id(axis: int = 0) -> int:
    """Return the number of this program along an axis of the launch grid: 0 or 1 with ``kernel[2]``, else 0."""
    kernel = current("nl.program_id")
    with kernel.located():
        return kernel.grid.program_id(kernel.program_id, axis)


def num_programs(axes: int | Sequence[int] | None = 0) -> int:
    """Return the number of programs along axes of the launch grid (None: all): 2 with ``kernel[2]``, else 1."""
    kernel = current("nl.num_programs")
    with kernel.located():
        return kernel.grid.num_programs(axes)


def program_ndim() -> int:
    """Return the number of axes of the launch grid, 0 without a grid."""
    return len(current("nl.program_ndim").grid.extents)


def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Print the values of an SBUF or HBM tensor now, behind a prefix; in a loop on the device, those of each trip.

    Hardware writes them to files of ``NEURON_RT_DEBUG_OUTPUT_DIR`` instead; its simulator prints, as this does.
    """
    if not isinstance(print_prefix, str):
        raise IllegalOperand(
            f"nl.device_print: print_prefix={print_prefix!r} is not a string",
            advice="pass text, as in nl.device_print('tile', tile)",
        )
    if not isinstance(tensor, NkiTensor) or tensor.buffer is psum:
        what = tensor.describe() if isinstance(tensor, NkiTensor) else repr(tensor)
        raise IllegalOperand(f"nl.device_print of {what}", advice="it prints tensors in SBUF or HBM")
    kernel = current("nl.device_print")
    seen.note("nl.device_print shows values")
    kernel.perform(lambda: print(print_prefix, tensor if kernel.values else f"{tensor.describe()}\nnot computed"))


def is_hbm(buffer: MemoryRegion) -> bool:
    """Return whether a memory region is a kind of HBM."""
    return _region("nl.is_hbm", buffer).is_hbm


def is_on_chip(buffer: MemoryRegion) -> bool:
    """Return whether a memory region is SBUF or PSUM."""
    return _region("nl.is_on_chip", buffer).is_on_chip


def is_psum(buffer: MemoryRegion) -> bool:
    """Return whether a memory region is PSUM."""
    return _region("nl.is_psum", buffer) is psum


def is_sbuf(buffer: MemoryRegion) -> bool:
    """Return whether a memory region is SBUF."""
    return _region("nl.is_sbuf", buffer) is sbuf


def _region(call: str, buffer: Any) -> MemoryRegion:
    if not isinstance(buffer, MemoryRegion):
        raise IllegalOperand(f"{call} of {buffer!r}", advice="give a memory region, such as a tensor's buffer")
    return buffer


def _check_tensor(call: str, name: str, value: Any) -> None:
    if not isinstance(value, NkiTensor):
        raise IllegalOperand(
            f"{call}: {name} is {value!r}; it must be a tensor",
            advice="pass a tensor of the kernel, as nl.ndarray or nl.load make",
        )


def _check_memory(call: str, name: str, value: Any, memory: MemoryRegion) -> None:
    """Refuse what is no tensor in SBUF, or in any kind of HBM."""
    _check_tensor(call, name, value)
    if value.buffer is not memory and not (memory.is_hbm and value.buffer.is_hbm):
        raise IllegalOperand(
            f"{call}: {name} {value.describe()}; it must be in {memory.label}",
            advice="nisa.tensor_copy copies from tile to tile, nisa.dma_copy between SBUF and HBM and within HBM",
        )


_NOT_BUILT: frozenset[str] = frozenset()


_OLDER = {"bool": bool_, "range": range}
"""Names that public kernels use and NKI 0.6 does not document; as globals they would hide Python's in this module."""


def __getattr__(name: str) -> Any:
    if name in OPERATORS:
        return OPERATORS[name]
    if name in _OLDER:
        return _OLDER[name]
    raise missing("nki.language", name, _NOT_BUILT, __dir__())


def __dir__() -> list[str]:
    return sorted([*globals(), *OPERATORS])
