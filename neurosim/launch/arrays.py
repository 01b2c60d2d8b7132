"""Arrays of other libraries, in and out: NumPy, PyTorch, JAX. None of them is imported unless the caller did.

A tensor's bytes are shared where the library lets them be, so that a kernel's in-place writes reach the caller.
"""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from neurosim.errors import IllegalOperand

Array = npt.NDArray[Any]

# PyTorch's formats that NumPy does not have, with the integers that carry their bits
_TORCH_BITS: dict[str, tuple[str, Any]] = {
    "bfloat16": ("int16", ml_dtypes.bfloat16),
    "float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
    "float8_e5m2": ("uint8", ml_dtypes.float8_e5m2),
    "float8_e8m0fnu": ("uint8", ml_dtypes.float8_e8m0fnu),
}


def kind_of(value: Any) -> str | None:
    """Return which library an array belongs to: ``numpy``, ``torch``, ``jax``; None for anything else."""
    if isinstance(value, np.ndarray):
        return "numpy"
    for library, array in (("torch", "Tensor"), ("jax", "Array")):
        # a library that another thread is importing, or that a test replaced by a stub, may have no arrays
        if isinstance(value, getattr(sys.modules.get(library), array, ())):
            return library
    return None


def to_numpy(value: Any, name: str) -> Array:
    """Return an array as NumPy sees it, sharing its bytes where possible.

    Raises:
        IllegalOperand: a PyTorch tensor that is not on the CPU, or a masked array.
    """
    kind = kind_of(value)
    if kind == "torch":
        return _from_torch(value, name)
    # NumPy imports its masked arrays when they are first asked for, and who never did has none
    if isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        raise IllegalOperand(f"argument {name} is a masked array", advice="the device has no masks: fill it first")
    return np.asarray(value) if kind == "jax" else value


def _from_torch(tensor: Any, name: str) -> Array:
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu":
        raise IllegalOperand(f"argument {name} is on {tensor.device}", advice="move it to the CPU with .cpu()")
    tensor = tensor.detach()
    bits = _TORCH_BITS.get(str(tensor.dtype).removeprefix("torch."))
    if bits is None:
        try:
            array: Array = tensor.numpy()
        except (TypeError, RuntimeError) as error:
            text = f"argument {name} is {tensor.dtype}: {error}"
            raise IllegalOperand(text, advice="make it dense and plain") from None
        return array
    carrier, dtype = bits
    carried: Array = tensor.view(getattr(torch, carrier)).numpy()
    return carried.view(dtype)


def like(array: Array, kind: str) -> Any:
    """Return a NumPy array as an array of the library ``kind``; packed formats as their bits where it lacks them.

    Raises:
        IllegalOperand: the library has no such dtype.
    """
    if kind != "numpy" and array.dtype.fields is not None:
        array = np.ascontiguousarray(array).view(f"uint{8 * array.dtype.itemsize}")
    if kind == "torch":
        return _to_torch(array)
    if kind == "jax":
        return sys.modules["jax"].numpy.asarray(array)
    return array


def _to_torch(array: Array) -> Any:
    torch = sys.modules["torch"]
    name = array.dtype.name
    array = np.ascontiguousarray(array)
    if name in _TORCH_BITS:
        carried = array.view(_TORCH_BITS[name][0])
        return torch.from_numpy(carried).view(getattr(torch, name))
    try:
        return torch.from_numpy(array)
    except TypeError:
        raise IllegalOperand(
            f"an output is {name}, which PyTorch does not have", advice="cast it in the kernel, or pass NumPy arrays"
        ) from None
