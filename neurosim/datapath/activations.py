"""What instructions that apply activation functions share: the warning outside of a function's documented range."""

from __future__ import annotations

import numpy as np

from neurosim.datapath.operators import Operator
from neurosim.execution.lanes import Float32s
from neurosim.kernel import warn
from neurosim.numerics import act

_OUTSIDE = {
    "sin": "there the hardware continues a cubic, as neurosim does: sin(9.0) is 27.65; the call nl.sin(x) reduces first"
}
"""What functions give outside of their range, where that is documented."""


class OutOfRangeWarning(UserWarning):
    """An activation function met inputs outside of its documented range, where the hardware is wrong by design."""


def warn_outside(
    mnemonic: str, op: Operator, data: Float32s, scale: Float32s | float = 1.0, bias: Float32s | float | None = None
) -> None:
    """Warn when data · scale + bias leaves the documented range of ``op``; at the kernel's line."""
    known = act.ACTIVATIONS.get(op.name)
    if known is None or known.valid_range is None or data.dtype != np.float32:
        return  # float64 is compared with, and is not what the engine sees
    low, high = known.valid_range
    with np.errstate(all="ignore"):
        argument = data * np.float32(scale) if isinstance(scale, float) else data * scale
        if bias is not None:
            argument = argument + (np.float32(bias) if isinstance(bias, float) else bias)
    magnitude = np.abs(argument) if op.name == "reciprocal" else argument
    outside = int(np.count_nonzero((magnitude < np.float32(low)) | (magnitude > np.float32(high))))
    if outside:
        there = _OUTSIDE.get(op.name, "the hardware's result there is not specified, neurosim's is the function's")
        text = f"{mnemonic}(op={op!r}): {outside} inputs outside of the valid range [{low:g}, {high:g}]; {there}"
        warn(text, OutOfRangeWarning)
