"""What every instruction is: declared operands, rules, execution, work; and ``emit``, which issues one.

An instruction is one class in one file. From its declaration follow argument checking and error text, regions for
dependences, trace label and arguments, written-ness, and the record. See ``ARCHITECTURE.md``, "One instruction, one
place".
"""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, ClassVar, ParamSpec, TypeVar, dataclass_transform

import numpy as np

from neurosim.chip import Chip
from neurosim.datapath.rules import (
    Broken,
    access_rules,
    bounding_box,
    no_array,
    operand_fits,
    packed,
    repeats_only,
    rounds,
)
from neurosim.engines import Engine, Memory
from neurosim.errors import IllegalOperand, NeurosimError, Uninitialized
from neurosim.execution import seen
from neurosim.execution.calls import bad_call, bug, kept, label_of, made_of_older_call, placed
from neurosim.execution.handle import NkiInstruction
from neurosim.execution.holes import Holes as Holes
from neurosim.execution.holes import check_owners, mark_copies, partly_written
from neurosim.execution.holes import lanewise_holes as lanewise_holes
from neurosim.execution.holes import rowwise_holes as rowwise_holes
from neurosim.execution.holes import uninitialized as uninitialized
from neurosim.execution.interning import FLOATS, Known, freeze, getter, pattern, state_pattern, typed
from neurosim.execution.lanes import Direct, Lanes, is_direct, note_rows, shared_bytes
from neurosim.execution.operands import INDEX, USED, Operand
from neurosim.execution.operands import Accumulate as Accumulate
from neurosim.execution.operands import In as In
from neurosim.execution.operands import Out as Out
from neurosim.execution.straight import MISSING, functions
from neurosim.kernel import Action, Kernel, running
from neurosim.memory import UNWRITTEN, WRITTEN, Allocation, HoleOrigin, Mask, Origin, Storage
from neurosim.plane import Plane
from neurosim.program import Access, Signature
from neurosim.versions import NEWEST, NkiVersion
from neurosim.view import NkiTensor
from neurosim.views.indirect import IndirectTensor, same_place
from neurosim.views.indirection import ColumnTensor, operand_rules, place_rules
from neurosim.work import Work

P = ParamSpec("P")
C = TypeVar("C", bound="type[Instruction]")

Tile = NkiTensor
Tensors = list[tuple[str, NkiTensor, Operand]]
"""The tensors of an instruction, each with its name and declaration."""


