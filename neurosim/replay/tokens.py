"""All that a kernel's Python can see, as one plain value: equal tokens, and the same instructions are issued.

A function's token holds its code, its defaults, its closure and what each global that it names stands for; other
people's functions and classes are looked into in the same way. Only what is known to depend on nothing else goes in;
anything else raises :class:`Unsafe`, with the reason. So a token is no guess: what it leaves out cannot be reached.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import hashlib
import types
from typing import Any, Final

import numpy as np

from neurosim.dtypes import DType
from neurosim.launch.arrays import kind_of
from neurosim.launch.objects import fields_of
from neurosim.launch.specs import Spec
from neurosim.record.call_stacks import is_own
from neurosim.replay.code import references, refused_attribute
from neurosim.replay.faces import is_ours, kernel_behind, path_of

Token = Any
"""Strings, numbers and tuples of these: ``repr`` tells any two apart."""

_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), range, slice)
_BUILTINS: Final = frozenset(
    """
    abs all any bool bytes callable complex dict divmod enumerate filter float frozenset int isinstance issubclass iter
    len list map max min next object pow property range reversed round slice sorted staticmethod str sum super tuple
    type zip
    """.split()  # noqa: SIM905 (sixty words, and no quotes)
)
_PURE_MODULES: Final = frozenset(["math", "_operator", "operator", "itertools"])
_BY_NAME: Final = frozenset(["attrgetter", "methodcaller"])
"""They reach attributes that no code names."""
_NUMPY: Final = frozenset(
    """
    abs absolute add all amax amin any arctan bitwise_and bitwise_or bitwise_xor ceil copy cos cumprod cumsum divide
    dtype equal exp finfo floor floor_divide gcd greater greater_equal iinfo invert lcm left_shift less less_equal log
    log10 log2 logical_and logical_not logical_or logical_xor max maximum mean min minimum mod multiply negative
    not_equal power prod reciprocal remainder right_shift round sign sin sqrt square subtract sum tan tanh true_divide
    """.split()  # noqa: SIM905 (sixty words, and no quotes)
)
_LARGE_BYTES: Final = 1 << 20
_DEEPEST: Final = 60
_MOST_VALUES: Final = 20_000
"""To be looked at before a launch; more would take longer than most kernels."""
_CLASS_MACHINERY: Final = frozenset(
    """
    __dict__ __weakref__ __module__ __doc__ __qualname__ __annotations__ __annotate__ __annotate_func__
    __annotations_cache__ __dataclass_params__ __match_args__ __firstlineno__ __static_attributes__ __slots__
    __orig_bases__ __parameters__ __abstractmethods__ _abc_impl
    """.split()  # noqa: SIM905 (sixty words, and no quotes)
)
_KERNELS: Final = ("neurosim.nki.Kernel", "neurosim.nki.legacy.launch.Kernel")
_PLAIN_METACLASSES: Final = ("builtins.type", "enum.EnumType", "abc.ABCMeta", "neurosim.launch.objects._WithAttributes")


class Unsafe(Exception):
    """A kernel's Python can see something that no token says."""


def _shape(array: Any) -> str:
    """Return an array's extents as text; of one that has none, such as a nested tensor of PyTorch, nothing."""
    try:
        return str(getattr(array, "shape", ""))
    except RuntimeError:
        return ""


