"""Runs that end badly leave nothing behind: not in memory, not on disk, not for whoever runs next."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import neurosim
from neurosim import writing
from neurosim.chip import load
from neurosim.errors import ConfigurationError, KernelError, NeurosimError
from neurosim.result import Result
from neurosim.sweeps.journal import FORMAT, Journal

ROOT = Path(__file__).resolve().parents[1]
X = np.arange(128 * 16, dtype=np.float32).reshape(128, 16)


def good(x: Any) -> Any:
    """Use what an interrupted run could have left: a tile, PSUM, registers of an engine, a block, a loop."""
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    tile, product = nl.load(x), nl.ndarray((16, 16), nl.float32, nl.psum)
    nisa.nc_matmul(product, tile, tile)
    with nl.no_reorder():
        for column in nl.affine_range(16):
            nisa.activation(dst=tile[:, column : column + 1], op=nl.square, data=tile[:, column : column + 1])
    nl.store(out, tile)
    return out


def state(chip: str = "trn2") -> tuple[str, bytes, int]:
    result = neurosim.profile(good, chip, replay=False)(X)
    return result.program.listing(), result.outputs.tobytes(), result.timeline.makespan_ps


# -- exceptions -------------------------------------------------------------------------------------------------------


class Stop(Exception):
    """What a kernel's own code raises."""


def in_a_body(x: Any, error: BaseException) -> None:
    def body(i: Any) -> None:
        nl.load(x)
        raise error

    nl.fori_loop(0, 3, body)


def in_a_while(x: Any, error: BaseException) -> None:
    register = nisa.register_alloc(3)
    while register:
        raise error


def in_a_block(x: Any, error: BaseException) -> None:
    with nl.no_reorder():
        nl.load(x)
        raise error


def in_a_range(x: Any, error: BaseException) -> None:
    for _ in nl.affine_range(3):
        nl.load(x)
        raise error


def within_another_kernel(x: Any, error: BaseException) -> None:
    def inner(y: Any) -> None:
        nl.load(y)
        raise error

    tile = nl.load(x)
    neurosim.simulate(inner)(X)
    nl.store(x, tile)


def half_a_sum(x: Any, error: BaseException) -> None:
    tile, total = nl.load(x), nl.ndarray((128, 1), nl.float32)
    nisa.activation_reduce(dst=tile, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total)
    nisa.activation(
        dst=tile, op=nl.exp, data=tile, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_res=None
    )
    raise error


def on_one_core(x: Any, error: BaseException) -> None:
    nl.load(x)
    if nl.program_id(0):
        raise error
    nisa.core_barrier(x, (0, 1))


PLACES = {kernel.__name__: kernel for kernel in (
    in_a_body, in_a_while, in_a_block, in_a_range, within_another_kernel, half_a_sum, on_one_core
)}  # fmt: skip


@pytest.mark.filterwarnings("ignore:while with a register:DeprecationWarning")
@pytest.mark.parametrize(
    "error", [Stop("mine"), KernelError("ours", advice="none"), KeyboardInterrupt(), SystemExit(3)]
)
@pytest.mark.parametrize("place", PLACES)
def test_the_next_kernel_is_clean(place: str, error: BaseException) -> None:
    before, running = state(), set(threading.enumerate())
    kernel = nki.jit(PLACES[place])
    with pytest.raises(type(error)) as caught:
        neurosim.simulate(kernel[2] if place == "on_one_core" else kernel)(X.copy(), error)
    assert caught.value is error
    with pytest.raises(KernelError, match="outside of a kernel"):
        nl.ndarray((4, 4), nl.float32)
    assert state() == before
    assert set(threading.enumerate()) <= running


def test_a_kernel_goes_on_after_one_within_it_has_failed() -> None:
    def inner(y: Any) -> None:
        nl.store(y, nl.load(y))
        raise Stop

    def outer(x: Any) -> Any:
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        tile = nl.load(x)
        with pytest.raises(Stop):
            neurosim.simulate(inner)(X.copy())
        nl.store(out, tile)
        return out

    result = neurosim.simulate(outer)(X)
    np.testing.assert_array_equal(result.outputs, X)
    assert len(result.program) == 2


