"""Views that are refused: each message says which, with which figures, and what to do."""

from __future__ import annotations

import math
import re

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand, OutOfBounds, Unsupported


def asked(question, shape=(128, 64), dtype=nl.float32, buffer=nl.sbuf):
    """Return what ``question`` answers about a new tensor, inside a kernel."""

    def kernel():
        return question(nl.ndarray(shape, dtype, buffer, name="t"))

    return neurosim.simulate(kernel)().outputs


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t[:, 64], r"index 64 on axis 1.*the axis has 64 elements: -64 to 63"),
        (lambda t: t[:, -65], "index -65 on axis 1"),
        (lambda t: t[128], "index 128 on axis 0"),
        (lambda t: t[:, 0:65], "slice 0:65 on axis 1.*leaves the tensor.*not clipped as in NumPy"),
        (lambda t: t[:, 60:70], "slice 60:70 on axis 1"),
        (lambda t: t[0:129], "slice 0:129 on axis 0"),
        (lambda t: t[:, -65:], "slice -1:64 on axis 1"),
        (lambda t: t[:, nl.ds(60, 5)], "slice 60:65 on axis 1"),
        (lambda t: t[:, nl.ds(-1, 2)], "slice -1:1 on axis 1.*leaves the tensor"),
        (lambda t: t.slice(1, 0, 65), "slice 0:65 on axis 1"),
        (lambda t: t.select(1, 64), "index 64 on axis 1"),
        (lambda t: t.permute((0, 1)).slice(2, 0, 1), "axis 2"),
        (lambda t: t.select(5, 0), "axis 5"),
        (lambda t: t.expand_dim(4), "axis 4"),
    ],
)
def test_out_of_bounds(call, message):
    with pytest.raises(OutOfBounds) as caught:
        asked(call)
    assert re.search(message, str(caught.value), re.DOTALL)
    assert "64] float32 in SBUF" in str(caught.value)
    assert f"{__file__.rsplit('/', 1)[-1]}:" in caught.value.where[0]


@pytest.mark.parametrize(
    ("call", "shape", "place"),
    [
        (lambda t: t[:, 8:8], (128, 0), "slice 8:8 on axis 1"),
        (lambda t: t[:, 9:3], (128, 0), "slice 9:3 on axis 1"),
        (lambda t: t[nl.ds(3, 0)], (0, 64), "slice 3:3 on axis 0"),
        (lambda t: t[nl.ds(0, 0), 0:0], (0, 0), "slice 0:0 on axis 0"),
        (lambda t: t[nl.ds(128, 0), 5], (0, 1), "slice 128:128 on axis 0"),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        lambda view: nisa.memset(view, 0),
        lambda view: view[0:1],
        lambda view: view.expand_dim(1),
        lambda view: view.ap([[1, 2], [1, 1]]),
        lambda view: view.view(nl.int32),
        lambda view: nisa.tensor_copy(dst=nl.ndarray((128, 64), nl.float32, nl.sbuf), src=view),
    ],
)
def test_slices_of_nothing_may_be_made_and_not_used(call, shape, place, use):
    """nki-library, cross_entropy.py: a core without positions slices its part, and does nothing with it."""
    assert asked(lambda t: call(t).shape) == shape
    with pytest.raises(OutOfBounds) as caught:
        asked(lambda t: use(call(t)) and None)
    assert f"{place} of t [128, 64] float32 in SBUF selects nothing" in str(caught.value)
    assert "skip one of no elements" in str(caught.value)
    assert f"{__file__.rsplit('/', 1)[-1]}:" in caught.value.where[0]


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.shared_hbm])
def test_slices_of_nothing_are_no_output(buffer):
    with pytest.raises(OutOfBounds, match="selects nothing"):
        asked(lambda t: t[:, 8:8], buffer=buffer)


def test_a_slice_of_nothing_at_a_register_is_refused():
    with pytest.raises(OutOfBounds, match=r"nl\.ds of 0 elements"):
        asked(lambda t: nl.fori_loop(0, 4, lambda i: nisa.memset(t[:, nl.ds(i, 0)], 0)))


def test_bounds_are_those_of_the_view():
    """Issue triton#10336: an index inside the tensor and outside of the view is an error at the slice."""
    with pytest.raises(OutOfBounds, match=r"slice 500:600 on axis 1 of \[128, 512\] float32 in SBUF, a view of t"):
        asked(lambda t: t[:, :512][:, 500:600], (128, 1024))


