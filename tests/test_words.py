"""What messages advise can be followed: what they name runs, and does what was meant."""

from __future__ import annotations

import re

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand, OutOfBounds, Uninitialized, UnwrittenOutput

X = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
MODES, ENGINES = nisa.dge_mode, nisa.engine


def copied(x, view=lambda x: x, **how):
    def kernel(x):
        out = nl.ndarray((128, 64), nl.float32, nl.shared_hbm)
        tile = nl.ndarray((128, 64), nl.float32, nl.sbuf)
        nisa.dma_copy(dst=tile, src=view(x), **how)
        nisa.dma_copy(dst=out, src=tile)
        return out

    return neurosim.simulate(kernel)(x).outputs


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("engine", [ENGINES.tensor, ENGINES.vector, ENGINES.gpsimd, ENGINES.dma, 3])
def test_an_engine_that_triggers_nothing_is_told_once_which_do(engine, mode):
    with pytest.raises(IllegalOperand, match="cannot trigger hardware descriptors") as caught:
        copied(X, engine=engine, dge_mode=mode)
    advice = caught.value.advice
    named = [ENGINES[name] for name in re.findall(r"engine=nisa\.engine\.(\w+)", advice)]
    assert named == [ENGINES.sync, ENGINES.scalar]
    first, alone = [MODES[name] for name in re.findall(r"dge_mode=nisa\.dge_mode\.(\w+)", advice)]
    for each in named:
        np.testing.assert_array_equal(copied(X, engine=each, dge_mode=first), X)
    np.testing.assert_array_equal(copied(X, dge_mode=alone), X)


def test_an_engine_that_triggers_needs_its_mode():
    for mode in (MODES.unknown, MODES.swdge, MODES.none):
        with pytest.raises(IllegalOperand, match=r"engine=nisa\.engine\.scalar without dge_mode\.hwdge"):
            copied(X, engine=ENGINES.scalar, dge_mode=mode)


def test_before_trn2_no_engine_is_chosen():
    def kernel(x, engine):
        nisa.dma_copy(dst=x, src=x, engine=engine, dge_mode=MODES.hwdge)

    for engine in (ENGINES.sync, ENGINES.gpsimd):
        with pytest.raises(IllegalOperand, match="leave engine= out") as caught:
            neurosim.simulate(kernel, "trn1")(X.copy(), engine)
        assert "pass dge_mode" not in str(caught.value)


@pytest.mark.parametrize("row", [X[:1], X[0], X[:, :1]], ids=["row", "vector", "column"])
def test_a_source_to_repeat_is_told_the_view_that_does(row):
    with pytest.raises(IllegalOperand, match="repeat src with the view") as caught:
        copied(row)
    view = re.search(r"src((?:\.\w+\([\d, ]+\))+)", caught.value.advice)[1]
    repeated = copied(row, lambda x: eval(f"x{view}", {"x": x}))
    np.testing.assert_array_equal(repeated, np.broadcast_to(row, X.shape))


def test_a_source_that_no_view_repeats_is_not_told_one():
    with pytest.raises(IllegalOperand, match="slice the larger one"):
        copied(X[:64])
    with pytest.raises(IllegalOperand, match="slice the larger one"):
        copied(X[:, None, :1])


def test_a_row_on_chip_comes_from_hbm_for_all_partitions():
    def kernel(x, bias):
        tile, row = nl.load(x), nl.load(bias)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=row, op=nl.add)

    with pytest.raises(IllegalOperand, match="has 128 partitions and data2 has 1") as caught:
        neurosim.simulate(kernel)(X, X[:1])
    assert "src=row.broadcast(0, 128)" in caught.value.advice
    np.testing.assert_array_equal(copied(X[:1], lambda row: row.broadcast(0, 128)), np.repeat(X[:1], 128, 0))


def test_a_result_of_one_partition_is_not_told_to_repeat():
    def kernel(x):
        tile = nl.load(x)
        nisa.tensor_copy(dst=nl.ndarray((1, 64), nl.float32, nl.sbuf), src=tile)

    with pytest.raises(IllegalOperand, match="dst has 1 partitions") as caught:
        neurosim.simulate(kernel)(X)
    assert "broadcast" not in str(caught.value)


def test_a_destination_of_a_dtype_that_is_not_written_is_allocated_anew():
    def kernel(x):
        tile = nl.load(x)
        nisa.nc_matmul(dst=nl.ndarray((64, 64), nl.bfloat16, nl.psum), stationary=tile, moving=tile)

    with pytest.raises(IllegalOperand, match="dst is bfloat16") as caught:
        neurosim.simulate(kernel, "trn2")(X)
    assert caught.value.advice == (
        "allocate it with dtype=nl.float32, and cast the result with nisa.tensor_copy, on the way to SBUF"
    )


