"""``@nki.jit``, ``nki.simulate`` and ``neurosim.simulate``: arguments in, outputs back, nothing left behind."""

from __future__ import annotations

import collections
import json
import pickle
import threading

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import ConfigurationError, IllegalOperand, KernelError, Unsupported

F = np.float32
ARRAY = np.arange(24, dtype=F).reshape(4, 6)


def double(x, factor=2.0):
    """Return x times a factor."""
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    nl.store(out, tile)
    return out


jitted = nki.jit(double)


# -- ways to run ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda x: jitted(x),
        lambda x: nki.jit()(double)(x),
        lambda x: nki.jit(platform_target="trn2")(double)(x),
        lambda x: nki.simulate(jitted)(x),
        lambda x: nki.simulate(double)(x),
        lambda x: jitted[1](x),
        lambda x: nki.simulate(jitted[1])(x),
        lambda x: neurosim.simulate(jitted)(x).outputs,
        lambda x: neurosim.simulate(double, chip="trn2")(x).outputs,
        lambda x: neurosim.simulate(double, "gen3")(x).outputs,
        lambda x: neurosim.profile(jitted, chip=neurosim.load_chip("trn2"))(x).outputs,
        lambda x: jitted(x=x),
        lambda x: jitted(x, factor=2.0),
        lambda x: nki.simulate(jitted)(factor=2, x=x),
        lambda x: nki.jit(mode="simulation")(double)(x),
        lambda x: nki.jit(fn=double)(x),
        lambda x: nki.jit(jitted)(x),
        lambda x: nki.simulate_kernel(jitted, x),
        lambda x: nki.simulate_kernel(double, x, factor=2.0),
        lambda x: nki.baremetal(jitted)(x),
        lambda x: nki.baremetal()(double)(x),
        lambda x: nki.benchmark(jitted)(x),
        lambda x: nki.profile(double)(x),
        lambda x: jitted(**{"x.must_alias_input": x}),
    ],
)
def test_ways_to_run(call):
    got = call(ARRAY)
    assert type(got) is np.ndarray
    np.testing.assert_array_equal(got, ARRAY * 2)


def test_a_kernel_looks_like_its_function():
    assert jitted.__name__ == "double"
    assert jitted.__doc__ == double.__doc__
    assert jitted.__wrapped__ is double
    assert repr(jitted) == "<nki kernel double>"
    assert neurosim.simulate(jitted).__name__ == "double"
    assert neurosim.profile(jitted).__doc__ == double.__doc__


@nki.jit
def at_module_level(x):
    return x


def test_kernels_pickle_by_reference():
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level


def test_kernels_call_kernels():
    @nki.jit
    def twice(x):
        return jitted(jitted(x), factor=3.0)

    result = neurosim.simulate(twice)(ARRAY)
    np.testing.assert_array_equal(result.outputs, ARRAY * 6)
    assert len(result.program) == 6
    assert [frame.function for frame in result.program.where(3)] == ["double", "twice"]


def test_unknown_options():
    with pytest.raises(Unsupported, match=r"nki\.jit: option modus is not built"):
        nki.jit(modus="trace")(double)
    with pytest.raises(IllegalOperand, match="mode=3 is not a string"):
        nki.jit(mode=3)
    with pytest.raises(IllegalOperand, match="3 is no kernel"):
        nki.jit(3)
    with pytest.raises(ConfigurationError, match="unknown chip 'trn9'"):
        nki.jit(platform_target="trn9")


def test_python_checks_the_arguments():
    for call in (lambda: jitted(), lambda: jitted(ARRAY, wrong=1), lambda: jitted(ARRAY, 1.0, 2.0)):
        with pytest.raises(TypeError):
            call()


# -- the chip ---------------------------------------------------------------------------------------------------------


def test_which_chip(monkeypatch):
    """An argument wins, then the environment, then trn2."""

    def generation():
        return nisa.get_nc_version()

    assert neurosim.simulate(generation)().outputs is nisa.nc_version.gen3
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "gen3")
    assert nki.simulate(generation)() is nisa.nc_version.gen3
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn9")
    with pytest.raises(ConfigurationError, match="unknown chip 'trn9'") as caught:
        nki.simulate(generation)()
    assert "known: " in str(caught.value)
    assert "trn2" in str(caught.value)
    assert neurosim.simulate(generation, "trn2")().outputs is nisa.nc_version.gen3