def test_tensors_that_are_there_are_true():
    """``if expert_index:`` asks whether an optional tensor was given (nki-library's kernels do)."""
    assert asked(lambda t: (bool(t), bool(t[0:1]), "yes" if t and None is None else "no")) == (True, True, "yes")


def test_a_tensor_of_one_element_in_hbm_is_there():
    """nki-library, mlp_tkg_constants.py: ``if params.expert_index`` of shape [1, 1]; a tile is asked for its value."""
    assert asked(lambda t: bool(t), (1, 1), buffer=nl.shared_hbm) is True
    with pytest.raises(IllegalOperand, match="no truth value"):
        asked(lambda t: bool(t), (1, 1))


@pytest.mark.parametrize(
    ("question", "function"),
    [
        (lambda t: t > 0, "greater"),
        (lambda t: t[0, 0] > 0, "greater"),
        (lambda t: t[0, 0] >= 1, "greater_equal"),
        (lambda t: t[0, 0] == 0, "equal"),
        (lambda t: t[0, 0] != 0.5, "not_equal"),
    ],
)
@pytest.mark.parametrize("buffer", [nl.sbuf, nl.shared_hbm])
def test_a_comparison_says_how_to_choose_by_values(question, function, buffer):
    with pytest.raises(IllegalOperand) as caught:
        asked(question, buffer=buffer)
    assert f"with op=nl.{function}; Python sees no values" in caught.value.advice
    assert "nl.where" in caught.value.advice


def test_tensors_are_themselves_and_no_number():
    """A parameter that is a tensor or a number (``if scale == 1.0``) is asked which; of one element, it would lie."""

    def question(t):
        one = t[0, 0]
        return t == t, t != t[:], t == 1.0, t in [None, t], one == None, one == one, one != t, {t: 3}[t]  # noqa: E711

    assert asked(question) == (True, True, False, True, False, True, True, 3)


@pytest.mark.parametrize(
    "question",
    [
        lambda t: range(t[0, 0]),
        lambda t: float(t[0, 0]),
        lambda t: int(t),
        lambda t: round(t),
        lambda t: math.sqrt(t[0, 0]),
        lambda t: [1, 2][t[0, 0]],
        lambda t: range(t.select(0, nl.ndarray((1, 1), nl.int32, nl.sbuf))),
    ],
)
def test_a_tensor_is_no_number_for_python(question):
    with pytest.raises(IllegalOperand, match="a tensor is no number while the kernel is built") as caught:
        asked(question, buffer=nl.shared_hbm)
    assert "nisa.register_load" in caught.value.advice
    assert f"{__file__.rsplit('/', 1)[-1]}:" in caught.value.where[0]


def test_a_mistake_about_no_tensor_stays_pythons():
    with pytest.raises(TypeError, match="'list' object cannot be interpreted as an integer"):
        asked(lambda t: range([t]))


def test_ranges_index_as_slices():
    """Kernels in use write t[ix, iy] with ranges of NKI's loops."""

    def question(t):
        view = t[nl.affine_range(8), range(4, 12, 2)]
        return view.shape, view.get_pattern(), t[0:8, 4:12:2].get_pattern(), view.offset

    shape, found, wanted, offset = asked(question)
    assert (shape, offset) == ((8, 4), 4)
    assert found == wanted
    with pytest.raises(OutOfBounds, match="slice 0:65"):
        asked(lambda t: t[:, nl.affine_range(65)])


