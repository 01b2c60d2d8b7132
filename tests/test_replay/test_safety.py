"""What must not be replayed: anything that depends on values, on what changes, or that others see."""

from __future__ import annotations

import operator
import random
import sys
import time
import warnings
from pathlib import Path

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import Uninitialized
from neurosim.shell.loading import load_module

load_module(Path(__file__).parent / "launching.py")  # puts this folder on the path
from launching import ONES, X, assert_replays, assert_runs, doubled, runs, scaled  # noqa: E402

SCALE = 2.0


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
    assert results[1].replayed


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
    inner = neurosim.simulate(doubled)

    def kernel(x):
        inner(ONES)
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
        if frame.f_code is doubled.__code__:
            lines.append(event)
        return trace

    assert_replays(doubled)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = neurosim.simulate(doubled)(X)
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
