"""Random programs: every step is an instruction on random views, carried out on the machine and on its twin.

``Programs(random)`` needs only the methods of :class:`random.Random`, so that hypothesis can shrink what it draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import nki.isa as nisa
import nki.language as nl
import numpy as np
import twin as t
from twin import Twin

import neurosim

EXTENTS = (1, 2, 3, 5, 8, 17)
PARTITIONS = (1, 2, 7, 32, 33, 64, 65, 128)
STARTS = (0, 32, 64, 96)


@dataclass
class Tensor:
    """A tensor of the machine and its twin."""

    tile: Any
    twin: Twin
    shape: tuple[int, ...]
    dtype: str
    memory: str


@dataclass
class View:
    """A view of a tensor: the machine's, and the flat indices of its elements."""

    tensor: Tensor
    tile: Any
    at: Any

    @property
    def values(self) -> Any:
        """The elements, in the view's shape."""
        return self.tensor.twin.values[self.at]

    @property
    def is_written(self) -> bool:
        """Whether somebody has written every element."""
        return bool(self.tensor.twin.written[self.at].all())

    def put(self, values: Any, *, matmul: bool = False) -> None:
        """Write to the twin what the machine writes to the tile, converted to the tensor's dtype."""
        self.tensor.twin.put(
            self.at, t.convert(np.reshape(values, self.at.shape), t.DTYPES[self.tensor.dtype]), matmul=matmul
        )


@dataclass
class Call:
    """An instruction about to be issued: its keywords, and what it does to the twin."""

    instruction: str
    given: dict[str, Any]
    effect: Callable[[], None]

    def issue(self) -> None:
        """Carry it out on both machines."""
        getattr(nisa, self.instruction)(**{name: getattr(value, "tile", value) for name, value in self.given.items()})
        self.effect()


