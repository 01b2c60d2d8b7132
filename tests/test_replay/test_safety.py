"""What must not be replayed: anything that depends on values, on what changes, or that others see."""

from __future__ import annotations

import enum
import functools
import math
import operator
import random
import sys
import threading
import time
import types
import warnings
from dataclasses import dataclass

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import ConfigurationError, IllegalOperand, Uninitialized
from neurosim.replay import LIBRARY

X = np.arange(8 * 16, dtype=np.float32).reshape(8, 16)
SCALE = 2.0
TABLE = [1.0, 2.0]
ARRAY = np.ones((8, 16), np.float32)
holder = types.SimpleNamespace(scale=1.0)


@pytest.fixture(autouse=True)
def _empty_library():
    LIBRARY.clear()
    yield
    LIBRARY.clear()


def scaled(x, factor):
    """What the kernels here do in the end."""
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def runs(kernel, *arguments, times=2, **options):
    return [neurosim.simulate(kernel, **options)(*(arguments or (X,))) for _ in range(times)]


def assert_replays(kernel, *arguments):
    first, second = runs(kernel, *arguments)
    assert (first.unreplayable, second.replayed) == ("", True)
    assert np.array_equal(first.outputs, second.outputs)


def assert_runs(kernel, reason, *arguments):
    """The kernel's Python runs each time, and the result says why."""
    for result in runs(kernel, *arguments, times=3):
        assert not result.replayed
        assert reason in result.unreplayable


# --- what Python sees


def by_global(x):
    return scaled(x, SCALE)


def by_list(x):
    return scaled(x, TABLE[0])


def by_holder(x):
    return scaled(x, holder.scale)


@pytest.mark.parametrize("kernel", [by_global, by_list, by_holder])
def test_a_changed_global_is_seen(kernel, monkeypatch):
    assert_replays(kernel)
    before = runs(kernel, times=1)[0].outputs
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 5.0)
    monkeypatch.setattr(holder, "scale", 5.0)
    monkeypatch.setattr(sys.modules[__name__], "TABLE", [5.0, 2.0])
    after = runs(kernel)
    assert [result.replayed for result in after] == [False, True]
    assert all(np.array_equal(result.outputs, 5 * X) for result in after)
    assert not np.array_equal(before, after[0].outputs)


def test_a_changed_closure_is_seen():
    factor = 2.0

    def kernel(x):
        return scaled(x, factor)

    assert_replays(kernel)
    factor = 3.0
    results = runs(kernel)
    assert [result.replayed for result in results] == [False, True]
    assert np.array_equal(results[1].outputs, 3 * X)


def test_equal_kernels_are_one():
    def make(factor):
        return lambda x: scaled(x, factor)

    assert not runs(make(2.0), times=1)[0].replayed
    assert runs(make(2.0), times=1)[0].replayed
    assert not runs(make(2), times=1)[0].replayed  # an int is another parameter
    assert np.array_equal(runs(make(7.0), times=1)[0].outputs, 7 * X)


def test_a_changed_callee_is_seen(monkeypatch):
    assert_replays(by_global)
    monkeypatch.setattr(sys.modules[__name__], "scaled", lambda x, factor: x_plus(x))
    assert np.array_equal(runs(by_global, times=1)[0].outputs, X + 1)


def x_plus(x):
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_a_callee_in_another_module_is_seen(monkeypatch):
    other = types.ModuleType("other_module_of_a_test")
    exec("import nki.language as nl\nFACTOR = 2.0\ndef factor():\n    return FACTOR\n", vars(other))
    monkeypatch.setitem(sys.modules, other.__name__, other)

    def kernel(x):
        return scaled(x, other.factor())

    assert runs(kernel, times=1)[0].unreplayable  # a module in a closure is a value
    namespace = dict(globals(), other=other)
    exec("def kernel(x):\n    return scaled(x, other.factor())\n", namespace)
    assert_replays(namespace["kernel"])
    other.FACTOR = 4.0
    assert np.array_equal(runs(namespace["kernel"], times=1)[0].outputs, 4 * X)
    exec("def factor():\n    return 6.0\n", vars(other))
    assert np.array_equal(runs(namespace["kernel"], times=1)[0].outputs, 6 * X)


def test_defaults_and_attributes_of_functions_are_seen():
    def kernel(x, factor=2.0):
        return scaled(x, factor)

    assert_replays(kernel)
    kernel.__defaults__ = (3.0,)
    assert np.array_equal(runs(kernel, times=1)[0].outputs, 3 * X)
    kernel.note = 1
    assert not runs(kernel, times=1)[0].replayed


