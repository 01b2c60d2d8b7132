"""Mean and variance along the free axes.

Source: AWS Neuron SDK, ``nki/api/nki/isa/__init__.py``, ``bn_stats`` and ``bn_aggr``; their costs: the same file of
SDK 2.26.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from neurosim.chip import Chip
from neurosim.datapath.rules import Broken, elements_within, same_partitions
from neurosim.datapath.streams import stream
from neurosim.engines import Engine, Memory
from neurosim.execution.holes import rowwise_holes
from neurosim.execution.lanes import Lanes
from neurosim.instruction import Holes, In, Instruction, Out, Tile, emit
from neurosim.numerics import statistics
from neurosim.work import Lanewise, Work

FMAX: Final = 512
"""Elements per partition that ``bn_stats`` takes (``nl.tile_size.bn_stats_fmax``)."""
TUPLE: Final = 3
"""Elements of a (count, mean, variance · count) tuple."""


class BnStats(Instruction, mnemonic="bn_stats", engines=(Engine.vector,)):
    """dst [P, 6] = count, mean and variance · count of data's even elements, then of its odd ones.

    Elements are numbered along all free axes, from 0. Arithmetic is float32, in one pass (*assumed*: see
    ``neurosim.numerics.statistics``), and the results are rounded to dst's dtype.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    data: Tile = In(Memory.sbuf, Memory.psum)
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal partitions, six results, at most 512 elements."""
        yield same_partitions("dst", self.dst, "data", self.data)
        yield elements_within("dst", self.dst, 2 * TUPLE, 2 * TUPLE, "even and odd elements give three numbers each")
        advice = "take tiles of nl.tile_size.bn_stats_fmax, and put the results together with one bn_aggr"
        yield elements_within("data", self.data, 1, FMAX, advice)

    def execute(self, lanes: Lanes) -> None:
        """Widen, count, round."""
        lanes.put(self.dst, statistics.even_odd(lanes.f32(self.data)))

    def holes(self, holes: Holes) -> Holes:
        """A hole reaches mean and variance of its half; the counts are known."""
        rows = self.dst.partitions
        mask = np.zeros((rows, 2, TUPLE), np.bool_)
        data = holes["data"].reshape(rows, -1)
        for half in range(2):
            mask[:, half, 1:] = data[:, half::2].any(axis=1, keepdims=True)
        return {"dst": mask.reshape(self.dst.shape)}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in."""
        return (Lanewise("bn_stats", self.data.free_elements, (stream(self.data),), stream(self.dst)),)


class BnAggr(Instruction, mnemonic="bn_aggr", engines=(Engine.vector,)):
    """dst [P, 2] = mean and variance of everything that data's (count, mean, variance · count) tuples stand for.

    The variance is the population's (divided by the count). Arithmetic is float32, tuple after tuple (*assumed*: see
    ``neurosim.numerics.statistics``), and the results are rounded to dst's dtype.
    """

    dst: Tile = Out(Memory.sbuf, Memory.psum)
    data: Tile = In(Memory.sbuf, Memory.psum)
    name: str | None = None

    def rules(self, chip: Chip) -> Iterator[Broken | None]:
        """Equal partitions, two results, whole tuples."""
        yield same_partitions("dst", self.dst, "data", self.data)
        yield elements_within("dst", self.dst, 2, 2, "the results are a mean and a variance")
        if self.data.free_elements % TUPLE:
            yield Broken(
                f"data has {self.data.free_elements} elements per partition, which are no whole tuples of {TUPLE}",
                (f"data  {self.data.describe()}",),
                "pass what bn_stats wrote: (count, mean, variance * count), as often as you like",
            )

    def execute(self, lanes: Lanes) -> None:
        """Widen, merge, round."""
        lanes.put(self.dst, statistics.aggregate(lanes.f32(self.data)))

    def holes(self, holes: Holes) -> Holes:
        """A hole anywhere in a partition reaches both results."""
        return {"dst": rowwise_holes(self.dst, holes.values())}

    def work(self, engine: Engine, chip: Chip) -> tuple[Work, ...]:
        """One stream in, taken tuple after tuple."""
        return (Lanewise("bn_aggr", self.data.free_elements, (stream(self.data),), stream(self.dst)),)


bn_stats = emit(BnStats)
bn_aggr = emit(BnAggr)
