"""``nki.isa`` as kernels import it.

Source of the names: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py`` (NKI 0.6).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from isa.activate2 import activate2 as activate2
from isa.activation import activation as activation
from isa.activation import activation_reduce as activation_reduce
from isa.batchnorm import bn_aggr as bn_aggr
from isa.batchnorm import bn_stats as bn_stats
from isa.copy import tensor_copy as tensor_copy
from isa.cores import core_barrier as core_barrier
from isa.cores import sendrecv as sendrecv
from isa.cumulative import tensor_scalar_cumulative as tensor_scalar_cumulative
from isa.dma import dma_copy as dma_copy
from isa.dma_compute import dma_compute as dma_compute
from isa.dma_transpose import dma_transpose as dma_transpose
from isa.dropout import dropout as dropout
from isa.exponential import exponential as exponential
from isa.gather import local_gather as local_gather
from isa.gather import nc_n_gather as nc_n_gather
from isa.iota import iota as iota
from isa.match import max8 as max8
from isa.match import nc_find_index8 as nc_find_index8
from isa.match import nc_match_replace8 as nc_match_replace8
from isa.matmul import MatmulPerfMode as matmul_perf_mode
from isa.matmul import nc_matmul as nc_matmul
from isa.matmul_mx import nc_matmul_mx as nc_matmul_mx
from isa.memset import memset as memset
from isa.partition_reduce import tensor_partition_reduce as tensor_partition_reduce
from isa.positions import nonzero_with_count as nonzero_with_count
from isa.positions import sequence_bounds as sequence_bounds
from isa.predicated import tensor_copy_predicated as tensor_copy_predicated
from isa.quantize import quantize_mx as quantize_mx
from isa.range_select import range_select as range_select
from isa.reciprocal import reciprocal as reciprocal
from isa.reduce import tensor_reduce as tensor_reduce
from isa.register import register_alloc as register_alloc
from isa.register import register_load as register_load
from isa.register import register_move as register_move
from isa.register import register_store as register_store
from isa.rng import rand2 as rand2
from isa.rng import rng as rng
from isa.rng_state import rand_get_state as rand_get_state
from isa.rng_state import rand_set_state as rand_set_state
from isa.rng_state import set_rng_seed as set_rng_seed
from isa.scalar_tensor_tensor import scalar_tensor_tensor as scalar_tensor_tensor
from isa.scan import tensor_tensor_scan as tensor_tensor_scan
from isa.select import affine_select as affine_select
from isa.select_reduce import select_reduce as select_reduce
from isa.shuffle import nc_stream_shuffle as nc_stream_shuffle
from isa.tensor_scalar import tensor_scalar as tensor_scalar
from isa.tensor_scalar_reduce import tensor_scalar_reduce as tensor_scalar_reduce
from isa.tensor_tensor import tensor_tensor as tensor_tensor
from isa.topk import topk as topk
from isa.transpose import nc_transpose as nc_transpose
from neurosim.datapath.activations import OutOfRangeWarning as OutOfRangeWarning
from neurosim.datapath.modes import DgeMode as dge_mode
from neurosim.datapath.modes import DmaEngine as dma_engine
from neurosim.datapath.modes import OobMode as oob_mode
from neurosim.datapath.modes import ReduceCmd as reduce_cmd
from neurosim.devices import load_chip
from neurosim.engines import Engine as engine
from neurosim.errors import NkiValidationError as NkiValidationError
from neurosim.execution.handle import NkiInstruction as NkiInstruction
from neurosim.execution.scalar_registers import VirtualRegister as VirtualRegister
from neurosim.kernel import running
from neurosim.nki._catalogue import instructions
from neurosim.nki._missing import missing

__all__ = [
    "topk",
    "sequence_bounds",
    "nonzero_with_count",
    "NkiInstruction",
    "NkiValidationError",
    "VirtualRegister",
    "activate2",
    "activation",
    "activation_reduce",
    "affine_select",
    "bn_aggr",
    "bn_stats",
    "core_barrier",
    "dge_mode",
    "dma_compute",
    "dma_copy",
    "dma_engine",
    "dma_transpose",
    "dropout",
    "engine",
    "exponential",
    "get_nc_sub_version",
    "get_nc_version",
    "iota",
    "local_gather",
    "matmul_perf_mode",
    "max8",
    "memset",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul",
    "nc_matmul_mx",
    "nc_n_gather",
    "nc_stream_shuffle",
    "nc_transpose",
    "nc_version",
    "oob_mode",
    "rand2",
    "rand_get_state",
    "rand_set_state",
    "quantize_mx",
    "range_select",
    "reciprocal",
    "reduce_cmd",
    "rng",
    "register_alloc",
    "register_load",
    "register_move",
    "register_store",
    "scalar_tensor_tensor",
    "select_reduce",
    "sendrecv",
    "set_rng_seed",
    "tensor_copy",
    "tensor_copy_predicated",
    "tensor_partition_reduce",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_cumulative",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
]

tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown


class nc_version(IntEnum):
    """Generations of the NeuronCore, in order."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


def get_nc_version() -> nc_version:
    """Return the generation of the chip that the kernel runs on (outside of a kernel, of the default chip)."""
    kernel = running()
    return nc_version((load_chip() if kernel is None else kernel.chip).generation)


def get_nc_sub_version() -> int:
    """Return which revision of its generation's silicon the chip is: 0, the first, of which all figures here are."""
    return 0


_NOT_BUILT: frozenset[str] = frozenset()


def __getattr__(name: str) -> Any:
    """Find an instruction that stands in ``isa`` and is not imported above, by name or from a folder added to it."""
    found = instructions().get(name)
    if found is None:
        raise missing("nki.isa", name, _NOT_BUILT, __all__)
    return found


from neurosim.nki.isa import constants as constants  # noqa: E402 (it takes its names from here)
