"""Random programs on two cores: own steps on each, memory that both reach, and meetings that order them.

Where they meet is drawn first. Like kernels that people write, both cores mostly draw the same steps, and take them on
data of their own; what a core does with shared memory is its own choice. The cores run in turns, in an order that never
changes, so that their twins may share what the cores share.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import twin as t
from programs import EXTENTS, PARTITIONS, Programs, Tensor, View
from runs import INPUT, compare
from twin import Twin

import neurosim
from neurosim.errors import NeurosimError

CORES = (0, 1)
CHIPS = ("trn2", "trn3")
STEPS = 5
SHARED = ((9, 4), (2, 5, 3))
ENGINES = ("gpsimd", "vector", "scalar", "tensor", "sync")
APART = 4096
"""Elements of the input between what one core reads and what the other does."""
SWAPPED_BY_GPSIMD = 256
"""Elements per partition."""


@dataclass(frozen=True)
class Meeting:
    """What both cores do at the end of an epoch: a barrier, or with a shape an exchange of tiles."""

    engine: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    pipe: int = 0
    through: str = ""


@dataclass
class Pair:
    """What two cores share.

    Attributes:
        meetings: by core, what it meets the other at.
        shared: what the tensors in shared memory hold.
        read, written: by number of meetings before, tensor and core, which elements it reads and writes.
        sent: by core, what it sent so far.
        careful: whether a core leaves alone what the other touches before they meet.
    """

    meetings: dict[int, list[Meeting]]
    careful: bool
    shared: list[Twin] = field(default_factory=lambda: [Twin.empty(shape, "float32") for shape in SHARED])
    read: Any = field(default_factory=lambda: defaultdict(_nowhere))
    written: Any = field(default_factory=lambda: defaultdict(_nowhere))
    sent: dict[int, list[Any]] = field(default_factory=lambda: {core: [] for core in CORES})

    def is_racing(self) -> bool:
        """Return whether between two meetings one core writes what the other reads or writes."""
        return any(
            (mask & (self.read[epoch, number, 1 - core] | self.written[epoch, number, 1 - core])).any()
            for (epoch, number, core), mask in list(self.written.items())
        )


def _nowhere() -> Any:
    return np.zeros(max(int(np.prod(shape)) for shape in SHARED), bool)


class OneOfTwo(Programs):
    """The steps of one core."""

    def __init__(self, seeds: tuple[int, int], source: Any, chip: str, core: int, pair: Pair) -> None:
        part = slice(core * APART, len(INPUT) - (1 - core) * APART)
        given = source[part], INPUT[part], chip, nl.private_hbm
        super().__init__(Random(seeds[0]), *given)
        self.apart = Programs(Random(2 * seeds[1] + core), *given)
        self.core, self.pair, self.epoch = core, pair, 0
        self.common = [
            Tensor(nl.ndarray(shape, nl.float32, nl.shared_hbm, name=f"common{number}"), twin, shape, "float32", "hbm")
            for number, (shape, twin) in enumerate(zip(SHARED, pair.shared, strict=True))
        ]

    def run(self) -> None:
        """Do everything, and compare at the end."""
        for meeting in self.pair.meetings[self.core]:
            self.steps_of_epoch()
            self.meet(meeting)
            self.epoch += 1
        self.steps_of_epoch()
        compare([*self.tensors, *self.apart.tensors])

    def steps_of_epoch(self) -> None:
        """Do a few steps, now and then in a block whose order is kept, or in a loop on the device."""
        for _ in range(self.random.randrange(STEPS)):
            with nl.no_reorder() if self.chance(0.1) else contextlib.nullcontext():
                self.step().issue()
            if self.apart.chance(0.4 if self.pair.careful else 0.7):
                self.apart.pick(self.store, self.load)()
            if self.chance(0.1):
                self.loop()

    def store(self) -> None:
        """Write new values where the other core can see them."""
        number, dst = self._common_view()
        mine = self.pair.written[self.epoch, number, self.core]
        if self.pair.careful and self._others(number, "read", "written")[dst.at].any():
            return
        src = self.apart.filled(dst.at.shape, "float32", "sbuf")
        nisa.dma_copy(dst=dst.tile, src=src.tile)
        dst.put(src.values)
        mine[dst.at] = True

    def load(self) -> None:
        """Read what is there."""
        number, src = self._common_view()
        if not src.is_written or (self.pair.careful and self._others(number, "written")[src.at].any()):
            return
        dst = self.apart.output(src.at.shape, t.DTYPES, ("sbuf",))
        nisa.dma_copy(dst=dst.tile, src=src.tile)
        dst.put(src.values)
        self.pair.read[self.epoch, number, self.core][src.at] = True

    def _common_view(self) -> tuple[int, View]:
        random = self.apart.random
        number = random.randrange(len(SHARED))
        tensor = self.common[number]
        pieces = []
        for extent in tensor.shape:
            start = random.randrange(extent)
            pieces.append(slice(start, start + random.randrange(extent - start) + 1, self.apart.pick(1, 1, 2)))
        at = np.arange(int(np.prod(tensor.shape))).reshape(tensor.shape)[tuple(pieces)]
        return number, View(tensor, tensor.tile[tuple(pieces)], at)

    def _others(self, number: int, *kinds: str) -> Any:
        return np.any([getattr(self.pair, kind)[self.epoch, number, 1 - self.core] for kind in kinds], axis=0)

    def loop(self) -> None:
        """Do arithmetic in place, and add to the accumulators, in a loop on the device."""
        shape, trips = self.shape(), self.random.randrange(4)
        here, registers = self.filled(shape, "float32", "sbuf"), self.registers["scalar"]
        adds = registers.known >= shape[0]

        def body(_: Any) -> None:
            nisa.tensor_scalar(dst=here.tile, data=here.tile, op0=nl.multiply, operand0=0.5)
            if adds:
                command = nisa.reduce_cmd.reduce
                nisa.activation(dst=here.tile, op=nl.copy, data=here.tile, reduce_op=nl.add, reduce_cmd=command)

        nl.fori_loop(0, trips, body)
        for _ in range(trips):
            here.put(t.apply("multiply", here.values, t.F(0.5)))
            if adds:
                total = t.reduce_rows("add", here.values.reshape(shape[0], -1))
                registers.values[: shape[0]] = t.apply("add", registers.values[: shape[0]], total)

    def meet(self, meeting: Meeting) -> None:
        """Wait for the other core, and exchange tiles with it."""
        if not meeting.shape:
            nisa.core_barrier(self.common[0].tile, CORES, engine=getattr(nisa.engine, meeting.engine))
            return
        src = self.operand(meeting.shape, (meeting.dtype,), ("sbuf",))
        dst = self.output(meeting.shape, (meeting.dtype,), ("sbuf",))
        exchanges, other = len(self.pair.sent[self.core]), 1 - self.core
        self.pair.sent[self.core].append(src.values.copy())
        nisa.sendrecv(
            src=src.tile, dst=dst.tile, send_to_rank=other, recv_from_rank=other, pipe_id=meeting.pipe,
            dma_engine=getattr(nisa.dma_engine, meeting.through),
        )  # fmt: skip
        dst.put(self.pair.sent[other][exchanges])


def meetings(random: Any) -> list[Meeting]:
    """Return what two cores meet at, from one to three times."""
    return [meeting(random) for _ in range(random.randrange(3) + 1)]


def meeting(random: Any) -> Meeting:
    """Return a meeting of any kind."""
    engine = random.choice(ENGINES)
    if random.random() < 0.4:
        return Meeting(engine)
    shape = (random.choice(PARTITIONS), *(random.choice(EXTENTS) for _ in range(random.randrange(2) + 1)))
    may_be_narrow = int(np.prod(shape[1:])) <= SWAPPED_BY_GPSIMD
    through = random.choice(("dma", "gpsimd_dma")) if may_be_narrow else "dma"
    return Meeting(engine, shape, random.choice(tuple(t.DTYPES)), random.randrange(3), through)


def run(random: Any, pair: Pair) -> Any:
    """Run what two cores do; return the result. Raises AssertionError where a core and its twin differ."""
    chip, apart = random.choice(CHIPS), random.randrange(1 << 32)
    seeds = [random.randrange(1 << 32)] * 2 if random.random() < 0.8 else [2 * apart, 2 * apart + 1]

    @nki.jit
    def program(source: Any) -> Any:
        core = nl.program_id(0)
        OneOfTwo((seeds[core], apart), source, chip, core, pair).run()
        out = nl.ndarray((2, 1, 1), dtype=nl.float32, buffer=nl.shared_hbm)  # a kernel returns something
        one = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=one, value=1)
        nisa.dma_copy(dst=out[core], src=one)
        return out

    return neurosim.simulate(program[2], chip)(INPUT)


def careful(random: Any) -> Any:
    """Run a program whose cores meet wherever they have to; return its result."""
    both = meetings(random)
    return run(random, Pair(dict.fromkeys(CORES, both), careful=True))


def careless(random: Any) -> tuple[bool, NeurosimError | None]:
    """Run a program whose cores meet somewhere; return whether it races, and the error."""
    both = meetings(random)
    pair = Pair(dict.fromkeys(CORES, both), careful=False)
    error = _error(random, pair)
    return pair.is_racing(), error


def forgetful(random: Any) -> tuple[dict[int, list[Meeting]], NeurosimError | None]:
    """Run a program one core of which forgets a meeting; return the meetings of each, and the error."""
    both = meetings(random)
    less = both.copy()
    del less[random.randrange(len(both))]
    forgets = random.choice(CORES)
    planned = {core: less if core == forgets else both for core in CORES}
    return planned, _error(random, Pair(planned, careful=True))


def _error(random: Any, pair: Pair) -> NeurosimError | None:
    try:
        run(random, pair)
    except NeurosimError as error:
        return error
    return None
