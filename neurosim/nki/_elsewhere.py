"""Names that people look for in ``nki.isa`` and ``nki.language`` and that stand elsewhere, or are called otherwise."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

from neurosim.nki._catalogue import instructions
from neurosim.numerics.act import ACTIVATIONS
from neurosim.numerics.alu import ALU

_PREFIXES: Final = ("tensor_", "elementwise_", "vector_", "nc_", "reduce_", "dma_")

_OPERATORS: Final = {
    "sub": "subtract", "mul": "multiply", "mult": "multiply", "div": "divide", "truediv": "divide", "pow": "power",
    "neg": "negative", "max": "maximum", "min": "minimum", "eq": "equal", "ne": "not_equal", "lt": "less",
    "le": "less_equal", "gt": "greater", "ge": "greater_equal", "remainder": "mod", "shl": "left_shift",
    "shr": "right_shift", "swish": "silu", "recip": "reciprocal", "ln": "log", "atan": "arctan",
}  # fmt: skip
"""Other names of operators, and NKI's."""

_ISA_NAMES: Final = ("engine", "dge_mode", "dma_engine", "oob_mode", "reduce_cmd", "nc_version", "get_nc_version")

_REDUCTIONS: Final = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "multiply", "reduce": "add"}

_ISA: Final = {
    **dict.fromkeys(("matmul", "mm", "bmm", "dot", "gemm", "matmult"), "nisa.nc_matmul"),
    **dict.fromkeys(("transpose", "transpose2d"), "nisa.nc_transpose, or nisa.dma_transpose from HBM"),
    **dict.fromkeys(("copy", "move", "cast", "convert"), "nisa.tensor_copy, or nisa.dma_copy to and from HBM"),
    **dict.fromkeys(("load", "store", "memcpy", "dma", "start", "dma_start"), "nisa.dma_copy"),
    **dict.fromkeys(("fill", "zeros", "ones", "full", "set"), "nisa.memset"),
    **dict.fromkeys(("where", "select"), "nisa.tensor_copy_predicated, nisa.affine_select or nl.where"),
    **dict.fromkeys(("gather", "take"), "nisa.nc_n_gather, nisa.local_gather, or dma_copy from t.vector_select(…)"),
    **dict.fromkeys(("cumsum", "scan", "cumulative_sum"), "nisa.tensor_tensor_scan"),
    **dict.fromkeys(("argmax", "find_max"), "nisa.max8 and nisa.nc_find_index8"),
    **dict.fromkeys(("activate", "act", "activation_op"), "nisa.activation"),
    **dict.fromkeys(("arange", "range"), "nisa.iota"),
    **dict.fromkeys(("barrier", "sync", "wait"), "nisa.core_barrier"),
    **dict.fromkeys(("shuffle", "broadcast_partitions"), "nisa.nc_stream_shuffle"),
    **dict.fromkeys(("rand", "random"), "nisa.rand2, nisa.rng or nl.rand"),
    **dict.fromkeys(("batchnorm", "layernorm", "bn"), "nisa.bn_stats and nisa.bn_aggr"),
    **dict.fromkeys(("broadcast", "broadcast_to"), "the view t.broadcast(axis, n)"),
    **dict.fromkeys(("clip", "clamp"), "nisa.tensor_scalar with op0=nl.maximum and op1=nl.minimum"),
    "negative": "nisa.tensor_scalar with op0=nl.multiply and operand0=-1.0",
}  # fmt: skip

_LANGUAGE: Final = {
    **dict.fromkeys(("empty", "tensor", "alloc", "allocate", "array"), "nl.ndarray"),
    **dict.fromkeys(("dot", "mm", "bmm"), "nl.matmul"),
    **dict.fromkeys(("astype", "cast"), "nl.copy(t, dtype=…)"),
    **dict.fromkeys(("float", "fp32", "f32", "float_"), "nl.float32"),
    **dict.fromkeys(("half", "fp16", "f16"), "nl.float16"),
    **dict.fromkeys(("bf16",), "nl.bfloat16"),
    **dict.fromkeys(("float64", "double", "int64", "long", "uint64"), "a format of 32 bits: there are none of 64"),
    **dict.fromkeys(("int", "int_"), "nl.int32"),
    **dict.fromkeys(("clip", "clamp"), "nl.minimum(nl.maximum(t, low), high)"),
    **dict.fromkeys(("concatenate", "concat", "cat", "stack"), "one nl.ndarray whose slices are written"),
    **dict.fromkeys(("reshape", "permute", "view"), "the tensor's: t.reshape(shape), t.permute(dims), t.view(dtype)"),
    **dict.fromkeys(("print", "printf", "debug_print"), "nl.device_print"),
    **dict.fromkeys(("pmax", "gemm_moving_fmax", "psum_fmax"), "nl.tile_size, as in nl.tile_size.pmax"),
    **dict.fromkeys(("for_loop", "loop"), "nl.fori_loop"),
}  # fmt: skip


def elsewhere(module: str, name: str) -> str:
    """Return what to use for a name that ``module`` does not have, in words; empty if nothing is known of it."""
    found = _isa(name) if module == "nki.isa" else _language(name)
    return f"use {found}" if found else ""


def _isa(name: str) -> str:
    stem = next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)
    known = _ISA.get(name) or _ISA.get(stem)
    if known:
        return known
    reduction = _REDUCTIONS.get(stem)
    if reduction and (name.startswith("reduce_") or stem not in _OPERATORS):
        return f"nisa.tensor_reduce with op=nl.{reduction}"
    operator = _OPERATORS.get(stem, stem)
    if operator in ALU and ALU[operator].arity == 2:
        along = ", nisa.tensor_reduce along free axes" if reduction else ""
        return f"nisa.tensor_tensor for two tiles, nisa.tensor_scalar for a tile and a number{along}: op=nl.{operator}"
    if operator in ACTIVATIONS:
        return f"nisa.activation with op=nl.{operator}"
    if operator in ALU:
        return f"nisa.tensor_scalar with op0=nl.{operator}"
    return f"nl.{name}" if _is_public(import_module("neurosim.nki.language"), name) else ""


def _language(name: str) -> str:
    if name in _LANGUAGE or name in _OPERATORS:
        return _LANGUAGE.get(name) or f"nl.{_OPERATORS[name]}"
    return f"nisa.{name}" if name in instructions() or name in _ISA_NAMES else _ISA.get(name, "")


def _is_public(module: ModuleType, name: str) -> bool:
    value = vars(module).get(name)
    return callable(value) and not isinstance(value, type)
