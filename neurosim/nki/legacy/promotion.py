"""Data types of results where none is given: the inputs' promoted type.

Source: NKI 0.1 documentation, "NKI Type Promotion" and "Weakly Typed Scalar Type Inference".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neurosim import dtypes
from neurosim.datapath.rules import is_number
from neurosim.dtypes import DType, Kind
from neurosim.errors import IllegalOperand
from neurosim.views.reshaping import checked_dtype

_SIGNED = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32}


def dtype_of(value: Any) -> DType:
    """Return the data type of a tile or a number; Python's numbers are uint8, int32 and float32."""
    known = getattr(value, "format", None)
    if isinstance(known, DType):
        return known
    if isinstance(value, bool):
        return dtypes.uint8
    if isinstance(value, np.generic):
        if value.dtype == np.float64:
            return dtypes.float32
        if value.dtype in (np.int64, np.uint64):
            return dtypes.int32
        found = dtypes.of(value.dtype)
        if found is not None:
            return found
    if isinstance(value, int):
        return dtypes.int32
    if is_number(value):
        return dtypes.float32
    raise IllegalOperand(
        f"{value!r} is neither a tile nor a number", advice="pass a tile of the kernel or a Python number"
    )


def chosen(dtype: Any, call: str) -> DType:
    """Return what ``dtype=`` names.

    Raises:
        IllegalOperand: not a data type of NKI.
    """
    return checked_dtype(call, dtype)


def promoted(*values: Any) -> DType:
    """Return the promoted data type of tiles and numbers."""
    found = dtype_of(values[0])
    for value in values[1:]:
        found = _pair(found, dtype_of(value))
    return found


def result_dtype(dtype: Any, call: str, *values: Any) -> DType:
    """Return what ``dtype=`` names, or the promoted type of the inputs."""
    return promoted(*values) if dtype is None else chosen(dtype, call)


def _pair(one: DType, other: DType) -> DType:
    if one == other:
        return one
    if one.is_float != other.is_float:
        return one if one.is_float else other
    if one.is_float:
        return _wider_float(one, other)
    return _wider_int(one, other)


def _wider_float(one: DType, other: DType) -> DType:
    wide, narrow = (one, other) if one.size_bytes >= other.size_bytes else (other, one)
    if wide.size_bytes > narrow.size_bytes:
        return wide
    return dtypes.float32 if wide.size_bytes == 2 else dtypes.bfloat16


def _wider_int(one: DType, other: DType) -> DType:
    kinds = {Kind.UINT if dtype.kind == Kind.BOOL else dtype.kind for dtype in (one, other)}
    wide, narrow = (one, other) if one.size_bytes >= other.size_bytes else (other, one)
    if len(kinds) == 1:
        return dtypes.uint8 if wide.kind == Kind.BOOL else wide
    if wide.kind == Kind.INT and wide.size_bytes > narrow.size_bytes:
        return wide
    return _SIGNED.get(2 * (wide if wide.kind != Kind.INT else narrow).size_bytes, dtypes.float32)
