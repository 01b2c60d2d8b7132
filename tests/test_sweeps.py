"""Sweeps: the grid, what a failing or a dying point does, resuming, and what is written."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import joblib
import neuronxcc.nki as legacy
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from joblib._parallel_backends import LokyBackend

import neurosim
from neurosim import cli
from neurosim.errors import ConfigurationError
from neurosim.shell.loading import load_kernel
from neurosim.sweeps.journal import FORMAT, Journal
from neurosim.sweeps.keys import kernel_digest

X = neurosim.spec((128, 1024), "bfloat16")

KERNEL = """
import os
import time
import nki
import nki.isa as nisa
import nki.language as nl
from helping import FACTOR

@nki.jit
def double(tile):
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=FACTOR)

@nki.jit
def scale(x, width=512, log=None):
    if log is not None:
        with open(log, "a") as file:
            print(width, file=file)
        while width > 128 and os.path.exists("hold"):
            time.sleep(0.02)
    if width == 13:
        os._exit(1)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for column in range(0, x.shape[1], width):
        tile = nl.ndarray((128, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, column : column + width])
        double(tile)
        nisa.dma_copy(dst=out[:, column : column + width], src=tile)
    return out
"""


def scale(x, width, factor=2.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for column in range(0, x.shape[1], width):
        tile = nl.ndarray((128, width), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, column : column + width])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[:, column : column + width], src=tile)
    return out


def swept(grid: dict[str, Any], *args: Any, **options: Any) -> neurosim.Sweep:
    return neurosim.sweep(scale, grid, jobs=1, **options)(*(args or (X,)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "helping", raising=False)
    (tmp_path / "scale.py").write_text(KERNEL, encoding="utf-8")
    (tmp_path / "helping.py").write_text("FACTOR = 2.0\n", encoding="utf-8")
    return tmp_path


def command(folder: Path, *words: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "neurosim", "sweep", "scale.py:scale", "x=128x1024:bfloat16", *words]
    path = os.pathsep.join((str(Path(neurosim.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")))
    return subprocess.Popen(
        line,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "random"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# -- the grid ---------------------------------------------------------------------------------------------------------


def test_each_point_is_a_run_of_its_own():
    found = swept({"width": [256, 512], "chip": ["trn1", "trn2"], "dma.engine_gb_per_s": [10.0, 20.0]})
    assert found.names == ("width", "chip", "dma.engine_gb_per_s")
    points = [tuple(outcome.point.values()) for outcome in found]
    assert points == [(w, c, r) for w in (256, 512) for c in ("trn1", "trn2") for r in (10.0, 20.0)]
    for outcome in found:
        width, chip, rate = outcome.point.values()
        variant = neurosim.load_chip(chip).replace(dma__engine_gb_per_s=rate)
        expected = neurosim.profile(scale, variant, values=False)(X, width).summary()
        assert outcome.summary == json.loads(json.dumps(expected))
    assert found.best is min(found, key=lambda outcome: outcome.summary["total_ps"])
    assert not found.failed


def test_options_of_the_sweep_and_of_the_grid():
    both = neurosim.sweep(scale, {"width": [512], "nki_version": ["0.5", "0.6"]}, chip="trn1", jobs=1)(X)
    assert [(one.summary["chip"], one.summary["nki_version"]) for one in both] == [("trn1", "0.5"), ("trn1", "0.6")]
    cores = neurosim.sweep(scale, {"cores": [1, 2], "x": [X]}, jobs=1)(width=512)
    assert [len(one.summary["cores"]) for one in cores] == [1, 2]
    assert [one.point for one in cores] == [{"cores": n, "x": "128x1024:bfloat16"} for n in (1, 2)]


def test_how_engines_take_instructions_is_an_option(tmp_path):
    def kernel(x, trips):
        tile = nl.load(x)
        for _ in range(trips):
            first, second = (nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum) for _ in range(2))
            nisa.nc_matmul(dst=first, stationary=tile[:, 0:128], moving=tile[:, 0:512])
            nisa.nc_matmul(dst=second, stationary=tile[:, 0:128], moving=nl.copy(first, dtype=x.dtype))

    grid = {"trips": [8], "schedule": ["compiler", "program"], "throttle": [True, False]}
    found = neurosim.sweep(kernel, grid, jobs=1, store=tmp_path / "kept")(X)
    for outcome in found:
        trips, schedule, throttle = outcome.point.values()
        expected = neurosim.profile(kernel, values=False, schedule=schedule, throttle=throttle)(X, trips).summary()
        assert outcome.summary == json.loads(json.dumps(expected))
    assert len({one.summary["makespan_ps"] for one in found}) == 4
    given = {"schedule": "program", "throttle": False}
    (last,) = neurosim.sweep(kernel, {"trips": [8]}, jobs=1, store=tmp_path / "kept", **given)(X)
    assert last.summary == found.outcomes[3].summary
    with Journal(tmp_path / "kept") as journal:
        assert len(journal.entries) == 4


def test_a_kernel_says_its_own_chip():
    @legacy.jit(platform_target="trn1")
    def kernel(x, width):
        return nl.ndarray((128, width), dtype=nl.float32, buffer=nl.private_hbm)

    for asked, expected in ((None, "trn1"), ("trn2", "trn2")):
        (found,) = neurosim.sweep(kernel, {"width": [512]}, chip=asked, jobs=1)(X)
        assert found.summary["chip"] == expected


def test_with_values_arrays_are_computed_on():
    x = np.full((128, 64), 3.0, np.float32)
    seen = neurosim.sweep(scale, {"width": [32]}, values=True, jobs=1)(x)
    assert seen.outcomes[0].error is None
    assert "Values" not in seen.outcomes[0].summary["notes"]
    assert "Values" in swept({"width": [512]}).outcomes[0].summary["notes"]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({}, "a sweep needs a grid"),
        ({"tile": [1]}, "scale has no parameter 'tile'\n  it has x, width, factor"),
        ({"width": []}, "the grid's width has no values"),
        ({"width": "512"}, "the grid's width is '512'"),
        ({"width": 512}, "the grid's width is 512"),
        ({"chip": ["trn9"]}, "unknown chip 'trn9'"),
        ({"nki_version": ["7"]}, "7"),
        ({"cores": [0]}, "cores=0 is no number of cores"),
        ({"schedule": ["fast"]}, "schedule='fast' is unknown"),
        ({"throttle": ["true"]}, "throttle='true' is not a bool"),
        ({"dma.speed": [1.0]}, "dma.speed"),
        ({"dma.engine_gb_per_s": [-1.0]}, "engine_gb_per_s"),
        ({"x": [X]}, "multiple values for argument 'x'"),
        ({"factor": [1.0]}, "missing a required argument: 'width'"),
    ],
)
def test_a_senseless_grid_is_refused_before_anything_runs(grid, message, tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        neurosim.sweep(scale, grid, jobs=1, store=tmp_path / "kept")(X)
    assert message in str(caught.value)
    assert not (tmp_path / "kept").exists()


def test_a_parameter_called_as_an_option_is_refused():
    def kernel(x, chip):
        return x

    with pytest.raises(ConfigurationError, match="the grid's chip is a parameter of kernel and an option"):
        neurosim.sweep(kernel, {"chip": ["a"]})


# -- failing points ---------------------------------------------------------------------------------------------------


def test_a_failing_point_is_reported_and_ends_nothing():
    found = swept({"width": [512, 1000, 1024]})
    assert [outcome.error is None for outcome in found] == [True, False, True]
    assert found.outcomes[1].error["kind"] == "OutOfBounds"
    assert "test_sweeps.py" in found.outcomes[1].error["message"]
    assert "1000" in str(found)
    assert "OutOfBounds: slice 1000:2000 on axis 1 of x [128, 1024] bfloat16 in HBM" in str(found)
    assert [row["total_ps"] is None for row in found.rows()] == [False, True, False]
    assert found.failed == (found.outcomes[1],)


def test_a_process_that_dies_takes_nothing_along(folder):
    kernel = load_kernel(f"{folder / 'scale.py'}:scale")
    store = folder / "kept"
    found = neurosim.sweep(kernel, {"width": [512, 13, 256, 128]}, jobs=2, store=store)(X)
    assert [outcome.error is None for outcome in found] == [True, False, True, True]
    assert found.outcomes[1].error["kind"] == "WorkerDied"
    assert found.outcomes[0].summary == json.loads(json.dumps(neurosim.profile(kernel, values=False)(X, 512).summary()))
    with Journal(store) as journal:  # it may have been the system: it is tried again
        assert [entry["error"]["is_final"] for entry in journal.entries.values() if "error" in entry] == [False]


def test_what_kernels_say_does_not_disturb(capsys):
    def loud(x, width):
        nl.device_print("tile", x)
        warnings.warn("louder", UserWarning, stacklevel=1)
        return scale(x, width)

    (found,) = neurosim.sweep(loud, {"width": [512]}, jobs=1)(X)
    assert found.error is None
    assert found.warnings == ("louder",)
    assert capsys.readouterr() == ("", "")


# -- resuming ---------------------------------------------------------------------------------------------------------


def test_a_killed_sweep_goes_on_where_it_stopped(folder):
    """Each point says in a file that it runs: none does twice but those that ran when the sweep was killed.

    All but two wait until it was, however slow this machine is.
    """
    widths = [64, 128, 256, 512, 1024]
    words = ("--grid", "width=" + ",".join(map(str, widths)), "log=ran", "--jobs", "2", "--json", "out.json")
    (folder / "hold").touch()
    process = command(folder, *words)
    kept = folder / "scale.sweep.jsonl"
    deadline = time.monotonic() + 600
    while not (kept.exists() and kept.read_text().count("\n") > 2) and process.poll() is None:
        assert time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done = [json.loads(line)["point"]["width"] for line in kept.read_text().splitlines()[1:]]
    assert {*done} == {"64", "128"}
    (folder / "hold").unlink()
    ran = (folder / "ran").read_text().split()
    with kept.open("a") as file:
        file.write('{"key": "half a li')
    (folder / "ran").unlink()
    process = command(folder, *words)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert "5 points, 0 failed" in err
    again = (folder / "ran").read_text().split()
    assert not {*done} & set(again)
    assert set(ran) | set(again) == {str(width) for width in widths}
    rows = json.loads((folder / "out.json").read_text())
    assert [row["point"]["width"] for row in rows] == [str(width) for width in widths]
    kernel = load_kernel(f"{folder / 'scale.py'}:scale")
    for row in rows:
        expected = neurosim.profile(kernel, values=False)(X, int(row["point"]["width"])).summary()
        assert row["summary"]["makespan_ps"] == expected["makespan_ps"]


def test_what_is_known_is_not_run_again(tmp_path, monkeypatch):
    store = tmp_path / "kept"
    first = swept({"width": [256, 512, 1000]}, store=store)
    monkeypatch.setattr("neurosim.sweeps.running.run_point", lambda *_: pytest.fail("it was known"))
    assert swept({"width": [1000, 512, 256]}, store=store).outcomes == first.outcomes[::-1]
    assert swept({"width": [512], "chip": ["trn2"]}, store=store).outcomes[0].summary == first.outcomes[1].summary


@pytest.mark.parametrize(
    "change",
    [
        {"chip": "trn1"},
        {"grid": {"width": [512], "dma.engine_gb_per_s": [10.0]}},
        {"grid": {"width": [512], "factor": [3.0]}},
        {"grid": {"width": [512], "factor": [2]}},
        {"nki_version": "0.5"},
        {"schedule": "program"},
        {"throttle": False},
        {"environment": {"NEUROSIM_NKI_VERSION": "0.5"}},
        {"environment": {"NKI_PRECISE_FP": "0"}},
        {"values": True, "x": np.ones((128, 1024), np.float32)},
        {"x": neurosim.spec((128, 512), "bfloat16")},
        {"x": neurosim.spec((128, 1024), "float16")},
    ],
    ids=str,
)
def test_what_changes_a_result_is_run(change, tmp_path, monkeypatch):
    store = tmp_path / "kept"
    swept({"width": [512]}, store=store)
    for name, value in change.pop("environment", {}).items():
        monkeypatch.setenv(name, value)
    x, grid = change.pop("x", X), change.pop("grid", {"width": [512]})
    swept(grid, x, store=store, **change)
    with Journal(store) as journal:
        assert len(journal.entries) == 2


def test_the_kernels_source_is_part_of_the_key(folder):
    def digest() -> str:
        for name in [name for name in sys.modules if name.startswith("neurosim_kernel_scale") or name == "helping"]:
            del sys.modules[name]
        return kernel_digest(load_kernel(f"{folder / 'scale.py'}:scale"))

    before = digest()
    assert digest() == before
    (folder / "helping.py").write_text("FACTOR = 3.0\n", encoding="utf-8")
    helped = digest()
    (folder / "scale.py").write_text(KERNEL.replace("width=512", "width=256"), encoding="utf-8")
    assert len({before, helped, digest()}) == 3


@pytest.mark.parametrize("place", ["site-packages", "elsewhere"])
def test_packages_that_cannot_be_looked_into_are_left_out_of_the_key(folder, place):
    """Of another environment on the path, or one's own: looking for a module of a package runs the package."""
    package = folder / place / "for_another_machine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('for another machine')\n", encoding="utf-8")
    sys.path.append(str(folder / place))
    (folder / "scale.py").write_text(KERNEL + "\ndef later():\n    import for_another_machine.part\n", encoding="utf-8")
    assert kernel_digest(load_kernel(f"{folder / 'scale.py'}:scale"))


