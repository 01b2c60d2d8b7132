"""Names that were misspelt, or are those of another library: the error says what was meant, and at which line."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim import testing
from neurosim.devices import load_chip
from neurosim.errors import IllegalCall, UnknownName, Unsupported
from neurosim.lint import check
from neurosim.numerics.alu import ALU
from neurosim.result import Result
from neurosim.run import reopen
from neurosim.timing import time
from neurosim.views.methods import _ADVICE, DOCUMENTED
from tests.marked_lines import here

X = np.ones((128, 64), np.float32)
API = tomllib.loads((Path(__file__).parent / "data" / "nki_api_0_6.toml").read_text(encoding="utf-8"))

FUNCTIONS = [
    *(getattr(neurosim, name) for name in ("simulate", "profile", "sweep", "diff", "precision", "spec", "load_chip")),
    *(getattr(testing, name) for name in ("ulp_of", "ulp_distance", "assert_ulp", "assert_close", "rounded")),
    *(method for name, method in vars(Result).items() if inspect.isfunction(method) and not name.startswith("_")),
    *(reopen, load_chip, time, check, nki.simulate),
]


def spoilt(name):
    return name[:-2] + name[-1] + name[-2] if len(name) > 2 and name[-1] != name[-2] else f"{name}s"


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_misspelt_keyword_of_a_function_of_neurosim(function):
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    for name in names:
        with pytest.raises(IllegalCall, match=f"{function.__name__} has no parameter '{spoilt(name)}'") as caught:
            function(**{spoilt(name): 1})
        assert re.search(rf"did you mean (.* or )?{name}( or .*)?\?|it takes {', '.join(names)}$", caught.value.advice)


def run(body):
    def kernel(x):
        tile = nl.load(x)
        body(tile, x)

    neurosim.simulate(kernel)(X)


LANGUAGE = {
    name: parameters
    for name, parameters in API["functions"]["language"].items()
    if parameters and callable(getattr(nl, name, None)) and not any("*" in each for each in parameters)
}


@pytest.mark.parametrize("name", sorted(LANGUAGE))
def test_a_misspelt_keyword_of_a_function_of_nki(name):
    wrong = spoilt(LANGUAGE[name][-1].partition("=")[0])

    def called(tile, x):
        function = getattr(nl, name)
        function(**{wrong: 1})

    with pytest.raises(IllegalCall, match=rf"(function|nl\.{name}) has no parameter '{wrong}'") as caught:
        run(called)
    assert "it takes" in str(caught.value)


def misspells(x):
    return nl.ndarray(
        x.shape, dtpye=nl.float32
    )  # fmt: skip


def test_it_says_where():
    with pytest.raises(IllegalCall, match=r"nl\.ndarray has no parameter 'dtpye'") as caught:
        neurosim.simulate(misspells)(X)
    first = inspect.getsourcelines(misspells)[1]
    assert re.search(rf"test_spelling\.py:{first + 1}  in misspells", caught.value.where[0])
    assert caught.value.advice == "did you mean dtype?"


def views_of_nothing(x):
    x.reshape(shap=(64, 128))  # here


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda tile, x: tile.reshape(shap=1), r"tile\.reshape has no parameter 'shap'\n(.*\n)+  did you mean shape"),
        (lambda tile, x: tile[0:1].reshape(shap=(1, 2)), r"NkiTensor\.reshape has no parameter 'shap'"),
        (lambda tile, x: tile.reshape(), r"tile\.reshape: missing 1 required positional argument: 'shape'"),
        (lambda tile, x: nl.ndarray((1, 2)), r"nl\.ndarray: missing 1 required positional argument: 'dtype'"),
        (lambda tile, x: nl.load(x, nl.float32, 3), r"nl\.load: takes from 1 to 2 positional arguments but 3"),
        (lambda tile, x: nl.add(tile, tile, dtpe=nl.float32), r"nl\.add has no parameter 'dtpe'"),
        (lambda tile, x: nl.ds(1, sz=2), r"nl\.ds has no parameter 'sz'"),
    ],
)  # fmt: skip
def test_other_calls_that_python_refuses(body, message):
    with pytest.raises(IllegalCall, match=message) as caught:
        run(body)
    assert caught.value.where[0].startswith("tests/test_spelling.py") or "test_spelling.py" in caught.value.where[0]


def test_a_line_of_a_method():
    with pytest.raises(IllegalCall) as caught:
        neurosim.simulate(views_of_nothing)(X)
    assert caught.value.where[0].startswith(here(views_of_nothing))


def test_errors_of_the_kernels_own_functions_are_pythons():
    def load(x, dtype):
        return x

    def raises(tile, x):
        raise TypeError("f() got an unexpected keyword argument 'a'")

    for body in (lambda tile, x: load(x, dtpye=1), lambda tile, x: len(tile, tile), raises):
        with pytest.raises(TypeError) as caught:
            run(body)
        assert not isinstance(caught.value, IllegalCall)


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        *((nisa, name, r"nisa\.tensor_tensor .*op=nl\.add") for name in ("add", "tensor_add", "elementwise_add")),
        *((nisa, name, r"nisa\.tensor_tensor .*op=nl\.multiply") for name in ("mul", "tensor_mul", "multiply")),
        *((nisa, name, r"nisa\.nc_matmul") for name in ("matmul", "mm", "gemm", "tensor_matmul")),
        *((nisa, name, r"nisa\.activation with op=nl\.exp") for name in ("exp", "tensor_exp")),
        *((nisa, name, r"nisa\.tensor_reduce with op=nl\.add") for name in ("sum", "reduce_sum", "reduce")),
        (nisa, "reduce_max", r"nisa\.tensor_reduce with op=nl\.maximum"),
        (nisa, "max", r"nisa\.tensor_reduce.*op=nl\.maximum"),
        (nisa, "copy", r"nisa\.tensor_copy, or nisa\.dma_copy"),
        (nisa, "transpose", r"nisa\.nc_transpose"),
        (nisa, "load", r"nisa\.dma_copy"),
        (nisa, "softmax", r"nl\.softmax"),
        (nl, "tensor_tensor", r"nisa\.tensor_tensor"),
        (nl, "sub", r"nl\.subtract"),
        (nl, "engine", r"nisa\.engine"),
        (nl, "int64", "there are none of 64"),
        (nl, "no_such_thing_at_all", r"dir\(nki\.language\)"),
    ],
)
def test_names_of_other_libraries(module, name, advice):
    assert not hasattr(module, name)
    with pytest.raises(UnknownName, match=advice) as caught:
        getattr(module, name)
    for short, used in re.findall(r"\b(nisa|nl)\.(\w+)", caught.value.advice):
        assert hasattr({"nisa": nisa, "nl": nl}[short], used)


def test_each_operator_is_told_from_an_instruction():
    for name in ALU:
        with pytest.raises(UnknownName, match="use n") as caught:
            getattr(nisa, f"tensor_{name}")
        assert f"nl.{name}" in caught.value.advice or "nisa." in caught.value.advice


@pytest.mark.parametrize("name", sorted(_ADVICE))
def test_names_of_arrays_on_tensors(name):
    def kernel(x):
        return getattr(x, name)

    with pytest.raises(UnknownName, match=f"a tensor of a kernel has no '{name}'") as caught:
        neurosim.simulate(kernel)(X)
    assert isinstance(caught.value, AttributeError)
    for short, used in re.findall(r"\b(nisa|nl)\.(\w+)", caught.value.advice):
        assert hasattr({"nisa": nisa, "nl": nl}[short], used)
    for used in re.findall(r"\bt\.(\w+)", caught.value.advice):
        assert used in DOCUMENTED


def test_a_misspelt_view_and_protocols():
    def kernel(x):
        assert not hasattr(x, "__cuda_array_interface__")
        assert getattr(x, "must_alias_input", None) is None
        x.reshap((64, 128))

    with pytest.raises(UnknownName, match=r"did you mean reshape\?"):
        neurosim.simulate(kernel)(X)


def test_what_is_documented_of_tensors_is_said():
    own = {*API["methods"]["language"]["NkiTensor"], *API["attributes"]["language"]["NkiTensor"]}
    assert {name for name in own if not name.startswith("_")} == set(DOCUMENTED)


def test_a_misspelt_option_of_a_decorator():
    with pytest.raises(Unsupported, match=r"did you mean platform_target\?"):
        nki.jit(platfrom_target="trn2")
