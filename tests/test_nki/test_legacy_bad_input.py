"""What legacy kernels must not do is refused in words, whatever it is; what may look wrong and is not runs."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from neurosim.errors import IllegalOperand, NeurosimError, OutOfBounds, Unsupported
from neurosim.nki.legacy.index import boxes_of

ARRAY = np.ones((8, 16), np.float32)


def run(text):
    """Run a kernel of one expression: ``a`` is in HBM, ``t`` is it in SBUF, ``x`` is an array."""
    names = {"nl": nl, "nisa": nisa, "np": np, "x": ARRAY}
    exec(f"def body(a, t):\n    return {text}\n" if " = " not in text else f"def body(a, t):\n    {text}\n", names)

    @nki.jit(platform_target="trn2")
    def kernel(a):
        made = names["body"](a, nl.load(a))
        if isinstance(made, nl.tensor):
            made.resolve("the test", use="")
        out = nl.ndarray((8, 16), dtype=np.float32, buffer=nl.shared_hbm)
        nl.store(out, 0.0)
        return out

    return kernel(ARRAY.copy())


WRONG = {
    # index tensors
    "nl.load(a[nl.arange(8), nl.arange(16)])": (IllegalOperand, "do not go together"),
    "nl.arange(8)[:, None] / 2": (Unsupported, "not an affine expression"),
    "nl.arange(8) * 0.5": (Unsupported, "not an affine expression"),
    "0.5 + nl.arange(8)": (Unsupported, "not an affine expression"),
    "nl.arange(8) ** 2": (Unsupported, "not an affine expression"),
    "nl.arange(8) >> 1": (Unsupported, "not an affine expression"),
    "abs(nl.arange(8))": (Unsupported, "not an affine expression"),
    "nl.arange(8) // 0": (Unsupported, "not an affine expression"),
    "int(nl.arange(8))": (IllegalOperand, "is no number"),
    "nl.arange(8)[:, None, 5]": (IllegalOperand, "3 indices"),
    "nl.arange(8)[..., ...]": (IllegalOperand, "2 indices"),
    "nl.arange(8)[::0]": (IllegalOperand, "selects nothing"),
    "nl.arange(8)['x':]": (IllegalOperand, "not made of ints"),
    "nl.arange(8)[9]": (IllegalOperand, "index 9"),
    "nl.mgrid[0:8:0]": (IllegalOperand, "no elements"),
    "nl.load(a[nl.ds(0, -1)])": (IllegalOperand, "size of at least 1"),
    "nl.load(a[np.array([0, 2, 5])])": (IllegalOperand, "no affine sequence"),
    "nl.load(a[-9])": (OutOfBounds, "indices -1 to -1"),
    # masks
    "nl.load(a, mask=nl.arange(9)[:, None] < 5)": (IllegalOperand, r"a mask of shape \[9, 1\]"),
    "nl.load(a, mask=(nl.arange(8)[:, None] < 5) & 3)": (IllegalOperand, "join comparisons"),
    "nl.load(a, mask=~((nl.arange(8)[:, None] < 5) & (nl.arange(16) < 3)))": (Unsupported, "'~' of several"),
    "nl.load(a, mask=nl.arange(8)[:, None] < None)": (IllegalOperand, "compared with None"),
    "nisa.nc_matmul(t, t, mask=5)": (IllegalOperand, "mask=5 is no comparison"),
    "nisa.affine_select(nl.arange(8)[:, None] < nl.arange(17), t, 0)": (IllegalOperand, r"\[8, 17\]"),
    # shapes
    "nisa.nc_matmul(t, nl.zeros((16, 4), dtype=np.float32))": (IllegalOperand, "moving has 16"),
    "nisa.tensor_scalar_cumulative(src=t, dst=t[0:4], op0=np.add, op1=np.add, imm0=1.0)": (IllegalOperand, "shape"),
    "nisa.tensor_copy_dynamic_dst(dst=t, src=t[0:4])": (IllegalOperand, r"must have the shape \[8, 16\]"),
    "nl.broadcast_to(t, shape=(8, 16, 2))": (IllegalOperand, "cannot be broadcast"),
    "nl.broadcast_to(t, shape=5)": (IllegalOperand, "not made of ints"),
    "nl.expand_dims(t, 9)": (IllegalOperand, "at axis 9"),
    "t.reshape('x')": (IllegalOperand, "not made of ints"),
    "nisa.memset((8, 'x'), 1.0, np.float32)": (IllegalOperand, "not made of ints"),
    "nl.rand(5)": (IllegalOperand, "not made of ints"),
    "nl.par_dim('x')": (IllegalOperand, "give an int"),
    "nl.zeros_like(5)": (IllegalOperand, "no tensor"),
    # axes
    "nl.sum(t, axis=2)": (IllegalOperand, "axis=2"),
    "nl.sum(t, axis=1.5)": (IllegalOperand, "axis=1.5"),
    "nl.sum(t, axis=None)": (IllegalOperand, "axis=None"),
    "nl.sum(t, axis=[1, 1])": (IllegalOperand, "axis="),
    # operands
    "nisa.tensor_scalar(t, np.add, 'x')": (IllegalOperand, "must be a number"),
    "nisa.tensor_scalar(t, np.add, x)": (IllegalOperand, "must be a number"),
    "nisa.activation(np.exp, t, bias='x')": (IllegalOperand, "must be a number"),
    "nisa.affine_select(nl.arange(8)[:, None] < 3, t, 'x')": (IllegalOperand, "must be a number"),
    "nisa.tensor_tensor_scan(t, t, initial=None, op0=np.add, op1=np.add)": (IllegalOperand, "initial is None"),
    "nl.full((8, 16), 'x', dtype=np.float32)": (IllegalOperand, "must be a number"),
    "nl.full((8, 16), None, dtype=np.float32)": (IllegalOperand, "must be a number"),
    "nisa.memset((8, 16), 'x', np.float32)": (IllegalOperand, "no number"),
    "nl.where(t, t, 'x')": (IllegalOperand, "neither a tile nor a number"),
    "nl.rms_norm(t, t, axis=1, n=0)": (IllegalOperand, "n is 0"),
    "nisa.nc_match_replace8(data=t, vals=t[:, 0:8], imm=0.0, dst_idx=5)": (IllegalOperand, "dst_idx is 5"),
    "nisa.dma_transpose(a, axes=5)": (IllegalOperand, "axes=5"),
    "nisa.nc_matmul(t, t, tile_position=5)": (IllegalOperand, "tile_position"),
    # Python's and NumPy's operators
    "t + x": (IllegalOperand, "give tiles and numbers"),
    "x + t": (IllegalOperand, "tiles take nl.add"),
    "np.exp(t)": (IllegalOperand, "tiles take nl.exp"),
    "t + 'x'": (IllegalOperand, "give tiles and numbers"),
    "t < None": (IllegalOperand, "give tiles and numbers"),
    "t * nl.arange(8)[:, None]": (IllegalOperand, "give tiles and numbers"),
    "nl.arange(8)[:, None] * t": (Unsupported, "not an affine expression"),
    "t // 2": (IllegalOperand, "use nl.floor"),
    "t @ t": (IllegalOperand, "use nl.matmul"),
    "abs(t)": (IllegalOperand, "use nl.abs"),
    "float(t)": (IllegalOperand, "no number"),
    "list(nl.affine_range(1.5))": (IllegalOperand, "one to three ints"),
    "list(nl.sequential_range('x'))": (IllegalOperand, "one to three ints"),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_said(text):
    error, words = WRONG[text]
    with pytest.raises(error, match=words) as raised:
        run(text)
    assert isinstance(raised.value, NeurosimError)


def value(text):
    """Return what an expression of a kernel gives: the array that a tile holds, anything else as it is."""
    names = {"nl": nl, "nisa": nisa, "np": np}
    exec(f"def body(a, t):\n    return {text}\n", names)
    plain = []

    @nki.jit(platform_target="trn2")
    def kernel(a):
        made = names["body"](a, nl.load(a))
        if not isinstance(made, nl.tensor):
            plain.append(made)
            made = nl.zeros((1, 1), dtype=np.float32)
        out = nl.ndarray(made.shape, dtype=made.dtype, buffer=nl.shared_hbm)
        nl.store(out, made)
        return out

    found = kernel(ARRAY.copy())
    return plain[0] if plain else found


ONES = np.ones((8, 16), np.float32)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("np.float32(3) * t", 3 * ONES),
        ("np.float32(3) < t", 0 * ONES),
        ("nl.load(a, mask=~(nl.arange(8)[:, None] < 5))[5:8]", ONES[5:8]),
        ("nl.load(a, mask=(nl.arange(8)[:, None] < 5) & True)[0:5]", ONES[:5]),
        ("nl.sum(t, axis=-1)", 16 * ONES[:, :1]),
        ("nisa.memset((8,), 1.0, np.float32)", ONES[:, :1]),
        ("nl.copy(nl.full((8,), 1.0, dtype=np.float32))", ONES[:, :1]),
        ("t == None", False),
    ],
)
def test_what_only_looks_wrong_runs(text, expected):
    found = value(text)
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("comparison", "rows"),
    [("< 2.5", 3), ("<= 2.5", 3), ("> 2.5", 5), (">= 2.5", 5), ("< 4 / 2", 2), ("== 2.5", 0), ("!= 2.5", 8)],
)
def test_indices_compare_with_fractions(comparison, rows):
    mask = eval(f"nl.arange(8)[:, None] {comparison}", {"nl": nl})
    assert sum(high - low for (low, high), _ in boxes_of(mask, (8, 16), "the test")) == rows
