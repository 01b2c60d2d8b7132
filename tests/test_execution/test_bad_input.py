"""Wrong kernels: each error says what, where (the exact kernel line), numbers, and what to do.

The line that an error must point at ends in ``# here`` in the kernel's source.
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import (
    CapacityExceeded,
    ConfigurationError,
    IllegalCall,
    IllegalOperand,
    KernelError,
    NeurosimError,
    OutOfBounds,
    Uninitialized,
    UnknownBehavior,
    UnwrittenOutput,
)
from neurosim.shell.loading import load_module

F = np.float32
here = load_module(Path(__file__).parents[1] / "marked_lines.py").here
BF16 = ml_dtypes.bfloat16


def load(array):
    tile = nl.ndarray(array.shape, dtype=array.dtype, buffer=nl.sbuf, name=f"{array.name}_tile")
    nisa.dma_copy(dst=tile, src=array)
    return tile


# -- operands in the wrong memory -------------------------------------------------------------------------------------


def matmul_into_sbuf(a, b):
    a_tile, b_tile = load(a), load(b)
    result = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.sbuf, name="result")
    nisa.nc_matmul(dst=result, stationary=a_tile, moving=b_tile)  # here


def matmul_from_hbm(a, b):
    result = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=result, stationary=a, moving=load(b))  # here


def matmul_from_psum(a, b):
    bank = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.psum, name="bank")
    nisa.memset(dst=bank, value=0.0)
    result = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=result, stationary=bank, moving=load(b))  # here


def store_from_psum(a, b):
    bank = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.psum, name="bank")
    nisa.memset(dst=bank, value=0.0)
    nisa.dma_copy(dst=a, src=bank)  # here


def vector_on_hbm(a, b):
    nisa.tensor_tensor(dst=load(a), data1=a, data2=a, op=nl.add)  # here


def iota_in_psum(a, b):
    bank = nl.ndarray((128, 64), dtype=nl.int32, buffer=nl.psum, name="bank")
    nisa.iota(dst=bank, pattern=[[1, 64]])  # here


# -- sizes ------------------------------------------------------------------------------------------------------------


def partitions_129(a, b):
    return nl.ndarray((129, 64), dtype=nl.float32, buffer=nl.sbuf, name="tall")  # here


def columns_513(a, b):
    wide = nl.zeros((128, 513), nl.float32, name="wide")
    bank = nl.ndarray((64, 513), dtype=nl.float32, buffer=nl.psum, name="bank")
    nisa.nc_matmul(dst=bank, stationary=load(a), moving=wide)  # here


def columns_192(a, b):
    wide = nl.zeros((128, 192), nl.float32, name="wide")
    bank = nl.ndarray((128, 96), dtype=nl.float32, buffer=nl.psum, name="bank")
    nisa.nc_matmul(dst=bank, stationary=wide, moving=load(b))  # here


def sbuf_over_capacity(a, b):
    tiles = []
    for index in range(4):
        tiles.append(nl.ndarray((128, 20000), dtype=nl.float32, buffer=nl.sbuf, name=f"block_{index}"))
        nisa.memset(dst=tiles[-1], value=0.0)  # here
    for tile in tiles:
        nisa.reciprocal(dst=tile[:, 0:1], data=tile[:, 0:1])


def tensor_over_capacity(a, b):
    return nl.ndarray((128, 60000), dtype=nl.float32, buffer=nl.sbuf, name="huge")  # here


# -- unwritten bytes --------------------------------------------------------------------------------------------------


def read_unwritten(a, b):
    tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, name="fresh")
    result = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=result, op=nl.exp, data=tile)  # here


def hole_reaches_output(a, b):
    tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, name="partial")
    nisa.dma_copy(dst=tile[:, 0:48], src=a[:, 0:48])
    result = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=result, op=nl.exp, data=tile)  # here
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
    nisa.dma_copy(dst=out, src=result)
    return out


def accumulate_on_unwritten(a, b):
    a_tile, b_tile = load(a), load(b)
    bank = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.psum, name="bank")
    for _ in range(2):
        nisa.nc_matmul(dst=bank, stationary=a_tile, moving=b_tile, accumulate=True)  # here


def accumulate_on_memset(a, b):
    bank = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.psum, name="bank")
    nisa.memset(dst=bank, value=0.0)
    nisa.nc_matmul(dst=bank, stationary=load(a), moving=load(b), accumulate=True)  # here


def output_never_stored(a, b):
    out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm, name="out")  # here
    nisa.dma_copy(dst=out[0:127], src=load(a)[0:127])
    return out


# -- calls, dtypes, indices -------------------------------------------------------------------------------------------


def misspelt_keyword(a, b):
    bank = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=bank, stationry=load(a), moving=load(b))  # here


def mismatched_matmul(a, b):
    half = nl.zeros((128, 96), nl.bfloat16, name="half")
    bank = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=bank, stationary=load(a), moving=half)  # here


def mismatched_transpose(a, b):
    bank = nl.ndarray((64, 128), dtype=nl.bfloat16, buffer=nl.psum, name="bank")
    nisa.nc_transpose(dst=bank, data=load(a))  # here


def mismatched_column(a, b):
    column = nl.ones((128, 1), nl.bfloat16, name="column")
    tile = load(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=column)  # here


def index_out_of_range(a, b):
    tile = load(a)
    for start in range(0, 100, 32):
        nisa.memset(dst=tile[:, start : start + 32], value=0.0)  # here


def integer_index_out_of_range(a, b):
    return load(a)[:, 64]  # here


def hbm_index_out_of_range(a, b):
    return load(a[96:160])  # here


def empty_tensor(a, b):
    return nl.ndarray((128, 0), dtype=nl.float32, buffer=nl.sbuf, name="empty")  # here


def empty_slice(a, b):
    nisa.memset(load(a)[:, 32:32], 0)  # here


MATMUL = "a_tile [128, 64] float32 in SBUF"
CASES = {
    matmul_into_sbuf: (
        IllegalOperand,
        "nc_matmul: dst is in SBUF; it must be in PSUM",
        ["dst  result [64, 96] float32 in SBUF"],
        "allocate it with buffer=nl.psum",
    ),
    matmul_from_hbm: (
        IllegalOperand,
        "nc_matmul: stationary is in HBM; it must be in SBUF",
        ["stationary  a [128, 64] float32 in HBM"],
        "load it into SBUF with nisa.dma_copy first",
    ),
    matmul_from_psum: (
        IllegalOperand,
        "nc_matmul: stationary is in PSUM; it must be in SBUF",
        ["stationary  bank [128, 64] float32 in PSUM"],
        "copy it to SBUF with nisa.tensor_copy first",
    ),
    store_from_psum: (
        IllegalOperand,
        "dma_copy: src is in PSUM; it must be in SBUF or HBM",
        ["src  bank [128, 64] float32 in PSUM"],
        "copy it to SBUF with nisa.tensor_copy first",
    ),
    vector_on_hbm: (
        IllegalOperand,
        "tensor_tensor: data1 is in HBM; it must be in SBUF or PSUM",
        ["data1  a [128, 64] float32 in HBM"],
        "load it into SBUF with nisa.dma_copy first",
    ),
    iota_in_psum: (
        IllegalOperand,
        "iota: dst is in PSUM; it must be in SBUF",
        ["dst  bank [128, 64] int32 in PSUM"],
        "nisa.tensor_copy",
    ),
    partitions_129: (
        IllegalOperand,
        "nl.ndarray tall[129, 64] float32 in SBUF: 129 partitions; SBUF has 128",
        [],
        "split the first axis into tiles of at most 128 (nl.tile_size.pmax)",
    ),
    columns_513: (
        IllegalOperand,
        "nc_matmul: moving has 513 columns; one PSUM bank holds 512 float32",
        ["moving      wide [128, 513] float32 in SBUF", "dst         bank [64, 513] float32 in PSUM"],
        "split the columns into tiles of at most 512 (nl.tile_size.gemm_moving_fmax)",
    ),
    columns_192: (
        IllegalOperand,
        "nc_matmul: stationary has 192 columns; the array is 128 wide",
        ["stationary  wide [128, 192] float32 in SBUF"],
        "split the columns into tiles of at most 128",
    ),
    sbuf_over_capacity: (
        CapacityExceeded,
        "memset: the live tiles do not fit into SBUF of trn2",
        ["240000 bytes per partition are live", "the limit is 229376", "80000 bytes per partition", "block_0"],
        "from its first write to its last access",
    ),
    tensor_over_capacity: (
        CapacityExceeded,
        "nl.ndarray huge[128, 60000] float32 in SBUF: 240000 bytes per partition; SBUF of trn2 has 229376",
        [],
        "split the free axis into smaller tiles",
    ),
    read_unwritten: (
        Uninitialized,
        "activation: data fresh [128, 64] float32 in SBUF: bytes that nobody wrote are read",
        ["unwritten here: [0:128, 0:64] (8192 of 8192 elements)", "allocated at "],
        "write all of it first (nisa.memset, nisa.dma_copy)",
    ),
    hole_reaches_output: (
        Uninitialized,
        "partial[128, 64] float32 in SBUF: bytes that nobody wrote are read by activation, and reach "
        "hole_reaches_output: output out [128, 64] float32 in HBM",
        [
            "unwritten here: [0:128, 48:64] (2048 of 8192 elements)",
            "first read: data of activation at ",
            "[0:128, 48:64] (2048 of 8192 elements) of partial[128, 64] float32 in SBUF",
            "allocated at ",
        ],
        "read only the part that was written",
    ),
    accumulate_on_unwritten: (
        Uninitialized,
        "nc_matmul: accumulate=True onto PSUM that nobody wrote",
        ["dst  bank [64, 96] float32 in PSUM", "unwritten: [0:64, 0:96] (6144 of 6144 elements)"],
        "begin with accumulate=False, e.g. accumulate=(k > 0)",
    ),
    accumulate_on_memset: (
        UnknownBehavior,
        "nc_matmul: accumulate=True onto PSUM that another instruction than a matmul wrote",
        ["written otherwise: [0:64, 0:96] (6144 of 6144 elements)"],
        "begin with accumulate=False",
    ),
    output_never_stored: (
        UnwrittenOutput,
        "output_never_stored: output out [128, 64] float32 in HBM was never fully stored",
        ["never stored: [127:128, 0:64] (64 of 8192 elements)"],
        "store every tile of it with nisa.dma_copy",
    ),
    misspelt_keyword: (
        IllegalCall,
        "nc_matmul: no operand 'stationry'",
        [],
        "did you mean stationary?",
    ),
    mismatched_matmul: (
        IllegalOperand,
        "nc_matmul: stationary is float32 and moving is bfloat16; float32 goes with float32 only",
        [f"stationary  {MATMUL}", "moving      half [128, 96] bfloat16 in SBUF"],
        "cast the narrower one to float32, or both to bfloat16",
    ),
    mismatched_transpose: (
        IllegalOperand,
        "nc_transpose: dst is bfloat16 and data is float32; they must have the same dtype",
        ["dst   bank [64, 128] bfloat16 in PSUM", f"data  {MATMUL}"],
        "cast one of them with nisa.tensor_copy first",
    ),
    mismatched_column: (
        IllegalOperand,
        "tensor_scalar: operand0 is bfloat16; it must be float32",
        ["operand0  column [128, 1] bfloat16 in SBUF"],
        "cast it with nisa.tensor_copy",
    ),
    index_out_of_range: (
        OutOfBounds,
        f"slice 64:96 on axis 1 of {MATMUL} leaves the tensor",
        ["the axis has 64 elements"],
        "slices are not clipped as in NumPy: use min() for the last tile",
    ),
    integer_index_out_of_range: (
        OutOfBounds,
        f"index 64 on axis 1 of {MATMUL}",
        ["the axis has 64 elements: -64 to 63"],
        "check the loop bounds",
    ),
    hbm_index_out_of_range: (
        OutOfBounds,
        "slice 96:160 on axis 0 of a [128, 64] float32 in HBM leaves the tensor",
        ["the axis has 128 elements"],
        "slices are not clipped",
    ),
    empty_tensor: (
        IllegalOperand,
        "nl.ndarray: shape (128, 0) has no elements",
        [],
        "each axis needs at least one",
    ),
    empty_slice: (
        OutOfBounds,
        f"slice 32:32 on axis 1 of {MATMUL} selects nothing",
        ["the axis has 64 elements"],
        "slices are not clipped",
    ),
}


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)
def test_message(kernel):
    error, what, numbers, advice = CASES[kernel]
    with pytest.raises(error) as caught:
        nki.simulate(kernel)(np.ones((128, 64), F), np.ones((128, 96), F))
    raised = caught.value
    assert type(raised) is error
    assert raised.what == what
    assert raised.where[0] == f"{here(kernel)}  in {kernel.__name__}"
    assert len(raised.where) == 1
    for number in numbers:
        assert number in "\n".join(raised.numbers)
    assert advice in raised.advice
    assert str(raised) == "\n  ".join([what, *raised.where, *raised.numbers, raised.advice])


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)
def test_the_same_errors_without_values(kernel):
    """What is wrong with a kernel is wrong also where it is only recorded."""
    with pytest.raises(CASES[kernel][0]) as caught:
        neurosim.simulate(kernel, values=False)(np.ones((128, 64), F), np.ones((128, 96), F))
    assert caught.value.what == CASES[kernel][1]
    assert caught.value.where[0].startswith(here(kernel))


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)
def test_kinds(kernel):
    """F11: one family, so that a caller can catch wrong kernels and nothing else."""
    error = CASES[kernel][0]
    assert issubclass(error, NeurosimError)
    assert issubclass(error, KernelError) == (error is not UnknownBehavior)


def test_errors_in_helpers_name_the_whole_stack():
    """F7: in a helper, a lambda and a decorated function, innermost frame first."""

    def decorated(function):
        def wrapper(*args):
            return function(*args)

        return wrapper

    @decorated
    def helper(tile):
        nisa.reciprocal(dst=tile, data=tile[:, 0:32])  # here

    def kernel(a):
        (lambda tile: helper(tile))(load(a))

    with pytest.raises(IllegalOperand) as caught:
        nki.simulate(kernel)(np.ones((128, 64), F))
    names = [entry.rsplit(" in ", 1)[1] for entry in caught.value.where]
    assert names == ["helper", "wrapper", "<lambda>", "kernel"]
    file = os.path.relpath(__file__)
    line = inspect.getsourcelines(test_errors_in_helpers_name_the_whole_stack)[1]
    source, _ = inspect.getsourcelines(test_errors_in_helpers_name_the_whole_stack)
    (offset,) = [index for index, text in enumerate(source) if text.rstrip().endswith("# here") and "nisa" in text]
    assert caught.value.where[0] == f"{file}:{line + offset}  in helper"


def test_errors_in_a_kernel_of_another_module(tmp_path):
    """F7: lines are not lost across files."""
    (tmp_path / "elsewhere.py").write_text(
        "import nki.isa as nisa\n\n\ndef wrong(tile):\n    # a comment\n    nisa.reciprocal(\n"
        "        dst=tile,\n        data=tile[:, 0:2],\n    )\n"
    )
    import importlib.util

    spec = importlib.util.spec_from_file_location("elsewhere", tmp_path / "elsewhere.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def kernel(a):
        module.wrong(load(a))

    with pytest.raises(IllegalOperand) as caught:
        nki.simulate(kernel)(np.ones((4, 4), F))
    assert caught.value.where[0] == f"{tmp_path / 'elsewhere.py'}:6  in wrong"
    assert caught.value.where[1].endswith("in kernel")


def test_a_kernel_called_with_too_little_shows_its_parameters():
    """Annotations such as `nl.ndarray` are functions, whose text is an address."""

    def scale(x, factor, act=test_message, eps=1e-6): ...

    scale.__annotations__ = {"x": nl.ndarray, "return": nl.ndarray}  # not as text, as they are without __future__

    with pytest.raises(IllegalCall) as caught:
        neurosim.simulate(scale)(np.zeros((2, 2), np.float32))
    assert str(caught.value).splitlines()[0] == "scale: missing a required argument: 'factor'"
    assert str(caught.value).splitlines()[-1] == "  it takes (x, factor, act=…, eps=1e-06)"


def test_arguments_without_elements():
    for array, text in ((np.ones((0, 4), F), "[0, 4] float32 has no elements"), (np.array(F(1)), "[] float32 has no")):
        with pytest.raises(IllegalOperand) as caught:
            nki.simulate(lambda x: None)(array)
        assert caught.value.what.startswith(f"argument x {text}")
        assert caught.value.advice == "a tensor needs at least one element and axis"


def test_arguments_of_an_unknown_dtype():
    with pytest.raises(IllegalOperand) as caught:
        nki.simulate(lambda x: None)(np.ones((4, 4)))
    assert caught.value.what == "argument x is float64, which is not an NKI dtype"
    assert "float32, bfloat16, float16" in caught.value.numbers[0]
    assert caught.value.advice == "convert it first, e.g. with .astype(np.float32)"


class TestPartialOutputs:
    """A call may name outputs that stay unwritten in part."""

    @staticmethod
    def pair(x):
        first = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        second = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=first, src=x)
        nisa.dma_copy(dst=second[0:1], src=x[0:1])
        return first, second

    def test_it_is_returned_with_zeros(self):
        x = np.ones((2, 3), np.float32)
        first, second = neurosim.simulate(self.pair, partial_outputs=["output[1]"])(x).outputs
        assert (first == 1).all()
        assert (second == [[1, 1, 1], [0, 0, 0]]).all()

    @pytest.mark.parametrize("names", [(), ("output[0]",)])
    def test_others_are_still_refused(self, names):
        with pytest.raises(UnwrittenOutput, match=r"partial_outputs=\['output\[1\]'\]"):
            neurosim.simulate(self.pair, partial_outputs=names)(np.ones((2, 3), np.float32))


def test_numbers_beyond_float32_are_refused():
    def scaled(x):
        tile = nl.load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1e300)
        return x

    with pytest.raises(IllegalOperand, match=r"operand0 1e\+300 does not fit float32"):
        nki.simulate(scaled)(np.ones((2, 3), np.float32))


def test_a_negated_nan_is_the_one_nan():
    def negated(x):
        tile, total = nl.load(x), nl.ndarray((2, 1), nl.float32)
        nisa.tensor_reduce(dst=total, op=nl.add, data=tile, axis=1, negate=True)
        out = nl.ndarray((2, 1), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=total)
        return out

    out = nki.simulate(negated)(np.array([[np.nan, 1], [2, 3]], np.float32))
    assert out.view(np.uint32)[0] == 0x7FC00000
    assert out[1] == -5


def test_a_kernel_that_is_a_generator_is_refused():
    def lazy(x):
        yield x

    with pytest.raises(IllegalOperand, match="nothing of it has run"):
        nki.simulate(lazy)(np.ones((2, 3), np.float32))


def test_a_setting_that_says_nothing_is_refused(monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", "off")
    with pytest.raises(ConfigurationError, match="NKI_PRECISE_FP='off' is neither 0 nor 1"):
        nki.simulate(lambda x: x)(np.ones((2, 3), np.float32))


def test_interleaved_axes_that_reach_each_element_once_can_be_written():
    def interleaved(x):
        out = nl.ndarray((1, 16), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.zeros((1, 16), dtype=x.dtype)
        nisa.dma_copy(dst=tile.ap([[16, 1], [2, 3], [3, 3]]), src=x)
        nisa.dma_copy(dst=out, src=tile)
        return out

    x = np.arange(1, 10, dtype=np.float32).reshape(1, 3, 3)
    expected = np.zeros((1, 16), np.float32)
    expected[0, (2 * np.arange(3)[:, None] + 3 * np.arange(3)).reshape(-1)] = x.reshape(-1)
    assert (nki.simulate(interleaved)(x) == expected).all()
