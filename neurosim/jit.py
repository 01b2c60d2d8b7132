"""The one file that imports numba: decorators, compiler flags, cache folder.

Flags, each with its reason:

* no fastmath of any kind, so that a product rounds, then the sum rounds, and NaN stays visible. Product and sum
  become one instruction only where a caller knows that the product is exact (:func:`products_kernel`);
* ``error_model="numpy"``: x / 0 is Inf as on the machine, and loops carry no exception paths, so they vectorise;
* ``nogil``: two simulations in two threads run at the same time;
* ``_nrt=False``: serial code allocates nothing, so that numba need not count references to arrays. It would at each
  call and each use: the loop over events took four times longer, and twice as long to compile;
* ``no_cfunc_wrapper``: C code, which would call us by it, is nowhere; it would be compiled with each function;
* bounds checks are left to ``NUMBA_BOUNDSCHECK``.

Every compiled function is called with one signature only. numba numbers the files of a function's signatures
without a lock; two processes that compile two signatures of one function at once may swap their machine code.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import llvmlite.binding  # type: ignore[import-untyped,unused-ignore]
import llvmlite.ir  # type: ignore[import-untyped,unused-ignore]
import numba  # type: ignore[import-untyped,unused-ignore]
import numba.core.caching  # type: ignore[import-untyped,unused-ignore]
import numba.core.event  # type: ignore[import-untyped,unused-ignore]
import numba.core.runtime  # type: ignore[import-untyped,unused-ignore]
import numba.extending  # type: ignore[import-untyped,unused-ignore]
import numpy as np

from neurosim.installation import cache_root

F = TypeVar("F", bound=Callable[..., Any])

#: numba's types differ from version to version, and half of what we need is not in them.
_numba: Final[Any] = numba
_config: Final[Any] = numba.config

_log = logging.getLogger(__name__)

#: Whether loops run as plain Python (``NUMBA_DISABLE_JIT=1``); the bits are the same.
INTERPRETED: Final = bool(_config.DISABLE_JIT)

#: ``range`` whose iterations may run on several threads inside a function under :func:`parallel`.
prange: Final[Any] = _numba.prange

_FLAGS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

#: numba's settings that change the code that it makes, without the prefix that they have in the environment.
_SETTINGS: Final = (
    "CPU_FEATURES ENABLE_AVX BOUNDSCHECK OPT LOOP_VECTORIZE SLP_VECTORIZE LLVM_REFPRUNE_PASS LLVM_REFPRUNE_FLAGS "
    "DISABLE_INTEL_SVML DEBUGINFO_DEFAULT EXTEND_VARIABLE_LIFETIMES"
)


def _cache_key(package: Path) -> str:
    """Hash everything that the machine code of a package depends on: its sources and ours, the compiler, the CPU.

    What comes from elsewhere must be an argument or in a closure, as numba notices no change of another module's.
    """
    digest = hashlib.sha256()
    for path in (Path(__file__), *sorted(package.glob("*.py"))):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    cpu = _config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    versions = _numba.__version__, np.__version__, platform.python_version()
    settings = (repr(getattr(_config, name, None)) for name in _SETTINGS.split())
    digest.update("\n".join((*versions, platform.machine(), cpu, *settings)).encode())
    return digest.hexdigest()[:20]


@functools.cache
def cache_dir(package: Path) -> Path | None:
    """Return the folder for a package's machine code, created and writable, or None: compile afresh each time."""
    try:
        folder = cache_root() / f"numba-{_cache_key(package)}"
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError) as error:
        _log.info("compiled code is not kept on disk: %s", error)
        _announce(package, "each time, as no folder for the result can be written: set NEUROSIM_CACHE_DIR")
        return None
    if next(folder.rglob("*.nbi"), None) is None:
        _announce(package, "kept on disk")
    return folder


#: What takes long to compile, and how long: by the last name of a package.
_WAITS: Final = {
    "numerics": ("arithmetic", "up to 10 seconds now, and a few for each new mix of instruction and dtype later"),
    "events": ("the timing of long programs", "10 to 20 seconds"),
}


