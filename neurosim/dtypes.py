"""Number formats as data: bits, bias, special codes and storage type. No arithmetic happens here.

A :class:`DType` is a string, as in NKI (``nl.bfloat16 == "bfloat16"``), that NumPy also takes as a dtype
(``np.zeros(4, dtype=nl.bfloat16)``).

Source of the list: AWS Neuron SDK, ``nki/api/nki.api.shared.rst``, "Supported Data Types by NKI"; of the packed
formats ``nki/deep-dives/mxfp-matmul.rst``, "Data Tensor"; of their codes OCP Microscaling Formats (MX) 1.0.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import ml_dtypes
import numpy as np


class Kind(IntEnum):
    """What the bits of a format mean.

    ``SCALE`` is a power of two without a sign; ``PACKED`` is several values in one element, which only a few
    instructions take.
    """

    FLOAT = 0
    INT = 1
    UINT = 2
    BOOL = 3
    SCALE = 4
    PACKED = 5


class DType(str):
    """One number format.

    Attributes:
        code: small integer that compiled code switches on.
        kind: float, signed, unsigned or bool.
        is_float: whether the format is a floating-point one.
        is_packed: whether an element holds several values.
        is_integer: whether the format is a signed or unsigned integer (bool is neither).
        size_bytes: bytes an element takes in memory.
        numpy: the NumPy (or ml_dtypes) dtype of arrays of it.
        face: the dtype that users see, another one for packed formats: NumPy has none, and integers do not say what
            is packed in them. Its fields are the packed values (two in a byte for 4-bit ones).
        bits: the unsigned NumPy dtype of the same size, for bit-exact moves.
        moved: the dtype in which arrays of it are moved: its own where that is a number of NumPy's, else ``bits``,
            which NumPy moves in half of the time.
        exponent_bits, mantissa_bits, bias: layout of a float format, and of the values of a packed one; 0 for the
            others. tfloat32 leaves the 13 last bits of its 32 unused.
        lanes: values in one element, 1 where nothing is packed. The first one is in the lowest bits.
        has_inf: whether the format has codes for infinity.
        nan_code: the canonical quiet NaN, as an integer; -1 where the format has none.
        max_value: the largest finite value.
        min_value: the smallest (most negative) finite value.
    """

    code: int
    kind: Kind
    is_float: bool
    is_packed: bool
    is_integer: bool
    size_bytes: int
    numpy: np.dtype[Any]
    face: np.dtype[Any]
    bits: np.dtype[Any]
    moved: np.dtype[Any]
    lanes: int
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

    def __repr__(self) -> str:
        return str(self)


def _make(name: str, code: int, kind: Kind, numpy: Any, layout: tuple[int, int, int] = (0, 0, 0)) -> DType:
    dtype = DType(name)
    dtype.code, dtype.kind, dtype.numpy, dtype.lanes = code, kind, np.dtype(numpy), 1
    dtype.is_float, dtype.is_packed = kind == Kind.FLOAT, kind == Kind.PACKED
    dtype.is_integer = kind in (Kind.INT, Kind.UINT)
    dtype.face = dtype.numpy
    dtype.size_bytes = dtype.numpy.itemsize
    dtype.bits = np.dtype(f"uint{8 * dtype.size_bytes}")
    dtype.moved = dtype.numpy if dtype.numpy.kind in "iuf" and dtype.numpy.isbuiltin == 1 else dtype.bits
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
    elif kind == Kind.SCALE:
        dtype.max_value, dtype.min_value, dtype.nan_code = 2.0**127, 2.0**-127, 0xFF
    else:
        limits = np.iinfo(dtype.numpy)
        dtype.max_value, dtype.min_value = float(limits.max), float(limits.min)
    return dtype


def _make_tfloat32() -> DType:
    """tfloat32 lies in memory as a float32 with its 13 last bits unused."""
    dtype = _make("tfloat32", 13, Kind.FLOAT, np.float32, (8, 10, 127))
    dtype.max_value = (2 - 2.0**-10) * 2.0**127
    dtype.min_value = -dtype.max_value
    dtype.nan_code = float32.nan_code
    return dtype


def _make_packed(name: str, code: int, value: Any, layout: tuple[int, int, int], numpy: Any, parts: Any) -> DType:
    """Four values of 8 or 4 bits; ``parts`` are the bytes of an element as users see them."""
    dtype = _make(name, code, Kind.PACKED, numpy, layout)
    info: Any = ml_dtypes.finfo(value)  # type: ignore[no-untyped-call]
    dtype.max_value, dtype.min_value, dtype.lanes = float(info.max), float(info.min), 4
    dtype.has_inf = name.startswith("float8_e5m2")
    dtype.face = np.dtype(parts)
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
tfloat32: Final = _make_tfloat32()
float8_e8m0fnu: Final = _make("float8_e8m0fnu", 14, Kind.SCALE, ml_dtypes.float8_e8m0fnu, (8, 0, 127))
float8_e4m3fn_x4: Final = _make_packed(
    "float8_e4m3fn_x4",
    15,
    ml_dtypes.float8_e4m3fn,
    (4, 3, 7),
    np.uint32,
    [(f"x{index}", ml_dtypes.float8_e4m3fn) for index in range(4)],
)
float8_e5m2_x4: Final = _make_packed(
    "float8_e5m2_x4",
    16,
    ml_dtypes.float8_e5m2,
    (5, 2, 15),
    np.uint32,
    [(f"x{index}", ml_dtypes.float8_e5m2) for index in range(4)],
)
float4_e2m1fn_x4: Final = _make_packed(
    "float4_e2m1fn_x4",
    17,
    ml_dtypes.float4_e2m1fn,
    (2, 1, 1),
    np.uint16,
    [("float4_x0_x1", np.uint8), ("float4_x2_x3", np.uint8)],
)
float8_e3m4: Final = _make("float8_e3m4", 18, Kind.FLOAT, ml_dtypes.float8_e3m4, (3, 4, 3))

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
    tfloat32,
    float8_e8m0fnu,
    float8_e4m3fn_x4,
    float8_e5m2_x4,
    float4_e2m1fn_x4,
)
"""The formats that NKI names, and so the ones that tensors have."""

FORMATS: Final = (*ALL, float8_e3m4)
"""All formats, with the one that NeuronCore-v2 has and no version of NKI names: values convert to it and from it.

