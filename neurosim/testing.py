"""Comparisons for tests of kernels: how far values are from a reference, in units in the last place or relatively.

``numpy.testing`` compares float64 arrays; here the format of the *actual* values says what a unit is, bfloat16 and the
8-bit formats included, and the message says where they differ and how far.

Both take NumPy arrays (ml_dtypes formats too), PyTorch tensors, JAX arrays, numbers, and nested lists of numbers.
Packed formats are taken apart along the last axis, which has four times as many values then. The reference may have any
dtype that converts to float64, and is best given in float64: rounding it first would hide half a unit.
"""

from __future__ import annotations

import contextlib
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from neurosim import dtypes
from neurosim.dtypes import DType, Kind
from neurosim.launch.arrays import to_numpy
from neurosim.numerics import convert
from neurosim.spelling import spelt

Floats = npt.NDArray[np.float64]

_ROUNDED = tuple(known for known in dtypes.FORMATS if not known.is_packed)
_SMALL_INTEGERS = tuple(np.dtype(kind) for kind in (ml_dtypes.int2, ml_dtypes.int4, ml_dtypes.uint2, ml_dtypes.uint4))

__all__ = ["assert_close", "assert_ulp", "rounded", "ulp_distance", "ulp_of"]


@spelt
def ulp_of(values: Any, dtype: Any) -> Floats:
    """Return the size of one unit in the last place of ``dtype`` at each value.

    At a power of two it is the unit of the values above it; below the smallest normal number, that of the denormals;
    beyond the largest finite value, that of the largest binade. For integers and bool it is 1.

    Args:
        values: numbers, any shape.
        dtype: an NKI format (of a packed one, the unit of its values), its name, or a dtype of NumPy or ml_dtypes.

    Raises:
        TypeError: no such format, or values that are no numbers.
    """
    numbers = np.abs(_unpacked(_numbers(values, "values")).astype(np.float64))
    layout = _layout(dtype)
    if layout is None:
        return np.ones(numbers.shape)
    mantissa_bits, smallest, largest = layout
    exponent = np.where(numbers > 0.0, np.frexp(np.where(np.isfinite(numbers), numbers, 1.0))[1] - 1, smallest)
    units: Floats = np.ldexp(1.0, np.clip(exponent, smallest, largest) - mantissa_bits)
    return units


@spelt
def ulp_distance(actual: Any, expected: Any, dtype: Any = None) -> Floats:
    """Return how far each value is from the reference, in units in the last place of the format of ``actual``.

    The unit is taken at the reference. Two NaNs, and equal infinities, are 0 apart; a NaN and a number, or an infinity
    and anything else, are infinitely far apart. -0 and +0 are 0 apart.

    Args:
        actual: what was computed.
        expected: the reference; broadcast to the shape of ``actual``.
        dtype: another format whose units count: ``nl.tfloat32``, whose arrays are float32's, or a narrower one that
            values went through.

    Raises:
        AssertionError: shapes that do not broadcast to that of ``actual``.
        TypeError: a format that cannot be compared.
    """
    values, reference, dtype = _pair(actual, expected, dtype)
    with np.errstate(invalid="ignore"):
        distance = np.abs(values - reference) / ulp_of(reference, dtype)
    equal = (values == reference) | (np.isnan(values) & np.isnan(reference))
    return np.where(equal, 0.0, np.where(np.isfinite(values) & np.isfinite(reference), distance, np.inf))


@spelt
def assert_ulp(actual: Any, expected: Any, max_ulp: float = 1.0, dtype: Any = None) -> None:
    """Fail unless every value is within ``max_ulp`` units in the last place of the reference; see `ulp_distance`.

    Args:
        actual: what was computed; its dtype says what a unit is.
        expected: the reference.
        max_ulp: the limit; 0.5 asks for correct rounding, 0 for equality.
        dtype: another format whose units count, as in `ulp_distance`.

    Raises:
        AssertionError: a value is too far; says which, how far, and in which part of the array.
        TypeError: something that is no number, or no format.
        ValueError: a limit below 0, or NaN.
    """
    __tracebackhide__ = True
    max_ulp = _tolerance(max_ulp, "max_ulp")
    values, reference, dtype = _pair(actual, expected, dtype)
    distance = ulp_distance(actual, expected, dtype)
    _report(distance > max_ulp, distance, values, reference, f"{max_ulp:g} ulp of {_name(dtype)}")