def test_a_hidden_builtin_is_seen(monkeypatch):
    def kernel(x):
        return scaled(x, float(max(1, 2)))

    assert_replays(kernel)
    monkeypatch.setattr(sys.modules[__name__], "max", min, raising=False)
    assert np.array_equal(runs(kernel, times=1)[0].outputs, X)


def test_a_replaced_function_of_nki_is_seen(monkeypatch):
    assert_replays(by_global)
    monkeypatch.setattr(nl, "multiply", nl.add)
    assert np.array_equal(runs(by_global, times=1)[0].outputs, X + 2)


def test_a_replaced_rule_is_seen(monkeypatch):
    def refuse(self, chip):
        raise IllegalOperand("not today", advice="wait")
        yield

    assert_replays(by_global)
    monkeypatch.setattr(nisa.tensor_scalar.instruction, "rules", refuse)
    with pytest.raises(IllegalOperand, match="not today"):
        runs(by_global, times=1)


class Config:
    factor = 2.0

    @staticmethod
    def twice(value):
        return value * 2


class Mode(enum.Enum):
    SLOW = 1.0
    FAST = 4.0


@dataclass(frozen=True)
class Options:
    factor: float
    mode: Mode = Mode.SLOW

    def total(self):
        return self.factor * self.mode.value


def test_classes_are_looked_into(monkeypatch):
    def kernel(x):
        return scaled(x, Config.twice(Config.factor))

    assert_replays(kernel)
    monkeypatch.setattr(Config, "factor", 3.0)
    assert np.array_equal(runs(kernel, times=1)[0].outputs, 6 * X)
    monkeypatch.setattr(Config, "twice", staticmethod(lambda value: value * 3))
    assert np.array_equal(runs(kernel, times=1)[0].outputs, 9 * X)


def test_objects_as_arguments_are_looked_into(monkeypatch):
    def kernel(x, options):
        return scaled(x, options.total())

    assert_replays(kernel, X, Options(2.0))
    assert np.array_equal(runs(kernel, X, Options(2.0, Mode.FAST))[1].outputs, 8 * X)
    assert np.array_equal(runs(kernel, X, Options(3.0))[1].outputs, 3 * X)
    monkeypatch.setattr(Options, "total", lambda self: 10.0)
    assert np.array_equal(runs(kernel, X, Options(3.0), times=1)[0].outputs, 10 * X)


def test_pure_python_is_replayed():
    def kernel(x):
        sizes = sorted({"a": 3, "b": 2}.values())
        total = sum(math.sqrt(size * size) for size in sizes if isinstance(size, int))
        total += functools.reduce(lambda left, right: left + right, map(int, ["1", "2"]), 0)
        return scaled(x, total + float(np.prod((2, 3))))

    assert_replays(kernel)
    assert np.array_equal(runs(kernel, times=1)[0].outputs, 14 * X)


# --- what has to run each time


def test_counting_is_not_lost():
    calls = []

    def kernel(x):
        calls.append(len(calls))
        return scaled(x, 2.0)

    assert_runs(kernel, "changes what it")
    assert calls == [0, 1, 2]


def test_a_global_that_is_assigned_to():
    def kernel(x):
        global SCALE
        SCALE = SCALE + 0
        return scaled(x, SCALE)

    assert_runs(kernel, "assigns to a global")


def test_a_list_argument_that_is_changed():
    def kernel(x, log):
        log.append(1)
        return scaled(x, 2.0)

    log = []
    results = [neurosim.simulate(kernel)(X, log) for _ in range(2)]  # a run hands over a copy
    assert log == []
    assert results[1].replayed


def test_printing_is_not_lost(capsys):
    def kernel(x):
        print("here")  # noqa: T201 (a kernel may)
        return scaled(x, 2.0)

    assert_runs(kernel, "print(…)")
    assert capsys.readouterr().out == "here\n" * 3


def test_values_that_are_shown(capsys):
    def kernel(x):
        nl.device_print("x", x)
        return scaled(x, 2.0)

    assert_runs(kernel, "nl.device_print shows values")
    assert capsys.readouterr().out.count("[") > 3

    def names_by_value(x):
        tile = nl.load(x)
        return scaled(x, float(len(str(tile))))

    assert_runs(names_by_value, "shows the values")


