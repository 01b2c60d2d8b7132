"""Reusable rules for operands. A rule returns None, or what is broken with numbers and advice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from numbers import Integral, Real
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from neurosim.chip import Chip
from neurosim.dtypes import DType, Kind, float32
from neurosim.engines import Memory
from neurosim.errors import UnknownBehavior
from neurosim.execution.operands import Operand
from neurosim.program import Access
from neurosim.view import NkiTensor

_SINCE_TRN3: Final = {
    "abs_max": "take nl.abs first, then the maximum",
    "abs_min": "take nl.abs first, then the minimum",
    "square": "multiply the tile with itself by nisa.tensor_tensor",
    "relu": "take nl.maximum with 0.0",
}
"""Operators of Vector that only NeuronCore-v4 has, and what to do without them."""

_PRODUCTS = {2: "trn1", 3: "trn2", 4: "trn3"}
"""What has a generation of the NeuronCore."""


class Shown(NamedTuple):
    """A line on an operand, under a name that is padded to ``width``.

    It is written when a rule is broken and not before: what a tensor is called stands in the kernel's source, which
    has to be read for it.
    """

    name: str
    tensor: NkiTensor
    width: int = 0

    def __str__(self) -> str:
        return f"{self.name:{self.width}}  {self.tensor.describe()}"


@dataclass(frozen=True, slots=True)
class Broken:
    """A broken rule: what, numbers (a line each, as ``str`` writes them), what to do."""

    what: str
    numbers: tuple[object, ...] = ()
    advice: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """The numbers as text."""
        return tuple(map(str, self.numbers))


def is_number(value: Any) -> bool:
    """Return whether a value is a real number, a scalar of ml_dtypes included; bool is none."""
    if isinstance(value, (bool, np.bool_)):
        return False
    return isinstance(value, Real) or (isinstance(value, np.generic) and isinstance(value.item(), float))


def is_whole(value: Any) -> bool:
    """Return whether a value is an integer, of NumPy or of Python; bool is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def as_float(value: Any) -> float:
    """Return a number as a Python float; an integer beyond those as an infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def overflows(value: Any, dtype: DType) -> bool:
    """Return whether a number is finite and rounds to no finite value of a float format."""
    number = as_float(value)
    half_step = 2.0 ** (math.frexp(dtype.max_value)[1] - 2 - dtype.mantissa_bits)
    is_finite = math.isfinite(number) or isinstance(value, int)
    return is_finite and abs(number) >= dtype.max_value + half_step


def fits_float32(name: str, value: Any) -> Broken | None:
    """A number that the datapath takes as float32 rounds to one."""
    if not is_number(value) or not overflows(value, float32):
        return None
    return Broken(
        f"{name} {value!r} does not fit float32",
        (f"float32 ends at {float32.max_value}",),
        advice="the engine takes numbers as float32: pass a smaller one",
    )


def _both(name: str, tensor: NkiTensor, other_name: str, other: NkiTensor) -> tuple[Shown, ...]:
    width = max(len(name), len(other_name))
    return Shown(name, tensor, width), Shown(other_name, other, width)


def same_partitions(name: str, tensor: NkiTensor, other_name: str, other: NkiTensor) -> Broken | None:
    """Both operands span the same number of partitions."""
    if tensor.partitions == other.partitions:
        return None
    return Broken(
        f"{name} has {tensor.partitions} partitions and {other_name} has {other.partitions}",
        _both(name, tensor, other_name, other),
        "give both the same partition extent" + _repeating_partitions(name, tensor, other_name, other),
    )


def _repeating_partitions(name: str, tensor: NkiTensor, other_name: str, other: NkiTensor) -> str:
    """Say how a source of one partition gets more: no view repeats partitions, a DMA from HBM does."""
    (least, narrow), (most, _) = sorted(((tensor.partitions, name), (other.partitions, other_name)))
    if least != 1 or "dst" in narrow:
        return ""
    return (
        f"; a row for all {most} comes from HBM as {most} copies: "
        f"nisa.dma_copy(dst=tile, src=row.broadcast(0, {most})), where row is [1, …] in HBM"
    )


def to_one_size(dst: NkiTensor, src: NkiTensor) -> str:
    """Say how a copy's operands get as many elements: slices, or a view that repeats ``src`` along an axis of 1."""
    slices = "slice the larger one to the extent of the smaller"
    added = dst.ndim - src.ndim
    if added < 0 or (added and not src.buffer.is_hbm):
        return slices
    shape = (1,) * added + src.shape
    differing = [axis for axis in range(dst.ndim) if dst.shape[axis] != shape[axis]]
    if any(shape[axis] != 1 or axis == src.partition_axis for axis in differing):
        return slices
    view = ".expand_dim(0)" * added + "".join(f".broadcast({axis}, {dst.shape[axis]})" for axis in differing)
    return f"repeat src with the view src{view}, or slice dst"


