"""The command line: arguments, messages, exit codes, and each command on something small."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import typer

from neurosim import cli
from neurosim.errors import ConfigurationError
from neurosim.shell import demo, loading
from neurosim.shell.demo import Case
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

@nki.jit
def forgetful(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""

SCRIPT = """
import sys
import nki
import numpy as np
from double import double, forgetful

print(__name__, sys.argv[1:])
x = np.ones((4, 8), np.float32)
print(nki.simulate(double)(x).sum())
if "--fail" in sys.argv:
    nki.simulate(forgetful)(x)
"""


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", ["", *typer.main.get_command(cli.app).commands])  # type: ignore[attr-defined]
def test_help_has_room_beside_names(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text begins in the first columns, goes as far as the terminal does, and no command's line is cut."""
    monkeypatch.setenv("COLUMNS", str(width))
    done = neurosim(*name.split(), "--help")
    assert done.returncode == 0
    rows = re.split("Arguments|Options", done.stdout, maxsplit=1)[1].splitlines()  # how it was started is above
    assert max(map(len, rows)) <= width
    assert all(len(row) - len(row.lstrip(" │")) <= 34 for row in rows)
    if not name:
        assert "..." not in "".join(rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "double.py").write_text(KERNEL, encoding="utf-8")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    return tmp_path


neurosim = load_module(Path(__file__).with_name("commands.py")).command


