"""A kernel's arguments and results: arrays become tensors on the way in, and tensors arrays on the way out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from neurosim import dtypes
from neurosim.datapath.rules import bounding_box
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand, NeurosimError, UnwrittenOutput
from neurosim.execution import seen
from neurosim.execution.holes import uninitialized
from neurosim.kernel import Kernel
from neurosim.launch.arrays import kind_of, like, to_numpy
from neurosim.launch.objects import fields_of, with_fields
from neurosim.launch.specs import Spec
from neurosim.memory import WRITTEN, Mask, array_bytes
from neurosim.record.naming import default_name, variable
from neurosim.versions import NKI_0_3
from neurosim.view import NkiTensor, whole
from neurosim.views.unusable import UnusableTensor

Array = npt.NDArray[Any]
_LONGEST_PATH = 1000
"""In characters, of a place in what a kernel returns; beyond, it goes round in circles."""


class Arguments:
    """Turns arrays into tensors, and remembers which array each came from.

    They are in ``nl.hbm``, or in ``nl.shared_hbm`` where several cores run. Source: ``nki/guides/nki_simulator.rst``,
    "Execution".

    Attributes:
        kind: library of the first array (``numpy``, ``torch`` or ``jax``), which outputs will belong to.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kind = "numpy"
        self._kernel = kernel
        self._memory = Memory.shared_hbm if kernel.grid.cores > 1 else Memory.hbm
        self._first = True
        self._tensors: dict[int, tuple[Any, Array, NkiTensor]] = {}
        self._specs: dict[str, NkiTensor] = {}
        self._within: list[Any] = []  # objects that are being looked into: one may hold itself
        self._prepared: dict[str, Any] | None = None

    def prepare(self, arguments: Mapping[str, Any]) -> None:
        """Make tensors of all arrays in the arguments, before any core runs: inputs are one for all."""
        self._prepared = self._adopted(arguments)

    def given(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that a program is called with: the same tensors for each, in lists of its own."""
        prepared, self._prepared = self._prepared, None
        return self._adopted(arguments) if prepared is None else prepared

    def _adopted(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {parameter: self.adopt(value, parameter) for parameter, value in arguments.items()}

    def adopt(self, value: Any, name: str) -> Any:
        """Return ``value``, at ``name`` of the arguments, with a tensor in place of each array in it.

        Asked again it gives the same tensors in new lists and dicts.
        """
        kind = kind_of(value)
        if kind is not None or isinstance(value, Spec):
            if self._first and kind is not None:
                self.kind, self._first = kind, False
            return self._tensor(value, name)
        if isinstance(value, (list, tuple, dict)):
            with _entered(value, self._within, f"argument {name}"):
                if isinstance(value, dict):
                    return {key: self.adopt(entry, f"{name}[{key!r}]") for key, entry in value.items()}
                return rebuilt(value, [self.adopt(entry, f"{name}[{index}]") for index, entry in enumerate(value)])
        return self._object(value, name)

    def _object(self, value: Any, name: str) -> Any:
        """Return a dataclass or NKIObject with tensors in its fields, a copy where it has arrays in them."""
        fields = fields_of(value)
        if fields is None or any(value is outer for outer in self._within):
            return value
        self._within.append(value)
        try:
            return with_fields(value, {key: self.adopt(entry, f"{name}.{key}") for key, entry in fields.items()})
        finally:
            self._within.pop()

    def _tensor(self, value: Any, name: str) -> NkiTensor:
        if isinstance(value, Spec):
            return self._without_data(value, name)
        if id(value) not in self._tensors:
            array = to_numpy(value, name)
            self._tensors[id(value)] = (value, array, self._with_data(array, name))
        return self._tensors[id(value)][2]

    def _without_data(self, spec: Spec, name: str) -> NkiTensor:
        if self._kernel.values:
            raise IllegalOperand(
                f"argument {name} is a spec without data", advice="pass an array, or run with values=False"
            )
        if name not in self._specs:
            tensor = self._kernel.adopt(spec.shape, spec.dtype, spec.size_bytes, None, name, self._memory)
            tensor.allocation.storage.state = WRITTEN
            self._specs[name] = tensor
        return self._specs[name]

    def _with_data(self, array: Array, name: str) -> NkiTensor:
        dtype = dtypes.of(array.dtype)
        if dtype is None:
            raise IllegalOperand(
                f"argument {name} is {array.dtype}, which is not an NKI dtype",
                numbers=("known: " + ", ".join(dtypes.ALL),),
                advice="convert it first, e.g. with .astype(np.float32)",
            )
        if array.size == 0 or array.ndim == 0:
            kind = "has no elements" if array.size == 0 else "has no axes"
            raise IllegalOperand(
                f"argument {name} {list(array.shape)} {dtype} {kind}",
                advice="a tensor needs at least one element and axis",
            )
        bytes_ = array_bytes(np.ascontiguousarray(array))
        return self._kernel.adopt(array.shape, dtype, array.nbytes, bytes_, name, self._memory)

    def check_overlaps(self) -> None:
        """Refuse arrays that share bytes when the kernel wrote one of them: each is a tensor of its own here.

        Raises:
            IllegalOperand: two such arguments.
        """
        arrays = [(array, tensor) for _, array, tensor in self._tensors.values()]
        for array, tensor in arrays:
            if tensor.allocation.storage.borrowed:
                continue
            for other, other_tensor in arrays:
                if other is not array and np.may_share_memory(array, other) and np.shares_memory(array, other):
                    pair = f"{tensor.name} and {other_tensor.name}"
                    raise IllegalOperand(
                        f"arguments {pair} share memory, and the kernel writes {tensor.name}",
                        advice="pass a copy of one of them, or the whole array once and slice it in the kernel",
                    )

    def write_back(self) -> None:
        """Update the caller's arrays that the kernel wrote in place; read-only ones stay as they are."""
        for value, array, tensor in self._tensors.values():
            written = self._kernel.values and not tensor.allocation.storage.borrowed
            if written and kind_of(value) != "jax" and array.flags.writeable:
                is_whole = tensor.allocation.storage.origin is None
                array[...] = (tensor.array() if is_whole else _blanked(tensor)).view(array.dtype)


@contextlib.contextmanager
def _entered(container: Any, within: list[Any], what: str) -> Iterator[None]:
    """Look into a list, tuple or dict.

    Raises:
        IllegalOperand: it holds itself.
    """
    if any(container is outer for outer in within):
        raise IllegalOperand(f"{what} is a {type(container).__name__} that holds itself", advice="take it out")
    within.append(container)
    try:
        yield
    finally:
        within.pop()


def rebuilt(container: Any, entries: list[Any]) -> Any:
    """Return a list, tuple or named tuple of the same kind with other entries."""
    return type(container)(*entries) if hasattr(container, "_fields") else type(container)(entries)


def outputs(
    returned: Any,
    kernel: Kernel,
    name: str,
    kind: str,
    partial: Collection[str] = (),
    wider: Callable[[NkiTensor], Array | None] | None = None,
) -> Any:
    """Return ``returned`` with arrays of the library ``kind`` (specs, without values) in place of tensors.

    Outputs named in ``partial`` (``output``, ``output[1]``, ``output['key']``, or what the kernel's source calls them;
    arguments that are written in place by their own names) may have bytes that nobody wrote: never stored, or copied
    from where nobody had written. These are 0. None may be computed from such bytes.
    Where ``partial`` says ``takes_copies = False``, bytes that were never stored alone.
    ``wider`` gives arrays of what is known of a tensor beyond its bytes.

    Raises:
        IllegalOperand: a tensor that is not in HBM.
        UnwrittenOutput: bytes that were never stored; the exception carries the arrays.
        Uninitialized: bytes that depend on memory that nobody wrote, also in an input that the kernel wrote.
    """
    collector = _Collector(kernel, name, kind, partial, wider)
    collected = collector.collect(returned, "output")
    for allocation in kernel.inputs:
        if not allocation.storage.borrowed and allocation.storage.id not in collector.open:
            collector.check_input(whole(allocation))
    collector.check_names()
    for problem in collector.problems:
        if isinstance(problem, UnwrittenOutput):
            problem.outputs = collected
        raise problem
    return collected


def check_same(first: Any, other: Any, name: str, path: str = "output") -> None:
    """Check that two programs of a launch return the same tensors; what is no tensor may differ.

    Raises:
        IllegalOperand: they do not.
    """
    if first is other:
        return
    if len(path) > _LONGEST_PATH:
        raise IllegalOperand(f"{name}: output is a {type(first).__name__} that holds itself", advice="take it out")
    if isinstance(first, NkiTensor) and isinstance(other, NkiTensor):
        if first.allocation.storage is other.allocation.storage and _view(first) == _view(other):
            return
        raise IllegalOperand(
            f"{name}: the programs of the launch return different tensors as {path}",
            where=other.allocation.where,
            numbers=(_told(first), _told(other)),
            advice="allocate it with buffer=nl.shared_hbm at one line that all programs run, and return that",
        )
    if isinstance(first, (list, tuple)) and isinstance(other, (list, tuple)) and len(first) == len(other):
        for index, (one, two) in enumerate(zip(first, other, strict=True)):
            check_same(one, two, name, f"{path}[{index}]")
    elif isinstance(first, dict) and isinstance(other, dict) and first.keys() == other.keys():
        for key, one in first.items():
            check_same(one, other[key], name, f"{path}[{key!r}]")
    elif any(isinstance(value, (NkiTensor, list, tuple, dict)) for value in (first, other)):
        raise IllegalOperand(
            f"{name}: one program of the launch returns {_told(first)} as {path}, and another {_told(other)}",
            advice="all programs return the same outputs",
        )


def _view(tensor: NkiTensor) -> tuple[Any, ...]:
    return tensor.offset_bytes, tensor.shape, tensor.steps, tensor.dtype


def _told(value: Any) -> str:
    if not isinstance(value, NkiTensor):
        return type(value).__name__
    where = value.allocation.where
    return f"{value.describe()}, allocated at {where[0] if where else 'an unknown place'}"


class _Collector:
    """Takes arrays out of tensors, and notes what is wrong with them."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        kind: str,
        partial: Collection[str],
        wider: Callable[[NkiTensor], Array | None] | None,
    ) -> None:
        self.problems: list[NeurosimError] = []
        self.called: dict[str, set[int]] = {}  # storages by what ``partial`` may call them
        self.open: set[int] = set()  # storages of outputs that may have bytes which nobody wrote
        self._within: list[Any] = []
        self._kernel, self._name, self._kind, self._partial, self._wider = kernel, name, kind, partial, wider
        self._asked = [path for path in partial if isinstance(path, str)]
        self._takes_copies: bool = getattr(partial, "takes_copies", True)

    def collect(self, value: Any, path: str) -> Any:
        """Return ``value``, which is at ``path`` of what the kernel returns, with arrays in place of tensors."""
        if isinstance(value, NkiTensor):
            return self._array(value, path)
        if isinstance(value, (list, tuple, dict)):
            with _entered(value, self._within, path):
                if isinstance(value, dict):
                    return {key: self.collect(entry, f"{path}[{key!r}]") for key, entry in value.items()}
                return rebuilt(value, [self.collect(entry, f"{path}[{index}]") for index, entry in enumerate(value)])
        fields = fields_of(value)
        if fields is None or any(value is outer for outer in self._within):
            return value
        self._within.append(value)
        try:
            return with_fields(value, {key: self.collect(entry, f"{path}.{key}") for key, entry in fields.items()})
        finally:
            self._within.pop()

    def _names(self, tensor: NkiTensor, path: str) -> list[str]:
        """Return what ``partial`` may call an output: its place, its name, or its variable in the kernel."""
        allocation, called = tensor.allocation, [path]
        if self._asked:
            made_up = tensor.name == default_name(allocation.memory, allocation.index)
            called += [each for each in ("" if made_up else tensor.name, variable(allocation.frames)) if each]
        for each in called:
            self.called.setdefault(each, set()).add(allocation.storage.id)
        return called

    def _is_named(self, path: str, called: list[str]) -> bool:
        """Return whether ``partial`` names an output; kernels of NKI 0.1 note who is asked for."""
        return path in self._partial or any(each in self._asked for each in called)

    def check_names(self) -> None:
        """Raise IllegalOperand for a name in ``partial`` that no output has, or several."""
        for each in sorted(self._partial, key=str):
            count = len(self.called.get(each, ()))
            if count != 1:
                what = "which it does not return" if not count else f"which {count} outputs are called"
                raise IllegalOperand(
                    f"{self._name}: partial_outputs names {each!r}, {what}",
                    numbers=("it returns " + (", ".join(sorted(self.called)) or "no tensor"),),
                    advice="name one of these" if not count else "name them by their places, such as output[0]",
                )

    def check_input(self, tensor: NkiTensor) -> None:
        """Note what is wrong with an input that the kernel wrote: bytes that come of memory which nobody wrote."""
        self.called.setdefault(tensor.name, set()).add(tensor.allocation.storage.id)
        storage = tensor.allocation.storage
        unwritten, origin = storage.unwritten(tensor), storage.travelled(tensor)
        if unwritten is None or origin is None:
            return
        if self._takes_copies and tensor.name in self._partial and not storage.is_computed(tensor):
            seen.note(f"{tensor.name} holds copies of what nobody wrote")
            return
        what = f"{self._name}: argument {tensor.describe()}, which it writes in place"
        cores = self._kernel.grid.cores
        error = uninitialized(what, bounding_box(unwritten), origin, travelled=True, cores=cores)
        self.problems.append(error.at(origin.where))

    def _array(self, tensor: NkiTensor, path: str) -> Any:
        self._kernel.check_allocation(self._name, path, tensor)
        if isinstance(tensor, UnusableTensor):
            tensor.refuse()
        if tensor.is_indirect():
            raise IllegalOperand(
                f"{self._name} returns {tensor.describe()}, whose place is known at run time only",
                where=tensor.allocation.where,
                advice="return the whole tensor, or copy what is chosen into an output with nisa.dma_copy",
            )
        if not tensor.buffer.is_hbm:
            raise IllegalOperand(
                f"{self._name} returns {tensor.describe()}; an output must be in HBM",
                where=tensor.allocation.where,
                advice="allocate it with buffer=nl.shared_hbm and store the tile with nisa.dma_copy",
            )
        is_input = tensor.allocation.role == "input"
        if tensor.buffer is not Memory.shared_hbm and not is_input and self._kernel.nki_version >= NKI_0_3:
            raise IllegalOperand(
                f"{self._name} returns {tensor.describe()}, which is not in shared HBM",
                where=tensor.allocation.where,
                advice="allocate it with buffer=nl.shared_hbm: since NKI 0.3 an output in nl.hbm does not compile",
            )
        called = self._names(tensor, path)
        _name_output(tensor, self._kernel, path)
        storage = tensor.allocation.storage
        unwritten = storage.unwritten(tensor)
        may_be_open = not storage.is_computed(tensor) if self._takes_copies else storage.travelled(tensor) is None
        is_open = unwritten is not None and may_be_open and self._is_named(path, called)
        if unwritten is not None and not is_open:
            self.problems.append(_unwritten(tensor, unwritten, self._name, path, self._kernel.grid.cores))
        if is_open:
            self.open.add(storage.id)
        if is_open and storage.travelled(tensor) is not None:
            seen.note(f"{path} holds copies of what nobody wrote")
        if not self._kernel.values:
            return Spec(tensor.shape, tensor.dtype)
        known = None if self._wider is None else self._wider(tensor)
        if known is not None:
            return like(known if unwritten is None else np.where(unwritten, known.dtype.type(0), known), self._kind)
        array = _blanked(tensor) if is_open else tensor.array()
        return like((array.copy() if storage.borrowed else array).view(tensor.dtype.face), self._kind)


def _name_output(tensor: NkiTensor, kernel: Kernel, path: str) -> None:
    """Note in the record that a tensor is an output; one without a name of its own is called after its place."""
    storages, number = kernel.program.storages, tensor.allocation.storage.id
    info = storages[number]
    if info.role == "tile":
        allocation = tensor.allocation
        unnamed = info.name == default_name(allocation.memory, allocation.index)
        storages[number] = replace(info, role="output", name=path if unnamed else info.name)


def _blanked(tensor: NkiTensor) -> Array:
    """Return a copy of the elements, with 0 for bytes that nobody wrote: what was there before is no result."""
    array = np.ascontiguousarray(tensor.array())
    states = tensor.allocation.storage.byte_states(tensor)
    kept = np.where(states < WRITTEN, np.uint8(0), array_bytes(array).reshape(states.shape))
    return kept.reshape(-1).view(array.dtype).reshape(array.shape)


def _unwritten(tensor: NkiTensor, mask: Mask, name: str, path: str, cores: int) -> NeurosimError:
    """Return the error for an output that is unwritten where ``mask`` says."""
    storage = tensor.allocation.storage
    intended = f"what is meant to stay unwritten is named, partial_outputs=[{path!r}]"
    origin = storage.travelled(tensor)
    if origin is not None:
        what = f"{name}: output {tensor.describe()}"
        error = uninitialized(what, bounding_box(mask), origin, travelled=True, cores=cores)
        if not storage.is_computed(tensor):
            error.advice += f"; {intended}"
        return error.at(origin.where)
    return UnwrittenOutput(
        f"{name}: output {tensor.describe()} was never fully stored",
        where=tensor.allocation.where,
        numbers=(f"never stored: {bounding_box(mask)}",),
        advice=f"store every tile of it with nisa.dma_copy; the last tile of each axis may be smaller ({intended})",
    )
