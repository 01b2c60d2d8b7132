"""Errors against a float64 shadow: how large, at which line, born or inherited."""

from __future__ import annotations

import json

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from typer.testing import CliRunner

import neurosim
from neurosim.cli import app
from neurosim.errors import ConfigurationError, IllegalOperand, Uninitialized
from neurosim.shadow import Shadow, WideLanes


def loaded(x, dtype=None):
    tile = nl.ndarray(x.shape, dtype or x.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def stored(tile):
    out = nl.ndarray(tile.shape, tile.dtype, nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def new(like, dtype=None, buffer=nl.sbuf, shape=None):
    return nl.ndarray(shape or like.shape, dtype or like.dtype, buffer)


def examined(kernel, *arrays, chip=None):
    return neurosim.precision(kernel, chip)(*arrays)


def line_of(found, instruction, nth=0):
    return [line for line in found.lines if line.instruction == instruction][nth]


def bfloat16(*values):
    return np.array([values], np.float32).astype(ml_dtypes.bfloat16)


def test_a_sum_in_bfloat16_by_hand():
    """256 + 1 rounds to 256, a tie, to even: half a unit of 2. 1 + 1 is exact."""

    def kernel(x, y):
        one, other = loaded(x), loaded(y)
        total = new(one)
        nisa.tensor_tensor(dst=total, data1=one, data2=other, op=nl.add)
        return stored(total)

    found = examined(kernel, bfloat16(256.0, 1.0), bfloat16(1.0, 1.0))
    line = line_of(found, "tensor_tensor")
    assert (line.records, line.elements, line.dtype) == (1, 2, "bfloat16")
    assert line.born_ulp == 0.5
    assert line.inherited_ulp == line.inherited == 0.0
    assert line.born == line.both == np.sqrt(1.0 / (257.0**2 + 2.0**2))
    (output,) = found.outputs
    assert (output.name, output.dtype, output.shape) == ("output", "bfloat16", (1, 2))
    assert (output.max_ulp, output.max_error, output.worst) == (0.5, 1.0, (0, 0))
    assert output.relative == line.born
    np.testing.assert_array_equal(found.shadow, [[257.0, 2.0]])
    np.testing.assert_array_equal(found.result.outputs.astype(float), [[256.0, 2.0]])


def test_error_is_inherited_where_it_is_not_born():
    """Three lines: one rounds, one doubles what is left, exactly; the last subtracts, and the error is all there is."""

    def kernel(x, y):
        one, other = loaded(x), loaded(y)
        total, double, rest = new(one), new(one), new(one)
        nisa.tensor_tensor(dst=total, data1=one, data2=other, op=nl.add)
        nisa.tensor_scalar(dst=double, data=total, op0=nl.multiply, operand0=2.0)
        nisa.scalar_tensor_tensor(dst=rest, data=one, op0=nl.multiply, operand0=-2.0, op1=nl.add, operand1=double)
        return stored(rest)

    found = examined(kernel, bfloat16(256.0), bfloat16(1.0))
    born = {line.instruction for line in found.lines if line.born > 0}
    assert born == {"tensor_tensor"}
    double, rest = line_of(found, "tensor_scalar"), line_of(found, "scalar_tensor_tensor")
    assert double.inherited == double.both == 1 / 257
    assert double.inherited_ulp == 0.5
    assert rest.both == 1.0  # 0 in place of 2
    np.testing.assert_array_equal(found.shadow, [[2.0]])
    assert found.outputs[0].relative == 1.0


def test_what_a_lines_error_comes_to_in_the_output():
    """259 becomes 260; its square, which rounds too, is not used; five times that becomes 1296."""

    def kernel(x, y):
        one, other = loaded(x), loaded(y)
        total, square, out = new(one), new(one), new(one)
        nisa.tensor_tensor(dst=total, data1=one, data2=other, op=nl.add)
        nisa.activation(dst=square, op=nl.square, data=total)
        nisa.tensor_scalar(dst=out, data=total, op0=nl.multiply, operand0=5.0)
        return stored(out)

    found = examined(kernel, bfloat16(256.0), bfloat16(3.0))
    total, square, out = (line_of(found, name) for name in ("tensor_tensor", "activation", "tensor_scalar"))
    assert total.reach == total.born == 1 / 259  # 260
    assert (square.born > 0, square.reach) == (True, 0.0)
    assert out.born == 4 / 1295  # 1300 becomes 1296, and 1295 would have become 1299
    assert out.reach == pytest.approx(4 / 1295)
    assert found.outputs[0].relative == pytest.approx(1 / 1295)
    assert [line.reach for line in found.lines if line.born == 0.0] == [None, None]


def test_a_small_error_that_cancellation_makes_large():
    def kernel(x, y):
        one, other = loaded(x), loaded(y)
        nisa.tensor_tensor(dst=other, data1=one, data2=other, op=nl.add)
        nisa.tensor_tensor(dst=other, data1=other, data2=one, op=nl.subtract)
        return {"a": stored(one), "b": stored(other)}

    found = examined(kernel, bfloat16(256.0), bfloat16(1.0))
    (line,) = [line for line in found.lines if line.born]
    assert (line.born, line.reach) == (1 / 257, 1.0)


def test_arguments_that_a_kernel_writes_are_written_once():
    def kernel(x, y):
        tile = loaded(y)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=loaded(x), op=nl.add)
        nisa.dma_copy(dst=y, src=tile)
        return y

    y = bfloat16(256.0)
    found = examined(kernel, bfloat16(3.0), y)
    assert y.astype(float) == 260.0
    assert line_of(found, "tensor_tensor").reach == 1 / 259


def test_nothing_is_followed_unless_asked():
    found = neurosim.precision(rounding, reach=0)(bfloat16(256.0))
    assert line_of(found, "tensor_scalar").reach is None
    assert found.to_dict()["lines"][1]["reach"] is None
    assert "0.39 %" in found.text()
    with pytest.raises(IllegalOperand, match="reach=-1"):
        neurosim.precision(rounding, reach=-1)


def test_lines_are_the_kernels_own():
    def kernel(x):
        tile = loaded(x)
        narrow = new(tile, nl.bfloat16)
        nisa.tensor_copy(dst=narrow, src=tile)
        wider = new(tile)
        nisa.tensor_copy(dst=wider, src=narrow)
        return stored(wider)

    first = kernel.__code__.co_firstlineno
    lines = examined(kernel, np.full((1, 4), 1 + 2.0**-9, np.float32)).lines
    copies = [line for line in lines if line.instruction == "tensor_copy"]
    assert [line.line - first for line in copies] == [3, 5]
    assert [line.function for line in copies] == ["kernel", "kernel"]
    assert copies[0].source == "nisa.tensor_copy(dst=narrow, src=tile)"
    assert [line.born_ulp for line in copies] == [0.25, 0.0]
    assert copies[1].inherited == copies[0].born == 2.0**-9 / (1 + 2.0**-9)
    loads = [line for line in lines if line.instruction == "dma_copy"]
    assert {line.function for line in loads} == {"loaded", "stored"}


def test_a_line_that_runs_often_is_one_row():
    def kernel(x):
        tile = loaded(x)
        for _ in range(3):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        return stored(tile)

    line = line_of(examined(kernel, bfloat16(256.0, 0.0)), "tensor_scalar")
    assert (line.records, line.elements) == (3, 6)
    assert line.born_ulp == 0.5
    assert line.inherited_ulp == 1.0  # 256 three times, where 259 should be: the last inherits 2, a unit


def test_a_loop_on_the_device_is_one_row_too():
    def kernel(x):
        tile = loaded(x)

        def body(index):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

        nl.fori_loop(0, 3, body)
        return stored(tile)

    found = examined(kernel, bfloat16(256.0))
    assert line_of(found, "tensor_scalar").records == 3
    np.testing.assert_array_equal(found.shadow, [[259.0]])


def test_a_product_and_its_sums_in_psum():
    """2**12 + 2**-13 does not fit into float32, and the second product takes away what does."""

    def kernel(x, y):
        psum = nl.ndarray((1, 1), nl.float32, nl.psum)
        for start in (0, 2):
            nisa.nc_matmul(dst=psum, stationary=loaded(x[start : start + 2]), moving=loaded(y[start : start + 2]))
        tile = new(psum, nl.float32)
        nisa.tensor_copy(dst=tile, src=psum)
        return stored(tile)

    x = np.array([[2.0**12], [2.0**-13], [2.0**12], [0.0]], np.float32).astype(ml_dtypes.bfloat16)
    y = np.array([[1.0], [1.0], [-1.0], [0.0]], np.float32).astype(ml_dtypes.bfloat16)
    found = examined(kernel, x, y)
    assert found.shadow[0, 0] == 2.0**-13
    assert found.result.outputs[0, 0] == 0.0
    line = line_of(found, "nc_matmul")
    assert (line.records, line.born_ulp) == (2, 0.25)
    assert line_of(found, "tensor_copy").both == 1.0


def test_sums_in_registers_have_a_shadow():
    def kernel(x):
        tile = loaded(x)
        out, total = new(tile), new(tile, nl.float32, shape=(1, 1))
        nisa.activation(dst=out, op=nl.copy, data=tile, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset_reduce)
        nisa.activation(
            dst=out, op=nl.copy, data=tile, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reduce, reduce_res=total
        )
        return stored(total)

    x = np.array([[2.0**24, 1.0]], np.float32)
    found = examined(kernel, x)
    assert found.result.outputs[0, 0] == 2.0**25
    assert found.shadow[0, 0] == 2.0**25 + 2
    line = next(line for line in found.lines if line.instruction == "activation" and line.born)
    assert line.born_ulp == pytest.approx(1 / 4)


def test_a_constant_that_the_format_does_not_have():
    def kernel(x):
        tile = loaded(x)
        nisa.memset(tile, 0.1)
        return stored(tile)

    found = examined(kernel, bfloat16(1.0))
    error = float(ml_dtypes.bfloat16(0.1)) - 0.1
    assert line_of(found, "memset").born == pytest.approx(abs(error) / 0.1, rel=1e-12)


def test_what_overflows_is_counted_apart():
    def kernel(x):
        tile = loaded(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=256.0)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.subtract)
        return stored(tile)

    found = examined(kernel, np.array([[60000.0, 1.0]], np.float16))
    scaled, rest = line_of(found, "tensor_scalar"), line_of(found, "tensor_tensor")
    assert (scaled.elements, scaled.not_finite, scaled.born) == (1, 1, 0.0)
    assert (rest.elements, rest.not_finite) == (1, 1)
    (output,) = found.outputs
    assert (output.not_finite, output.max_ulp, output.max_error) == (1, np.inf, 0.0)
    assert found.to_dict()["outputs"][0]["max_ulp"] is None


