"""``neuronxcc.nki.language``: index tensors, masks, and functions that return tiles.

Source: NKI 0.1 documentation, ``nki.language``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neurosim import dtypes as _dtypes
from neurosim.engines import Memory as _Memory
from neurosim.nki._tile_size import TileSize as _TileSize
from neurosim.nki.legacy.index import arange as arange
from neurosim.nki.legacy.index import mgrid as mgrid
from neurosim.nki.legacy.inplace import loop_reduce as loop_reduce
from neurosim.nki.legacy.language.compound import all as all
from neurosim.nki.legacy.language.compound import gather_flattened as gather_flattened
from neurosim.nki.legacy.language.compound import matmul as matmul
from neurosim.nki.legacy.language.compound import max as max
from neurosim.nki.legacy.language.compound import mean as mean
from neurosim.nki.legacy.language.compound import min as min
from neurosim.nki.legacy.language.compound import prod as prod
from neurosim.nki.legacy.language.compound import rms_norm as rms_norm
from neurosim.nki.legacy.language.compound import softmax as softmax
from neurosim.nki.legacy.language.compound import sum as sum
from neurosim.nki.legacy.language.compound import transpose as transpose
from neurosim.nki.legacy.language.compound import var as var
from neurosim.nki.legacy.language.compound import where as where
from neurosim.nki.legacy.language.drawing import dropout as dropout
from neurosim.nki.legacy.language.drawing import rand as rand
from neurosim.nki.legacy.language.drawing import random_seed as random_seed
from neurosim.nki.legacy.language.elementwise import FUNCTIONS as _FUNCTIONS
from neurosim.nki.legacy.language.elementwise import install as _install
from neurosim.nki.legacy.language.elementwise import negative as negative
from neurosim.nki.legacy.language.loops import affine_range as affine_range
from neurosim.nki.legacy.language.loops import nc as nc
from neurosim.nki.legacy.language.loops import num_programs as num_programs
from neurosim.nki.legacy.language.loops import program_id as program_id
from neurosim.nki.legacy.language.loops import program_ndim as program_ndim
from neurosim.nki.legacy.language.loops import sequential_range as sequential_range
from neurosim.nki.legacy.language.loops import spmd_dim as spmd_dim
from neurosim.nki.legacy.language.loops import static_range as static_range
from neurosim.nki.legacy.language.memory import atomic_rmw as atomic_rmw
from neurosim.nki.legacy.language.memory import broadcast_to as broadcast_to
from neurosim.nki.legacy.language.memory import device_print as device_print
from neurosim.nki.legacy.language.memory import empty_like as empty_like
from neurosim.nki.legacy.language.memory import expand_dims as expand_dims
from neurosim.nki.legacy.language.memory import full as full
from neurosim.nki.legacy.language.memory import full_like as full_like
from neurosim.nki.legacy.language.memory import load as load
from neurosim.nki.legacy.language.memory import load_transpose2d as load_transpose2d
from neurosim.nki.legacy.language.memory import ndarray as ndarray
from neurosim.nki.legacy.language.memory import ones as ones
from neurosim.nki.legacy.language.memory import par_dim as par_dim
from neurosim.nki.legacy.language.memory import shared_constant as shared_constant
from neurosim.nki.legacy.language.memory import shared_identity_matrix as shared_identity_matrix
from neurosim.nki.legacy.language.memory import static_cast as static_cast
from neurosim.nki.legacy.language.memory import store as store
from neurosim.nki.legacy.language.memory import zeros as zeros
from neurosim.nki.legacy.language.memory import zeros_like as zeros_like
from neurosim.nki.legacy.missing import missing as _missing
from neurosim.nki.legacy.tensor import Tensor
from neurosim.views.indexing import DynamicSlice as ds

_install()
tensor = Tensor

# NumPy's own types, as in the old package: kernels compare them with tensors' and arrays' dtypes
float32, float16 = np.float32, np.float16
int8, int16, int32 = np.int8, np.int16, np.int32
uint8, uint16, uint32 = np.uint8, np.uint16, np.uint32
bool_ = np.bool_
bfloat16 = _dtypes.bfloat16.numpy
float8_e4m3 = _dtypes.float8_e4m3.numpy
float8_e5m2 = _dtypes.float8_e5m2.numpy
tfloat32 = "tfloat32"  # may be named and compared; using it says that it is not built

sbuf = _Memory.sbuf
psum = _Memory.psum
hbm = _Memory.shared_hbm
private_hbm = _Memory.private_hbm
shared_hbm = _Memory.shared_hbm

dslice = ds
tile_size = _TileSize()


class fp32:
    """Limits of float32."""

    min = float(np.finfo(np.float32).min)
    max = float(np.finfo(np.float32).max)


def finfo(dtype: Any) -> Any:
    """Return the limits of a float format, as ``numpy.finfo``."""
    import ml_dtypes

    found = _dtypes.of(dtype)
    return ml_dtypes.finfo(dtype if found is None else found.numpy)  # type: ignore[no-untyped-call]


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if name == "bool":
        return bool_
    raise _missing("nki.language", name, __dir__())


def __dir__() -> list[str]:
    return sorted([*globals(), *_FUNCTIONS])


from neurosim.nki.legacy.language import constants as constants  # noqa: E402 (it takes its names from here)
