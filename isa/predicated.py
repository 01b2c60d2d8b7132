"""Copies that a predicate tile decides element by element.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``tensor_copy_predicated``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from neurosim import dtypes
from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, dtype_in, not_both_in_psum, same_dtype, same_elements
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.memory import Mask
from neurosim.work import Lanewise, Work


class TensorCopyPredicated(Instruction, mnemonic="tensor_copy_predicated", engines=(Engine.vector,)):
    """Where ``predicate`` is not zero, dst = src; elsewhere dst keeps its value (and stays unwritten where it was).

    ``reverse_pred`` copies where the predicate is zero. A tile's bits move as they are. A number is rounded to
    float32, which immediates are, and then to dst's dtype (*assumed*).
    """

    chooses = True
    dst: Tile = Out(Memory.sbuf, Memory.psum, indirect=True)
    src: Tile | float = In(Memory.sbuf, Memory.psum, number=True)
    predicate: Tile = In(Memory.sbuf, Memory.psum, strict=True, indirect=True)
    reverse_pred: bool = False
    name: str | None = None

    def __post_init__(self) -> None:
        self._taken: Mask | None = None  # where dst is written: known once the predicate's values are

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal extents, equal dtypes of src and dst, an unsigned predicate, at most one input in PSUM."""
        yield same_elements("dst", self.dst, "predicate", self.predicate)
        yield dtype_in("predicate", self.predicate, (dtypes.uint8, dtypes.uint16, dtypes.uint32))
        if isinstance(self.src, Tile):
            yield same_elements("dst", self.dst, "src", self.src)
            yield same_dtype("dst", self.dst, "src", self.src)
            yield not_both_in_psum("src", self.src, "predicate", self.predicate)

    def execute(self, lanes: Lanes) -> None:
        """Merge bits."""
        taken = self._taken = lanes.truth(self.predicate, self.reverse_pred)
        lanes.move(
            self.dst,
            lambda source: source if source.shape == taken.shape else np.broadcast_to(source, taken.shape),
            self.src,
            where=taken,
        )

    def written(self) -> Holes:
        """Only elements that the predicate chose."""
        return {} if self._taken is None else {"dst": self._taken}

    def holes(self, holes: Holes) -> Holes:
        """Chosen elements depend on src."""
        mask = holes["src"].reshape(self.dst.partitions, -1)
        return {"dst": mask if self._taken is None else mask & self._taken}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """The predicate's stream, and the source's unless it is a number; one out."""
        tiles = (self.src, self.predicate) if isinstance(self.src, Tile) else (self.predicate,)
        inputs = tuple(stream(tile) for tile in tiles)
        return (Lanewise("copy_predicated", self.dst.free_elements, inputs, stream(self.dst)),)


tensor_copy_predicated = emit(TensorCopyPredicated)