def test_a_value_read_from_the_inside():
    def kernel(x):
        return scaled(x, float(x.array()[0, 1]))

    assert_runs(kernel, "asks for .array")

    def by_frame(x):
        return scaled(x, float((lambda: 0).__globals__["SCALE"]))

    assert_runs(by_frame, "asks for .__globals__")


def test_ways_around_the_names_of_attributes():
    def by_format(x):
        return scaled(x, float(len("{0.allocation.storage.buffer}".format(nl.load(x)))))  # noqa: UP030, UP032

    def by_getter(x):
        return scaled(x, float(operator.attrgetter("allocation.storage.buffer")(x)[5]))

    def by_function(x):
        return scaled(x, float(next(map(nl.NkiTensor.array, [x]))[0, 1]))

    def by_pattern(x):
        match x:
            case nl.NkiTensor(allocation=found):
                return scaled(x, float(found is not None))

    assert_runs(by_format, "asks for .format")
    assert_runs(by_getter, "attrgetter")
    assert_runs(by_function, "asks for .array")
    assert_runs(by_pattern, "matches an object's attributes")


def test_an_error_that_the_kernel_catches():
    """What raised for some values does not for others, and Python goes another way."""

    def kernel(x):
        tile = nl.ndarray((32, 64), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        packed = nl.ndarray((32, 16), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        scales = nl.ndarray((32, 16), dtype=nl.uint8, buffer=nl.sbuf)
        factor = 1.0
        try:
            nisa.quantize_mx(dst=packed, src=tile, dst_scale=scales)
        except Exception:
            factor = 2.0
        return scaled(x, factor)

    x = np.ones((32, 64), "bfloat16")
    x[3, 3] = np.inf
    first = neurosim.simulate(kernel, "trn3")(x)
    assert float(first.outputs[0, 0]) == 2
    assert first.unreplayable == "quantize_mx raised an error, which the kernel caught"
    x[3, 3] = 1
    for _ in range(2):
        assert float(neurosim.simulate(kernel, "trn3")(x).outputs[0, 0]) == 1
    x[3, 3] = np.inf
    assert float(neurosim.simulate(kernel, "trn3")(x).outputs[0, 0]) == 2


def test_random_numbers_are_those_of_a_run():
    def kernel(x):
        tile, numbers = nl.load(x), nl.rand(x.shape, nl.float32)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=numbers, op=nl.add)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    assert_replays(kernel)
    assert not np.array_equal(neurosim.simulate(kernel)(X).outputs, X)


@pytest.mark.parametrize("memory", ["sbuf", "psum"])
def test_tensors_with_addresses(memory):
    def kernel(x):
        out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        for place in range(2):
            first = nl.ndarray(x.shape, dtype=x.dtype, buffer=getattr_of(memory), address=(0, 0))
            second = nl.ndarray(x.shape, dtype=x.dtype, buffer=getattr_of(memory), address=(0, 64))
            loaded = nl.load(x)
            nisa.tensor_copy(dst=first, src=loaded)
            nisa.tensor_scalar(dst=second, data=first, op0=nl.add, operand0=float(place + 1))
            stored = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=stored, src=second)
            nisa.dma_copy(dst=out[place], src=stored)
        return out

    results = runs(kernel)
    assert np.array_equal(results[1].outputs, np.stack([X + 1, X + 2]))
    if memory == "sbuf":
        assert results[1].replayed
    else:
        assert "addresses" in results[1].unreplayable


def getattr_of(memory):
    return nl.sbuf if memory == "sbuf" else nl.psum


def test_time_chance_and_files():
    def by_time(x):
        return scaled(x, float(time.time() > 0))

    def by_chance(x):
        return scaled(x, random.random())

    def by_numpy(x):
        return scaled(x, float(np.random.rand()))

    def by_file(x):
        with open(__file__) as file:
            return scaled(x, float(len(file.read())))

    def by_import(x):
        import os

        return scaled(x, float(len(os.environ)))

    assert_runs(by_time, "time.time(…)")
    assert_runs(by_chance, "random.random(…)")
    assert_runs(by_numpy, "RandomState, whose state is not known")
    assert_runs(by_file, "open(…)")
    assert_runs(by_import, "imports a module")


def test_an_iterator_that_is_used_up():
    factors = iter([2.0, 3.0, 4.0])

    def kernel(x):
        return scaled(x, next(factors))

    results = runs(kernel, times=3)
    assert [bool(result.unreplayable) for result in results] == [True] * 3
    assert [float(result.outputs[0, 1]) for result in results] == [2.0, 3.0, 4.0]


