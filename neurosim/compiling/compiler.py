"""The compiler: numba, its flags, and what it must know of our declarations (:mod:`neurosim.jit`).

Flags, each with its reason:

* no fastmath of any kind, so that a product rounds, then the sum rounds, and NaN stays visible. Product and sum
  become one instruction only where a caller knows that the product is exact (:mod:`neurosim.compiling.blocks`);
* ``error_model="numpy"``: x / 0 is Inf as on the machine, and loops carry no exception paths, so they vectorise;
* ``nogil``: two simulations in two threads run at the same time;
* ``_nrt=False``: our code allocates nothing, so that numba need not count references to arrays. It would at each
  call and each use: the loop over events took four times longer, and twice as long to compile;
* ``no_cfunc_wrapper``: C code, which would call us by it, is nowhere; it would be compiled with each function;
* bounds checks are left to ``NUMBA_BOUNDSCHECK``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final

import numba  # type: ignore[import-untyped,unused-ignore]
import numba.core.config  # type: ignore[import-untyped,unused-ignore]
import numba.core.lowering  # type: ignore[import-untyped,unused-ignore]
import numba.extending  # type: ignore[import-untyped,unused-ignore]

from neurosim.compiling import atomics, vectors, wrapper
from neurosim.compiling import machine_code as files
from neurosim.jit import INLINED, Intrinsic, Kernel

#: numba's types differ from version to version, and half of what we need is not in them.
_numba: Final[Any] = numba
_config: Final[Any] = numba.core.config

files.name_objects()  # what numba links, or finds on disk, names them

#: How functions are called that code finds where numba is loaded alone.
_NUMBAS_OWN: Final = ("numba_", "NRT_")

_WRITERS: Final = {"atomics": atomics, "vectors": vectors}

_FLAGS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

#: numba's settings that change the code that it makes, without the prefix that they have in the environment.
_SETTINGS: Final = (
    "CPU_NAME CPU_FEATURES ENABLE_AVX BOUNDSCHECK OPT LOOP_VECTORIZE SLP_VECTORIZE LLVM_REFPRUNE_PASS "
    "LLVM_REFPRUNE_FLAGS DISABLE_INTEL_SVML DEBUGINFO_DEFAULT EXTEND_VARIABLE_LIFETIMES"
)


def machine_code(kernel: Kernel, arguments: tuple[Any, ...]) -> files.MachineCode:
    """Compile a kernel for arguments such as these."""
    with switched_on():
        made = dispatcher(kernel)
        form = tuple(made.typeof_pyval(argument) for argument in arguments)
        made.compile(form)
    result = made.overloads[form]
    called = [function.name for function in result.library._final_module.functions if function.is_declaration]
    foreign = [name for name in called if name.startswith(_NUMBAS_OWN)]
    if foreign:  # from disk, it would end the process
        raise NotImplementedError(f"{kernel.name}: machine code without numba cannot call its {', '.join(foreign)}")
    return files.MachineCode(result.fndesc.llvm_cpython_wrapper_name, result.library._get_compiled_object())


@contextlib.contextmanager
def switched_on() -> Iterator[None]:
    """Let numba compile where a program has switched it off since, which our declarations did not see."""
    before = _config.DISABLE_JIT
    _config.DISABLE_JIT = 0
    try:
        yield
    finally:
        _config.DISABLE_JIT = before


def is_as_told() -> bool:
    """Return whether numba's settings are those of its environment: a program may have changed them since."""
    spec = importlib.util.find_spec("numba.core.config")
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    return all(getattr(fresh, name, None) == getattr(_config, name, None) for name in _SETTINGS.split())


@functools.cache
def dispatcher(kernel: Kernel) -> Any:
    """Return numba's function of a kernel."""
    return _numba.njit(prepared(kernel.py_func), pipeline_class=_Compiler, _nrt=False, **_FLAGS)


@functools.cache
def prepared(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls what numba knows in place of our declarations."""
    assert isinstance(function, FunctionType)
    cells = tuple(CellType(_known(cell.cell_contents)) for cell in function.__closure__ or ())
    names, used = dict(function.__globals__), set(_names(function.__code__))
    names |= {name: _known(names[name]) for name in used & names.keys()}
    for module in [names[name] for name in used & names.keys() if isinstance(names[name], ModuleType)]:
        for name in used & vars(module).keys():  # `module.function(...)`
            _known(getattr(module, name))
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    return made


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function and those in it use."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _known(value: Any) -> Any:
    """Return what numba is to find where a function names something."""
    if isinstance(value, Kernel):
        return dispatcher(value)
    if isinstance(value, Intrinsic):
        return intrinsic(value)
    if isinstance(value, FunctionType) and value in INLINED:
        _tell_of(value)
    return value


@functools.cache
def intrinsic(declared: Intrinsic) -> Any:
    """Return a function for whose calls numba writes code of ours."""
    module, _, name = declared.name.partition(".")
    return _numba.extending.intrinsic(getattr(_WRITERS[module], name)(*declared.form))


@functools.cache
def _tell_of(function: Callable[..., Any]) -> None:
    """Tell numba of a scalar function that kernels call.

    LLVM is told to inline it always: by itself it leaves calls to long functions, and a call stops vectorising.
    """
    options = {"forceinline": True, "pipeline_class": _InlinedCompiler}
    _numba.extending.overload(function, jit_options=options, strict=False)(lambda *_: prepared(function))


class _Lower(_numba.core.lowering.Lower):  # type: ignore[misc,unused-ignore]
    """From types to LLVM's code, with a way for Python to call it that is ours."""

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        """Write it."""
        wrapper.write(self.context, self.library, self.fndesc)


@_numba.core.compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[misc,unused-ignore]
class _Lowering(_numba.core.typed_passes.NativeLowering):  # type: ignore[misc,unused-ignore]
    """numba's step from types to LLVM's code, for a kernel."""

    _name = "neurosim_lowering"

    @property
    def lowering_class(self) -> Any:
        return _Lower


class _InlinedCode(_numba.core.codegen.JITCodeLibrary):  # type: ignore[misc,unused-ignore]
    """Code that is optimised, and made machine code, where it is inlined: alone, it would be compiled many times."""

    def _optimize_final_module(self) -> None:
        """Nothing."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@_numba.core.compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[misc,unused-ignore]
class _InlinedLowering(_numba.core.typed_passes.NativeLowering):  # type: ignore[misc,unused-ignore]
    """numba's step from types to LLVM's code, for an inlined function."""

    _name = "neurosim_inlined_lowering"

    def run_pass(self, state: Any) -> bool:
        """Fill in the code, and what numba finds it by: a function object, which has no address."""
        state.library = _InlinedCode(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = True
        super().run_pass(state)
        lowered = state["cr"]
        form, kept = lowered.fndesc, (state.library,)
        key = _numba._dynfunc.make_function(form.lookup_module(), form.qualname, "", 0, lowered.env, kept)
        state.targetctx.insert_user_function(key, form, kept)
        state["cr"] = lowered._replace(cfunc=key)
        return True


class _OurCompiler(_numba.core.compiler.CompilerBase):  # type: ignore[misc,unused-ignore]
    """numba's compiler, with another step from types to LLVM's code."""

    lowering: Any

    def define_pipelines(self) -> list[Any]:
        usual = _numba.core.typed_passes.NativeLowering
        pipeline = _numba.core.compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [(self.lowering if step is usual else step, why) for step, why in pipeline.passes]
        pipeline.finalize()
        return [pipeline]


class _Compiler(_OurCompiler):
    lowering = _Lowering


class _InlinedCompiler(_OurCompiler):
    lowering = _InlinedLowering
