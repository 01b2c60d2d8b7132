"""Calls of instructions as data: operands as shapes, and a legal example for each instruction.

An example follows from the declaration (float32 tiles [32, 16] in the first memory that an operand allows) and from
``isa/manual/examples.toml`` where that is no legal call.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final

from neurosim import devices, dtypes
from neurosim.dtypes import DType
from neurosim.engines import Memory
from neurosim.errors import ConfigurationError, Unsupported
from neurosim.execution.operands import Operand
from neurosim.instruction import Instruction
from neurosim.nki import _catalogue, isa, language
from neurosim.nki._elsewhere import elsewhere

SHAPE: Final = (32, 16)
"""Of a tile that the examples say nothing about."""

_TILE: Final = re.compile(
    r"(?:(?P<memory>sbuf|psum|hbm|state) )?(?P<dtype>[A-Za-z]\w*)\[(?P<shape>\d+(?:, \d+)*)\]"
    r"(?: < (?P<below>\d+)| = (?P<value>\d+))?(?: at (?P<start>\d+)(?::(?P<byte>\d+))?)?(?P<gaps> with gaps)?"
    r"(?: (?P<how>gather|select|take (?P<count>\d+) by) (?P<index>.+))?"
)
_TABLES: Final = ("also", "refused", "ignored", "shaped")
"""Entries of an instruction's table in the examples that are no operands."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A tensor operand of a call.

    Attributes:
        shape: extents.
        dtype: its format, None for the one that the call is about.
        memory: where it lives; ``state`` is a scalar register, of shape [1].
        below: whole numbers from 0 up to this, exclusive, are its data; None leaves that to the dtype.
        value: what all elements are, None for random data.
        start: the partition it begins at.
        byte: the byte of its partitions that it begins at, for a tensor with an address; None for one without.
        gaps: whether its free axes take every second element of a larger tensor.
        how: ``gather`` for a view with one index per row of axis 0, ``select`` for one with one index in all,
            ``take N by`` for tensor indirection by N offsets.
        index: the tile that holds the indices.
    """

    shape: tuple[int, ...]
    dtype: DType | None = None
    memory: Memory = Memory.sbuf
    below: int | None = None
    value: int | None = None
    start: int = 0
    byte: int | None = None
    gaps: bool = False
    how: str = ""
    index: Tile | None = None

    def __str__(self) -> str:
        if self.memory is Memory.state:
            return "a register"
        memory = "" if self.memory is Memory.sbuf else self.memory.value.removeprefix("private_") + " "
        text = f"{memory}{self.dtype or 'T'}{list(self.shape)}"
        text += f" at {self.start}" if self.start or self.byte is not None else ""
        text += "" if self.byte is None else f":{self.byte}"
        text += " with gaps" if self.gaps else ""
        return f"{text} {self.how} {self.index}" if self.how else text


@dataclass(frozen=True)
class Call:
    """One call of an instruction.

    Attributes:
        mnemonic: NKI's name of the instruction.
        operands: tiles and parameters by name; what is left out has its default.
        dtype: the format of tiles that name none.
        label: which of the instruction's examples this is, empty for the first.
    """

    mnemonic: str
    operands: Mapping[str, Any]
    dtype: DType = dtypes.float32
    label: str = ""

    def but(self, **changes: Any) -> Call:
        """Return this call with other operands."""
        return replace(self, operands={**self.operands, **changes})

    @property
    def title(self) -> str:
        """The instruction's name, and which example this is."""
        return f"{self.mnemonic} ({self.label.replace('_', ' ')})" if self.label else self.mnemonic

    def __str__(self) -> str:
        listed = ", ".join(f"{name}={say(value, self.dtype)}" for name, value in self.operands.items())
        return f"nisa.{self.mnemonic}({listed})"


@dataclass(frozen=True)
class Examples:
    """What the examples say of one instruction.

    Attributes:
        calls: legal calls, the plainest first.
        refused: calls that break a rule which no single change of a legal call breaks.
        ignored: parameters that are taken and have no effect in neurosim, with the reason.
        shaped: why the number of axes belongs to the meaning, empty where it does not.
    """

    calls: tuple[Call, ...]
    refused: tuple[Call, ...] = ()
    ignored: Mapping[str, str] = field(default_factory=dict)
    shaped: str = ""


def declaration(mnemonic: str) -> type[Instruction]:
    """Return the class of an instruction.

    Raises:
        Unsupported: one that NKI documents and neurosim lacks.
        ConfigurationError: no instruction at all.
    """
    module, _, name = mnemonic.removeprefix("nki.").rpartition(".")
    is_ours = module in ("", "isa", "nisa")
    found = _catalogue.instructions().get(name) if is_ours else None
    if found is None and is_ours and name in isa._NOT_BUILT:
        raise Unsupported(
            f"nki.isa.{name} is documented for NKI 0.6 and not built here yet",
            advice="`neurosim isa` lists what is built",
        )
    if found is None and module in ("", "nl", "language") and not name.startswith("_") and name in dir(language):
        instead = elsewhere("nki.isa", name)
        raise ConfigurationError(
            f"{name} is in nki.language, and no instruction of nki.isa",
            numbers=(f"as an instruction {instead}",) if "nisa." in instead else (),
            advice=f"for nki.language ask in Python: import neurosim, nki.language as nl; help(nl.{name})",
        )
    if found is None:
        raise ConfigurationError(
            f"there is no instruction {mnemonic}",
            numbers=("known: " + ", ".join(_alike(name)),),
            advice="name one of these; `neurosim isa` lists all, which are those of nki.isa",
        )
    cls: type[Instruction] = found.instruction  # type: ignore[attr-defined]
    return cls


