"""The compiler's rules: flags, the cache folder, threads and forks, and the same bits without a compiler."""

from __future__ import annotations

import ast
import copy
import importlib
import json
import os
import pickle
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numba.core.errors
import numpy as np
import pytest

from neurosim import jit
from neurosim.compiling import compiler
from neurosim.numerics import act, scan

ROOT = Path(__file__).resolve().parents[2]
NUMERICS = ROOT / "neurosim" / "numerics"
SOURCES = [path for folder in ("neurosim", "isa", "kernels") for path in sorted((ROOT / folder).rglob("*.py"))]
EVERYTHING = Path(__file__).with_name("bits_of_everything.py")


def run(arguments: list[str], **environment: str | None) -> subprocess.CompletedProcess[str]:
    """Run Python on our checkout; an environment variable of None is taken away."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name, value in environment.items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    return subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, check=True)


def hashes(**environment: str | None) -> dict[str, str]:
    result: dict[str, str] = json.loads(run([str(EVERYTHING)], **environment).stdout)
    return result


def test_plain_python_gives_the_same_bits() -> None:
    compiled = hashes(NUMBA_DISABLE_JIT=None)
    interpreted = hashes(NUMBA_DISABLE_JIT="1")
    assert [name for name in compiled if compiled[name] != interpreted[name]] == []


@pytest.mark.slow
def test_another_cpu_gives_the_same_bits() -> None:
    # without AVX: other vector widths, other instructions
    generic = hashes(NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="", NUMBA_DISABLE_JIT=None)
    assert generic == hashes(NUMBA_DISABLE_JIT=None)


def test_only_what_compiles_imports_numba() -> None:
    importers = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == "numba" for name in names):
                importers.add(path.relative_to(ROOT).as_posix())
    assert importers == {f"neurosim/compiling/{name}.py" for name in ("atomics", "compiler", "vectors", "wrapper")}


def test_no_fastmath_anywhere() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            words = [node.arg] if isinstance(node, ast.keyword) else []
            words += [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
            words += [node.id] if isinstance(node, ast.Name) else []
            assert all(word is None or word.strip() != "fastmath" for word in words), path


def kernels() -> dict[str, Any]:
    """Every compiled function of the package, by its name."""
    found: dict[str, Any] = {}

    def collect(value: Any) -> None:
        if isinstance(value, jit.Kernel):
            assert found.setdefault(value.name, value) is value, f"two files called {value.name}"
        elif isinstance(value, dict):
            for item in value.values():
                collect(item)
        elif isinstance(value, act.Activation):
            collect(value.kernel)

    for module in pkgutil.iter_modules([str(NUMERICS)]):
        for value in vars(importlib.import_module(f"neurosim.numerics.{module.name}")).values():
            collect(value)
    return found


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
def test_every_function_has_a_name_of_its_own_and_strict_arithmetic() -> None:
    functions = kernels()
    assert len(functions) > 60
    for name, function in functions.items():
        options = compiler.dispatcher(function).targetoptions
        assert "fastmath" not in options, name
        assert options["error_model"] == "numpy", name
        assert options["nogil"], name


def test_kernels_come_from_the_cache_in_the_next_process(tmp_path: Path) -> None:
    program = (
        "import pathlib, numpy as np; from neurosim import jit; from neurosim.numerics import alu;"
        "alu.binary('add', np.ones(4, 'f4'), 1.0); folder = pathlib.Path(alu.__file__).parent;"
        "print(int(alu._BINARY['add'].was_found), jit.cache_dir(folder))"
    )
    first = run(["-c", program], NEUROSIM_CACHE_DIR=str(tmp_path), NUMBA_DISABLE_JIT=None).stdout.split()
    second = run(["-c", program], NEUROSIM_CACHE_DIR=str(tmp_path), NUMBA_DISABLE_JIT=None).stdout.split()
    assert first[0] == "0"
    assert second[0] == "1"
    assert Path(second[1]).parent == tmp_path
    assert [path.name.split("-")[0] for path in Path(second[1]).iterdir()] == ["alu.alu_add"]


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
def test_a_process_that_compiles_nothing_imports_no_compiler(tmp_path: Path) -> None:
    program = (
        "import sys, numpy as np; from neurosim.numerics import alu; alu.binary('add', np.ones(4, 'f4'), 1.0);"
        "print('numba' in sys.modules);"
        "import numba; print(numba.njit(lambda x: np.cumsum(x)[-1])(np.ones(3)))"
    )
    outputs = [run(["-c", program], NEUROSIM_CACHE_DIR=str(tmp_path)).stdout.split() for _ in range(2)]
    assert outputs == [["True", "3.0"], ["False", "3.0"]]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds machine code of two functions, add and multiply."""
    folder = tmp_path_factory.mktemp("kept")
    run(["-c", ADD + "; alu.binary('multiply', np.ones(4, 'f4'), 1.0)"], NEUROSIM_CACHE_DIR=str(folder))
    return folder


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
@pytest.mark.parametrize("harm", ["cut", "changed", "empty", "another format", "another function", "no function"])
def test_a_file_that_was_harmed_is_made_again(kept: Path, tmp_path: Path, harm: str) -> None:
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    path, other = sorted(each for each in tmp_path.rglob("*") if each.is_file())
    good = path.read_bytes()
    middle = len(good) // 2
    harmed = {
        "cut": good[:-1],
        "changed": good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :],
        "empty": b"",
        "another format": b"{}\n" + good,
        "another function": other.read_bytes(),
        "no function": good.replace(b"_ZN", b"_ZM", 1),  # in the first line, which names it
    }
    path.write_bytes(harmed[harm])
    counted = ADD + "; print(alu._BINARY['add'].was_found)"
    found = [run(["-c", counted], NEUROSIM_CACHE_DIR=str(tmp_path)).stdout.split() for _ in range(2)]
    assert [each[-1] for each in found] == ["False", "True"]
    assert found[0][:-1] == found[1][:-1]


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_program_that_switches_numba_off_computes_all_the_same(tmp_path: Path, where: str) -> None:
    switch = "import numba; numba.config.DISABLE_JIT = 1"
    program = [switch, "from neurosim.numerics import alu", ADD, "print(numba.config.DISABLE_JIT)"]
    if where == "after":
        program[:2] = program[1::-1]
    assert run(["-c", ";".join(program)], NEUROSIM_CACHE_DIR=str(tmp_path)).stdout == "[2.0, 2.0, 2.0, 2.0]\n1\n"


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
def test_code_in_a_folder_that_can_be_read_only_is_used(kept: Path) -> None:
    program = (
        "import tempfile\ndef refuse(**named):\n    raise OSError(30, 'Read-only file system')\n"
        "tempfile.TemporaryFile = refuse\n"
    )
    result = run(["-c", program + ADD + "; print(alu._BINARY['add'].was_found)"], NEUROSIM_CACHE_DIR=str(kept))
    assert (result.stdout.split()[-1], result.stderr) == ("True", "")


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
def test_a_cache_that_is_cleared_while_a_process_runs_begins_anew(kept: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    shutil.copytree(kept, folder)
    program = ADD + (
        f"; import shutil; shutil.rmtree({str(folder)!r}); print(alu._BINARY['multiply'].is_on_disk());"
        "print(alu.binary('multiply', np.ones(4, 'f4'), 3.0).tolist(), alu._BINARY['multiply'].is_on_disk())"
    )
    result = run(["-c", program], NEUROSIM_CACHE_DIR=str(folder)).stdout
    assert result.splitlines() == ["[2.0, 2.0, 2.0, 2.0]", "False", "[3.0, 3.0, 3.0, 3.0] True"]


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
def test_ctrl_c_waits_until_a_function_is_compiled_and_the_second_does_not(tmp_path: Path) -> None:
    program = (
        "import os, signal, numpy as np; from neurosim.numerics import alu; from neurosim.compiling import compiler\n"
        "real, function, times = compiler.machine_code, alu._BINARY['add'], 2\n"
        "def interrupted(*given):\n"
        "    for _ in range(times):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(*given)\n"
        "compiler.machine_code = interrupted\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background has not\n"
        "for times in (2, 1, 0):\n"
        "    try:\n"
        "        print(alu.binary('add', np.ones(4, 'f4'), 1.0).tolist())\n"
        "    except KeyboardInterrupt:\n"
        "        print('interrupted', function.is_loaded)\n"
        "print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
    )
    result = run(["-c", program], NEUROSIM_CACHE_DIR=str(tmp_path)).stdout
    assert result.splitlines() == ["interrupted False", "interrupted True", "[2.0, 2.0, 2.0, 2.0]", "True"]


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
def test_what_a_program_sets_in_numba_is_not_kept(tmp_path: Path) -> None:
    run(["-c", "import numba; numba.config.SLP_VECTORIZE = 1;" + ADD], NEUROSIM_CACHE_DIR=str(tmp_path))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.skipif(jit.INTERPRETED or not hasattr(os, "fork"), reason="nothing is compiled, or no fork")
def test_a_child_that_was_forked_while_a_thread_compiled_compiles_its_own(tmp_path: Path) -> None:
    program = (
        "import os, threading, numpy as np\n"
        "from neurosim.numerics import alu; from neurosim.compiling import compiler\n"
        "real, begun = compiler.machine_code, threading.Event()\n"
        "def noted(*given):\n"
        "    begun.set()\n"
        "    return real(*given)\n"
        "compiler.machine_code = noted\n"
        "def compute(name):\n"
        "    return alu.binary(name, np.ones(4, 'f4'), 1.0).tolist()\n"
        "thread = threading.Thread(target=compute, args=('add',)); thread.start(); begun.wait()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    import signal; signal.alarm(60)\n"
        "    os._exit(0 if compute('subtract') == [0.0] * 4 and compute('add') == [2.0] * 4 else 3)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), compute('multiply')); thread.join()\n"
    )
    assert run(["-c", program], NEUROSIM_CACHE_DIR=str(tmp_path)).stdout == "0 [1.0, 1.0, 1.0, 1.0]\n"


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
def test_code_that_needs_numba_at_run_time_is_refused() -> None:
    @jit.compiled
    def kernel(values: Any, rows: int) -> float:
        return float(values.reshape(rows, -1)[0, 0])

    with pytest.raises(NotImplementedError, match="numba_attempt_nocopy_reshape"):
        kernel(np.ones((4, 6), np.float32), 3)


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
def test_a_call_that_keeps_not_to_the_signature_is_refused() -> None:
    @jit.compiled
    def kernel(values: Any, pair: Any, factor: np.float32) -> float:
        for i in range(values.shape[0]):
            values[i, 0] = values[i, 0] * factor + pair[0][i]
        return float(values[0, 0])

    values, column, factor = np.ones((3, 2), np.float32), np.ones(3, np.float32), np.float32(2)
    assert kernel(values, (column, 1), factor) == 3.0
    assert values[:, 0].tolist() == [3.0, 3.0, 3.0]
    read_only = values.copy()
    read_only.flags.writeable = False
    unaligned = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(3, 2)
    others = [
        values.astype(np.float64), values.view(np.int32), values[0], values[None], np.ones((3, 4), np.float32)[:, ::2],
        np.asfortranarray(values), values.astype(">f4"), read_only, unaligned, values.tolist(), 1.0, None,
    ]  # fmt: skip
    before = values.copy()
    for other in others:
        with pytest.raises(TypeError, match=r"compiled .*kernel"):
            kernel(other, (column, 1), factor)
    for arguments in [
        (),
        (values,),
        (values, (column, 1), factor, 1),
        (values, column, factor),
        (values, (column,), factor),
        (values, (column[::2], 1), factor),
    ]:
        with pytest.raises(TypeError, match=r"compiled .*kernel"):
            kernel(*arguments)
    for second, third in [(1.0, factor), (np.float32(1), factor), ("one", factor), (1, "two"), (1, None)]:
        with pytest.raises((TypeError, ValueError)):
            kernel(values, (column, second), third)
    with pytest.raises(OverflowError):
        kernel(values, (column, 2**63), factor)
    assert np.array_equal(values, before)
    assert kernel(values, (np.zeros(3, np.float32), np.int64(1)), np.float32(1)) == 3.0
    assert kernel(values, (column, 1), factor) == 7.0


ADD = (
    "import numpy as np; from neurosim import jit; from neurosim.numerics import alu;"
    "print(alu.binary('add', np.ones(4, 'f4'), 1.0).tolist())"
)


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
def test_only_who_finds_nothing_compiled_says_that_it_compiles(tmp_path: Path) -> None:
    first, second = (run(["-c", ADD], NEUROSIM_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert first.stdout == second.stdout == "[2.0, 2.0, 2.0, 2.0]\n"
    assert first.stderr == (
        "neurosim: compiling arithmetic for this processor, up to 10 seconds now, and a few for each new mix of "
        "instruction and dtype later; kept on disk\n"
    )
    assert second.stderr == ""


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
def test_processes_that_compile_at_once_share_the_cache(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "NEUROSIM_CACHE_DIR": str(tmp_path)}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", ADD], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    assert [process.communicate()[0] for process in started] == 3 * ["[2.0, 2.0, 2.0, 2.0]\n"]
    counted = ADD + "; print(int(alu._BINARY['add'].was_found))"
    assert run(["-c", counted], NEUROSIM_CACHE_DIR=str(tmp_path)).stdout.split()[-1] == "1"


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
def test_the_same_sources_elsewhere_have_the_same_machine_code(tmp_path: Path) -> None:
    """A second checkout, or one that was moved, compiles nothing again, however old its files are."""
    hits = []
    for place in ("here", "there"):
        package = tmp_path / place / "package"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        source = package / "kernels.py"
        source.write_text("from neurosim.jit import compiled\n\n\n@compiled\ndef double(x):\n    return 2 * x\n")
        os.utime(source, (len(hits), len(hits)))
        program = (
            f"import sys; sys.path.insert(0, {str(package.parent)!r});"
            "from package.kernels import double; print(double(21), int(double.was_found))"
        )
        hits.append(run(["-c", program], NEUROSIM_CACHE_DIR=str(tmp_path / "cache")).stdout.split())
    assert hits == [["42", "0"], ["42", "1"]]


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
def test_a_callee_that_changed_in_another_file_is_seen(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "caller.py").write_text(
        "from neurosim.jit import compiled\nfrom package.callee import step\n\n\n"
        "@compiled\ndef kernel(x: int) -> int:\n    return step(x)\n"
    )
    seen = []
    for change in (1, 2, 1):
        (package / "callee.py").write_text(
            f"from neurosim.jit import inlined\n\n\n@inlined\ndef step(x: int) -> int:\n    return x + {change}\n"
        )
        program = (
            f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.dont_write_bytecode = True;"
            "from package.caller import kernel; print(kernel(10), int(kernel.was_found))"
        )
        seen.append(run(["-c", program], NEUROSIM_CACHE_DIR=str(tmp_path / "cache")).stdout.split())
    assert seen == [["11", "0"], ["12", "0"], ["11", "1"]]


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"NEUROSIM_CACHE_DIR": "{}/own"}, "own"),
        ({"NEUROSIM_CACHE_DIR": None, "XDG_CACHE_HOME": "{}/xdg"}, "xdg/neurosim"),
        ({"NEUROSIM_CACHE_DIR": None, "XDG_CACHE_HOME": None, "HOME": "{}/home"}, "home/.cache/neurosim"),
    ],
)
def test_where_the_cache_is(tmp_path: Path, environment: dict[str, str | None], folder: str) -> None:
    program = "import pathlib; from neurosim import jit; print(jit.cache_dir(pathlib.Path(jit.__file__).parent))"
    filled = {name: value and value.format(tmp_path) for name, value in environment.items()}
    found = Path(run(["-c", program], **filled).stdout.strip())
    assert found.parent == tmp_path / folder
    assert found.is_dir()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NUMBA_OPT", "0"),
        ("NUMBA_OPT", "max"),
        ("NUMBA_LOOP_VECTORIZE", "0"),
        ("NUMBA_SLP_VECTORIZE", "1"),
        ("NUMBA_LLVM_REFPRUNE_PASS", "0"),
        ("NUMBA_LLVM_REFPRUNE_FLAGS", "per_bb"),
        ("NUMBA_DISABLE_INTEL_SVML", "1"),
        ("NUMBA_ENABLE_AVX", "0"),
        ("NUMBA_BOUNDSCHECK", "1"),
        ("NUMBA_DEBUGINFO", "1"),
        ("NUMBA_EXTEND_VARIABLE_LIFETIMES", "1"),
        ("NUMBA_CPU_NAME", "generic"),
        ("NUMBA_CPU_FEATURES", "+sse2"),
    ],
)
def test_code_made_with_other_settings_lies_elsewhere(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.delenv(name, raising=False)
    usual = jit._cache_key(NUMERICS)
    monkeypatch.setenv(name, value)
    assert jit._cache_key(NUMERICS) != usual


def test_code_made_with_a_file_of_settings_lies_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usual = jit._cache_key(NUMERICS)
    monkeypatch.chdir(tmp_path)
    assert jit._cache_key(NUMERICS) == usual
    (tmp_path / ".numba_config.yaml").write_text("opt: 0\n")
    assert jit._cache_key(NUMERICS) != usual


def test_how_many_threads_changes_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = jit._cache_key(NUMERICS)
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    assert jit._cache_key(NUMERICS) == usual


def test_a_setting_that_numba_refuses_is_named(tmp_path: Path) -> None:
    """It was called a mistake of neurosim's; numba is imported only where no code is on disk."""
    program = (
        "import numpy as np; from neurosim.errors import ConfigurationError; from neurosim.numerics import alu\n"
        "try: alu.binary('add', np.ones(3, 'f4'), 1.0)\n"
        "except ConfigurationError as error: print(error.what, error.numbers, sep='\\n')"
    )
    what, numbers = run(["-c", program], NEUROSIM_CACHE_DIR=str(tmp_path), NUMBA_NUM_THREADS="0").stdout.splitlines()
    assert what.startswith("numba, which makes machine code of neurosim's arithmetic, cannot be imported: ValueError: ")
    assert "'NUMBA_NUM_THREADS=0'" in numbers


def test_no_place_for_a_cache_is_one_log_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    program = (
        "import logging; logging.basicConfig(level=logging.INFO); import numpy as np;"
        "from neurosim.numerics import alu; print(alu.binary('add', np.ones(3, 'f4'), 1.0).tolist())"
    )
    before = set(NUMERICS.rglob("*"))
    result = run(["-c", program], NEUROSIM_CACHE_DIR=str(blocked))
    assert result.stdout.strip() == "[2.0, 2.0, 2.0]"
    assert result.stderr.count("not kept on disk") == 1
    assert {path for path in NUMERICS.rglob("*") if path.suffix != ".pyc"} <= before


def test_a_users_numba_cache_stays_where_it_was(tmp_path: Path) -> None:
    program = (
        "import numba; before = numba.config.CACHE_DIR; from neurosim.numerics import alu, matmul;"
        "assert numba.config.CACHE_DIR == before; print(before)"
    )
    result = run(["-c", program], NUMBA_CACHE_DIR=str(tmp_path), NEUROSIM_CACHE_DIR=None)
    assert result.stdout.strip() == str(tmp_path)


def test_the_key_follows_our_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "kernels.py").write_text("before")
    key = jit._cache_key(tmp_path / "package")
    assert key == jit._cache_key(tmp_path / "package") != jit._cache_key(tmp_path)
    (tmp_path / "package" / "kernels.py").write_text("after")
    changed = jit._cache_key(tmp_path / "package")
    assert changed != key
    (tmp_path / "jit.py").write_text("changed")
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "jit.py"))
    assert jit._cache_key(tmp_path / "package") not in (key, changed)


