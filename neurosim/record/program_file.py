"""Programs as files: to time again, and to send with a bug report. No pickle; reading one runs nothing in it.

A file is a zip archive with these members, of which NumPy reads the columns (``numpy.load(file)``) as well:

- ``header.json``: ``format``, ``version``, the writer's ``neurosim``, chip and generation, ``nki_version``, the number
  of ``records`` and ``operands``, and ``shapes``: the fields of the records within the tables. Version or shapes that
  are not those of the reader are refused.
- ``tables.json``: ``signatures``, ``stacks``, ``storages``, ``trips``, ``iterations`` as
  :mod:`neurosim.record.encoding` writes them, ``names`` (pairs of record and name), ``meetings`` (pairs of first record
  and number of records), ``notes``, and ``sources``: the text of the kernel's files, so that loops and source lines are
  known where the files are not. A frame's ``path`` is a number of one of them.
- a column per attribute of :class:`Program`, each ``.npy``, little-endian and of one axis: ``signature_ids``,
  ``stack_ids``, ``blocks``, ``trip_ids`` int32, ``cores`` int8 per record; ``slots`` int64, storage and byte offset per
  operand; ``edges`` int64, consumer and producer per explicit edge.

It holds no tensor's values. Equal programs make equal files, byte for byte.
"""

from __future__ import annotations

import hashlib
import io
import json
import linecache
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

import neurosim
from neurosim.errors import ConfigurationError
from neurosim.program import DeviceTrip, Frame, Iteration, Program, Signature, StorageInfo, Storages
from neurosim.record.encoding import Malformed, decoder, encoder, shapes
from neurosim.record.program_checks import check, check_range
from neurosim.versions import nki_version_of
from neurosim.writing import file_path, replacing

FORMAT: Final = "neurosim.program"
VERSION: Final = 6
"""Changes with the members of the archive; fields within the tables are compared by name."""

COLUMNS: Final = {
    "signature_ids": "<i4",
    "stack_ids": "<i4",
    "blocks": "<i4",
    "cores": "|i1",
    "trip_ids": "<i4",
    "slots": "<i8",
    "edges": "<i8",
}
"""NumPy's name for the elements of each column."""

_TABLES: Final[dict[str, Any]] = {
    "signatures": tuple[Signature, ...],
    "stacks": tuple[tuple[Frame, ...], ...],
    "storages": tuple[StorageInfo, ...],
    "trips": tuple[DeviceTrip, ...],
    "iterations": tuple[Iteration, ...],
    "names": tuple[tuple[int, str], ...],
    "meetings": tuple[tuple[int, int], ...],
    "sources": tuple[str | None, ...],
}
_MOST_BYTES: Final = 8 << 30
"""Of an archive when it is unpacked: some 100 million records. A small file may claim anything."""
_UNKNOWN: Final = "<neurosim: no source>"


def save(program: Program, path: str | Path) -> None:
    """Write a program to a file, whole or not at all.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    with replacing(path) as file:
        write(program, file)


def write(program: Program, file: IO[bytes]) -> None:
    """Write a program into a file that is open."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "neurosim": neurosim.__version__,
        "chip": program.chip_name,
        "generation": program.generation,
        "nki_version": str(program.nki_version),
        "records": len(program),
        "edges": len(program.edges),
        "operands": len(program.slots) // 2,
        "shapes": shapes(*_TABLES.values()),
    }
    with zipfile.ZipFile(file, "w") as archive:
        with _member(archive, "header.json") as member:
            member.write(_json(header))
        with _member(archive, "tables.json") as member:
            member.write(_json(_tables(program)))
        for name, dtype in COLUMNS.items():
            column = getattr(program, name)
            flat = np.array(column, dtype=dtype).reshape(-1)
            with _member(archive, f"{name}.npy") as member:
                shape = {"descr": dtype, "fortran_order": False, "shape": flat.shape}
                np.lib.format.write_array_header_1_0(member, shape)
                member.write(flat.tobytes())


