"""Which bytes an operand touches, and whether two touch the same ones: exact, without enumerating bytes.

A :class:`Region` is a set of partitions times a set of bytes. The bytes are a sum of arithmetic progressions
plus a contiguous run, so two regions meet exactly when one point lies in the sum of both (the difference set
of two progressions is a progression). Neither answer depends on the size of the tensors.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations_with_replacement, product
from math import gcd
from typing import Final, NamedTuple

from neurosim.program import Pattern

Axes = tuple[tuple[int, int], ...]
"""(step in bytes, count) per progression; steps positive and ascending, counts at least 2."""

MEETS: Final = 1
"""Flag of :func:`relation`: the two regions have a byte in common."""
COVERS: Final = 2
"""Flag of :func:`relation`: every byte of the second region lies in the first."""
COVERED: Final = 4
"""Flag of :func:`relation`: every byte of the first region lies in the second."""

_FAILED_LIMIT: Final = 1 << 16
_SAMPLE: Final = 64
_MOST_GROUPS: Final = 12


class Region(NamedTuple):
    """The bytes of an operand, relative to its first byte.

    Attributes:
        mask: one bit per partition; 1 where the memory has no partitions.
        axes: progressions of byte offsets, none of which the run or a neighbour absorbs.
        run: contiguous bytes at each point of the progressions.
    """

    mask: int
    axes: Axes
    run: int

    @property
    def span(self) -> int:
        """Bytes from the first byte of a partition to one past the last."""
        return _span(self.axes, self.run)


def region_of(pattern: Pattern) -> tuple[Region, int] | None:
    """Return the region of a pattern and its first byte relative to the slot's offset; None without elements.

    The first byte is before the slot's offset where a step is negative.
    """
    size = pattern.dtype.size_bytes
    mask, low = 1 << pattern.start_partition, 0
    axes: list[tuple[int, int]] = []
    for axis, (extent, step) in enumerate(zip(pattern.shape, pattern.steps, strict=True)):
        if extent == 0:
            return None
        if axis == pattern.partition_axis:
            mask = 0
            for index in range(extent if step else 1):
                mask |= 1 << (pattern.start_partition + index * step)
            continue
        stride = step * size
        if stride < 0:
            low += stride * (extent - 1)
        axes.append((abs(stride), extent))
    return Region(mask, *_normalise(axes, size)), low


def relation(first: Region, second: Region, offset: int) -> int:
    """Return how two regions of one storage relate: an or of MEETS, COVERS and COVERED, 0 when disjoint.

    Args:
        first, second: the regions.
        offset: first byte of ``second`` minus first byte of ``first``.

    MEETS is exact. COVERS and COVERED are never wrong, but may be missing where progressions overlap oddly.
    """
    if offset == 0 and first == second:
        return MEETS | COVERS | COVERED
    if not first.mask & second.mask or not _bytes_meet(first, second, offset):
        return 0
    flags = MEETS
    if not second.mask & ~first.mask and _bytes_cover(first, second, offset):
        flags |= COVERS
    if not first.mask & ~second.mask and _bytes_cover(second, first, -offset):
        flags |= COVERED
    return flags


def _span(axes: Axes, run: int) -> int:
    return run + sum(step * (count - 1) for step, count in axes)


def _normalise(axes: Iterable[tuple[int, int]], run: int) -> tuple[Axes, int]:
    """Fold progressions into the run, or into each other, wherever that leaves no gap."""
    kept: list[tuple[int, int]] = []
    for step, count in sorted(axes):
        if count == 1 or step == 0:
            continue
        if not kept and step <= run:
            run += step * (count - 1)
        elif kept and step % kept[-1][0] == 0 and step <= kept[-1][0] * kept[-1][1]:
            inner, inner_count = kept[-1]
            kept[-1] = (inner, inner_count + step // inner * (count - 1))
        else:
            kept.append((step, count))
    return tuple(kept), run


def _bytes_meet(first: Region, second: Region, offset: int) -> bool:
    """Tell whether the byte sets have a common element.

    With x and y the points of the progressions, the runs at x and offset + y overlap when x - y lies in
    [offset - first.run + 1, offset + second.run - 1]. Mirroring y turns the difference into a sum, and the
    window into a run: the question becomes whether one point lies in one region.
    """
    point = offset + second.run - 1 + _span(second.axes, 0)
    axes, run = _normalise(first.axes + second.axes, first.run + second.run - 1)
    if point < 0 or point >= _span(axes, run):
        return False
    if not axes:
        return True
    if len(axes) == 1:
        step, count = axes[0]  # much the commonest: both have the same row pitch
        return point - min(point // step, count - 1) * step < run
    return _search(axes, run, point)


def _search(axes: Axes, run: int, point: int) -> bool:
    """Search the counters, outermost first: few candidates per level unless progressions overlap."""
    spans, divisors = [run], [0]
    for step, count in axes:
        spans.append(spans[-1] + step * (count - 1))
        divisors.append(gcd(divisors[-1], step))
    failed: set[tuple[int, int]] = set()

    def reaches(level: int, rest: int) -> bool:
        if rest % divisors[level] >= run or (level, rest) in failed:
            return False
        step, count = axes[level - 1]
        lowest = max(0, -((spans[level - 1] - 1 - rest) // step))
        highest = min(count - 1, rest // step)
        if level == 1:
            return lowest <= highest
        if any(reaches(level - 1, rest - index * step) for index in range(lowest, highest + 1)):
            return True
        if len(failed) < _FAILED_LIMIT:
            failed.add((level, rest))
        return False

    return reaches(len(axes), point)


def _bytes_cover(outer: Region, inner: Region, offset: int) -> bool:
    """Tell whether a region's bytes include all of another's; False also where that would be hard to tell."""
    axes, inner_axes = outer.axes, inner.axes
    while axes:
        step, count = axes[-1]
        axes = axes[:-1]
        if _span(axes, outer.run) > step:
            return False  # rows that overlap each other
        row, offset = divmod(offset, step)
        within: list[tuple[int, int]] = []
        last = row
        for inner_step, inner_count in inner_axes:
            if inner_step % step == 0:
                last += inner_step // step * (inner_count - 1)
            else:
                within.append((inner_step, inner_count))
        inner_axes = tuple(within)
        if row < 0 or last >= count:
            return False
    return offset >= 0 and offset + _span(inner_axes, inner.run) <= outer.run


class Box(NamedTuple):
    """A bounding box, ends exclusive: partitions, rows of ``pitch`` bytes, bytes within the row."""

    partition: int
    partition_end: int
    row: int
    row_end: int
    column: int
    column_end: int


def box_of(region: Region, offset: int, pitch: int) -> Box:
    """Return the bounding box of a region at a byte offset; with a pitch of 0 the storage is one row."""
    first = (region.mask & -region.mask).bit_length() - 1
    last = region.mask.bit_length()
    if not pitch:
        return Box(first, last, 0, 1, offset, offset + region.span)
    row, column = divmod(offset, pitch)
    rows, width = 1, region.run
    for step, count in region.axes:
        if step % pitch == 0:
            rows += step // pitch * (count - 1)
        else:
            width += step * (count - 1)
    if column + width > pitch:
        return Box(first, last, row, row + rows + (column + width - 1) // pitch, 0, pitch)
    return Box(first, last, row, row + rows, column, column + width)


def choose_pitch(places: Sequence[tuple[Region, int]]) -> int:
    """Return the row pitch in bytes that bounds regions most tightly: one of their own steps, or 0 for none.

    Column blocks of a row-major tensor have the row as a step, heads of a [sequence, head, depth] tensor the
    stride of the sequence.
    """
    sample = places[:: max(1, len(places) // _SAMPLE)]
    steps = Counter(step for region, _ in sample for step, _ in region.axes)

    def area(pitch: int) -> int:
        boxes = (box_of(region, offset, pitch) for region, offset in sample)
        return sum((box.row_end - box.row) * (box.column_end - box.column) for box in boxes)

    return min([0, *(step for step, _ in steps.most_common(8))], key=area)


def candidates(places: Sequence[tuple[Region, int]]) -> Iterator[tuple[int, int]]:
    """Yield each pair (i, j), i ≠ j, whose bounding boxes overlap, once; about linear in places and pairs.

    Boxes are grouped by size (powers of two per dimension); two groups meet on a grid whose cells are as
    large as the larger boxes, so that a box touches at most two cells per dimension whatever its size.
    """
    pitch = choose_pitch(places)
    boxes = [box_of(region, offset, pitch) for region, offset in places]
    groups = _size_groups(boxes)
    for (level, members), (other_level, others) in combinations_with_replacement(groups.items(), 2):
        joint = tuple(max(one, other) for one, other in zip(level, other_level, strict=True))
        yield from _meeting(boxes, members, others, joint)


def _size_groups(boxes: Sequence[Box]) -> dict[tuple[int, ...], list[int]]:
    """Group boxes by the power of two that holds each side, coarser until the groups are few."""
    coarseness = 1
    while True:
        groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for index, box in enumerate(boxes):
            sides = (box[1] - box[0], box[3] - box[2], box[5] - box[4])
            level = tuple(-(-(side - 1).bit_length() // coarseness) * coarseness for side in sides)
            groups[level].append(index)
        if len(groups) <= _MOST_GROUPS or coarseness >= 64:
            return groups
        coarseness *= 2


def _cells(box: Box, level: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the grid cells that a box touches."""
    return product(
        range(box[0] >> level[0], (box[1] - 1 >> level[0]) + 1),
        range(box[2] >> level[1], (box[3] - 1 >> level[1]) + 1),
        range(box[4] >> level[2], (box[5] - 1 >> level[2]) + 1),
    )


def _meeting(
    boxes: Sequence[Box], members: list[int], others: list[int], level: tuple[int, ...]
) -> Iterator[tuple[int, int]]:
    """Yield the pairs of two groups (or of one with itself) that overlap."""
    same = members is others
    if len(members) > len(others):
        members, others = others, members
    grid: dict[tuple[int, ...], list[int]] = defaultdict(list)
    if not same:
        for i in members:
            for cell in _cells(boxes[i], level):
                grid[cell].append(i)
    for j in others:
        p0, p1, r0, r1, c0, c1 = boxes[j]
        for cell in _cells(boxes[j], level):
            for i in grid.get(cell, ()):
                q0, q1, s0, s1, d0, d1 = boxes[i]
                if c0 >= d1 or d0 >= c1 or r0 >= s1 or s0 >= r1 or p0 >= q1 or q0 >= p1:
                    continue
                # A pair may share several cells: it counts in the one that holds the overlap's first corner.
                corner = (max(p0, q0) >> level[0], max(r0, s0) >> level[1], max(c0, d0) >> level[2])
                if corner == cell:
                    yield i, j
            if same:
                grid[cell].append(j)
