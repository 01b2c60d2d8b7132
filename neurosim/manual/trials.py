"""Trying one call: a kernel of one instruction on tiles that hold random data, and what came of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import CodeType, TracebackType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neurosim.chip import Chip
from neurosim.devices import available, load_chip
from neurosim.dtypes import DType, Kind
from neurosim.engines import Engine, Memory
from neurosim.errors import IllegalOperand, NeurosimError
from neurosim.execution.lanes import Lanes
from neurosim.execution.scalar_registers import allocate
from neurosim.instruction import Instruction
from neurosim.kernel import Kernel, boundary, run
from neurosim.launch.cores import Mirror
from neurosim.manual.calls import Call, Tile, operands
from neurosim.memory import UNWRITTEN, WRITTEN
from neurosim.nki import _catalogue
from neurosim.program import Access, Program
from neurosim.timing import time
from neurosim.view import NkiTensor

LAYOUTS: Final = ("whole", "offset", "stepped", "folded", "partitions")
"""How an operand lies in its tensor: as all of it; as its last columns; as every second one; as a 3-D view with gaps;
on other partitions than the first ones. What a layout cannot do to an operand leaves it whole."""


_BELOW: Final = 8
"""Integers are drawn from 0 up to this, exclusive, unless the tile says otherwise."""


@dataclass(frozen=True)
class Outcome:
    """What a call did.

    Attributes:
        error: what it raised on purpose, None where it went through.
        broken: the rule that refused it: code and line of its ``yield``; None where no rule did.
        outputs: per written operand, its bytes and their shadow states.
        registers: engine registers afterwards, by kind and engine.
        program: the record.
        time_ps: how long it takes, 0 where that was not asked for.
        met: at what it met the other core.
    """

    error: NeurosimError | None = None
    broken: tuple[CodeType, int] | None = None
    outputs: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)
    registers: Mapping[str, bytes] = field(default_factory=dict)
    program: Program | None = None
    time_ps: int = 0
    met: tuple[Hashable, ...] = ()

    @property
    def signature(self) -> tuple[Any, ...]:
        """What was recorded, parameters left out: engine, patterns, work, edges, names, meetings."""
        if self.program is None:
            return ()
        found = self.program.signatures[-1]
        return found.engine, found.engines, found.patterns, found.work, tuple(self.program.names.items()), self.met


@dataclass(frozen=True)
class Placing:
    """How the operands of a call lie in memory.

    Attributes:
        layout: one of :data:`LAYOUTS`, for all tiles; or ``name:layout`` for one operand alone.
        unwritten: the operand of which some elements were never written.
        garbage: which bytes these elements hold.
        same: ``written=read`` where two operands are one tensor.
    """

    layout: str = "whole"
    unwritten: str = ""
    garbage: int = 0
    same: str = ""


@cache
def chips() -> dict[int, Chip]:
    """Return the packaged chip of each generation that has one, in order."""
    found: dict[int, Chip] = {}
    for chip in map(load_chip, sorted(available(), key=lambda name: not name.startswith("trn"))):
        found.setdefault(chip.generation, chip)
    return dict(sorted(found.items()))


def attempt(
    call: Call,
    chip: Chip,
    *,
    values: bool = False,
    timed: bool = False,
    placing: Placing = Placing(),
    lanes: Callable[[Kernel, Engine], Lanes] | None = None,
) -> Outcome:
    """Run a call on ``chip`` and return what it did.

    Args:
        call: what to run.
        chip: where.
        values: whether to compute.
        timed: whether to ask how long it takes.
        placing: how the operands lie in memory.
        lanes: what gives instructions access to values, where it is not the usual.
    """
    mirror = Mirror()
    kernel = Kernel(chip, Program(chip.name, chip.generation), values=values, team=mirror, lanes=lanes)
    with run(kernel), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            given = _issue(kernel, call, placing)
            time_ps = time(kernel.program, chip)[0].makespan_ps if timed else 0
        except NeurosimError as error:
            return Outcome(error, _broken_at(error.__traceback__))
    registers = {f"{kind} {engine.name}": bytes(found.buffer) for (kind, engine), found in kernel._registers.items()}
    return Outcome(None, None, dict(_outputs(call, given)), registers, kernel.program, time_ps, tuple(mirror.met))


class Bench:
    """Trying calls that differ little, one after the other on one chip, without values, on tensors that they share.

    Whether a call is refused follows from what it is given and not from what tensors hold (rules are asked once per
    signature), so that calls before it make no difference.
    """

    def __init__(self, chip: Chip) -> None:
        self._kernel = Kernel(chip, Program(chip.name, chip.generation), values=False, team=Mirror())
        self._tiles: _Tiles = {}

    def refusal(self, call: Call) -> Outcome | None:
        """Return what a call did that an instruction refused; None of one that was not."""
        with run(self._kernel), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                _issue(self._kernel, call, Placing(), self._tiles)
            except IllegalOperand as error:
                return Outcome(error, _broken_at(error.__traceback__))
            except NeurosimError:
                pass
        return None


_Tiles = dict[tuple[str, Tile, DType], tuple[Any, Any]]
"""Tensors that were made already, by the name of their operand, what is asked for, and the format of the call."""


@boundary
def _issue(kernel: Kernel, call: Call, placing: Placing, made: _Tiles | None = None) -> dict[str, tuple[Any, Any]]:
    """Make the operands and call the instruction; return what :func:`_value` gives for each operand.

    Operands are taken from ``made`` and entered there, if it is given.
    """
    random = np.random.default_rng(7)
    given: dict[str, tuple[Any, Any]] = {}
    made = {} if made is None else made
    for name, value in call.operands.items():
        if isinstance(value, Tile) and (known := made.get((name, value, call.dtype))) is not None:
            given[name] = known
            continue
        given[name] = _value(kernel, call, name, value, placing, random)
        if isinstance(value, Tile):
            made[name, value, call.dtype] = given[name]
        if isinstance(given[name][0], list):
            entries = (given[entry] if isinstance(entry, str) else (entry, None) for entry in given[name][0])
            given[name] = [entry for entry, _ in entries], None
    written, _, read = placing.same.partition("=")
    if written:
        given[written] = given[read]
    _catalogue.instructions()[call.mnemonic](**{name: operand for name, (operand, _) in given.items()})
    return given


def _outputs(call: Call, given: Mapping[str, tuple[Any, Any]]) -> Iterator[tuple[str, tuple[bytes, bytes]]]:
    for name, operand in operands(call.mnemonic).items():
        _, tensor = given.get(name, (None, None))
        if operand is not None and operand.access is not Access.READ and isinstance(tensor, NkiTensor):
            states = tensor.allocation.storage.states(tensor)
            states = states.min(axis=-1) if states.ndim > tensor.ndim else states
            yield name, (tensor.array().tobytes(), states.tobytes())


def _value(
    kernel: Kernel, call: Call, name: str, value: Any, placing: Placing, random: np.random.Generator
) -> tuple[Any, Any]:
    """Return what the instruction gets, and where its results are to be looked for."""
    if isinstance(value, list) and any(isinstance(entry, Tile) for entry in value):
        parts = [_value(kernel, call, f"{name}_{place}", tile, placing, random)[0] for place, tile in enumerate(value)]
        return parts, None
    if not isinstance(value, Tile):
        return value, None
    only, _, one = placing.layout.partition(":")
    layout = placing.layout if not one else one if only == name else "whole"
    operand = operands(call.mnemonic).get(name)
    written = operand is not None and operand.access is not Access.READ
    made, view = _tensor(kernel, call.dtype, name, value, layout, None if written else random)
    if name == placing.unwritten:
        _unwrite(view, placing.garbage)
    return made, view


def _unwrite(view: NkiTensor, garbage: int) -> None:
    """Make a third of a tensor's elements unwritten, with bytes that depend on ``garbage``."""
    array, states = view.array(), view.allocation.storage.states(view)
    holes = np.random.default_rng(3).random(view.shape) < 1 / 3
    holes.flat[0], holes.flat[-1] = True, False
    noise = np.random.default_rng(garbage).integers(0, 256, array.nbytes, dtype=np.uint8)
    array[holes] = noise.view(array.dtype).reshape(array.shape)[holes]
    states[...] = np.where(holes if states.ndim == holes.ndim else holes[..., None], UNWRITTEN, WRITTEN)


