"""Legacy ``nki.language``: random numbers, from the generators of the machine.

Source: NKI 0.1 documentation, ``rand``, ``random_seed``, ``dropout``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neurosim import dtypes
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand
from neurosim.nki import _random, isa
from neurosim.nki.legacy.index import extents_of, is_int
from neurosim.nki.legacy.lowering import wrap
from neurosim.nki.legacy.promotion import chosen
from neurosim.nki.legacy.state import begin
from neurosim.nki.legacy.tensor import Tensor


def rand(shape: Any, dtype: Any = np.float32) -> Tensor:
    """Return a new tile of random numbers, uniform between 0 and 1."""
    call = "nl.rand"
    begin(call)
    return wrap(_random.rand(extents_of(shape, call), chosen(dtype, call)))


def random_seed(seed: Any, *, mask: Any = None) -> None:
    """Seed the random numbers that follow, with 32 bits: an int, or a [1, 1] tile."""
    call = "nl.random_seed"
    run = begin(call)
    if isinstance(seed, Tensor):
        _random.random_seed(seed.resolve(call))
        return
    if not is_int(seed) or not 0 <= int(seed) < 2**32:
        raise IllegalOperand(f"{call}: seed {seed!r} is no 32-bit number", advice="give 0 to 2³² - 1")
    made = run.kernel.allocate((1, 1), dtypes.uint32, Memory.sbuf)
    isa.memset(dst=made, value=int(seed))
    _random.random_seed(made)


def dropout(x: Any, rate: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return a tile with elements replaced by zeros, each with probability ``rate``."""
    from neurosim.nki.legacy.isa import dropout as instruction

    return instruction(x, rate, dtype=dtype, mask=mask)
