"""What a kernel's Python sees: where any of it changes, the kernel runs again."""

from __future__ import annotations

import enum
import functools
import math
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.errors import IllegalOperand
from neurosim.shell.loading import load_module

load_module(Path(__file__).parent / "launching.py")  # puts this folder on the path
from launching import X, assert_replays, runs, scaled  # noqa: E402

SCALE = 2.0
TABLE = [1.0, 2.0]
holder = types.SimpleNamespace(scale=1.0)


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
