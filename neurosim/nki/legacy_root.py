"""``neuronxcc``: the package that the legacy dialect was part of. Only ``neuronxcc.nki`` is here."""

from __future__ import annotations

from neurosim.nki import legacy as nki

__all__ = ["nki"]
__path__: list[str] = []


def __getattr__(name: str) -> object:
    raise AttributeError(f"neuronxcc.{name} is part of the vendor's compiler; neurosim has neuronxcc.nki only")
