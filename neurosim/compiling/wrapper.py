"""The code by which Python calls a compiled function: it looks at arguments itself, in a few nanoseconds each.

numba finds out at each call which of several signatures is meant, then takes what an array is on trust. Our functions
have one signature, so what is left is to see whether that is kept: a call with another array is a TypeError.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import llvmlite.ir  # type: ignore[import-untyped,unused-ignore]
import numba  # type: ignore[import-untyped,unused-ignore]
import numba.core.cgutils  # type: ignore[import-untyped,unused-ignore]
import numba.np.arrayobj  # type: ignore[import-untyped,unused-ignore]
import numba.np.numpy_support  # type: ignore[import-untyped,unused-ignore]

from neurosim.compiling.machine_code import NDARRAY, RECARRAY, SHARED_FROM

_numba: Final[Any] = numba
_types: Final[Any] = numba.types
_ir: Final[Any] = llvmlite.ir
_cgutils: Final[Any] = numba.core.cgutils

# Where NumPy 2 and Python keep what we look at, in bytes from the start of an object (numpy/ndarraytypes.h, object.h).
_CLASS: Final = 8
_DATA, _AXES, _SHAPE, _STRIDES, _DTYPE, _FLAGS = 16, 24, 32, 40, 56, 64
_KIND, _BYTE_ORDER, _ITEM_BYTES = 24, 26, 40

_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_SWAPPED: Final = ">" if sys.byteorder == "little" else "<"

_BYTE, _INT, _WORD = _ir.IntType(8), _ir.IntType(32), _ir.IntType(64)


def write(context: Any, library: Any, function: Any) -> None:
    """Add the code to a library.

    It is a function of C, ``PyObject *(*)(PyObject *self, PyObject *const *arguments, Py_ssize_t count)``, under the
    name that numba's own would have.

    Args:
        context, library, function: numba's, as it lowers a function.
    """
    _Wrapper(context, library, function).write()


class _Wrapper:
    def __init__(self, context: Any, library: Any, function: Any) -> None:
        self.context, self.library, self.function = context, library, function
        self.module = context.create_module("wrapper")
        self.object = context.get_argument_type(_types.pyobject)
        form = _ir.FunctionType(self.object, [self.object, self.object.as_pointer(), _WORD])
        self.code = _ir.Function(self.module, form, name=function.llvm_cpython_wrapper_name)
        self.builder = _ir.IRBuilder(self.code.append_basic_block("entry"))
        self.python = context.get_python_api(self.builder)
        self.elements: Any = _WORD(0)  # of all arrays

    def write(self) -> None:
        """Look at the arguments, call the function, and return what it returns."""
        function, builder = self.function, self.builder
        _, arguments, count = self.code.args
        self.expect(builder.icmp_signed("==", count, _WORD(len(function.argtypes))), "another number of arguments")
        places = [builder.load(builder.gep(arguments, [_WORD(i)])) for i in range(len(function.argtypes))]
        natives = [self.native(form, place) for form, place in zip(function.argtypes, places, strict=True)]
        shared = builder.icmp_signed(">=", self.elements, _WORD(SHARED_FROM))
        thread = _cgutils.alloca_once_value(builder, _ir.Constant(self.object, None))
        with builder.if_then(shared):
            builder.store(self.python.save_thread(), thread)
        conventions = self.context.call_conv
        called = _ir.Function(
            self.module, conventions.get_function_type(function.restype, function.argtypes), function.llvm_func_name
        )
        status, result = conventions.call_function(
            builder, called, function.restype, function.argtypes, natives, attrs=("noinline",)
        )
        with builder.if_then(shared):
            self.python.restore_thread(builder.load(thread))
        self.expect(status.is_ok, "an index beyond an array", "PyExc_IndexError")
        with builder.if_then(status.is_none):
            self.python.return_none()
        builder.ret(self.python.from_native_return(function.restype, result, None))
        self.library.add_ir_module(self.module)

    def expect(self, holds: Any, otherwise: str, error: str = "PyExc_TypeError") -> None:
        """Raise an exception where something does not hold."""
        with self.builder.if_then(self.builder.not_(holds), likely=False):
            self.python.err_set_string(error, f"compiled {self.function.qualname}: {otherwise}")
            self.builder.ret(self.python.get_null_object())

    def native(self, form: Any, value: Any) -> Any:
        """Return an argument as compiled code has it."""
        if isinstance(form, _types.Array):
            return self.array(form, value)
        if isinstance(form, _types.BaseTuple):
            return self.tuple(form, value)
        if isinstance(form, _types.Integer):
            return self.integer(form, value)
        native = self.python.to_native_value(form, value)
        self.stop(native.is_error)
        return native.value

    def stop(self, failed: Any) -> None:
        """Return to Python where an exception was raised."""
        with self.builder.if_then(failed, likely=False):
            self.builder.ret(self.python.get_null_object())

    def integer(self, form: Any, value: Any) -> Any:
        """Return a whole number; numba would cut a float."""
        index = _cgutils.get_or_insert_function(
            self.module, _ir.FunctionType(self.object, [self.object]), "PyNumber_Index"
        )
        whole = self.builder.call(index, [value])
        self.stop(_cgutils.is_null(self.builder, whole))
        native = self.python.to_native_value(form, whole)
        self.python.decref(whole)
        self.stop(native.is_error)
        return native.value

    def tuple(self, form: Any, value: Any) -> Any:
        """Return a tuple of arguments, named or not."""
        size = self.python.tuple_size(value)  # -1 of what is none
        self.expect(self.builder.icmp_signed("==", size, size.type(len(form))), f"no tuple of {len(form)}")
        items = [self.python.tuple_getitem(value, index) for index in range(len(form))]
        natives = [self.native(each, item) for each, item in zip(form, items, strict=True)]
        return self.context.make_tuple(self.builder, form, natives)

    def array(self, form: Any, value: Any) -> Any:
        """Return an array as a structure, when it has the dtype and number of axes, and lies in memory as it has to."""
        builder, same = self.builder, self.builder.icmp_unsigned
        dtype = _numba.np.numpy_support.as_dtype(form.dtype)
        wanted_class = self.named(RECARRAY if isinstance(form.dtype, _types.Record) else NDARRAY)
        self.expect(same("==", self.field(value, _CLASS, _BYTE.as_pointer()), wanted_class), f"{form} is no such array")
        description = self.field(value, _DTYPE, _BYTE.as_pointer())
        wanted = (_CONTIGUOUS if form.layout == "C" else 0) | (_ALIGNED if form.aligned else 0)
        wanted |= _WRITEABLE if form.mutable else 0
        flags = builder.and_(self.field(value, _FLAGS, _INT), _INT(wanted))
        for holds in (
            same("==", self.field(value, _AXES, _INT), _INT(form.ndim)),
            same("==", self.field(description, _KIND, _BYTE), _BYTE(ord(dtype.kind))),
            same("!=", self.field(description, _BYTE_ORDER, _BYTE), _BYTE(ord(_SWAPPED))),
            same("==", self.field(description, _ITEM_BYTES, _WORD), _WORD(dtype.itemsize)),
            same("==", flags, _INT(wanted)),
        ):
            self.expect(holds, f"an array is not {form}")
        made = self.context.make_array(form)(self.context, builder)
        shape, strides = (self.words(value, place, form.ndim) for place in (_SHAPE, _STRIDES))
        data = builder.bitcast(self.field(value, _DATA, _BYTE.as_pointer()), made.data.type)
        _numba.np.arrayobj.populate_array(made, data, shape, strides, dtype.itemsize, None, value)
        self.elements = builder.add(self.elements, made.nitems)
        return made._getvalue()

    def named(self, name: str) -> Any:
        """Return where an object of Python is."""
        known = self.module.globals.get(name)
        return _ir.GlobalVariable(self.module, _BYTE, name) if known is None else known

    def field(self, value: Any, place_bytes: int, form: Any) -> Any:
        """Return a member of a structure of C."""
        place = self.builder.gep(self.builder.bitcast(value, _BYTE.as_pointer()), [_WORD(place_bytes)])
        return self.builder.load(self.builder.bitcast(place, form.as_pointer()))

    def words(self, value: Any, place_bytes: int, count: int) -> list[Any]:
        """Return the numbers that a member points at."""
        first = self.field(value, place_bytes, _WORD.as_pointer())
        return [self.builder.load(self.builder.gep(first, [_WORD(index)])) for index in range(count)]