def _tensor(
    kernel: Kernel, dtype: DType, name: str, tile: Tile, layout: str, random: np.random.Generator | None
) -> tuple[NkiTensor, NkiTensor]:
    """Return a new tensor, laid out as asked for, with random data unless ``random`` is None.

    The second one is what an index chooses from; without an index both are the same.
    """
    if tile.memory is Memory.state:
        register = allocate(kernel, name)
        if random is not None:
            register.put(int(random.integers(_BELOW)))
        return register, register
    dtype = tile.dtype or dtype
    made, view = _laid_out(kernel, dtype, name, tile, layout)
    if random is not None:
        if kernel.values:
            view.array()[...] = _data(tile, dtype, random).reshape(view.shape)
        made.allocation.storage.mark(made, WRITTEN)
    if tile.index is None:
        return view, view
    index, _ = _tensor(kernel, dtype, f"{name}_index", tile.index, "whole", np.random.default_rng(7))
    if tile.how.startswith("take"):
        return view.indirect(index, int(tile.how.split()[1])), view
    if tile.how == "gather" and index.free_elements > 1:
        (step, _), *rest = view.get_pattern()
        return view.ap([[step, index.size], *rest], vector_offset=index), view
    return view.vector_select(0, index) if tile.how == "gather" else view.select(0, index), view


