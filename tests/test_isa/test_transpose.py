"""``nc_transpose``: bits change places between partitions and the free axis."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.engines import Engine
from neurosim.work import Matmul

FORMATS = [np.float32, ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e5m2, np.int8, np.uint16, np.int32]


def transposer(shape=None, buffer=nl.psum, dtype=None, engine=nisa.engine.unknown):
    def body(tile):
        made = nl.ndarray(shape or (tile.size // tile.shape[0], tile.shape[0]), dtype or tile.dtype, buffer)
        nisa.nc_transpose(dst=made, data=tile, engine=engine)
        return made

    return body


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("shape", [(128, 128), (1, 1), (5, 128), (128, 7), (33, 64)])
def test_tensor_engine_moves_bits(machine, rng, dtype, shape):
    """A20: NaN, Inf, -0 and every other pattern pass unchanged, from NeuronCore-v3 on."""
    array = rng.integers(0, 256, (shape[0], shape[1] * np.dtype(dtype).itemsize), np.uint8).view(dtype)
    result = machine.run(transposer(), array)
    assert result.outputs.tobytes() == np.ascontiguousarray(array.T).tobytes()
    expected = {Engine.tensor, Engine.vector} if max(shape) <= 32 else {Engine.tensor}
    assert result.program.record(1).signature.engine is Engine.tensor
    assert result.program.record(1).signature.engines == expected


@pytest.mark.parametrize("columns", [slice(0, 128), slice(100, 228)])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_part_of_a_wide_tile(machine, rng, dtype, columns):
    array = rng.integers(0, 256, (128, 300 * np.dtype(dtype).itemsize), np.uint8).view(dtype)

    def body(tile):
        made = nl.ndarray((128, 128), tile.dtype, nl.psum)
        nisa.nc_transpose(dst=made, data=tile[:, columns])
        return made

    assert machine.outputs(body, array).tobytes() == np.ascontiguousarray(array[:, columns].T).tobytes()


@pytest.mark.parametrize("engine", ["tensor", "vector"])
def test_every_16_bit_pattern(machine, engine):
    """A20: all 65,536 bfloat16 patterns through both engines."""
    size = {"tensor": 128, "vector": 32}[engine]
    patterns = np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16).reshape(-1, size, size)
    for array in patterns:
        got = machine.outputs(transposer(engine=getattr(nisa.engine, engine)), array)
        assert got.tobytes() == np.ascontiguousarray(array.T).tobytes()


@pytest.mark.parametrize("psum", [(), {0}])
@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum])
@pytest.mark.parametrize("shape", [(32, 32), (3, 17)])
def test_vector_reaches_both_memories(machine, rng, psum, buffer, shape):
    array = rng.standard_normal(shape).astype(np.float32)
    result = machine.run(transposer(buffer=buffer, engine=nisa.engine.vector), array, psum=psum)
    np.testing.assert_array_equal(result.outputs, array.T)


def test_engine_follows_memories_by_default(machine, rng):
    array = rng.standard_normal((32, 16)).astype(np.float32)
    into_sbuf = machine.run(transposer(buffer=nl.sbuf), array)
    np.testing.assert_array_equal(into_sbuf.outputs, array.T)
    assert into_sbuf.program.record(1).signature.engines == {Engine.vector}


def test_free_axes_are_flattened(machine, rng):
    """ "If the data tile has more than one free axis, this API implicitly flattens all free axes"."""
    array = rng.standard_normal((16, 2, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(machine.outputs(transposer(), array), array.reshape(16, 24).T)


def test_views(machine, rng):
    array = rng.standard_normal((64, 40)).astype(np.float32)

    def body(tile):
        made = nl.ndarray((20, 128), tile.dtype, nl.psum)
        nisa.memset(dst=made, value=0.0)
        nisa.nc_transpose(dst=made[:, ::2], data=tile[:, 1::2])
        return made

    expected = np.zeros((20, 128), np.float32)
    expected[:, ::2] = array[:, 1::2].T
    np.testing.assert_array_equal(machine.outputs(body, array), expected)


def test_work_of_the_tensor_engine(machine):
    result = machine.run(transposer(), np.zeros((100, 30), ml_dtypes.bfloat16))
    (work,) = result.program.record(1).signature.work
    assert isinstance(work, Matmul)
    assert (work.rows, work.columns, work.moving, work.passes) == (100, 30, 100, 1)
    assert (work.transpose, work.flops) == (True, 0)


@pytest.mark.parametrize(
    ("body", "shape", "message"),
    [
        (transposer((128, 16)), (16, 129), "data has 129 columns; at most 128 become partitions"),
        (transposer((16, 24)), (16, 24), "dst is 16 × 24; the transpose is 24 × 16"),
        (transposer(dtype=nl.bfloat16), (16, 24), "dst is bfloat16 and data is float32; they must have the same dtype"),
        (transposer(buffer=nl.sbuf), (64, 24), "dst is in SBUF and data is 64 × 24: no engine does that"),
        (transposer(buffer=nl.sbuf, engine=nisa.engine.tensor), (16, 24), "Tensor transposes from SBUF to PSUM"),
        (transposer(engine=nisa.engine.vector), (33, 24), "Vector transposes at most 32 × 32"),
        (transposer(engine=nisa.engine.vector), (24, 33), "Vector transposes at most 32 × 32"),
        (transposer(engine=nisa.engine.scalar), (16, 24), "nc_transpose: cannot run on"),
        (transposer((24, 16), buffer=nl.shared_hbm), (16, 24), "dst is in HBM; it must be in SBUF or PSUM"),
    ],
)
def test_refuses(machine, body, shape, message):
    text = machine.refused(body, np.zeros(shape, np.float32))
    assert text.startswith("nc_transpose: ")
    assert message in text


def test_refuses_data_in_psum_on_tensor(machine):
    text = machine.refused(transposer(engine=nisa.engine.tensor), np.zeros((16, 24), np.float32), psum={0})
    assert "Tensor transposes from SBUF to PSUM" in text


def test_a_psum_bank_is_not_crossed(machine):
    """A transpose on the tensor engine is a matmul, which writes within one bank."""

    def body(tile):
        made = nl.ndarray((24, 1024), tile.dtype, nl.psum)
        nisa.nc_transpose(dst=made[:, 500:516], data=tile)

    assert "crosses a PSUM bank of 2048 bytes" in machine.refused(body, np.zeros((16, 24), np.float32))


def test_nki_0_3_passed_over_the_engine():
    """Release notes of NKI 0.4: an explicit engine is honored from there on."""

    def kernel(x):
        out = nl.ndarray((32, 32), nl.float32, nl.psum)
        nisa.nc_transpose(dst=out, data=nl.load(x), engine=nisa.vector_engine)

    array = np.zeros((32, 32), np.float32)
    engines = {
        version: neurosim.simulate(kernel, nki_version=version)(array).program.record(1).signature.engine.name
        for version in ("0.1", "0.3", "0.4", "0.6")
    }
    assert engines == {"0.1": "vector", "0.3": "tensor", "0.4": "vector", "0.6": "vector"}


# -- without a transpose mode -----------------------------------------------------------------------------------------


def product_with_identity(tile, identity):
    """What the manual says that a transpose is: data as stationary, an identity as moving."""
    made = nl.ndarray((tile.shape[1], tile.shape[0]), nl.float32, nl.psum)
    nisa.nc_matmul(dst=made, stationary=tile, moving=identity)
    return made


@pytest.mark.parametrize("chip", ["trn1", "inf2"])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize(
    ("spoilt", "count"),
    [({}, 0), ({(2, 3): np.nan}, 16), ({(2, 3): np.inf}, 15), ({(2, 3): -np.inf, (4, 3): np.inf}, 16)],
)
def test_before_trn2_a_transpose_is_a_product_in_float32(machine, rng, chip, dtype, spoilt, count):
    array = rng.standard_normal((16, 24)).astype(dtype)
    for place, value in spoilt.items():
        array[place] = value
    got = machine.run(transposer(dtype=nl.float32), array, chip=chip)
    (signature,) = [found for found in got.program.signatures if found.instruction == "nc_transpose"]
    assert signature.engines == {Engine.tensor}
    product = machine.outputs(product_with_identity, array, np.eye(16).astype(dtype), chip=chip)
    np.testing.assert_array_equal(got.outputs, product)
    assert np.isnan(got.outputs[3]).sum() == count
    assert np.isfinite(np.delete(got.outputs, 3, axis=0)).all()

    def by_matmul(tile, identity):
        made = nl.ndarray((24, 16), nl.float32, nl.psum)
        nisa.nc_matmul(dst=made, stationary=tile, moving=identity, is_transpose=True)
        return made

    again = machine.outputs(by_matmul, array, np.eye(16).astype(dtype), chip=chip)
    np.testing.assert_array_equal(again, product)


def bits_of_floats(dtype):
    """Finite numbers of a format: zeros of both signs, subnormals, the largest, and any others."""
    patterns = np.random.default_rng(3).integers(0, 256, (128, 128 * np.dtype(dtype).itemsize), np.uint8).view(dtype)
    info = ml_dtypes.finfo(dtype)
    patterns[:4, 0] = [0.0, -0.0, info.smallest_subnormal, -info.max]
    return np.where(np.isfinite(patterns.astype(np.float32)), patterns, dtype(-0.0))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("wide", [True, False])
def test_before_trn2_a_transpose_has_the_bits_of_the_product(machine, dtype, wide):
    """The manual: "equivalent to calling nisa.nc_matmul directly". A sum from +0 is never -0; other numbers stay."""
    array = bits_of_floats(dtype)
    got = machine.outputs(transposer(dtype=nl.float32 if wide else None), array, chip="trn1")
    product = machine.outputs(product_with_identity, array, np.eye(128).astype(dtype), chip="trn1")
    assert got.astype(np.float32).tobytes() == product.tobytes()
    assert not np.signbit(got[array.T == 0].astype(np.float32)).any()
    assert got[array.T != 0].tobytes() == array.T[array.T != 0].astype(got.dtype).tobytes()


def test_before_trn2_dst_may_keep_the_dtype_of_data(machine, rng):
    array = rng.standard_normal((16, 24)).astype(ml_dtypes.bfloat16)
    assert (machine.outputs(transposer(), array, chip="trn1") == array.T).all()


@pytest.mark.parametrize(
    ("chip", "dtype", "array", "engine"),
    [
        ("trn2", nl.float32, np.zeros((16, 24), ml_dtypes.bfloat16), nisa.engine.unknown),
        ("trn3", nl.float32, np.zeros((16, 24), ml_dtypes.bfloat16), nisa.engine.tensor),
        ("trn1", nl.float32, np.zeros((16, 24), ml_dtypes.bfloat16), nisa.engine.vector),
        ("trn1", nl.float16, np.zeros((16, 24), ml_dtypes.bfloat16), nisa.engine.unknown),
        ("trn1", nl.float32, np.zeros((16, 24), np.int8), nisa.engine.unknown),
    ],
)
def test_elsewhere_dst_has_the_dtype_of_data(machine, chip, dtype, array, engine):
    with pytest.raises(neurosim.errors.IllegalOperand, match="they must have the same dtype"):
        machine.run(transposer(dtype=dtype, engine=engine), array, chip=chip)