def test_out_of_bounds_is_an_index_error():
    with pytest.raises(IndexError):
        asked(lambda t: t[:, 64])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t[0, 0, 0], "3 indices.*it has 2 axes"),
        (lambda t: t[..., 0, ...], "more than one"),
        (lambda t: t[:, ::-1], "slice step -1.*at least 1"),
        (lambda t: t[:, ::0], "slice step 0"),
        (lambda t: t[:, None], "use .expand_dim"),
        (lambda t: t[:, True], "index True"),
        (lambda t: t[:, 1.0], "index 1.0.*convert it to an int"),
        (lambda t: t[:, [1, 2]], "is not an int, a slice"),
        (lambda t: t[:, np.arange(3)], "is not an int, a slice"),
        (lambda t: t[:, 0:2.0], "index 2.0"),
        (lambda t: t.permute((1, 0)), "moves the partition axis.*nc_transpose"),
        (lambda t: t.permute((0, 0)), "each of the axes 0 to 1 once"),
        (lambda t: t.permute((0,)), "each of the axes 0 to 1 once"),
        (lambda t: t.broadcast(1, 4), "the axis has 64 elements; it must have 1"),
        (lambda t: t[0:1].broadcast(0, 4), "is the partition axis"),
        (lambda t: t[:, 0:1].broadcast(1, 0), "broadcast of axis 1"),
        (lambda t: t.expand_dim(0), "begins with its partition axis"),
        (lambda t: t.squeeze_dim(1), "the axis has 64 elements"),
        (lambda t: t[0:1].squeeze_dim(0), "is the partition axis"),
        (lambda t: t.reshape((64, 128)), "changes the partition axis.*keep 128 partitions"),
        (lambda t: t.reshape((128, 63)), "8064 elements asked for, 8192 there"),
        (lambda t: t.reshape((128, -1, -1)), "shape"),
        (lambda t: t.reshape((128, 0)), "shape"),
        (lambda t: t[:, ::2].expand_dim(2).reshape((128, 2, 16)).flatten_dims(0, 1), "is the partition axis"),
        (lambda t: t.reshape((128, 8, 8))[:, :, :4].reshape((128, 32)), "has gaps that this shape cannot describe"),
        (lambda t: t.reshape((128, 8, 8)).permute((0, 2, 1)).reshape((128, 64)), "has gaps"),
        (lambda t: t.reshape_dim(0, (2, 64)), "is the partition axis"),
        (lambda t: t.reshape_dim(1, (3, 21)), "63 elements asked for, 64 there"),
        (lambda t: t.reshape_dim(1, (3, -1)), "shape"),
        (lambda t: t.flatten_dims(0, 1), "is the partition axis"),
        (lambda t: t.reshape((128, 8, 8))[:, :, :4].flatten_dims(1, 2), "not dense among themselves"),
        (lambda t: t.reshape((128, 8, 8)).flatten_dims(2, 1), "flatten_dims"),
        (lambda t: bool(t[0:1, 0:1]), "no truth value"),
        (lambda t: t[:, np.arange(2) :], "is not an int"),
        (lambda t: t.slice(1, np.arange(2), 64), "is not an int"),
        (lambda t: t.reshape_dim(1, 64), "64 is no list of ints"),
        (lambda t: t.reshape_dim(1, None), "None is no list of ints"),
        (lambda t: t.rearrange(7, ("p", "f")), "a pattern is a tuple of names"),
        (lambda t: t.rearrange(("p", "f"), "pf"), "a pattern is a tuple of names"),
        (lambda t: t.rearrange(("p", ("a", "b")), ("p", "b", "a"), [8]), r"fixed_sizes=\[8\] is no dict"),
        (lambda t: t.rearrange(("p", ("a", "b")), ("p", "b", "a"), {"c": 8}), "names c, which no pattern has"),
        (lambda t: t.rearrange(("p", ("a", "b")), ("p", "b", "a"), {"a": "8"}), "'8' is not an int"),
        (lambda t: nl.full((128, 4), ..., nl.float32), "value Ellipsis is not a number"),
    ],
)
def test_illegal_views(call, message):
    with pytest.raises(IllegalOperand) as caught:
        asked(call)
    assert re.search(message, str(caught.value), re.DOTALL)
    assert (
        caught.value.where[0].startswith("tests/test_views/test_view_refusals.py:")
        or "test_view_refusals.py:" in caught.value.where[0]
    )


def test_assignment_says_what_to_do():
    def kernel():
        t = nl.ndarray((128, 64), nl.float32, nl.sbuf)
        t[:, 0:2] = 1.0

    with pytest.raises(Unsupported, match="tensors are written by instructions"):
        neurosim.simulate(kernel)()


def test_brackets_do_not_take_a_tensor():
    with pytest.raises(Unsupported, match="brackets do not take a tensor's value"):
        asked(lambda t: t[:, t[0:1, 0:1]])


def test_iterating_a_tensor_ends():
    """An index error ends Python's iteration; partitions stay."""
    assert asked(lambda t: [row.shape for row in t], (3, 4)) == [(1, 4)] * 3
    assert asked(lambda t: [row.shape for row in t], (3, 4), buffer=nl.hbm) == [(4,)] * 3
    assert asked(len, (3, 4)) == 3