def test_serial_code_counts_no_references() -> None:
    """What compiled code writes is there, and nobody's count of references has changed."""
    tables = Halves(np.zeros(3), np.zeros(4, dtype=np.int32))
    before = [sys.getrefcount(each) for each in tables]
    fill(tables)
    assert (tables.first.tolist(), tables.second.tolist()) == ([1.5, 1.5, 2.5], [7] * 4)
    assert [sys.getrefcount(each) for each in tables] == before


@pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
def test_a_serial_function_that_allocates_is_refused() -> None:
    with pytest.raises(numba.core.errors.TypingError, match="zeros"):
        jit.compiled(allocating)(3)


def test_a_compiled_function_is_copied_and_pickled_by_its_name() -> None:
    kernel: Any = scan._scan
    assert copy.copy(kernel) is copy.deepcopy(kernel) is pickle.loads(pickle.dumps(kernel)) is kernel


class Halves(NamedTuple):
    """Arrays of different types."""

    first: Any
    second: Any


@jit.compiled
def fill(tables: Any) -> None:
    tables.first[:] = 1.5
    tables.second[:] = 7
    add_to_last(tables)


@jit.inlined
def add_to_last(tables: Any) -> None:
    part = tables.first[2:]
    part[0] += 1.0


def allocating(count: int) -> int:
    return len(np.zeros(count))
