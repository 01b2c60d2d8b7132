"""What people get wrong on the command line, over all commands: a sentence each, no traceback, nothing half written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from neurosim.shell.loading import load_module

KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def double(x, factor=2.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
ARRAY = "64x32:float32"
Command = Callable[..., tuple[int, str, str]]
command = load_module(Path(__file__).with_name("commands.py")).command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel, and one of each file that neurosim writes of it."""
    made = tmp_path_factory.mktemp("commands")
    (made / "k.py").write_text(KERNEL, encoding="utf-8")
    files = ("--json", "s.json", "--save", "p.nsim", "--perfetto", "t.json", "--csv", "c.csv", "--html", "h.html")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        assert command("profile", "k.py:double", ARRAY, *files)[0] == 0
    summary = json.loads((made / "s.json").read_text(encoding="utf-8"))
    (made / "old.json").write_text(json.dumps(summary | {"schema": "neurosim.summary/0"}), encoding="utf-8")
    return made


def test_a_folder_whose_name_is_no_utf_8(tmp_path: Path) -> None:
    """File systems take any bytes, and Python stands for them with characters that no encoding has."""
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        odd.mkdir()
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    (odd / "k.py").write_text(KERNEL, encoding="utf-8")
    done = command("profile", f"{odd}/k.py:double", ARRAY, "--save", f"{odd}/p.nsim", folder=odd)
    assert done.returncode == 0, done.stderr
    assert command("time", f"{odd}/p.nsim", folder=odd).stdout == done.stdout
    files = {option: tmp_path / option.strip("-") for option in ("--csv", "--json", "--perfetto")}
    words = [word for option, file in files.items() for word in (option, str(file))]
    done = command("profile", f"{odd}/k.py:double", ARRAY, *words, folder=tmp_path / "..")
    assert done.returncode == 0, done.stderr
    assert r"caf\udce9/k.py," in files["--csv"].read_text(encoding="utf-8")
    assert all(file.stat().st_size for file in files.values())


def runs(kernel: str, *arguments: str) -> list[tuple[str, ...]]:
    """Return the commands that take a kernel and its arguments."""
    return [
        ("profile", kernel, *arguments),
        ("precision", kernel, *arguments),
        ("sweep", kernel, *arguments, "--grid", "factor=1,2"),
        ("diff", kernel, "k.py:double", *arguments),
        ("diff", "p.nsim", kernel, *arguments),
    ]


