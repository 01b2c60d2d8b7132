"""A device file as frozen dataclasses: every figure of a chip, checked, with its unit, source and standing.

The unit is part of a field's name (``clock_ghz``, ``partition_bytes``); ``Chip.figure`` tells where a value
comes from. A file holds exactly the fields below: an unknown, missing or senseless one is a ConfigurationError.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from neurosim.errors import ConfigurationError
from neurosim.plain_numbers import plain
from neurosim.spelling import meant

Value = int | float | str | tuple[str, ...] | tuple[tuple[str, ...], ...]

REPLACED: Final = "Chip.replace"
"""Source of a figure that a caller changed."""

STANDINGS: Final = ("documented", "measured", "fitted", "assumed")
"""From best to worst: the vendor says so; timed on a device; chosen to meet several measurements; a guess."""

TURNS: Final = {
    "sbuf.vector_gpsimd_turns": ("always", "performance_modes", "never"),
    "psum.vector_scalar_turns": ("always", "bank", "never"),
}
"""When two engines take turns at a memory; a turn lasts while an instruction's elements pass."""

_LEAST, _MOST = 1e-8, 1e15
"""Between these times are whole picoseconds in 64 bits."""
_MAY_BE_ZERO: Final = frozenset({"cycles", "ns"})
_ATTRIBUTES: Final = ("value", "unit", "source", "standing")
_GENERATIONS: Final = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class Figure:
    """One entry of a device file.

    Attributes:
        value: the number (or names).
        unit: its unit.
        source: where it was published, and what was done to it.
        standing: one of ``STANDINGS``.
    """

    value: Value
    unit: str
    source: str
    standing: str

    @property
    def may_be_zero(self) -> bool:
        """Whether a chip may have 0 of it: no latency, but not no bandwidth."""
        return self.unit in _MAY_BE_ZERO


def _in(unit: str) -> Any:
    """A field whose figure must have this unit."""
    return field(metadata={"unit": unit})


