"""Arrays of NumPy, PyTorch and JAX go in, and the same kind comes out."""

from __future__ import annotations

import sys
import types

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand
from neurosim.launch import arrays
from neurosim.launch.arguments import Arguments


def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add, engine=nisa.engine.vector)
    nl.store(out, tile)
    return out


def in_place(x):
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nl.store(x, tile)
    return x


def test_numpy_inputs_are_updated_in_place():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    before = x.copy()
    out = nki.simulate(in_place)(x)
    assert (x == before + 1).all()
    assert (out == x).all()
    assert not np.shares_memory(out, x)


def test_an_array_that_a_kernel_only_reads_is_not_copied_or_changed():
    x = np.ones((3, 4), np.float32)
    x.flags.writeable = False
    assert (nki.simulate(double)(x) == 2).all()


def test_read_only_arrays_are_copied_when_the_kernel_writes_them():
    x = np.ones((3, 4), np.float32)
    x.flags.writeable = False
    assert (nki.simulate(in_place)(x) == 2).all()
    assert (x == 1).all()


def test_a_strided_array_gets_its_own_elements_back():
    base = np.zeros((6, 8), np.float32)
    nki.simulate(in_place)(base[::2, ::2])
    expected = np.zeros((6, 8), np.float32)
    expected[::2, ::2] = 1
    assert (base == expected).all()


def test_one_array_given_twice_is_one_tensor():
    def second_sees_first(x, y):
        tile = nl.load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nl.store(x, tile)
        return y

    x = np.zeros((2, 2), np.float32)
    assert (nki.simulate(second_sees_first)(x, x) == 1).all()


def test_an_exception_leaves_the_callers_array_alone():
    def breaks(x):
        in_place(x)
        raise RuntimeError("halfway")

    x = np.zeros((2, 2), np.float32)
    with pytest.raises(RuntimeError, match="halfway"):
        nki.simulate(breaks)(x)
    assert (x == 0).all()


TORCH = ["float32", "bfloat16", "float16", "int32", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"]


@pytest.mark.parametrize("name", TORCH)
def test_torch_in_torch_out(name):
    torch = pytest.importorskip("torch")

    def copy(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        return out

    x = torch.tensor([[0, 1, 0, 1], [1, 0, 1, 1]], dtype=torch.float32).to(getattr(torch, name))
    out = nki.simulate(copy)(x)
    assert isinstance(out, torch.Tensor)
    assert out.dtype == x.dtype
    assert torch.equal(out.to(torch.float32), x.to(torch.float32))


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_library_without_arrays_has_none(monkeypatch, library):
    """Another thread may be importing it, and documentation is built with stubs."""
    monkeypatch.setitem(sys.modules, library, types.ModuleType(library))
    x = np.ones((3, 5), np.float32)
    assert arrays.kind_of(x) == "numpy"
    assert arrays.kind_of(x.tolist()) is None


def test_torch_bfloat16_is_updated_in_place():
    torch = pytest.importorskip("torch")
    x = torch.full((3, 5), 2.5, dtype=torch.bfloat16)
    nki.simulate(in_place)(x)
    assert torch.equal(x, torch.full((3, 5), 3.5, dtype=torch.bfloat16))
    wide = torch.zeros((4, 6), dtype=torch.float32)
    nki.simulate(in_place)(wide.T[1:3])
    assert wide.sum() == 8


def test_torch_has_no_such_dtype():
    pytest.importorskip("torch")
    import torch

    def to_e4m3(x):
        out = nl.ndarray(x.shape, dtype=nl.float8_e4m3, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        return out

    with pytest.raises(IllegalOperand, match="float8_e4m3, which PyTorch does not have"):
        nki.simulate(to_e4m3)(torch.ones(2, 2))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int32"])
def test_jax_in_jax_out(name):
    jax = pytest.importorskip("jax")
    x = jax.numpy.arange(8, dtype=name).reshape(2, 4)
    out = nki.simulate(double)(x)
    assert isinstance(out, jax.Array)
    assert out.dtype == x.dtype
    assert (np.asarray(out, np.float32) == 2 * np.asarray(x, np.float32)).all()


def test_a_masked_array_has_to_be_filled():
    with pytest.raises(IllegalOperand, match=r"argument x is a masked array\n  .*fill it first"):
        neurosim.simulate(double)(np.ma.masked_array(np.ones((4, 4), np.float32), mask=np.eye(4)))


def test_containers_of_arrays():
    def first_and_sum(pair, options):
        return {"out": double(pair[0]), "same": (pair[1],)}, options["scale"]

    pair = [np.ones((2, 2), ml_dtypes.bfloat16), np.zeros((1, 1), np.int8)]
    out, scale = nki.simulate(first_and_sum)(pair, {"scale": 3})
    assert (out["out"] == 2).all()
    assert out["same"][0].dtype == np.int8
    assert scale == 3


class TestWithoutValues:
    def test_specs_give_the_same_program(self):
        x = np.ones((3, 4), np.float32)
        real = neurosim.simulate(double)(x)
        empty = neurosim.simulate(double, values=False)(neurosim.spec((3, 4), nl.float32))
        assert empty.program.signatures == real.program.signatures
        assert empty.timeline.makespan_ps == real.timeline.makespan_ps
        assert empty.outputs == neurosim.spec((3, 4), np.float32)

    def test_arrays_do_too_and_are_left_alone(self):
        x = np.ones((3, 4), np.float32)
        neurosim.simulate(in_place, values=False)(x)
        assert (x == 1).all()

    def test_a_spec_needs_values_false(self):
        with pytest.raises(IllegalOperand, match="values=False"):
            neurosim.simulate(double)(neurosim.spec((3, 4), nl.float32))

    @pytest.mark.parametrize(("shape", "dtype"), [((3, 0), nl.float32), ((3, 4), np.float64)])
    def test_senseless_specs(self, shape, dtype):
        with pytest.raises(IllegalOperand, match=r"no elements|not an NKI dtype"):
            neurosim.spec(shape, dtype)

    def test_memory_states_are_still_checked(self):
        def unwritten(x):
            tile = nl.ndarray(x.shape, dtype=x.dtype)
            nisa.tensor_copy(dst=tile, src=tile)
            return x

        with pytest.raises(neurosim.errors.Uninitialized):
            neurosim.simulate(unwritten, values=False)(neurosim.spec((3, 4), nl.float32))


@pytest.mark.parametrize("cores", [1, 2])
def test_arguments_become_tensors_once_for_each_program(monkeypatch, cores):
    """Each program has lists of its own, and the tensors in them are the same."""
    asked = []
    adopt = Arguments.adopt
    monkeypatch.setattr(Arguments, "adopt", lambda self, value, name: asked.append(name) or adopt(self, value, name))
    seen = []

    def kernel(xs):
        seen.append(len(xs))
        xs.append(None)
        out = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=xs[0])
        return out

    x = np.ones((4, 4), np.float32)
    np.testing.assert_array_equal(neurosim.simulate(kernel)[cores]([x]).outputs, x)
    assert asked == ["xs", "xs[0]"] * cores
    assert seen == [1] * cores
