"""``tensor_copy``: bit-accurate for equal dtypes on Vector and GpSimd, through float32 otherwise."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.engines import Engine
from neurosim.errors import OutOfBounds

ENGINES = (nisa.engine.unknown, nisa.engine.vector, nisa.engine.gpsimd, nisa.engine.scalar)


def copier(dtype=None, engine=nisa.engine.unknown, shape=None, buffer=nl.sbuf):
    def body(tile):
        copy = nl.ndarray(shape or tile.shape, dtype or tile.dtype, buffer)
        nisa.tensor_copy(dst=copy, src=tile, engine=engine)
        return copy

    return body


@pytest.mark.parametrize("engine", ENGINES[:3])
def test_equal_dtypes_move_bits(machine, engine):
    raw = np.random.default_rng(0).integers(0, 2**32, (128, 64), np.uint32)
    raw[0, :6] = 0x7F800001, 0xFFC12345, 0x80000000, 1, 0x7F800000, 0xFFFFFFFF
    array = raw.view(np.float32)
    assert machine.outputs(copier(engine=engine), array).tobytes() == array.tobytes()
    halves = np.arange(65536, dtype=np.uint16).reshape(128, 512).view(ml_dtypes.bfloat16)
    assert machine.outputs(copier(engine=engine), halves).tobytes() == halves.tobytes()


def test_integers_are_exact_where_bits_move(machine):
    """A2: uint32 beyond 2**24 survives a copy on Vector and GpSimd; Scalar casts to float32 first."""
    array = np.array([[2**24 + 1, 2**32 - 1, 7]], np.uint32)
    for engine in ENGINES[:3]:
        np.testing.assert_array_equal(machine.outputs(copier(engine=engine), array), array)
    np.testing.assert_array_equal(machine.outputs(copier(engine=ENGINES[3]), array), [[2**24, 2**32 - 1, 7]])


@pytest.mark.parametrize("engine", ENGINES)
def test_floats_become_integers_by_rounding_to_even_and_saturating(machine, engine):
    """A1: the table of NKI 0.6's fix."""
    array = np.array([[2.5, -2.5, 0.5, 1.5, 300, -200, np.inf, -np.inf, -0.0, np.nan]], np.float32)
    got = machine.outputs(copier(nl.int8, engine), array)
    np.testing.assert_array_equal(got, np.array([[2, -2, 0, 2, 127, -128, 127, -128, 0, 0]], np.int8))
    got = machine.outputs(copier(nl.uint8, engine), array)
    np.testing.assert_array_equal(got, np.array([[2, 0, 0, 2, 255, 0, 255, 0, 0, 0]], np.uint8))
    edges = np.array([[2.0**31, -(2.0**31), 2.0**31 - 128, 3e38, -3e38]], np.float32)
    got = machine.outputs(copier(nl.int32, engine), edges)
    np.testing.assert_array_equal(got, [[2**31 - 1, -(2**31), 2**31 - 128, 2**31 - 1, -(2**31)]])
    got = machine.outputs(copier(nl.uint32, engine), edges)
    np.testing.assert_array_equal(got, [[2**31, 0, 2**31 - 128, 2**32 - 1, 0]])
    got = machine.outputs(copier(nl.int16, engine), edges)
    np.testing.assert_array_equal(got, [[32767, -32768, 32767, 32767, -32768]])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "target", [nl.bfloat16, nl.float16, nl.float8_e4m3, nl.float8_e4m3fn, nl.float8_e5m2, nl.bool_]
)
def test_narrowing_rounds_once_to_even(machine, rng, engine, target):
    array = rng.standard_normal((16, 256)).astype(np.float32) * np.float32(2.0) ** rng.integers(-20, 20, (16, 256))
    array = array.astype(np.float32)
    machine.assert_same(machine.outputs(copier(target, engine), array), machine.rounded(array, target.numpy))