@dataclass(frozen=True, slots=True, kw_only=True)
class Hbm:
    """Device memory, as far as one core sees it; the cores of a launch share its bandwidth."""

    bandwidth_gb_per_s: float = _in("GB/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sbuf:
    """The state buffer, what a stride costs in on-chip memory, and when Vector and GpSimd take turns at their port.

    Compilers hand out ``usable_ratio`` of each partition, and keep the rest for themselves.
    ``vector_gpsimd_turns`` is one of ``TURNS``: ``always``, only in Vector's ``performance_modes``, or ``never``.
    """

    partition_bytes: int = _in("B")
    usable_ratio: float = _in("ratio")
    stride_bytes: int = _in("B")
    strided_slowdown: float = _in("ratio")
    vector_gpsimd_turns: str = _in("rule")

    @property
    def usable_bytes(self) -> int:
        """Bytes of each partition that compilers hand out; a ratio above 1 is all of it."""
        return min(int(self.partition_bytes * self.usable_ratio), self.partition_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Psum:
    """The accumulation buffer, and when Vector and Scalar take turns at it.

    ``vector_scalar_turns`` is one of ``TURNS``: ``always``, only in one ``bank``, or ``never``.
    """

    banks: int = _in("count")
    bank_bytes: int = _in("B")
    vector_scalar_turns: str = _in("rule")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """The systolic array."""

    clock_ghz: float = _in("GHz")
    rows: int = _in("count")
    columns: int = _in("count")
    minimum_cycles: float = _in("cycles")
    pass_overhead_cycles: float = _in("cycles")
    latency_cycles: float = _in("cycles")
    transpose_latency_cycles: float = _in("cycles")
    load_cycles: float = _in("cycles")
    fast_load_cycles: float = _in("cycles")
    wide_transpose_passes: int = _in("count")
    hinted_transpose_passes: int = _in("count")
    transpose_hold_ratio: float = _in("ratio")
    throttle_window_ns: float = _in("ns")
    throttled_clock_ghz: float = _in("GHz")
    throttled_latency_ns: float = _in("ns")
    throttle_up_ratio: float = _in("ratio")
    throttle_down_ratio: float = _in("ratio")

    def peak_tflop_per_s(self, passes: int = 1) -> float:
        """Peak rate of a matrix multiplication whose operands stream ``passes`` times: 1, or 4 for float32."""
        return 2e-3 * self.rows * self.columns * self.clock_ghz / passes


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """The Vector engine. Rates are cycles per free element; latencies run from issue to completion.

    ``pair`` is two tiles in SBUF, ``half`` an operation on ``fast_formats`` only.
    """

    clock_ghz: float = _in("GHz")
    latency_cycles: float = _in("cycles")
    issue_cycles: float = _in("cycles")
    pointer_cycles: float = _in("cycles")
    single_cycles_per_element: float = _in("cycles/element")
    double_cycles_per_element: float = _in("cycles/element")
    quad_cycles_per_element: float = _in("cycles/element")
    widening_cycles_per_element: float = _in("cycles/element")
    fast_formats: tuple[str, ...] = _in("formats")
    pair_cycles_per_element: float = _in("cycles/element")
    half_pair_cycles_per_element: float = _in("cycles/element")
    half_reduce_cycles_per_element: float = _in("cycles/element")
    reciprocal_cycles_per_element: float = _in("cycles/element")
    scan_cycles_per_element: float = _in("cycles/element")
    predicated_cycles_per_element: float = _in("cycles/element")
    bn_aggr_cycles_per_element: float = _in("cycles/element")
    memset_latency_cycles: float = _in("cycles")
    memset_cycles_per_element: float = _in("cycles/element")
    half_zero_cycles_per_element: float = _in("cycles/element")
    shuffle_latency_cycles: float = _in("cycles")
    mask_load_cycles: float = _in("cycles")
    accumulator_issue_cycles: float = _in("cycles")
    transpose_latency_cycles: float = _in("cycles")
    random_cycles_per_element: float = _in("cycles/element")
    exponential_cycles_per_element: float = _in("cycles/element")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """The Scalar (activation) engine."""

    clock_ghz: float = _in("GHz")
    cycles_per_element: float = _in("cycles/element")
    fast_cycles_per_element: float = _in("cycles/element")
    copy_latency_cycles: float = _in("cycles")
    copy_psum_latency_cycles: float = _in("cycles")
    copy_issue_cycles: float = _in("cycles")
    copy_psum_issue_cycles: float = _in("cycles")
    pointer_cycles: float = _in("cycles")
    activation_latency_cycles: float = _in("cycles")
    activation_issue_cycles: float = _in("cycles")
    activation_psum_latency_cycles: float = _in("cycles")
    activation_psum_issue_cycles: float = _in("cycles")
    activation_psum_cycles_per_element: float = _in("cycles/element")
    silu_psum_cycles_per_element: float = _in("cycles/element")
    psum_write_latency_cycles: float = _in("cycles")
    accumulator_latency_cycles: float = _in("cycles")
    accumulator_issue_cycles: float = _in("cycles")
    table_load_cycles: float = _in("cycles")
    table_sets: tuple[tuple[str, ...], ...] = _in("functions")
    resident_functions: tuple[str, ...] = _in("functions")
    stride_free_elements: int = _in("count")
    stride_limit_elements: int = _in("count")
    stride_cycles_per_element: float = _in("cycles/element")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpSimd:
    """The general-purpose engine."""

    clock_ghz: float = _in("GHz")
    issue_cycles: float = _in("cycles")
    drain_cycles: float = _in("cycles")
    cycles_per_element: float = _in("cycles/element")
    memset_latency_cycles: float = _in("cycles")
    gather_overhead_cycles: float = _in("cycles")
    gather_unroll: int = _in("count")
    topk_cycles_per_element: float = _in("cycles/element")
    random_cycles_per_element: float = _in("cycles/element")
    partition_reduce_cycles_per_element: float = _in("cycles/element")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dma:
    """The DMA engines of one core, their queues and their latencies. Bandwidths are per DMA engine."""

    engines: int = _in("count")
    engine_gb_per_s: float = _in("GB/s")
    load_gb_per_s: float = _in("GB/s")
    descriptor_ns: float = _in("ns")
    descriptor_max_bytes: int = _in("B")
    trigger_ns: float = _in("ns")
    hwdge_interval_ns: float = _in("ns")
    hwdge_first_data_ns: float = _in("ns")
    swdge_interval_ns: float = _in("ns")
    swdge_free_descriptors: int = _in("count")
    swdge_descriptor_ns: float = _in("ns")
    swdge_load_first_data_ns: float = _in("ns")
    swdge_store_first_data_ns: float = _in("ns")
    static_gap_ns: float = _in("ns")
    static_first_data_ns: float = _in("ns")
    queue_depth: int = _in("count")
    load_payload_ns: float = _in("ns")
    load_payload_ratio: float = _in("ratio")
    store_payload_ns: float = _in("ns")
    store_payload_ratio: float = _in("ratio")
    load_semaphore_ns: float = _in("ns")
    store_semaphore_ns: float = _in("ns")
    transpose_load_ratio: float = _in("ratio")
    transpose_sbuf_ratio: float = _in("ratio")
    transpose_wide_ratio: float = _in("ratio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """Semaphores: between engines, of an engine that waits for its own earlier result, and between two cores.

    ``core_barrier_ns`` is from the last core's arrival to all going on; ``core_swap`` is what GpSimd's own DMA takes to
    exchange tiles with the other core: a fixed time, with the meeting, and a rate.
    """

    semaphore_ns: float = _in("ns")
    own_semaphore_ns: float = _in("ns")
    core_barrier_ns: float = _in("ns")
    core_swap_ns: float = _in("ns")
    core_swap_gb_per_s: float = _in("GB/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequencer:
    """What an engine's sequencer takes for scalar registers and for the head of a loop on the device."""

    move_ns: float = _in("ns")
    sbuf_load_ns: float = _in("ns")
    sbuf_store_ns: float = _in("ns")
    hbm_load_ns: float = _in("ns")
    hbm_store_ns: float = _in("ns")
    turn_ns: float = _in("ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a call costs beside the kernel's own body, as ``nki.benchmark`` and a profile's total time see it."""

    benchmark_ns: float = _in("ns")
    profile_ns: float = _in("ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One chip generation's NeuronCore. Make one with :func:`load`, a variant with :meth:`replace`.

    Attributes:
        name: the chip's name.
        generation: of the NeuronCore, 2 for trn1, 3 for trn2, 4 for trn3.
        partitions: of SBUF and PSUM.
        cores: that one launch can have; they share HBM.
        figures: provenance by path, such as ``tensor.clock_ghz``.
    """

    name: str = _in("name")
    generation: int = _in("count")
    partitions: int = _in("count")
    cores: int = _in("count")
    hbm: Hbm
    sbuf: Sbuf
    psum: Psum
    tensor: Tensor
    vector: Vector
    scalar: Scalar
    gpsimd: GpSimd
    dma: Dma
    sync: Sync
    sequencer: Sequencer
    launch: Launch
    figures: Mapping[str, Figure] = field(repr=False, compare=False)

    def figure(self, path: str) -> Figure:
        """Return value, unit, source and standing of a field, such as ``tensor.clock_ghz``.

        Raises:
            ConfigurationError: no such field.
        """
        found = self.figures.get(path) if isinstance(path, str) else None
        if found is None:
            raise _unknown(self.name, path)
        return found

    def standings(self) -> dict[str, int]:
        """Return how many figures have each standing, from best to worst."""
        found = [figure.standing for figure in self.figures.values()]
        return {standing: found.count(standing) for standing in STANDINGS}

    @property
    def is_validated(self) -> bool:
        """Whether any figure was measured on this chip; if not, nothing tells how far its times are right."""
        counts = self.standings()
        return counts["measured"] + counts["fitted"] > 0

    def replace(self, **changes: Any) -> Chip:
        """Return a variant of this chip.

        Fields are named ``tensor__clock_ghz=1.2`` or ``**{"tensor.clock_ghz": 1.2}``; values have the unit that
        the name says.

        Raises:
            ConfigurationError: an unknown field or a senseless value.
        """
        figures = dict(self.figures)
        for name, value in changes.items():
            path = name.replace("__", ".")
            if path not in figures:
                raise _unknown(self.name, path)
            unit = figures[path].unit
            checked = _value(f"{self.name}: {path}", value, _FIELDS[path], unit)
            figures[path] = Figure(checked, unit, REPLACED, "assumed")
        return _build(figures)


_SECTIONS: Final[dict[str, type[Any]]] = {
    "chip": Chip,
    "hbm": Hbm,
    "sbuf": Sbuf,
    "psum": Psum,
    "tensor": Tensor,
    "vector": Vector,
    "scalar": Scalar,
    "gpsimd": GpSimd,
    "dma": Dma,
    "sync": Sync,
    "sequencer": Sequencer,
    "launch": Launch,
}


def psum_bytes(chip: Chip) -> int:
    """Return the bytes that PSUM has in each partition, in all of its banks."""
    return chip.psum.banks * chip.psum.bank_bytes


def _fields() -> Iterator[tuple[str, tuple[Any, str]]]:
    for section, cls in _SECTIONS.items():
        hints = get_type_hints(cls)
        for entry in dataclasses.fields(cls):
            if "unit" in entry.metadata:
                yield f"{section}.{entry.name}", (hints[entry.name], entry.metadata["unit"])


_KINDS: Final = dict(_fields())
_FIELDS: Final = {path: kind for path, (kind, _) in _KINDS.items()}
_UNITS: Final = {path: unit for path, (_, unit) in _KINDS.items()}


def load(path: str | Path, bases: Path | None = None) -> Chip:
    """Read a device file.

    A file that begins with ``base = "trn2"`` takes what it does not say from that chip's file. What was measured
    on the base, or fitted to it, is assumed for the chip.

    Args:
        path: the file.
        bases: the folder of the files that ``base`` names; by default the file's own.

    Raises:
        ConfigurationError: a file is missing or no TOML, or a field is unknown, missing or senseless.
    """
    path = Path(path)
    tree = _parse(path)
    base = tree.pop("base", None)
    figures = _figures(path, tree)
    if base is not None:
        inherited = _inherit(path, base, bases or path.parent)
        inherited.pop("chip.name", None)
        figures = inherited | figures
    missing = [name for name in _FIELDS if name not in figures]
    if missing:
        raise ConfigurationError(
            f"{path.name}: missing field {missing[0]}",
            numbers=(f"{len(missing)} missing: " + ", ".join(missing),),
            advice=f"add [{missing[0]}] with value, unit = {_UNITS[missing[0]]!r}, source and standing",
        )
    return _build({name: figures[name] for name in _FIELDS})


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"device file {path}: {error.strerror}", advice="check the path, or name a chip that `neurosim chips` lists"
        ) from error
    except ValueError as error:  # of UTF-8, of TOML, or a whole number of thousands of digits
        raise ConfigurationError(
            f"device file {path} is no TOML",
            numbers=(str(error),),
            advice="correct that line; isa/devices holds files to begin with",
        ) from error


def _inherit(path: Path, base: Any, folder: Path) -> dict[str, Figure]:
    """Return the figures of another file, as far as they hold for this one's chip."""
    file = folder / f"{base}.toml"
    if not isinstance(base, str) or not file.is_file():
        known = ", ".join(sorted(found.stem for found in folder.glob("*.toml")))
        raise ConfigurationError(
            f"{path.name}: there is no base {base!r}",
            numbers=(f"known: {known}",),
            advice="name one of these as base, or leave base out and give every figure",
        )
    tree = _parse(file)
    if "base" in tree:
        raise ConfigurationError(f"{path.name}: base {base!r} has a base itself", advice="name that one")
    return {
        name: Figure(
            figure.value,
            figure.unit,
            f"{base}: {figure.source}",
            "documented" if figure.standing == "documented" else "assumed",
        )
        for name, figure in _figures(file, tree).items()
    }


def _figures(path: Path, tree: Mapping[str, Any]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for section, entries in tree.items():
        if section not in _SECTIONS or not isinstance(entries, dict):
            raise ConfigurationError(
                f"{path.name}: unknown section {section}",
                numbers=("known: " + ", ".join(_SECTIONS),),
                advice=_suggest(section, _SECTIONS),
            )
        for name, entry in entries.items():
            figures[f"{section}.{name}"] = _figure(path.name, f"{section}.{name}", entry)
    return figures


def _figure(file: str, path: str, entry: Any) -> Figure:
    if path not in _FIELDS:
        raise _unknown(file, path)
    what = f"{file}: {path}"
    given = tuple(entry) if isinstance(entry, dict) else ()
    if sorted(given) != sorted(_ATTRIBUTES):
        raise ConfigurationError(
            f"{what} must have exactly value, unit, source and standing",
            numbers=("it has " + (", ".join(given) or repr(entry)),),
            advice='write it as { value = 1.4, unit = "GHz", source = "…", standing = "documented" }',
        )
    unit, source, standing = entry["unit"], entry["source"], entry["standing"]
    if unit != _UNITS[path]:
        raise ConfigurationError(
            f"{what} has unit {unit!r}",
            numbers=(f"it must be {_UNITS[path]!r}",),
            advice="convert the value to that unit",
        )
    if standing not in STANDINGS:
        raise ConfigurationError(
            f"{what} has standing {standing!r}",
            numbers=("known: " + ", ".join(STANDINGS),),
            advice="write assumed where nobody documented or measured it",
        )
    if not isinstance(source, str) or not source.strip():
        raise ConfigurationError(f"{what} has no source", advice="say where the figure was published")
    return Figure(_value(what, entry["value"], _FIELDS[path], unit), unit, source, standing)


def _value(what: str, value: Any, kind: Any, unit: str) -> Value:
    """Check a value against a field's type and unit, and return it as that type."""
    if kind is str:
        return _word(what, value, unit)
    if kind is int or kind is float:
        return _number(what, value, kind, unit)
    names: Value | None = _names(value, nested=get_args(kind)[0] is not str)
    if names is None:
        raise ConfigurationError(
            f"{what} = {value!r} is no list of {unit}", advice='write it as a list of texts, such as ["exp", "tanh"]'
        )
    return names


def _word(what: str, value: Any, unit: str) -> str:
    known = TURNS.get(what.rpartition(": ")[2])
    if not isinstance(value, str) or not value or (known is not None and value not in known):
        raise ConfigurationError(
            f"{what} = {value!r} is no {unit}",
            numbers=("known: " + ", ".join(known),) if known else (),
            advice="write one of these in quotes" if known else "write it as text in quotes that is not empty",
        )
    return value


def _number(what: str, value: Any, kind: type[int] | type[float], unit: str) -> int | float:
    value = plain(value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole and (kind is int or not isinstance(value, float)):
        word = "a whole number" if kind is int else "a number"
        raise ConfigurationError(
            f"{what} = {value!r} is not {word}",
            numbers=(f"unit: {unit}",),
            advice="write the number alone, without quotes; its unit stands beside it",
        )
    if not (_LEAST <= value <= _MOST or (value == 0 and unit in _MAY_BE_ZERO)):
        least = "0 or more" if unit in _MAY_BE_ZERO else "above 0"
        raise ConfigurationError(
            f"{what} = {value} {unit} makes no sense",
            numbers=(f"it must be {least}", f"figures of any size are from {_LEAST:g} to {_MOST:g}"),
            advice="correct the value; nan and inf are no figures",
        )
    if what.endswith(".generation") and value not in _GENERATIONS:
        raise ConfigurationError(
            f"{what} = {value}",
            numbers=(f"known generations: {_GENERATIONS}",),
            advice="take the generation of the chip that yours is a variant of",
        )
    return kind(value)


def _names(value: Any, *, nested: bool) -> Any:
    """Return a list of names, or of lists of names, as tuples; None if it is neither."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return None
    if nested:
        rows = tuple(_names(row, nested=False) for row in value)
        return None if None in rows else rows
    return tuple(value) if all(isinstance(name, str) and name for name in value) else None


def _unknown(where: str, path: Any) -> ConfigurationError:
    return ConfigurationError(f"{where}: unknown field {path}", advice=_suggest(str(path), _FIELDS))


def _suggest(name: str, known: Mapping[str, Any]) -> str:
    return meant(name, known) or f"it is one of {len(known)}: {', '.join(known)}"


def _build(figures: Mapping[str, Figure]) -> Chip:
    values: dict[str, dict[str, Any]] = {name: {} for name in _SECTIONS}
    for path in _FIELDS:
        section, _, name = path.partition(".")
        values[section][name] = figures[path].value
    nested = {name: cls(**values[name]) for name, cls in _SECTIONS.items() if cls is not Chip}
    return Chip(**values["chip"], **nested, figures=dict(figures))
