"""Index tensors and masks of the legacy dialect, against NumPy."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neurosim.errors import IllegalOperand, Unsupported
from neurosim.nki.legacy.index import Affine, arange, boxes_of, mgrid


def values_of(expression):
    return expression.values()


def test_arithmetic_is_numpys():
    i, j = arange(5)[:, None], arange(2, 14, 3)[None, :]
    n, m = np.arange(5)[:, None], np.arange(2, 14, 3)[None, :]
    for ours, numpys in (
        (3 * i + j - 7, 3 * n + m - 7),
        (10 - i, 10 - n),
        (-j + i * 2, -m + n * 2),
        (np.int64(4) * i + np.int32(1), 4 * n + 1),
        ((j * 6) // 3, m * 6 // 3),
        ((i * 8 + 3) % 4, (n * 8 + 3) % 4),
    ):
        np.testing.assert_array_equal(values_of(ours), numpys)


def test_what_is_not_affine_says_so():
    with pytest.raises(Unsupported, match="not an affine expression"):
        arange(8)[:, None] // 3
    with pytest.raises(Unsupported, match="not an affine expression"):
        arange(8)[:, None] * arange(8)[None, :]
    with pytest.raises(IllegalOperand, match="no truth value"):
        bool(arange(8))
    with pytest.raises(IllegalOperand, match="no elements"):
        arange(0)


def test_mgrid_names_its_axes():
    grid = mgrid[0:4, 2:5, 0:2]
    p, x, y = grid
    assert (grid.p, grid.x, grid.y) == (p, x, y) or grid.p is p
    assert [axis.shape for axis in (p, x, y)] == [(4, 1, 1), (1, 3, 1), (1, 1, 2)]
    np.testing.assert_array_equal(x.values()[0, :, 0], [2, 3, 4])
    with pytest.raises(AttributeError, match="3 axes has no 'z'"):
        _ = grid.z


COMPARISONS = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(COMPARISONS)),
            st.integers(-3, 3),
            st.integers(-3, 3),
            st.integers(-12, 12),
        ),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 7),
    st.integers(1, 9),
)
def test_boxes_hold_exactly_what_the_mask_selects(terms, rows, columns):
    i, j = arange(rows)[:, None], arange(columns)[None, :]
    n, m = np.arange(rows)[:, None], np.arange(columns)[None, :]
    mask, expected = True, np.ones((rows, columns), bool)
    for sign, a, b, c in terms:
        mask = mask & COMPARISONS[sign](a * i + b * j, c)
        expected &= COMPARISONS[sign](a * n + b * m, c)
    found = np.zeros((rows, columns), int)
    for box in boxes_of(mask, (rows, columns), "test"):
        found[tuple(slice(low, high) for low, high in box)] += 1
    np.testing.assert_array_equal(found, expected.astype(int))


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 200])
def test_a_tail_is_one_box(rows):
    i = arange(128)[:, None]
    found = [boxes_of(128 * block + i < rows, (128, 512), "test") for block in range(2)]
    assert found[0] == [((0, min(rows, 128)), (0, 512))]
    assert found[1] == ([] if rows <= 128 else [((0, rows - 128), (0, 512))])


def test_masks_of_other_ranks():
    i = arange(128)[:, None]
    assert boxes_of(i < 5, (128, 8, 4), "test") == [((0, 5), (0, 8), (0, 4))]
    assert boxes_of(arange(4)[None, :] < 3, (128, 8, 4), "test") == [((0, 128), (0, 8), (0, 3))]
    assert boxes_of(False, (4, 4), "test") == []
    with pytest.raises(IllegalOperand, match="no comparison of index tensors"):
        boxes_of(np.ones((4, 4)), (4, 4), "test")
    with pytest.raises(Unsupported, match="'\\|' of two masks"):
        _ = (i < 5) | (i > 7)


def test_slices_of_index_tensors():
    i = arange(10, 20)
    np.testing.assert_array_equal(i[2:8:3].values(), np.arange(10, 20)[2:8:3])
    assert i[None, :, None].shape == (1, 10, 1)
    assert Affine((4,), (2,), 1)[-1].values() == 7


def test_extent_one_axes_have_no_step():
    for shape in itertools.product((1, 3), repeat=2):
        steps = Affine(shape, (5, 7), 0).steps
        assert all((step == 0) == (extent == 1) for step, extent in zip(steps, shape, strict=True))