CASES = [
    *((words, "there is no file missing.py") for words in runs("missing.py:double", ARRAY)),
    (("run", "missing.py"), "there is no file missing.py"),
    (("run", "long" * 100), "there is no file longlong"),
    (("profile", f"{'long' * 100}:k"), "there is no file longlong"),
    (("profile", "k.py:double", ARRAY, "--json", "long" * 100), "cannot write longlong"),
    (("chips", f"{'long' * 100}.toml"), "there is no device file longlong"),
    (("check", "missing.py"), "missing.py: No such file"),
    *((words, "k.py has no kernel triple") for words in runs("k.py:triple", ARRAY)),
    (("check", "k.py:triple"), "k.py has no kernel triple"),
    *((words, "names no kernel") for words in runs("k.py", ARRAY)),
    *((words, "names a launch") for words in runs("k.py:double[2]", ARRAY)),
    *((words, "is not a Python file") for words in runs("c.csv:double", ARRAY)),
    *((words, "write 64x32:bfloat16") for words in runs("k.py:double", "64x32")),
    *((words, "'float33' is not a dtype") for words in runs("k.py:double", "64x32:float33")),
    *((words, "none.npy cannot be read as an array") for words in runs("k.py:double", "@none.npy")),
    *(((*words, "--chip", "trn9"), "unknown chip 'trn9'") for words in runs("k.py:double", ARRAY)),
    *(((*words, "--chip", "my.toml"), "there is no device file my.toml") for words in runs("k.py:double", ARRAY)),
    (("chips", "trn9"), "unknown chip 'trn9'"),
    (("chips", "my.toml"), "there is no device file my.toml"),
    (("isa", "nothing"), "there is no instruction nothing"),
    # Programs: not there, and files of other kinds
    (("time", "missing.nsim"), "cannot read missing.nsim"),
    (("diff", "missing.nsim", "p.nsim"), "cannot read missing.nsim"),
    (("time", "s.json"), "s.json is JSON, such as a summary or a trace, and no program"),
    (("time", "t.json"), "t.json is JSON, such as a summary or a trace, and no program"),
    (("time", "c.csv"), "c.csv is no program file"),
    (("diff", "c.csv", "p.nsim"), "c.csv is no program file"),
    (("diff", "h.html", "p.nsim"), "h.html is no program file"),
    # Summaries: of another version, and what is none
    (("diff", "old.json", "p.nsim"), "old.json holds 'neurosim.summary/0', where a summary of version"),
    (("diff", "p.nsim", "t.json"), "t.json is a trace, where a summary of version"),
    (("sweep", "k.py:double", ARRAY, "--grid", "factor=1", "--store", "s.json"), "s.json does not hold the results"),
    (("sweep", "k.py:double", ARRAY, "--grid", "factor=1", "--store", "p.nsim"), "p.nsim does not hold the results"),
    (("sweep", "k.py:double", ARRAY, "--grid", "factor=1", "--store", "no/s"), "no/s: No such file or directory"),
    # Options
    (("profile", "k.py:double", ARRAY, "--schedule", "fast"), "schedule='fast' is unknown"),
    (("time", "p.nsim", "--schedule", "fast"), "schedule='fast' is unknown"),
    (("profile", "k.py:double", ARRAY, "--nki-version", "9"), "not a version of NKI"),
    (("run", "--nki-version", "9", "k.py"), "not a version of NKI"),
    (("profile", "k.py:double", ARRAY, "--perfetto", "x", "--engine", "pool"), "there is no engine 'pool'"),
    (("profile", "k.py:double", ARRAY, "--perfetto", "x", "--line", "a.py:1"), "no instruction comes from a.py:1"),
    (("profile", "k.py:double", ARRAY, "--line", "k.py:9"), "no trace is written"),
    (("time", "p.nsim", "--perfetto", "x", "--line", "k.py:2"), "no instruction comes from k.py:2"),
    (("time", "p.nsim", "--perfetto", "x", "--engine", "dma16"), "there is no engine 'dma16'"),
    *(
        (("profile", "k.py:double", ARRAY, "--what-if", change), message)
        for change, message in (
            ("without=k.py", "every instruction comes from k.py: without it, nothing would be left to time"),
            ("without=k.py:11,without=k.py:99", "no instruction comes from k.py:99"),
            ("throttle=off,throttle=on", "throttle is there twice"),
            ("hbm_bandwidth=0", "give a number above 0"),
            ("hbm_bandwidth=-1", "give a number above 0"),
            ("dma_latency=-1", "give a number of 0 or more"),
            ("earliest=2", "'2' is no record with a time"),
            ("earliest=2:1e6", "as in earliest=17:2000000"),
            ("earliest=99:0", "records are 0 to 2"),
        )
    ),
]

PARTS = [
    (("--line", "k.py:99"), "--line k.py:99: no instruction comes from there\n  k.py has 13 lines"),
    (("--line", "k.py:0"), "--line k.py:0: no instruction comes from there"),
    (("--line", "k.py:x"), "'x' is no line"),
    (("--engine", "pool"), "there is no engine 'pool'"),
    (("--first-us", "-1"), "there is no time from -1 to inf µs"),
    (("--first-us", "nan"), "there is no time from nan to inf µs"),
    (("--first-us", "5", "--last-us", "3"), "there is no time from 5 to 3 µs"),
    (("--last-us", "inf"), "leave --last-us out"),
]