def process(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run neurosim in a process of its own: for scripts, what Python prints at the end, and one of each command."""
    command = [sys.executable, "-m", "neurosim.cli", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def test_arguments_are_arrays_numbers_and_words() -> None:
    positional, named = loading.parse_arguments(
        ["4x8:bfloat16", "3", "0.5", "true", "n=4", "mask=none", "x=2:int32", "mode=fast"]
    )
    array, *scalars = positional
    assert array.shape == (4, 8)
    assert array.dtype == ml_dtypes.bfloat16
    assert scalars == [3, 0.5, True]
    assert named["x"].dtype == np.int32
    assert {name: named[name] for name in ("n", "mask", "mode")} == {"n": 4, "mask": None, "mode": "fast"}


def test_arrays_of_given_elements_and_of_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    np.save(tmp_path / "b.npy", np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16))
    words = ["1x1:int32=4", "x=2x2:bfloat16=1,2,-3,0.5", f"y=@{tmp_path}/x.npy", f"b=@{tmp_path}/b.npy:bfloat16"]
    for values in (True, False):  # without values, too: loops may depend on them
        (count,), named = loading.parse_arguments(words, values=values)
        assert (count.tolist(), count.dtype) == ([[4]], np.int32)
        assert named["x"].dtype == ml_dtypes.bfloat16
        assert named["x"].tolist() == [[1, 2], [-3, 0.5]]
        assert named["y"].tolist() == named["b"].tolist() == [[0, 1, 2], [3, 4, 5]]
        assert (named["y"].dtype, named["b"].dtype) == (np.float32, ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("2x2:int32=1,2", "has 2 elements\n  give 4, or one for all of them"),
        ("2:int8=1,300", "has an element that int8 does not hold"),
        ("1:uint8=-1", "has an element that uint8 does not hold"),
        ("1:int64=1", "'int64' is not a dtype"),
        ("1:int32=1.5", "has an element that is no number of int32"),
        ("1:float32=one", "has an element that is no number of float32"),
        ("1:int32=", "has an element that is no number of int32"),
        ("1:float8_e8m0fnu=1", "cannot be written as numbers"),
        ("x=@none.npy", "none.npy cannot be read as an array: No such file"),
        ("@{folder}/text.npy", "cannot be read as an array: it is no .npy file, or its elements are no numbers"),
        ("@{folder}/two.npz", "holds several arrays"),
        ("@{folder}/b.npy", "does not say what its elements of 2 bytes are"),
        ("@{folder}/b.npy:float32", "and float32 has 4 bytes"),
        ("@{folder}/b.npy:float33", "'float33' is not a dtype"),
        ("@{folder}/o.npy", "cannot be read as an array: it is no .npy file, or its elements are no numbers"),
    ],
)
def test_arrays_that_cannot_be_made(tmp_path: Path, word: str, message: str) -> None:
    (tmp_path / "text.npy").write_text("hello", encoding="utf-8")
    np.savez(tmp_path / "two.npz", a=np.ones(2), b=np.ones(2))
    np.save(tmp_path / "b.npy", np.ones((2, 3), ml_dtypes.bfloat16))
    np.save(tmp_path / "o.npy", np.array([None, "x"], object), allow_pickle=True)
    with pytest.raises(ConfigurationError) as caught:
        loading.parse_arguments([word.format(folder=tmp_path)])
    assert message in str(caught.value)


def test_an_input_depends_on_its_seed_and_place_alone() -> None:
    (first, second), _ = loading.parse_arguments(["4x8:float32", "4x8:float32"], seed=1)
    (again,), _ = loading.parse_arguments(["4x8:float32"], seed=1)
    (other,), _ = loading.parse_arguments(["4x8:float32"], seed=2)
    np.testing.assert_array_equal(first, again)
    assert (first != second).any()
    assert (first != other).any()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["4x8"], "write 4x8:bfloat16"),
        (["4x8:float33"], "'float33' is not a dtype"),
        (["x=4:int8", "4x8:int8"], "after a named one"),
        (["x=1", "x=2"], "x is given twice"),
        (["hello"], "forms: 128x512:bfloat16"),
    ],
)
def test_a_bad_argument_says_what_to_write(words: list[str], message: str) -> None:
    with pytest.raises(ConfigurationError, match="argument") as caught:
        loading.parse_arguments(words)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("double.py", "write FILE:KERNEL"),
        ("nowhere.py:double", "there is no file nowhere.py"),
        ("{folder}/plain.py:triple", "it has double"),
    ],
)
def test_a_kernel_that_is_not_there(folder: Path, target: str, message: str) -> None:
    (folder / "plain.py").write_text("def double(x):\n    return x\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        loading.load_kernel(target.format(folder=folder))
    assert message in str(caught.value)


def test_profile_prints_a_report_and_writes_json(folder: Path) -> None:
    done = process("profile", "double.py:double", "64x32:float32", "factor=3", "--json", "out.json", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "double on trn2" in done.stdout
    assert "x float32[64, 32]" in done.stdout
    summary = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert summary["schema"] == "neurosim.summary/1"
    assert summary["hbm"]["read_bytes"] == summary["hbm"]["written_bytes"] == 64 * 32 * 4


def test_a_wrong_kernel_is_a_message_and_no_traceback(folder: Path) -> None:
    done = process("profile", "double.py:forgetful", "64x32:float32", folder=folder)
    assert done.returncode == 1
    assert done.stderr.startswith("Uninitialized: dma_copy")
    assert "double.py:19" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "double: missing a required argument: 'x'"),
        (["4x4:float32", "2", "3"], "double: too many positional arguments"),
    ],
)
def test_arguments_that_the_kernel_does_not_take(folder: Path, words: list[str], message: str) -> None:
    done = neurosim("profile", "double.py:double", *words, folder=folder)
    assert done.returncode == 1
    assert done.stderr == f"ConfigurationError: {message}\n  it takes (x, factor=2.0)\n"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("factr=2", "it takes (x, factor=2.0)\n  did you mean factor?\n"),
        ("n=2", "it takes (x, factor=2.0)\n"),
    ],
)
def test_a_name_that_no_parameter_has(folder: Path, word: str, message: str) -> None:
    done = neurosim("profile", "double.py:double", "4x4:float32", word, folder=folder)
    name = word.partition("=")[0]
    assert done.stderr == f"ConfigurationError: double has no parameter '{name}'\n  {message}"


def test_a_misspelt_instruction_is_a_message_with_its_line(folder: Path) -> None:
    text = KERNEL.replace("nisa.tensor_scalar(", "nisa.tensor_scalr(")
    (folder / "misspelt.py").write_text(
        text + "\nif __name__ == '__main__':\n    nki.simulat(double)\n", encoding="utf-8"
    )
    done = neurosim("profile", "misspelt.py:double", "4x4:float32", folder=folder)
    assert done.returncode == 1
    assert "'tensor_scalr'\n  misspelt.py:11  in double\n  did you mean tensor_scalar?\n" in done.stderr
    assert "Traceback" not in done.stderr
    done = process("run", "misspelt.py", folder=folder)
    assert "has no attribute 'simulat'\n  misspelt.py:23  in <module>\n  did you mean simulate?\n" in done.stderr


def test_an_error_in_a_kernel_shows_the_kernel_alone(folder: Path) -> None:
    (folder / "broken.py").write_text("def broken(x):\n    return x.shape[7]\n", encoding="utf-8")
    done = process("profile", "broken.py:broken", "4x4:float32", folder=folder)
    assert done.returncode == 1
    assert done.stderr.count("  File ") == 1
    assert 'broken.py", line 2, in broken' in done.stderr
    assert "IndexError" in done.stderr


def test_without_values_there_is_a_time_all_the_same(folder: Path) -> None:
    with_values = neurosim("profile", "double.py:double", "64x32:float32", folder=folder)
    without = neurosim("profile", "double.py:double", "64x32:float32", "--no-values", folder=folder)
    assert without.returncode == 0, without.stderr
    lines = without.stdout.splitlines(keepends=True)
    notes = [line for line in lines if line.startswith("Values")]
    assert [note.split()[1:3] for note in notes] == [["not", "computed:"]]
    assert "".join(line for line in lines if line not in notes) == with_values.stdout


def test_a_saved_program_is_timed_again(folder: Path) -> None:
    words = ("--perfetto", "first.json", "--save", "double.nsim")
    done = neurosim("profile", "double.py:double", "64x32:float32", "--chip", "trn2", *words, folder=folder)
    assert done.returncode == 0, done.stderr
    again = process("time", "double.nsim", "--perfetto", "second.json", folder=folder)
    assert again.returncode == 0, again.stderr
    assert again.stdout == done.stdout
    assert (folder / "second.json").read_bytes() == (folder / "first.json").read_bytes()
    words = ("--launch-overhead", "profile", "--sensitivity", "--json", "more.json")
    longer = neurosim("time", "double.nsim", *words, folder=folder)
    summary = json.loads((folder / "more.json").read_text(encoding="utf-8"))
    assert summary["launch_ps"] == 17_500_000
    first = summary["sensitivity"][0]["figure"]
    assert re.search(rf"^figure .* -10% +\+10%\n{re.escape(first)} ", longer.stdout, re.MULTILINE)


def test_a_trace_of_one_engine_and_line(folder: Path) -> None:
    neurosim("profile", "double.py:double", "64x32:float32", "--save", "double.nsim", folder=folder)
    options = (
        "--schedule",
        "program",
        "--engine",
        "vector",
        "--line",
        "double.py:11",
        "--first-us",
        "1",
        "--last-us",
        "1000",
    )
    done = neurosim("time", "double.nsim", "--perfetto", "part.json", *options, folder=folder)
    assert done.returncode == 0, done.stderr
    trace = json.loads((folder / "part.json").read_text(encoding="utf-8"))
    assert [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"] == ["tensor_scalar"]


def test_profile_writes_a_part_of_a_trace(folder: Path) -> None:
    words = ("--perfetto", "part.json", "--engine", "scalar", "--engine", "vector", "--last-us", "1000")
    done = neurosim("profile", "double.py:double", "64x32:float32", *words, folder=folder)
    assert done.returncode == 0, done.stderr
    trace = json.loads((folder / "part.json").read_text(encoding="utf-8"))
    assert [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"] == ["tensor_scalar"]
    assert trace["metadata"]["options"]["last_ps"] == 10**9


def test_tables_of_a_run_and_of_a_saved_program_are_the_same(folder: Path) -> None:
    words = ("--csv", "a.csv", "--parquet", "a.parquet", "--save", "double.nsim")
    done = neurosim("profile", "double.py:double", "64x32:float32", *words, folder=folder)
    assert done.returncode == 0, done.stderr
    again = neurosim("time", "double.nsim", "--csv", "b.csv", "--parquet", "b.parquet", folder=folder)
    assert again.returncode == 0, again.stderr
    text = (folder / "a.csv").read_text(encoding="utf-8")
    assert text.startswith("core,engine,kind,record,name,instruction,file,line,")
    assert text == (folder / "b.csv").read_text(encoding="utf-8")
    assert (folder / "a.parquet").read_bytes()[:4] == b"PAR1"
    assert (folder / "a.parquet").read_bytes() == (folder / "b.parquet").read_bytes()


def test_the_schema_of_summaries_is_printed(folder: Path) -> None:
    printed = json.loads(neurosim("schema", folder=folder).stdout)
    assert "makespan_ps" in printed["$defs"]["Summary"]["required"]
    assert printed["$defs"]["Summary"]["properties"]["schema"] == {"const": printed["title"]}


def test_a_place_that_takes_no_file_is_named_before_anything_runs(folder: Path) -> None:
    """The kernel does not exist: that would be said later."""
    (folder / "taken").mkdir()
    for option, path, why in (
        ("--perfetto", "nowhere/t.json", "there is no folder"),
        ("--html", "nowhere/r.html", "there is no folder"),
        ("--json", "taken", "it is a folder"),
        ("--save", "double.py/program", "there is no folder"),
    ):
        done = neurosim("profile", "double.py:nothing", option, path, folder=folder)
        assert done.returncode == 1
        assert done.stderr.startswith(f"ConfigurationError: cannot write {path}: {why}")


@pytest.mark.parametrize(
    "words", [["--line", "double.py:11"], ["--last-us", "3", "--engine", "dma"], ["--first-us", "1"]]
)
def test_what_shapes_a_trace_needs_one(folder: Path, words: list[str]) -> None:
    done = neurosim("time", "double.nsim", *words, folder=folder)
    assert done.returncode == 1
    assert done.stderr.startswith(f"ConfigurationError: {', '.join(words[::2])}: this says what goes into a trace")
    assert "--perfetto FILE" in done.stderr


def test_a_list_of_instructions_that_is_piped_is_whole(folder: Path) -> None:
    done = process("isa", folder=folder)
    assert not any(line.endswith("…") for line in done.stdout.splitlines())
    assert done.stdout.splitlines()[0].split()[:6] == ["instruction", "engines", "trn1/inf2", "trn2", "trn3", "what"]


def test_check_says_that_there_is_more(folder: Path) -> None:
    (folder / "many.py").write_text(
        KERNEL.replace("    tile =", "    a = enumerate([x])\n    tile ="), encoding="utf-8"
    )
    assert neurosim("check", "double.py", folder=folder).stdout == "double.py: no findings\n"
    assert "no findings; --strict reports 2 more" in neurosim("check", "many.py", folder=folder).stdout
    assert "many.py: 2 findings\n" in neurosim("check", "many.py", "--strict", folder=folder).stdout


def test_a_file_that_is_no_program(folder: Path) -> None:
    done = neurosim("time", "double.py", folder=folder)
    assert done.returncode == 1
    assert done.stderr.startswith("ConfigurationError: double.py is no program file, or a broken one")


def test_run_is_like_python(folder: Path) -> None:
    done = process("run", "script.py", "a", "--flag", folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["__main__ ['a', '--flag']", "64.0"]


def test_run_reports_a_kernel_error_as_its_message(folder: Path) -> None:
    done = process("run", "script.py", "--fail", folder=folder)
    assert done.returncode == 1
    assert done.stderr.startswith("Uninitialized: ")
    assert "Traceback" not in done.stderr


def test_run_needs_a_script(folder: Path) -> None:
    done = neurosim("run", "missing.py", folder=folder)
    assert done.returncode == 1
    assert done.stderr == (
        "ConfigurationError: there is no file missing.py\n"
        "  check the path; it is taken from the folder that the command runs in\n"
    )


def test_chips_lists_figures_with_their_sources(folder: Path) -> None:
    done = neurosim("chips", "trn2", folder=folder)
    assert done.returncode == 0, done.stderr
    for heading in ("figure", "value", "unit", "standing", "source"):
        assert heading in done.stdout
    assert "documented" in done.stdout
    assert "not validated" not in done.stdout


def test_chips_lists_all_with_the_standing_of_their_figures(folder: Path) -> None:
    done = neurosim("chips", folder=folder)
    assert done.returncode == 0, done.stderr
    titles, *rows, note = (line.split() for line in done.stdout.splitlines() if line)
    assert titles[-4:] == ["documented", "measured", "fitted", "assumed"]
    assert [row[0] for row in rows] == ["inf2", "trn1", "trn2", "trn3"]
    counts = {row[0]: [int(cell) for cell in row[-4:]] for row in rows}
    assert len({sum(row) for row in counts.values()}) == 1
    assert counts["trn3"][1:3] == counts["inf2"][1:3] == [0, 0]
    assert min(*counts["trn1"], *counts["trn2"]) > 0
    assert " ".join(note) == "not validated, since no figure was measured on the chip itself: inf2, trn3"


def test_a_device_file_of_ones_own(folder: Path) -> None:
    figure = 'value = 1.2\nunit = "GHz"\nstanding = "assumed"\nsource = "what if the array were cold"'
    name = 'value = "cold"\nunit = "name"\nstanding = "assumed"\nsource = "my own"'
    text = f'base = "trn2"\n[chip.name]\n{name}\n[tensor.clock_ghz]\n{figure}\n'
    (folder / "cold.toml").write_text(text, encoding="utf-8")
    done = neurosim("chips", "cold.toml", folder=folder)
    assert done.returncode == 0, done.stderr
    (clock,) = (line.split() for line in done.stdout.splitlines() if line.startswith("tensor.clock_ghz"))
    assert clock[:4] == ["tensor.clock_ghz", "1.2", "GHz", "assumed"]
    assert "not validated, since no figure was measured on the chip itself: cold" in done.stdout
    done = neurosim("profile", "double.py:double", "4x4:float32", "--chip", "cold.toml", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "cold" in done.stdout


def test_an_unknown_chip_is_named(folder: Path) -> None:
    done = neurosim("profile", "double.py:double", "4x4:float32", "--chip", "trn9", folder=folder)
    assert done.returncode == 1
    assert "trn9" in done.stderr
    assert "trn2" in done.stderr


def matmul_case() -> tuple[np.ndarray, ...]:
    a_t, b = demo.matmul_inputs(64)
    exact = a_t.astype(np.float64).T @ b.astype(np.float64)
    return exact.astype(np.float32).astype(ml_dtypes.bfloat16), a_t, b


def attention_case() -> tuple[np.ndarray, ...]:
    q, k, v = demo.attention_inputs(300, 32)
    scores = q.astype(np.float64) @ k.astype(np.float64).T / np.sqrt(32)
    scores[np.triu_indices(300, 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    exact = weights / weights.sum(axis=1, keepdims=True) @ v.astype(np.float64)
    return exact.astype(np.float32).astype(ml_dtypes.bfloat16), q, k, v


@pytest.mark.parametrize(
    ("check", "case"), [(demo.check_matmul, matmul_case()), (demo.check_attention, attention_case())]
)
def test_the_demos_checks_pass_what_is_right_and_find_what_is_not(check: Any, case: tuple[np.ndarray, ...]) -> None:
    right, *inputs = case
    assert check(right, *inputs).passed
    for wrong in (np.nan, np.inf, float(right[40, 20]) * 1.05 + 0.1):
        output = right.copy()
        output[40, 20] = wrong
        found = check(output, *inputs)
        assert not found.passed
        assert "WRONG" in str(found)


def test_the_demo_checks_values_and_prints_both_reports(folder: Path) -> None:
    done = process("demo", "--json", "demo.json", folder=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("values against float64: ok") == 2
    matmul, attention = json.loads((folder / "demo.json").read_text(encoding="utf-8"))
    assert (matmul["kernel"], matmul["flops"]) == ("matmul", 2 * 2048**3)
    assert attention["kernel"] == "attention"
    for summary in (matmul, attention):
        assert 0 < summary["mfu"] <= 1
        assert 0 < summary["mbu"] <= 1


def test_the_demo_fails_when_a_value_is_wrong(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    wrong = demo.Check(max_error=1.0, at_value=2.0, max_ratio=3.0)
    monkeypatch.setattr(
        demo, "CASES", (Case("matmul.py", "matmul", lambda: demo.matmul_inputs(128), {}, lambda *_: wrong),)
    )
    with pytest.raises(typer.Exit) as caught:
        cli.demo()
    assert caught.value.exit_code == 1
    assert "wrong values: matmul" in capsys.readouterr().err


def test_a_summary_that_cannot_be_written_is_an_error_in_words(folder: Path) -> None:
    done = neurosim("profile", "double.py:double", "4x4:float32", "--json", "nowhere/summary.json", folder=folder)
    assert done.returncode == 1
    assert "cannot write nowhere/summary.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_input_larger_than_memory_is_an_error_in_words(folder: Path) -> None:
    done = neurosim("profile", "double.py:double", "99999999999x99999999:float32", folder=folder)
    assert done.returncode == 1
    assert "--no-values" in done.stderr


TWO_CORES = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def swapped(halves):
    own = nl.program_id(0)
    out = nl.ndarray(halves.shape, dtype=halves.dtype, buffer=nl.shared_hbm)
    mine, theirs = nl.load(halves[own]), nl.ndarray(halves.shape[1:], dtype=halves.dtype, buffer=nl.sbuf)
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - own, recv_from_rank=1 - own, pipe_id=0)
    nl.store(out[own], theirs)
    return out
"""


def test_two_cores_are_profiled_saved_and_timed_again(folder: Path, tmp_path: Path) -> None:
    (folder / "two.py").write_text(TWO_CORES, encoding="utf-8")
    target, trace = "two.py:swapped", tmp_path / "trace.json"
    first = neurosim(
        "profile", target, "2x16x32:float32", "--cores", "2", "--json", "-", "--save", "saved", folder=folder
    )
    again = neurosim("time", "saved", "--json", "-", "--perfetto", str(trace), folder=folder)
    assert first.returncode == again.returncode == 0, first.stderr + again.stderr
    assert first.stdout == again.stdout
    assert "swapped on trn2, 2 cores" in first.stdout
    assert "Core 0 ends after" in first.stdout
    assert "Core 1 ends after" in first.stdout
    summary = json.loads(first.stdout[first.stdout.index("\n{") :])
    assert [core["core"] for core in summary["cores"]] == [0, 1]
    assert summary["makespan_ps"] == max(core["makespan_ps"] for core in summary["cores"])
    assert summary["instructions"] == sum(core["instructions"] for core in summary["cores"]) == 6
    assert (
        summary["hbm"]["read_bytes"] == sum(core["hbm"]["read_bytes"] for core in summary["cores"]) == 2 * 16 * 32 * 4
    )
    events = json.loads(trace.read_text())["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {"core 0: swapped on trn2", "core 1: swapped on trn2"}


def test_a_launch_in_the_target_says_how_it_is_written(folder: Path) -> None:
    done = neurosim("profile", "double.py:double[12]", "2x16x32:float32", folder=folder)
    assert done.returncode == 1
    assert "write double.py:double and --cores 12\n" in done.stderr


def test_more_cores_than_a_launch_has(folder: Path) -> None:
    done = neurosim("profile", "double.py:double", "16x32:float32", "--cores", "3", folder=folder)
    assert done.returncode == 1
    assert "at most 2 cores" in done.stderr


def test_what_limits_a_kernel_is_said_where_it_is_asked(folder: Path) -> None:
    words = (
        "profile",
        "double.py:double",
        "128x64:float32",
        "--advice",
        "--what-if",
        "dma_latency=0",
        "--json",
        "out.json",
    )
    done = neurosim(*words, folder=folder)
    assert done.returncode == 0, done.stderr
    for title in ("What if", "Critical path", "Advice"):
        assert title in done.stdout
    summary = json.loads((folder / "out.json").read_text())
    assert summary["what_if"][0]["changes"] == {"dma_latency": 0}
    assert summary["what_ifs"]


def test_a_what_if_of_nothing_is_a_message_with_the_nearest_word(folder: Path) -> None:
    done = neurosim("profile", "double.py:double", "128x64:float32", "--what-if", "dma_latencie=0", folder=folder)
    assert done.returncode == 1
    assert "did you mean dma_latency" in done.stderr
    assert not done.stdout
