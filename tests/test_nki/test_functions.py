"""Operators of ``nki.language`` called on tiles."""

from __future__ import annotations

import ml_dtypes
import nki
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand, UnknownBehavior, Unsupported

A = np.array([[1.5, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)
B = np.array([[2.0, 5.0, -1.0], [1.0, 0.25, 8.0]], np.float32)


def computed(function, *arrays):
    def kernel(*tensors):
        tile = function(*[nl.load(tensor) for tensor in tensors])
        assert tile.buffer == nl.sbuf
        out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    return nki.simulate(kernel)(*arrays)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", A + B),
        ("subtract", A - B),
        ("multiply", A * B),
        ("maximum", np.maximum(A, B)),
        ("minimum", np.minimum(A, B)),
        ("less", (A < B).astype(np.float32)),
        ("logical_and", np.ones_like(A)),
    ],
)
def test_two_tiles(name, expected):
    np.testing.assert_array_equal(computed(getattr(nl, name), A, B), expected)


def test_a_number_on_either_side():
    np.testing.assert_array_equal(computed(lambda a: nl.subtract(a, 2.0), A), A - 2)
    np.testing.assert_array_equal(computed(lambda a: nl.subtract(2.0, a), A), 2 - A)


def test_a_column_is_repeated():
    column = B[:, :1].copy()
    np.testing.assert_array_equal(computed(nl.multiply, A, column), A * column)
    np.testing.assert_array_equal(computed(nl.subtract, column, A), column - A)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("square", np.square),
        ("abs", np.abs),
        ("relu", lambda x: np.maximum(x, 0)),
        ("exp", np.exp),
        ("reciprocal", lambda x: 1 / x),
        ("copy", lambda x: x),
        ("tanh", np.tanh),
    ],
)
def test_one_tile(name, reference):
    expected = reference(A.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_max_ulp(computed(getattr(nl, name), A), expected, 1)


def test_dtypes_of_results():
    half = A.astype(ml_dtypes.bfloat16)
    assert computed(nl.add, half, half).dtype == ml_dtypes.bfloat16
    assert computed(nl.add, half, A).dtype == np.float32
    assert computed(nl.add, half, A.astype(np.float16)).dtype == np.float32
    assert computed(nl.add, half, A.astype(np.int32)).dtype == ml_dtypes.bfloat16
    assert computed(lambda a, b: nl.less(a, b, dtype=nl.uint8), A, B).dtype == np.uint8


@pytest.mark.parametrize(("name", "reference"), [("sum", np.sum), ("max", np.max), ("min", np.min), ("prod", np.prod)])
def test_reductions(name, reference):
    np.testing.assert_array_equal(computed(lambda a: getattr(nl, name)(a, axis=1), A), reference(A, axis=1)[:, None])
    cube = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    got = computed(lambda a: getattr(nl, name)(a, axis=[2], keepdims=True), cube)
    np.testing.assert_array_equal(got, reference(cube, axis=2, keepdims=True))
    got = computed(lambda a: getattr(nl, name)(a, axis=(1, 2)), cube)
    np.testing.assert_array_equal(got, reference(cube, axis=(1, 2))[:, None])


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (lambda a: nl.add(a), IllegalOperand, "missing a required argument"),
        (lambda a: nl.add(1.0, 2.0), IllegalOperand, r"nl\.add of no tile"),
        (lambda a: nl.add(a, "b"), IllegalOperand, "nl.add of 'b'"),
        (lambda a: nl.add(a, a, dtype="float3"), IllegalOperand, "not an NKI dtype"),
        (lambda a: nl.add(a, a[:, 0:2]), IllegalOperand, "does not broadcast by itself"),
        (lambda a: nl.average(a), Unsupported, "no function on tiles"),
    ],
)
def test_what_makes_no_sense(function, error, words):
    with pytest.raises(error, match=words):
        computed(function, A)


def test_an_operator_is_equal_to_its_name_alone():
    assert nl.add == neurosim.datapath.operators.Operator("add")
    assert nl.add != nl.subtract
    assert len({nl.add, neurosim.datapath.operators.Operator("add")}) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda a: nl.copy(a, a),  # the second is a dtype
        lambda a: nl.load(None),
        lambda a: nl.load(3.0),
        lambda a: nl.zeros_like(None),
        lambda a: nl.empty_like([1]),
        lambda a: nl.dropout(None, 0.5),
        lambda a: nl.expand_dims(a, None),
        lambda a: nl.sum(a, axis=1, keepdims=None),
        lambda a: nl.sum(a, axis=1, keepdims=np.ones(2)),
        lambda a: nl.gather_flattened(a, a, axis=np.ones(2)),
        lambda a: nl.ndarray((2, 2), a),
        lambda a: nl.ndarray((2, 2), nl.float32, name=3),
        lambda a: nl.ndarray((2, 2), nl.float32, name=np.ones(2)),
        lambda a: nl.affine_range(None),
        lambda a: nl.static_range(0, 4, 0),
        lambda a: nl.sequential_range(1.5),
        lambda a: nl.fori_loop(np.ones(2), 3, lambda i: None),
        lambda a: nl.is_hbm(None),
        lambda a: nl.is_on_chip(a),
        lambda a: nl.is_psum("psum"),
        lambda a: nl.is_sbuf(3),
        lambda a: a.reshape(None),
        lambda a: a.reshape(("x", 2)),
        lambda a: a.permute(3),
        lambda a: a.permute((0, None)),
        lambda a: a.expand_dim("x"),
        lambda a: a.broadcast(1, None),
    ],
)
def test_what_is_given_in_the_wrong_place_is_named_in_words(function):
    """No traceback of Python or NumPy, and the kernel's line."""
    with pytest.raises((IllegalOperand, UnknownBehavior)) as caught:
        computed(function, A)
    assert any("test_functions.py" in line for line in caught.value.where)