@pytest.mark.parametrize(("place", "counts"), [("site-packages", False), ("dist-packages", False), ("lib", True)])
def test_installed_packages_are_no_part_of_the_key(folder, place, counts):
    """Wherever they are installed: for one user, or below an environment that takes the system's."""
    (folder / place).mkdir()
    (folder / "helping.py").rename(folder / place / "helping.py")
    sys.path.append(str(folder / place))
    before = kernel_digest(load_kernel(f"{folder / 'scale.py'}:scale"))
    (folder / place / "helping.py").write_text("FACTOR = 3.0\n", encoding="utf-8")
    assert (before != kernel_digest(load_kernel(f"{folder / 'scale.py'}:scale"))) is counts


def test_what_a_closure_holds_is_part_of_the_key():
    def made(factor):
        def kernel(x):
            return nl.ndarray((factor, 8), dtype=nl.float32, buffer=nl.shared_hbm)

        return kernel

    assert kernel_digest(made(2)) == kernel_digest(made(2)) != kernel_digest(made(3))


def test_a_kernel_of_a_notebook_is_its_code_with_all_that_it_refers_to():
    def digest(factor: int, call: str = "helped(x)") -> str:
        bodies = {"helped": "FACTOR * x", "helper": call, "kernel": "helper(x)"}
        cell = "".join(f"def {name}(x):\n    return {body}\n" for name, body in bodies.items())
        scope = {"__name__": "__main__", "FACTOR": factor}
        exec(compile(cell, "<cell>", "exec"), scope)
        return kernel_digest(scope["kernel"])

    assert digest(2) == digest(2)
    assert len({digest(2), digest(3), digest(2, "helped(x + 1)")}) == 3


