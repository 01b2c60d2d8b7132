"""One random program from its source of randomness: legal, with one illegal step, or of calls of anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import nki.isa as nisa
import nki.language as nl
import numpy as np
import spoiling
from programs import Programs, Tensor

import neurosim
from neurosim.errors import NeurosimError, SimulatorBug

STEPS = 12
INPUT = (np.random.default_rng(0).standard_normal(1 << 18) * 4).astype(np.float32)
CHIPS = ("trn2", "trn1", "trn3", "inf2")


def legal(random: Any) -> Any:
    """Run a legal program; return the result. Raises AssertionError where the machine and its twin differ."""

    def body(programs: Programs) -> None:
        for _ in range(random.randrange(STEPS) + 1):
            programs.step().issue()
        compare(programs.tensors)

    return _run(random, body)


def illegal(random: Any) -> tuple[str, NeurosimError | None]:
    """Run a program whose last step is illegal; return what was done to it, and the error."""
    done = ""

    def body(programs: Programs) -> None:
        nonlocal done
        for _ in range(random.randrange(4)):
            programs.step().issue()
        call, spoil = programs.step(), random.choice(spoiling.SPOILS)
        while not spoil(programs, call):
            call, spoil = programs.step(), random.choice(spoiling.SPOILS)
        done = f"{call.instruction}: {spoil.__name__}: {call.given}"
        call.issue()

    try:
        _run(random, body)
    except NeurosimError as error:
        return done, error
    return done, None


def wild(random: Any) -> tuple[str, NeurosimError | None]:
    """Call a function of ``nki.isa`` with anything; return the call and its error. Other exceptions pass through."""
    done = ""

    def body(programs: Programs) -> None:
        nonlocal done
        name, given = spoiling.wild(programs)
        done = f"{name}({given})"
        getattr(nisa, name)(**given)

    try:
        _run(random, body)
    except SimulatorBug:
        raise
    except NeurosimError as error:
        return done, error
    return done, None


def _run(random: Any, body: Callable[[Programs], None]) -> Any:
    chip = random.choice(CHIPS)

    def program(source: Any) -> Any:
        body(Programs(random, source, INPUT, chip))
        # a kernel returns something
        one = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=one, value=1)
        out = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=one)
        return out

    return neurosim.simulate(program, chip)(INPUT)


def compare(tensors: Iterable[Tensor]) -> None:
    """Raise AssertionError where a tensor does not hold what its twin does."""
    for tensor in tensors:
        written = tensor.twin.written
        got, want = tensor.tile.array().reshape(-1)[written], tensor.twin.values[written]
        different = _bits(got) != _bits(want)
        assert not different.any(), (
            f"{tensor.shape} {tensor.dtype} in {tensor.memory}: {different.sum()} of {different.size} differ, "
            f"{got[different][:3]} instead of {want[different][:3]}"
        )


def _bits(values: Any) -> Any:
    """Return the bits; one pattern for every NaN."""
    patterns = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").astype(np.int64)
    return patterns if values.dtype.kind in "iu" else np.where(np.isnan(values.astype(np.float32)), -1, patterns)
