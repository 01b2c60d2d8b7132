"""Kernels of the legacy dialect: what a replay gives is what a run gives, and what depends on values is run anew."""

from __future__ import annotations

import linecache
import warnings
from pathlib import Path
from random import Random

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand
from neurosim.record.listing import listing
from neurosim.shell.loading import load_module

programs = load_module(Path(__file__).parents[1] / "test_nki" / "legacy_programs.py")
KERNELS = 12


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-5, 6, shape).astype(np.float32)


def written_out(source, name):
    """Return the kernel that a source defines; its statements can be looked up, as those of a file."""
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    names = {"nl": nl, "nisa": nisa, "np": np}
    exec(compile(source, name, "exec"), names)
    return nki.jit(names["kernel"])


def assert_replay_is_run(kernel, *arrays):
    """Replay a kernel on these arrays, recorded on others; return whether it was allowed to."""
    recorded = neurosim.simulate(kernel)(*(array[::-1].copy() for array in arrays))
    again = neurosim.simulate(kernel)(*arrays)
    fresh = neurosim.simulate(kernel, replay=False)(*arrays)
    assert (again.replayed, fresh.replayed) == (not recorded.unreplayable, False)
    assert again.outputs.tobytes() == fresh.outputs.tobytes()
    assert listing(again.program) == listing(fresh.program)
    assert again.program.notes == fresh.program.notes
    assert again.summary() == fresh.summary()
    return again.replayed


@pytest.mark.parametrize("part", range(4))
def test_random_kernels(part):
    assert len(replays(range(part, KERNELS, 4))) >= KERNELS // 4 - 1


@pytest.mark.long
def test_many_random_kernels():
    assert len(replays(range(KERNELS, 1000))) > 800


def replays(seeds):
    """Return the seeds of the random kernels that were replayed."""
    replayed = []
    for seed in seeds:
        kernel = written_out(programs.source_of(Random(seed)), f"<random legacy kernel {seed}>")
        with warnings.catch_warnings(action="ignore"):
            try:
                if assert_replay_is_run(kernel, numbers(*programs.X0), numbers(*programs.X1)):
                    replayed.append(seed)
            except IllegalOperand:
                continue  # a rule that the maker of kernels knows nothing of
    return replayed


def double(a, scale=2.0):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:16]
    tile = nl.load(a[p, f], mask=p < a.shape[0])
    nl.store(out[p, f], value=tile * scale, mask=p < a.shape[0])
    return out


kernel = nki.jit(double)


@nki.jit
def nested(a):
    return kernel(kernel(a), scale=3.0)


@nki.jit
def one_row(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    row = nl.program_id(0)
    nl.store(out[row], nl.load(a[row]))
    return out


@nki.jit
def both_sides(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:16]
    tile = nl.load(a[p, f], mask=p < a.shape[0] and f < a.shape[1])
    nl.store(out[p, f], nl.sigmoid(tile), mask=p < a.shape[0] and f < a.shape[1])
    return out


@pytest.mark.parametrize("kernel", [kernel, nested, one_row[8], both_sides, nki.jit(lambda a: double(a, scale=5.0))])
def test_the_same_as_a_run(kernel):
    assert assert_replay_is_run(kernel, numbers(8, 16))


def test_an_argument_that_is_written():
    @nki.jit
    def into(a, out):
        nl.store(out, nl.load(a) * 2.0)

    for step in range(2):
        a, out = numbers(8, 16, seed=step), np.zeros((8, 16), np.float32)
        assert neurosim.simulate(into)(a, out).replayed == (step == 1)
        np.testing.assert_array_equal(out, a * 2)


def test_other_numbers_grids_and_closures_are_other_launches():
    a = numbers(8, 16)
    assert neurosim.simulate(kernel)(a).outputs[0, 0] == 2 * a[0, 0]
    assert np.array_equal(neurosim.simulate(kernel)(a, scale=3.0).outputs, 3 * a)
    with pytest.warns(UserWarning, match="never fully stored"):
        assert not neurosim.simulate(one_row[4])(a).outputs[4:].any()
    assert np.array_equal(neurosim.simulate(one_row[8])(a).outputs, a)

    def scaled(factor):
        return nki.jit(lambda x: kernel(x, scale=factor))

    for factor in (2.0, 3.0):
        assert np.array_equal(neurosim.simulate(scaled(factor))(a).outputs, factor * a)


@pytest.mark.parametrize("place", [0, 64])
def test_where_a_kernel_places_its_tiles_is_seen(place):
    at = ncc.sbuf.alloc(lambda idx, pdim_size, fdim_size: (0, place))

    @nki.jit
    def placed(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=at)
        tile[...] = nl.load(a)
        nl.store(out, tile)
        return out

    assert assert_replay_is_run(placed, numbers(8, 16))


def test_a_placement_is_more_than_its_text(monkeypatch):
    """Functions that lie where others lay look the same."""
    starts = [0, 64]

    @nki.jit
    def placed(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=at)
        tile[...] = nl.load(a)
        nl.store(out, tile)
        return out

    places = [lambda idx, pdim_size, fdim_size: (0, 0), lambda idx, pdim_size, fdim_size: (0, 64)]
    monkeypatch.setattr(ncc.Placement, "__repr__", lambda self: "a function somewhere")
    found = []
    for place in places:
        at = ncc.sbuf.alloc(place)
        found.append(neurosim.simulate(placed)(numbers(8, 16)))
    assert [result.replayed for result in found] == [False, False]
    assert [result.program.record(1).slots[1][1] for result in found] == starts


@nki.jit
def prints(a):
    tile = nl.load(a)
    nl.device_print("tile", tile)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


@nki.jit
def greets(a):
    nl.device_print("here")
    return kernel(a)


@nki.jit
def looks_inside(a):
    return kernel(a, scale=float(a.root.tensor.array()[0, 0]))


@nki.jit
def leaves_rows(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out[0:4], nl.load(a[0:4]))
    return out


@nki.jit
def gathers(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows = nl.copy(nl.load(a[:, 0:1]), dtype=nl.int32)
    f = nl.arange(16)[None, :]
    nl.store(out, nl.load(a[rows, f]))
    return out


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (prints, "nl.device_print shows values"),
        (greets, "nl.device_print shows values"),
        (looks_inside, "asks for .root"),
        (leaves_rows, "it warns: output was never fully stored"),
        (gathers, "depends on values"),
    ],
)
def test_what_is_run_anew(kernel, reason, capsys):
    a = np.abs(numbers(8, 16)) + 1
    with warnings.catch_warnings(action="ignore"):
        results = [neurosim.simulate(kernel)(array) for array in (a, a, a + 1)]
    assert not any(result.replayed for result in results)
    assert all(reason in result.unreplayable for result in results)
    assert capsys.readouterr().out.count("here") == 3 * (kernel is greets)