def test_infinity_where_infinity_belongs_is_no_error():
    def kernel(x):
        tile = loaded(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        return stored(tile)

    found = examined(kernel, np.array([[np.inf, np.nan, 1.0]], np.float32))
    line = line_of(found, "tensor_scalar")
    assert (line.elements, line.not_finite, line.both) == (3, 0, 0.0)
    assert found.outputs[0].max_ulp == 0.0


def test_integers_are_what_they_are():
    """2.5 becomes 2 because the kernel says so: nothing is lost at that line, and the shadow goes on with 2."""

    def kernel(x):
        tile = loaded(x)
        whole, back = new(tile, nl.int32), new(tile)
        nisa.tensor_copy(dst=whole, src=tile)
        nisa.tensor_copy(dst=back, src=whole)
        return stored(back)

    found = examined(kernel, np.array([[2.5, 3.25]], np.float32))
    assert all(line.both == 0.0 for line in found.lines)
    assert {line.dtype for line in found.lines} == {"float32"}
    np.testing.assert_array_equal(found.shadow, [[2.0, 3.0]])


def test_what_has_no_meaning_in_float64_says_so():
    def kernel(x):
        tile = loaded(x)
        nisa.dropout(dst=tile, data=tile, prob=0.5)
        nisa.tensor_scalar(dst=tile.view(nl.uint16), data=tile.view(nl.uint16), op0=nl.bitwise_and, operand0=0xFFF0)
        return stored(tile)

    found = examined(kernel, np.full((1, 8), 1.7, np.float32).astype(ml_dtypes.bfloat16))
    assert line_of(found, "dropout").unshadowed == 1
    assert [line.instruction for line in found.lines] == ["dma_copy", "dropout", "dma_copy"]
    assert found.outputs[0].max_ulp == 0.0  # bits that were cut off are gone in the shadow, too
    assert "Without a meaning in float64, so taken as exact: test_accuracy.py" in found.text()


def test_values_and_time_are_those_of_a_plain_run():
    def kernel(x, y):
        psum = nl.ndarray((8, 4), nl.float32, nl.psum)
        nisa.nc_matmul(dst=psum, stationary=loaded(x), moving=loaded(y))
        tile = new(psum, nl.bfloat16)
        nisa.activation(dst=tile, op=nl.gelu, data=psum)
        return {"out": stored(tile), "sizes": (stored(tile), 3)}

    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal((16, extent)).astype(ml_dtypes.bfloat16) for extent in (8, 4)]
    plain, found = neurosim.simulate(kernel)(*arrays), examined(kernel, *arrays)
    assert found.result.outputs["out"].tobytes() == plain.outputs["out"].tobytes()
    assert found.result.program.listing(0) == plain.program.listing(0)
    assert [output.name for output in found.outputs] == ["output['out']", "output['sizes'][0]"]


