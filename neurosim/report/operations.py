"""Every operation of a run as columns, for tables of other tools: one row per op, units in the names.

| Column | Holds |
|---|---|
| ``core`` | which core |
| ``engine`` | the unit: ``tensor``, ``vector``, …, ``dma0`` |
| ``kind`` | what the op is, a name of :class:`neurosim.timing.timeline.Op` in small letters |
| ``record`` | number of the instruction in the program; its ops share it |
| ``name`` | what the kernel called the instruction, empty for nothing |
| ``instruction`` | the instruction |
| ``file``, ``line``, ``function`` | the innermost kernel line that issued it |
| ``called_from`` | the lines that led there, innermost first, with ``<`` between them |
| ``queue`` | of a DMA, the queue that it went through, else empty |
| ``start_ps``, ``end_ps`` | from the start of the kernel's body |
| ``busy_ps`` | the unit's own work |
| ``stall_ps`` | how long the unit did nothing before ``start_ps`` |
| ``stall_reason``, ``stall_cause`` | why: the timeline's reason, and the finer cause of most; empty without a stall |
| ``waited_for_record`` | the instruction behind that cause, -1 (in files: nothing) where there is none |
| ``held_ps``, ``held_reason`` | of the time from start to end, what was spent waiting, and for what |
| ``operands``, ``parameters`` | as listings write them |
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import neurosim
from neurosim.errors import ConfigurationError
from neurosim.program import Frame, Program, Signature
from neurosim.record.listing import operand_text, parameters_text, place_text
from neurosim.report.queues import QUEUES, queues
from neurosim.timing.causes import CAUSES, causes
from neurosim.timing.timeline import REASONS, Op, Timeline, held_reasons
from neurosim.writing import compressed, replacing

SCHEMA: Final = "neurosim.operations/1"
"""Changes when a column changes its meaning or disappears; new columns do not change it."""

_CHUNK: Final = 1 << 16
_WITHOUT_NONE: Final = "waited_for_record"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: numbers, or indices of texts.

    Attributes:
        values: by row.
        texts: what they are indices of; None where they are the numbers themselves.
    """

    values: NDArray[Any]
    texts: tuple[str, ...] | None = None

    def plain(self) -> NDArray[Any]:
        """Return what the column holds: integers, or an object array of strings."""
        return self.values if self.texts is None else np.array(self.texts, dtype=object)[self.values]


