"""Kernels by file and name, and arguments from text: what the command line needs to run a kernel."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neurosim import dtypes
from neurosim.dtypes import DType, Kind
from neurosim.errors import ConfigurationError, IllegalCall
from neurosim.execution.calls import bound
from neurosim.launch.specs import spec

_DIGITS: Final = 18
"""Of an extent: more fit nowhere."""
_ARRAY = re.compile(r"(?P<shape>\d+(x\d+)*):(?P<dtype>\w+)(=(?P<elements>.*))?")
_NEGATIVE = re.compile(r"-\d+(x-?\d+)*:\w+(=.*)?")
_FILE = re.compile(r"@(?P<path>.+?)(:(?P<dtype>\w+))?")
_NAMED = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_LAUNCH = re.compile(r"(?P<kernel>[A-Za-z_]\w*)\[(?P<cores>\d+)\]")
_WORDS = {"true": True, "false": False, "none": None}

FORMS = (
    "128x512:bfloat16 (an array of random elements), 1x2:int32=4,5 (these elements), @x.npy (from a file), "
    "name=128x512:float32, name=4, name=0.5, name=true, name=none, name=text"
)
"""What an argument may look like, for help and messages."""


def load_kernel(target: str) -> Callable[..., Any]:
    """Return the kernel that ``FILE:KERNEL`` names.

    Raises:
        ConfigurationError: no such file, or no such kernel in it.
    """
    file, colon, name = target.rpartition(":")
    launch = _LAUNCH.fullmatch(name)
    if colon and launch:
        raise ConfigurationError(
            f"{target!r} names a launch", advice=f"write {file}:{launch['kernel']} and --cores {launch['cores']}"
        )
    if not colon or not name.isidentifier():
        raise ConfigurationError(
            f"{target!r} names no kernel", advice="write FILE:KERNEL, as in kernels/matmul.py:matmul"
        )
    if not os.path.isfile(file):  # unlike Path's, this takes any text
        raise ConfigurationError(
            f"there is no file {file}", advice="check the path; it is taken from the folder that the command runs in"
        )
    module = load_module(Path(file))
    kernel = getattr(module, name, None)
    if not callable(kernel):
        raise ConfigurationError(
            f"{file} has no kernel {name}",
            numbers=(f"it has {_names(module)}",),
            advice="name one of these behind the colon",
        )
    return kernel  # type: ignore[no-any-return]


def load_module(path: Path) -> Any:
    """Import a file under a name of its own; its folder becomes importable, as for a script.

    A file with the same text is imported once; one that was edited meanwhile, anew.
    """
    path = path.resolve()
    name = f"neurosim_kernel_{path.stem}_{zlib.crc32(path.read_bytes(), zlib.crc32(os.fsencode(path))):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigurationError(f"{path} is not a Python file", advice="give a file whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        compile(path.read_bytes(), path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise ConfigurationError(
            f"{path.name} is not Python", numbers=(str(error),), advice="correct that line, or give a Python file"
        ) from None
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def packaged_kernel(file: str) -> Path:
    """Return the path of one of neurosim's own kernels: in a checkout, or carried in the wheel.

    Raises:
        ConfigurationError: neither is there, so the installation is incomplete.
    """
    package = Path(__file__).resolve().parents[1]
    places = (package / "_kernels" / file, package.parent / "kernels" / file)
    for place in places:
        if place.is_file():
            return place
    raise ConfigurationError(
        f"kernel file {file} is missing",
        numbers=tuple(f"looked at {place}" for place in places),
        advice="check the path, or give one that exists",
    )


def parse_arguments(words: Sequence[str], seed: int = 0, *, values: bool = True) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and named arguments. Array *i* depends on ``seed``, *i* and its own form alone.

    With ``values=False`` there is no data: shapes with dtypes become :func:`neurosim.launch.specs.spec`.

    Raises:
        ConfigurationError: a word that has none of the forms.
    """
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for index, word in enumerate(words):
        match = _NAMED.fullmatch(word)
        text = match["value"] if match else word
        generator = np.random.default_rng([seed, index]) if values else None
        value = _value(text, word, bool(match), generator)
        if match is None:
            if named:
                raise ConfigurationError(
                    f"argument {word!r} stands after a named one", advice="put it first, or name it"
                )
            positional.append(value)
        elif match["name"] in named:
            raise ConfigurationError(f"argument {match['name']} is given twice", advice="leave one of them out")
        else:
            named[match["name"]] = value
    return positional, named


def refuse_negative_extents(words: Sequence[str]) -> None:
    """Refuse arrays whose first extent is negative: a command line takes such a word for an option of its own.

    Raises:
        ConfigurationError: there is one.
    """
    parse_arguments([word for word in words if _NEGATIVE.fullmatch(word)][:1])


