"""``nki.language``: dtypes, sizes, ranges, tensors, and what names say that are not there."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import CapacityExceeded, IllegalOperand, KernelError, Unsupported

F = np.float32
DTYPES = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "bool_": np.bool_,
}


def run(kernel, *arrays, **options):
    return neurosim.simulate(kernel, **options)(*arrays).outputs


def stored(tile):
    if tile.buffer is nl.psum:
        copy = nl.ndarray(tile.shape, tile.dtype, nl.sbuf)
        nisa.tensor_copy(dst=copy, src=tile)
        tile = copy
    out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
    nl.store(out, tile)
    return out


# -- dtypes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_are_numpy_dtypes(name):
    dtype, wanted = getattr(nl, name), np.dtype(DTYPES[name])
    assert np.dtype(dtype) == wanted
    array = np.zeros((2, 3), dtype=dtype)
    assert array.dtype == wanted
    assert np.ones(3, np.float32).astype(dtype).dtype == wanted
    assert np.empty_like(array, dtype=dtype).dtype == wanted
    assert dtype.itemsize == wanted.itemsize


@pytest.mark.parametrize("name", DTYPES)
def test_dtypes_are_strings(name):
    """nl.bfloat16 == "bfloat16": kernels compare and print dtypes."""
    dtype = getattr(nl, name)
    assert isinstance(dtype, str)
    assert dtype == name.removesuffix("_")
    assert repr(dtype) == str(dtype) == name.removesuffix("_")
    assert {dtype: 1}[str(dtype)] == 1


@pytest.mark.parametrize("spelling", ["nl", "name", "numpy", "scalar type", "array dtype"])
@pytest.mark.parametrize("name", DTYPES)
def test_every_spelling_of_a_dtype_makes_the_same_tensor(name, spelling):
    dtype = {
        "nl": getattr(nl, name),
        "name": name,
        "numpy": np.dtype(DTYPES[name]),
        "scalar type": DTYPES[name],
        "array dtype": np.zeros(1, DTYPES[name]).dtype,
    }[spelling]
    made = run(lambda: nl.ndarray((4, 4), dtype, nl.sbuf).dtype)
    assert made is getattr(nl, name)


@pytest.mark.parametrize("dtype", [np.float64, "float64", np.int64, "fp32", None, 3, complex, object])
def test_what_is_no_dtype(dtype):
    with pytest.raises(IllegalOperand) as caught:
        run(lambda: nl.ndarray((4, 4), dtype, nl.sbuf))
    assert f"{getattr(dtype, '__name__', repr(dtype))} is not an NKI dtype" in str(caught.value)
    assert "known: float32, bfloat16" in str(caught.value)


def test_dtype_of_an_input():
    for wanted in DTYPES.values():
        dtype = run(lambda a: a.dtype, np.zeros((2, 2), wanted))
        assert np.dtype(dtype) == np.dtype(wanted)


# -- sizes ------------------------------------------------------------------------------------------------------------


def test_tile_size_of_trn2():
    """_TileSize, with the figures of NeuronCore-v3."""
    sizes = nl.tile_size
    assert sizes.pmax == 128
    assert sizes.psum_bank_fmax == sizes.psum_fmax == 512
    assert sizes.psum_bank_fmax_bytes == 2048
    assert sizes.psum_num_banks == 8
    assert sizes.gemm_stationary_fmax == 128
    assert sizes.gemm_moving_fmax == 512
    assert sizes.sbuf_fmax_bytes == sizes.total_available_sbuf_size == 212984  # as a chip printed it
    assert sizes.sbuf_fmax * 4 == sizes.sbuf_fmax_bytes
    assert sizes.sbuf_size_bytes == 28 << 20


@pytest.mark.parametrize(("chip", "usable_kib"), [("trn1", 192), ("trn3", 256)])
def test_where_all_of_sbuf_is_the_kernels(chip, usable_kib):
    """The manual's allocator begins its heap 512 bytes below 262144 on trn3."""
    sizes = run(lambda: (nl.tile_size.total_available_sbuf_size, nl.tile_size.sbuf_size_bytes), chip=chip)
    assert sizes == (usable_kib << 10, 128 * usable_kib << 10)


def test_tile_size_is_that_of_the_running_chip():
    small = neurosim.load_chip("trn2").replace(sbuf__partition_bytes=64 * 1024)
    assert run(lambda: nl.tile_size.sbuf_size_bytes, chip=small) == 128 * 64 * 1024
    assert nl.tile_size.sbuf_size_bytes != 128 * 64 * 1024