@pytest.mark.parametrize("source", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("target", [nl.float16, nl.bfloat16, nl.float8_e4m3, nl.float8_e4m3fn, nl.float8_e5m2])
def test_all_halves_to_every_narrower_format(machine, source, target):
    """A7: all 65,536 patterns of a 16-bit float, against ml_dtypes from float32."""
    array = np.arange(65536, dtype=np.uint16).view(source).reshape(128, 512)
    got = machine.outputs(copier(target), array)
    if target.numpy == array.dtype:
        assert got.tobytes() == array.tobytes()
    else:
        machine.assert_same(got, machine.rounded(machine.single(array), target.numpy))


def test_between_sbuf_and_psum(machine, rng):
    array = rng.standard_normal((128, 512)).astype(np.float32)
    np.testing.assert_array_equal(machine.outputs(copier(buffer=nl.psum), array), array)
    for engine in (nisa.engine.unknown, nisa.engine.vector, nisa.engine.scalar):
        np.testing.assert_array_equal(machine.outputs(copier(engine=engine), array, psum={0}), array)


def test_only_elements_per_partition_count(machine):
    array = np.arange(4 * 24, dtype=np.int16).reshape(4, 24)
    got = machine.outputs(copier(shape=(4, 2, 3, 4)), array)
    np.testing.assert_array_equal(got, array.reshape(4, 2, 3, 4))


@pytest.mark.parametrize("shift", [1, -1])
def test_shift_in_place_reads_before_it_writes(machine, shift):
    """C5: an overlapping copy gives what a copy through a buffer gives."""
    array = np.arange(64, dtype=np.float32).reshape(2, 32)
    low, high = max(shift, 0), min(shift, 0)

    def body(tile):
        nisa.tensor_copy(dst=tile[:, low : 32 + high], src=tile[:, -high : 32 - low])
        return tile

    expected = array.copy()
    expected[:, low : 32 + high] = array[:, -high : 32 - low]
    np.testing.assert_array_equal(machine.outputs(body, array), expected)


def test_into_a_view_with_steps(machine):
    """C11: a strided destination gets what a dense one gets, and nothing else is touched."""
    array = np.arange(32, dtype=np.float32).reshape(4, 8)

    def body(tile):
        target = nl.ndarray((4, 4, 6), nl.bfloat16, nl.sbuf)
        nisa.memset(dst=target, value=-1.0)
        nisa.tensor_copy(dst=target[:, :, 1::3], src=tile)
        return target

    expected = np.full((4, 4, 6), -1, ml_dtypes.bfloat16)
    expected[:, :, 1::3] = array.reshape(4, 4, 2)
    machine.assert_same(machine.outputs(body, array), expected)


def test_engine(machine):
    array = np.zeros((4, 4), np.float32)

    def engine_of(engine, **options):
        return list(machine.run(copier(engine=engine), array, **options).program)[-2].signature

    assert engine_of(nisa.engine.gpsimd).engine is Engine.gpsimd
    assert engine_of(nisa.engine.scalar).engine is Engine.scalar
    assert engine_of(nisa.engine.vector).engines == {Engine.vector}
    assert Engine.gpsimd not in engine_of(nisa.engine.unknown, psum={0}).engines
    assert engine_of(nisa.engine.unknown).engines == {Engine.vector, Engine.gpsimd, Engine.scalar}


NARROW = (ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3, np.int16, np.uint8)
OTHERS = {
    np.float32: (np.float32, *NARROW),
    np.int32: (np.float32, np.int32),
    ml_dtypes.bfloat16: (np.float32, *NARROW),
}


@pytest.mark.parametrize(("src", "dst"), [(src, dst) for src, others in OTHERS.items() for dst in others])
def test_engines_that_the_record_calls_equal_give_the_same_bits(machine, src, dst):
    """All bit patterns of 16 bits, as the upper or the only half; docs/engine_choice.md."""
    patterns = np.arange(2**16, dtype=np.uint32).reshape(128, -1)
    array = (patterns.astype(np.uint16) if np.dtype(src).itemsize == 2 else patterns << 16 | 0x8001).view(src)
    name = getattr(nl, np.dtype(dst).name)

    def copied(engine):
        def body(tile):
            target = nl.ndarray(tile.shape, name, nl.sbuf)
            nisa.tensor_copy(dst=target, src=tile, engine=engine)
            return target

        result = machine.run(body, array)
        return result.outputs.tobytes(), list(result.program)[-2].signature.engines

    bits, engines = copied(nisa.engine.unknown)
    assert (Engine.scalar in engines) == (src is np.float32 or np.dtype(src) != np.dtype(dst))
    assert {copied(engine)[0] for engine in engines} == {bits}


@pytest.mark.parametrize(
    ("body", "psum", "message"),
    [
        (copier(engine=nisa.engine.gpsimd), {0}, "tensor_copy: GpSimd does not reach PSUM"),
        (copier(engine=nisa.engine.gpsimd, buffer=nl.psum), (), "tensor_copy: GpSimd does not reach PSUM"),
        (copier(engine=nisa.engine.tensor), (), "tensor_copy: cannot run on"),
        (copier(shape=(4, 5)), (), "dst has 5 elements per partition and src has 4"),
        (copier(shape=(5, 4)), (), "dst has 5 partitions and src has 4"),
        (copier(shape=(4, 4), buffer=nl.shared_hbm), (), "dst is in HBM; it must be in SBUF or PSUM"),
        (copier(engine="vector"), (), "tensor_copy: cannot run on 'vector'"),
    ],
)
def test_refuses(machine, body, psum, message):
    assert message in machine.refused(body, np.zeros((4, 4), np.float32), psum=psum)


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum])
@pytest.mark.parametrize("in_register", [False, True])
def test_places_along_a_free_axis_that_are_known_at_run_time(machine, buffer, in_register):
    """``.ap(scalar_offset=…)``, the documented heir of tensor_copy_dynamic_src and tensor_copy_dynamic_dst."""
    array, places = np.arange(256, dtype=np.float32).reshape(4, 64), np.array([[17]], np.int32)

    def body(tile, place):
        if in_register:
            register = nisa.register_alloc(0)
            nisa.register_load(register, place)
            place = register
        held = nl.ndarray((4, 64), nl.float32, buffer)
        nisa.tensor_copy(dst=held, src=tile)
        part, target = nl.ndarray((4, 3), nl.float32), nl.ndarray((4, 64), nl.float32, buffer)
        nisa.tensor_copy(dst=part, src=held.ap([[64, 4], [2, 3]], scalar_offset=place, indirect_dim=1))
        nisa.memset(dst=target, value=0)
        nisa.tensor_copy(dst=target.ap([[64, 4], [1, 3]], scalar_offset=place, indirect_dim=1), src=part)
        result = nl.ndarray((4, 64), nl.float32)
        nisa.tensor_copy(dst=result, src=target)
        return result

    expected = np.zeros((4, 64), np.float32)
    expected[:, 17:20] = array[:, 17:23:2]
    machine.assert_same(machine.outputs(body, array, places), expected)
    program = machine.run(body, array, places).program
    works = [len(record.signature.work) for record in program if record.signature.instruction == "tensor_copy"]
    assert works == [1, *([1, 1] if in_register else [2, 2]), 1]  # the engine loads a place that is not in a register


@pytest.mark.parametrize("place", [-1, 62])
def test_a_place_that_leaves_the_tile_is_refused(machine, place):
    def body(tile, index):
        part = nl.ndarray((4, 3), nl.float32)
        nisa.tensor_copy(dst=part, src=tile.ap([[64, 4], [1, 3]], scalar_offset=index, indirect_dim=1))
        return part

    arrays = np.zeros((4, 64), np.float32), np.array([[place]], np.int32)
    assert f"index {place} of lane 0" in machine.refused(body, *arrays, error=OutOfBounds)