def test_a_file_of_something_else_is_refused(tmp_path):
    for content in ("{}\n", "not json", '{"format": "neurosim.sweep/0"}\n', "\x00\xff"):
        (tmp_path / "kept").write_text(content, encoding="latin-1")
        with pytest.raises(ConfigurationError, match="does not hold the results of a sweep"):
            swept({"width": [512]}, store=tmp_path / "kept")
        assert (tmp_path / "kept").read_text(encoding="latin-1") == content
    with pytest.raises(ConfigurationError, match="cannot be kept there"):
        swept({"width": [512]}, store=tmp_path / "no" / "folder")
    with pytest.raises(ConfigurationError, match="cannot be kept there"):
        swept({"width": [512]}, store=tmp_path)


def test_two_sweeps_do_not_write_one_file(tmp_path):
    with Journal(tmp_path / "kept"), pytest.raises(ConfigurationError, match="another sweep is writing"):
        Journal(tmp_path / "kept")
    Journal(tmp_path / "kept").close()


def test_a_journal_passes_over_what_is_no_entry(tmp_path):
    path = tmp_path / "kept"
    with Journal(path) as journal:
        journal.add("a", {"point": {"n": 1}})
    with path.open("a") as file:
        file.write('[1]\n{"no": "key"}\n{"key": "b", "point"')
    with Journal(path) as journal:
        assert journal.entries == {"a": {"point": {"n": 1}}}
        journal.add("c", {"point": {"n": 2}})
    with Journal(path) as journal:
        assert set(journal.entries) == {"a", "c"}
    assert json.loads(path.read_text().splitlines()[0]) == {"format": FORMAT}