def test_generation_outside_of_a_kernel():
    assert nisa.get_nc_version() is nisa.nc_version.gen3


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    [
        np.float32,
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3,
        ml_dtypes.float8_e5m2,
        np.int8,
        np.uint16,
        bool,
    ],
)
def test_arrays_of_every_dtype(dtype):
    array = np.arange(12).reshape(3, 4).astype(dtype)

    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    got = nki.simulate(kernel)(array)
    assert got.dtype == array.dtype
    assert got.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "array",
    [
        np.asfortranarray(np.arange(24, dtype=F).reshape(4, 6)),
        np.arange(48, dtype=F).reshape(4, 12)[:, ::2],
        np.arange(24, dtype=F).reshape(4, 6)[::-1, ::-1],
        np.broadcast_to(np.arange(6, dtype=F), (4, 6)),
        np.arange(24, dtype=F).reshape(6, 4).T,
    ],
)
def test_arrays_of_any_layout(array):
    before = array.copy()
    np.testing.assert_array_equal(jitted(array), before * 2)
    np.testing.assert_array_equal(array, before)


def test_containers_and_plain_values():
    Pair = collections.namedtuple("Pair", "a b")

    def kernel(arrays, options, pair, *rest, flag, **more):
        kinds = [type(value).__name__ for value in (arrays, options, pair, rest, more)]
        assert flag is True
        assert options["n"] == 3
        assert pair.a == 1
        tensors = [*arrays, options["x"], *rest, more["y"]]
        assert all(isinstance(tensor, nl.NkiTensor) for tensor in tensors)
        assert all(tensor.buffer is nl.hbm is nl.private_hbm for tensor in tensors)
        return kinds, [tensor.name for tensor in tensors]

    kinds, names = nki.simulate(kernel)(
        [ARRAY, ARRAY + 1], {"x": ARRAY + 2, "n": 3}, Pair(1, None), ARRAY + 3, flag=True, y=ARRAY + 4
    )
    assert kinds == ["list", "dict", "Pair", "tuple", "dict"]
    assert names == ["arrays[0]", "arrays[1]", "options['x']", "rest[0]", "more['y']"]


def test_the_same_array_twice_is_one_tensor():
    def kernel(x, y):
        assert x is y
        nl.store(x, nl.ones(x.shape, x.dtype))
        return y

    array = ARRAY.copy()
    np.testing.assert_array_equal(nki.simulate(kernel)(array, array), np.ones((4, 6)))
    np.testing.assert_array_equal(array, np.ones((4, 6)))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros((4, 4)), r"argument x is float64, which is not an NKI dtype"),
        (np.zeros((4, 4), np.int64), "argument x is int64"),
        (np.zeros((4, 4), complex), "argument x is complex128"),
        (np.array([["a"]]), "argument x is <U1"),
        (np.zeros((4, 4), ">f4"), "argument x is >f4"),
        (np.zeros((0, 4), F), r"argument x \[0, 4\] float32 has no elements"),
        (np.zeros((4, 0), F), r"argument x \[4, 0\] float32 has no elements"),
        (np.array(1.0, F), r"argument x \[\] float32 has no axes"),
        ([np.zeros((4, 4))], r"argument x\[0\] is float64"),
    ],
)
def test_arrays_that_are_refused(value, message):
    """An empty tensor, and dtypes that NKI does not have: the argument is named, and what to do."""
    with pytest.raises(IllegalOperand, match=message) as caught:
        nki.simulate(lambda x: None)(value)
    assert caught.value.advice


# -- outputs ----------------------------------------------------------------------------------------------------------


def test_outputs_keep_their_containers():
    def kernel(x):
        a, b = double(x), double(x, 3.0)
        return [a, (b, None)], {"a": a, "n": 5}

    (a, (b, nothing)), named = nki.simulate(kernel)(ARRAY)
    np.testing.assert_array_equal(a, ARRAY * 2)
    np.testing.assert_array_equal(b, ARRAY * 3)
    assert nothing is None
    assert named["n"] == 5
    np.testing.assert_array_equal(named["a"], a)


def test_an_unchanged_input_is_returned_as_a_copy():
    got = nki.simulate(lambda x: x)(ARRAY)
    np.testing.assert_array_equal(got, ARRAY)
    assert not np.shares_memory(got, ARRAY)


def test_outputs_are_writable_and_last():
    got = jitted(ARRAY)
    again = jitted(ARRAY)
    got[...] = 0
    np.testing.assert_array_equal(again, ARRAY * 2)


# -- in place ---------------------------------------------------------------------------------------------------------


def increment(x, rows=slice(None)):
    tile = nl.load(x[rows])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nl.store(x[rows], tile)


@pytest.mark.parametrize(
    "array",
    [
        ARRAY.copy(),
        np.asfortranarray(ARRAY),
        np.arange(48, dtype=F).reshape(4, 12)[:, ::2],
        ARRAY.copy()[::-1],
        ARRAY.astype(ml_dtypes.bfloat16),
        ARRAY.astype(np.int32),
    ],
)
def test_inputs_written_in_place_update_the_callers_array(array):
    before = array.copy()
    nki.simulate(increment)(array)
    np.testing.assert_array_equal(array.astype(F), before.astype(F) + 1)


