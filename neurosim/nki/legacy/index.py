"""Index tensors: ``nl.arange`` and ``nl.mgrid`` as affine expressions, and what comparisons of them select.

An index tensor has a shape, as a NumPy array has, and one step per axis: its element at (i, j, …) is
``offset + Σ step · i``. Loop variables are plain ints, so that sums, differences and multiples of index tensors are
index tensors again. Axes are told apart by position alone: two ``nl.arange(128)[:, None]`` are the same axis.

Source: NKI 0.1 documentation, ``nki.language.arange``, ``nki.language.mgrid``, "NKI API Masking".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from neurosim.errors import IllegalOperand, Unsupported

_COMPARE: dict[str, Any] = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}

_OPPOSITE = {
    "equal": "not_equal",
    "not_equal": "equal",
    "less": "greater_equal",
    "less_equal": "greater",
    "greater": "less_equal",
    "greater_equal": "less",
}

Box = tuple[tuple[int, int], ...]
"""First and last-plus-one index per axis."""


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that shapes of index tensors are broadcast to.

    Raises:
        IllegalOperand: extents that are neither equal nor 1.
    """
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise IllegalOperand(
            f"index tensors of shapes {' and '.join(str(list(shape)) for shape in shapes)} do not go together",
            advice="extents are equal or 1, counted from the last axis, as of nl.arange(4)[:, None] and nl.arange(8)",
        ) from None


def is_int(value: Any) -> bool:
    """Return whether a value is an integer; bool is none."""
    if isinstance(value, int):
        return type(value) is not bool
    return isinstance(value, Integral) and not isinstance(value, np.bool_)


def _refused(sign: str) -> Any:
    return lambda self, other=None: self._not_affine(sign, other)