def test_alignments():
    assert (nl.tile_size.psum_min_align, nl.tile_size.sbuf_min_align) == (4, 1)


# -- ranges -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["affine_range", "sequential_range", "static_range"])
def test_ranges_are_python_ranges(name):
    numbers = getattr(nl, name)
    assert list(numbers(4)) == [0, 1, 2, 3]
    assert list(numbers(2, 5)) == [2, 3, 4]
    assert list(numbers(1, 10, 3)) == [1, 4, 7]
    assert list(numbers(start=1, stop=8, step=2)) == [1, 3, 5, 7]
    assert list(numbers(0)) == []
    assert len(numbers(5)) == 5
    assert all(type(number) is int for number in numbers(3))


# -- tensors ----------------------------------------------------------------------------------------------------------


def test_ndarray_defaults():
    def kernel():
        one, two = nl.ndarray((4, 8), nl.float32), nl.ndarray(shape=(2, 3), dtype=nl.int8, name="mine")
        return one.buffer, two.buffer, two.name, bool(one.name), one.name != two.name

    assert run(kernel) == (nl.sbuf, nl.sbuf, "mine", True, True)


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum, nl.hbm, nl.private_hbm, nl.shared_hbm])
def test_buffers(buffer):
    def kernel():
        tensor = nl.ndarray((4, 8), nl.float32, buffer)
        return (
            tensor.buffer is buffer,
            nl.is_hbm(tensor.buffer),
            nl.is_on_chip(tensor.buffer),
            nl.is_sbuf(tensor.buffer),
            nl.is_psum(tensor.buffer),
        )

    on_chip = buffer in (nl.sbuf, nl.psum)
    assert run(kernel) == (True, not on_chip, on_chip, buffer is nl.sbuf, buffer is nl.psum)


@pytest.mark.parametrize("shape", [[4, 8], (np.int64(4), np.int32(8)), (4, 8)])
def test_shapes(shape):
    assert run(lambda: nl.ndarray(shape, nl.float32).shape) == (4, 8)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((129, 4), nl.float32), IllegalOperand, "129 partitions; SBUF has 128"),
        (((129, 4), nl.float32, nl.psum), IllegalOperand, "129 partitions; PSUM has 128"),
        (((4,), nl.float32), IllegalOperand, r"one axis\n.*use \(4, 1\) or \(1, 4\)"),
        ((4, nl.float32), IllegalOperand, "one axis"),
        ((1, nl.float32), IllegalOperand, r"partitions; use \(1, 1\)"),
        ((512, nl.float32), IllegalOperand, r"partitions; use \(1, 512\)"),
        (((4, 0), nl.float32), IllegalOperand, r"shape \(4, 0\) has no elements"),
        (((), nl.float32), IllegalOperand, r"shape \(\) has no elements"),
        (((4, -1), nl.float32), IllegalOperand, r"shape \(4, -1\) has no elements"),
        (((4, 2.0), nl.float32), IllegalOperand, "is not made of ints"),
        (((4, "8"), nl.float32), IllegalOperand, "is not made of ints"),
        (((4, 8), nl.float32, "sbuf"), IllegalOperand, "buffer='sbuf' is not a memory"),
        (((4, 8), nl.float32, None), IllegalOperand, "buffer=None is not a memory"),
        (((128, 100000), nl.float32), CapacityExceeded, "400000 bytes per partition; SBUF of trn2 has 229376"),
    ],
)
def test_impossible_tensors(arguments, error, message):
    with pytest.raises(error, match=r"nl\.ndarray") as caught:
        run(lambda: nl.ndarray(*arguments))
    assert re_search(message, str(caught.value))
    assert "tests/test_nki/test_language.py:" in caught.value.where[0]


def re_search(pattern, text):
    import re

    return re.search(pattern, text, re.DOTALL)


def test_advice_names_tile_size():
    with pytest.raises(IllegalOperand, match="split the first axis into tiles of at most 128"):
        run(lambda: nl.ndarray((200, 4), nl.float32))