def test_a_part_written_in_place():
    array = ARRAY.copy()
    nki.simulate(increment)(array, rows=slice(1, 3))
    expected = ARRAY.copy()
    expected[1:3] += 1
    np.testing.assert_array_equal(array, expected)


def test_in_place_and_returned():
    def kernel(x):
        increment(x)
        return x

    array = ARRAY.copy()
    np.testing.assert_array_equal(nki.simulate(kernel)(array), ARRAY + 1)
    np.testing.assert_array_equal(array, ARRAY + 1)


def test_reads_see_what_was_written_in_place():
    def kernel(x):
        increment(x)
        return double(x)

    np.testing.assert_array_equal(nki.simulate(kernel)(ARRAY.copy()), (ARRAY + 1) * 2)


def test_a_failing_kernel_changes_nothing():
    def kernel(x):
        increment(x)
        raise RuntimeError("mine")

    array = ARRAY.copy()
    with pytest.raises(RuntimeError, match="mine"):
        nki.simulate(kernel)(array)
    np.testing.assert_array_equal(array, ARRAY)


def test_arrays_inside_containers_are_updated_too():
    arrays = [ARRAY.copy(), ARRAY.copy()]
    nki.simulate(lambda given: increment(given["x"][1]))({"x": arrays})
    np.testing.assert_array_equal(arrays[0], ARRAY)
    np.testing.assert_array_equal(arrays[1], ARRAY + 1)


# -- results ----------------------------------------------------------------------------------------------------------


def test_a_result_has_everything():
    result = neurosim.profile(jitted)(ARRAY)
    assert isinstance(result, neurosim.Result)
    assert repr(result) == "Result(double on trn2, 3 instructions)"
    assert list(result.timelines) == [0]
    assert result.timeline is result.timelines[0]
    assert result.timeline.makespan_ps > 0
    assert json.loads(json.dumps(result.summary())) == result.summary()
    assert "double" in result.report()


def test_timing_belongs_to_the_program():
    """I9: timing the same program twice is the same, and does not depend on the wall clock."""
    spans = {neurosim.profile(jitted)(ARRAY).timeline.makespan_ps for _ in range(3)}
    assert len(spans) == 1


def test_busy_stalls_and_idle_make_the_makespan():
    timeline = neurosim.profile(jitted)(ARRAY).timeline
    names = {"tensor", "vector", "scalar", "gpsimd", "sync", *(f"dma{index}" for index in range(16))}
    assert set(timeline.engines) == names
    for account in timeline.engines.values():
        assert account.busy_ps >= 0
        assert account.idle_ps >= 0
        assert min(account.stall_ps.values()) >= 0
        assert account.busy_ps + sum(account.stall_ps.values()) + account.idle_ps == timeline.makespan_ps


# -- nothing is left behind -------------------------------------------------------------------------------------------


def test_after_an_exception_the_next_run_is_clean():
    """J4: in Pallas the user must reset global state; here there is none."""
    with pytest.raises(ZeroDivisionError):
        nki.simulate(lambda x: 1 // 0)(ARRAY)
    with pytest.raises(KernelError, match="outside of a kernel"):
        nl.ndarray((4, 4), nl.float32)
    np.testing.assert_array_equal(jitted(ARRAY), ARRAY * 2)


def test_changed_globals_are_seen():
    """J7: nothing is cached between runs."""
    box = {"factor": 2.0}
    kernel = nki.jit(lambda x: double(x, box["factor"]))
    np.testing.assert_array_equal(kernel(ARRAY), ARRAY * 2)
    box["factor"] = 5.0
    np.testing.assert_array_equal(kernel(ARRAY), ARRAY * 5)


def test_kernels_in_threads():
    """J4: two kernels at once do not see each other."""
    barrier = threading.Barrier(4)
    found = {}

    def kernel(x, factor):
        barrier.wait(300)
        out = double(x, factor)
        barrier.wait(300)
        return out

    def work(factor):
        result = neurosim.simulate(kernel)(ARRAY, factor)
        found[factor] = (result.outputs, len(result.program))

    threads = [threading.Thread(target=work, args=(float(factor),)) for factor in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    for factor in range(4):
        outputs, length = found[factor]
        np.testing.assert_array_equal(outputs, ARRAY * factor)
        assert length == 3


def test_a_tensor_of_another_run_is_refused():
    """A tensor that a kernel kept is dead in the next one: its storage is in no record."""
    kept = {}

    def first(x):
        kept["tile"] = nl.load(x)

    nki.simulate(first)(ARRAY)
    with pytest.raises(KernelError, match="another run"):
        nki.simulate(lambda x: nl.store(x, kept["tile"]))(ARRAY.copy())
