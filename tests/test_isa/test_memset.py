"""``memset``: every dtype, and only values that the dtype has (NKI 0.3: strict types)."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.engines import Engine


def setter(value, dtype, buffer=nl.sbuf, engine=nisa.engine.unknown):
    def body():
        tile = nl.ndarray((3, 5), dtype, buffer)
        nisa.memset(dst=tile, value=value, engine=engine)
        return tile

    return body


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (0, nl.float32),
        (0.1, nl.float32),
        (-0.0, nl.bfloat16),
        (3.14159, nl.bfloat16),
        (65504.0, nl.float16),
        (np.inf, nl.bfloat16),
        (-np.inf, nl.float16),
        (np.nan, nl.float32),
        (240.0, nl.float8_e4m3),
        (-448.0, nl.float8_e4m3fn),
        (57344.0, nl.float8_e5m2),
        (2.0**-9, nl.float8_e4m3),
        (np.float32(1.5), nl.float16),
        (7, nl.bfloat16),
        (-128, nl.int8),
        (127, nl.int8),
        (255, nl.uint8),
        (-32768, nl.int16),
        (2**31 - 1, nl.int32),
        (2**24 + 1, nl.int32),
        (2**32 - 1, nl.uint32),
        (np.int64(9), nl.uint16),
        (True, nl.bool_),
        (0, nl.bool_),
        (1, nl.bool_),
    ],
)
@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum], ids=["sbuf", "psum"])
def test_fills_with_the_value(machine, value, dtype, buffer):
    expected = np.full((3, 5), value).astype(dtype.numpy)
    machine.assert_same(machine.outputs(setter(value, dtype, buffer)), expected)


def test_a_python_float_is_rounded_once(machine):
    """A9: through float32 this would become -448."""
    got = machine.outputs(setter(-431.99999999999994, nl.float8_e4m3fn))
    assert float(got[0, 0]) == -416.0


def test_fills_a_view_only(machine):
    def body():
        tile = nl.ndarray((4, 4, 6), nl.int16, nl.sbuf)
        nisa.memset(dst=tile, value=-1)
        nisa.memset(dst=tile[:, 1:3, ::2], value=5)
        return tile

    expected = np.full((4, 4, 6), -1, np.int16)
    expected[:, 1:3, ::2] = 5
    np.testing.assert_array_equal(machine.outputs(body), expected)


@pytest.mark.parametrize(
    ("value", "dtype", "message"),
    [
        (2.0, nl.int32, "value 2.0 is not an integer, and dst is int32"),
        (np.float32(1), nl.uint8, "is not an integer, and dst is uint8"),
        (np.nan, nl.int8, "value nan is not an integer, and dst is int8"),
        (300, nl.int8, "value 300 does not fit int8.*int8 holds -128 to 127"),
        (-1, nl.uint8, "value -1 does not fit uint8.*uint8 holds 0 to 255"),
        (2**31, nl.int32, "value 2147483648 does not fit int32"),
        (2**32, nl.uint32, "does not fit uint32.*0 to 4294967295"),
        (70000.0, nl.float16, "value 70000.0 does not fit float16.*ends at 65504.0"),
        (1e39, nl.bfloat16, "does not fit bfloat16"),
        (256, nl.float8_e4m3, "value 256 does not fit float8_e4m3.*ends at 240.0"),
        (2, nl.bool_, "value 2 is no truth value"),
        (0.5, nl.bool_, "value 0.5 is no truth value"),
        ("0", nl.float32, "value '0' is not a number"),
        (None, nl.float32, "value None is not a number"),
        (1j, nl.float32, "is not a number"),
    ],
)
def test_refuses_values_that_the_dtype_does_not_have(machine, value, dtype, message):
    import re

    text = machine.refused(setter(value, dtype))
    assert re.search(f"memset: .*{message}", text, re.DOTALL)
    assert f"[3, 5] {dtype} in SBUF" in text


def test_a_tensor_is_no_value(machine):
    text = machine.refused(lambda t: nisa.memset(dst=t, value=t), np.zeros((3, 5), np.float32))
    assert "is not a number" in text


def test_engine(machine):
    def engine_of(engine, buffer=nl.sbuf):
        return machine.run(setter(0.0, nl.float32, buffer, engine)).program.record(0).signature

    assert engine_of(nisa.engine.gpsimd).engine is Engine.gpsimd
    assert engine_of(nisa.engine.vector).engines == {Engine.vector}
    assert engine_of(nisa.engine.unknown, nl.psum).engines == {Engine.vector}
    assert "GpSimd does not reach PSUM" in machine.refused(setter(0.0, nl.float32, nl.psum, nisa.engine.gpsimd))
    assert "memset: cannot run on" in machine.refused(setter(0.0, nl.float32, nl.sbuf, nisa.engine.scalar))


def test_bfloat16_scalars_of_ml_dtypes(machine):
    """A value taken out of an ml_dtypes array is a number too."""
    got = machine.outputs(setter(ml_dtypes.bfloat16(1.5), nl.bfloat16))
    assert (got == ml_dtypes.bfloat16(1.5)).all()