@pytest.mark.parametrize("name", DTYPES)
def test_zeros_ones_and_full(name):
    dtype = getattr(nl, name)

    def kernel():
        return tuple(
            stored(tile)
            for tile in (
                nl.zeros((4, 3), dtype),
                nl.ones((4, 3), dtype, nl.psum),
                nl.full((4, 3), 1, dtype),
                nl.zeros_like(nl.ndarray((2, 5), dtype)),
            )
        )

    zeros, ones, full, like = run(kernel)
    for got, value, shape in ((zeros, 0, (4, 3)), (ones, 1, (4, 3)), (full, 1, (4, 3)), (like, 0, (2, 5))):
        assert got.tobytes() == np.full(shape, value).astype(DTYPES[name]).tobytes()
        assert got.dtype == np.dtype(DTYPES[name])


def test_empty_like_and_zeros_like_take_what_is_not_given():
    def kernel():
        x = nl.ndarray((4, 6), nl.bfloat16, nl.psum)
        made = [nl.empty_like(x), nl.empty_like(x, nl.float32), nl.empty_like(x, buffer=nl.sbuf, name="mine")]
        made.append(nl.zeros_like(x, nl.int8, nl.sbuf))
        return [(tensor.shape, str(tensor.dtype), tensor.buffer) for tensor in made], made[2].name

    made, name = run(kernel)
    assert made == [
        ((4, 6), "bfloat16", nl.psum),
        ((4, 6), "float32", nl.psum),
        ((4, 6), "bfloat16", nl.sbuf),
        ((4, 6), "int8", nl.sbuf),
    ]
    assert name == "mine"


def test_load_and_store():
    array = np.arange(24, dtype=F).reshape(4, 6)

    def kernel(a):
        out = nl.ndarray((4, 6), nl.bfloat16, nl.shared_hbm)
        half = nl.load(a[:, 0:3], dtype=nl.bfloat16)
        assert (half.shape, half.dtype, half.buffer) == ((4, 3), nl.bfloat16, nl.sbuf)
        nl.store(out[:, 0:3], half)
        nl.store(dst=out[:, 3:6], value=nl.load(src=a[:, 3:6]))
        return out

    np.testing.assert_array_equal(run(kernel, array), array.astype(ml_dtypes.bfloat16))


def test_load_of_too_many_rows():
    with pytest.raises(IllegalOperand, match="200 partitions; SBUF has 128"):
        run(lambda a: nl.load(a), np.zeros((200, 4), F))


# -- programs and printing --------------------------------------------------------------------------------------------


def test_one_program():
    assert run(lambda: (nl.program_id(0), nl.num_programs(0), nl.num_programs(), nl.program_ndim())) == (0, 1, 1, 0)
    assert run(lambda: (nl.program_id(axis=0), nl.num_programs(axes=0))) == (0, 1)


@pytest.mark.parametrize("call", [lambda: nl.ndarray((4, 4), nl.float32), nl.program_id, nl.num_programs])
def test_outside_of_a_kernel(call):
    with pytest.raises(KernelError, match="was called outside of a kernel") as caught:
        call()
    assert "nki.simulate(kernel)" in str(caught.value)


def test_printing(capsys):
    """F8: device_print of any rank prints now, in order."""

    def kernel(a):
        tile = nl.load(a)
        for index in range(2):
            nl.device_print(f"step {index}", tile[:, index])
        nl.device_print("whole", a)
        print(tile[0:1, 0:2])  # noqa: T201 (what is tested)

    run(kernel, np.arange(8, dtype=np.int32).reshape(2, 4))
    text = capsys.readouterr().out
    assert [text.index(part) for part in ("step 0", "step 1", "whole")] == sorted(
        text.index(part) for part in ("step 0", "step 1", "whole")
    )
    assert "[[0]\n [4]]" in text
    assert "[[0 1 2 3]\n [4 5 6 7]]" in text
    assert "[[0 1]]" in text


def test_assertions_in_kernels():
    """F8: a failing assert is Python's, with its message."""

    def kernel(a):
        for index in range(3):
            assert a.shape[0] > index, f"row {index} of {a.shape[0]}"

    with pytest.raises(AssertionError, match="row 2 of 2"):
        run(kernel, np.zeros((2, 2), F))


def test_nki_objects():
    class Config(nl.NKIObject):
        depth = 2

    config = Config(rows=3, name="x")
    assert (config.depth, config.rows, config.name) == (2, 3, "x")


# -- names ------------------------------------------------------------------------------------------------------------


def test_documented_names_that_are_not_built(monkeypatch):
    """F13: one line says so; hasattr is False, so that kernels can ask."""
    name = "beyond"
    monkeypatch.setattr(nl, "_NOT_BUILT", frozenset({name}))
    with pytest.raises(Unsupported, match=f"nki.language.{name} is documented for NKI 0.6 and not built here yet"):
        getattr(nl, name)
    with pytest.raises(AttributeError):
        getattr(nl, name)
    assert not hasattr(nl, name)


