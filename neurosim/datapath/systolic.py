"""What the tensor engine's instructions share: tiles of the array, sums in PSUM, and transposes.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``nc_matmul``, "Tiling mode" and "Accumulation mode";
bfloat16 sums: ``nki/guides/architecture/trainium3_arch.rst``, "BF16 Matmul Results in PSUM"; transposes with and
without a mode of their own: ``nki/guides/architecture/trainium2_arch.rst``, "Built-in Transpose Support".

On tiling the documentation contradicts itself: ``nc_matmul`` describes row and column tiles, and its parameters
``tile_position`` and ``tile_size`` allow rows only. neurosim follows the description, which public kernels rely on.

*Assumed*: float32 results become bfloat16 by rounding to nearest even. The hardware can also round stochastically,
and no parameter of NKI asks for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Number
from operator import index as as_int
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, bounding_box, same_dtype
from neurosim.errors import Uninitialized, UnknownBehavior
from neurosim.execution.holes import uninitialized
from neurosim.execution.lanes import Lanes, Sums, turned
from neurosim.instruction import Tile
from neurosim.memory import HOLE, MATMUL, UNWRITTEN, WRITTEN
from neurosim.views.indirection import ColumnTensor

Compute = Callable[[Sums, bool], None]
"""Multiplies into a float32 [M, N] array: in place of what it holds, or added to it."""


class ArrayTile(NamedTuple):
    """A part of the array: where it begins, and how large it is. Tiles that share no cell work at the same time."""

    row: int
    column: int
    rows: int
    columns: int


def pair(value: Any) -> tuple[int, int] | None:
    """Return a parameter as two whole numbers, None if it is anything else."""
    try:
        first, second = (as_int(entry) for entry in value)
    except (TypeError, ValueError):
        return None
    return first, second


def array_tile(position: Any, size: Any, chip: Chip) -> ArrayTile | None:
    """Return the tile that parameters which break no rule ask for, None for the whole array."""
    where, extents = pair(position), pair(size)
    whole = (chip.tensor.rows, chip.tensor.columns)
    return None if where is None or extents is None or extents == whole else ArrayTile(*where, *extents)


def tiling_rules(position: Any, size: Any, chip: Chip, *, by_columns: bool = True) -> Iterator[Broken | None]:
    """``tile_position`` and ``tile_size`` name a tile that the generation's array can be cut into.

    Both are left out as None, and in ``nc_matmul``, whose array can be cut by columns too, as empty tuples.
    """
    unset = [
        value is None or (by_columns and isinstance(value, (tuple, list)) and not value) for value in (position, size)
    ]
    if all(unset):
        return
    where, extents = pair(position), pair(size)
    for label, found, value in (("tile_position", where, position), ("tile_size", extents, size)):
        if found is None:
            yield Broken(
                f"{label}={value!r} is not a (rows, columns) pair of whole numbers",
                (),
                "give both tile_position and tile_size, or neither for the whole array",
            )
    if where is None or extents is None:
        return
    limits = (chip.tensor.rows, chip.tensor.columns)
    cuts = (2, 1) if chip.generation < 3 else (4, 2, 1)
    for axis, start, extent, limit in zip(("row", "column"), where, extents, limits, strict=True):
        allowed = tuple(limit // cut for cut in cuts) if axis == "row" or by_columns else (limit,)
        if extent not in allowed:
            newer = " (32 needs NeuronCore-v3, trn2)" if extent == limit // 4 and by_columns else ""
            yield Broken(
                f"tile_size={extents}: the {axis} size must be {' or '.join(map(str, allowed))} on {chip.name}{newer}",
                (f"the array has {limits[0]} rows and {limits[1]} columns",),
            )
        elif start % extent or not 0 <= start <= limit - extent:
            starts = ", ".join(str(begin) for begin in range(0, limit, extent))
            yield Broken(
                f"tile_position={where}: a tile of {extent} {axis}s begins at {starts}",
                (f"tile_size={extents}",),
            )


def fits_tile(tile: ArrayTile | None, stationary: Tile, columns: int) -> Broken | None:
    """The stationary operand, with so many columns, is no larger than its tile of the array."""
    if tile is None or (stationary.partitions <= tile.rows and columns <= tile.columns):
        return None
    return Broken(
        f"stationary is {stationary.partitions} × {columns}; its tile of the array is {tile.rows} × {tile.columns}",
        (f"stationary  {stationary.describe()}", f"tile_position={tile[:2]}, tile_size={tile[2:]}"),
        "choose a larger tile_size, or smaller operands",
    )


def no_tile_with_indirection(position: Any, *operands: Tile) -> Broken | None:
    """Operands that offsets choose use the array from its beginning."""
    if pair(position) in (None, (0, 0)) or not any(tile.is_indirect() for tile in operands):
        return None
    return Broken(f"tile_position {position} with tensor indirection", (), "leave it out")


def accumulate_rule(accumulate: Any) -> Broken | None:
    """``accumulate`` is None, True or False (or 0 or 1)."""
    if accumulate is None or (isinstance(accumulate, (Number, np.bool_)) and accumulate in (True, False)):
        return None
    return Broken(f"accumulate={accumulate!r}", (), "pass None, True or False")


def admit_sum(mnemonic: str, dst: Tile, accumulate: Any, lanes: Lanes) -> None:
    """Refuse ``accumulate=True`` where no matmul wrote, and None where all depends on holes.

    Where a matmul wrote and some of what it read was unwritten, those elements of dst are holes, and stay holes
    whatever is added: columns that a kernel never stores, say.
    """
    if added_to(dst, accumulate) is not None:
        return
    if accumulate and lanes.where_written(dst) != MATMUL:
        _refuse_accumulate(mnemonic, dst, lanes)
    elif accumulate is None:
        origin = dst.allocation.storage.travelled(dst)
        if origin is not None:
            hole = bounding_box(lanes.states(dst) == HOLE)
            what = f"{mnemonic}: accumulating onto dst {dst.describe()}"
            raise uninitialized(what, hole, origin, travelled=True, cores=lanes.cores)


def added_to(dst: Tile, accumulate: Any) -> npt.NDArray[np.bool_] | None:
    """Return which elements of ``dst`` [its shape] a sum goes on in, where the others are holes; else None."""
    storage = dst.allocation.storage
    if storage.origin is None or dst.is_indirect() or not (accumulate is None or accumulate):
        return None
    states = storage.element_states(dst)
    sums, holes = states == MATMUL, states == HOLE
    return sums if sums.any() and holes.any() and (sums | holes).all() else None


def sum_into(mnemonic: str, dst: Tile, accumulate: Any, lanes: Lanes, compute: Compute) -> None:
    """Let ``compute`` write ``dst`` or add to it, according to ``accumulate`` and to what wrote it.

    In bfloat16 a product is summed in float32, added to what PSUM holds in float32, and rounded once.
    """
    overwrite = _overwrites(mnemonic, dst, accumulate, lanes)
    if isinstance(dst, ColumnTensor) and not overwrite and dst.repeats():
        raise UnknownBehavior(
            f"{mnemonic}: adding twice to one place of dst, which offsets choose",
            numbers=(f"dst  {dst.describe()}",),
            advice="give each offset once, or accumulate=False",
        )
    lanes.sum_into(dst, overwrite, compute)


def product_holes(dst: Tile, rows: npt.NDArray[np.bool_], columns: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return the holes of a product: whole rows of dst and whole columns."""
    return (rows.reshape(-1, 1) | columns.reshape(1, -1)).reshape(dst.shape)


