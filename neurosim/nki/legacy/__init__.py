"""``neuronxcc.nki``: NKI 0.1, which most published kernels are written in. A face of the same machine.

Source: NKI 0.1 (Beta 1) documentation; AWS Neuron SDK, ``nki/migration/index.rst``.
"""

from __future__ import annotations

import logging
from typing import Any

from neurosim.nki.legacy import compiler as compiler
from neurosim.nki.legacy import isa as isa
from neurosim.nki.legacy import language as language
from neurosim.nki.legacy import typing as typing
from neurosim.nki.legacy.launch import Kernel as Kernel
from neurosim.nki.legacy.launch import UnwrittenOutputWarning as UnwrittenOutputWarning
from neurosim.nki.legacy.launch import baremetal as baremetal
from neurosim.nki.legacy.launch import jit as jit
from neurosim.nki.legacy.launch import simulate_kernel as simulate_kernel
from neurosim.nki.legacy.launch import trace as trace
from neurosim.nki.legacy.measuring import benchmark as benchmark
from neurosim.nki.legacy.measuring import profile as profile
from neurosim.nki.legacy.missing import missing as _missing
from neurosim.nki.legacy.tensor import Tensor

tensor = Tensor

if not hasattr(logging, "OFF"):  # the old package made this level, and scripts that import it disable() up to it
    logging.OFF = logging.CRITICAL + 10  # type: ignore[attr-defined]


def __getattr__(name: str) -> Any:
    raise _missing("nki", name, [entry for entry in globals() if not entry.startswith("_")])
