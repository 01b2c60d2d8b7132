"""What a module of the face says about names that it does not have."""

from __future__ import annotations

from collections.abc import Iterable, Set

from neurosim.errors import UnknownName, Unsupported
from neurosim.nki._elsewhere import elsewhere
from neurosim.spelling import meant

_OLD = {
    "arange": "index with slices, e.g. t[0:128, i * 512 : (i + 1) * 512]",
    "mgrid": "index with slices, e.g. t[0:128, i * 512 : (i + 1) * 512]",
    "spmd_dim": "launch with kernel[cores](…)",
    "loop_reduce": "accumulate in PSUM, or with nisa.tensor_tensor",
    "trace": "use @nki.jit",
    "tensor_copy_dynamic_src": "use nisa.tensor_copy with a view .ap(…, scalar_offset=)",
    "tensor_copy_dynamic_dst": "use nisa.tensor_copy with a view .ap(…, scalar_offset=)",
}
"""Names of older NKI versions, and what to write now (AWS Neuron SDK, ``nki/migration/index.rst``)."""


class NotBuilt(Unsupported, AttributeError):
    """A documented NKI name that is not built here yet. An AttributeError too, so that ``hasattr`` works."""


def missing(module: str, name: str, documented: Set[str], known: Iterable[str] = ()) -> AttributeError:
    """Return the error for ``module.name``: not built, or not a name of NKI at all; ``known`` are those built."""
    what, listed = f"module {module!r} has no attribute {name!r}", f"dir({module}) lists what there is"
    if name.startswith("__"):  # Python looks for these, such as __path__ at each import
        return UnknownName(what, advice=listed)
    if name in documented:
        return NotBuilt(f"{module}.{name} is documented for NKI 0.6 and not built here yet")
    if name in _OLD:
        return UnknownName(f"{module}.{name} is a name of an older NKI, and not built here", advice=_OLD[name])
    other = elsewhere(module, name) or meant(name, [*documented, *known]) or listed
    return UnknownName(what, advice=other)
