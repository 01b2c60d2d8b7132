"""Access patterns, ``.ap()``: which elements they reach, against NumPy on the same data."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.errors import IllegalOperand, OutOfBounds
from neurosim.shell.loading import load_module

seen_views = load_module(Path(__file__).with_name("seen_views.py"))
numbers, copied, asked = seen_views.numbers, seen_views.copied, seen_views.asked


def test_ap_is_the_loop_of_the_deep_dive():
    """nki-aps.rst, "Semantics of the Access Pattern": the pattern walks the flattened tensor."""
    array = numbers((8, 24))
    got = copied(lambda t: t.ap(pattern=[[24, 8], [6, 2], [3, 2], [1, 3]], offset=2), array, nl.sbuf)
    expected = np.empty((8, 2, 2, 3), np.int32)
    for w, z, y, x in np.ndindex(expected.shape):
        expected[w, z, y, x] = array.ravel()[2 + w * 24 + z * 6 + y * 3 + x]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("pattern", "offset"),
    [
        ([[16, 16], [1, 8]], 8),
        ([[16, 4], [2, 8]], 0),
        ([(16, 4), (0, 5), (1, 3)], 17),
        ([[16, 4], [-1, 16]], 15),
        ([[16, 2], [5, 3], [0, 2], [1, 2]], 16 * 3 + 1),
    ],
)
@pytest.mark.parametrize("buffer", [nl.shared_hbm, nl.sbuf])
def test_ap_walks_steps(pattern, offset, buffer):
    array = numbers((16, 16))
    got = copied(lambda t: t.ap(pattern, offset=offset), array, buffer)
    index = offset + sum(
        grid * step for grid, (step, _) in zip(np.indices([count for _, count in pattern]), pattern, strict=True)
    )
    np.testing.assert_array_equal(got, array.ravel()[index])


def test_ap_in_hbm_takes_any_pattern():
    array = numbers((4, 6))
    got = copied(lambda t: t.ap([[1, 6], [12, 2]], offset=6), array)
    np.testing.assert_array_equal(got, array[1::2].T)
    np.testing.assert_array_equal(copied(lambda t: t.ap([[5, 4]]), array), array.ravel()[::5][:4])


def test_ap_equals_the_slice_of_the_deep_dive():
    """nki-aps.rst, "View Primitives Build APs at Specialization Time"."""

    def question(t):
        u = t.slice(dim=1, start=8, end=24)
        v = t.ap(pattern=[[64, 128], [1, 16]], offset=8)
        return u.get_pattern(), u.offset, v.get_pattern(), v.offset

    pattern = [[64, 128], [1, 16]]
    assert asked(question) == (pattern, 8, pattern, 8)


def test_ap_adds_its_offset_to_the_view():
    """NkiTensor.ap: "offset: element offset added to the view's base storage offset"; the deep-dive differs."""

    def question(t):
        view = t[2:, 8:]
        return [v.offset for v in (view, view.ap([[64, 4], [1, 4]]), view.ap([[64, 4], [1, 4]], offset=3))]

    assert asked(question) == [2 * 64 + 8, 2 * 64 + 8, 2 * 64 + 8 + 3]


def test_ap_ignores_shape_and_strides_of_the_view():
    array = numbers((4, 16))
    got = copied(lambda t: t.ap([[16, 4], [2, 8]]).ap([[16, 4], [1, 5]]), array, nl.sbuf)
    np.testing.assert_array_equal(got, array[:, :5])


def test_ap_of_a_slice_takes_the_free_size_of_the_slice():
    """nki-library, core/utils/tensor_view.py: steps come from the shape of what it is given, a slice or not."""
    array = numbers((8, 24))
    got = copied(lambda t: t[2:7, 9:15].ap([[6, 5], [2, 2], [1, 2]], offset=1), array, nl.sbuf)
    np.testing.assert_array_equal(got, array[2:7, [[10, 11], [12, 13]]])
    column = copied(lambda t: t[:, 3:4].ap([[1, 8], [1, 1]]), array, nl.sbuf)
    np.testing.assert_array_equal(column, array[:, 3:4])


def test_ap_of_a_slice_counts_its_free_size_in_elements_of_the_new_dtype():
    array = np.random.default_rng(0).integers(0, 2**31, (4, 8), np.int32)
    got = copied(lambda t: t[1:, 2:4].ap([[4, 3], [1, 3]], offset=1, dtype=nl.uint16), array, nl.sbuf)
    np.testing.assert_array_equal(got, array.view(np.uint16)[1:, 5:8])


def test_ap_takes_what_get_pattern_gives():
    """Language guide, "Low-level raw access pattern"."""

    def question(t):
        assert t.ap(pattern=[(1024, 128), (2, 512)]).shape == (128, 512)
        pattern = t.get_pattern()
        pattern[0][1] = 64
        return t.ap(pattern=pattern).shape

    assert asked(question, (128, 1024), nl.float16) == (64, 1024)


def test_ap_reinterprets():
    """nki-aps.rst, "Reinterpret Cast with ap": counts and offset are in elements of the new dtype."""
    array = np.random.default_rng(0).integers(0, 2**31, (4, 8), np.int32)
    got = copied(lambda t: t.ap([[16, 4], [1, 16]], offset=0, dtype=nl.bfloat16), array, nl.sbuf)
    assert got.tobytes() == array.tobytes()
    assert got.dtype == ml_dtypes.bfloat16
    some = copied(lambda t: t[:, 2:4].ap([[16, 4], [1, 3]], offset=1, dtype=nl.uint16), array, nl.sbuf)
    np.testing.assert_array_equal(some, array.view(np.uint16)[:, 5:8])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t.ap([[64, 128], [1, 65]]), OutOfBounds, "reaches elements 0 to 64.*64 elements of a partition"),
        (lambda t: t.ap([[64, 128], [-1, 2]]), OutOfBounds, "reaches elements -1 to 0"),
        (lambda t: t.ap([[64, 129], [1, 2]]), OutOfBounds, "partitions 0:129 of 128"),
        (lambda t: t.ap([[64, 128], [1, 64]], offset=64), OutOfBounds, "partitions 1:129 of 128"),
        (lambda t: t.ap([[64, 1], [1, 1]], offset=-1), OutOfBounds, "partitions -1:0"),
        (lambda t: t.ap([[128, 8], [1, 32]]), IllegalOperand, "its step must be the free size.*step 128, free size 64"),
        (lambda t: t.ap([[1, 8], [1, 32]]), IllegalOperand, "its step must be the free size"),
        (lambda t: t[:, :32].ap([[32, 8], [1, 4]], 32), IllegalOperand, "offset 32, free size 32 of the view and 64"),
        (lambda t: t[:, :32].ap([[16, 8], [1, 4]]), IllegalOperand, "its step must be the free size"),
        (lambda t: t.ap([]), IllegalOperand, r"give \[step, count\] pairs"),
        (lambda t: t.ap([[64, 0], [1, 1]]), IllegalOperand, r"give \[step, count\] pairs"),
        (lambda t: t.ap([[64, 4, 1], [1, 1]]), IllegalOperand, r"give \[step, count\] pairs"),
        (lambda t: t.ap([64, 4], [1, 1]), IllegalOperand, r"give \[step, count\] pairs"),
        (lambda t: t.ap([[64]]), IllegalOperand, r"give \[step, count\] pairs"),
        (lambda t: t.ap([[64, 4], [1, 1]], scalar_offset=t[0:1, 0:1]), IllegalOperand, "cannot choose partitions"),
        (lambda t: t.ap([[64, 4], [1, 1]], vector_offset=t[:, 0:1]), IllegalOperand, "cannot choose partitions"),
        (lambda t: t.vector_select(0, t), IllegalOperand, "is in SBUF; it must be in HBM"),
        (lambda t: t.indirect(t), IllegalOperand, "the index is t"),
    ],
)
def test_ap_refuses(call, error, message):
    with pytest.raises(error) as caught:
        asked(lambda t: nisa.memset(call(t), 0) and None)
    assert re.search(message, str(caught.value), re.DOTALL)
    assert "t[128, 64] float32 in SBUF" in str(caught.value) or "t [128, 64] float32 in SBUF" in str(caught.value)


def test_ap_in_hbm_stays_within_the_tensor():
    with pytest.raises(OutOfBounds, match="reaches elements 0 to 24"):
        asked(lambda t: nl.load(t.ap([[6, 5], [1, 1]])) and None, (4, 6), buffer=nl.shared_hbm)
    with pytest.raises(OutOfBounds, match="24 elements of the tensor"):
        asked(lambda t: t[3].ap([[1, 7]])[0:1] and None, (4, 6), buffer=nl.hbm)


@pytest.mark.parametrize("use", [nl.load, lambda view: view[0:1], lambda view: view.permute((1, 0))])
def test_a_pattern_that_leaves_its_tensor_may_be_made_and_not_used(use):
    def question(t):
        made = t.ap([[6, 5], [1, 5]])
        return made.shape, made.is_indirect(), made.dtype is t.dtype

    assert asked(question, (4, 6), buffer=nl.hbm) == ((5, 5), False, True)
    with pytest.raises(OutOfBounds, match="reaches elements 0 to 28") as caught:
        asked(lambda t: use(t.ap([[6, 5], [1, 5]])) and None, (4, 6), buffer=nl.hbm)
    assert any("test_access_pattern.py" in line for line in caught.value.where)