def test_an_address_that_depends_on_values():
    def kernel(x, index):
        chosen = nl.load(index)
        tile = nl.ndarray((4, 16), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x.vector_select(0, chosen))
        out = nl.ndarray((4, 16), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    for rows in ([0, 1, 2, 3], [7, 6, 5, 4]):
        index = np.array(rows, np.int32).reshape(4, 1)
        result = neurosim.simulate(kernel)(X, index)
        assert "depends on values" in result.unreplayable
        assert np.array_equal(result.outputs, X[rows])


def test_elements_that_a_predicate_chooses():
    def kernel(x, chosen):
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy_predicated(dst=tile, src=nl.load(x), predicate=nl.load(chosen))
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    everything = np.ones(X.shape, np.uint8)
    results = [neurosim.simulate(kernel)(X, everything) for _ in range(2)]
    assert "which was not written before" in results[1].unreplayable
    everything[3, 3] = 0
    with pytest.raises(Uninitialized):
        neurosim.simulate(kernel)(X, everything)


def test_a_predicate_over_what_is_written_replays():
    def kernel(x, chosen):
        tile = nl.zeros(x.shape, x.dtype)
        nisa.tensor_copy_predicated(dst=tile, src=nl.load(x), predicate=nl.load(chosen))
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    chosen = np.ones(X.shape, np.uint8)
    neurosim.simulate(kernel)(X, chosen)
    chosen[3, 3] = 0
    result = neurosim.simulate(kernel)(X, chosen)
    assert result.replayed
    assert np.array_equal(result.outputs, X * chosen)


def test_registers_and_loops_on_the_device():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

        def body(i):
            nisa.dma_copy(dst=out[nl.ds(i, 1), :], src=nl.load(x[nl.ds(i, 1), :]))

        nl.fori_loop(0, 8, body)
        return out

    assert_runs(kernel, "register")


def test_a_kernel_within_a_kernel():
    inner = neurosim.simulate(by_global)

    def kernel(x):
        inner(ARRAY)
        return scaled(x, 2.0)

    assert all(not result.replayed and result.unreplayable for result in runs(kernel))


def test_a_warning_is_given_each_time():
    def kernel(x):
        tile = nl.load(x)
        nisa.tensor_copy(dst=tile, src=tile, dtype=nl.bfloat16)
        return scaled(x, 2.0)

    for _ in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = neurosim.simulate(kernel)(X)
        assert len(caught) == 1
        assert "it warns" in result.unreplayable


def test_a_debugger_sees_each_run():
    lines = []

    def trace(frame, event, _):
        if frame.f_code is by_global.__code__:
            lines.append(event)
        return trace

    assert_replays(by_global)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = neurosim.simulate(by_global)(X)
    finally:
        sys.settrace(before)
    assert not result.replayed
    assert "line" in lines


def test_what_takes_too_long_to_look_through():
    many, large = list(range(30_000)), np.zeros(1 << 19)

    def by_list(x):
        return scaled(x, float(many[2]))

    def by_array(x):
        return scaled(x, float(large[2] + 2))

    assert_runs(by_list, "more than 20000 values, such as an entry of many")
    assert_runs(by_array, "an array of 4 MiB")


# --- how runs differ


def test_other_arguments_are_other_launches():
    assert_replays(by_global)
    for other in (X.astype(np.float16), X[:4].copy(), X.reshape(16, 8)):
        assert [result.replayed for result in runs(by_global, other)] == [False, True]


def test_one_array_twice_is_another_launch():
    def kernel(x, y):
        tile, other = nl.load(x), nl.load(y)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=other, op=nl.add)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    run = neurosim.simulate(kernel)
    assert [run(X, X).replayed, run(X, ARRAY).replayed, run(X, X).replayed] == [False, False, True]
    assert np.array_equal(run(X, ARRAY).outputs, X + 1)


def in_place(x):
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=x, src=tile)
    return x


def test_inputs_written_in_place():
    for step in range(3):
        x = X.copy()
        result = neurosim.simulate(in_place)(x)
        assert result.replayed == (step > 0)
        assert np.array_equal(x, X + 1)
        assert np.array_equal(result.outputs, X + 1)
    frozen = X.copy()
    frozen.flags.writeable = False
    assert np.array_equal(neurosim.simulate(in_place)(frozen).outputs, X + 1)
    assert np.array_equal(frozen, X)