def test_one_operator_is_no_two():
    def kernel(x):
        tile = nl.load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=1.0, engine=ENGINES.scalar)

    with pytest.raises(IllegalOperand, match=r"Scalar cannot run nl\.subtract\n"):
        neurosim.simulate(kernel)(X)


def test_advice_on_the_issue_of_dmas_names_triggers_and_their_modes():
    def kernel(x):
        for row in range(128):
            tile = nl.ndarray((1, 64), nl.float32, nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[row : row + 1])

    text = next(each.text for each in neurosim.profile(kernel, "trn2")(X).advice() if each.rule == "dma_issue")
    assert re.findall(r"engine=nisa\.engine\.(\w+)", text) == ["sync", "scalar"]
    assert re.findall(r"dge_mode=nisa\.dge_mode\.(\w+)", text) == ["hwdge", "swdge"]


def test_the_tensor_that_lacks_bytes_leads():
    def kernel(x):
        tile = nl.load(x)
        acc = nl.ndarray((64, 128), nl.float32, nl.psum)
        nisa.nc_matmul(dst=acc[:, 0:64], stationary=tile, moving=tile)
        out = nl.ndarray((64, 128), nl.float32, nl.shared_hbm)
        row = nl.ndarray((64, 128), nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=row, src=acc)
        nisa.dma_copy(dst=out, src=row)
        return out

    with pytest.raises(Uninitialized) as caught:
        neurosim.simulate(kernel)(X)
    text = str(caught.value)
    assert text.startswith("acc[64, 128] float32 in PSUM: bytes that nobody wrote are read by tensor_copy")
    assert "cores" not in text


def test_an_unknown_partial_output_is_refused_though_another_is_unwritten():
    def kernel(x):
        out = nl.ndarray(x.shape, nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=out[:64], src=x[:64])
        return out

    with pytest.raises(IllegalOperand, match="partial_outputs names 'outs', which it does not return") as caught:
        neurosim.simulate(kernel, partial_outputs=["outs"])(X)
    assert "it returns out, output" in str(caught.value)


def halves(x):
    first = nl.ndarray(x.shape, nl.float32, nl.shared_hbm)
    second = nl.ndarray(x.shape, nl.float32, nl.shared_hbm, name="other")
    for out in (first, second):
        nisa.dma_copy(dst=out[:64], src=x[:64])
    return {"a": first, "b": [second]}


@pytest.mark.parametrize(
    "names", [["first", "second"], ["first", "other"], ["output['a']", "second"], ["output['a']", "output['b'][0]"]]
)
def test_partial_outputs_by_the_names_that_the_kernel_has(names):
    for launch in range(2):
        result = neurosim.simulate(halves, partial_outputs=names)(X)
        assert result.replayed == bool(launch)
        for each in (result.outputs["a"], *result.outputs["b"]):
            np.testing.assert_array_equal(each[:64], X[:64])
            np.testing.assert_array_equal(each[64:], 0)
    with pytest.raises(UnwrittenOutput, match=r"second|other"):
        neurosim.simulate(halves, partial_outputs=names[:1])(X)


def test_a_name_of_several_outputs_names_none():
    def kernel(x):
        outs = []
        for _ in range(2):
            out = nl.ndarray(x.shape, nl.float32, nl.shared_hbm)
            nisa.dma_copy(dst=out[:64], src=x[:64])
            outs.append(out)
        return outs

    with pytest.raises(IllegalOperand, match=r"names 'out', which 2 outputs are called(.*\n)+.*output\[0\]"):
        neurosim.simulate(kernel, partial_outputs=["out"])(X)


@pytest.mark.parametrize("chip", ["trn1", "trn2"])
def test_advice_quotes_the_pace_of_queues_that_the_chip_has(chip):
    def kernel(x):
        out = nl.ndarray(x.shape, nl.float32, nl.shared_hbm)
        mode = MODES.hwdge if chip == "trn2" else MODES.swdge
        for row in range(128):
            tile = nl.ndarray((1, 64), nl.float32, nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[row : row + 1], dge_mode=mode)
            nisa.dma_copy(dst=out[row : row + 1], src=tile, dge_mode=mode)
        return out

    found = [each.text for each in neurosim.profile(kernel, chip, values=False)(X).advice() if each.rule == "dma_issue"]
    assert found
    assert ("a queue of a hardware engine takes one in" in found[0]) == (chip == "trn2")
    assert "in 0" not in found[0]


@pytest.mark.parametrize(("start", "advice"), [(0, "take 64 elements at most"), (32, "use min() for the last tile")])
def test_a_slice_that_is_too_large_is_told_apart_from_a_last_tile(start, advice):
    with pytest.raises(OutOfBounds) as caught:
        neurosim.simulate(lambda x: x[:, start : start + 128])(X)
    assert advice in caught.value.advice
