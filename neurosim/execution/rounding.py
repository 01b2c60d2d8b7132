"""How engines round what they write: to nearest even, or stochastically, as a run asks.

On hardware the choice is the runtime's: ``NEURON_RT_STOCHASTIC_ROUNDING_EN`` (AWS Neuron SDK,
``about-neuron/arch/neuron-features/rounding-modes.rst``), beside which published training scripts set
``NEURON_RT_STOCHASTIC_ROUNDING_SEED``. *Assumed*, where no public text says more:

* every write of an engine rounds so that converts to a float format shorter than float32. Casts of DMA engines, MX
  quantization, and numbers that an instruction carries go to nearest even;
* the random numbers are those of :mod:`neurosim.numerics.stochastic`: the key is the seed, the counter is the core,
  the number of the write on this core and the element in it, row-major. So a value depends on the program, and on
  nothing that the machine does.
"""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple

import numpy.typing as npt

from neurosim.dtypes import DType
from neurosim.engines import Engine
from neurosim.errors import ConfigurationError, IllegalOperand
from neurosim.execution.lanes import Float32s, Lanes
from neurosim.kernel import Kernel
from neurosim.numerics import stochastic
from neurosim.plain_numbers import plain

NEAREST: Final = "nearest"
STOCHASTIC: Final = "stochastic"
ENABLE: Final = "NEURON_RT_STOCHASTIC_ROUNDING_EN"
SEED: Final = "NEURON_RT_STOCHASTIC_ROUNDING_SEED"
_TRUTH: Final = {"": False, "0": False, "false": False, "1": True, "true": True}
_SEEDS: Final = 1 << 64


class StochasticRounding:
    """What makes the lanes of a run that rounds stochastically; it counts the writes of each core."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._writes: dict[int, int] = {}

    def __call__(self, kernel: Kernel, engine: Engine) -> Lanes:
        """Return one instruction's access to values."""
        return StochasticLanes(kernel, engine, self)

    def rounded(self, values: Float32s, dtype: DType, core: int) -> npt.NDArray[Any]:
        """Round the values of a core's next write."""
        count = self._writes.get(core, 0)
        self._writes[core] = count + 1
        numbers = stochastic.philox(self.seed, (core, count & 0xFFFFFFFF, count >> 32), values.size)
        return stochastic.narrow(values, dtype, numbers)


class StochasticLanes(Lanes):
    """Access to values that round up or down at random when they are written."""

    only_nearest = False
    __slots__ = ("_rounding",)

    def __init__(self, kernel: Kernel, engine: Engine, rounding: StochasticRounding) -> None:
        super().__init__(kernel, engine)
        self._rounding = rounding

    def rounded(self, values: Float32s, dtype: DType) -> npt.NDArray[Any]:
        """Return float32 values in another format."""
        if stochastic.is_rounded(dtype):
            return self._rounding.rounded(values, dtype, self._kernel.core)
        return super().rounded(values, dtype)


class Asked(NamedTuple):
    """How a run is to round: ``nearest``, ``stochastic`` or as the environment says, and by which seed."""

    mode: str | None
    seed: int | None


def asked(rounding: Any, seed: Any) -> Asked:
    """Return what is asked for; IllegalOperand where no run could round by it."""
    if rounding is not None and not (isinstance(rounding, str) and rounding in (NEAREST, STOCHASTIC)):
        raise IllegalOperand(f"simulate: rounding={rounding!r}", advice=f"pass {NEAREST!r} or {STOCHASTIC!r}")
    seed = plain(seed)
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < _SEEDS):
        raise IllegalOperand(f"simulate: rounding_seed={seed!r}", advice="pass a whole number from 0 to 2**64 - 1")
    return Asked(rounding, seed)


def rounding_of(asked: Asked) -> StochasticRounding | None:
    """Return how a run rounds: as asked, else as the environment says, else to nearest even, which is None.

    Raises:
        ConfigurationError: a variable of the environment has no value of its kind.
        IllegalOperand: a seed, and nothing that it would be for.
    """
    if (asked.mode or _from_environment()) == NEAREST:
        if asked.seed is not None:
            raise IllegalOperand(
                f"simulate: rounding_seed={asked.seed} is for stochastic rounding, and this run rounds to nearest even",
                advice="pass rounding='stochastic', or leave the seed out",
            )
        return None
    return StochasticRounding(_seed_from_environment() if asked.seed is None else asked.seed)


def _from_environment() -> str:
    setting = os.environ.get(ENABLE, "")
    if setting.lower() not in _TRUTH:
        raise ConfigurationError(f"{ENABLE}={setting!r} is neither 0 nor 1", advice="unset it to round to nearest even")
    return STOCHASTIC if _TRUTH[setting.lower()] else NEAREST


def _seed_from_environment() -> int:
    setting = os.environ.get(SEED, "") or "0"
    if not (setting.isascii() and setting.isdigit() and int(setting) < _SEEDS):
        raise ConfigurationError(f"{SEED}={setting!r}", advice="set a whole number from 0 to 2**64 - 1, or unset it")
    return int(setting)
