"""``NkiTensor.rearrange``: named axes, split, reordered and merged by the views that a tensor has.

Source: AWS Neuron SDK, ``nki/api/nki/language/__init__.py``, ``NkiTensor.rearrange``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from neurosim.errors import IllegalOperand
from neurosim.view import NkiTensor
from neurosim.views.reshaping import an_int

Groups = list[tuple[str, ...]]


def rearrange(tensor: NkiTensor, source: Any, target: Any, sizes: Any) -> NkiTensor:
    """Return ``tensor`` with the axes named in ``source`` in the order and groups of ``target``."""
    call = f"rearrange({source}, {target}) of {tensor.describe()}"
    before, after = _groups(source, call), _groups(target, call)
    names, wanted = _flat(before), _flat(after)
    if len(set(names)) != len(names) or sorted(names) != sorted(wanted):
        raise IllegalOperand(
            f"{call}: both patterns must hold the same names, each once",
            advice="write each name once on either side, as in (('p', 'f'), ('f', 'p'))",
        )
    if len(before) != len(tensor.shape):
        raise IllegalOperand(
            f"{call}: the pattern has {len(before)} axes and the tensor {len(tensor.shape)}",
            advice="name each axis; a tuple of names splits one",
        )
    if not isinstance(sizes, dict):
        raise IllegalOperand(f"{call}: fixed_sizes={sizes!r} is no dict", advice="give sizes by name, as in {'h': 4}")
    unknown = sorted(map(str, set(sizes) - set(names)))
    if unknown:
        raise IllegalOperand(
            f"{call}: fixed_sizes names {', '.join(unknown)}, which no pattern has",
            advice="give sizes of names in the patterns only",
        )
    sizes = {name: an_int(size) for name, size in sizes.items()}
    view = _split(tensor, before, sizes, call)
    view = view.permute([names.index(name) for name in wanted])
    for axis, group in enumerate(after):
        if not group:
            view = view.expand_dim(axis)
        elif len(group) > 1:
            view = view.flatten_dims(axis, axis + len(group) - 1)
    return view


def _groups(pattern: Any, call: str) -> Groups:
    entries = pattern if isinstance(pattern, (tuple, list)) else (None,)
    groups = [(entry,) if isinstance(entry, str) else entry for entry in entries]
    if not all(isinstance(group, (tuple, list)) and all(isinstance(name, str) for name in group) for group in groups):
        raise IllegalOperand(
            f"{call}: a pattern is a tuple of names and of tuples of names", advice="such as ('p', ('a', 'b'))"
        )
    return [tuple(group) for group in groups]


def _flat(groups: Groups) -> list[str]:
    return [name for group in groups for name in group]


def _split(tensor: NkiTensor, groups: Groups, sizes: dict[str, int], call: str) -> NkiTensor:
    """Give each name an axis of its own."""
    view, axis = tensor, 0
    for extent, group in zip(tensor.shape, groups, strict=True):
        parts = _parts(extent, group, sizes, call)
        if not group:
            view = view.squeeze_dim(axis)
        elif len(group) > 1:
            view = view.reshape_dim(axis, parts)
        axis += len(group)
    return view


def _parts(extent: int, group: Sequence[str], sizes: dict[str, int], call: str) -> list[int]:
    parts = [sizes.get(name, -1) for name in group]
    if len(group) == 1 and parts[0] in (-1, extent):
        return [extent]
    open_parts = parts.count(-1)
    known = math.prod(part for part in parts if part != -1)
    fits = known > 0 and (extent % known == 0 if open_parts == 1 else open_parts == 0 and known == extent)
    if not fits:
        raise IllegalOperand(
            f"{call}: {group} does not make an axis of {extent} elements",
            numbers=(f"fixed_sizes {sizes}",),
            advice="give the sizes of all but one name of a group, so that their product divides the axis",
        )
    return [extent // known if part == -1 else part for part in parts]