# -- where it runs ----------------------------------------------------------------------------------------------------


def test_processes_give_what_one_gives(monkeypatch):
    grid = {"width": [256, 512, 1000], "chip": ["trn1", "trn2"]}
    assert neurosim.sweep(scale, grid, jobs=2)(X) == swept(grid)
    for version in ("0.5", "0.6"):  # the processes are there already
        monkeypatch.setenv("NEUROSIM_NKI_VERSION", version)
        found = neurosim.sweep(scale, {"width": [256, 512]}, jobs=2)(X)
        assert [one.summary["nki_version"] for one in found] == [version, version]


class Rounds(LokyBackend):
    """A backend that gives no result before its last, as Ray's."""

    supports_return_generator = False


def test_where_results_come_all_at_once_points_go_in_rounds(tmp_path):
    joblib.register_parallel_backend("rounds", Rounds)
    kept, grid = tmp_path / "kept", {"width": [128, 256, 512, 640, 1024]}
    with joblib.parallel_config(backend="rounds", n_jobs=2):
        found = neurosim.sweep(scale, grid, store=kept)(X)
    assert found == swept(grid)
    assert len(kept.read_text(encoding="utf-8").splitlines()) == 1 + 5


def test_on_a_dask_cluster(tmp_path):
    distributed = pytest.importorskip("distributed")
    grid = {"width": [256, 512, 1000]}
    with (
        distributed.Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None),
        joblib.parallel_config(backend="dask"),
    ):
        found = neurosim.sweep(scale, grid, store=tmp_path / "kept")(X)
    assert found == swept(grid)