def test_failing_and_sound_kernels_in_threads() -> None:
    """Some fail while others run: each result is that of the kernel alone."""
    expected, barrier = state(), threading.Barrier(6)
    found: dict[int, Any] = {}

    def failing(x: Any) -> None:
        nl.load(x)
        barrier.wait(300)
        raise Stop

    def work(number: int) -> None:
        if number % 2:
            try:
                neurosim.simulate(failing)(X)
            except Stop as error:
                found[number] = type(error)
        else:
            barrier.wait(300)
            found[number] = state()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert found == {number: Stop if number % 2 else expected for number in range(6)}


# -- files ------------------------------------------------------------------------------------------------------------


class _Interrupted:
    """A file whose user presses Ctrl-C at the n-th write."""

    def __init__(self, file: IO[bytes], writes: int) -> None:
        self._file, self._left = file, writes

    def write(self, content: Any) -> int:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return self._file.write(content)

    def __enter__(self) -> _Interrupted:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


WRITERS: dict[str, Callable[[Result, Path], object]] = {
    "trace.json": lambda result, path: result.perfetto(path),
    "trace.json.gz": lambda result, path: result.perfetto(path),
    "page.html": lambda result, path: result.html(path),
    "operations.csv": lambda result, path: result.csv(path),
    "operations.csv.gz": lambda result, path: result.csv(path),
    "operations.parquet": lambda result, path: result.parquet(path),
    "program": lambda result, path: result.program.save(path),
    "summary.json": lambda result, path: writing.write_json(path, result.summary()),
    "diff.html": lambda result, path: neurosim.diff(result, result).html(path),
    "plot.png": lambda result, path: result.plot_engines(path),
    "plot.svg": lambda result, path: result.plot_engines(path),
}


@pytest.fixture(scope="module")
def result() -> Result:
    return neurosim.profile(good)(X)


@pytest.mark.parametrize("writes", [0, 1])
@pytest.mark.parametrize("name", WRITERS)
def test_an_interrupt_while_writing_leaves_the_old_file(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, writes: int
) -> None:
    old = tmp_path / name
    old.write_bytes(b"old")
    real, opened = open, []

    def interrupted(*given: Any) -> _Interrupted:
        opened.append(given)
        return _Interrupted(real(*given), writes)

    monkeypatch.setattr(writing, "open", interrupted, raising=False)
    try:
        WRITERS[name](result, old)
        assert writes  # a writer that writes all at once
    except KeyboardInterrupt:
        assert old.read_bytes() == b"old"
    assert opened, "nothing was written through replacing()"
    assert [file.name for file in tmp_path.iterdir()] == [name]


ALLOWED = {
    "neurosim/writing.py",  # beside the file, and then in its place
    "neurosim/record/program_file.py",  # members of an archive that is written so
    "neurosim/sweeps/journal.py",  # a line at a time, and half a line is passed over
    "neurosim/manual/__main__.py",  # pages that git keeps
}
MODE = re.compile("r?b?[wxa][bt+]*|r[bt]?[+]")


def _writes(node: ast.AST) -> bool:
    """Return whether this is a call that opens a file to write it, or writes one at once."""
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    given = (*node.args, *(keyword.value for keyword in node.keywords))
    words = [part.value for value in given for part in ast.walk(value) if isinstance(part, ast.Constant)]
    modes = [word for word in words if isinstance(word, str) and MODE.fullmatch(word)]
    return name in ("write_text", "write_bytes", "savetxt") or (name == "open" and bool(modes))


def test_every_file_is_written_whole() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "neurosim").rglob("*.py")
        if any(map(_writes, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert found == ALLOWED


# -- what others wrote ------------------------------------------------------------------------------------------------

FUZZ = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
CUTS = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 60), st.text(max_size=8)), min_size=1, max_size=3
)  # where, how many characters go away, what comes instead


def changed(text: str, cuts: list[tuple[float, int, str]]) -> str:
    for place, length, more in cuts:
        begin = int(place * len(text))
        text = text[:begin] + more + text[begin + length :]
    return text