def same_elements(name: str, tensor: NkiTensor, other_name: str, other: NkiTensor) -> Broken | None:
    """Both operands have the same partitions and the same number of elements per partition."""
    broken = same_partitions(name, tensor, other_name, other)
    if broken is None and tensor.free_elements != other.free_elements:
        broken = Broken(
            f"{name} has {tensor.free_elements} elements per partition and {other_name} has {other.free_elements}",
            _both(name, tensor, other_name, other),
            "NKI does not broadcast by itself: make the extents equal with .broadcast() or a slice",
        )
    return broken


def same_dtype(name: str, tensor: NkiTensor, other_name: str, other: NkiTensor) -> Broken | None:
    """Both operands have one dtype."""
    if tensor.dtype == other.dtype:
        return None
    return Broken(
        f"{name} is {tensor.dtype} and {other_name} is {other.dtype}; they must have the same dtype",
        _both(name, tensor, other_name, other),
        "cast one of them with nisa.tensor_copy first",
    )


def dtype_in(name: str, tensor: NkiTensor, allowed: tuple[DType, ...]) -> Broken | None:
    """The operand has one of the dtypes."""
    if tensor.dtype in allowed:
        return None
    return Broken(
        f"{name} is {tensor.dtype}; it must be {' or '.join(allowed)}",
        (f"{name}  {tensor.describe()}",),
        "cast it with nisa.tensor_copy, or allocate it with another dtype",
    )


def result_dtype_in(name: str, tensor: NkiTensor, allowed: tuple[DType, ...]) -> Broken | None:
    """The destination has one of the dtypes."""
    broken = dtype_in(name, tensor, allowed)
    if broken is None:
        return None
    others = f" or nl.{allowed[1]}" if len(allowed) == 2 else " or another of these" if len(allowed) > 1 else ""
    moves = ", on the way to SBUF" if tensor.buffer is Memory.psum else ""
    return replace(
        broken,
        advice=f"allocate it with dtype=nl.{allowed[0]}{others}, and cast the result with nisa.tensor_copy{moves}",
    )


def packed(name: str, tensor: NkiTensor, chip: Chip, is_taken: bool) -> Broken | None:
    """A packed format is on a generation that has it, and in an instruction that takes it.

    Source: AWS Neuron SDK, ``nki/api/nki/language/__init__.py``, ``float8_e4m3fn_x4``: NeuronCore-v4 and newer.
    """
    numbers = (f"{name}  {tensor.describe()}",)
    if chip.generation < 4:
        return Broken(
            f"{tensor.dtype} needs NeuronCore-v4 (trn3)",
            (*numbers, f"chip {chip.name}"),
            advice="run it on trn3, or take another dtype",
        )
    if is_taken:
        return None
    return Broken(
        f"{name} is {tensor.dtype}, {tensor.dtype.lanes} values in one element, which no engine computes with here",
        numbers,
        "move it with nisa.dma_copy or nisa.tensor_copy, multiply it with nisa.nc_matmul_mx, or take a .view() of it",
    )


def rounds(what: str, tensor: NkiTensor) -> None:
    """Raise UnknownBehavior where float32 would have to round to the tensor's format, and no public text says how."""
    if tensor.dtype.kind == Kind.SCALE:
        raise UnknownBehavior(
            f"{what} is {tensor.dtype}, which holds powers of two: no public text says how a result rounds to one",
            numbers=(tensor.describe(),),
            advice="compute the code, exponent + 127, as an integer, and write it through .view(nl.uint8)",
        )


def same_format(name: str, tensor: NkiTensor, other_name: str, other: NkiTensor) -> Broken | None:
    """Where source or destination has a packed format, the other one has the same: bits are moved, nothing converts.

    Raises:
        UnknownBehavior: the destination (``name``) has a format to which nothing is known to round.
    """
    if tensor.dtype == other.dtype:
        return None
    if not (tensor.dtype.is_packed or other.dtype.is_packed):
        rounds(name, tensor)
        return None
    return Broken(
        f"{name} is {tensor.dtype} and {other_name} is {other.dtype}; packed formats do not convert",
        _both(name, tensor, other_name, other),
        "take a .view() of one of them in the dtype of the other, so that bits are moved",
    )


def elements_within(name: str, tensor: NkiTensor, least: int, most: int, advice: str) -> Broken | None:
    """The operand has ``least`` to ``most`` elements per partition."""
    count = tensor.free_elements
    if least <= count <= most:
        return None
    wanted = str(most) if least == most else f"at most {most}" if least == 1 else f"{least} to {most}"
    return Broken(
        f"{name} has {count} elements per partition; it must have {wanted}", (f"{name}  {tensor.describe()}",), advice
    )


