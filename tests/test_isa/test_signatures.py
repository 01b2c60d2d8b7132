"""Names, order and defaults of operands are NKI 0.6's: ``nki/api/nki/isa/__init__.py``."""

from __future__ import annotations

import inspect

import nki.isa as nisa
import nki.language as nl
import pytest

from neurosim.operators import Operator

DOCUMENTED = {
    "dma_copy": "dst, src, priority=None, oob_mode=oob_mode.error, dge_mode=dge_mode.unknown, engine=engine.unknown",
    "tensor_copy": "dst, src, engine=engine.unknown",
    "memset": "dst, value, engine=engine.unknown",
    "nc_matmul": (
        "dst, stationary, moving, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False, "
        "accumulate=None, tile_position=(), tile_size=(), perf_mode=matmul_perf_mode.none"
    ),
    "nc_transpose": "dst, data, engine=engine.unknown",
    "tensor_tensor": "dst, data1, data2, op, engine=engine.unknown",
    "tensor_scalar": (
        "dst, data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, engine=engine.unknown"
    ),
    "tensor_reduce": "dst, op, data, axis, negate=False, keepdims=False",
    "activation": ("dst, op, data, bias=None, scale=1.0, reduce_op=None, reduce_res=None, reduce_cmd=reduce_cmd.idle"),
    "activation_reduce": "dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0",
    "iota": "dst, pattern, offset=0, channel_multiplier=0",
    "affine_select": "dst, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op=equal, offset=0",
    "reciprocal": "dst, data",
    "tensor_copy_predicated": "dst, src, predicate, reverse_pred=False",
    "dma_transpose": ("dst, src, axes=None, priority=None, dge_mode=dge_mode.unknown, oob_mode=oob_mode.error"),
    "local_gather": "dst, src_buffer, index, num_elem_per_idx=1, num_valid_indices=None",
    "nc_n_gather": "dst, data, indices",
    "bn_stats": "dst, data",
    "bn_aggr": "dst, data",
    "tensor_tensor_scan": "dst, data0, data1, initial, op0, op1, reverse0=False, reverse1=False",
    "nc_stream_shuffle": "dst, src, shuffle_mask",
    "max8": "dst, src",
    "nc_find_index8": "dst, data, vals",
    "nc_match_replace8": "dst, data, vals, imm, dst_idx=None",
    "scalar_tensor_tensor": "dst, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False",
    "tensor_scalar_reduce": (
        "dst, data, op0, operand0, reduce_op, reduce_res=None, reverse0=False, "
        "reduce_cmd=reduce_cmd.reset_reduce, reduce_init=None, reduce_res_negate=False"
    ),
    "range_select": (
        "dst, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=reduce_cmd.reset_reduce, "
        "reduce_res=None, reduce_op=maximum, range_start=0, on_false_value=-3.4028234663852886e38"
    ),
    "select_reduce": (
        "dst, predicate, on_true, on_false, reduce_res=None, reduce_cmd=reduce_cmd.idle, reduce_op=maximum, "
        "reverse_pred=False"
    ),
}


def default(text):
    """Return the value that the documentation writes as ``text``."""
    name, dot, member = text.partition(".")
    if dot and not name.lstrip("-").isdigit():
        return getattr(getattr(nisa, name), member)
    return getattr(nl, text) if text in ("equal", "maximum") else eval(text)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_signature(name):
    wanted = [(part.partition("=")[0], part.partition("=")[2]) for part in f"{DOCUMENTED[name]}, name=None".split(", ")]
    parameters = inspect.signature(getattr(nisa, name)).parameters
    assert list(parameters) == [part for part, _ in wanted]
    for part, text in wanted:
        expected = inspect.Parameter.empty if not text else default(text)
        assert parameters[part].default == expected or parameters[part].default is expected, part
        is_operator = isinstance(expected, Operator)  # the face's are functions too
        assert is_operator or type(parameters[part].default) is type(expected), part
        assert parameters[part].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


@pytest.mark.parametrize(
    ("enum", "members"),
    [
        ("engine", {"tensor": 1, "vector": 5, "scalar": 2, "gpsimd": 3, "dma": 4, "sync": 6, "unknown": 0}),
        ("reduce_cmd", {"idle": 0, "reset": 1, "reduce": 2, "reset_reduce": 3, "load_reduce": 4}),
        ("dge_mode", {"unknown": 0, "swdge": 1, "hwdge": 2, "none": 3}),
        ("oob_mode", {"error": 0, "skip": 1}),
        ("matmul_perf_mode", {"none": "none", "double_row": "double_row"}),
        ("nc_version", {"gen2": 2, "gen3": 3, "gen4": 4}),
    ],
)
def test_enums(enum, members):
    assert {member.name: member.value for member in getattr(nisa, enum)} == members


def test_old_names_of_engines():
    for name in ("tensor", "vector", "scalar", "gpsimd", "unknown"):
        assert getattr(nisa, f"{name}_engine") is getattr(nisa.engine, name)


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_instruction_says_what_it_does(name):
    instruction = getattr(nisa, name)
    assert instruction.__name__ == name
    assert len(instruction.__doc__) > 40