def _overwrites(mnemonic: str, dst: Tile, accumulate: Any, lanes: Lanes) -> bool:
    """Decide between overwriting and adding, from what wrote the destination."""
    if accumulate is not None and not accumulate:
        return True
    state = lanes.where_written(dst)
    if state == MATMUL or accumulate:
        return False
    if state == UNWRITTEN:
        if lanes.is_outside(dst):
            raise UnknownBehavior(
                f"{mnemonic}: accumulate=None onto PSUM that was allocated outside of a loop on the device: the manual "
                "does not say whether each trip overwrites it or the first one alone",
                numbers=(f"dst  {dst.describe()}",),
                advice="allocate it in the loop's body, or say accumulate=False or True",
            )
        return True
    _refuse_foreign(mnemonic, dst, lanes)
    # where no matmul wrote, adding to zero is overwriting: a pass sums from +0, so it never is -0
    lanes.clear(dst, np.not_equal(lanes.states(dst), MATMUL))
    return False


def _refuse_accumulate(mnemonic: str, dst: Tile, lanes: Lanes) -> None:
    states = lanes.states(dst)
    if (states < WRITTEN).any():
        raise Uninitialized(
            f"{mnemonic}: accumulate=True onto PSUM that nobody wrote",
            numbers=(f"dst  {dst.describe()}", f"unwritten: {bounding_box(states < WRITTEN)}"),
            advice="begin with accumulate=False, e.g. accumulate=(k > 0), or leave accumulate out",
        )
    if (states == WRITTEN).any() and lanes.chip.generation < 4:
        raise UnknownBehavior(
            f"{mnemonic}: accumulate=True onto PSUM that another instruction than a matmul wrote",
            numbers=(f"dst  {dst.describe()}", f"written otherwise: {bounding_box(states == WRITTEN)}"),
            advice="the manual calls this undefined before NeuronCore-v4: begin with accumulate=False",
        )