def axes_within(name: str, tensor: NkiTensor, most: int) -> Broken | None:
    """The operand has at most ``most`` axes, partitions included."""
    if tensor.ndim <= most:
        return None
    return Broken(
        f"{name} has {tensor.ndim} axes; it may have {most}",
        (f"{name}  {tensor.describe()}",),
        "merge free axes with .reshape() or .flatten_dims()",
    )


def repeats_only(tensor: NkiTensor) -> bool:
    """Whether a view reaches elements twice by free axes of step 0 alone, so that each keeps what comes last."""
    first = [slice(0, 1) if step == 0 else slice(None) for step in tensor.steps]
    if 0 <= tensor.partition_axis < tensor.ndim:
        first[tensor.partition_axis] = slice(None)
    return tensor[tuple(first)].is_injective()


def mode(name: str, value: Any, kind: type[Enum]) -> Broken | None:
    """A parameter is a member of its enumeration in ``nki.isa``."""
    return (
        None
        if isinstance(value, kind)
        else Broken(
            f"{name}={value!r} is not a nisa.{name}",
            advice=f"pass one of nisa.{name}: " + ", ".join(entry.name for entry in kind),
        )
    )


def column(name: str, value: Any, data: NkiTensor, dtypes: tuple[DType, ...] | None) -> Broken | None:
    """A per-partition operand is a number, or a [partitions of data, 1] tile of an allowed dtype."""
    if not isinstance(value, NkiTensor):
        return None
    if value.free_elements != 1 or value.partitions != data.partitions:
        return Broken(
            f"{name} has {value.partitions} partitions of {value.free_elements} elements; "
            f"it must be a number or a tile of shape ({data.partitions}, 1)",
            (f"{name}  {value.describe()}",),
            "slice one column, or use tensor_tensor for two full tiles",
        )
    return None if dtypes is None else dtype_in(name, value, dtypes)


def not_both_in_psum(name: str, tensor: Any, other_name: str, other: Any) -> Broken | None:
    """At most one of two inputs is read from PSUM."""
    both = all(isinstance(value, NkiTensor) and value.buffer is Memory.psum for value in (tensor, other))
    if not both:
        return None
    return Broken(
        f"{name} and {other_name} are both in PSUM",
        _both(name, tensor, other_name, other),
        "copy one of them to SBUF with nisa.tensor_copy first",
    )


def within_bank(name: str, tensor: NkiTensor, bank_bytes: int) -> Broken | None:
    """What the tensor engine writes stays within one PSUM bank."""
    axes = zip(tensor.steps, tensor.shape, strict=True)
    reach = sum(step * (extent - 1) for axis, (step, extent) in enumerate(axes) if axis != tensor.partition_axis)
    first = tensor.offset_bytes
    last = first + (reach + 1) * tensor.dtype.size_bytes - 1
    if first // bank_bytes == last // bank_bytes:
        return None
    return Broken(
        f"{name} covers bytes {first} to {last} of a partition and crosses a PSUM bank of {bank_bytes} bytes",
        (f"{name}  {tensor.describe()}",),
        "the tensor engine writes within one bank: slice at multiples of the bank",
    )


def operator_exists(op: str, chip: Chip) -> Broken | None:
    """The generation has the operator.

    Source: AWS Neuron SDK, ``release-notes/components/nki.rst``, NKI 0.4.0: what is new there is ``trn3`` only.
    """
    if chip.generation >= 4 or op not in _SINCE_TRN3:
        return None
    return Broken(f"nl.{op} needs NeuronCore-v4 (trn3)", (f"chip {chip.name}",), _SINCE_TRN3[op])


def no_array(name: str, value: Any) -> Broken | None:
    """A parameter is no NumPy array, which answers a comparison with an array."""
    if isinstance(value, (list, tuple)):
        return next(filter(None, (no_array(name, entry) for entry in value)), None)
    if isinstance(value, np.ndarray) and value.ndim:
        return Broken(f"{name} is a NumPy array {list(value.shape)} {value.dtype}", (), "pass a list of numbers")
    return None


def since(generation: int, chip: Chip, advice: str, what: str = "") -> Broken | None:
    """The generation has the instruction, or ``what`` of it."""
    if chip.generation >= generation:
        return None
    lead = f"{what} needs" if what else "needs"
    return Broken(f"{lead} NeuronCore-v{generation} ({_PRODUCTS[generation]})", (f"chip {chip.name}",), advice)


