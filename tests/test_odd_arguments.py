"""What nobody should pass to the functions of ``neurosim``: refused in its words; and NumPy's numbers, which count."""

from __future__ import annotations

import math
import pickle

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import ConfigurationError, IllegalOperand, NeurosimError
from neurosim.program import Program
from neurosim.timing.sensitivity import sensitivity

X = np.ones((4, 8), np.float32)


@nki.jit
def double(x, helper=None):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out


RESULT = neurosim.profile(double)(X)
CHIP = RESULT.chip
NAME = "x" * 300
REFUSED = {
    "sweep of a number": (lambda: neurosim.sweep(3, {"chip": ["trn1"]}), IllegalOperand, "3 is no kernel"),
    "sweep of int": (lambda: neurosim.sweep(int, {"chip": ["trn1"]}), IllegalOperand, "the class int is no kernel"),
    "store of bytes": (
        lambda: neurosim.sweep(double, {"chip": ["trn1"]}, store=b"x")(X),
        ConfigurationError,
        "b'x' is no path of a file",
    ),
    "file with a zero": (lambda: RESULT.csv("a\0b"), ConfigurationError, r"'a\x00b' is no path of a file"),
    "file that is a list": (lambda: RESULT.program.save([1]), ConfigurationError, "[1] is no path of a file"),
    "file of a long name": (lambda: RESULT.program.save(NAME), ConfigurationError, f"cannot write {NAME}: File name"),
    "program from None": (lambda: Program.load(None), ConfigurationError, "None is no path of a file"),
    "picture in bytes": (lambda: RESULT.plot_timeline(b"x"), ConfigurationError, "b'x' is no path of a file"),
    "limits": (lambda: RESULT.html("x", limits=X), ConfigurationError, "is not a bool"),
    "lines of numbers": (lambda: RESULT.perfetto("x", lines=[1]), ConfigurationError, "lines=[1] is no list of names"),
    "times beyond int64": (
        lambda: RESULT.perfetto("x", first_ps=10**40),
        ConfigurationError,
        f"there is no time from {10**40} to None ps",
    ),
    "an end beyond int64": (
        lambda: RESULT.perfetto("x", last_ps=2**63),
        ConfigurationError,
        f"there is no time from 0 to {2**63} ps",
    ),
    "without None": (lambda: RESULT.what_if(without=None), ConfigurationError, "without=None names no instruction"),
    "figure of a list": (lambda: CHIP.figure(["dma"]), ConfigurationError, "unknown field ['dma']"),
    "figure of None": (lambda: CHIP.figure(None), ConfigurationError, "unknown field None"),
    "a figure beyond floats": (
        lambda: CHIP.replace(dma__engine_gb_per_s=10**400),
        ConfigurationError,
        "GB/s makes no sense",
    ),
    "a whole figure beyond floats": (
        lambda: CHIP.replace(dma__queue_depth=10**400),
        ConfigurationError,
        "count makes no sense",
    ),
    "rounding of an array": (lambda: neurosim.simulate(double, rounding=X), IllegalOperand, "simulate: rounding=array"),
    "outputs of an array": (
        lambda: neurosim.simulate(double, partial_outputs=X),
        IllegalOperand,
        "simulate: partial_outputs=array",
    ),
    "outputs of lists": (
        lambda: neurosim.simulate(double, partial_outputs=[[1]]),
        IllegalOperand,
        "simulate: partial_outputs=[[1]]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_words(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, kind, words = REFUSED[case]
    with pytest.raises(kind) as caught:
        call()
    assert words in str(caught.value)
    assert not list(tmp_path.iterdir())


TAKEN = {
    "a whole figure": lambda number: CHIP.replace(dma__queue_depth=number(8)).figures["dma.queue_depth"].value,
    "a figure": lambda number: CHIP.replace(dma__engine_gb_per_s=number(8)).figures["dma.engine_gb_per_s"].value,
    "a factor": lambda number: RESULT.what_if(dma_bandwidth=number(8)).after_ps,
    "a sweep's figure": lambda number: neurosim.sweep(double, {"dma.queue_depth": [number(8)]}, jobs=1)(X).rows(),
    "a sweep's cores": lambda number: neurosim.sweep(double, {"cores": [number(1)]}, jobs=1)(X).rows(),
    "a seed": lambda number: neurosim.simulate(double, rounding="stochastic", rounding_seed=number(8))(
        X
    ).outputs.tobytes(),
    "a reach": lambda number: neurosim.precision(double, reach=number(8))(X).to_dict(),
}


@pytest.mark.parametrize("case", TAKEN)
def test_integers_of_numpy_are_integers(case):
    assert TAKEN[case](np.int64) == TAKEN[case](np.uint8) == TAKEN[case](int)


def test_floats_of_numpy_are_floats():
    named = {"dma__engine_gb_per_s": np.float32(8.5)}
    assert CHIP.replace(**named).figures["dma.engine_gb_per_s"].value == 8.5
    assert RESULT.what_if(dma_bandwidth=np.float32(2.5)).after_ps == RESULT.what_if(dma_bandwidth=2.5).after_ps
    same = [
        sensitivity(lambda chip: int(1e6 / chip.dma.engine_gb_per_s), CHIP, step) for step in (0.5, np.float32(0.5))
    ]
    assert same[0] == same[1]
    assert same[0]


def test_a_factor_beyond_floats_is_an_infinite_one():
    assert RESULT.what_if(dma_bandwidth=10**400).after_ps == RESULT.what_if(dma_bandwidth=math.inf).after_ps


@pytest.mark.parametrize("value", [np.bool_(True), True, np.complex64(1), np.float32(math.nan), np.array(2.0), "2"])
def test_what_is_no_number_is_none(value):
    with pytest.raises(ConfigurationError, match="is no factor"):
        RESULT.what_if(dma_bandwidth=value)
    with pytest.raises(ConfigurationError, match=r"is not a number|makes no sense"):
        CHIP.replace(dma__engine_gb_per_s=value)


@pytest.mark.parametrize("helper", [math, (entry for entry in ()), [{"a": math}]], ids=["module", "generator", "deep"])
def test_precision_of_a_kernel_with_a_helper_that_has_no_copy(helper):
    with pytest.raises(TypeError):
        pickle.dumps(helper)
    found = neurosim.precision(double)(X, helper)
    assert np.array_equal(found.result.outputs, 2 * X)


@nki.jit
def moved(x, y):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=0.1)
    nisa.dma_copy(dst=y, src=tile)
    return x


def test_precision_of_one_array_given_twice():
    def reach(x, y):
        return max(line.reach for line in neurosim.precision(moved)(x, y).lines if line.reach is not None)

    x, y = (np.ones((4, 8), nl.bfloat16.numpy) for _ in range(2))
    assert reach(x, y) == 0
    assert reach(y, y) > 0


def test_precision_of_tensors_with_gradients():
    torch = pytest.importorskip("torch")
    made = torch.ones(4, 8, requires_grad=True) * 3
    assert neurosim.precision(double)(made).to_dict() == neurosim.precision(double)(3 * X).to_dict()


def test_a_nested_tensor_is_refused():
    torch = pytest.importorskip("torch")
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    for call in (neurosim.simulate(double), neurosim.profile(double, values=False), neurosim.precision(double)):
        with pytest.raises(NeurosimError, match="argument x is"):
            call(nested)
