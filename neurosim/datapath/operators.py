"""Names of operators that instructions take as ``op=``: ``nl.add``, ``nl.exp`` and the like.

A name is data; what it computes stands in ``numerics.alu`` (Vector and GpSimd) and ``numerics.act`` (Scalar).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from neurosim.errors import Unsupported


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """One operator of ``nki.language``, to be passed as ``op=``. Two of one name are equal."""

    name: str

    def refuse(self) -> NoReturn:
        """Say that the operator is not a function on tiles yet."""
        raise Unsupported(
            f"nl.{self.name} as a function on tiles is not built yet",
            advice=f"pass op=nl.{self.name} to nisa.tensor_tensor, tensor_scalar or activation instead",
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Operator) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"nl.{self.name}"