@spelt
def assert_close(actual: Any, expected: Any, rtol: float | None = None, atol: float = 0.0) -> None:
    """Fail unless ``|actual - expected| <= atol + rtol * |expected|`` everywhere.

    Args:
        actual: what was computed.
        expected: the reference.
        rtol: relative tolerance; by default two units in the last place of the format of ``actual`` (bfloat16 1.6e-2,
            float16 2e-3, float32 2.4e-7), and 0 for integers and bool.
        atol: absolute tolerance. A sum that cancels has no small relative error: its tolerance belongs here.

    Raises:
        AssertionError: a value is too far; says which, how far, and in which part of the array.
        TypeError: something that is no number.
        ValueError: a tolerance below 0, or NaN.
    """
    __tracebackhide__ = True
    values, reference, dtype = _pair(actual, expected)
    layout = _layout(dtype)
    if rtol is None:
        rtol = 0.0 if layout is None else 2.0 ** (1 - layout[0])
    rtol, atol = _tolerance(rtol, "rtol"), _tolerance(atol, "atol")
    with np.errstate(invalid="ignore"):
        allowed = atol + rtol * np.abs(reference)
        far = ~(np.abs(values - reference) <= allowed)
    far &= ~((values == reference) | (np.isnan(values) & np.isnan(reference)))
    far |= np.isinf(reference) & (values != reference)  # an infinite tolerance allows nothing
    _report(far, ulp_distance(actual, expected), values, reference, f"rtol {rtol:g} and atol {atol:g}")


@spelt
def rounded(values: Any, dtype: Any) -> npt.NDArray[Any]:
    """Return values as an engine leaves them when it writes ``dtype``: through float32, rounded as in NUMERICS.md.

    Unlike ``astype``, this saturates where the hardware does (float8_e4m3 at 240, integers at their limits).

    Args:
        values: numbers, any shape; rounded to float32 first, which is what engines compute in.
        dtype: a format, its name, or a dtype of NumPy or ml_dtypes. float8_e3m4, which NKI does not name, is one.

    Returns:
        A new array of ``dtype`` (of float32 for tfloat32), of the same shape.

    Raises:
        TypeError: no such format, or a packed one; values that are no numbers.
        UnknownBehavior: float8_e8m0fnu, and a value that is not a power of two.
    """
    known = dtypes.format_of(dtype)
    if known is None or known.is_packed:
        raise TypeError(f"{dtype!r} is no format that values are rounded to; there are {', '.join(_ROUNDED)}")
    array = _numbers(values, "values")
    source = dtypes.format_of(array.dtype)
    if source is not None and source.is_packed:
        raise TypeError(f"values are {source}, of which each element holds several: give them one by one")
    with np.errstate(over="ignore"):
        singles = array.astype(np.float32) if source is None else convert.cast(array, source, dtypes.float32)
    return convert.cast(singles, dtypes.float32, known)


def _pair(actual: Any, expected: Any, dtype: Any = None) -> tuple[Floats, Floats, Any]:
    """Return both as float64, the reference in the shape of the actual values, and the format whose units count."""
    array, reference = (_unpacked(_numbers(*pair)) for pair in ((actual, "actual"), (expected, "expected")))
    try:
        reference = np.broadcast_to(reference, array.shape)
    except ValueError:
        raise AssertionError(
            f"the shapes differ: actual {list(array.shape)}, expected {list(reference.shape)}"
        ) from None
    return array.astype(np.float64), reference.astype(np.float64), array.dtype if dtype is None else dtype


def _tolerance(value: Any, name: str) -> float:
    """Return a limit as a number; arrays are none, and NaN, to which every distance compares as false, is refused."""
    try:
        if isinstance(value, (str, bytes, bool, np.bool_)) or np.ndim(value) or np.iscomplexobj(value):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} is {value!r}, which is not one number") from None
    if not number >= 0.0:
        raise ValueError(f"{name} is {number:g}; it is a distance, and so 0 or more")
    return number


