"""``NkiTensor.rearrange`` against NumPy's reshape and transpose."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.errors import IllegalOperand

DATA = np.arange(6 * 24, dtype=np.float32).reshape(6, 24)


def rearranged(view, *, on_chip):
    def kernel(x):
        tensor = nl.load(x) if on_chip else x
        seen = view(tensor)
        out = nl.ndarray(seen.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=seen)
        return out

    return nki.simulate(kernel)(DATA)


@pytest.mark.parametrize("on_chip", [True, False])
@pytest.mark.parametrize(
    ("source", "target", "sizes", "expected"),
    [
        (("p", ("h", "w")), ("p", "w", "h"), {"h": 4}, DATA.reshape(6, 4, 6).transpose(0, 2, 1)),
        (("p", ("h", "w")), ("p", "h", "w"), {"w": 3}, DATA.reshape(6, 8, 3)),
        (("p", ("a", "b", "c")), ("p", "b", ("a", "c")), {"a": 1, "b": 4}, DATA.reshape(6, 4, 6)),
        (("p", "n"), ("p", "n"), None, DATA),
        (("p", "n"), ("p", (), "n"), None, DATA[:, None]),
    ],
)
def test_rearrange_is_reshape_and_transpose(source, target, sizes, expected, on_chip):
    out = rearranged(lambda t: t.rearrange(source, target, sizes), on_chip=on_chip)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("source", "target", "sizes", "words"),
    [
        (("p",), ("p",), {}, "1 axes and the tensor 2"),
        (("p", "n"), ("n", "p"), {}, "moves the partition axis"),
        (("p", "n"), ("p", "m"), {}, "same names"),
        (("p", ("a", "b")), ("p", "a", "b"), {}, "does not make an axis of 24"),
        (("p", ("a", "b")), ("p", "a", "b"), {"a": 7}, "does not make an axis of 24"),
        (("p", "n"), ("p", "n"), {"q": 2}, "names q"),
        (("p", 3), ("p", 3), {}, "tuple of names"),
        (("p", ("a", "b")), ("p", ("b", "a")), {"a": 4}, "not dense among themselves"),
    ],
)
def test_patterns_that_make_no_sense(source, target, sizes, words):
    with pytest.raises(IllegalOperand, match=words):
        rearranged(lambda t: t.rearrange(source, target, sizes), on_chip=True)