class Affine:
    """An affine expression of indices.

    Attributes:
        shape: extent per axis, as of a NumPy array.
        steps: what one step along an axis adds; 0 where the extent is 1.
        offset: the value at the first index.
    """

    __slots__ = ("offset", "shape", "steps")
    __array_ufunc__ = None  # NumPy scalars on the left leave the operation to us

    def __init__(self, shape: tuple[int, ...], steps: tuple[int, ...], offset: int) -> None:
        self.shape, self.offset = shape, offset
        if 1 in shape:
            steps = tuple([step if extent > 1 else 0 for step, extent in zip(steps, shape, strict=True)])
        self.steps = steps

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def values(self) -> npt.NDArray[np.int64]:
        """Return all values as an array."""
        total = np.full(self.shape, self.offset, np.int64)
        for axis, (step, extent) in enumerate(zip(self.steps, self.shape, strict=True)):
            along = [1] * len(self.shape)
            along[axis] = extent
            total += (np.arange(extent, dtype=np.int64) * step).reshape(along)
        return total

    def aligned(self, ndim: int) -> Affine:
        """Return this with axes of extent 1 in front, as broadcasting adds them."""
        missing = ndim - len(self.shape)
        return Affine((1,) * missing + self.shape, (0,) * missing + self.steps, self.offset)

    def __getitem__(self, key: Any) -> Affine:
        if type(key) is tuple and len(self.shape) == 1 and key.count(None) == len(key) - 1:
            (place,) = [at for at, entry in enumerate(key) if entry is not None]
            if type(key[place]) is slice and key[place] == slice(None):  # nl.arange(128)[:, None] and its like
                before, after = (1,) * place, (1,) * (len(key) - 1 - place)
                shape = before + self.shape + after
                return _affine(shape, (0,) * place + self.steps + (0,) * len(after), self.offset)
        keys = list(key) if isinstance(key, tuple) else [key]
        used = sum(entry is not None and entry is not Ellipsis for entry in keys)
        if Ellipsis in keys:
            place = keys.index(Ellipsis)
            keys[place : place + 1] = [slice(None)] * (self.ndim - used)
        else:
            keys += [slice(None)] * (self.ndim - used)
        extents: list[int] = []
        steps: list[int] = []
        offset, axis = self.offset, 0
        for entry in keys:
            if entry is None:
                extents.append(1)
                steps.append(0)
                continue
            if axis >= self.ndim or entry is Ellipsis:
                raise IllegalOperand(
                    f"{len(keys)} indices of an index tensor of shape {self.shape}",
                    advice="give at most one index per axis, without '...'",
                )
            extent, step = self.shape[axis], self.steps[axis]
            axis += 1
            if isinstance(entry, slice):
                if not all(bound is None or is_int(bound) for bound in (entry.start, entry.stop, entry.step)):
                    raise IllegalOperand(
                        f"slice {entry} of an index tensor is not made of ints",
                        advice="write bounds and steps as Python ints",
                    )
                start, stop, stride = entry.indices(extent) if entry.step != 0 else (0, 0, 1)
                extents.append(len(range(start, stop, stride)))
                if not extents[-1]:
                    raise IllegalOperand(
                        f"slice {entry} of an index tensor of shape {self.shape} selects nothing",
                        advice="check its bounds; it must select an element",
                    )
                steps.append(step * stride)
                offset += step * start
            elif is_int(entry) and -extent <= entry < extent:
                offset += step * (int(entry) % extent)
            else:
                raise IllegalOperand(
                    f"index {entry!r} of an index tensor of shape {self.shape}",
                    advice="index with an int within the axis, a slice or None",
                )
        return Affine(tuple(extents), tuple(steps), offset)

    # -- arithmetic -----------------------------------------------------------------------------------------------

    def _plus(self, other: Any, sign: int, own_sign: int = 1) -> Any:
        if is_int(other):
            steps = self.steps if own_sign > 0 else tuple([-step for step in self.steps])
            return _affine(self.shape, steps, own_sign * self.offset + sign * int(other))
        if not isinstance(other, Affine):
            if other is None or isinstance(other, (float, str, list, tuple, np.ndarray, np.generic)):
                return self._not_affine("+" if sign > 0 else "-", other)
            return NotImplemented
        shape, steps = _summed(self.shape, self.steps, own_sign, other.shape, other.steps, sign)
        return _affine(shape, steps, own_sign * self.offset + sign * other.offset)

    def __add__(self, other: Any) -> Any:
        return self._plus(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._plus(other, -1)

    def __rsub__(self, other: Any) -> Any:
        return self._plus(other, 1, -1)

    def __neg__(self) -> Affine:
        return Affine(self.shape, tuple(-step for step in self.steps), -self.offset)

    def __pos__(self) -> Affine:
        return self

    def __mul__(self, other: Any) -> Any:
        if not is_int(other):
            return self._not_affine("*", other)
        factor = int(other)
        return _affine(self.shape, tuple([factor * step for step in self.steps]), factor * self.offset)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Affine:
        """Divide where the result is affine: every value a multiple of ``other``, or all in one block of it."""
        if is_int(other) and int(other) > 0:
            size = int(other)
            if all(step % size == 0 for step in self.steps):
                return Affine(self.shape, tuple(step // size for step in self.steps), self.offset // size)
            low, high = self.bounds()
            if low // size == high // size:
                return Affine(self.shape, (0,) * self.ndim, low // size)
        return self._not_affine("//", other)

    def __mod__(self, other: Any) -> Affine:
        if is_int(other) and int(other) > 0:
            size = int(other)
            if all(step % size == 0 for step in self.steps):
                return Affine(self.shape, (0,) * self.ndim, self.offset % size)
            low, high = self.bounds()
            if low // size == high // size:
                return self + -(low // size * size)  # type: ignore[no-any-return]
        return self._not_affine("%", other)

    def _not_affine(self, sign: str, other: Any) -> Affine:
        raise Unsupported(
            f"{self!r} {sign} {other!r} is not an affine expression",
            advice="write it as a sum of multiples of nl.arange and loop variables, with one axis more if need be",
        )

    __truediv__, __pow__, __matmul__ = _refused("/"), _refused("**"), _refused("@")
    __rtruediv__, __rfloordiv__, __rmod__, __rpow__ = _refused("/"), _refused("//"), _refused("%"), _refused("**")
    __lshift__, __rshift__, __and__, __or__ = _refused("<<"), _refused(">>"), _refused("&"), _refused("|")
    __xor__, __invert__, __abs__ = _refused("^"), _refused("~"), _refused("abs")

    def __index__(self) -> int:
        raise IllegalOperand(f"{self!r} is no number", advice="index tensors stand in brackets and masks only")

    __int__ = __float__ = __index__

    def bounds(self) -> tuple[int, int]:
        """Return the least and the greatest value."""
        spans = [step * (extent - 1) for step, extent in zip(self.steps, self.shape, strict=True)]
        return self.offset + sum(min(span, 0) for span in spans), self.offset + sum(max(span, 0) for span in spans)

    # -- comparisons ----------------------------------------------------------------------------------------------

    def _compare(self, name: str, other: Any) -> Any:
        if isinstance(other, (float, np.floating)) and np.isfinite(other):
            whole = int(np.floor(other))
            if whole != other:  # no index is equal to it: i < 2.5 says i <= 2
                if "equal" in (name, name.removeprefix("not_")):
                    return name == "not_equal"
                name = "less_equal" if name.startswith("less") else "greater"
            other = whole
        if is_int(other) or isinstance(other, Affine):
            return Predicate(((self - other, name),))
        if name in ("equal", "not_equal") and not isinstance(other, np.ndarray):
            return NotImplemented
        raise IllegalOperand(f"{self!r} is compared with {other!r}", advice="compare index tensors with ints")

    def __lt__(self, other: Any) -> Any:
        return self._compare("less", other)

    def __le__(self, other: Any) -> Any:
        return self._compare("less_equal", other)

    def __gt__(self, other: Any) -> Any:
        return self._compare("greater", other)

    def __ge__(self, other: Any) -> Any:
        return self._compare("greater_equal", other)

    def __eq__(self, other: object) -> Any:
        return self._compare("equal", other)

    def __ne__(self, other: object) -> Any:
        return self._compare("not_equal", other)

    def __hash__(self) -> int:
        return hash((self.shape, self.steps, self.offset))

    def __bool__(self) -> bool:
        raise IllegalOperand(f"{self!r} has no truth value", advice="pass it as mask=, or use nl.where")

    def __repr__(self) -> str:
        return f"index tensor {list(self.shape)} from {self.offset} in steps {list(self.steps)}"


def _affine(shape: tuple[int, ...], steps: tuple[int, ...], offset: int) -> Affine:
    """Return an index tensor whose steps are 0 where the extent is 1 already."""
    made = object.__new__(Affine)
    made.shape, made.steps, made.offset = shape, steps, offset
    return made


@lru_cache(maxsize=2**12)
def _summed(
    one: tuple[int, ...], steps: tuple[int, ...], sign: int, two: tuple[int, ...], others: tuple[int, ...], second: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape and the steps of a sum of two index tensors, each with a sign."""
    ndim = max(len(one), len(two))
    left, right = Affine(one, steps, 0).aligned(ndim), Affine(two, others, 0).aligned(ndim)
    total = tuple(sign * a + second * b for a, b in zip(left.steps, right.steps, strict=True))
    return broadcast(left.shape, right.shape), total


class Predicate:
    """Comparisons of index tensors with 0, all of which must hold: what ``mask=`` takes.

    Attributes:
        terms: pairs (index tensor, name of the comparison of it with 0).
    """

    __slots__ = ("terms",)

    def __init__(self, terms: tuple[tuple[Affine, str], ...]) -> None:
        self.terms = terms

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, by broadcasting."""
        return broadcast(*(term.shape for term, _ in self.terms))

    def __and__(self, other: Any) -> Any:
        if isinstance(other, Predicate):
            return Predicate(self.terms + other.terms)
        if isinstance(other, (bool, np.bool_)):
            return self if other else False
        raise IllegalOperand(f"'&' of a mask and {other!r}", advice="join comparisons of index tensors")

    def __invert__(self) -> Predicate:
        if len(self.terms) != 1:
            raise Unsupported("'~' of several comparisons", advice="turn each of them round, and use nl.where")
        ((term, name),) = self.terms
        return Predicate(((term, _OPPOSITE[name]),))

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        if isinstance(other, (bool, np.bool_)):
            return True if other else self
        raise Unsupported("'|' of two masks", advice="masks are joined with & only; use two instructions, or nl.where")

    __ror__ = __or__

    def __bool__(self) -> bool:
        raise IllegalOperand("a mask of index tensors has no truth value", advice="pass it as mask=, and join with &")

    def boxes(self, shape: tuple[int, ...]) -> list[Box]:
        """Return disjoint boxes of a tile of ``shape`` that hold exactly what is selected; one where it is a box."""
        limits = [(0, extent) for extent in shape]
        slanted: list[tuple[Affine, str]] = []
        for expression, name in self.terms:
            term = _placed(expression, shape)
            if any(
                step and own not in (1, extent) for step, own, extent in zip(term.steps, term.shape, shape, strict=True)
            ):
                raise IllegalOperand(
                    f"a mask of shape {list(expression.shape)} for a tile of shape {list(shape)}",
                    advice="compare the index tensors that the tile is indexed with",
                )
            axes = [axis for axis, step in enumerate(term.steps) if step]
            if len(axes) > 1 or (axes and name == "not_equal"):
                slanted.append((term, name))
                continue
            if not axes:
                if not _COMPARE[name](term.offset, 0):
                    return []
                continue
            (axis,) = axes
            low, high = _interval(term.steps[axis], term.offset, name, shape[axis])
            limits[axis] = (max(limits[axis][0], low), min(limits[axis][1], high))
        if any(low >= high for low, high in limits):
            return []
        if not slanted:
            return [tuple(limits)]
        chosen = np.ones([high - low for low, high in limits], np.bool_)
        cut = tuple(slice(low, high) for low, high in limits)
        for term, name in slanted:
            extents = tuple(extent if step else 1 for extent, step in zip(shape, term.steps, strict=True))
            hit = _COMPARE[name](Affine(extents, term.steps, term.offset).values(), 0)
            chosen &= np.broadcast_to(hit, shape)[cut]
        return [
            tuple((low + begin, low + end) for (low, _), (begin, end) in zip(limits, box, strict=True))
            for box in _split(chosen)
        ]

    def __repr__(self) -> str:
        return " & ".join(f"({term!r} {name} 0)" for term, name in self.terms)


def _placed(term: Affine, shape: tuple[int, ...]) -> Affine:
    """Return a term with the axes of a tile: the same number, else those at the end, else those at the front."""
    ndim = len(shape)
    if term.ndim > ndim:
        extra = term.ndim - ndim
        if any(term.steps[:extra]):
            if any(term.steps[ndim:]):
                raise IllegalOperand(
                    f"a mask with {term.ndim} axes for a tile of shape {shape}",
                    advice="make the mask of the index tensors that index the tile",
                )
            return Affine(term.shape[:ndim], term.steps[:ndim], term.offset)
        return Affine(term.shape[extra:], term.steps[extra:], term.offset)
    missing = ndim - term.ndim
    if missing and term.ndim and term.shape[0] == shape[0] > 1 and not any(term.steps[1:]):
        return Affine(term.shape + (1,) * missing, term.steps + (0,) * missing, term.offset)
    return term.aligned(ndim)


def _interval(step: int, offset: int, name: str, extent: int) -> tuple[int, int]:
    """Return where ``offset + step · i`` compares with 0 as ``name`` says, among 0 ≤ i < extent."""
    if name == "equal":
        position, rest = divmod(-offset, step)
        return (position, position + 1) if rest == 0 and 0 <= position < extent else (0, 0)
    if name in ("greater", "greater_equal"):
        step, offset = -step, -offset
    bound = -offset - (name in ("less", "greater"))  # step · i <= bound
    if step > 0:
        return 0, min(extent, bound // step + 1)
    return max(0, -(bound // -step)), extent


def _split(mask: npt.NDArray[np.bool_]) -> Iterator[Box]:
    """Yield disjoint boxes that hold the True entries: runs of equal slices along each axis."""
    if mask.ndim == 0:
        if mask:
            yield ()
        return
    begin = 0
    for end in range(1, len(mask) + 1):
        if end < len(mask) and (mask[end] == mask[begin]).all():
            continue
        for rest in _split(mask[begin]):
            yield ((begin, end), *rest)
        begin = end


class _Grid(tuple[Affine, ...]):
    """What ``nl.mgrid[…]`` gives: one index tensor per axis, with names ``p``, ``x``, ``y``, ``z`` and ``w``."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Affine:
        place = "pxyzw".find(name)
        if len(name) != 1 or not 0 <= place < len(self):
            raise AttributeError(f"an nl.mgrid of {len(self)} axes has no {name!r}")
        return self[place]


class _MeshGrid:
    """``nl.mgrid``: index tensors of a dense grid, each of the full rank."""

    def __getitem__(self, key: Any) -> _Grid:
        keys = key if isinstance(key, tuple) else (key,)
        axes = []
        for axis, entry in enumerate(keys):
            if not isinstance(entry, slice) or entry.stop is None:
                raise IllegalOperand(f"nl.mgrid[{entry!r}]", advice="give slices with an end: nl.mgrid[0:128, 0:512]")
            along = arange(
                0 if entry.start is None else entry.start, entry.stop, 1 if entry.step is None else entry.step
            )
            place: list[Any] = [None] * len(keys)
            place[axis] = slice(None)
            axes.append(along[tuple(place)])
        return _Grid(axes)


mgrid = _MeshGrid()


def arange(*args: Any) -> Affine:
    """Return an index tensor of one axis: ``arange(stop)``, ``arange(start, stop)``, ``arange(start, stop, step)``.

    Raises:
        IllegalOperand: bounds that are no ints, or no element.
    """
    if not 1 <= len(args) <= 3 or not all(is_int(value) for value in args):
        raise IllegalOperand(f"nl.arange{args}", advice="give one to three ints")
    numbers = [int(value) for value in args]
    start, stop, step = (0, numbers[0], 1) if len(numbers) == 1 else (*numbers, 1)[:3]
    count = len(range(start, stop, step)) if step else 0
    if count < 1:
        raise IllegalOperand(
            f"nl.arange{args} has no elements", advice="give a stop behind the start, and a step other than 0"
        )
    return Affine((count,), (step,), start)


class Boxes:
    """What of a result another mask let be written, as the mask of what is made of it.

    Attributes:
        boxes: of the result.
    """

    __slots__ = ("boxes",)

    def __init__(self, boxes: list[Box]) -> None:
        self.boxes = boxes


def extents_of(shape: Any, call: str) -> tuple[int, ...]:
    """Return a shape as ints.

    Raises:
        IllegalOperand: it is no sequence of ints.
    """
    if not isinstance(shape, (tuple, list)) or not all(is_int(extent) for extent in shape):
        raise IllegalOperand(f"{call}: shape {shape!r} is not made of ints", advice="give a tuple, as in (128, 512)")
    return tuple(int(extent) for extent in shape)


@lru_cache(maxsize=2**12)
def whole_box(shape: tuple[int, ...]) -> Box:
    """Return the box of everything."""
    return tuple((0, extent) for extent in shape)


def boxes_of(mask: Any, shape: tuple[int, ...], call: str) -> list[Box]:
    """Return what of a tile of ``shape`` a ``mask=`` selects, as boxes.

    Raises:
        IllegalOperand: a mask that is no comparison of index tensors.
    """
    if mask is None or (isinstance(mask, (bool, np.bool_)) and mask):
        return [whole_box(shape)]
    if isinstance(mask, (bool, np.bool_)):
        return []
    if isinstance(mask, Predicate):
        return mask.boxes(shape)
    if isinstance(mask, Boxes):
        return mask.boxes
    raise IllegalOperand(
        f"{call}: mask={mask!r} is no comparison of index tensors",
        advice="compare nl.arange expressions and loop variables; for values of tiles use nl.where",
    )


def one_box(mask: Any, shape: tuple[int, ...], call: str) -> Box | None:
    """Return what of a tile of ``shape`` a mask selects, as one box; None for nothing.

    Raises:
        IllegalOperand: a mask that is no box.
    """
    boxes = boxes_of(mask, shape, call)
    if len(boxes) > 1:
        raise IllegalOperand(f"{call}: a mask that is no box", advice="mask one axis at a time")
    return boxes[0] if boxes else None


def box_shape(box: Box) -> tuple[int, ...]:
    """Return the extents of a box."""
    return tuple(high - low for low, high in box)