class Tokens:
    """Makes the tokens of one launch; what was looked into is not looked into again."""

    def __init__(self) -> None:
        self._entered: dict[int, tuple[int, Any]] = {}
        self._arrays: dict[int, int] = {}
        self._depth = 0
        self._values = 0

    # -- arguments ------------------------------------------------------------------------------------------------

    def argument(self, value: Any, name: str) -> Token:
        """Return the token of an argument: of arrays what a kernel sees of them, which is no value."""
        kind = kind_of(value)
        if kind is not None:
            first = self._arrays.setdefault(id(value), len(self._arrays))
            return "array", kind, _shape(value), repr(value.dtype), first
        if isinstance(value, Spec):
            return "spec", value.shape, repr(value.dtype)
        if type(value) not in (list, tuple, dict) and fields_of(value) is None:
            return self.value(value, f"argument {name}")
        with self._deeper(f"argument {name}"):
            if type(value) is dict:
                return "dict", tuple((self.value(key, name), self.argument(each, name)) for key, each in value.items())
            if type(value) in (list, tuple):
                entries = (self.argument(each, f"{name}[{place}]") for place, each in enumerate(value))
                return type(value).__name__, tuple(entries)
            fields = fields_of(value) or {}
            inner = tuple((key, self.argument(each, f"{name}.{key}")) for key, each in fields.items())
            return "object", self.value(type(value), name), inner

    # -- values ---------------------------------------------------------------------------------------------------

    def value(self, value: Any, what: str) -> Token:
        """Return the token of anything that is no argument; ``what`` says what it is, for the reason."""
        self._values += 1
        if self._values > _MOST_VALUES:
            raise Unsafe(f"it can see more than {_MOST_VALUES} values, such as {what}")
        kind = type(value)
        if kind in _PLAIN:
            return kind.__name__, repr(value)
        path = path_of(value)
        if path is not None:
            return "nki", path
        with self._deeper(what):
            token = self._known(value, what)
        if token is None:
            raise Unsafe(f"{what} is a {kind.__module__}.{kind.__qualname__}, whose state is not known")
        return token

    def _known(self, value: Any, what: str) -> Token | None:
        for look in (self._container, self._number, self._callable, self._object):
            token = look(value, what)
            if token is not None:
                return token
        return None

    def _container(self, value: Any, what: str) -> Token | None:
        kind = type(value)
        if kind in (list, tuple):
            return kind.__name__, tuple(self.value(entry, f"an entry of {what}") for entry in value)
        if kind is dict:
            items = value.items()
            return "dict", tuple(
                (self.value(key, what), self.value(each, f"an entry of {what}")) for key, each in items
            )
        if kind in (set, frozenset):
            return kind.__name__, tuple(sorted(repr(self.value(entry, f"an entry of {what}")) for entry in value))
        return None

    @staticmethod
    def _number(value: Any, what: str) -> Token | None:
        if isinstance(value, DType):
            return "dtype", repr(value)
        if type(value) is np.ndarray and not value.dtype.hasobject:
            if value.nbytes > _LARGE_BYTES:
                raise Unsafe(f"{what} is an array of {value.nbytes >> 20} MiB, which may have changed")
            return "values", str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest()
        if isinstance(value, np.generic) and not value.dtype.hasobject:
            return "scalar", str(value.dtype), value.tobytes().hex()
        if isinstance(value, np.dtype):
            return "numpy", repr(value)
        return None

    def _callable(self, value: Any, what: str) -> Token | None:
        kind = type(value)
        if kind is types.FunctionType:
            return self._function(value)
        if kind is types.MethodType:
            return "method", self._function(value.__func__), self.value(value.__self__, what)
        if kind is functools.partial:
            return "partial", tuple(self.value(part, what) for part in (value.func, list(value.args), value.keywords))
        module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
        if kind is types.BuiltinFunctionType or isinstance(value, type):
            is_free = isinstance(value, type) or isinstance(value.__self__, types.ModuleType)
            if is_free and (
                (module == "builtins" and (name in _BUILTINS or _is_error(value)))
                or (module in _PURE_MODULES and name not in _BY_NAME)
            ):
                return "builtin", f"{module}.{name}"
        if value is functools.reduce:
            return "builtin", "functools.reduce"
        if module in ("numpy", None) and name in _NUMPY and getattr(np, str(name), None) is value:
            return "numpy", str(name)
        if kind is types.BuiltinFunctionType:
            raise Unsafe(f"{what}(…) may depend on more than its arguments, or do more than return something")
        return self._class(value, what) if isinstance(value, type) else None

    def _object(self, value: Any, what: str) -> Token | None:
        kind = type(value)
        if isinstance(value, enum.Enum):
            home = ("nki", kind.__qualname__) if is_ours(kind) else self.value(kind, what)
            return "member", home, value.name
        function = getattr(value, "function", None)
        if f"{kind.__module__}.{kind.__qualname__}" in _KERNELS and type(function) is types.FunctionType:
            schedule = repr(getattr(value, "schedule", ()))  # the legacy dialect has none
            return "kernel", self._function(function), value.platform_target, schedule, repr(value.grid)
        if is_ours(kind) or kind.__module__ == "typing" or kind in (types.GenericAlias, types.UnionType):
            return self._fact(value, what)
        if kind is types.SimpleNamespace:
            return "namespace", self.value(vars(value), what)
        fields = fields_of(value)
        if fields is None:
            return None
        return "object", self.value(kind, what), self.value(fields, what)

    def _fact(self, value: Any, what: str) -> Token | None:
        """Return the token of a format, an operator's name, a version of NKI: frozen, and repr says all of them.

        Of what holds a kernel's function, as a placement of the legacy dialect does, it does not.
        """
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if not is_ours(kind):
            return "fact", name, repr(value)
        if not (dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen):  # type: ignore[attr-defined]
            return None
        held = [getattr(value, field.name) for field in dataclasses.fields(kind)]
        if any(callable(each) and not isinstance(each, type) for each in held):
            return "fact", name, tuple(self.value(each, what) for each in held)
        return "fact", name, repr(value)

    # -- functions and classes ------------------------------------------------------------------------------------

    def _function(self, function: types.FunctionType) -> Token:
        again = self._again(function)
        if again is not None:
            return again
        kernel = kernel_behind(function)
        if kernel is not None:
            return "legacy", self.value(kernel, function.__qualname__)
        code = function.__code__
        if is_own(code):
            raise Unsafe(f"{function.__qualname__} is not of nki, but of neurosim's inside")
        if code is _CONTEXT_HELPER:
            return "contextmanager", self.value(_cells(function)["func"], function.__qualname__)
        found = references(code)
        if found.obstacle:
            raise Unsafe(found.obstacle)
        name = function.__qualname__
        held = tuple(
            (each, self.value(value, f"{each} of {name}"))
            for each, value in _cells(function).items()
            if value is not _EMPTY
        )
        defaults = self.value([function.__defaults__, function.__kwdefaults__], f"a default of {name}")
        own = self.value(dict(vars(function)), f"an attribute of {name}")
        names = tuple((chain, self._resolved(function, chain)) for chain in found.names)
        return "function", found.digest, defaults, held, own, names

    def _resolved(self, function: types.FunctionType, chain: tuple[str, ...]) -> Token:
        """Return the token of what a global stands for, through the modules that its attributes lead through."""
        name, *attributes = chain
        builtins: dict[str, Any] = getattr(function, "__builtins__")  # noqa: B009 (mypy does not know it)
        value = function.__globals__.get(name, builtins.get(name, _EMPTY))
        if value is _EMPTY:
            return ("missing",)
        path = name
        while isinstance(value, types.ModuleType):
            if not attributes:
                raise Unsafe(f"{function.__qualname__} uses the module {path} as a value")
            attribute = attributes.pop(0)
            path += f".{attribute}"
            try:
                value = getattr(value, attribute)
            except Exception:  # a module's own __getattr__ raises what it likes; the kernel meets the same
                return ("missing",)
        for attribute in attributes:
            if refused := refused_attribute(attribute):
                raise Unsafe(f"{function.__qualname__} {refused}")
        if is_ours(value) and path_of(value) is None and not isinstance(value, (DType, enum.Enum)):
            plain = self._object(value, path)
            if plain is None:
                raise Unsafe(f"{function.__qualname__} calls {path}, which kernels do not")
            return plain
        return self.value(value, path)

    def _class(self, cls: type, what: str) -> Token:
        if issubclass(cls, np.generic) and cls.__module__ in ("numpy", "ml_dtypes"):
            return "type", cls.__module__, cls.__qualname__
        again = self._again(cls)
        if again is not None:
            return again
        meta = type(cls)
        if f"{meta.__module__}.{meta.__qualname__}" not in _PLAIN_METACLASSES and meta is not enum.EnumMeta:
            raise Unsafe(f"{cls.__qualname__} has a metaclass of its own")
        parts: list[Token] = []
        for base in cls.__mro__:
            if base.__module__ in ("builtins", "enum", "abc", "typing") or is_ours(base):
                parts.append((base.__module__, base.__qualname__))
                continue
            if issubclass(base, enum.Enum):
                parts.append(tuple((each.name, self.value(each.value, what)) for each in base))
            for name, entry in vars(base).items():
                if name not in _CLASS_MACHINERY and not _is_generated(base, name, entry):
                    parts.append((name, self._entry(entry, f"{base.__qualname__}.{name}")))
        return "class", cls.__module__, cls.__qualname__, tuple(parts)

    def _entry(self, entry: Any, what: str) -> Token:
        if isinstance(entry, (staticmethod, classmethod)):
            return type(entry).__name__, self.value(entry.__func__, what)
        if isinstance(entry, property):
            return "property", tuple(self.value(part, what) for part in (entry.fget, entry.fset, entry.fdel))
        if isinstance(entry, functools.cached_property):
            return "cached_property", self.value(entry.func, what)
        if isinstance(entry, (types.MemberDescriptorType, types.GetSetDescriptorType)):
            return "slot", what
        return self.value(entry, what)

    # -- how deep ---------------------------------------------------------------------------------------------------

    def _again(self, value: Any) -> Token | None:
        """Return a short token for what was looked into before, which may still be going on."""
        found = self._entered.get(id(value))
        if found is not None:
            return "again", found[0]
        self._entered[id(value)] = len(self._entered), value
        return None

    @contextlib.contextmanager
    def _deeper(self, what: str) -> Any:
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                raise Unsafe(f"{what} goes too deep, or holds itself")
            yield
        finally:
            self._depth -= 1


_EMPTY: Final = object()
_CONTEXT_HELPER: Final = contextlib.contextmanager(lambda: iter(())).__code__


def _cells(function: types.FunctionType) -> dict[str, Any]:
    """Return what a function's closure holds; ``_EMPTY`` where it holds nothing yet."""
    held: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            held[name] = cell.cell_contents
        except ValueError:
            held[name] = _EMPTY
    return held


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _is_generated(cls: type, name: str, entry: Any) -> bool:
    """Return whether Python made an attribute of a class from others that are looked at: of dataclasses and enums."""
    if name == "__dataclass_fields__":
        return True
    if issubclass(cls, enum.Enum):
        if isinstance(entry, (enum.Enum, enum.property)):
            return True
        function = getattr(entry, "__func__", entry)
        file = getattr(getattr(function, "__code__", None), "co_filename", "")
        return name.startswith("_") and (not file or file == enum.__file__)
    if name == "__init__" or not hasattr(cls, "__dataclass_fields__"):
        return False
    written = getattr(entry, "__wrapped__", entry)
    return entry is None or getattr(getattr(written, "__code__", None), "co_filename", "") == "<string>"
