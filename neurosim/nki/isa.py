"""``nki.isa`` as kernels import it.

Source of the names: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py`` (NKI 0.6).
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from isa.activation import OutOfRangeWarning as OutOfRangeWarning
from isa.activation import activation as activation
from isa.activation import activation_reduce as activation_reduce
from isa.copy import tensor_copy as tensor_copy
from isa.dma import dma_copy as dma_copy
from isa.iota import iota as iota
from isa.matmul import MatmulPerfMode as matmul_perf_mode
from isa.matmul import nc_matmul as nc_matmul
from isa.memset import memset as memset
from isa.reciprocal import reciprocal as reciprocal
from isa.reduce import tensor_reduce as tensor_reduce
from isa.select import affine_select as affine_select
from isa.tensor_scalar import tensor_scalar as tensor_scalar
from isa.tensor_tensor import tensor_tensor as tensor_tensor
from isa.transpose import nc_transpose as nc_transpose
from neurosim.devices import load_chip
from neurosim.engines import Engine as engine
from neurosim.errors import NkiValidationError as NkiValidationError
from neurosim.instruction import NkiInstruction as NkiInstruction
from neurosim.kernel import running
from neurosim.modes import DgeMode as dge_mode
from neurosim.modes import OobMode as oob_mode
from neurosim.modes import ReduceCmd as reduce_cmd
from neurosim.nki._missing import missing

__all__ = [
    "NkiInstruction",
    "NkiValidationError",
    "activation",
    "activation_reduce",
    "affine_select",
    "dge_mode",
    "dma_copy",
    "engine",
    "get_nc_version",
    "iota",
    "matmul_perf_mode",
    "memset",
    "nc_matmul",
    "nc_transpose",
    "nc_version",
    "oob_mode",
    "reciprocal",
    "reduce_cmd",
    "tensor_copy",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_tensor",
]

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown


class nc_version(Enum):
    """Generations of the NeuronCore."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


def get_nc_version() -> nc_version:
    """Return the generation of the chip that the kernel runs on (outside of a kernel, of the default chip)."""
    kernel = running()
    return nc_version((load_chip() if kernel is None else kernel.chip).generation)


_NOT_BUILT = frozenset(
    [
        "VirtualRegister",
        "activate2",
        "bn_aggr",
        "bn_stats",
        "core_barrier",
        "dma_compute",
        "dma_engine",
        "dma_transpose",
        "dropout",
        "exponential",
        "get_nc_sub_version",
        "local_gather",
        "max8",
        "nc_find_index8",
        "nc_match_replace8",
        "nc_matmul_mx",
        "nc_n_gather",
        "nc_stream_shuffle",
        "nonzero_with_count",
        "quantize_mx",
        "rand2",
        "rand_get_state",
        "rand_set_state",
        "range_select",
        "register_alloc",
        "register_load",
        "register_move",
        "register_store",
        "rng",
        "scalar_tensor_tensor",
        "select_reduce",
        "sendrecv",
        "sequence_bounds",
        "set_rng_seed",
        "tensor_copy_predicated",
        "tensor_partition_reduce",
        "tensor_scalar_cumulative",
        "tensor_scalar_reduce",
        "tensor_tensor_scan",
        "topk",
    ]
)


def __getattr__(name: str) -> Any:
    raise missing("nki.isa", name, _NOT_BUILT)
