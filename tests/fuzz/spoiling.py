"""Legal calls made illegal, in one way each; and calls of anything with anything."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import nki.isa as nisa
import nki.language as nl
import numpy as np
import twin as t
from programs import Call, Programs, Tensor, View

Spoil = Callable[[Programs, Call], bool]
"""Spoils a call in place; returns whether it could."""

NOT_TILES = (None, "tile", 3.5, [1, 2], np.zeros((2, 2), np.float32), nl.float32, {"a": 1})
NOT_OPERATORS = (None, "add", 3, nl.float32, np.add)


OUTPUTS = ("dst", "reduce_res")
"""Operands that are written; all but ``dst`` may be left out."""


def _views(call: Call, *, outputs: bool = True) -> list[str]:
    return [name for name, value in call.given.items() if isinstance(value, View) and (outputs or name not in OUTPUTS)]


def _replace(programs: Programs, call: Call, names: list[str], tile: Callable[[View], Any]) -> bool:
    if not names:
        return False
    name = programs.random.choice(names)
    view = call.given[name]
    call.given[name] = View(view.tensor, tile(view), view.at)
    return True


def one_partition_less(programs: Programs, call: Call) -> bool:
    """An input with a partition less than the others."""
    if call.instruction == "tensor_partition_reduce":
        return False  # reduces however many there are
    names = [name for name in _views(call, outputs=False) if call.given[name].at.shape[0] > 1]
    return _replace(programs, call, names, lambda view: view.tile[:-1])


def partition_one(programs: Programs, call: Call) -> bool:
    """A tile that starts at partition 1, which no engine reaches."""
    names = [
        name for name in _views(call) if call.given[name].at.shape[0] < 128 and call.given[name].tensor.memory != "hbm"
    ]
    if call.instruction == "dma_copy":
        return False  # DMA reaches every partition

    def shifted(view: View) -> Any:
        shape, tensor = view.at.shape, view.tensor
        wide = programs.filled((shape[0] + 1, *shape[1:]), tensor.dtype, tensor.memory).tensor.tile
        return wide[(slice(1, shape[0] + 1), *(slice(extent) for extent in shape[1:]))]

    return _replace(programs, call, names, shifted)


def wrong_memory(programs: Programs, call: Call) -> bool:
    """A tile in a memory that the engine does not reach."""
    memory = "psum" if call.instruction == "dma_copy" else "hbm"
    return _replace(
        programs, call, _views(call), lambda view: programs.filled(view.at.shape, view.tensor.dtype, memory).tile
    )


def unwritten(programs: Programs, call: Call) -> bool:
    """An input that nobody has written."""

    def fresh(view: View) -> Any:
        return programs.new(view.at.shape, view.tensor.dtype, view.tensor.memory).tile

    return _replace(programs, call, _views(call, outputs=False), fresh)


def out_of_bounds(programs: Programs, call: Call) -> bool:
    """A slice that ends behind its tensor. The view itself raises."""
    name = programs.random.choice(_views(call))
    tensor: Tensor = call.given[name].tensor
    call.given[name] = Late(lambda: tensor.tile[:, 1 : tensor.shape[1] + 1])
    return True


def too_many_partitions(programs: Programs, call: Call) -> bool:
    """A tile of 129 partitions."""
    view = call.given["dst"]
    if view.tensor.memory == "hbm":
        return False
    call.given["dst"] = Late(
        lambda: programs.new((129, *view.at.shape[1:]), view.tensor.dtype, view.tensor.memory).tile
    )
    return True


def no_tile(programs: Programs, call: Call) -> bool:
    """Something else where a tile must be."""
    # operands, biases and what a predicate chooses may be numbers, and no reduction need be read out
    may_be_numbers = ("operand", "bias") if call.instruction != "tensor_copy_predicated" else ("src",)
    names = [name for name in _views(call) if not name.startswith((*may_be_numbers, "reduce_res"))]
    call.given[programs.random.choice(names)] = programs.random.choice(NOT_TILES)
    return True


def no_operator(programs: Programs, call: Call) -> bool:
    """Something else where an operator must be."""
    names = [name for name in call.given if name in ("op", "op0", "cmp_op")]
    if not names:
        return False
    call.given[names[0]] = programs.random.choice(NOT_OPERATORS)
    return True


def unknown_keyword(programs: Programs, call: Call) -> bool:
    """A parameter that the instruction does not have."""
    call.given[programs.random.choice(("foo", "dest", "datum", "mask"))] = 1
    return True


def missing_operand(programs: Programs, call: Call) -> bool:
    """A required operand left out."""
    names = [name for name in _views(call) if not name.startswith(("operand", "bias", "reduce_res"))]
    del call.given[programs.random.choice(names)]
    return True


BAD_DTYPES = {
    ("nc_matmul", "stationary"): "int32",
    ("nc_matmul", "moving"): "float32",  # with a narrow stationary
    ("nc_matmul", "dst"): "float16",
    ("nc_transpose", "dst"): "int32",
    ("tensor_copy_predicated", "predicate"): "float32",
    ("tensor_copy_predicated", "src"): None,
}


def wrong_dtype(programs: Programs, call: Call) -> bool:
    """A dtype that the instruction does not take, or not together with the others."""
    names = [name for name in _views(call) if (call.instruction, name) in BAD_DTYPES]

    def other(view: View) -> Any:
        name = next(name for name in names if call.given[name] is view)
        dtype = BAD_DTYPES[call.instruction, name] or ("int16" if view.tensor.dtype != "int16" else "bfloat16")
        return programs.filled(view.at.shape, dtype, view.tensor.memory).tile

    return _replace(programs, call, names, other)


# the first can always be done: what draws the smallest choices must come to an end
SPOILS: tuple[Spoil, ...] = (
    unknown_keyword,
    missing_operand,
    no_tile,
    no_operator,
    one_partition_less,
    partition_one,
    wrong_memory,
    unwritten,
    out_of_bounds,
    too_many_partitions,
    wrong_dtype,
)


class Late:
    """An operand whose making is the mistake."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    @property
    def tile(self) -> Any:
        """Make it."""
        return self.make()


# --- anything with anything


def functions() -> dict[str, Any]:
    """Return the functions of ``nki.isa`` by name."""
    return {name: getattr(nisa, name) for name in nisa.__all__ if inspect.isfunction(getattr(nisa, name))}


def anything(programs: Programs) -> Any:
    """Return some argument."""
    random = programs.random
    kind = random.randrange(8)
    if kind < 4:
        return programs.operand(programs.shape(), t.DTYPES, ("sbuf", "psum", "hbm")).tile
    if kind == 4:
        return programs.new(programs.shape(), random.choice(tuple(t.DTYPES)), "sbuf").tile
    if kind == 5:
        return random.choice((nl.add, nl.maximum, nl.exp, nl.copy, nl.bitwise_and, nl.equal, nl.sigmoid))
    return random.choice(
        (0, 1, -1, 7, 2**40, 0.5, float("nan"), True, False, (), (1, 2), [[1, 4]], [[0, 0], [1, -3]], *NOT_TILES)
    )


def wild(programs: Programs) -> tuple[str, dict[str, Any]]:
    """Return a function's name and some arguments: the required ones, and now and then others."""
    name, function = programs.random.choice(sorted(functions().items()))
    given = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD or parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.default is parameter.empty or programs.chance(0.15):
            given[parameter.name] = anything(programs)
    return name, given