class _Announcement(_numba.core.event.Listener):  # type: ignore[misc,unused-ignore]
    """Says on stderr, before the first function of a package is compiled, what takes so long. Once in a process."""

    def __init__(self) -> None:
        self.endings: dict[str, str] = {}  # by package, as long as nothing was said

    def on_start(self, event: Any) -> None:
        """Look whose function it is."""
        package = Path(event.data["dispatcher"].py_func.__code__.co_filename).parent
        ending = self.endings.pop(str(package), "")
        if ending and package.name in _WAITS:
            what, wait = _WAITS[package.name]
            sys.stderr.write(f"neurosim: compiling {what} for this processor, {wait}; {ending}\n")
            sys.stderr.flush()

    def on_end(self, event: Any) -> None:
        """Nothing."""


def _announce(package: Path, ending: str) -> None:
    """Say so when a function of the package is compiled."""
    _announcement.endings[str(package)] = ending


_announcement: Final = _Announcement()
_numba.core.event.register("numba:compile", _announcement)


@contextmanager
def _our_cache(folder: Path) -> Iterator[None]:
    """Point numba's global cache folder at ours while a function is decorated, so that users' caches stay put."""
    before = _config.CACHE_DIR
    _config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        _config.CACHE_DIR = before


class _Place(_numba.core.caching.UserProvidedCacheLocator):  # type: ignore[misc,unused-ignore]
    """Where a function's machine code lies: in our folder itself, whose name says what the sources hold.

    numba would name a folder below it by the path of the sources, and stamp files with their age: then a second
    checkout, or one that was moved, would compile everything again.
    """

    def get_cache_path(self) -> str:
        """Return the folder that ``_our_cache`` points at while the function's files are named."""
        return str(Path(self._cache_path).parent)

    def get_source_stamp(self) -> str:
        """Return what a change of the sources would change, were it not in the folder's name."""
        return ""


class _Files(_numba.core.caching.CompileResultCacheImpl):  # type: ignore[misc,unused-ignore]
    _locator_classes = (_Place,)


class _MachineCode(_numba.core.caching.FunctionCache):  # type: ignore[misc,unused-ignore]
    """A function's machine code on disk, which runs without what a compiler needs.

    Before numba looks on disk it imports all that it may compile, and SciPy's BLAS: half a second of each process.
    Where nothing is found, its compiler does so itself. Nor does a process call most functions: who asks first for what
    numba keeps of a file (any attribute) has it made.
    """

    _impl_class = _Files

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self._later = function, folder

    def __getattr__(self, name: str) -> Any:
        later = self.__dict__.pop("_later", None)
        if later is None:
            raise AttributeError(name)
        function, folder = later
        with _our_cache(folder):
            super().__init__(function)
        return getattr(self, name)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the function that was compiled for a signature, None where none is there."""
        _numba.core.runtime.rtsys.initialize(target_context)  # machine code calls it
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def is_filled(self) -> bool:
        """Return whether machine code of the function was kept, for whichever signature."""
        return Path(self._cache_file._index_path).exists()


def _jit(function: F, **flags: Any) -> F:
    jitted: Any = _numba.njit(function, **_FLAGS, **flags)
    folder = cache_dir(Path(function.__code__.co_filename).parent)
    if folder is not None:
        jitted._cache = _MachineCode(function, folder)
    found: F = jitted
    return found


def _interpreted(function: F) -> F:
    """Run a kernel as plain Python: NumPy scalars wrap and overflow as the machine does, but would warn."""

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*args)

    return run  # type: ignore[return-value]


def compiled(function: F) -> F:
    """Compile a serial kernel at its first call. The machine code is kept on disk."""
    return _interpreted(function) if INTERPRETED else _jit(function, _nrt=False)


def python_of(function: Any) -> Any:
    """Return the Python that a compiled function was made from; all else as it is."""
    return getattr(function, "py_func", getattr(function, "__wrapped__", function))


def is_loaded(function: Any) -> bool:
    """Return whether a compiled function has machine code in this process."""
    return bool(function.signatures)


def is_on_disk(function: Any) -> bool:
    """Return whether a compiled function's machine code was kept by some process."""
    return isinstance(function._cache, _MachineCode) and function._cache.is_filled()


def named(name: str) -> Callable[[F], F]:
    """Compile a kernel that a factory makes in several variants.

    ``name`` must be the variant's own: the file on disk is called by it, and one file holds one variant.
    """

    def decorate(function: F) -> F:
        function.__qualname__ = name
        return compiled(function)

    return decorate


def parallel(function: F) -> F:
    """Compile the parallel kernel. Call it only from :func:`neurosim.pool.run`."""
    return _interpreted(function) if INTERPRETED else _jit(function, parallel=True)


