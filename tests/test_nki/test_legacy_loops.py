"""``affine_range``: iterations that need each other are refused, reductions and what only looks like it are not."""

import weakref
from pathlib import Path

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand, LoopCarriedDependence, Unsupported
from neurosim.record.listing import listing


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def scan(loop):
    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ones = nl.ones((8, 16), dtype=a.dtype)
        init = nl.zeros((8, 1), dtype=a.dtype)
        for i in loop(a.shape[1] // 16):
            x = nl.load(a[:, nl.ds(i * 16, 16)])
            y = nisa.tensor_tensor_scan(ones, x, initial=init, op0=np.multiply, op1=np.add)
            nl.store(out[:, nl.ds(i * 16, 16)], y)
            init[:, :] = y[:, 15]
        return out

    return kernel


def test_a_scan_needs_its_order():
    a = numbers(8, 64)
    np.testing.assert_allclose(scan(nl.sequential_range)(a), np.cumsum(a, axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scan(nl.static_range)(a), np.cumsum(a, axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(scan(range)(a), np.cumsum(a, axis=1), rtol=1e-4, atol=1e-5)
    assert scan(nl.affine_range)(a[:, :16]).shape == (8, 16)  # one iteration needs no other
    with pytest.raises(LoopCarriedDependence) as caught:
        scan(nl.affine_range)(a)
    text = str(caught.value)
    lines = Path(__file__).read_text(encoding="utf-8").split("\n")
    reader = next(at for at, line in enumerate(lines, 1) if "nisa.tensor_tensor_scan(ones" in line)
    writer = next(at for at, line in enumerate(lines, 1) if "init[:, :] = y[:, 15]" in line)
    assert f"test_legacy_loops.py:{reader}" in text
    assert f"test_legacy_loops.py:{writer}" in text.split("written at")[1]
    assert "use nl.sequential_range" in text


def test_a_precise_schedule_keeps_the_order_of_iterations():
    def precise(extent):
        return nl.affine_range(extent, precise_schedule=True)

    def imprecise(extent):
        return nl.affine_range(extent, precise_schedule=False)

    def within(extent):
        return (i for _ in precise(1) for i in nl.affine_range(extent))

    a = numbers(8, 64)
    np.testing.assert_array_equal(scan(precise)(a), scan(nl.sequential_range)(a))
    for loop in (imprecise, within):
        with pytest.raises(LoopCarriedDependence):
            scan(loop)(a)


@nki.jit
def in_hbm(a, distance):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out[0], nl.load(a[0]))
    for i in nl.affine_range(a.shape[0] - 1):
        before = nl.load(out[i + 1 - distance])
        nl.store(out[i + 1], before + nl.load(a[i + 1]))
    return out


def test_through_hbm():
    with pytest.raises(LoopCarriedDependence, match=r"nl\.load reads"):
        in_hbm(numbers(4, 8, 8), 1)


@nki.jit
def reductions(a):
    out = nl.ndarray((3, *a.shape[1:]), dtype=a.dtype, buffer=nl.shared_hbm)
    total = nl.zeros(a.shape[1:], dtype=a.dtype)
    largest = nl.full(a.shape[1:], -1e30, dtype=a.dtype)
    last = nl.ndarray((nl.par_dim(a.shape[1]), a.shape[2]), dtype=a.dtype)
    for i in nl.affine_range(a.shape[0]):
        x = nl.load(a[i])
        total += x
        largest[...] = nl.loop_reduce(x, op=np.max, loop_indices=[i], dtype=nl.float32)
        last[...] = x * 2.0
        nl.store(out[2], last)
    nl.store(out[0], total)
    nl.store(out[1], largest)
    return out


def test_reductions_and_reused_tiles_are_no_dependence():
    a = numbers(5, 8, 16)
    found = reductions(a)
    np.testing.assert_allclose(found[0], a.sum(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[1], a.max(axis=0))
    np.testing.assert_array_equal(found[2], a[-1] * np.float32(2))


@nki.jit
def early(a):
    """What is made before a loop and first used in it belongs before it."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ones = nl.ones(a.shape[1:], dtype=a.dtype)
    x = nl.load(a[0])
    for i in nl.affine_range(a.shape[0]):
        for _ in nl.affine_range(2):
            y = nl.add(x, ones)
        nl.store(out[i], y)
        if i == 2:
            break
    nl.store(out[3], nl.load(out[2]))
    return out


def test_what_waits_counts_where_it_was_called():
    a = numbers(4, 8, 8)
    np.testing.assert_array_equal(early(a), np.broadcast_to(a[0] + 1, a.shape))


@nki.jit
def columns(a, shift):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((nl.par_dim(8), a.shape[1]), dtype=a.dtype)
    x = nl.load(a)
    t[:, 0:1] = x[:, 0:1]
    for i in nl.affine_range(a.shape[1] - 1):
        t[:, i + 1] = nl.copy(x[:, i + 1])
        nl.store(out[:, nl.ds(i + 1, 1)], t[:, nl.ds(i + 1 - shift, 1)])
    nl.store(out[:, 0:1], t[:, 0:1])
    return out


@pytest.mark.parametrize("count", [8, 80])
def test_regions_are_told_apart(count):
    a = numbers(8, count)
    np.testing.assert_array_equal(columns(a, 0), a)
    with pytest.raises(LoopCarriedDependence):
        columns(a, 1)


@nki.jit
def ordered(a, directive):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.sequential_range(2, directives=directive):
        nl.store(out[i], nl.exp(nl.load(a[i])))
    return out


def test_directives_of_loops():
    a = numbers(2, 8, 8)
    free = neurosim.simulate(ordered)(a, ncc.multi_buffer(2)).program
    kept = neurosim.simulate(ordered)(a, ncc.no_reorder()).program
    assert not free.edges
    assert len(kept.edges) == len(kept) - 1 == 5
    with pytest.raises(IllegalOperand, match="directives="):
        ordered(a, "no_reorder")


def test_loop_reduce_onto_a_name():
    @nki.jit
    def kernel(a):
        b = nl.zeros((8, 8), dtype=nl.float32)
        for i in nl.affine_range(3):
            b = nl.loop_reduce(nl.load(a), op=np.add, loop_indices=[i], name="gathering")
        return b

    result = neurosim.simulate(kernel)(numbers(8, 8))
    np.testing.assert_array_equal(result.outputs, 3 * numbers(8, 8))
    assert listing(result.program).count("gathering") == 3


def test_loop_reduce_needs_its_tile():
    @nki.jit
    def kernel(a):
        for i in nl.affine_range(2):
            b = nl.loop_reduce(nl.load(a), op=np.add, loop_indices=[i])
        return b

    with pytest.raises(Unsupported, match=r"write tile\[\.\.\.\] = nl.loop_reduce"):
        kernel(numbers(8, 8))


@pytest.mark.parametrize("loop", [nl.affine_range, nl.sequential_range])
def test_bytes_of_a_tile_are_free_once_no_variable_holds_it(loop):
    made = []

    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for i in loop(4):
            x = nl.ndarray((nl.par_dim(8), 16), dtype=a.dtype, buffer=nl.sbuf)
            x[:, 0:8] = nl.load(a[:, nl.ds(i * 16, 8)])  # binds a result to a part of a tile
            x[:, 8:16] = nl.load(a[:, nl.ds(i * 16 + 8, 8)])
            y = nl.add(x, x)
            made.extend(weakref.ref(view.resolve("test").allocation.storage) for view in (x, y))
            nl.store(out[:, nl.ds(i * 16, 16)], y)
        del x, y
        assert not any(storage() for storage in made)
        return out

    np.testing.assert_array_equal(kernel(numbers(8, 64)), 2 * numbers(8, 64))
    assert len(made) == 8
