"""What kernels of NKI 0.1 would compute again from the same tiles is left out, and nothing else."""

from __future__ import annotations

import neuronxcc.nki as legacy
import neuronxcc.nki.isa as legacy_isa
import neuronxcc.nki.language as legacy_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.report.text import report

TRIPS = 4


def kernel(width=512, *, loads_inside=False, changes=False):
    """Multiply two tiles in each trip of a loop, add the trip's number, and store that."""

    @legacy.jit
    def scaled(a, b):
        out = legacy_nl.ndarray((TRIPS, 128, width), dtype=a.dtype, buffer=legacy_nl.shared_hbm)
        x, y = legacy_nl.load(a), legacy_nl.load(b)
        for i in legacy_nl.sequential_range(TRIPS):
            if loads_inside:
                x = legacy_nl.load(a)
            product = legacy_isa.tensor_tensor(x, y, op=np.multiply)
            if changes:
                y[...] = legacy_isa.tensor_scalar(y, op0=np.add, operand0=1.0)
            legacy_nl.store(out[i], legacy_isa.tensor_scalar(product, op0=np.add, operand0=float(i)))
        return out

    return scaled


def run(function, width=512, **options):
    x = neurosim.spec((128, width), "float32")
    return neurosim.simulate(function, values=False, **options)(x, x)


def names(result):
    """Return the instructions that are left out."""
    program = result.program
    return [program.signatures[program.signature_ids[record]].instruction for record in result.timeline.left_out]


def test_a_product_of_the_same_tiles_is_computed_once():
    result = run(kernel())
    assert names(result) == ["tensor_tensor"] * (TRIPS - 1)
    summary = result.summary()
    assert summary["left_out"] == {"loads": 0, "read_bytes": 0, "products": TRIPS - 1}
    assert "3 products left out, on the chip already" in " ".join(report(summary).split())
    assert result.timeline.complete_ps[result.timeline.left_out[-1]] == result.timeline.complete_ps[2]


def test_values_are_those_of_all_trips():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((128, 512), dtype=np.float32) for _ in range(2))
    outputs = neurosim.simulate(kernel())(a, b).outputs
    np.testing.assert_array_equal(outputs, np.stack([a * b + np.float32(i) for i in range(TRIPS)]))


@legacy.jit
def transposed(a, b):
    """Transpose one tile in each trip, copy that to SBUF, and store it scaled."""
    out = legacy_nl.ndarray((TRIPS, 128, 128), dtype=a.dtype, buffer=legacy_nl.shared_hbm)
    x = legacy_nl.load(a)
    for i in legacy_nl.sequential_range(TRIPS):
        turned = legacy_nl.copy(legacy_isa.nc_transpose(x, engine=legacy_isa.tensor_engine))
        legacy_nl.store(out[i], legacy_isa.tensor_scalar(turned, op0=np.multiply, operand0=float(i)))
    return out


def test_a_transpose_whose_copy_is_there_is_not_made_again():
    result = run(transposed, 128)
    assert sorted(names(result)) == ["nc_transpose"] * (TRIPS - 1) + ["tensor_copy"] * (TRIPS - 1)
    program, timeline = result.program, result.timeline
    first = [program.signatures[i].instruction for i in program.signature_ids].index("nc_transpose")
    again = [i for i in timeline.left_out if program.signatures[program.signature_ids[i]].instruction == "nc_transpose"]
    assert (timeline.complete_ps[again] == timeline.complete_ps[first]).all()
    x = np.arange(128 * 128, dtype=np.float32).reshape(128, 128)
    outputs = neurosim.simulate(transposed)(x, x).outputs
    np.testing.assert_array_equal(outputs, np.stack([x.T * i for i in range(TRIPS)]))


@legacy.jit
def changing_sum(a, b):
    """Add each transpose, where it is, to a tile that changes."""
    out = legacy_nl.ndarray((TRIPS, 128, 128), dtype=a.dtype, buffer=legacy_nl.shared_hbm)
    x, total = legacy_nl.load(a), legacy_nl.load(b)
    for i in legacy_nl.sequential_range(TRIPS):
        turned = legacy_isa.nc_transpose(x, engine=legacy_isa.tensor_engine)
        total[...] = legacy_isa.tensor_tensor(turned, total, op=np.add)
        legacy_nl.store(out[i], total)
    return out


def test_what_is_read_in_psum_by_something_else_is_made():
    assert "nc_transpose" not in names(run(changing_sum, 128))


@pytest.mark.parametrize("how", [{"changes": True}, {"loads_inside": True}])
def test_other_contents_and_other_tiles_are_computed_again(how):
    assert "tensor_tensor" not in names(run(kernel(**how)))


def test_a_result_that_does_not_fit_is_computed_again():
    width = 8192  # three tiles of 32 KiB, and a sum: the product would take a fifth place for all of the loop
    small = neurosim.load_chip("trn2").replace(sbuf__partition_bytes=5 * 32 * 1024)
    assert names(run(kernel(width), width)) == ["tensor_tensor"] * (TRIPS - 1)
    assert names(run(kernel(width), width, chip=small)) == []


def test_newer_kernels_compute_what_their_source_says():
    @nki.jit
    def scaled(a, b):
        out = nl.ndarray((TRIPS, 128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
        x, y = (nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(dst=x, src=a)
        nisa.dma_copy(dst=y, src=b)
        for i in range(TRIPS):
            product, moved = (nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
            nisa.tensor_tensor(dst=product, data1=x, data2=y, op=nl.multiply)
            nisa.tensor_scalar(dst=moved, data=product, op0=nl.add, operand0=float(i))
            nisa.dma_copy(dst=out[i], src=moved)
        return out

    assert names(run(scaled)) == []