def inlined(function: F) -> F:
    """Mark a scalar function that kernels call; it becomes part of them, and stays plain Python outside them.

    LLVM is told to inline it always: by itself it leaves calls to long functions, and a call stops vectorising.
    """
    marked: F = _numba.extending.register_jitable(forceinline=True, pipeline_class=_InlinedCompiler)(function)
    return marked


def _whole_registers(_: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')  # llvmlite knows names without a value
        return context.get_dummy_value()

    return _numba.types.void(), generate


#: Called in a kernel, has LLVM vectorise it for all of AVX-512's registers. By itself it takes half of them, since some
#: processors slow down; tiles are long enough for an exponential to take half of the time.
whole_registers: Final[Any] = (lambda: None) if INTERPRETED else _numba.extending.intrinsic(_whole_registers)


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
        state.flags.no_compile = state.flags.no_cfunc_wrapper = True
        super().run_pass(state)
        lowered = state["cr"]
        form, kept = lowered.fndesc, (state.library,)
        key = _numba._dynfunc.make_function(form.lookup_module(), form.qualname, "", 0, lowered.env, kept)
        state.targetctx.insert_user_function(key, form, kept)
        state["cr"] = lowered._replace(cfunc=key)
        return True


class _InlinedCompiler(_numba.core.compiler.CompilerBase):  # type: ignore[misc,unused-ignore]
    """numba's compiler, with the step above."""

    def define_pipelines(self) -> list[Any]:
        usual = _numba.core.typed_passes.NativeLowering
        pipeline = _numba.core.compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [(_InlinedLowering if step is usual else step, why) for step, why in pipeline.passes]
        pipeline.finalize()
        return [pipeline]


def _registers() -> tuple[int, int]:
    """Return how many float32 numbers a vector register holds, and how many such registers there are."""
    features = _config.CPU_FEATURES
    if features is None:
        features = llvmlite.binding.get_host_cpu_features().flatten()
    names = features.split(",")
    if "+avx512f" in names:
        return 16, 32
    if "+avx" in names:
        return 8, 16
    return 4, 32 if platform.machine() in ("aarch64", "arm64") else 16


_LANES, _REGISTERS = _registers()
_VECTORS: Final = 2
#: Rows and columns of sums that stay in registers, beside a row of the right operand and an element of the left.
SUM_ROWS: Final = 8 if _REGISTERS == 32 else 4
SUM_COLUMNS: Final = _VECTORS * _LANES
#: Rows by which packing asks memory for what it will read: rows are far apart, and each would be waited for in turn.
_ROWS_AHEAD: Final = 4


def products_kernel(exact: bool) -> Any:
    """Return what computes ``SUM_ROWS`` x ``SUM_COLUMNS`` sums of products, in order, each from +0.0.

    ``kernel(left, left_at, right, right_at, depth, out, at, stride, rows, overwrite)`` adds, for k = 0 ... depth - 1,
    ``left[left_at + k * SUM_ROWS + row] * right[right_at + k * SUM_COLUMNS + column]``, and stores the sums of the
    first ``rows`` rows in ``out[at + row * stride + column]``, or adds them to what is there. NaN has one bit pattern.
    All arrays are float32, flat, contiguous, and long enough, which nobody checks. From a loop over numbers LLVM makes
    vectors, too, but keeps the sums in memory, which takes twice the time.

    Args:
        exact: every product is exact in float32. Then product and sum are one instruction where the processor has
            one, with the same bits.
    """
    if INTERPRETED:
        return _products

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _products_code(context, builder, signature.args, arguments, exact)
        return context.get_dummy_value()

    def products(
        _: Any, left: Any, left_at: Any, right: Any, right_at: Any, depth: Any, out: Any, at: Any, stride: Any,
        rows: Any, overwrite: Any,
    ) -> Any:  # fmt: skip
        whole, flag = _numba.types.intp, _numba.types.boolean
        form = _numba.types.void(left, whole, right, whole, whole, out, whole, whole, whole, flag)
        return form, generate

    return _numba.extending.intrinsic(products)


def packing_kernel(size: int, coded: bool) -> Any:
    """Return what copies blocks of ``size`` columns and says what they hold.

    ``kernel(source, at, stride, depth, blocks, target, target_at, step)`` copies
    ``source[at + k * stride + block * size + n]`` to ``target[target_at + block * step + k * size + n]``. The target is
    float32; so is the source unless it is ``coded``: codes of bfloat16, which become float32. Both are flat,
    contiguous, and long enough, which nobody checks. Of the bits of what it copies it returns all that are set; the
    least magnitude less 1, where 0 less 1 is 2**32 - 1; and the largest magnitude. A loop over so few numbers would
    check each slice, and LLVM would leave it one number at a time.
    """
    if INTERPRETED:
        return functools.partial(_packing, size, coded)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = _packing_code(context, builder, signature.args, arguments, (size, coded))
        return context.make_tuple(builder, signature.return_type, found)

    def packing(
        _: Any, source: Any, at: Any, stride: Any, depth: Any, blocks: Any, target: Any, target_at: Any, step: Any
    ) -> Any:
        whole, seen = _numba.types.intp, _numba.types.UniTuple(_numba.types.uint32, 3)
        return seen(source, whole, whole, whole, whole, target, whole, whole), generate

    return _numba.extending.intrinsic(packing)


def _packing(
    size: int, coded: bool, source: Any, at: int, stride: int, depth: int, blocks: int, target: Any, target_at: int,
    step: int,
) -> Any:  # fmt: skip
    """Do in NumPy what the compiled kernels do."""
    seen, least, most = np.uint32(0), np.uint32(2**32 - 1), np.uint32(0)
    for k in range(depth):
        for block in range(blocks):
            start, place = at + k * stride + block * size, target_at + block * step + k * size
            values = source[start : start + size]
            target[place : place + size] = (values.astype(np.uint32) << 16).view(np.float32) if coded else values
            bits = target[place : place + size].view(np.uint32)
            magnitudes = bits & np.uint32(2**31 - 1)
            seen |= np.bitwise_or.reduce(bits)
            least, most = min(least, (magnitudes - np.uint32(1)).min()), max(most, magnitudes.max())
    return seen, least, most


def _packing_code(context: Any, builder: Any, types: Any, arguments: Any, form: tuple[int, bool]) -> Any:
    """Write a packing kernel's code: a block is one vector, which LLVM cuts to the processor's."""
    (size, coded), ir, cgutils = form, llvmlite.ir, _numba.core.cgutils
    at, stride, depth, blocks, target_at, step = (arguments[index] for index in (1, 2, 3, 4, 6, 7))
    source, target = (context.make_array(types[i])(context, builder, arguments[i]).data for i in (0, 5))
    word, words = ir.IntType(32), ir.VectorType(ir.IntType(32), size)
    part = ir.VectorType(ir.IntType(16), size) if coded else words

    def every(number: int) -> Any:
        return ir.Constant(words, [number] * size)

    starts = {"or": 0, "umin": 2**32 - 1, "umax": 0}
    seen = {name: cgutils.alloca_once_value(builder, every(number)) for name, number in starts.items()}
    ahead = builder.mul(stride, at.type(_ROWS_AHEAD))
    with cgutils.for_range(builder, depth) as row:
        line = builder.add(at, builder.mul(row.index, stride))
        lower = builder.add(target_at, builder.mul(row.index, at.type(size)))
        with cgutils.for_range(builder, blocks) as column:
            place = builder.add(line, builder.mul(column.index, at.type(size)))
            line_ahead = builder.bitcast(builder.gep(source, [builder.add(place, ahead)]), ir.IntType(8).as_pointer())
            _call(builder, "llvm.prefetch.p0", ir.VoidType(), line_ahead, word(0), word(3), word(1))
            place = builder.bitcast(builder.gep(source, [place]), part.as_pointer())
            values = builder.load(place, align=2 if coded else 4)
            if coded:
                values = builder.shl(builder.zext(values, words), every(16))
            place = builder.gep(target, [builder.add(lower, builder.mul(column.index, step))])
            builder.store(values, builder.bitcast(place, words.as_pointer()), align=4)
            magnitude = builder.and_(values, every(2**31 - 1))
            for name, found in zip(starts, (values, builder.sub(magnitude, every(1)), magnitude), strict=True):
                before = builder.load(seen[name])
                both = before, found
                after = builder.or_(*both) if name == "or" else _call(builder, f"llvm.{name}.v{size}i32", words, *both)
                builder.store(after, seen[name])
    return [_call(builder, f"llvm.vector.reduce.{name}.v{size}i32", word, builder.load(seen[name])) for name in starts]


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Write a call of one of LLVM's own functions."""
    form = llvmlite.ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(_numba.core.cgutils.get_or_insert_function(builder.module, form, name), arguments)


def _products(
    left: Any, left_at: int, right: Any, right_at: int, depth: int, out: Any, at: int, stride: int, rows: int,
    overwrite: bool,
) -> None:  # fmt: skip
    """Do in NumPy what the compiled kernels do."""
    total = np.zeros((SUM_ROWS, SUM_COLUMNS), np.float32)
    for k in range(depth):
        row, column = left_at + k * SUM_ROWS, right_at + k * SUM_COLUMNS
        total = total + left[row : row + SUM_ROWS, None] * right[None, column : column + SUM_COLUMNS]
    for row in range(rows):
        line = out[at + row * stride : at + row * stride + SUM_COLUMNS]
        line[:] = total[row] if overwrite else line + total[row]
        line[np.isnan(line)] = np.nan


def _products_code(context: Any, builder: Any, types: Any, arguments: Any, exact: bool) -> None:
    """Write a kernel's code: a loop over k around a step for each row and vector; LLVM keeps the sums in registers."""
    cgutils, ir = _numba.core.cgutils, llvmlite.ir
    left_at, right_at, depth, at, stride, rows, overwrite = (arguments[index] for index in (1, 3, 4, 6, 7, 8, 9))
    left, right, out = (context.make_array(types[i])(context, builder, arguments[i]).data for i in (0, 2, 5))
    vector = ir.VectorType(ir.FloatType(), _LANES)
    undefined = ir.Constant(vector, ir.Undefined)

    def vector_at(base: Any, start: Any, number: int) -> Any:
        place = builder.add(start, start.type(number * _LANES))
        return builder.bitcast(builder.gep(base, [place]), vector.as_pointer())

    totals = [
        cgutils.alloca_once_value(builder, ir.Constant(vector, [0.0] * _LANES)) for _ in range(SUM_ROWS * _VECTORS)
    ]
    with cgutils.for_range(builder, depth) as loop:
        start = builder.add(right_at, builder.mul(loop.index, depth.type(SUM_COLUMNS)))
        columns = [builder.load(vector_at(right, start, number), align=4) for number in range(_VECTORS)]
        start = builder.add(left_at, builder.mul(loop.index, depth.type(SUM_ROWS)))
        for row in range(SUM_ROWS):
            element = builder.load(builder.gep(left, [builder.add(start, start.type(row))]))
            factor = _repeated(builder, undefined, element)
            for column, total in zip(columns, totals[row * _VECTORS :], strict=False):
                before = builder.load(total)
                if exact:
                    after = _call(builder, f"llvm.fmuladd.v{_LANES}f32", vector, factor, column, before)
                else:
                    after = builder.fadd(before, builder.fmul(factor, column))
                builder.store(after, total)
    nan, nothing = (ir.Constant(vector, [number] * _LANES) for number in (np.nan, 0.0))
    for row in range(SUM_ROWS):
        start = builder.add(at, builder.mul(stride, stride.type(row)))
        with builder.if_then(builder.icmp_signed(">", rows, rows.type(row))):
            for number, total in enumerate(totals[row * _VECTORS : (row + 1) * _VECTORS]):
                place = vector_at(out, start, number)
                # a sum from +0.0 never is -0.0, so that it is the same when 0.0 is added
                before = builder.select(overwrite, nothing, builder.load(place, align=4))
                after = builder.fadd(before, builder.load(total))
                after = builder.select(builder.fcmp_unordered("uno", after, after), nan, after)
                builder.store(after, place, align=4)


def _repeated(builder: Any, vector: Any, element: Any) -> Any:
    """Write the code of a vector of one number."""
    word = llvmlite.ir.IntType(32)
    first = builder.insert_element(vector, element, word(0))
    lanes = llvmlite.ir.VectorType(word, vector.type.count)
    return builder.shuffle_vector(first, vector, llvmlite.ir.Constant(lanes, [0] * vector.type.count))


def numba_threads() -> tuple[int, str]:
    """Return how many threads numba's pool has, and what runs them ("none" for one); ValueError where nothing can."""
    count = int(_numba.get_num_threads())
    return count, str(_numba.threading_layer()) if count > 1 else "none"