class Operations:
    """The operations of a run, by core, engine and start."""

    def __init__(self, program: Program, timelines: Mapping[int, Timeline]) -> None:
        self._program, self._timelines = program, timelines
        signatures, stacks = program.signatures, program.stacks
        self._by_signature = {name: _interned(map(text, signatures)) for name, text in _OF_SIGNATURE.items()}
        self._by_stack = {name: _interned(map(text, stacks)) for name, text in _OF_STACK.items()}
        names = ["", *dict.fromkeys(program.names.values())]
        numbers = {name: number for number, name in enumerate(names)}
        named = np.zeros(len(program), dtype=np.int64)
        named[list(program.names)] = [numbers[name] for name in program.names.values()]
        self._names = Column(named, tuple(names))

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns whole, by name."""
        parts = list(self.parts())
        return {name: np.concatenate([part[name].plain() for part in parts]) for name in parts[0]}

    def parts(self) -> Iterator[dict[str, Column]]:
        """Yield the columns, some rows at a time; of a run without operations, once without rows."""
        for core in sorted(self._timelines):
            timeline = self._timelines[core]
            found, queue = causes(self._program, timeline), queues(self._program, timeline)
            for begin in range(0, max(len(timeline.ops), 1), _CHUNK):
                rows = slice(begin, begin + _CHUNK)
                yield self._part(timeline, timeline.ops[rows], found.main[rows], found.main_waited_for[rows], queue)

    def _part(
        self, timeline: Timeline, ops: NDArray[Any], cause: Any, waited_for: Any, queue: NDArray[np.int64]
    ) -> dict[str, Column]:
        record = ops["record"].astype(np.int64)
        signature = np.array(self._program.signature_ids, dtype=np.int64)[record]
        stack = np.array(self._program.stack_ids, dtype=np.int64)[record]
        by_signature = {name: Column(of.values[signature], of.texts) for name, of in self._by_signature.items()}
        by_stack = {name: Column(of.values[stack], of.texts) for name, of in self._by_stack.items()}
        stalled, held = ops["stall_ps"] > 0, ops["held_ps"] > 0
        return {
            "core": Column(np.full(len(ops), timeline.core)),
            "engine": Column(ops["unit"].astype(np.int64), timeline.units),
            "kind": Column(ops["kind"].astype(np.int64), tuple(op.name.lower() for op in Op)),
            "record": Column(record),
            "name": Column(self._names.values[record], self._names.texts),
            "instruction": by_signature["instruction"],
            **by_stack,
            "queue": Column(queue[record] + 1, ("", *QUEUES)),
            "start_ps": Column(ops["start_ps"]),
            "end_ps": Column(ops["end_ps"]),
            "busy_ps": Column(ops["busy_ps"]),
            "stall_ps": Column(ops["stall_ps"]),
            "stall_reason": Column(np.where(stalled, ops["reason"] + 1, 0), ("", *REASONS)),
            "stall_cause": Column(np.where(stalled, cause.astype(np.int64) + 1, 0), ("", *CAUSES)),
            _WITHOUT_NONE: Column(np.where(stalled, waited_for, -1).astype(np.int64)),
            "held_ps": Column(ops["held_ps"]),
            "held_reason": Column(np.where(held, held_reasons(ops["unit"]) + 1, 0), ("", *REASONS)),
            "operands": by_signature["operands"],
            "parameters": by_signature["parameters"],
        }


_OF_SIGNATURE: Final[dict[str, Any]] = {
    "instruction": lambda signature: signature.instruction,
    "operands": lambda signature: _operands(signature),
    "parameters": parameters_text,
}
_OF_STACK: Final[dict[str, Any]] = {
    "file": lambda stack: stack[0].file if stack else "",
    "line": lambda stack: stack[0].line if stack else 0,
    "function": lambda stack: stack[0].function if stack else "",
    "called_from": lambda stack: _callers(stack),
}


def _operands(signature: Signature) -> str:
    return ", ".join(f"{pattern.role} {operand_text(pattern)}" for pattern in signature.patterns)


def _callers(stack: tuple[Frame, ...]) -> str:
    return " < ".join(place_text(stack[depth:]) for depth in range(1, len(stack)))


def _interned(found: Iterator[Any]) -> Column:
    """Return a column over signatures or stacks: of numbers as they are, of texts each once."""
    values = list(found)
    if all(isinstance(value, int) for value in values):
        return Column(np.array(values, dtype=np.int64))
    numbers = {text: number for number, text in enumerate(dict.fromkeys(values))}
    return Column(np.array([numbers[value] for value in values], dtype=np.int64), tuple(numbers))


def write_csv(path: str | Path, operations: Operations) -> None:
    """Write operations as CSV, compressed where the name ends in ``.gz``. An interrupt leaves no file.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    with replacing(path) as raw, compressed(raw, str(path).endswith(".gz")) as file:
        is_first = True
        for part in operations.parts():
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            if is_first:
                writer.writerow(part)
            is_first = False
            columns = [column.plain().tolist() for column in part.values()]
            place = list(part).index(_WITHOUT_NONE)
            columns[place] = ["" if record < 0 else record for record in columns[place]]
            writer.writerows(zip(*columns, strict=True))
            file.write(text.getvalue().encode())


def write_parquet(path: str | Path, operations: Operations, about: Mapping[str, str]) -> None:
    """Write operations as Parquet, texts as dictionaries. An interrupt leaves no file.

    Args:
        path: the file.
        operations: what to write.
        about: metadata of the table, beside the schema's version and neurosim's.

    Raises:
        ConfigurationError: pyarrow is not installed, or the file cannot be written.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigurationError(
            "a Parquet file needs pyarrow, which is not installed",
            advice="pip install 'neurosim-npu[parquet]', or write --csv (Result.csv)",
        ) from error
    metadata = {"schema": SCHEMA, "neurosim": neurosim.__version__, **about}
    writer = None
    with replacing(path) as file:
        try:
            for part in operations.parts():
                arrays = {name: _arrow(pyarrow, name, column) for name, column in part.items()}
                table = pyarrow.table(arrays).replace_schema_metadata(metadata)
                writer = writer or parquet.ParquetWriter(file, table.schema, compression="zstd")
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()


def _arrow(pyarrow: Any, name: str, column: Column) -> Any:
    if column.texts is not None:
        return pyarrow.DictionaryArray.from_arrays(column.values.astype(np.int32), list(column.texts))
    mask = column.values < 0 if name == _WITHOUT_NONE else None
    return pyarrow.array(column.values.astype(np.int64), mask=mask)
