"""What a legacy module says about names that it does not have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from neurosim.errors import UnknownName
from neurosim.nki._missing import NotBuilt
from neurosim.spelling import meant

_WORDS: Final = {
    "sparse_dot_product": "it was never documented",
    "all_reduce": "programs of a grid run one after the other here, and do not meet",
    "_pre_prod_kernels": "it is part of the vendor's package",
    "_private_kernels": "it is part of the vendor's package",
    "nccl": "collectives of the old dialect are not built; nki.collectives has their signatures",
    "kernels": "kernels that come with the vendor's package; copy their source into your project",
    "kernel": "decorate the kernel with @nki.jit",
    "compile": "call the kernel: there is nothing to compile",
    "profiler": "use nki.benchmark, or neurosim.profile(kernel)(…)",
}


def missing(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for ``module.name``: not built, or not a name of NKI 0.1."""
    if name in _WORDS:
        return NotBuilt(f"neuronxcc.{module}.{name} is not built here: {_WORDS[name]}")
    what = f"module 'neuronxcc.{module}' has no attribute {name!r}"
    return UnknownName(what, advice=meant(name, known) or f"dir(neuronxcc.{module}) lists what there is")