# -- what is shown and written ----------------------------------------------------------------------------------------


def run_cli(monkeypatch, folder: Path, *words: str) -> int:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["neurosim", "sweep", "scale.py:scale", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code or 0


def test_the_command(monkeypatch, folder, capsys):
    words = ("128x1024:bfloat16", "--grid", "width=256,1000", "--grid", "chip=trn1,trn2", "--jobs", "1")
    assert run_cli(monkeypatch, folder, *words, "--csv", "out.csv", "--plot", "out.svg", "--store", "kept") == 0
    out, err = capsys.readouterr()
    assert [line.split()[:2] for line in out.splitlines()[1:]][:2] == [["256", "trn1"], ["256", "trn2"]]
    assert "4 points, 2 failed; kept in kept" in err
    rows = list(csv.DictReader((folder / "out.csv").open()))
    assert [(row["width"], row["chip"]) for row in rows] == [(w, c) for w in ("256", "1000") for c in ("trn1", "trn2")]
    assert rows[2]["error"].startswith("OutOfBounds")
    assert int(rows[0]["total_ps"]) > 0
    assert "<svg" in (folder / "out.svg").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--grid", "width"), "--grid 'width' is no name with values"),
        (("--grid", "width=1,,2"), "is no name with values"),
        (("--grid", "width=512", "--grid", "width=256"), "a name stands twice in the grid"),
        (("--grid", "cores=two"), "--grid cores: 'two' is no number"),
        (("--grid", "throttle=off"), "--grid throttle: 'off' is neither true nor false"),
        (("--grid", "width=1x2"), "has a shape and no dtype"),
        ((), "a sweep needs a grid"),
        (("--grid", "width=512", "--store", "no/kept"), "cannot be kept there"),
        (("--grid", "width=512", "--cluster", "slurm"), "no such cluster"),
        (("--grid", "width=512", "--plot", "out.wrong"), "out.wrong: a plot is a .png, .svg or .pdf file"),
        (("--grid", "width=512", "--plot", "out.png", "--x", "height"), "the grid has no 'height'"),
        (("--grid", "width=512", "--csv", "no/out.csv"), "cannot write no/out.csv"),
    ],
)
def test_bad_input_of_the_command(monkeypatch, folder, capsys, words, message):
    assert run_cli(monkeypatch, folder, "128x1024:bfloat16", "--jobs", "1", *words) == 1
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err


def test_options_and_words_like_markup_on_the_command_line(monkeypatch, folder, capsys):
    words = ("128x1024:bfloat16", "--jobs", "1", "--store", "kept", "--json", "-")
    grid = ("--grid", "schedule=program", "--grid", "throttle=true,false", "--grid", "log=[red]log")
    assert run_cli(monkeypatch, folder, *words, *grid) == 0
    table, _, written = capsys.readouterr().out.partition("\n[\n")
    assert [row["point"]["throttle"] for row in json.loads("[" + written)] == [True, False]
    assert "[red]log" in table


def test_a_sweep_of_failures_alone_fails(monkeypatch, folder, capsys):
    assert run_cli(monkeypatch, folder, "128x1024:bfloat16", "--jobs", "1", "--grid", "width=1000") == 1
    assert "1 points, 1 failed" in capsys.readouterr().err


def test_a_plot_has_a_line_for_each_combination(tmp_path):
    found = swept({"width": [256, 512, 1000], "chip": ["trn1", "trn2"], "factor": [2.0]})
    figure = found.plot(tmp_path / "out.png")
    (axes,) = figure.axes
    assert axes.get_xlabel() == "width"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "chip trn1, factor 2.0",
        "chip trn2, factor 2.0",
    ]
    assert [list(line.get_xdata()) for line in axes.lines] == [[256, 512]] * 2
    assert axes.lines[1].get_ydata()[1] == found.outcomes[3].summary["total_ps"] / 10**6
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert found.plot(x="chip").axes[0].lines[0].get_label() == "width 256, factor 2.0"
    with pytest.raises(ConfigurationError, match="nothing to plot"):
        swept({"width": [1000]}).plot()


def test_without_matplotlib_a_plot_says_what_to_install(monkeypatch):
    found = swept({"width": [512]})
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigurationError, match=r"neurosim-npu\[report\]"):
        found.plot()