def device_text() -> str:
    return (ROOT / "isa" / "devices" / "trn2.toml").read_text(encoding="utf-8")


@FUZZ
@given(cuts=CUTS)
def test_any_device_file_is_a_chip_or_refused_in_words(tmp_path: Path, cuts: list[tuple[float, int, str]]) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(changed(device_text(), cuts).encode(errors="replace"))
    refused = None
    try:
        chip = load(path, ROOT / "isa" / "devices")
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
        assert chip.name == tree["chip"]["name"]["value"]
    except ConfigurationError as error:
        refused = error
    assert refused is None or ("mine.toml" in refused.what and refused.advice)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(), st.text(max_size=4), st.builds(list), st.builds(dict)
)


@FUZZ
@given(section=st.integers(0, 99), field=st.integers(0, 99), attribute=st.integers(0, 3), value=VALUES)
def test_any_value_of_a_device_file(tmp_path: Path, section: int, field: int, attribute: int, value: Any) -> None:
    tree = tomllib.loads(device_text())
    sections = [entries for entries in tree.values() if isinstance(entries, dict)]
    entries = sections[section % len(sections)]
    name = list(entries)[field % len(entries)]
    entry = {**entries[name], list(entries[name])[attribute % len(entries[name])]: value}
    entries[name] = entry
    path = tmp_path / "mine.toml"
    path.write_text(toml(tree), encoding="utf-8")
    refused = None
    try:
        load(path, ROOT / "isa" / "devices")
    except ConfigurationError as error:
        refused = error
    assert refused is None or refused.advice
    if value is None or value == "" or isinstance(value, dict):
        assert refused is not None


def toml(tree: dict[str, Any]) -> str:
    """Write a tree of a device file as TOML; what TOML does not know is left out."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in tree.items() if not isinstance(value, dict)]
    for section, entries in tree.items():
        if isinstance(entries, dict):
            lines.append(f"[{section}]")
            for name, entry in entries.items():
                inner = [
                    f"{key} = {json.dumps(value) if not isinstance(value, dict) else '{}'}"
                    for key, value in entry.items()
                    if value is not None
                ]
                lines.append(f"{name} = {{ {', '.join(inner)} }}".replace("NaN", "nan").replace("Infinity", "inf"))
    return "\n".join(lines) + "\n"


@FUZZ
@given(cuts=CUTS)
def test_any_summary_is_compared_or_refused_in_words(
    result: Result, tmp_path: Path, cuts: list[tuple[float, int, str]]
) -> None:
    path = tmp_path / "summary.json"
    path.write_bytes(changed(json.dumps(result.summary()), cuts).encode(errors="replace"))
    refused = None
    try:
        found = neurosim.diff(result, path)
        assert found.text()
    except NeurosimError as error:
        refused = error
    assert refused is None or ("summary.json" in refused.what and refused.advice)


@FUZZ
@given(lines=st.lists(st.one_of(st.binary(max_size=30), st.sampled_from([b'{"key": "a"}', b'{"key": 5}'])), max_size=6))
def test_any_journal_is_read_as_far_as_it_goes(tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"\n".join([json.dumps({"format": FORMAT}).encode(), *lines]))
    with Journal(path) as journal:
        assert b'{"key": "a"}' not in lines or "a" in journal.entries
        journal.add("b", {"n": 2})
    with Journal(path) as journal:
        assert journal.entries["b"] == {"n": 2}


# -- processes --------------------------------------------------------------------------------------------------------


def python(program: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=variables, capture_output=True, text=True, timeout=300
    )


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    """No folder for caches, for settings or for compiled code: the run works, and leaves nothing."""
    blocked = tmp_path / "file"
    blocked.write_text("no folder", encoding="utf-8")
    program = (
        "import numpy as np, neurosim, nki.language as nl\n"
        "def kernel(x):\n"
        "    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)\n"
        "    nl.store(out, nl.load(x))\n"
        "    return out\n"
        "print(neurosim.profile(kernel)(np.ones((4, 4), np.float32)).outputs.sum())\n"
    )
    places = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "NEUROSIM_CACHE_DIR", "NUMBA_CACHE_DIR", "MPLCONFIGDIR")
    done = python(program, tmp_path, **dict.fromkeys(places, str(blocked)), NUMBA_DISABLE_JIT="1")
    assert (done.returncode, done.stdout.strip()) == (0, "16.0"), done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a folder in use stays")
def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    neurosim.profile(good)(X)  # compiles what it needs, for which numba wants a folder
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    result = neurosim.profile(good)(X)
    assert result.program.stacks[-1][-1].file == __file__
    with pytest.raises(KernelError, match=re.escape(f"{__file__}:")):
        neurosim.simulate(lambda x: nl.load(x[200:]))(X)
    with pytest.raises(ConfigurationError, match=r"cannot write trace\.json"):
        result.perfetto("trace.json")


WRITING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are born deaf to it
import neurosim, nki.isa as nisa, nki.language as nl

def kernel(x):
    tile = nl.load(x)
    for _ in range(20_000):
        nisa.activation(dst=tile, op=nl.exp, data=tile)

result = neurosim.profile(kernel, values=False)(neurosim.spec((128, 16), "float32"))
print("ready", flush=True)
while True:
    result.perfetto("trace.json")
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_while_a_trace_is_written_leaves_a_whole_one_or_none(tmp_path: Path) -> None:
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", WRITING],
        cwd=tmp_path,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while process.poll() is None and not any(file.stat().st_size for file in tmp_path.glob(".trace.json.*")):
            pass  # a draft of some size: it is being written now
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert errors.splitlines()[-1].startswith("KeyboardInterrupt")
    left = [file.name for file in tmp_path.iterdir()]
    assert left in ([], ["trace.json"])
    for name in left:
        assert len(json.loads((tmp_path / name).read_text(encoding="utf-8"))["traceEvents"]) > 20_000


MEMORY = """
import resource, sys
import numpy as np
import neurosim, nki.isa as nisa, nki.language as nl

