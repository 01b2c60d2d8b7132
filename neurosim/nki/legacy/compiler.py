"""``neuronxcc.nki.compiler``: placing tensors, and hints to the old compiler.

A placed tensor's tiles stand at their addresses and alias there, so that reading what another tile overwrote is an
error. Tensors without an address take space while they are in use.

Source: NKI 0.1 documentation, ``nki.compiler``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neurosim.chip import Chip
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand
from neurosim.nki.legacy.missing import missing
from neurosim.nki.legacy.roots import Placer


@dataclass(frozen=True)
class Placement:
    """What ``buffer=`` takes for a placed tensor.

    Attributes:
        memory: SBUF or PSUM.
        function: from block index, partitions and bytes per partition to the place: (partition, byte), in PSUM
            (bank, partition, byte of the bank); None where the compiler places.
    """

    memory: Memory
    function: Callable[[tuple[int, ...], int, int], Any] | None

    def placer(self, chip: Chip) -> Placer | None:
        """Return the function as the machine takes it, or None."""
        function = self.function
        if function is None:
            return None

        def place(block: tuple[int, ...], partitions: int, size_bytes: int) -> tuple[int, int]:
            found = _asked(function, self.memory, block, partitions, size_bytes)
            wanted = 3 if self.memory is Memory.psum else 2
            if not isinstance(found, (tuple, list)) or len(found) != wanted:
                raise IllegalOperand(
                    f"{self.memory.label} allocation of block {block} gave {found!r}",
                    advice="return (partition, byte) in SBUF, and (bank, partition, byte) in PSUM",
                )
            if self.memory is Memory.psum:
                bank, partition, byte = (int(number) for number in found)
                return partition, bank * chip.psum.bank_bytes + byte
            return int(found[0]), int(found[1])

        return place


def _asked(
    function: Callable[..., Any], memory: Memory, block: tuple[int, ...], partitions: int, size_bytes: int
) -> Any:
    """Call a kernel's allocation function: by the documented names of its parameters, else by their places.

    By name, since published kernels bind a first parameter of their own by ``functools.partial`` (nki-samples'
    ``allocated_attention.py``).
    """
    names = {"idx": block, "pdim_size": partitions, "fdim_size": size_bytes}
    try:
        taken = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin says nothing of its parameters
        return function(*names.values())
    for places, keywords in (((), names), (tuple(names.values()), {})):
        try:
            taken.bind(*places, **keywords)
        except TypeError:
            continue
        return function(*places, **keywords)
    raise IllegalOperand(
        f"{memory.label} allocation: {getattr(function, '__name__', function)!s}{taken} cannot be called with a block "
        "index, its partitions and its bytes per partition",
        advice="give it the parameters idx, pdim_size and fdim_size",
    )


def _modulo(base: int, tiles: tuple[int, ...], scale: int, block: tuple[int, ...]) -> int:
    """Return the place of a block among ``tiles`` physical ones: base + scale · (its index modulo them)."""
    counts = tiles or (1,) * len(block)
    if not block:
        return base  # what the published formula gives for a tensor of one tile, whatever counts it is given
    if len(counts) != len(block):
        raise IllegalOperand(
            f"mod_alloc: {counts} for a tensor with {len(block)} block dimensions",
            advice="give a count per block dimension",
        )
    place = 0
    for index, count in zip(block, counts, strict=True):
        place = place * count + index % count
    return base + scale * place


class _Sbuf:
    """``nki.compiler.sbuf``; as a buffer it leaves the place to the compiler."""

    def alloc(self, func: Callable[..., Any]) -> Placement:
        """Place each tile where ``func(block, partitions, bytes)`` says: (partition, byte)."""
        return Placement(Memory.sbuf, func)

    def mod_alloc(
        self,
        *,
        base_addr: int,
        base_partition: int = 0,
        num_par_tiles: tuple[int, ...] = (),
        num_free_tiles: tuple[int, ...] = (),
    ) -> Placement:
        """Place tiles modulo a number of physical ones, along partitions and along bytes."""
        return Placement(
            Memory.sbuf,
            lambda block, partitions, size: (
                _modulo(base_partition, tuple(num_par_tiles), partitions, block),
                _modulo(base_addr, tuple(num_free_tiles), size, block),
            ),
        )

    def auto_alloc(self) -> Placement:
        """Leave the place to the compiler, as ``nl.sbuf`` does."""
        return Placement(Memory.sbuf, None)


class _Psum:
    """``nki.compiler.psum``."""

    def alloc(self, func: Callable[..., Any]) -> Placement:
        """Place each tile where ``func(block, partitions, bytes)`` says: (bank, partition, byte of the bank)."""
        return Placement(Memory.psum, func)

    def mod_alloc(
        self,
        *,
        base_bank: int,
        base_addr: int = 0,
        base_partition: int = 0,
        num_bank_tiles: tuple[int, ...] = (),
        num_par_tiles: tuple[int, ...] = (),
        num_free_tiles: tuple[int, ...] = (),
    ) -> Placement:
        """Place tiles modulo a number of physical ones, along banks, partitions and bytes."""
        return Placement(
            Memory.psum,
            lambda block, partitions, size: (
                _modulo(base_bank, tuple(num_bank_tiles), 1, block),
                _modulo(base_partition, tuple(num_par_tiles), partitions, block),
                _modulo(base_addr, tuple(num_free_tiles), size, block),
            ),
        )

    def auto_alloc(self) -> Placement:
        """Leave the place to the compiler, as ``nl.psum`` does."""
        return Placement(Memory.psum, None)


sbuf = _Sbuf()
psum = _Psum()
AUTOMATIC = (_Sbuf, _Psum)
"""What may also be passed as a buffer: ``nki.compiler.sbuf`` itself."""


def _hint(func: Any = None, **options: Any) -> Any:
    """Return a kernel as it is: a hint to the old compiler, which changed neither values nor what is written here."""
    return func if func is not None else lambda inner: inner


enable_stack_allocator = _hint
skip_middle_end_transformations = _hint
force_auto_alloc = _hint


@dataclass(frozen=True)
class Directive:
    """What a loop's ``directives=`` takes.

    Attributes:
        keeps_order: whether the instructions of the loop keep their order.
    """

    keeps_order: bool


def no_reorder() -> Directive:
    """Return a directive for a loop: its instructions keep their order."""
    return Directive(keeps_order=True)


def multi_buffer(factor: int = 2) -> Directive:
    """Return a directive for a loop that says how many buffers its tiles take.

    Here a tile of each iteration is a tile of its own, and space is taken as it is free, so that it changes nothing.
    """
    if factor < 1:
        raise IllegalOperand(f"multi_buffer({factor})", advice="give at least 1")
    return Directive(keeps_order=False)


def __getattr__(name: str) -> Any:
    raise missing("nki.compiler", name, [entry for entry in globals() if not entry.startswith("_")])