def test_arguments_that_share_memory_are_refused_each_time():
    def kernel(x, y):
        in_place(x)
        return scaled(y, 2.0)

    run = neurosim.simulate(kernel)
    run(X.copy(), X.copy())
    assert run(X.copy(), X.copy()).replayed
    both = np.zeros((9, 16), np.float32)
    with pytest.raises(IllegalOperand, match="share memory"):
        run(both[:8], both[1:])


def test_outputs_are_ones_own():
    first, second, third = runs(by_global, times=3)
    second.outputs[...] = 0
    assert np.array_equal(first.outputs, third.outputs)


def test_chip_options_and_environment(monkeypatch):
    def replayed(**options):
        return neurosim.simulate(by_global, **options)(X).replayed

    assert [replayed(), replayed()] == [False, True]
    chip = neurosim.load_chip("trn2").replace(**{"vector.clock_ghz": 1.0})
    for options in ({"chip": "trn1"}, {"chip": chip}, {"nki_version": "0.4"}, {"precise": False}):
        assert [replayed(**options), replayed(**options)] == [False, True]
    monkeypatch.setenv("NEURON_RT_STOCHASTIC_ROUNDING_EN", "1")
    assert [replayed(), replayed()] == [False, True]
    monkeypatch.setenv("NEURON_RT_STOCHASTIC_ROUNDING_SEED", "5")
    assert [replayed(), replayed()] == [False, True]
    monkeypatch.setenv("NEUROSIM_NKI_VERSION", "0.5")
    assert [replayed(), replayed()] == [False, True]


def test_it_can_be_turned_off(monkeypatch):
    assert [result.replayed for result in runs(by_global, replay=False)] == [False, False]
    assert len(LIBRARY) == 0
    monkeypatch.setenv("NEUROSIM_REPLAY", "0")
    results = runs(by_global)
    assert [(result.replayed, result.unreplayable) for result in results] == [(False, "replays are off")] * 2
    assert [result.replayed for result in runs(by_global, replay=True)] == [False, True]
    monkeypatch.setenv("NEUROSIM_REPLAY", "maybe")
    with pytest.raises(ConfigurationError, match="NEUROSIM_REPLAY='maybe' is neither 0 nor 1"):
        runs(by_global)
    with pytest.raises(IllegalOperand, match="replay=1 is not a bool"):
        neurosim.simulate(by_global, replay=1)


def test_errors_are_those_of_a_run():
    def kernel(x):
        tile = nl.load(x)
        packed = nl.ndarray((32, 16), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        scales = nl.ndarray((32, 16), dtype=nl.uint8, buffer=nl.sbuf)
        nisa.quantize_mx(dst=packed, src=tile, dst_scale=scales)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    x = np.ones((32, 64), "bfloat16")
    run = neurosim.simulate(kernel, "trn3")
    run(x)
    x[3, 3] = np.inf
    texts = []
    for simulated in (run, neurosim.simulate(kernel, "trn3", replay=False)):
        with pytest.raises(neurosim.errors.UnknownBehavior) as raised:
            simulated(x)
        texts.append(str(raised.value))
    assert texts[0] == texts[1]
    assert "test_safety.py" in texts[0]
    assert run(np.ones((32, 64), "bfloat16")) is not None


def test_threads_replay_side_by_side():
    assert_replays(by_global)
    found = []

    def work(factor):
        for _ in range(20):
            result = neurosim.simulate(by_global)(X * factor)
            found.append(np.array_equal(result.outputs, 2 * X * factor))

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (1, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 60


def test_a_handle_that_outlives_its_run():
    kept = []

    def kernel(x):
        tile = nl.load(x)
        kept[:] = [nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)]
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    assert all(not result.replayed for result in runs(kernel))  # it changes what it holds


def test_what_is_done_to_a_result_stays_there():
    first, second = runs(by_global)
    for result in (first, second):
        result.timelines.clear()
        result.program.edges.append((1, 0))
        result.program.storages.append(result.program.storages[0])
        result.program.notes["note"] = "mine"
    third = neurosim.simulate(by_global)(X)
    fresh = neurosim.simulate(by_global, replay=False)(X)
    assert third.replayed
    assert (third.program.edges, third.program.notes) == ([], {})
    assert third.program.storages == fresh.program.storages
    assert third.timeline.makespan_ps == fresh.timeline.makespan_ps
