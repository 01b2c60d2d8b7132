"""Recordings on disk: another process replays them, nothing stale is ever used, and a bad file is no file."""

from __future__ import annotations

import importlib.util
import linecache
import os
import subprocess
import sys
import time
from pathlib import Path

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim import installation
from neurosim.datapath.modes import ReduceCmd
from neurosim.engines import Engine
from neurosim.record.encoding import Malformed
from neurosim.replay import LIBRARY, SHELF, plain, shelf
from neurosim.replay.plain import NotPlain, decoded, encoded
from neurosim.replay.shelf import LEAST_RECORDS, Shelf
from neurosim.replay.template import Place

X = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
KERNEL = """
import nki, nki.isa as nisa, nki.language as nl
import {helper}

BIAS = 1.0


@nki.jit
def kernel(x):
    tile, total = nl.load(x), nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    for step in range({steps}):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0={helper}.step())
    nisa.activation_reduce(dst=tile, op=nl.copy, data=tile, reduce_op=nl.add, reduce_res=total, bias=None)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=nl.load(nl.shared_constant(nl_array())), op=nl.add)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return {{"out": out, "steps": [{steps}, None]}}


def nl_array():
    return ARRAY


import numpy as np

ARRAY = np.full((8, 16), 0.5, np.float32)
"""
HELPER = "FACTOR = 2.0\n\n\ndef step():\n    return FACTOR\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A folder of its own for recordings, and none in memory."""
    monkeypatch.setattr(SHELF, "_folder", lambda: tmp_path / "recordings")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(installation, "_LOADED_S", float("inf"))  # whoever edits neurosim while its tests run
    monkeypatch.syspath_prepend(tmp_path)
    LIBRARY.clear()
    yield tmp_path / "recordings"
    LIBRARY.clear()
    for name in [name for name in sys.modules if name.startswith("shelf_")]:
        del sys.modules[name]


def written(tmp_path, helper=HELPER, steps=LEAST_RECORDS):
    (tmp_path / "shelf_helper.py").write_text(helper)
    path = tmp_path / "shelf_kernel.py"
    path.write_text(KERNEL.format(helper="shelf_helper", steps=steps))
    return path


