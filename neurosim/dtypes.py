"""Number formats as data: bits, bias, special codes and storage type. No arithmetic happens here.

A :class:`DType` is a string, as in NKI (``nl.bfloat16 == "bfloat16"``), that NumPy also takes as a dtype
(``np.zeros(4, dtype=nl.bfloat16)``).

Source of the list: AWS Neuron SDK, ``nki/api/nki.api.shared.rst``, "Supported Data Types by NKI".
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import ml_dtypes
import numpy as np


class Kind(IntEnum):
    """What the bits of a format mean."""

    FLOAT = 0
    INT = 1
    UINT = 2
    BOOL = 3


class DType(str):
    """One number format.

    Attributes:
        code: small integer that compiled code switches on.
        kind: float, signed, unsigned or bool.
        size_bytes: bytes an element takes in memory.
        numpy: the NumPy (or ml_dtypes) dtype that users see.
        bits: the unsigned NumPy dtype of the same size, for bit-exact moves.
        exponent_bits, mantissa_bits, bias: layout of a float format, 0 for the others.
        has_inf: whether the format has codes for infinity.
        nan_code: the canonical quiet NaN, as an integer; -1 where the format has none.
        max_value: the largest finite value.
        min_value: the smallest (most negative) finite value.
    """

    code: int
    kind: Kind
    size_bytes: int
    numpy: np.dtype[Any]
    bits: np.dtype[Any]
    exponent_bits: int
    mantissa_bits: int
    bias: int
    has_inf: bool
    nan_code: int
    max_value: float
    min_value: float

    @property
    def itemsize(self) -> int:
        """Bytes an element takes, under NumPy's name for it."""
        return self.size_bytes

    @property
    def is_float(self) -> bool:
        """Whether the format is a floating-point one."""
        return self.kind == Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        """Whether the format is a signed or unsigned integer (bool is neither)."""
        return self.kind in (Kind.INT, Kind.UINT)

    def __repr__(self) -> str:
        return str(self)


def _make(name: str, code: int, kind: Kind, numpy: Any, layout: tuple[int, int, int] = (0, 0, 0)) -> DType:
    dtype = DType(name)
    dtype.code, dtype.kind, dtype.numpy = code, kind, np.dtype(numpy)
    dtype.size_bytes = dtype.numpy.itemsize
    dtype.bits = np.dtype(f"uint{8 * dtype.size_bytes}")
    dtype.exponent_bits, dtype.mantissa_bits, dtype.bias = layout
    dtype.has_inf, dtype.nan_code = False, -1
    if kind == Kind.FLOAT:
        info: Any = ml_dtypes.finfo(dtype.numpy)  # type: ignore[no-untyped-call]
        dtype.max_value, dtype.min_value = float(info.max), float(info.min)
        dtype.has_inf = name != "float8_e4m3fn"
        exponent_ones = (1 << dtype.exponent_bits) - 1
        quiet = 1 << (dtype.mantissa_bits - 1)
        all_ones = (1 << dtype.mantissa_bits) - 1
        dtype.nan_code = (exponent_ones << dtype.mantissa_bits) | (quiet if dtype.has_inf else all_ones)
    elif kind == Kind.BOOL:
        dtype.max_value, dtype.min_value = 1.0, 0.0
    else:
        limits = np.iinfo(dtype.numpy)
        dtype.max_value, dtype.min_value = float(limits.max), float(limits.min)
    return dtype


float32: Final = _make("float32", 0, Kind.FLOAT, np.float32, (8, 23, 127))
bfloat16: Final = _make("bfloat16", 1, Kind.FLOAT, ml_dtypes.bfloat16, (8, 7, 127))
float16: Final = _make("float16", 2, Kind.FLOAT, np.float16, (5, 10, 15))
float8_e4m3: Final = _make("float8_e4m3", 3, Kind.FLOAT, ml_dtypes.float8_e4m3, (4, 3, 7))
float8_e4m3fn: Final = _make("float8_e4m3fn", 4, Kind.FLOAT, ml_dtypes.float8_e4m3fn, (4, 3, 7))
float8_e5m2: Final = _make("float8_e5m2", 5, Kind.FLOAT, ml_dtypes.float8_e5m2, (5, 2, 15))
int8: Final = _make("int8", 6, Kind.INT, np.int8)
int16: Final = _make("int16", 7, Kind.INT, np.int16)
int32: Final = _make("int32", 8, Kind.INT, np.int32)
uint8: Final = _make("uint8", 9, Kind.UINT, np.uint8)
uint16: Final = _make("uint16", 10, Kind.UINT, np.uint16)
uint32: Final = _make("uint32", 11, Kind.UINT, np.uint32)
bool_: Final = _make("bool", 12, Kind.BOOL, np.bool_)

ALL: Final[tuple[DType, ...]] = (
    float32,
    bfloat16,
    float16,
    float8_e4m3,
    float8_e4m3fn,
    float8_e5m2,
    int8,
    int16,
    int32,
    uint8,
    uint16,
    uint32,
    bool_,
)

PLANNED: Final = (
    "tfloat32",
    "float8_e8m0fnu",
    "float8_e4m3fn_x4",
    "float8_e5m2_x4",
    "float4_e2m1fn_x4",
)
"""Formats that NKI documents and that are not built here yet: kernels may name and compare them, not use them."""

_BY_NAME: Final[dict[str, DType]] = {dtype: dtype for dtype in ALL} | {"bool_": bool_}
_BY_NUMPY: Final[dict[np.dtype[Any], DType]] = {dtype.numpy: dtype for dtype in ALL}


def of(spec: Any) -> DType | None:
    """Return the format that ``spec`` (a DType, a name, a NumPy dtype or scalar type) names, or None."""
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str):
        return _BY_NAME.get(spec)
    try:
        return _BY_NUMPY.get(np.dtype(spec))
    except TypeError:
        return None
