"""Every name that NKI 0.6 documents is there, or says in one line that it is not built.

Source of the names: AWS Neuron SDK, ``nki/api/nki/{isa,language,collectives}/__init__.py``.
"""

from __future__ import annotations

import nki
import nki.collectives
import nki.isa as nisa
import nki.language as nl
import pytest

from neurosim.errors import Unsupported


def words(text):
    return text.split()


ISA = words(
    """
NkiInstruction NkiValidationError VirtualRegister activate2 activation activation_reduce affine_select bn_aggr
bn_stats core_barrier dge_mode dma_compute dma_copy dma_engine dma_transpose dropout engine exponential
get_nc_sub_version get_nc_version gpsimd_engine iota local_gather matmul_perf_mode max8 memset nc_find_index8
nc_match_replace8 nc_matmul nc_matmul_mx nc_n_gather nc_stream_shuffle nc_transpose nc_version nonzero_with_count
oob_mode quantize_mx rand2 rand_get_state rand_set_state range_select reciprocal reduce_cmd register_alloc
register_load register_move register_store rng scalar_engine scalar_tensor_tensor select_reduce sendrecv
sequence_bounds set_rng_seed tensor_copy tensor_copy_predicated tensor_engine tensor_partition_reduce tensor_reduce
tensor_scalar tensor_scalar_cumulative tensor_scalar_reduce tensor_tensor tensor_tensor_scan topk unknown_engine
vector_engine
"""
)
LANGUAGE = words(
    """
MemoryRegion NKIObject NkiTensor abs abs_max abs_min add affine_range all arctan average bfloat16 bitwise_and
bitwise_or bitwise_xor bool_ broadcast_to bypass ceil copy cos device_print divide dropout ds dynamic_range
empty_like equal erf erf_dx exp expand_dims float16 float32 float4_e2m1fn_x4 float8_e4m3 float8_e4m3fn
float8_e4m3fn_x4 float8_e5m2 float8_e5m2_x4 float8_e8m0fnu floor fmod fori_loop full gather_flattened gelu
gelu_apprx_sigmoid gelu_apprx_sigmoid_dx gelu_apprx_tanh gelu_dx greater greater_equal hbm int16 int32 int8 invert
is_hbm is_on_chip is_psum is_sbuf left_shift less less_equal load load_transpose2d log logical_and logical_not
logical_or logical_xor matmul max maximum mean min minimum mish mod multiply ndarray negative no_reorder not_equal
num_programs ones power prelu private_hbm prod program_id program_ndim psum rand random_seed reciprocal relu
right_shift rms_norm rsqrt sbuf sequential_range shared_constant shared_hbm shared_identity_matrix sigmoid sign silu
silu_dx sin softmax softplus sqrt square static_range store subtract sum tan tanh tfloat32 tile_size transpose trunc
uint16 uint32 uint8 var where while_loop zeros zeros_like
"""
)
COLLECTIVES = words(
    """
ReplicaGroup all_reduce all_gather all_gather_v reduce_scatter all_to_all all_to_all_v collective_permute
collective_permute_implicit collective_permute_implicit_reduce
collective_permute_implicit_current_processing_rank_id rank_id
"""
)
BUILT = words(
    """
activation activation_reduce affine_select dma_copy iota memset nc_matmul nc_transpose reciprocal tensor_copy
tensor_reduce tensor_scalar tensor_tensor get_nc_version nc_version NkiInstruction NkiValidationError
"""
)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        *((nisa, name) for name in ISA),
        *((nl, name) for name in LANGUAGE),
        *((nki.collectives, name) for name in COLLECTIVES),
        *((nki, name) for name in ("jit", "simulate")),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__.rpartition(".")[2],
)
def test_documented_names(module, name):
    if hasattr(module, name):
        assert getattr(module, name) is not None
        return
    with pytest.raises(Unsupported) as caught:
        getattr(module, name)
    path = module.__name__.removeprefix("neurosim.")
    assert str(caught.value) == f"{path}.{name} is documented for NKI 0.6 and not built here yet"


@pytest.mark.parametrize("name", BUILT)
def test_what_is_built(name):
    assert getattr(nisa, name) is not None


@pytest.mark.parametrize(
    ("module", "wrong", "right"),
    [(nisa, "nc_matmull", "nc_matmul"), (nisa, "tensor_tenser", "tensor_tensor"), (nl, "maximun", "maximum")],
)
def test_misspelt_names_suggest(module, wrong, right):
    with pytest.raises(AttributeError, match=f"has no attribute '{wrong}'\n +did you mean {right}") as caught:
        getattr(module, wrong)
    assert not isinstance(caught.value, Unsupported)


def test_operators_are_not_instructions():
    with pytest.raises(AttributeError):
        _ = nisa.add