def imported(path):
    """Import a file as a new process would."""
    linecache.clearcache()  # files here change within one tick of a file system's clock
    LIBRARY.clear()
    sys.modules.pop("shelf_helper", None)
    spec = importlib.util.spec_from_file_location("shelf_kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def run(path, **options):
    return neurosim.simulate(imported(path), **options)(X)


def test_another_process_replays(tmp_path, folder):
    path = written(tmp_path)
    fresh = run(path, replay=False)
    assert not folder.exists()
    first, again = run(path), run(path)
    assert (first.replayed, again.replayed) == (False, True)
    assert len(list(folder.iterdir())) == 1
    assert np.array_equal(again.outputs["out"], X + 2 * LEAST_RECORDS + 0.5)
    assert again.outputs["out"].tobytes() == fresh.outputs["out"].tobytes()
    assert again.outputs["steps"] == fresh.outputs["steps"] == [LEAST_RECORDS, None]
    assert again.program.listing() == fresh.program.listing()
    assert again.program.signatures == fresh.program.signatures
    assert again.program.stacks == fresh.program.stacks
    assert again.program.storages == fresh.program.storages
    assert again.summary() == fresh.summary()
    assert again.report() == fresh.report()


def test_processes_share_a_folder(tmp_path):
    """Two at once, without values so that little is loaded, and one more that finds what they left."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "import neurosim; from neurosim.replay import SHELF; from shelf_kernel import kernel\n"
        "SHELF._folder = lambda: Path(sys.argv[1]) / 'recordings'\n"
        "result = neurosim.simulate(kernel, values=False)(neurosim.spec((8, 16), 'float32'))\n"
        "print(len(result.program), result.replayed)\n"
    )
    command = [sys.executable, "-B", "-c", script, str(written(tmp_path).parent)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    lines = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * 2
    records = LEAST_RECORDS + 5
    assert all(line in (f"{records} False\n", f"{records} True\n") for line in lines)
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{records} True\n"
    assert len(list((tmp_path / "recordings").iterdir())) == 1  # no drafts either


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [("FACTOR = 2.0", "FACTOR = 3.0", 3.0), ("return FACTOR", "return 4.0", 4.0), ("FACTOR =", "FACTOR =  ", 2.0)],
)
def test_a_changed_callee_in_another_file(tmp_path, old, new, value):
    run(written(tmp_path))
    result = run(written(tmp_path, HELPER.replace(old, new)))
    assert np.array_equal(result.outputs["out"], X + value * LEAST_RECORDS + 0.5)
    assert result.replayed == (value == 2.0)  # the blank is in no line that the record refers to


def test_a_changed_kernel_file(tmp_path):
    path = written(tmp_path)
    run(path)
    path.write_text(path.read_text().replace("0.5, np", "0.25, np"))
    assert np.array_equal(run(path).outputs["out"], X + 2 * LEAST_RECORDS + 0.25)
    assert run(path).replayed
    path.write_text(path.read_text() + "# reports show this file\n")
    result = run(path)
    assert not result.replayed
    assert run(path).replayed


def test_a_changed_closure(tmp_path):
    def made(factor):
        def kernel(x):
            tile = nl.load(x)
            for _ in range(LEAST_RECORDS):
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=factor)
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=out, src=tile)
            return out

        LIBRARY.clear()
        return neurosim.simulate(kernel)(X)

    assert [made(1.0).replayed, made(1.0).replayed, made(2.0).replayed] == [False, True, False]
    assert np.array_equal(made(2.0).outputs, X + 2 * LEAST_RECORDS)


def test_a_changed_device_file(tmp_path):
    path, chip = written(tmp_path), tmp_path / "mine.toml"
    name = 'value = "mine"\nunit = "name"\nsource = "me"\nstanding = "assumed"'
    figure = 'value = {}\nunit = "GHz"\nsource = "me"\nstanding = "assumed"'
    text = f'base = "trn2"\n[chip.name]\n{name}\n[vector.clock_ghz]\n{figure}\n'
    ends = []
    for clock in (1.0, 1.0, 0.5):
        chip.write_text(text.format(clock))
        result = run(path, chip=chip)
        ends.append((result.replayed, result.timeline.makespan_ps))
    assert [replayed for replayed, _ in ends] == [False, True, False]
    assert ends[0][1] == ends[1][1] < ends[2][1]


def test_another_neurosim(tmp_path, monkeypatch):
    path = written(tmp_path)
    run(path)
    with monkeypatch.context() as context:
        context.setattr(shelf, "own_digest", lambda: "another")
        assert [run(path).replayed, run(path).replayed] == [False, True]
    assert not run(path).replayed


def test_source_that_was_edited_while_it_runs(tmp_path, folder, monkeypatch):
    path = written(tmp_path)
    with monkeypatch.context() as context:
        context.setattr(installation, "_LOADED_S", 0.0)
        assert [run(path).replayed, run(path).replayed] == [False, False]
        assert list(folder.glob("*")) == []
    assert [run(path).replayed, run(path).replayed] == [False, True]


@pytest.mark.parametrize(
    "damage", [lambda data: data[:100], lambda data: b"", lambda data: data[:-50] + bytes([data[-50] ^ 1]) + data[-49:]]
)
def test_a_damaged_file_is_written_again(tmp_path, folder, damage, monkeypatch):
    path = written(tmp_path)
    run(path)
    (file,) = folder.iterdir()
    right = file.read_bytes()
    file.write_bytes(damage(right))
    with monkeypatch.context() as context:
        later = time.localtime(time.time() + 3600)
        context.setattr(time, "localtime", lambda *_: later)  # the same bytes at any hour
        assert not run(path).replayed
    assert file.read_bytes() == right
    assert run(path).replayed


def test_a_checksum_alone_does_not_do(tmp_path, folder):
    path = written(tmp_path)
    run(path)
    (file,) = folder.iterdir()
    body = b"no archive"
    file.write_bytes(b"\n".join((shelf.FORMAT, shelf.hashlib.sha256(body).hexdigest().encode(), body)))
    assert [run(path).replayed, run(path).replayed] == [False, True]


def test_short_programs_are_not_kept(tmp_path, folder):
    run(written(tmp_path, steps=10))
    assert not folder.exists()


def test_it_can_be_turned_off(tmp_path, folder, monkeypatch):
    path = written(tmp_path)
    monkeypatch.setenv("NEUROSIM_RECORDINGS", "0")
    assert [run(path).replayed, run(path).replayed] == [False, False]
    assert not folder.exists()
    monkeypatch.delenv("NEUROSIM_RECORDINGS")
    run(path)
    monkeypatch.setenv("NEUROSIM_RECORDINGS", "0")
    assert not run(path).replayed
    monkeypatch.setenv("NEUROSIM_RECORDINGS", "2")
    with pytest.raises(neurosim.errors.ConfigurationError, match="NEUROSIM_RECORDINGS='2' is neither 0 nor 1"):
        run(path)


def test_without_a_place_to_write(tmp_path, monkeypatch):
    path, file = written(tmp_path), tmp_path / "a_file"
    file.write_text("")
    monkeypatch.setattr(SHELF, "_folder", lambda: file / "recordings")
    assert np.array_equal(run(path).outputs["out"], X + 2 * LEAST_RECORDS + 0.5)

    def homeless():
        raise RuntimeError("no home")

    monkeypatch.setattr(SHELF, "_folder", homeless)
    assert not run(path).replayed


def test_files_used_longest_ago_go_first(tmp_path, folder):
    run(written(tmp_path))
    (file,) = folder.iterdir()
    recording = SHELF.get(file.stem, neurosim.load_chip("trn2"))
    size = file.stat().st_size
    small = Shelf(lambda: folder, most_bytes=5 * size)
    for number in range(8):
        small.put(f"{number}", recording)
        os.utime(folder / f"{number}.recording", (number, number))
    assert small.get("2", recording.chip) is None
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 5 * size
    assert {"6.recording", "7.recording"} <= {path.name for path in folder.iterdir()}


def test_values_come_back_as_they_were():
    place = Place(3, 64, nl.bfloat16, (2, 3), (3, 1))
    values = [
        None, True, 1, -(1 << 80), 1.0, 0.1, float("inf"), -0.0, "text", (1, [2.0, "x"]), {"a": (1,), 2: None}, place,
        np.float32(0.1), np.int64(7), nl.float8_e4m3, nl.add, Engine.vector, ReduceCmd.reset, frozenset({1, 2}),
    ]  # fmt: skip
    for value in values:
        found = decoded(encoded(value))
        assert (type(found), found, repr(found)) == (type(value), value, repr(value))
    assert np.isnan(decoded(encoded(float("nan"))))


@pytest.mark.parametrize("value", [object(), X, b"bytes", 1j, Path("."), print, [object()]])
def test_values_without_a_form(value):
    with pytest.raises(NotPlain):
        encoded(value)


@pytest.mark.parametrize(
    "content",
    [
        1, [], {}, {"int": "x"}, {"unknown": 1}, {"member": ["os", "path", "join"]}, {"int": "1", "float": "2"},
        {"member": ["subprocess", "Popen", "x"]}, {"member": ["neurosim.replay.shelf", "os", "x"]},
        {"member": ["neurosim.gone", "A", "x"]}, {"place": [1]}, {"dtype": "float3"}, {"numpy": ["O", "00"]},
        {"dict": [[1]]},
    ],
)  # fmt: skip
def test_content_that_nobody_wrote(content):
    with pytest.raises(Malformed):
        decoded(content)


def test_reading_looks_up_enumerations_alone():
    assert "import_module" not in Path(plain.__file__).read_text()
    assert "pickle" not in Path(shelf.__file__).read_text()