def _refuse_foreign(mnemonic: str, dst: Tile, lanes: Lanes) -> None:
    foreign = (lanes.states(dst) == WRITTEN) & (dst.array() != 0)
    if foreign.any():
        raise UnknownBehavior(
            f"{mnemonic}: accumulate=None onto values that another instruction than a matmul wrote",
            numbers=(f"dst  {dst.describe()}", f"written otherwise: {bounding_box(foreign)}"),
            advice="say accumulate=False to overwrite them, or use a new PSUM tile",
        )


def multiplies_to_transpose(chip: Chip) -> bool:
    """Return whether the array has no transpose mode, so that a transpose multiplies by ones and zeros, and adds."""
    return chip.generation < 3


def transpose_dtype_rule(dst: Tile, name: str, source: Tile, chip: Chip) -> Broken | None:
    """``dst`` has the source's dtype; a product, which the array makes in float32, may stay float32.

    The API text knows the first alone. The architecture guide says of arrays without a transpose mode that their
    output in PSUM is float32, and kernels that ran on such chips rely on that.
    """
    if multiplies_to_transpose(chip) and dst.dtype == dtypes.float32 and source.dtype.is_float:
        return None
    return same_dtype("dst", dst, name, source)


def transpose(lanes: Lanes, dst: Tile, source: Tile) -> None:
    """Write the transpose of ``source`` [K, M] into ``dst`` [M, K]: bits, or products where there is no mode for it.

    The manual says that such a transpose is ``nc_matmul`` with an identity. So NaN and Inf reach all of a row: times
    zero they are NaN, and an Inf stays alone where it is times one. And a sum that begins at +0 never ends at -0.
    """
    if not (multiplies_to_transpose(lanes.chip) and source.dtype.is_float):
        lanes.move(dst, turned, source)
        return
    values = lanes.f32(source)
    products = values + values.dtype.type(0)
    spoilt = ~np.isfinite(values)
    if spoilt.any():
        count = spoilt.sum(axis=0)
        kept = (count == 0) | ((count == 1) & np.isinf(values))
        products = np.where(kept, products, values.dtype.type(np.nan))
    lanes.put(dst, products.T)