def test_precise_as_ever_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", "0")

    def kernel(x):
        return stored(loaded(x, nl.bfloat16))

    found = examined(kernel, np.full((1, 4), 1 + 2.0**-9, np.float32))
    assert found.result.outputs.dtype == ml_dtypes.bfloat16
    assert found.outputs[0].max_ulp == 0.25


def test_stochastic_rounding_is_seen_as_it_is():
    x = np.full((1, 512), 257.0, np.float32)

    def kernel(x):
        tile, narrow = loaded(x), new(x, nl.bfloat16)
        nisa.tensor_copy(dst=narrow, src=tile)
        return stored(narrow)

    found = neurosim.precision(kernel, rounding="stochastic", rounding_seed=3)(x)
    plain = neurosim.simulate(kernel, rounding="stochastic", rounding_seed=3)(x).outputs
    assert found.result.outputs.tobytes() == plain.tobytes()
    assert sorted(set(plain.astype(float).reshape(-1))) == [256.0, 258.0]
    assert line_of(found, "tensor_copy").born_ulp == 0.5


def test_two_cores_have_one_shadow():
    def kernel(x):
        rank = nl.program_id(0)
        tile, other = loaded(x), new(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.sendrecv(src=tile, dst=other, send_to_rank=1 - rank, recv_from_rank=1 - rank, pipe_id=0)
        out = nl.ndarray((2, *x.shape), x.dtype, nl.shared_hbm)
        nisa.dma_copy(dst=out[rank], src=other)
        return out

    found = neurosim.precision(kernel)[2](bfloat16(256.0))
    np.testing.assert_array_equal(found.shadow, [[[257.0]], [[257.0]]])
    assert line_of(found, "tensor_scalar").records == 2


def test_an_error_of_the_kernel_is_raised_as_ever():
    def kernel(x):
        tile = new(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        return stored(tile)

    with pytest.raises(Uninitialized, match="tensor_scalar: data"):
        examined(kernel, bfloat16(1.0))


def test_shadows_write_into_no_memory():
    """A wide run on real values leaves bytes, registers and shadow as they are."""
    from neurosim.devices import load_chip
    from neurosim.engines import Engine, Memory
    from neurosim.kernel import Kernel, run
    from neurosim.program import Program

    chip = load_chip("trn2")
    kernel = Kernel(chip, Program("trn2", 3))
    with run(kernel):
        tile = kernel.allocate((2, 4), nl.bfloat16, Memory.sbuf)
    lanes = WideLanes(kernel, Engine.vector, Shadow().registers, shadowed=False)
    lanes.put(tile, np.ones((2, 4)))
    lanes.fill(tile, 3.0)
    lanes.move(tile, np.negative, tile)
    lanes.registers("accumulator")[:] = 7.0
    assert not tile.array().astype(bool).any()
    assert not kernel.registers("accumulator", Engine.vector).buffer.any()
    assert tile.allocation.storage.fine is None
    assert len(lanes.results) == 3


# -- what people read -------------------------------------------------------------------------------------------------


def rounding(x):
    tile = loaded(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    return stored(tile)


def test_the_text_names_the_line_and_the_error():
    found = examined(rounding, bfloat16(256.0))
    text = found.text()
    assert str(found) == text
    assert text.startswith("rounding on trn2: errors against float64 ─")
    line = line_of(found, "tensor_scalar")
    row = f"test_accuracy.py:{line.line}"
    cells = f"{'0.39 %':>9} {'0.39 %':>9} {'0.50':>9} {'0':>9}"
    assert f"{row:<24} {'tensor_scalar':<21} {'bfloat16':<13} {cells}\n" in text
    assert "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)\n" in text
    assert "2 of 3 lines round nothing." in text
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b[" in found.text(color=True)


def test_a_kernel_that_rounds_nothing():
    assert "No line rounds anything." in examined(rounding, bfloat16(1.0)).text()


def test_a_plot(tmp_path):
    found = examined(rounding, bfloat16(256.0))
    for ending, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        found.plot(tmp_path / f"plot.{ending}")
        assert (tmp_path / f"plot.{ending}").read_bytes().startswith(start)
    assert "tensor_scalar" in (tmp_path / "plot.svg").read_text()
    with pytest.raises(ConfigurationError, match=r"plot.gif: a plot is a .png, .svg or .pdf file"):
        found.plot(tmp_path / "plot.gif")


KERNEL = """
import nki.isa as nisa
import nki.language as nl

def rounding(x):
    tile = nl.ndarray(x.shape, x.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tripled.py"
    path.write_text(KERNEL)
    return path


def test_the_command(file, tmp_path):
    command = ["precision", f"{file}:rounding", "4x8:bfloat16", "--json", str(tmp_path / "a.json")]
    result = CliRunner().invoke(app, [*command, "--plot", str(tmp_path / "a.svg")])
    assert result.exit_code == 0, result.output
    assert "rounding on trn2: errors against float64" in result.output
    assert "tripled.py:8" in result.output
    content = json.loads((tmp_path / "a.json").read_text())
    assert content["schema"] == 1
    assert [line["line"] for line in content["lines"]] == [7, 8, 10]
    assert content["lines"][1]["born_ulp"] <= 0.5
    assert content["outputs"][0]["shape"] == [4, 8]
    assert (tmp_path / "a.svg").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.py:rounding", "4x8:bfloat16"], "there is no file nowhere.py"),
        (["{file}:tripled", "4x8:bfloat16"], "has no kernel tripled"),
        (["{file}", "4x8:bfloat16"], "names no kernel"),
        (["{file}:rounding"], "missing a required argument: 'x'"),
        (["{file}:rounding", "4x8"], "has a shape and no dtype"),
        (["{file}:rounding", "4x8:bfloat16", "--chip", "trn9"], "trn9"),
        (["{file}:rounding", "4x8:bfloat16", "--plot", "a.txt"], "a.txt: a plot is a .png, .svg or .pdf file"),
    ],
)
def test_the_command_says_what_is_wrong(file, words, message):
    result = CliRunner().invoke(app, ["precision", *(word.format(file=file) for word in words)])
    assert result.exit_code == 1
    assert message in str(result.exception)
