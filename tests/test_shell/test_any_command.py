"""Any words on the command line: a command does what they say or refuses them in words, and never breaks."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurosim.shell.loading import load_module

command = load_module(Path(__file__).with_name("commands.py")).command
KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def k(x, factor=2.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""

texts = st.text(st.characters(exclude_characters="\0/", exclude_categories=()), max_size=12)  # no argument holds \0
long_texts = st.sampled_from(["9" * 5000, "x" * 300, "1x" * 70 + "1"])
numbers = st.one_of(st.integers(-3, 200), st.just(10**20), st.floats()).map(str)
extents = st.one_of(st.integers(0, 130), st.integers(10**13, 10**30))  # no input that fits and takes a while
dtypes = st.one_of(texts, st.sampled_from(["float32", "bfloat16", "int8", "bool", "float8_e4m3", "float4_e2m1fn_x4"]))
shapes = st.lists(extents, min_size=1, max_size=4).map(lambda shape: "x".join(map(str, shape)))
arrays = st.builds(
    lambda shape, dtype, elements: f"{shape}:{dtype}" + "=" * bool(elements) + ",".join(elements),
    *(shapes, dtypes, st.one_of(st.just([]), st.lists(st.one_of(numbers, texts), max_size=3))),
)
values = st.one_of(
    st.just("64x32:float32"), arrays, arrays, numbers, texts, long_texts, texts.map(lambda text: f"@{text}")
)
arguments = st.one_of(
    values, st.builds(lambda name, value: f"{name}={value}", st.one_of(texts, st.sampled_from(["x", "factor"])), values)
)
figures = ("dma_bandwidth", "vector_clock", "dma.queue_depth", "tensor.clock_ghz", "throttle", "schedule", "without")
changes = st.builds(
    lambda name, value: f"{name}={value}",
    *(st.one_of(st.sampled_from(figures), texts), st.one_of(numbers, texts, st.just("k.py:9"))),
)
OPTIONS = {
    "--chip": st.one_of(st.sampled_from(["trn1", "trn2", "trn3", "k.py", "."]), texts, long_texts),
    "--seed": numbers,
    "--cores": numbers,
    "--nki-version": st.one_of(st.sampled_from(["0.1", "0.3", "0.6", "0.7"]), numbers, texts),
    "--schedule": st.one_of(st.sampled_from(["program", "reorder"]), texts),
    "--launch-overhead": st.one_of(st.sampled_from(["none", "profile"]), texts),
    "--what-if": st.lists(changes, min_size=1, max_size=2).map(",".join),
    "--first-us": numbers,
    "--last-us": numbers,
    "--engine": st.one_of(st.sampled_from(["tensor", "dma", "dma99"]), texts),
    "--line": st.one_of(st.sampled_from(["k.py", "k.py:9"]), texts, st.builds(lambda line: f"k.py:{line}", numbers)),
}
options = st.sampled_from(sorted(OPTIONS)).flatmap(lambda name: OPTIONS[name].map(lambda value: (name, value)))
flags = st.sampled_from([(), ("--no-values",), ("--no-throttle",), ("--advice",)])
calls = st.sampled_from([True] * 4 + [False]).flatmap(  # mostly a right one, so that what comes after is reached
    lambda is_right: st.just(["64x32:float32"]) if is_right else st.lists(arguments, max_size=2)
)
grids = st.builds(
    lambda name, entries: f"{name}={','.join(entries)}",
    st.one_of(texts, st.sampled_from(["factor", "chip", "schedule", "throttle", "dma.queue_depth"])),
    st.lists(st.one_of(numbers, texts, st.sampled_from(["trn1", "on"])), min_size=1, max_size=2),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("commands")
    (made / "k.py").write_text(KERNEL, encoding="utf-8")
    done = command("profile", "k.py:k", "64x32:float32", "--save", "p.nsim", "--json", "s.json", folder=made)
    assert done.returncode == 0
    return made


def check(folder: Path, *words: str) -> None:
    """Run a command: its code, its message, and nothing half written."""
    before = set(folder.iterdir())
    done = command(*words, folder=folder)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 2)  # 2: no such option, or no number
    if done.returncode == 1 and "points" not in done.stderr:  # of a sweep: each failed, and the table says why
        kind, _, message = done.stderr.partition(": ")
        assert kind.isidentifier()
        assert len(message.splitlines()) > 1, "it does not say what to do"
    left = {path.name for path in set(folder.iterdir()) - before} - {"k.sweep.jsonl"}
    assert left <= {"t.json", "__pycache__"} if done.returncode == 0 else left <= {"__pycache__"}
    with contextlib.suppress(FileNotFoundError):
        (folder / "t.json").unlink()


@settings(max_examples=40)
@given(words=calls, given=st.lists(options, max_size=2), flag=flags)
def test_any_profile(folder: Path, words: list[str], given: list[tuple[str, str]], flag: tuple[str, ...]) -> None:
    words = [*words, *(word for option in given for word in option), *flag]
    check(folder, "profile", "k.py:k", *words, "--perfetto", "t.json")


@settings(max_examples=25)
@given(
    file=st.one_of(*[st.just("p.nsim")] * 4, st.sampled_from(["s.json", "k.py", "."]), texts, long_texts),
    given=st.lists(options, max_size=2),
)
def test_any_time(folder: Path, file: str, given: list[tuple[str, str]]) -> None:
    check(folder, "time", file, *(word for option in given for word in option), "--perfetto", "t.json")


@settings(max_examples=25)
@given(
    command=st.sampled_from(["chips", "isa", "check", "diff", "precision", "profile", "schema"]),
    words=st.lists(
        st.one_of(texts, long_texts, st.sampled_from(["p.nsim", "s.json", "k.py", "k.py:k", "trn2"])), max_size=2
    ),
)
def test_any_words(folder: Path, command: str, words: list[str]) -> None:
    check(folder, command, *words)


@settings(max_examples=25)
@given(grid=st.lists(grids, min_size=1, max_size=2), words=calls)
def test_any_sweep(folder: Path, grid: list[str], words: list[str]) -> None:
    check(folder, "sweep", "k.py:k", *words, *(word for entry in grid for word in ("--grid", entry)), "--jobs", "1")
