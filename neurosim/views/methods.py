"""Methods that arrays of NumPy and PyTorch have and tensors of a kernel have not: each says what to write instead."""

from __future__ import annotations

import re
from typing import Final

from neurosim.errors import IllegalOperand, UnknownName
from neurosim.spelling import meant
from neurosim.views.arithmetic import BY_VALUE, NoOperators

_TURNED: Final = (
    "exchange partitions and columns with nisa.nc_transpose, or nisa.dma_transpose from HBM; "
    "t.permute reorders free axes, and all axes in HBM"
)
_REDUCED: Final = "reduce free axes with nisa.tensor_reduce(op=nl.{op}), or nl.{name}(t, axis=1)"
_CAST: Final = "nisa.tensor_copy casts to the dtype of its dst; nl.load(t, dtype=…) casts what it loads"
_REPEATED: Final = (
    "repeat an axis of extent 1 with the view t.broadcast(axis, n); t.expand_dim(axis) makes such an axis"
)
_COPIED: Final = "copy it into a tile of its own with nisa.tensor_copy, to or from HBM with nisa.dma_copy"
_OURS: Final = "(?:Nki|Indirect|Unusable)Tensor"
_NUMBER: Final = re.compile(
    rf"(?:integer|number).*{_OURS}|{_OURS}' object cannot be interpreted as|{_OURS} doesn't define __"
)
"""What Python says of a tensor where it wants a number: behind a list, in ``float``, ``range`` and ``round``."""

_SHOWN: Final = "a kernel's Python sees no values; show them with print(t) or nl.device_print('t', t)"
_FILLED: Final = "fill it with nisa.memset"
_CUT: Final = "slice it: t[:, 0:n]"
_INDEXED: Final = "t.vector_select gathers rows from HBM, nisa.nc_n_gather within a partition"
_CHOSEN: Final = "use nl.where, nisa.tensor_copy_predicated or nisa.affine_select"
_PAIR: Final = "call nisa.tensor_tensor for two tiles, nisa.tensor_scalar for a tile and a number, with op=nl.{op}"
_FUNCTION: Final = "call nisa.activation(op=nl.{op}), or nl.{op}(t)"
_REDUCTIONS: Final = {"sum": "add", "max": "maximum", "min": "minimum"}
_PAIRS: Final = {
    **{name: name for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")},
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "pow": "power",
}
_FUNCTIONS: Final = ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "relu", "gelu", "silu", "abs", "square", "sin")

_ADVICE: Final[dict[str, str]] = {
    **dict.fromkeys(("T", "mT", "t", "transpose", "swapaxes", "movedim", "moveaxis"), _TURNED),
    **dict.fromkeys(("astype", "to", "type", "float", "double", "half", "bfloat16", "int", "long", "type_as"), _CAST),
    **dict.fromkeys(("broadcast_to", "expand", "expand_as", "repeat", "tile", "repeat_interleave"), _REPEATED),
    **dict.fromkeys(("copy", "clone", "contiguous", "copy_"), _COPIED),
    **dict.fromkeys(("item", "tolist", "numpy", "cpu", "detach", "data", "tobytes"), _SHOWN),
    **dict.fromkeys(("fill", "fill_", "zero_", "zeros_like", "ones_like"), _FILLED),
    **dict.fromkeys(("split", "chunk", "narrow", "unbind"), _CUT),
    **dict.fromkeys(("gather", "take", "index_select", "take_along_axis"), _INDEXED),
    **dict.fromkeys(("where", "masked_fill", "masked_fill_", "masked_select"), _CHOSEN),
    **{name: _REDUCED.format(op=op, name=name) for name, op in _REDUCTIONS.items()},
    **{name: f"call nl.{name}(t, axis=1)" for name in ("mean", "var", "prod", "all", "softmax")},
    **{name: _PAIR.format(op=op) for name, op in _PAIRS.items()},
    **{f"{name}_": _PAIR.format(op=op) for name, op in _PAIRS.items()},
    **{name: _FUNCTION.format(op=name) for name in _FUNCTIONS},
    **dict.fromkeys(("matmul", "mm", "bmm", "dot"), "call nisa.nc_matmul, or nl.matmul"),
    **dict.fromkeys(("clip", "clamp"), "call nisa.tensor_scalar with op0=nl.maximum and op1=nl.minimum"),
    **dict.fromkeys(("argmax", "argsort", "sort", "topk"), "call nisa.max8 and nisa.nc_find_index8, or nisa.topk"),
    "any": "call nl.max(t, axis=1) on a tile of 0 and 1",
    "neg": "call nl.negative(t)",
    "cumsum": "call nisa.tensor_tensor_scan",
    "ravel": "t.flatten_dims(first, last) merges free axes, t.reshape(shape) gives another shape",
    "flatten": "t.flatten_dims(first, last) merges free axes, t.reshape(shape) gives another shape",
    "squeeze": "t.squeeze_dim(axis) removes an axis of extent 1",
    "unsqueeze": "t.expand_dim(axis) inserts an axis of extent 1",
    "expand_dims": "t.expand_dim(axis) inserts an axis of extent 1",
    "numel": "t.size is the number of elements",
    "dim": "t.ndim is the number of axes",
    "stride": "t.strides are the elements between neighbours per axis",
    "device": "t.buffer is the memory that it is in",
}  # fmt: skip


VIEWS: Final = (
    "permute", "broadcast", "expand_dim", "squeeze_dim", "reshape_dim", "flatten_dims", "reshape", "rearrange", "slice",
    "select", "vector_select", "ap", "view", "reinterpret_cast", "indirect",
)  # fmt: skip
"""What NKI 0.6 documents of ``NkiTensor`` that returns another one."""

DOCUMENTED: Final = (
    "shape", "strides", "offset", "name", "dtype", "buffer", "ndim", "size", "is_contiguous", "get_pattern",
    "is_indirect", *VIEWS,
)  # fmt: skip
"""What NKI 0.6 documents of ``NkiTensor``."""


def no_method(error: BaseException) -> UnknownName | None:
    """Return the error of a kernel that asks a tensor for a name that it does not have; None of another mistake.

    Asked of what Python raised: a tensor that is asked itself (``__getattr__``) takes four times as long to answer for
    the names that it has.
    """
    if not isinstance(error, AttributeError) or not isinstance(error.obj, NoOperators) or error.name is None:
        return None
    if error.name.startswith("_") or isinstance(error, UnknownName):
        return None
    advice = _ADVICE.get(error.name) or meant(error.name, DOCUMENTED) or f"a tensor has {', '.join(DOCUMENTED)}"
    return UnknownName(f"a tensor of a kernel has no {error.name!r}", advice=advice)


def no_number(error: BaseException) -> IllegalOperand | None:
    """Return the error of a kernel that counts with a tensor (``range(t)``, ``float(t)``); None of another mistake."""
    if not isinstance(error, TypeError) or not _NUMBER.search(str(error)):
        return None
    return IllegalOperand(f"a tensor is no number while the kernel is built: {error}", advice=BY_VALUE)