def check_call(kernel: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Check that a kernel takes these arguments.

    Raises:
        ConfigurationError: one is missing, unknown or too many.
    """
    try:
        bound(getattr(kernel, "__name__", "kernel"), kernel, positional, named)
    except IllegalCall as error:
        raise ConfigurationError(error.what, numbers=error.numbers, advice=error.advice) from None


def random_array(shape: Sequence[int], dtype: DType, generator: np.random.Generator) -> npt.NDArray[Any]:
    """Make an input: standard normal floats, integers from 0 to 99, fair bools; of packed formats finite codes.

    Raises:
        ConfigurationError: more elements than this machine has memory for.
    """
    try:
        return _drawn(shape, dtype, generator)
    except (MemoryError, ValueError) as error:
        raise ConfigurationError(
            f"an input of shape {'x'.join(map(str, shape))} does not fit into this machine's memory",
            advice="--no-values times a kernel without data",
        ) from error


def _drawn(shape: Sequence[int], dtype: DType, generator: np.random.Generator) -> npt.NDArray[Any]:
    if dtype.kind == Kind.FLOAT:
        return generator.standard_normal(shape, dtype=np.float32).astype(dtype.numpy)
    if dtype.is_packed:
        codes = generator.integers(0, 64, (*shape[:-1], shape[-1] * dtype.size_bytes), np.uint8)
        return codes.view(dtype.face)
    if dtype.kind == Kind.SCALE:
        return generator.integers(120, 130, shape, np.uint8).view(dtype.face)
    if dtype.kind == Kind.BOOL:
        return generator.integers(0, 2, shape).astype(dtype.numpy)
    return generator.integers(0, 100, shape).astype(dtype.numpy)


def _value(text: str, word: str, is_named: bool, generator: np.random.Generator | None) -> Any:
    match = _ARRAY.fullmatch(text)
    if match:
        dtype = _dtype(match["dtype"], word)
        shape = _extents(match["shape"], word)
        if match["elements"] is not None:
            return _array_of(match["elements"].split(","), shape, dtype, word)
        return spec(shape, dtype) if generator is None else random_array(shape, dtype, generator)
    match = _FILE.fullmatch(text)
    if match:
        return _from_file(match["path"], _dtype(match["dtype"], word) if match["dtype"] else None, word)
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    if re.fullmatch(r"\d+(x\d+)+", text):
        raise ConfigurationError(f"argument {word!r} has a shape and no dtype", advice=f"write {word}:bfloat16")
    if is_named and ":" not in text:
        return text
    raise ConfigurationError(
        f"argument {word!r} is not understood",
        numbers=(f"forms: {FORMS}",),
        advice="write an array as its shape and dtype, such as 128x512:bfloat16",
    )


def _extents(shape: str, word: str) -> list[int]:
    extents = shape.split("x")
    if len(longest := max(extents, key=len)) > _DIGITS:
        raise ConfigurationError(
            f"argument {word[:40]!r}… has an extent of {len(longest)} digits", advice="give a shape that fits a memory"
        )
    return [int(extent) for extent in extents]


def _dtype(name: str, word: str) -> DType:
    dtype = dtypes.of(name)
    if dtype is None:
        raise ConfigurationError(
            f"argument {word!r}: {name!r} is not a dtype",
            numbers=("known: " + ", ".join(dtypes.ALL),),
            advice="write one of these behind the colon",
        )
    return dtype


def _array_of(elements: Sequence[str], shape: Sequence[int], dtype: DType, word: str) -> npt.NDArray[Any]:
    """Return an array of given elements, or of one for all; integers that the dtype does not hold are refused."""
    size = math.prod(shape)
    if len(elements) not in (1, size):
        raise ConfigurationError(
            f"argument {word!r} has {len(elements)} elements", advice=f"give {size}, or one for all of them"
        )
    if dtype.is_packed or dtype.kind == Kind.SCALE:
        raise ConfigurationError(
            f"argument {word!r}: elements of {dtype} cannot be written as numbers",
            advice="pass the elements as a .npy file",
        )
    whole = dtype.kind != Kind.FLOAT
    try:
        numbers = [int(entry) if whole else float(entry) for entry in elements]
        array = np.array(numbers, np.int64 if whole else np.float64).astype(dtype.numpy)
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f"argument {word!r} has an element that is no number of {dtype}",
            advice="give numbers that it holds, or another dtype",
        ) from None
    if whole and array.tolist() != numbers:
        raise ConfigurationError(
            f"argument {word!r} has an element that {dtype} does not hold",
            advice="give numbers that it holds, or another dtype",
        )
    return np.broadcast_to(array, shape).copy() if len(numbers) == 1 else array.reshape(shape)


def _from_file(path: str, dtype: DType | None, word: str) -> npt.NDArray[Any]:
    """Return the array of a ``.npy`` file, its bytes taken for ``dtype`` if given: NumPy forgets narrow ones."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if "pickle" in reason:  # NumPy advises to load what is no array, or holds Python's objects, all the same
            reason = "it is no .npy file, or its elements are no numbers"
        raise ConfigurationError(
            f"argument {word!r}: {path} cannot be read as an array: {reason}",
            advice="write an array of numbers with numpy.save",
        ) from error
    if not isinstance(array, np.ndarray):
        raise ConfigurationError(f"argument {word!r}: {path} holds several arrays", advice="save one with numpy.save")
    if dtype is None and array.dtype.kind == "V":
        raise ConfigurationError(
            f"argument {word!r}: {path} does not say what its elements of {array.dtype.itemsize} bytes are",
            advice=f"write their dtype behind it, as in @{path}:bfloat16",
        )
    if dtype is None or dtypes.of(array.dtype) == dtype:
        return array
    if array.dtype.itemsize != dtype.face.itemsize:
        raise ConfigurationError(
            f"argument {word!r}: {path} holds {array.dtype}, and {dtype} has {dtype.face.itemsize} bytes",
            advice="convert the array before it is saved",
        )
    return np.ascontiguousarray(array).view(dtype.face)


def _names(module: Any) -> str:
    own = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
    return ", ".join(own) or "none"