Source: AWS Neuron SDK, ``about-neuron/arch/neuron-features/data-types.rst``, which lists it among
NeuronCore-v2's.
"""

PACKED: Final = (float8_e4m3fn_x4, float8_e5m2_x4, float4_e2m1fn_x4)
"""The formats that hold several values in one element, for MX matrix multiplication."""

_BY_NAME: Final[dict[str, DType]] = {dtype: dtype for dtype in ALL} | {"bool_": bool_}
# arrays of float32 are float32: nothing in them says that they hold tfloat32
_BY_NUMPY: Final[dict[np.dtype[Any], DType]] = {dtype.face: dtype for dtype in ALL if dtype != "tfloat32"}

# so that np.dtype(nl.float8_e4m3fn_x4) works, as ml_dtypes does with its own names
for _dtype in (tfloat32, *PACKED):
    np.sctypeDict.setdefault(str(_dtype), _dtype.face)  # type: ignore[arg-type]


def of(spec: Any) -> DType | None:
    """Return the format of NKI that ``spec`` (a DType, a name, a NumPy dtype or scalar type) names, or None."""
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str):
        return _BY_NAME.get(spec)
    try:
        return _BY_NUMPY.get(np.dtype(spec))
    except (TypeError, ValueError):  # ValueError: of something with an attribute dtype, as a tensor has
        return None


def format_of(spec: Any) -> DType | None:
    """Return the format that ``spec`` names, as `of` does, `float8_e3m4` included."""
    try:
        return float8_e3m4 if spec == float8_e3m4 or np.dtype(spec) == float8_e3m4.numpy else of(spec)
    except (TypeError, ValueError):
        return of(spec)
