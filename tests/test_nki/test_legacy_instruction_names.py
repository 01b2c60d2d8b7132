"""``name=`` of legacy instructions: what the listing and a schedule call them, also the parts that a mask cuts."""

import inspect

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.record.listing import listing

F, U = np.float32, np.uint32


def tile(*shape, dtype=F, value=1):
    return nisa.memset(shape, value, dtype)


def place(*shape, dtype=F):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


CALLS = {
    "activation": lambda name: nisa.activation(np.exp, tile(8, 16), name=name),
    "activation_reduce": lambda name: nisa.activation_reduce(
        np.exp, tile(8, 16), reduce_op=np.add, reduce_res=place(8, 1), name=name
    ),
    "affine_select": lambda name: nisa.affine_select(
        nl.arange(8)[:, None] >= nl.arange(16)[None, :], tile(8, 16), 0.0, name=name
    ),
    "bn_aggr": lambda name: nisa.bn_aggr(nisa.bn_stats(tile(8, 16)), name=name),
    "bn_stats": lambda name: nisa.bn_stats(tile(8, 16), name=name),
    "dma_copy": lambda name: nisa.dma_copy(dst=place(8, 16), src=tile(8, 16), name=name),
    "dma_transpose": lambda name: nisa.dma_transpose(tile(8, 16), name=name),
    "dropout": lambda name: nisa.dropout(tile(8, 16), 0.5, name=name),
    "iota": lambda name: nisa.iota(nl.arange(16)[None, :], np.int32, name=name),
    "local_gather": lambda name: nisa.local_gather(tile(16, 8), tile(16, 1, dtype=np.uint16, value=2), name=name),
    "max8": lambda name: nisa.max8(src=tile(8, 16), name=name),
    "memset": lambda name: nisa.memset((8, 16), 1.0, F, name=name),
    "nc_find_index8": lambda name: nisa.nc_find_index8(data=tile(8, 16), vals=tile(8, 8), name=name),
    "nc_match_replace8": lambda name: nisa.nc_match_replace8(data=tile(8, 16), vals=tile(8, 8), imm=0.0, name=name),
    "nc_matmul": lambda name: nisa.nc_matmul(tile(8, 16), tile(8, 16), name=name),
    "nc_stream_shuffle": lambda name: nisa.nc_stream_shuffle(tile(32, 8), place(32, 8), list(range(32)), name=name),
    "nc_transpose": lambda name: nisa.nc_transpose(tile(8, 16), name=name),
    "range_select": lambda name: nisa.range_select(
        on_true_tile=tile(8, 16), comp_op0=np.less, comp_op1=np.less, bound0=tile(8, 1), bound1=tile(8, 1), name=name
    ),
    "reciprocal": lambda name: nisa.reciprocal(tile(8, 16), name=name),
    "scalar_tensor_tensor": lambda name: nisa.scalar_tensor_tensor(
        data=tile(8, 16), op0=np.add, operand0=1.0, op1=np.add, operand1=tile(8, 16), name=name
    ),
    "select_reduce": lambda name: nisa.select_reduce(
        dst=place(8, 16), predicate=tile(8, 16, dtype=np.uint8), on_true=tile(8, 16), on_false=0.0, name=name
    ),
    "sequence_bounds": lambda name: nisa.sequence_bounds(segment_ids=tile(1, 16), name=name),
    "tensor_copy": lambda name: nisa.tensor_copy(tile(8, 16), name=name),
    "tensor_copy_dynamic_dst": lambda name: nisa.tensor_copy_dynamic_dst(
        dst=tile(8, 16)[nl.arange(8)[:, None], tile(1, 1, dtype=np.int32) + nl.arange(8)[None, :]],
        src=tile(8, 8),
        name=name,
    ),
    "tensor_copy_dynamic_src": lambda name: nisa.tensor_copy_dynamic_src(
        tile(8, 16)[nl.arange(8)[:, None], tile(1, 1, dtype=np.int32) + nl.arange(8)[None, :]], name=name
    ),
    "tensor_copy_predicated": lambda name: nisa.tensor_copy_predicated(
        src=tile(8, 16), dst=tile(8, 16), predicate=tile(8, 16, dtype=U), name=name
    ),
    "tensor_partition_reduce": lambda name: nisa.tensor_partition_reduce(np.add, tile(8, 16), name=name),
    "tensor_reduce": lambda name: nisa.tensor_reduce(np.add, tile(8, 16), axis=1, name=name),
    "tensor_scalar": lambda name: nisa.tensor_scalar(tile(8, 16), np.add, 1.0, name=name),
    "tensor_scalar_cumulative": lambda name: nisa.tensor_scalar_cumulative(
        dst=place(8, 16), src=tile(8, 16), op0=np.add, op1=np.add, imm0=1.0, name=name
    ),
    "tensor_scalar_reduce": lambda name: nisa.tensor_scalar_reduce(
        data=tile(8, 16), op0=np.add, operand0=1.0, reduce_op=np.add, reduce_res=place(8, 1), name=name
    ),
    "tensor_tensor": lambda name: nisa.tensor_tensor(tile(8, 16), tile(8, 16), np.add, name=name),
    "tensor_tensor_scan": lambda name: nisa.tensor_tensor_scan(
        tile(8, 16), tile(8, 16), initial=0.0, op0=np.multiply, op1=np.add, name=name
    ),
}
QUERIES = {"get_nc_version"}


def named_records(call, name):
    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        call(name)
        nl.store(out, nl.load(a))
        return out

    program = neurosim.simulate(kernel)(np.zeros((8, 16), F)).program
    return program, [program.record(index).signature.instruction for index in sorted(program.names)]


def test_every_instruction_is_called_below():
    found = {name for name in nisa.__all__ if inspect.isfunction(getattr(nisa, name))}
    assert found - QUERIES == set(CALLS)


@pytest.mark.parametrize("function", CALLS)
def test_the_record_has_the_name(function):
    program, instructions = named_records(CALLS[function], "the_one")
    assert len(instructions) == 1, instructions
    assert listing(program).count("the_one") == 1
    assert named_records(CALLS[function], None)[1] == []


def test_all_parts_of_a_mask_have_it():
    def call(name):
        i, j = nl.mgrid[0:8, 0:16]
        nisa.dma_copy(dst=place(8, 16)[i, j], src=tile(8, 16)[i, j], mask=i + j < 8, name=name)

    assert named_records(call, "parts")[1] == ["dma_copy"] * 8