def load(path: str | Path) -> Program:
    """Read a program.

    Raises:
        ConfigurationError: there is no such file, another version wrote it, or it is broken.
    """
    try:
        with open(file_path(path), "rb") as file:
            if file.read(1) == b"{":  # as summaries and traces begin
                raise ConfigurationError(
                    f"{path} is JSON, such as a summary or a trace, and no program",
                    advice="give what program.save or neurosim profile --save wrote",
                )
            file.seek(0)
            return read(file, str(path))
    except ConfigurationError:
        raise
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path}: {error.strerror or error}",
            advice="check the path; program.save and `neurosim profile --save` write such files",
        ) from error
    except Exception as error:  # whatever zip, zlib, JSON and NumPy raise for bytes that nobody meant
        detail = str(error) or type(error).__name__
        raise ConfigurationError(
            f"{path} is no program file, or a broken one",
            numbers=(detail if len(detail) < 200 else detail[:197] + "...",),
            advice="save the program again with program.save or neurosim profile --save",
        ) from error


def read(file: IO[bytes], path: str) -> Program:
    """Read a program from an open file, which messages call ``path``; raises whatever broken bytes lead to."""
    with zipfile.ZipFile(file) as archive:
        return _read(archive, path)


def _member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    return archive.open(zip_info(name), "w", force_zip64=True)


def zip_info(name: str) -> zipfile.ZipInfo:
    """Return what an archive says of a member that it compresses, with nothing of time or place in it."""
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3  # the same archive on every system
    return info


def _json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False, default=repr).encode()


def _tables(program: Program) -> dict[str, Any]:
    """Return everything but the columns; paths become numbers of sources."""
    numbers: dict[str, int] = {}
    stacks = [
        tuple(replace(frame, path=str(numbers.setdefault(frame.path, len(numbers)))) for frame in stack)
        for stack in program.stacks
    ]
    content: dict[str, Any] = {
        "signatures": tuple(program.signatures),
        "stacks": tuple(stacks),
        "storages": tuple(program.storages),
        "trips": tuple(program.trips),
        "iterations": tuple(program.iterations),
        "names": tuple(sorted(program.names.items())),
        "meetings": tuple(program.meetings),
        "sources": tuple("".join(linecache.getlines(path)) or None for path in numbers),
    }
    tables = {name: encoder(kind)(content[name]) for name, kind in _TABLES.items()}
    return tables | {"notes": program.notes}


def _read(archive: zipfile.ZipFile, path: str) -> Program:
    members = {"header.json", "tables.json", *(f"{name}.npy" for name in COLUMNS)}
    if sum(info.file_size for info in archive.infolist()) > _MOST_BYTES:
        raise Malformed(f"it claims more than {_MOST_BYTES >> 30} GiB")
    header = _object(archive.read("header.json"))
    _check_version(header, path)
    if sorted(archive.namelist()) != sorted(members):
        raise Malformed("members " + ", ".join(sorted(archive.namelist())[:10]))
    chip, generation, records, edges, operands = (
        _typed(header, name, kind)
        for name, kind in (("chip", str), ("generation", int), ("records", int), ("edges", int), ("operands", int))
    )
    lengths = dict.fromkeys(COLUMNS, records) | {"slots": 2 * operands, "edges": 2 * edges}
    columns = {name: _column(archive, name, lengths[name]) for name in COLUMNS}
    tables = _object(archive.read("tables.json"))
    if sorted(tables) != sorted((*_TABLES, "notes")) or type(tables["notes"]) is not dict:
        raise Malformed("tables " + ", ".join(sorted(tables)[:10]))
    program = Program(chip, generation, nki_version_of(_typed(header, "nki_version", str)))
    _fill_tables(program, {name: decoder(kind)(tables[name]) for name, kind in _TABLES.items()})
    program.notes = tables["notes"]
    _fill_columns(program, columns)
    check(program)
    return program


def _object(text: bytes) -> dict[str, Any]:
    content = json.loads(text, parse_constant=_refuse)
    if type(content) is not dict:
        raise Malformed("JSON that is no object")
    return content


def _refuse(word: str) -> None:
    raise Malformed(f"{word} in JSON")


def _typed(header: dict[str, Any], name: str, kind: type) -> Any:
    value = decoder(kind)(header.get(name))
    if kind is int and value < 0:
        raise Malformed(f"{name} = {value}")
    return value


