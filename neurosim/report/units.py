"""Numbers as people read them. Three significant digits, and always a unit."""

from __future__ import annotations

_TIMES = ((10**12, "s"), (10**9, "ms"), (10**6, "µs"), (10**3, "ns"), (1, "ps"))
_DECIMAL = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"), (1, ""))
_BINARY = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def digits(value: float) -> str:
    """Three significant digits without an exponent: 3.14, 31.4, 314, 3141."""
    magnitude = abs(value)
    if magnitude == 0:
        return "0"
    if magnitude < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if magnitude < 99.95 else f"{value:.0f}"


def time(ps: float) -> str:
    """Picoseconds in the largest unit that leaves a digit before the point."""
    if ps == 0:
        return "0 ns"
    scale, unit = next((row for row in _TIMES if abs(ps) >= row[0]), _TIMES[-1])
    return f"{digits(ps / scale)} {unit}"


def decimal(value: float, unit: str) -> str:
    """A count with an SI prefix: bytes moved, operations."""
    scale, prefix = next((row for row in _DECIMAL if abs(value) >= row[0]), _DECIMAL[-1])
    return f"{digits(value / scale)} {prefix}{unit}"


def binary(size_bytes: float) -> str:
    """A memory size in KiB, MiB, GiB."""
    scale, unit = next((row for row in _BINARY if abs(size_bytes) >= row[0]), _BINARY[-1])
    number = size_bytes / scale
    return f"{number:g} {unit}" if number == int(number) else f"{digits(number)} {unit}"


def percent(fraction: float) -> str:
    """A fraction as a percentage; what is there but rounds to nothing says so."""
    if 0 < fraction < 0.0005:
        return "<0.1 %"
    return f"{100 * fraction:.1f} %"