def access_rules(name: str, tensor: NkiTensor, chip: Chip) -> Iterator[Broken | None]:
    """Rules of every engine's access to on-chip memory: which partitions it may begin at, how deep a pattern is.

    Source: AWS Neuron SDK, ``trainium_inferentia2_arch.rst`` (start partitions; access patterns of at most four
    free axes).
    """
    count, start = tensor.partitions, tensor.start_partition
    step = chip.partitions if count > 64 else 64 if count > 32 else 32
    if start % step:
        allowed = ", ".join(str(begin) for begin in range(0, chip.partitions, step))
        yield Broken(
            f"{name} covers partitions {start} to {start + count - 1}",
            (f"{name}  {tensor.describe()}", f"an access to {count} partitions begins at {allowed}"),
            "move the data to an allowed start partition, or use a DMA",
        )
    yield pattern_depth(name, tensor)


def pattern_depth(name: str, tensor: NkiTensor) -> Broken | None:
    """The hardware's patterns have four free axes."""
    depth = len(merged_axes(tensor))
    if depth <= 4:
        return None
    return Broken(
        f"{name} needs an access pattern with {depth} free axes; the hardware has 4",
        (f"pattern {tensor.get_pattern()}",),
        "copy it into a dense tensor, or split the instruction",
    )


def merged_axes(tensor: NkiTensor) -> list[tuple[int, int]]:
    """Return the free axes as (step, extent), with extent 1 left out and dense neighbours taken as one."""
    merged: list[tuple[int, int]] = []
    for axis, (step, extent) in enumerate(zip(tensor.steps, tensor.shape, strict=True)):
        if axis == tensor.partition_axis or extent == 1:
            continue
        if merged and merged[-1][0] == step * extent:
            merged[-1] = (step, merged[-1][1] * extent)
        else:
            merged.append((step, extent))
    return merged


def bounding_box(mask: npt.NDArray[np.bool_]) -> str:
    """Return the smallest slice that holds all True entries, e.g. ``[127:128, 0:512]``."""
    parts = []
    for axis in range(mask.ndim):
        others = tuple(other for other in range(mask.ndim) if other != axis)
        hits = np.flatnonzero(mask.any(axis=others))
        parts.append(f"{hits[0]}:{hits[-1] + 1}")
    count, total = int(mask.sum()), math.prod(mask.shape)
    return f"[{', '.join(parts)}] ({count} of {total} elements)"


def operand_fits(name: str, value: Any, operand: Operand) -> Broken | None:
    """What stands for an operand is one in a memory that it may live in, or else a number that may stand for it."""
    if isinstance(value, NkiTensor):
        if value.buffer in operand.memories:
            return None
        if Memory.state in (value.buffer, *operand.memories):
            return _no_register(name, value, operand)
        allowed = " or ".join(dict.fromkeys(memory.label for memory in operand.memories))
        what = f"{name} is in {value.buffer.label}; it must be in {allowed}"
        return Broken(what, (f"{name}  {value.describe()}",), _memory_advice(value.buffer, operand))
    if operand.number and is_number(value):
        return fits_float32(name, value)
    if value is None and operand.optional:
        return None
    kind = "a register" if operand.memories == (Memory.state,) else "a tensor"
    wanted = f"{kind} or a number" if operand.number else kind
    advice = "arrays become tensors as arguments of the kernel; on-chip tensors come from nl.ndarray"
    return Broken(f"{name} is {_kind_of(value)}; it must be {wanted}", (), advice)


def _kind_of(value: Any) -> str:
    """Return what stands where a tensor should, in words."""
    if isinstance(value, np.ndarray):
        return f"a NumPy array {list(value.shape)} {value.dtype}"
    return f"{value!r} ({type(value).__name__})"


def _no_register(name: str, value: NkiTensor, operand: Operand) -> Broken:
    """A register in a tensor's place, or a tensor in a register's."""
    numbers = (f"{name}  {value.describe()}",)
    if value.buffer is Memory.state:
        allowed = " or ".join(dict.fromkeys(memory.label for memory in operand.memories))
        what = f"{name} is a register; it must be a tensor in {allowed}"
        return Broken(what, numbers, "store it into a tile with nisa.register_store first")
    return Broken(
        f"{name} is in {value.buffer.label}; it must be a register",
        numbers,
        "allocate one with nisa.register_alloc, and load the tensor's element with nisa.register_load",
    )


def _memory_advice(memory: Memory, operand: Operand) -> str:
    """Return what to do about a tensor in a memory that an operand does not take."""
    if operand.memories == (Memory.psum,):
        return "the tensor engine writes PSUM only: allocate it with buffer=nl.psum"
    if operand.access is not Access.READ and Memory.sbuf in operand.memories:
        return "write an SBUF tile, and move that on with nisa.tensor_copy (to PSUM) or nisa.dma_copy (to HBM)"
    if memory.is_hbm:
        return "load it into SBUF with nisa.dma_copy first"
    if memory is Memory.psum and Memory.sbuf in operand.memories:
        return "copy it to SBUF with nisa.tensor_copy first"
    return "see the instruction's memory types"