@dataclass_transform(field_specifiers=(In, Out, Accumulate), eq_default=False)
class Instruction(ABC):
    """Base of every instruction. A subclass declares operands and parameters in NKI's order, with NKI's defaults.

    Class attributes:
        mnemonic: NKI's name; a subclass without one is a base that several instructions share.
        engines: where it can run, the rule's first choice first.
        is_dma: whether DMA engines move the data, so that no engine's access rules hold.
        takes_packed: whether operands may have a packed format, and results float8_e8m0fnu, to which nothing rounds;
            its own rules say when.
        is_control: whether it is executed in runs without values too, since it steers what follows.
        state_written: the shadow state that a write leaves, ``MATMUL`` for the tensor engine.
        leaves_out: which elements of its results are not written, for messages, where that needs saying.
        chooses: whether which unwritten elements its results depend on is known with values only.
    """

    mnemonic: ClassVar[str] = ""
    engines: ClassVar[tuple[Engine, ...]] = ()
    is_dma: ClassVar[bool] = False
    takes_packed: ClassVar[bool] = False
    is_control: ClassVar[bool] = False
    state_written: ClassVar[int] = WRITTEN
    leaves_out: ClassVar[str] = ""
    chooses: ClassVar[bool] = False
    _operands: ClassVar[tuple[tuple[str, Operand | None], ...]] = ()
    _tensors: ClassVar[tuple[tuple[str, Operand], ...]] = ()
    _given: ClassVar[Callable[[Any], tuple[Any, ...]]]
    _parameters: ClassVar[Callable[[Any], tuple[Any, ...]]]
    _flags: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, mnemonic: str = "", engines: tuple[Engine, ...] = ()) -> None:
        if not mnemonic:
            return  # a base that several instructions share; each of them orders the operands
        dataclass(eq=False)(cls)
        cls.mnemonic, cls.engines = mnemonic, engines
        cls._operands = tuple(
            (field.name, field.metadata.get("operand"))
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]
            if field.name != "name"
        )
        cls._tensors = tuple((name, operand) for name, operand in cls._operands if operand is not None)
        cls._given = staticmethod(getter([name for name, _ in cls._operands]))
        cls._parameters = staticmethod(getter([name for name, operand in cls._operands if operand is None]))
        cls._flags = tuple(
            field.name
            for field in dataclasses.fields(cls)  # type: ignore[arg-type]
            if field.type == "bool"
        )

    @classmethod
    def declared(cls) -> tuple[tuple[str, Operand | None], ...]:
        """Return what a call gives, in order: names with their declarations as operands, None for parameters."""
        return cls._operands

    @property
    def nki_version(self) -> NkiVersion:
        """The version of NKI that the running kernel asked for, where meanings differ; outside of one, the newest."""
        kernel = running()
        return NEWEST if kernel is None else kernel.nki_version

    # -- what a subclass says -------------------------------------------------------------------------------------

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Yield what is broken; evaluated once per signature."""
        yield from ()

    def access(self, name: str, tensor: NkiTensor, chip: Chip) -> Iterator[Broken | None]:
        """Yield what is broken in how the engine reaches an operand; a few operands are reached otherwise."""
        yield from access_rules(name, tensor, chip)

    def admit(self, lanes: Lanes) -> None:  # noqa: B027 (most have nothing to refuse)
        """Raise when what the operands' memory has been through forbids this; looks at states, not at values."""

    @abstractmethod
    def execute(self, lanes: Lanes) -> None:
        """Compute values. Sees no clock."""

    @abstractmethod
    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """Return what the engine does. Sees no values; ``chip`` only tells the generation's datapath."""

    def place(self, chip: Chip) -> tuple[Engine, frozenset[Engine]]:
        """Return the engine this runs on, and the engines that would give the same bits."""
        wanted = getattr(self, "engine", Engine.unknown)
        if wanted is Engine.unknown:
            return self.engines[0], frozenset(self.engines)
        if wanted not in self.engines:
            names = " or ".join(engine.name for engine in self.engines)
            raise IllegalOperand(f"{self.mnemonic}: cannot run on {wanted!r}", advice=f"it runs on {names}")
        return wanted, frozenset({wanted})

    def skips_out_of_bounds(self) -> bool:
        """Return whether a dynamic index out of bounds is left out, instead of an error."""
        return False

    def state(self) -> tuple[tuple[str, Access], ...]:
        """Return the engine registers that are used, as (kind, access)."""
        return ()

    def holes(self, holes: Holes) -> Holes:
        """Return which elements of each written operand depend on unwritten bytes; lane by lane unless overridden."""
        spread = {}
        for name, operand in self._operands:
            target = getattr(self, name)
            if operand is not None and operand.is_written and isinstance(target, NkiTensor):
                spread[name] = lanewise_holes(target, holes.values())
        return spread

    def moved(self) -> NkiTensor | None:
        """Return the operand whose elements ``dst`` holds afterwards as they are, in the same order; None for others.

        Such a copy is byte by byte as unwritten as what it is of.
        """
        return None

    def written(self) -> Holes:
        """Return which elements were written, for operands that are written by predicate; asked after ``execute``.

        An operand that is left out was written as a whole. Elements that were not keep their value and their state.
        """
        return {}

    # -- what happens on a call -----------------------------------------------------------------------------------

    @classmethod
    def uses_registers(cls) -> bool:
        """Return whether there are engine registers that it may use."""
        return cls.state is not Instruction.state

    @classmethod
    def may_refuse(cls) -> bool:
        """Return whether it looks at what operands have been through."""
        return cls.admit is not Instruction.admit

    @classmethod
    def may_write_in_part(cls) -> bool:
        """Return whether it may leave elements of its results as they are."""
        return cls.written is not Instruction.written

    @classmethod
    def called_otherwise(
        cls, kernel: Kernel, caller: FrameType, values: tuple[Any, ...], more: dict[str, Any]
    ) -> NkiInstruction:
        """Issue a call of more than the operands: an older spelling, or a mistake.

        ``values`` are the operands in order, ``MISSING`` for those not given, and what was given beyond them.
        """
        names, args = [field.name for field in dataclasses.fields(cls)], ()  # type: ignore[arg-type]
        given = {name: value for name, value in zip(names, values, strict=False) if value is not MISSING} | more
        if len(values) > len(names):
            args, given = values, more
        try:
            instruction = cls(*args, **given)
        except TypeError as error:
            try:
                instruction = made_of_older_call(cls, cls.mnemonic, error, args, given)
            except IllegalOperand as refusal:
                raise refusal.at(kernel.where()) from None
        handle = issue(instruction, kernel, caller)
        if kernel.bodies:
            cls.repeats(kernel, handle, tuple(getattr(instruction, name) for name in names))
        return handle

    @classmethod
    def repeats(cls, kernel: Kernel, handle: NkiInstruction, values: tuple[Any, ...]) -> None:
        """Let each later trip of the loop on the device whose body is being traced make the same call."""
        places = kept(values)  # as they are now, whatever Python does to them afterwards
        repeated: Action = lambda: handle.again(issue(cls(*places), kernel))  # noqa: E731
        kernel.bodies[-1].actions.append((kernel.stack(), repeated))

    def issue_closely(self, kernel: Kernel, caller: FrameType | None, key: Any) -> NkiInstruction:
        """Check, execute and record whatever it is; ``key`` is what the call is known by, None where nothing is."""
        found = None if key is None else kernel.known.get(key)
        if found is not None:
            given = [(name, getattr(self, name), operand) for name, operand in self._tensors]
            tensors = [entry for entry in given if isinstance(entry[1], NkiTensor)]
        else:
            self._check_given()
            signature, tensors = self._look_closely(kernel)
            found = kernel.signatures.get(signature) or self._define(kernel, signature, tensors)
            if key is not None and not any(tensor.is_indirect() for _, tensor, _ in tensors):
                kernel.known[key] = found
        if kernel.left:
            for _, tensor, _ in tensors:
                kernel.check_scope(self.mnemonic, tensor.allocation)
        elif key is not None and found.lanes is not None and key in kernel.known:
            kernel.straight[key] = found
        if kernel.dry:
            return NkiInstruction(kernel.program, -1, None)
        return self._run(kernel, found, tensors, caller)

    def _check_given(self) -> None:
        """Refuse a call that lacks an operand, as Python does."""
        if any(value is MISSING for value in type(self)._given(self)):
            given = {name: value for name, value in vars(self).items() if value is not MISSING}
            names = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]
            try:
                type(self)(**{name: given[name] for name in names if name in given})
            except TypeError as error:
                raise bad_call(type(self), self.mnemonic, error, {}) from None

    def _look_closely(self, kernel: Kernel) -> tuple[tuple[Any, ...], Tensors]:
        """Return what the signature is known by, and the operands, whatever they are."""
        key: list[Any] = [type(self)]
        tensors: Tensors = []
        for name, operand in self._tensors:
            value = getattr(self, name)
            if isinstance(value, NkiTensor):
                if isinstance(value, IndirectTensor):
                    value = self._resolve(kernel, name, operand, value, tensors)
                    setattr(self, name, value)
                tensors.append((name, value, operand))
                key.append(value.key)
            elif operand.several and isinstance(value, (list, tuple)):
                key.append(self._take_several(kernel, name, operand, value, tensors))
            else:
                key.append(typed(value))
        indexes = [tensor for name, tensor, _ in tensors if name.startswith("index of ")]
        if len(indexes) > 1:  # rules may ask whether operands are chosen by the same one
            key.append(
                tuple([next(place for place, one in enumerate(indexes) if same_place(index, one)) for index in indexes])
            )
        given = type(self)._parameters(self)
        kinds = tuple(map(type, given))
        if any(issubclass(kind, (list, tuple, *FLOATS)) for kind in kinds):
            given = tuple([typed(value) if isinstance(value, (list, tuple, *FLOATS)) else value for value in given])
        if list in kinds:
            given = tuple([() if type(value) is list else value for value in given])
            kinds = tuple([tuple if kind is list else kind for kind in kinds])
        key += (given, kinds)
        try:
            hash(found := tuple(key))
        except (TypeError, ValueError):  # a list within a tuple, an array: rules say whether that is allowed
            found = tuple([freeze(entry) for entry in key])
        return found, tensors

    def _resolve(
        self,
        kernel: Kernel,
        name: str,
        operand: Operand,
        value: IndirectTensor,
        tensors: Tensors,
    ) -> IndirectTensor:
        """Read the indices of a dynamic operand, which become an operand of their own."""
        index = value.index
        seen.note(f"{self.mnemonic}: the place of {name} depends on values")
        if isinstance(value, ColumnTensor):
            if not operand.indirect:
                raise IllegalOperand(
                    f"{self.mnemonic}: {name} {value.describe()} is chosen by offsets",
                    advice="it takes no tensor indirection: gather with nisa.tensor_copy first, or scatter with it",
                )
            value = value.grouped(self.engines)
            self._raise(operand_rules(name, value, kernel.chip))
        elif not operand.dynamic:
            raise IllegalOperand(
                f"{self.mnemonic}: {name} {value.describe()} has a place that is known at run time only",
                advice="load it with nisa.dma_copy first, which takes such views",
            )
        if kernel.dry:  # checked as it would be, and its index is not read
            tensors.append((f"index of {name}", index, USED))
            return value
        mask = value.used(index.allocation.storage.unwritten(index))
        if mask is not None and mask.any():
            self._hole(kernel, f"index of {name}", index, mask, INDEX)
        value = value.resolved(skip=self.skips_out_of_bounds(), values=kernel.values)
        tensors.append((f"index of {name}", index, USED))
        return value

    def _take_several(self, kernel: Kernel, name: str, operand: Operand, given: Any, tensors: Tensors) -> Hashable:
        """Take each tensor of a list as an operand; return what the signature keeps: also which are the same."""
        taken = list(given)
        for place, value in enumerate(taken):
            label = f"{name}[{place}]"
            self._raise((operand_fits(label, value, operand),))
            if isinstance(value, IndirectTensor):
                value = taken[place] = self._resolve(kernel, label, operand, value, tensors)
            tensors.append((label, value, operand))
        setattr(self, name, taken)
        places = [tensor for _, tensor, _ in tensors]
        return tuple(
            (value.key, next(place for place, other in enumerate(places) if same_place(value, other)))
            for value in taken
        )

    def _take(self, kernel: Kernel, tensors: Tensors) -> tuple[list[int], Holes, Origin | None]:
        """Return the slots of the operands, the holes in what is read, and where the first of these come from."""
        holes: Holes = {}
        slots: list[int] = []
        origin: Origin | None = None
        marks = kernel.marks
        made = len(marks)
        for name, tensor, operand in tensors:
            allocation = tensor.allocation
            index = allocation.index
            if index > made or marks[index - 1] is not allocation.mark:
                kernel.check_allocation(self.mnemonic, name, tensor)
            storage = allocation.storage
            if operand.is_written:
                if storage.borrowed:
                    storage.detach()
            elif storage.state < WRITTEN:
                if isinstance(storage, Plane):
                    if storage.settled(tensor) >= WRITTEN:
                        slots += (storage.id, tensor.offset_bytes)
                        continue
                    is_strict = operand.strict or operand is USED
                    check_owners(self.mnemonic, name, tensor, storage, kernel.addressed, is_strict)
                if operand is not USED:
                    mask = tensor.unwritten() if isinstance(tensor, IndirectTensor) else storage.unwritten(tensor)
                    if mask is not None:
                        holes[name] = mask
                        found = self._hole(kernel, name, tensor, mask, operand)  # raises for a strict operand
                        origin = found if origin is None else origin
            slots += (storage.id, tensor.offset_bytes)
        return slots, holes, origin

    def _run(
        self,
        kernel: Kernel,
        signature: Known,
        tensors: Tensors,
        caller: FrameType | None,
    ) -> NkiInstruction:
        usual = signature.lanes
        label: str | None = self.name  # type: ignore[attr-defined]
        if label is not None:
            label = label_of(self)
        slots, holes, origin = self._take(kernel, tensors)
        registers, changed = self.take_registers(kernel, signature)
        if kernel.team is not None:
            note_rows(kernel, tensors)
        lanes: Lanes = (kernel.lanes or Lanes)(kernel, signature.engine) if usual is None else usual
        self.admit(lanes)
        if kernel.values or self.is_control:
            before = None if kernel.team is None else lanes.begin_shared(tensors)
            lanes.run(self, tensors)
            if before is not None and before == shared_bytes(tensors):
                kernel.writes.silent.add(len(kernel.program))
        self._mark_written(kernel, tensors, holes, origin, self.written())
        for storage in changed:
            storage.state = WRITTEN
        if usual is not None:
            signature.registers = registers  # nothing clears them in a run
        index = kernel.record(signature.number, [*slots, *registers], label, kernel.stack(caller))
        return NkiInstruction(kernel.program, index, label)

    def mark_parts(self, kernel: Kernel, written: Holes) -> None:
        """Set the shadow of what was written in part by an instruction that reads no holes."""
        given = [(name, getattr(self, name), operand) for name, operand in self._tensors if operand.is_written]
        self._mark_written(kernel, [entry for entry in given if isinstance(entry[1], NkiTensor)], {}, None, written)

    def _mark_written(
        self, kernel: Kernel, tensors: Tensors, holes: Holes, origin: Origin | None, written: Holes
    ) -> None:
        """Set the shadow of what was written: all of it, or what ``written`` says, with holes that came from others."""
        spread = self.holes(holes) if holes else holes
        if (holes or written) and not seen.is_noted():
            self._note_parts(kernel, tensors, holes, written)
        for name, tensor, operand in tensors:
            if operand.is_written:
                storage = tensor.allocation.storage
                if storage.state != self.state_written or spread or written:
                    self._mark(tensor, spread.get(name), origin, written.get(name))
                    if storage.is_plane:
                        kernel.writers.append(tensor.allocation.index)

    def take_registers(self, kernel: Kernel, signature: Known) -> tuple[tuple[int, ...], list[Storage]]:
        """Return the slots of engine registers, and those of them that will be written."""
        slots: tuple[int, ...] = ()
        written: list[Storage] = []
        for kind, access in signature.states:
            registers = kernel.registers(kind, signature.engine)
            if access is not Access.WRITE and registers.state == UNWRITTEN:
                raise Uninitialized(
                    f"{self.mnemonic}: the {kind} registers of the {signature.engine.name} engine were never set",
                    advice="begin with a reduce_cmd that resets them",
                )
            slots += (registers.id, 0)
            if access is not Access.READ:
                written.append(registers)
        return slots, written

    def _note_parts(self, kernel: Kernel, tensors: Tensors, holes: Holes, written: Holes) -> None:
        """Note where what memory has been through may depend on values, or tells a matmul what to do (in PSUM)."""
        for name, tensor, operand in tensors:
            if name in holes:
                kernel.blank.add(tensor.allocation.storage.id)
            if holes and (self.chooses or (tensor.buffer is Memory.psum and (name in holes or operand.is_written))):
                seen.note(f"{self.mnemonic} reads memory that was written in part")
            is_covered = tensor.buffer is not Memory.psum and tensor.allocation.storage.state >= WRITTEN
            if name in written and not is_covered:
                seen.note(f"{self.mnemonic} writes a part of {name}, which was not written before")

    def _mark(self, tensor: NkiTensor, holes: Mask | None, origin: Origin | None, written: Mask | None = None) -> None:
        storage = tensor.allocation.storage
        if holes is not None:
            if holes.any():
                holes = holes.reshape(tensor.shape)
                storage.origin = None if origin is None else origin()
            else:
                holes = None
        if written is not None:
            count = int(np.count_nonzero(written))
            if count == written.size:
                storage.partly = written = None
            else:
                storage.partly = self.mnemonic, self.leaves_out, count, written.size
                written = written.reshape(tensor.shape)
        moved = None if holes is None else self.moved()
        if moved is not None:
            mark_copies(tensor, moved, written)
        elif isinstance(tensor, IndirectTensor):
            tensor.mark(self.state_written, holes, written)
        else:
            storage.mark(tensor, self.state_written, holes, written)

    def _hole(self, kernel: Kernel, name: str, tensor: NkiTensor, mask: Mask, operand: Operand) -> Origin:
        """Raise where an operand has to be written; else return how to say where its holes came from, if it matters."""
        storage = tensor.allocation.storage
        earlier = storage.travelled(tensor)
        describe = partial(self._origin, kernel, name, tensor.allocation, mask, kernel.stack())
        is_whole = mask.all() and (self.moved() is not tensor or storage.is_blank(tensor))
        if operand.strict or is_whole:
            what, travelled = f"{self.mnemonic}: {name} {tensor.describe()}", earlier is not None
            origin = earlier or describe()
            raise uninitialized(what, bounding_box(mask), origin, travelled=travelled, cores=kernel.grid.cores)
        return describe if earlier is None else lambda: earlier

    @classmethod
    def _origin(cls, kernel: Kernel, name: str, allocation: Allocation, mask: Mask, stack: int) -> HoleOrigin:
        return HoleOrigin(
            cls.mnemonic,
            name,
            kernel.where(stack),
            allocation.describe(),
            allocation.where,
            bounding_box(mask),
            partly_written(allocation.storage),
        )

    def _define(self, kernel: Kernel, key: tuple[Any, ...], tensors: Tensors) -> Known:
        """Evaluate rules, engine and work of a new signature; its access to values too, where that is the usual."""
        for name, operand in self._operands:
            value = getattr(self, name)
            if operand is not None and not (operand.several and isinstance(value, list)):  # a list's entries were
                self._raise((operand_fits(name, value, operand),))
        for name in self._flags:
            self._check_flag(name, getattr(self, name))
        self._raise(no_array(name, getattr(self, name)) for name, operand in self._operands if operand is None)
        chip = kernel.chip
        if not self.is_dma:
            for name, tensor, _ in tensors:
                self._raise(self.access(name, tensor, chip))
        for name, tensor, operand in tensors:
            if tensor.dtype.is_packed:
                self._raise((packed(name, tensor, chip, self.takes_packed),))
            elif operand.is_written and not self.takes_packed:
                rounds(f"{self.mnemonic}: {name}", tensor)
        for name, tensor, operand in tensors:
            if operand.is_written and not tensor.is_injective():
                if name == "dst" and isinstance(getattr(self, "reduce_res", None), NkiTensor) and repeats_only(tensor):
                    continue  # only the reduction is wanted, and dst is one column: the last element stays (*assumed*)
                raise IllegalOperand(
                    f"{self.mnemonic}: {name} {tensor.describe()} reaches the same element twice",
                    numbers=(f"pattern {tensor.get_pattern()}",),
                    advice="a broadcast view can be read, not written",
                )
        self._raise(self.rules(chip))
        engine, engines = self.place(chip)
        self._raise(place_rules(tensors, engine))
        states = self.state()
        patterns = [pattern(name, tensor, operand.access) for name, tensor, operand in tensors]
        patterns += [state_pattern(kind, access, engine, chip) for kind, access in states]
        parameters = tuple(
            (name, freeze(getattr(self, name)))
            for name, operand in self._operands
            if not isinstance(getattr(self, name), NkiTensor) and not (operand is not None and operand.several)
        )
        signature = Signature(self.mnemonic, tuple(patterns), parameters, engine, engines, self.work(engine, chip))
        kernel.program.signatures.append(signature)
        number = len(kernel.program.signatures) - 1
        found = kernel.signatures[key] = Known(number, type(self), engine, states, self._lanes(kernel, engine, tensors))
        return found

    def _lanes(self, kernel: Kernel, engine: Engine, tensors: Tensors) -> Lanes | None:
        """Return the access to values that all calls of a signature share, None where each makes its own."""
        is_usual = kernel.lanes is None and kernel.team is None  # cores share signatures, and no registers
        if not is_usual:
            return None
        return (Direct if all(is_direct(tensor) for _, tensor, _ in tensors) else Lanes)(kernel, engine)

    def _raise(self, broken: Iterable[Broken | None]) -> None:
        for entry in broken:
            if entry is not None:
                advice = entry.advice or f"see what it takes: neurosim isa {self.mnemonic}"
                raise IllegalOperand(f"{self.mnemonic}: {entry.what}", numbers=entry.lines, advice=advice)

    def _check_flag(self, name: str, value: Any) -> None:
        if not isinstance(value, (bool, np.bool_)):
            raise IllegalOperand(f"{self.mnemonic}: {name}={value!r} is not a bool", advice="pass True or False")


def issue(instruction: Instruction, kernel: Kernel, caller: FrameType | None = None) -> NkiInstruction:
    """Check, execute and record an instruction; errors get the kernel line that they come from.

    ``caller`` spares a search for the kernel's innermost frame: it, or a frame that it called.
    """
    try:
        return functions(type(instruction)).issue(instruction, kernel, caller, *type(instruction)._given(instruction))
    except NeurosimError as error:
        raise placed(instruction.mnemonic, kernel, error) from error.__cause__
    except Exception as error:
        raise bug(instruction.mnemonic, kernel, error) from error


def emit(cls: Callable[P, Instruction]) -> Callable[P, NkiInstruction]:
    """Return the function that kernels call: it makes an instance, and issues it in the running kernel."""
    call: Any = functions(cls).call
    call.__doc__ = cls.__doc__
    call.__signature__ = inspect.signature(cls)
    call.instruction = cls
    found: Callable[P, NkiInstruction] = call
    return found