def _alike(mnemonic: str) -> list[str]:
    """Return the instructions that may have been meant, or all of them."""
    known = list(_catalogue.instructions())
    holding = [name for name in known if mnemonic and mnemonic in name]
    return holding or difflib.get_close_matches(mnemonic, known) or known


def operands(mnemonic: str) -> dict[str, Operand | None]:
    """Return the declared operands in order, with None for parameters; ``name`` is left out."""
    return dict(declaration(mnemonic)._operands)


def say(value: Any, dtype: DType | None = None) -> str:
    """Return a value as a kernel would write it, tiles as memory, dtype and shape."""
    if isinstance(value, Tile):
        return str(value if value.dtype or dtype is None else replace(value, dtype=dtype))
    if isinstance(value, Enum):
        return _enum_name(value)
    if isinstance(value, list):
        return f"[{', '.join(say(entry, dtype) for entry in value)}]"
    return repr(value).replace("e+", "e") if isinstance(value, float) else repr(value)


def _enum_name(value: Enum) -> str:
    for name, kind in vars(isa).items():
        if kind is type(value):
            return f"nisa.{name}.{value.name}"
    return repr(value)


def parse(value: Any) -> Any:
    """Return what an entry of the examples stands for: a tile, a name of ``nl`` or ``nisa``, or the value itself."""
    if isinstance(value, list):
        return [parse(entry) for entry in value]
    if not isinstance(value, str):
        return value
    if value == "None":
        return None
    module, _, path = value.partition(".")
    if path and module in ("nl", "nisa"):
        found: Any = language if module == "nl" else isa
        for name in path.split("."):
            found = getattr(found, name)
        return found
    match = _TILE.fullmatch(value)
    return _tile(match) if match else value


def _tile(match: re.Match[str]) -> Tile:
    dtype = None if match["dtype"] == "T" else dtypes.of(match["dtype"])
    if dtype is None and match["dtype"] != "T":
        raise ConfigurationError(
            f"{match[0]!r}: {match['dtype']} is not a dtype",
            advice="write a dtype of NKI, such as float32, or T for the page's own",
        )
    return Tile(
        tuple(int(extent) for extent in match["shape"].split(", ")),
        dtype,
        Memory[match["memory"] or "sbuf"],
        int(match["below"]) if match["below"] else None,
        int(match["value"]) if match["value"] else None,
        int(match["start"] or 0),
        int(match["byte"]) if match["byte"] else None,
        bool(match["gaps"]),
        match["how"] or "",
        parse(match["index"]) if match["index"] else None,
    )


@cache
def _table() -> dict[str, dict[str, Any]]:
    path = devices.folder().parent / "manual" / "examples.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if Path(path).is_file() else {}


def documented() -> list[str]:
    """Return the instructions that have an entry in the examples."""
    return sorted(_table())


@cache
def examples(mnemonic: str) -> Examples:
    """Return an instruction's examples."""
    table = _table().get(mnemonic, {})
    first = _changed(Call(mnemonic, derived(mnemonic)), table, "")
    others = [_changed(first, entry, label) for label, entry in table.get("also", {}).items()]
    refused = []
    for entry in table.get("refused", []):
        base = next(call for call in (first, *others) if call.label == entry.get("of", ""))
        refused.append(_changed(base, entry, base.label))
    return Examples((first, *others), tuple(refused), table.get("ignored", {}), table.get("shaped", ""))


def _changed(base: Call, entry: Mapping[str, Any], label: str) -> Call:
    """Return ``base`` with what an entry of the examples says, its operands in the order of the declaration."""
    known = operands(base.mnemonic)
    given = {name: parse(value) for name, value in entry.items() if name not in (*_TABLES, "T", "of")}
    unknown = set(given) - set(known)
    if unknown:
        raise ConfigurationError(
            f"examples of {base.mnemonic}: no operand {', '.join(sorted(unknown))}",
            advice="take the names of operands from the instruction's declaration",
        )
    merged = {**base.operands, **given}
    dtype = dtypes.of(entry.get("T", base.dtype))
    if dtype is None:
        raise ConfigurationError(
            f"examples of {base.mnemonic}: T={entry['T']!r} is not a dtype",
            advice="write a dtype of NKI, such as float32",
        )
    return Call(base.mnemonic, {name: merged[name] for name in known if name in merged}, dtype, label)


def derived(mnemonic: str) -> dict[str, Any]:
    """Return operands that follow from the declaration: tiles of one shape, and a value for what has no default."""
    cls = declaration(mnemonic)
    annotations = {name: str(entry.annotation) for name, entry in inspect.signature(cls).parameters.items()}
    made: dict[str, Any] = {}
    for entry in dataclasses.fields(cls):  # type: ignore[arg-type]
        operand = entry.metadata.get("operand")
        if entry.default is not dataclasses.MISSING:
            continue
        if operand is None:
            made[entry.name] = _plain(annotations[entry.name])
        elif operand.number:
            made[entry.name] = 1.5
        elif operand.several:
            made[entry.name] = [Tile(SHAPE, None, operand.memories[0])] * 2
        else:
            is_register = operand.memories[0] is Memory.state
            made[entry.name] = (
                Tile((1,), dtypes.int32, Memory.state) if is_register else Tile(SHAPE, None, operand.memories[0])
            )
    return made


def _plain(annotation: str) -> Any:
    if "Operator" in annotation:
        return language.add
    return {"int": 1, "bool": False}.get(annotation, 1.5)