class Programs:
    """Draws and issues the steps of one program, inside a kernel. ``source`` is its input: a long HBM vector."""

    def __init__(self, random: Any, source: Any, data: Any, chip: str = "trn2", hbm: Any = nl.shared_hbm) -> None:
        self.random, self.chip = random, chip
        self.memories = {"sbuf": nl.sbuf, "psum": nl.psum, "hbm": hbm}
        self.tensors: list[Tensor] = []
        self.registers = {engine: t.Registers() for engine in ("scalar", "vector")}
        self.generator = t.Generator(first_states())
        self.source, self.data = source, data
        self.steps = [
            self.tensor_copy, self.tensor_tensor, self.tensor_scalar, self.tensor_reduce, self.memset, self.dma_copy,
            self.nc_matmul, self.nc_transpose, self.scan, self.activation, self.predicated, self.select,
            self.scalar_tensor_tensor, self.bits, self.exact_integers, self.iota, self.max8, self.partition_reduce,
            self.running_sum, self.running_reduction, self.draw,
        ]  # fmt: skip

    def step(self) -> Call:
        """Return the next instruction."""
        return self.random.choice(self.steps)()

    # --- drawing

    def pick(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def number(self) -> float:
        return self.random.choice((0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -2.25, 100.0, 1e-3))

    def shape(self, *, partitions: tuple[int, ...] = PARTITIONS, axes: int | None = None) -> tuple[int, ...]:
        axes = axes or self.pick(1, 1, 2, 2, 3)
        extents = EXTENTS if axes < 3 else EXTENTS[:-2]
        return (self.random.choice(partitions), *(self.random.choice(extents) for _ in range(axes)))

    def new(self, shape: tuple[int, ...], dtype: str, memory: str) -> Tensor:
        tile = nl.ndarray(shape, dtype=getattr(nl, dtype), buffer=self.memories[memory])
        tensor = Tensor(tile, Twin.empty(shape, dtype), shape, dtype, memory)
        self.tensors.append(tensor)
        return tensor

    def output(self, shape: tuple[int, ...], dtypes: Any, memories: tuple[str, ...] = ("sbuf", "sbuf", "psum")) -> View:
        """Return a view to write to: of a new tensor, or of one that is there."""
        memory = self.random.choice(memories)
        found = None if self.chance(0.5) else self.find(shape, dtypes, (memory,), written=False)
        return found or self.within(shape, self.random.choice(tuple(dtypes)), memory)

    def operand(
        self, shape: tuple[int, ...], dtypes: Any, memories: tuple[str, ...] = ("sbuf", "sbuf", "psum")
    ) -> View:
        """Return a view to read from, all of it written."""
        found = None if self.chance(0.2) else self.find(shape, dtypes, memories, written=True)
        return found or self.filled(shape, self.random.choice(tuple(dtypes)), self.random.choice(memories))

    def filled(self, shape: tuple[int, ...], dtype: str, memory: str) -> View:
        """Return a view of a new tensor, filled from the input (PSUM by way of SBUF)."""
        view = self.within(shape, dtype, memory)
        tensor = view.tensor
        size = int(np.prod(tensor.shape))
        first = self.random.randrange(len(self.data) - size)
        staged = tensor if memory != "psum" else self.new(tensor.shape, dtype, "sbuf")
        nisa.dma_copy(dst=staged.tile, src=self.source[first : first + size].reshape(tensor.shape))
        everywhere = np.arange(size)
        staged.twin.put(everywhere, t.convert(self.data[first : first + size], t.DTYPES[dtype]))
        if memory == "psum":
            nisa.tensor_copy(dst=tensor.tile, src=staged.tile)
            tensor.twin.put(everywhere, staged.twin.values)
        return view

    def find(self, shape: tuple[int, ...], dtypes: Any, memories: tuple[str, ...], *, written: bool) -> View | None:
        """Return a random view of a tensor that is there, None if none fits."""
        fitting = [
            tensor
            for tensor in self.tensors
            if tensor.dtype in dtypes
            and tensor.memory in memories
            and len(tensor.shape) == len(shape)
            and all(has >= wants for has, wants in zip(tensor.shape, shape, strict=True))
        ]
        if not fitting:
            return None
        view = self.view(self.random.choice(fitting), shape)
        return None if written and not view.is_written else view

    def within(self, shape: tuple[int, ...], dtype: str, memory: str) -> View:
        """Return a view of this shape of a new tensor, which is as large or larger."""
        room = [
            extent + self.pick(0, 0, 1, 3) if self.chance(0.5) else extent * self.pick(1, 2) for extent in shape[1:]
        ]
        partitions = min(shape[0] + self.pick(0, 0, 32, 64), 128) if shape[0] <= 128 else shape[0]
        return self.view(self.new((partitions, *room), dtype, memory), shape)

    def view(self, tensor: Tensor, shape: tuple[int, ...]) -> View:
        """Return a random view of a tensor: a start partition that engines can reach, any starts and steps behind."""
        spare = tensor.shape[0] - shape[0]
        starts = [start for start in self.starts(shape[0]) if start <= spare]
        first = self.random.choice(starts)
        pieces = [slice(first, first + shape[0])]
        for has, wants in zip(tensor.shape[1:], shape[1:], strict=True):
            step = self.random.randrange((has - 1) // (wants - 1)) + 1 if wants > 1 else 1
            reach = (wants - 1) * step + 1
            start = self.random.randrange(has - reach + 1)
            pieces.append(slice(start, start + reach, step))
        key = tuple(pieces)
        at = np.arange(int(np.prod(tensor.shape))).reshape(tensor.shape)[key]
        tile = tensor.tile[key]
        if len(shape) > 2 and self.chance(0.3) and shape[1] == shape[2]:
            order = (0, 2, 1, *range(3, len(shape)))
            tile, at = tile.permute(order), at.transpose(order)
        return View(tensor, tile, at)

    @staticmethod
    def starts(partitions: int) -> tuple[int, ...]:
        return STARTS if partitions <= 32 else STARTS[::2] if partitions <= 64 else STARTS[:1]

    # --- instructions

    def tensor_copy(self) -> Call:
        shape = self.shape()
        src = self.operand(shape, t.DTYPES)
        dst = self.output(shape, t.DTYPES)
        return Call("tensor_copy", {"dst": dst, "src": src}, lambda values=src.values: dst.put(values))

    def dma_copy(self) -> Call:
        shape = self.shape()
        src = self.operand(shape, t.DTYPES, ("sbuf", "hbm"))
        dst = self.output(shape, t.DTYPES, ("sbuf", "hbm"))
        return Call("dma_copy", {"dst": dst, "src": src}, lambda values=src.values: dst.put(values))

    def memset(self) -> Call:
        dst, value = self.output(self.shape(), t.DTYPES), self.pick(0, 1, 3)
        return Call("memset", {"dst": dst, "value": value}, lambda: dst.put(np.full(dst.at.shape, value, t.F)))

    def tensor_tensor(self) -> Call:
        shape, op = self.shape(), self.random.choice(tuple(t.OPERATORS))
        data1, data2 = self.operand(shape, t.FLOATS), self.operand(shape, t.FLOATS, ("sbuf",))
        dst = self.output(shape, t.FLOATS)
        result = t.apply(op, data1.values, data2.values)
        given = {"dst": dst, "data1": data1, "data2": data2, "op": named(op)}
        return Call("tensor_tensor", given, lambda: dst.put(result))

    def tensor_scalar(self) -> Call:
        shape = self.shape()
        data = self.operand(shape, t.FLOATS)
        given: dict[str, Any] = {"data": data}
        value = data.values.astype(t.F)
        for turn in range(self.pick(1, 2)):
            op, backwards = self.random.choice(tuple(t.OPERATORS)), self.chance(0.3)
            number: Any = self.number()
            other: Any = t.F(number)
            if self.chance(0.4):
                number = self.operand((shape[0], 1), ("float32",), ("sbuf",))
                other = number.values.reshape(-1, *(1 for _ in shape[1:]))
            value = t.apply(op, other, value) if backwards else t.apply(op, value, other)
            value = np.broadcast_to(value, shape)
            given |= {f"op{turn}": named(op), f"operand{turn}": number, f"reverse{turn}": backwards}
        dst = given["dst"] = self.output(shape, t.FLOATS)
        return Call("tensor_scalar", given, lambda: dst.put(value))

    def scalar_tensor_tensor(self) -> Call:
        shape, number = self.shape(), self.number()
        op0, op1 = (self.random.choice(tuple(t.OPERATORS)) for _ in range(2))
        data, operand1 = self.operand(shape, t.FLOATS, ("sbuf",)), self.operand(shape, t.FLOATS)
        dst = self.output(shape, t.FLOATS)
        value = t.apply(op1, t.apply(op0, data.values, t.F(number)), operand1.values)
        given = {
            "dst": dst,
            "data": data,
            "op0": named(op0),
            "operand0": number,
            "op1": named(op1),
            "operand1": operand1,
        }
        return Call("scalar_tensor_tensor", given, lambda: dst.put(value))

    def bits(self) -> Call:
        shape, dtype = self.shape(), self.random.choice(tuple(t.INTEGERS))
        op = self.pick("bitwise_and", "bitwise_or", "bitwise_xor")
        data1, data2 = self.operand(shape, (dtype,)), self.operand(shape, (dtype,), ("sbuf",))
        dst, result = self.output(shape, (dtype,)), getattr(np, op)(data1.values, data2.values)
        given = {"dst": dst, "data1": data1, "data2": data2, "op": getattr(nl, op)}
        return Call("tensor_tensor", given, lambda: dst.put(result))

    def exact_integers(self) -> Call:
        shape, op = self.shape(), self.pick("add", "subtract", "multiply")
        data1, data2 = (self.operand(shape, ("int32",), ("sbuf",)) for _ in range(2))
        dst = self.output(shape, ("int32",), ("sbuf",))
        with np.errstate(over="ignore"):
            result = getattr(np, op)(data1.values, data2.values)
        given = {"dst": dst, "data1": data1, "data2": data2, "op": named(op), "engine": nisa.engine.gpsimd}
        return Call("tensor_tensor", given, lambda: dst.put(result))

    def iota(self) -> Call:
        shape, offset, channel = self.shape(axes=2), self.random.randrange(-5, 50), self.pick(0, 1, 3)
        steps = [self.pick(1, 0, -2), self.pick(1, 5)]
        dst = self.output(shape, ("int32", "float32"), ("sbuf",))
        rows = offset + channel * np.arange(shape[0])[:, None, None] + steps[0] * np.arange(shape[1])[:, None]
        result = (rows + steps[1] * np.arange(shape[2])).astype(np.int32)
        pattern = [[steps[0], shape[1]], [steps[1], shape[2]]]
        given = {"dst": dst, "pattern": pattern, "offset": offset, "channel_multiplier": channel}
        return Call("iota", given, lambda: dst.put(result))

    def max8(self) -> Call:
        shape = (self.random.choice(PARTITIONS), self.pick(8, 17, 40))
        src, dst = self.operand(shape, t.FLOATS), self.output((shape[0], 8), t.FLOATS)
        if np.isnan(src.values.astype(t.F)).any():
            return self.iota()
        values = src.values.astype(t.F)
        order = np.lexsort((np.signbit(values), -values), axis=1)  # +0 before -0
        result = np.take_along_axis(values, order, axis=1)[:, :8]
        return Call("max8", {"dst": dst, "src": src}, lambda: dst.put(result))

    def partition_reduce(self) -> Call:
        shape = self.shape()
        data, dst = self.operand(shape, t.FLOATS, ("sbuf",)), self.output((1, *shape[1:]), t.FLOATS, ("sbuf",))
        result = t.reduce_rows("add", np.moveaxis(data.values, 0, -1))
        return Call("tensor_partition_reduce", {"dst": dst, "op": nl.add, "data": data}, lambda: dst.put(result))

    def tensor_reduce(self) -> Call:
        shape, op, negate = self.shape(), self.pick("add", "maximum", "minimum"), self.chance(0.3)
        axes = self.random.randrange(len(shape) - 1) + 1
        kept = shape[: len(shape) - axes]
        data = self.operand(shape, t.FLOATS)
        dst = self.output(kept if len(kept) > 1 else (*kept, 1), t.FLOATS)
        result = t.reduce_rows(op, data.values.reshape(*kept, -1))
        result = t.apply("multiply", result, t.F(-1)) if negate else result
        axis = tuple(range(len(kept), len(shape)))
        given = {"dst": dst, "op": named(op), "data": data, "axis": axis if axes > 1 else axis[0], "negate": negate}
        return Call("tensor_reduce", given, lambda: dst.put(result))

    def scan(self) -> Call:
        shape, op0, op1 = self.shape(axes=1), self.pick("multiply", "add"), self.pick("add", "maximum", "subtract")
        data0, data1 = self.operand(shape, t.FLOATS), self.operand(shape, t.FLOATS, ("sbuf",))
        dst, initial = self.output(shape, t.FLOATS), self.number()
        result = t.scan_rows(op0, op1, data0.values, data1.values, initial)
        given = {"dst": dst, "data0": data0, "data1": data1, "initial": initial, "op0": named(op0), "op1": named(op1)}
        return Call("tensor_tensor_scan", given, lambda: dst.put(result))

    def activation(self) -> Call:
        shape, op = self.shape(), self.pick("relu", "copy", "square")
        data, scale = self.operand(shape, t.FLOATS), self.number()
        bias = self.operand((shape[0], 1), ("float32",), ("sbuf",))
        dst = self.output(shape, t.FLOATS)
        value = t.apply("multiply", data.values, t.F(scale))
        value = t.apply("add", value, bias.values.reshape(-1, *(1 for _ in shape[1:])))
        if op == "relu":
            value = t.apply("maximum", value, t.F(0))
        elif op == "square":
            value = t.apply("multiply", value, value)
        given = {"dst": dst, "op": getattr(nl, op), "data": data, "bias": bias, "scale": scale}
        return Call("activation", given, lambda: dst.put(value))

    def running_sum(self) -> Call:
        """Sums in the registers of Scalar, over several calls."""
        shape, registers = self.shape(), self.registers["scalar"]
        command = self.pick("reset_reduce", "reset", *(("reduce", "idle") if registers.known >= shape[0] else ()))
        data, dst = self.operand(shape, t.FLOATS), self.output(shape, t.FLOATS)
        total = self.output((shape[0], 1), ("float32",), ("sbuf",)) if self.chance(0.5) else None
        values, given = data.values, {"dst": dst, "op": nl.copy, "data": data}
        given |= {"reduce_cmd": getattr(nisa.reduce_cmd, command), "reduce_res": total}
        if command.endswith("reduce"):
            given["reduce_op"] = nl.add

        def effect() -> None:
            dst.put(values)
            if command.startswith("reset"):
                registers.load(t.F(0), shape[0])
            if command.endswith("reduce"):
                rows = t.reduce_rows("add", values.reshape(shape[0], -1))
                registers.values[: shape[0]] = t.apply("add", registers.values[: shape[0]], rows)
            if total is not None:
                total.put(registers.values[: shape[0]])

        return Call("activation", given, effect)

    def running_reduction(self) -> Call:
        """Reductions in the registers of Vector, over several calls."""
        shape, registers, start = self.shape(), self.registers["vector"], self.number()
        command = self.pick("reset_reduce", "load_reduce", *(("reduce",) if registers.known >= shape[0] else ()))
        op, number = self.pick("add", "maximum", "minimum"), self.number()
        data, dst = self.operand(shape, t.FLOATS), self.output(shape, t.FLOATS)
        total = self.output((shape[0], 1), ("float32",), ("sbuf",)) if self.chance(0.5) else None
        result = t.apply("add", data.values, t.F(number))
        if np.isnan(result).any():
            return self.iota()
        given = {"dst": dst, "data": data, "op0": nl.add, "operand0": number, "reduce_op": named(op)}
        given |= {"reduce_cmd": getattr(nisa.reduce_cmd, command), "reduce_res": total}
        if command == "load_reduce":
            given["reduce_init"] = start

        def effect() -> None:
            dst.put(result)
            if command != "reduce":
                registers.load(t.F(start) if command == "load_reduce" else t.IDENTITY[op], shape[0])
            rows = np.column_stack([registers.values[: shape[0]], result.reshape(shape[0], -1)])
            registers.values[: shape[0]] = t.reduce_rows(op, rows)
            if total is not None:
                total.put(registers.values[: shape[0]])

        return Call("tensor_scalar_reduce", given, effect)

    def draw(self) -> Call:
        """Random bits of GpSimd, whose generator draws from trn2 on; an integer takes the lowest of them."""
        if self.chip in ("trn1", "inf2"):
            return self.iota()
        dst = self.output(self.shape(), ("int32", "int16", "uint8"), ("sbuf",))
        rows, dtype = dst.at.shape[0], t.DTYPES[dst.tensor.dtype]

        def effect() -> None:
            drawn = self.generator.draw(rows, dst.at.size // rows)
            dst.put(drawn.astype(f"u{dtype.itemsize}").view(dtype))

        return Call("rng", {"dst": dst, "engine": nisa.engine.gpsimd}, effect)

    def predicated(self) -> Call:
        shape, dtype = self.shape(), self.random.choice(tuple(t.DTYPES))
        predicate, src = self.operand(shape, ("uint8",), ("sbuf",)), self.operand(shape, (dtype,), ("sbuf",))
        dst = self.operand(shape, (dtype,), ("sbuf",))
        result = np.where(predicate.values != 0, src.values, dst.values)
        return Call("tensor_copy_predicated", {"dst": dst, "src": src, "predicate": predicate}, lambda: dst.put(result))

    def select(self) -> Call:
        shape, offset = self.shape(axes=1), self.random.randrange(-20, 20)
        step, channel = self.pick(-1, 1, 2), self.pick(0, 1, -1)
        data, dst, otherwise = (
            self.operand(shape, t.FLOATS, ("sbuf",)),
            self.output(shape, t.FLOATS, ("sbuf",)),
            self.number(),
        )
        affine = offset + channel * np.arange(shape[0])[:, None] + step * np.arange(shape[1])
        result = np.where(affine >= 0, data.values.astype(t.F), t.F(otherwise))
        given = {
            "dst": dst, "pattern": [[step, shape[1]]], "offset": offset, "channel_multiplier": channel,
            "on_true_tile": data, "on_false_value": otherwise, "cmp_op": nl.greater_equal,
        }  # fmt: skip
        return Call("affine_select", given, lambda: dst.put(result))

    def nc_matmul(self) -> Call:
        rows, columns, width = (
            self.random.choice(PARTITIONS),
            self.random.choice(PARTITIONS),
            self.random.choice(EXTENTS),
        )
        narrow = ("bfloat16", "float16")
        stationary = self.operand((rows, columns), narrow, ("sbuf",))
        moving = self.operand((rows, width), narrow, ("sbuf",))
        dst = self.output((columns, width), ("float32",), ("psum",))
        old, by_matmul = dst.values, dst.tensor.twin.by_matmul[dst.at]
        is_foreign = dst.tensor.twin.written[dst.at] & ~by_matmul
        accumulate = self.pick(False, *(() if is_foreign.any() else (None,)), *((True,) if by_matmul.all() else ()))
        result = t.multiply(stationary.values, moving.values)
        if accumulate is not False:
            result = np.where(by_matmul, t.apply("add", old, result), result)
        given = {"dst": dst, "stationary": stationary, "moving": moving, "accumulate": accumulate}
        return Call("nc_matmul", given, lambda: dst.put(result, matmul=True))

    def nc_transpose(self) -> Call:
        dtype = self.random.choice(tuple(t.FLOATS))
        rows, columns = self.random.choice(PARTITIONS), self.random.choice(PARTITIONS)
        data = self.operand((rows, columns), (dtype,), ("sbuf",))
        dst = self.output((columns, rows), (dtype,), ("psum",))
        return Call("nc_transpose", {"dst": dst, "data": data}, lambda: dst.put(t.turned(data.values, self.chip)))


@cache
def first_states() -> Any:
    """Return what the generators of GpSimd's lanes hold when a kernel begins, [128, 6]: the manual does not say it."""

    def kernel(rows: Any) -> Any:
        states = nl.ndarray((128, 6), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.rand_get_state(dst=states, engine=nisa.engine.gpsimd)
        out = nl.ndarray((128, 6), dtype=nl.uint32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=states)
        return out

    return neurosim.simulate(kernel, "trn2", replay=False)(np.zeros(1, np.float32)).outputs


def named(op: str) -> Any:
    """Return the operator of ``nki.language``."""
    return getattr(nl, t.SPELLED.get(op, op))