@pytest.mark.parametrize(("words", "message"), PARTS, ids=[" ".join(words) for words, _ in PARTS])
def test_parts_of_a_trace_are_refused_before_anything_runs(
    words: tuple[str, ...], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("neurosim.profile", None)  # calling it would raise
    code, out, err = command("profile", "k.py:double", ARRAY, "--perfetto", "x.json", *words)
    assert (code, out) == (1, "")
    assert message in err


def test_several_lines_can_be_left_out_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    what_if = ("--what-if", "without=k.py:11", "--what-if", "without=k.py:11,without=k.py:12")
    code, out, _ = command("profile", "k.py:double", ARRAY, *what_if, "--json", "-")
    assert code == 0
    one, both = json.loads(out[out.index("\n{") :])["what_if"]
    assert both["text"] == "without=k.py:11 and k.py:12"
    assert both["changes"] == {"without": ["k.py:11", "k.py:12"]}
    assert both["after_ps"] < one["after_ps"]


def test_records_can_be_told_to_start_later(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    what_if = ("--what-if", "earliest=2:90000000", "--what-if", "earliest=1:50000000,earliest=2:90000000")
    code, out, _ = command("profile", "k.py:double", ARRAY, *what_if, "--json", "-")
    assert code == 0
    one, both = json.loads(out[out.index("\n{") :])["what_if"]
    assert both["changes"] == {"earliest": {"1": 50_000_000, "2": 90_000_000}}
    assert both["after_ps"] == one["after_ps"] > 90_000_000 > one["before_ps"]


@pytest.mark.parametrize(("words", "message"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_a_sentence(words: tuple[str, ...], message: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    code, _, err = command(*words)
    assert code == 1
    assert "Traceback" not in err
    error, what = err.split(": ", 1)
    assert error in ("ConfigurationError", "IllegalOperand")
    assert message in what
    assert len(what.splitlines()) > 1, "it does not say what to do"
    left = [path for path in folder.iterdir() if path not in before and path.name != "__pycache__"]
    assert [path for path in left if not path.name.endswith(".sweep.jsonl")] == []


PLACES = [
    *(("profile", "k.py:double", ARRAY, option) for option in ("--json", "--perfetto", "--html", "--csv", "--parquet")),
    ("profile", "k.py:double", ARRAY, "--save"),
    *(("time", "p.nsim", option) for option in ("--json", "--perfetto", "--html", "--csv", "--parquet")),
    *(("precision", "k.py:double", ARRAY, option) for option in ("--json", "--plot")),
    *(("sweep", "k.py:double", ARRAY, "--grid", "factor=1", option) for option in ("--json", "--csv", "--plot")),
    *(("diff", "p.nsim", "p.nsim", option) for option in ("--json", "--html")),
    ("demo", "--json"),
]


@pytest.mark.parametrize("words", PLACES, ids=[" ".join(words) for words in PLACES])
def test_a_folder_that_takes_no_files_is_named_before_anything_runs(
    words: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    for place, why in (("no/file.png", "there is no folder"), (".", "it is a folder"), ("k.py/f.png", "no folder")):
        code, out, err = command(*words, place)
        assert code == 1
        assert err.startswith(f"ConfigurationError: cannot write {place}: ")
        assert why in err
        assert out == "", "it ran first"


@pytest.mark.parametrize("name", ["precision", "sweep"])
def test_a_picture_of_no_known_kind_is_refused_before_anything_runs(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    more = ("--grid", "factor=1") if name == "sweep" else ()
    code, out, err = command(name, "k.py:double", ARRAY, *more, "--plot", "x.gif")
    assert (code, out) == (1, "")
    assert "x.gif: a plot is a .png, .svg or .pdf file" in err


@pytest.mark.parametrize(
    "words", [("profile",), ("sweep", "--grid", "factor=1"), ("diff", "k.py:double"), ("precision",)]
)
@pytest.mark.parametrize("argument", ["-1x3:float32", "-8:float32", "2x-3:float32"])
def test_a_negative_extent_is_no_option(
    words: tuple[str, ...], argument: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    code, out, err = command(*words, "k.py:double", argument)
    assert (code, out) == (1, "")
    assert err.startswith(f"ConfigurationError: argument '{argument}' is not understood\n  forms: 128x512:bfloat16")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("syntax.py", "def f(:\n", "invalid syntax (syntax.py, line 1)"),
        ("zero.py", "x = 1\0\n", "source code string cannot contain null bytes"),
        ("digits.py", f"x = {'9' * 5000}\n", "Exceeds the limit (4300 digits)"),
        ("coding.py", "# -*- coding: nothing -*-\n", "nothing (coding.py"),
    ],
)
def test_a_file_that_is_no_python(name: str, text: str, words: str, folder: Path) -> None:
    (folder / name).write_text(text)
    done = command("profile", f"{name}:f", ARRAY, folder=folder)
    assert done[0] == 1
    assert f"{name} is not Python" in done[2]
    assert words in done[2]
    assert "Traceback" not in done[2]


def test_texts_that_are_too_long(folder: Path) -> None:
    long = "9" * 5000
    (folder / "digits.toml").write_text(f'base = "trn2"\n[dma.queue_depth]\nvalue = {long}\n')
    for words, message in (
        (("profile", "k.py:double", f"{long}:float32"), "has an extent of 5000 digits"),
        (("profile", f"{long}.py:double", ARRAY), "there is no file"),
        (("profile", "k.py:double", ARRAY, "--json", long), "cannot write"),
        (("chips", "digits.toml"), "digits.toml is no TOML"),
    ):
        done = command(*words, folder=folder)
        assert done[0] == 1
        assert message in done[2].replace("\n", " ")


@pytest.mark.parametrize("change", ["dma_bandwidth=1e-300", f"dma.queue_depth={10**30}", f"dma.queue_depth={10**400}"])
def test_figures_beyond_what_times_hold(change: str, folder: Path) -> None:
    done = command("profile", "k.py:double", ARRAY, "--what-if", change, folder=folder)
    assert done[0] == 1
    assert "makes no sense" in done[2]
    assert "from 1e-08 to 1e+15" in done[2]
