"""``neuronxcc.nki.typing``: names for annotations."""

from __future__ import annotations

from neurosim.nki.typing import mutable_tensor as mutable_tensor
from neurosim.nki.typing import tensor as tensor