def _check_version(header: dict[str, Any], path: str) -> None:
    if header.get("format") != FORMAT:
        raise Malformed("its header is not that of a program")
    writer, reader = header.get("neurosim"), neurosim.__version__
    if header.get("version") != VERSION:
        raise ConfigurationError(
            f"{path} has another version of the program format",
            numbers=(
                f"version {header.get('version')!r}, written by neurosim {writer}",
                f"this is neurosim {reader}, which reads version {VERSION}",
            ),
            advice=f"open it with neurosim {writer}, or save the program again with this one",
        )
    theirs, ours = header.get("shapes"), shapes(*_TABLES.values())
    if theirs != ours:
        theirs = theirs if type(theirs) is dict else {}
        names = [name for name in sorted({*theirs, *ours}) if theirs.get(name) != ours.get(name)]
        raise ConfigurationError(
            f"{path} was written by a neurosim whose programs hold other fields",
            numbers=(f"written by {writer}, this is {reader}", f"different: {', '.join(names[:5])}"),
            advice=f"open it with neurosim {writer}, or save the program again with this one",
        )


def _column(archive: zipfile.ZipFile, name: str, length: int) -> NDArray[Any]:
    """Read a column of known type and length."""
    dtype = np.dtype(COLUMNS[name])
    if archive.getinfo(f"{name}.npy").file_size > length * dtype.itemsize + 1024:
        raise Malformed(f"column {name} is longer than {length}")
    file = io.BytesIO(archive.read(f"{name}.npy"))
    if np.lib.format.read_magic(file) != (1, 0):
        raise Malformed(f"column {name} has another version of NumPy's format")
    shape, _, found = np.lib.format.read_array_header_1_0(file)
    content = file.read()
    if found != dtype or shape != (length,) or len(content) != length * dtype.itemsize:
        raise Malformed(f"column {name} is {found}{list(shape)}, not {dtype}[{length}]")
    return np.frombuffer(content, dtype)


def _fill_tables(program: Program, tables: dict[str, Any]) -> None:
    program.signatures = list(tables["signatures"])
    program.storages = Storages(tables["storages"])
    program.trips = list(tables["trips"])
    program.iterations = list(tables["iterations"])
    program.names = dict(tables["names"])
    program.meetings = list(tables["meetings"])
    paths = [_lend(source) for source in tables["sources"]]
    program.stacks = [tuple(_placed(frame, paths) for frame in stack) for stack in tables["stacks"]]


def _placed(frame: Frame, paths: list[str]) -> Frame:
    number = frame.path
    if not (number.isascii() and number.isdigit() and int(number) < len(paths)):
        raise Malformed(f"a frame in source {number!r} of {len(paths)}")
    if min(frame.line, frame.offset, frame.column) < 0:
        raise Malformed(f"line {frame.line} of {frame.file}")
    return replace(frame, path=paths[int(number)])


def _lend(source: str | None) -> str:
    """Give a kernel's source to ``linecache``, where loops and reports look for it, and return its name there.

    No path of the file is ever opened: names in angle brackets are none.
    """
    if source is None:
        return _UNKNOWN
    name = name_of(source)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    return name


def name_of(source: str) -> str:
    """Return what frames of a program that was read call a file of this text, in place of its path."""
    return f"<neurosim source {hashlib.sha256(source.encode()).hexdigest()[:16]}>"


def _fill_columns(program: Program, columns: dict[str, NDArray[Any]]) -> None:
    """Copy the columns into the program; each index points into its table."""
    records = len(columns["signature_ids"])
    check_range("signature", columns["signature_ids"], 0, len(program.signatures))
    check_range("call stack", columns["stack_ids"], 0, len(program.stacks))
    check_range("core", columns["cores"], 0, 128)
    check_range("block", columns["blocks"], -1, 1 << 31)
    check_range("trip", columns["trip_ids"], -1, len(program.trips))
    check_range("name", np.array(list(program.names), dtype=np.int64), 0, records)
    for name in ("signature_ids", "stack_ids", "blocks", "cores", "trip_ids", "slots"):
        program.put(**{name: columns[name]})
    sizes = np.array([2 * len(signature.patterns) for signature in program.signatures], dtype=np.int64)
    ends = np.cumsum(sizes[columns["signature_ids"]] if records else [])
    if (int(ends[-1]) if records else 0) != len(columns["slots"]):
        raise Malformed(f"{len(columns['slots']) // 2} operands for {records} records")
    program.put(slot_starts=np.concatenate([[0], ends]))
    edges = columns["edges"].reshape(-1, 2)
    if not ((edges[:, 1] >= 0) & (edges[:, 1] < edges[:, 0]) & (edges[:, 0] < records)).all():
        raise Malformed("an edge that does not lead from an earlier record to a later one")
    program.edges = [(consumer, producer) for consumer, producer in edges.tolist()]