def _laid_out(kernel: Kernel, dtype: DType, name: str, tile: Tile, layout: str) -> tuple[NkiTensor, NkiTensor]:
    """Return a tensor, and the view of it that has the tile's shape (with one axis more where it is folded)."""
    *outer, last = tile.shape
    rows, fold = tile.shape[0], _fold(last)

    def allocated(*shape: int) -> NkiTensor:
        return kernel.allocate(shape, dtype, tile.memory, name)

    if tile.byte is not None:
        made = kernel.allocate(tile.shape, dtype, tile.memory, name, (tile.start, tile.byte))
        return made, made
    if tile.start or tile.gaps:
        step = 2 if tile.gaps else 1
        made = allocated(tile.start + rows, *(step * extent for extent in tile.shape[1:]))
        free = (slice(0, step * extent, step) for extent in tile.shape[1:])
        return made, made[(slice(tile.start, tile.start + rows), *free)]
    if layout == "offset":
        made = allocated(*outer, last + 5)
        return made, made[..., 5 : last + 5]
    if layout == "stepped":
        made = allocated(*outer, 2 * last)
        return made, made[..., 0 : 2 * last : 2]
    if layout == "folded" and fold:
        made = allocated(*outer, fold, last // fold + 1)
        return made, made[..., 0 : last // fold]
    if layout == "partitions" and tile.memory.is_on_chip and rows in (32, 64):
        made = allocated(2 * rows, *tile.shape[1:])
        return made, made[rows : 2 * rows]
    made = allocated(*tile.shape)
    return made, made


def _fold(extent: int) -> int:
    """Return a number of pieces that an axis can be cut into, 0 where it cannot."""
    return next((pieces for pieces in (2, 3, 5) if extent % pieces == 0 and extent > pieces), 0)


def _data(tile: Tile, dtype: DType, random: np.random.Generator) -> npt.NDArray[Any]:
    count = math.prod(tile.shape)
    if dtype.is_packed:
        return random_codes(random, count, dtype).view(dtype.numpy)
    if dtype.kind == Kind.SCALE:
        return random.integers(120, 130, count, np.uint8).view(dtype.face)
    if tile.value is not None:
        return np.full(count, tile.value).astype(dtype.numpy)
    if dtype.kind == Kind.FLOAT and tile.below is None:
        return random.standard_normal(count, dtype=np.float32).astype(dtype.numpy)
    return random.integers(0, 2 if dtype.kind == Kind.BOOL else tile.below or _BELOW, count).astype(dtype.numpy)


def random_codes(random: np.random.Generator, count: int, dtype: DType) -> npt.NDArray[Any]:
    """Return elements of a packed format whose values are all finite."""
    signs, sizes = (random.integers(0, top, (count, dtype.size_bytes), np.uint8) for top in (2, 64))
    return np.ascontiguousarray(sizes | signs << 7).reshape(-1).view(dtype.face)


def _broken_at(frames: TracebackType | None) -> tuple[CodeType, int] | None:
    """Return code and line of the ``yield`` that refused, from the generator that ``Instruction`` was reading."""
    while frames is not None:
        if frames.tb_frame.f_code is Instruction._raise.__code__:
            rules = frames.tb_frame.f_locals["broken"]
            while getattr(rules, "gi_yieldfrom", None) is not None:
                rules = rules.gi_yieldfrom
            frame = getattr(rules, "gi_frame", None)
            return None if frame is None else (frame.f_code, frame.f_lineno)
        frames = frames.tb_next
    return None