def kernel(x):
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    tile = nl.load(out[0:128])
    nl.store(out[0:128], tile)
    return out

x = np.ones((1 << 13, 1 << 11), np.float32)  # 64 MiB
peaks = []
for run in range(100):
    found = neurosim.profile(kernel, replay=sys.argv[1] == "True")(x)
    assert found.outputs[-1, -1] == 1
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
print(peaks[9], peaks[-1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("replay", [True, False])
def test_memory_stays_flat_over_a_hundred_runs(tmp_path: Path, replay: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(MEMORY, encoding="utf-8")
    done = python(f"import sys, runpy; sys.argv[1:] = ['{replay}']; runpy.run_path({str(script)!r})", tmp_path)
    assert done.returncode == 0, done.stderr
    early_kib, late_kib = map(int, done.stdout.split())
    assert late_kib - early_kib < 64 << 10, "more than one run's output is still there"


@pytest.mark.long
def test_under_xdist_workers_share_what_is_compiled(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "test_theirs.py").write_text(
        "import numpy as np, pytest\n"
        "import neurosim, nki.language as nl\n"
        "def kernel(x):\n"
        "    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)\n"
        "    nl.store(out, nl.exp(nl.load(x)))\n"
        "    return out\n"
        "@pytest.mark.parametrize('size', range(1, 9))\n"
        "def test_it(size, record_property):\n"
        "    x = np.ones((size, 4), np.float32)\n"
        "    found = neurosim.profile(kernel)(x).outputs\n"
        "    np.testing.assert_allclose(found, np.exp(x), rtol=1e-6)\n",
        encoding="utf-8",
    )
    program = "import sys, pytest; sys.exit(pytest.main(['-n', '2', '-q', '-p', 'no:cacheprovider', 'test_theirs.py']))"
    for _ in range(2):  # from an empty cache, and from a full one
        done = python(program, tmp_path, NEUROSIM_CACHE_DIR=str(tmp_path / "cache"))
        assert "8 passed" in done.stdout, done.stdout + done.stderr
