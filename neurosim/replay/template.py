"""What a kernel returned, without its tensors: places to put another run's tensors into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neurosim.dtypes import DType
from neurosim.launch.arguments import rebuilt
from neurosim.view import NkiTensor

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class NotPlain(Exception):
    """A kernel returns what cannot be made anew."""


@dataclass(frozen=True, slots=True)
class Place:
    """A view of a tensor in HBM: of which storage, from which byte, with what pattern."""

    storage: int
    offset_bytes: int
    dtype: DType
    shape: tuple[int, ...]
    steps: tuple[int, ...]


def template(returned: Any) -> Any:
    """Return what a kernel returned with a :class:`Place` for each tensor.

    Raises:
        NotPlain: it holds anything but tensors, numbers, text, and lists, tuples and dicts of these.
    """
    if type(returned) in _PLAIN:
        return returned
    if type(returned) is dict:
        return {key: template(value) for key, value in returned.items() if _is_key(key)}
    if type(returned) in (list, tuple) or (isinstance(returned, tuple) and hasattr(returned, "_fields")):
        return rebuilt(returned, [template(entry) for entry in returned])
    if type(returned) is NkiTensor and returned.buffer.is_hbm:
        storage = returned.allocation.storage.id
        return Place(storage, returned.offset_bytes, returned.dtype, returned.shape, returned.steps)
    raise NotPlain(f"the kernel returns a {type(returned).__name__}")


def _is_key(key: Any) -> bool:
    if type(key) not in _PLAIN:
        raise NotPlain(f"the kernel returns a dict with a {type(key).__name__} as a key")
    return True


def places(made: Any) -> list[Place]:
    """Return all places in a template."""
    if isinstance(made, Place):
        return [made]
    entries = made.values() if isinstance(made, dict) else made if isinstance(made, (list, tuple)) else ()
    return [place for entry in entries for place in places(entry)]


def filled(made: Any, fill: Callable[[Place], Any]) -> Any:
    """Return a template with what ``fill`` gives for each place, in new containers."""
    if isinstance(made, Place):
        return fill(made)
    if isinstance(made, dict):
        return {key: filled(value, fill) for key, value in made.items()}
    if isinstance(made, (list, tuple)):
        return rebuilt(made, [filled(entry, fill) for entry in made])
    return made
