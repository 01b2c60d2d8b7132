"""LLVM's code by which threads hand over work without Python: see :mod:`neurosim.compiling.mailbox`."""

from __future__ import annotations

import platform
from typing import Any, Final

import llvmlite.ir  # type: ignore[import-untyped,unused-ignore]
import numba  # type: ignore[import-untyped,unused-ignore]
import numba.core.cgutils  # type: ignore[import-untyped,unused-ignore]
import numba.np.arrayobj  # type: ignore[import-untyped,unused-ignore]

_numba: Final[Any] = numba
_types: Final[Any] = numba.types
_cgutils: Final[Any] = numba.core.cgutils
_ALIGNED_BYTES: Final = 8


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Return the address of an array's element."""
    words = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(words.data, [arguments[1]])


def load() -> Any:
    """Read a word, and with it what its writer had stored before."""

    def typed(_: Any, words: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.load_atomic(_place(context, builder, signature, arguments), "acquire", _ALIGNED_BYTES)

        return _types.int64(words, _types.intp), generate

    return typed


def store() -> Any:
    """Write a word behind all that was stored before."""

    def typed(_: Any, words: Any, index: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = _place(context, builder, signature, arguments)
            builder.store_atomic(arguments[2], place, "release", _ALIGNED_BYTES)
            return context.get_dummy_value()

        return _types.void(words, _types.intp, _types.int64), generate

    return typed


def exchange() -> Any:
    """Write a word where another stands, at once."""

    def typed(_: Any, words: Any, index: Any, old: Any, new: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            place = _place(context, builder, signature, arguments)
            return builder.extract_value(builder.cmpxchg(place, arguments[2], arguments[3], "acq_rel", "acquire"), 1)

        return _types.boolean(words, _types.intp, _types.int64, _types.int64), generate

    return typed


def pause() -> Any:
    """Leave the processor to its other thread for some cycles, where it has an instruction for that."""

    def typed(_: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            if platform.machine() in ("x86_64", "AMD64"):
                form = llvmlite.ir.FunctionType(llvmlite.ir.VoidType(), [])
                builder.call(_cgutils.get_or_insert_function(builder.module, form, "llvm.x86.sse2.pause"), [])
            return context.get_dummy_value()

        return _types.void(), generate

    return typed


def address() -> Any:
    """Say where an array lies in memory."""

    def typed(_: Any, array: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            made = context.make_array(signature.args[0])(context, builder, arguments[0])
            return builder.ptrtoint(made.data, llvmlite.ir.IntType(64))

        return _types.int64(array), generate

    return typed


def memory() -> Any:
    """Make an array of bytes that lie somewhere."""

    def typed(_: Any, place: Any, size_bytes: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            made = context.make_array(signature.return_type)(context, builder)
            data = builder.inttoptr(arguments[0], made.data.type)
            strides = [context.get_constant(_types.intp, 1)]
            _numba.np.arrayobj.populate_array(made, data, [arguments[1]], strides, strides[0], None)
            return made._getvalue()

        return _types.Array(_types.uint8, 1, "C")(_types.int64, _types.intp), generate

    return typed
