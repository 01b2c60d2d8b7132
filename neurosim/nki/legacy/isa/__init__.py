"""``neuronxcc.nki.isa``: instructions that return their results.

Source: NKI 0.1 documentation, ``nki.isa``.
"""

from __future__ import annotations

from typing import Any

from neurosim.datapath.modes import DgeMode, OobMode, ReduceCmd
from neurosim.engines import Engine
from neurosim.nki.isa import NkiValidationError as NkiValidationError
from neurosim.nki.isa import get_nc_version as get_nc_version
from neurosim.nki.isa import nc_version as nc_version
from neurosim.nki.legacy.isa._elementwise import activation as activation
from neurosim.nki.legacy.isa._elementwise import activation_reduce as activation_reduce
from neurosim.nki.legacy.isa._elementwise import dropout as dropout
from neurosim.nki.legacy.isa._elementwise import memset as memset
from neurosim.nki.legacy.isa._elementwise import reciprocal as reciprocal
from neurosim.nki.legacy.isa._elementwise import scalar_tensor_tensor as scalar_tensor_tensor
from neurosim.nki.legacy.isa._elementwise import tensor_copy as tensor_copy
from neurosim.nki.legacy.isa._elementwise import tensor_scalar as tensor_scalar
from neurosim.nki.legacy.isa._elementwise import tensor_tensor as tensor_tensor
from neurosim.nki.legacy.isa._elementwise import tensor_tensor_scan as tensor_tensor_scan
from neurosim.nki.legacy.isa._matmul import nc_matmul as nc_matmul
from neurosim.nki.legacy.isa._matmul import nc_transpose as nc_transpose
from neurosim.nki.legacy.isa._move import affine_select as affine_select
from neurosim.nki.legacy.isa._move import dma_copy as dma_copy
from neurosim.nki.legacy.isa._move import dma_transpose as dma_transpose
from neurosim.nki.legacy.isa._move import iota as iota
from neurosim.nki.legacy.isa._move import local_gather as local_gather
from neurosim.nki.legacy.isa._move import nc_stream_shuffle as nc_stream_shuffle
from neurosim.nki.legacy.isa._move import range_select as range_select
from neurosim.nki.legacy.isa._move import select_reduce as select_reduce
from neurosim.nki.legacy.isa._move import sequence_bounds as sequence_bounds
from neurosim.nki.legacy.isa._move import tensor_copy_dynamic_dst as tensor_copy_dynamic_dst
from neurosim.nki.legacy.isa._move import tensor_copy_dynamic_src as tensor_copy_dynamic_src
from neurosim.nki.legacy.isa._move import tensor_copy_predicated as tensor_copy_predicated
from neurosim.nki.legacy.isa._move import tensor_scalar_cumulative as tensor_scalar_cumulative
from neurosim.nki.legacy.isa._reduce import bn_aggr as bn_aggr
from neurosim.nki.legacy.isa._reduce import bn_stats as bn_stats
from neurosim.nki.legacy.isa._reduce import max8 as max8
from neurosim.nki.legacy.isa._reduce import nc_find_index8 as nc_find_index8
from neurosim.nki.legacy.isa._reduce import nc_match_replace8 as nc_match_replace8
from neurosim.nki.legacy.isa._reduce import tensor_partition_reduce as tensor_partition_reduce
from neurosim.nki.legacy.isa._reduce import tensor_reduce as tensor_reduce
from neurosim.nki.legacy.isa._reduce import tensor_scalar_reduce as tensor_scalar_reduce
from neurosim.nki.legacy.missing import missing

engine, dge_mode, oob_mode, reduce_cmd = Engine, DgeMode, OobMode, ReduceCmd
tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown

__all__ = [name for name in dir() if not name.startswith("_") and name not in ("Any", "annotations", "missing")]


def __getattr__(name: str) -> Any:
    raise missing("nki.isa", name, __all__)


from neurosim.nki.legacy.isa import constants as constants  # noqa: E402 (it takes its names from here)