@pytest.mark.parametrize("name", ["flaot32", "Float32", "sbuff", "tensor_tensor", "xyz"])
def test_misspelt_names(name):
    with pytest.raises(AttributeError, match=f"module 'nki.language' has no attribute '{name}'") as caught:
        getattr(nl, name)
    assert not isinstance(caught.value, Unsupported)


@pytest.mark.parametrize(("wrong", "right"), [("flaot32", "float32"), ("bfloat_16", "bfloat16"), ("sbuff", "sbuf")])
def test_misspelt_names_suggest(wrong, right):
    with pytest.raises(AttributeError, match=f"did you mean {right}"):
        getattr(nl, wrong)


def test_operators_are_names():
    """Operators are passed as op=; most of them are functions on tiles, too."""
    assert repr(nl.add) == "nl.add"
    assert nl.add is nl.add
    assert nl.add != nl.multiply
    assert {nl.add: 1}[nl.add] == 1


def test_dir_lists_operators():
    names = dir(nl)
    assert {"add", "exp", "ndarray", "bfloat16", "tile_size", "affine_range"} <= set(names)
    for name in names:
        getattr(nl, name)


def test_configuration_classes_take_their_plain_attributes():
    @dataclasses.dataclass
    class Section(nl.NKIObject):
        rows: int
        scale = 1.0

    section = Section(rows=3, scale=2.0)
    assert (section.rows, section.scale) == (3, 2.0)
    with pytest.raises(TypeError):
        Section(rows=3, other=1)


def test_generations_have_an_order():
    assert nisa.nc_version.gen2 < nisa.nc_version.gen3 <= nisa.get_nc_version()


def test_par_dim_says_what_the_first_axis_is():
    """An older spelling that kernels written for NKI 0.2 still have (autocomp's matmul, for one)."""

    def kernel(x):
        tile = nl.ndarray((nl.par_dim(8), 4), nl.float32, nl.sbuf)
        assert tile.shape == (8, 4)
        assert type(tile.shape[0]) is int
        nisa.dma_copy(dst=tile, src=x)
        return stored(tile)

    ones = np.ones((8, 4), F)
    np.testing.assert_array_equal(run(kernel, ones), ones)


def test_par_dim_elsewhere():
    with pytest.raises(IllegalOperand, match=r"nl\.par_dim in shape .* is not the first extent"):
        run(lambda: nl.ndarray((4, nl.par_dim(128), 512), nl.float32, nl.sbuf))


def test_older_names():
    """nki-library has both; NKI 0.6 documents neither."""
    assert nl.range is range
    assert nl.bool is nl.bool_


def _places(x):
    return {
        "HBM": x,
        "private": nl.ndarray((4, 8), nl.float32, nl.private_hbm),
        "SBUF": nl.ndarray((4, 8), nl.float32, nl.sbuf),
        "PSUM": nl.ndarray((4, 8), nl.float32, nl.psum),
    }


@pytest.mark.parametrize("dst", ["HBM", "private", "SBUF", "PSUM"])
@pytest.mark.parametrize("src", ["HBM", "private", "SBUF", "PSUM"])
def test_loads_come_from_hbm_and_stores_go_there(dst, src):
    """The pages of nl.load and nl.store document these ways alone, in both dialects."""

    def kernel(x):
        places = _places(x)
        for tile in (places["SBUF"], places["PSUM"]):
            nisa.memset(dst=tile, value=1.0)
        nisa.dma_copy(dst=places["private"], src=x)
        nl.store(places[dst], places[src])

    def loads(x):
        places = _places(x)
        nisa.dma_copy(dst=places["private"], src=x)
        assert nl.load(places[src]).buffer is nl.sbuf

    x = np.ones((4, 8), np.float32)
    for run, wrong in (
        (kernel, "dst" if dst in ("SBUF", "PSUM") else "value" if src != "SBUF" else ""),
        (loads, "src" if src in ("SBUF", "PSUM") else ""),
    ):
        if not wrong:
            neurosim.simulate(run)(x.copy())
            continue
        with pytest.raises(IllegalOperand, match=rf"nl\.(store|load): {wrong} .*it must be in (HBM|SBUF)"):
            neurosim.simulate(run)(x.copy())