def _numbers(values: Any, name: str) -> npt.NDArray[Any]:
    """Return values as an array of a format that has numbers, packed ones included."""
    try:
        array = np.asarray(to_numpy(values, name))
    except ValueError:
        raise TypeError(f"{name} is no array of numbers: its rows have different lengths") from None
    is_structure = array.dtype.type is np.void and dtypes.of(array.dtype) is None
    if array.dtype.kind in "OSUMmc" or is_structure:
        raise TypeError(f"{name} is {array.dtype}, which is no format of numbers")
    return array


def _unpacked(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the values of a packed format one by one along the last axis; any other array as it is."""
    known = dtypes.of(array.dtype)
    if known is None or not known.is_packed:
        return array
    codes = np.ascontiguousarray(array).view(np.uint8)
    if known != dtypes.float4_e2m1fn_x4:
        return codes.view(array.dtype[0])
    pairs = np.stack([codes & 15, codes >> 4], axis=-1)  # the first value is in the lower half
    return pairs.reshape(*codes.shape[:-1], -1).view(ml_dtypes.float4_e2m1fn)


def _layout(dtype: Any) -> tuple[int, int, int] | None:
    """Return (mantissa bits, smallest and largest exponent) of a format; None for integers and bool."""
    known = dtypes.of(dtype)
    if known is not None:
        if known.exponent_bits == 0:
            return None
        smallest = -known.bias if known.kind == Kind.SCALE else 1 - known.bias
        return known.mantissa_bits, smallest, int(np.frexp(known.max_value)[1]) - 1
    other = None
    if dtype is not None:  # which NumPy takes for float64
        with contextlib.suppress(Exception):
            other = np.dtype(dtype)
    if other is None:
        raise TypeError(f"{dtype!r} is no format: give one of NKI's, its name, or a dtype of NumPy or ml_dtypes")
    if other.kind in "iub" or other in _SMALL_INTEGERS:
        return None
    try:
        info: Any = ml_dtypes.finfo(other)  # type: ignore[no-untyped-call]
    except (KeyError, ValueError):
        raise TypeError(f"{other} has no unit in the last place that is known here") from None
    return int(info.nmant), int(info.minexp), int(np.frexp(float(info.max))[1]) - 1


def _name(dtype: Any) -> str:
    known: DType | None = dtypes.of(dtype)
    return str(dtype if known is None else known)


def _report(far: Any, distance: Floats, values: Floats, reference: Floats, limit: str) -> None:
    """Raise where ``far`` says so, with the worst elements and the box that they lie in."""
    __tracebackhide__ = True
    count = int(np.count_nonzero(far))
    if count == 0:
        return
    places = np.argwhere(far)
    order = np.argsort(-distance[tuple(places.T)], kind="stable")[:3]
    lines = [f"{count} of {far.size} values are further away than {limit}"]
    for number, place in enumerate(places[order]):
        at = tuple(int(index) for index in place)
        error, size = abs(values[at] - reference[at]), abs(reference[at])
        relative = f", relative {error / size:.2g}" if size and np.isfinite(error) else ""
        where = f"at {list(at)}" if at else "the value"
        numbers = f"{float(values[at])!r}, expected {float(reference[at])!r}"
        rank = "worst" if number == 0 else "also "
        lines.append(f"  {rank} {where}: {numbers} ({distance[at]:.4g} ulp{relative})")
    if places.shape[1] and count > 1:
        box = ", ".join(f"{low}:{high + 1}" for low, high in zip(places.min(0), places.max(0), strict=True))
        share = "all of it" if count == np.prod(places.max(0) - places.min(0) + 1) else "some of it"
        lines.append(f"  they lie within [{box}], {share}")
    finite = distance[np.isfinite(distance)]
    if finite.size > count:
        lines.append(f"  the others are at most {distance[~far].max():.4g} ulp away")
    for what, found in (
        ("NaN", np.isnan(values) & ~np.isnan(reference)),
        ("Inf", np.isinf(values) & np.isfinite(reference)),
    ):
        if found.any():
            lines.append(f"  {np.count_nonzero(found)} of them are {what} where a number is expected")
    raise AssertionError("\n".join(lines))
