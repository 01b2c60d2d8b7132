"""What instructions do, once more and element by element: written from the manual, and knowing nothing of the machine.

A twin gets a :class:`Given` and returns for each written operand its rows. Arithmetic is in float32 scalars, one
rounding after each operation and one more into the format of the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

F = np.float32


@dataclass
class Given:
    """The operands of one call.

    Attributes:
        rows: by name, what tensors hold before, [partitions, free elements], each in its own dtype.
        values: by name, operands that are no tensors.
    """

    rows: dict[str, Any]
    values: dict[str, Any]

    def at(self, name, p, f):
        """Return an operand for an element as float32: a number, one per partition, or one of its own."""
        if name in self.rows:
            rows = self.rows[name]
            return F(rows[p, f if rows.shape[1] > 1 else 0])
        return F(self.values[name])

    def each(self, name, formula):
        """Return rows of a result, of which ``formula(p, f)`` is each float32 (or an element of the same dtype)."""
        before = self.rows[name]
        made = np.empty_like(before)
        for p, f in np.ndindex(before.shape):
            made[p, f] = convert(formula(p, f), before.dtype)
        return made


def convert(value, dtype):
    """Convert an element: through float32, to nearest even; integers saturate and take NaN for 0."""
    if np.asarray(value).dtype == dtype:
        return value
    wide = F(value)
    if dtype.kind not in "iu":
        with np.errstate(over="ignore"):
            return wide.astype(dtype)
    limits = np.iinfo(dtype)
    if math.isnan(wide):
        return 0
    return limits.max if wide >= limits.max else limits.min if wide <= limits.min else round(float(wide))


def extreme(a, b, sign):
    """Return the larger (``sign`` 1) or smaller of two; NaN wins, and +0 is larger than -0."""
    if math.isnan(a) or math.isnan(b):
        return F(np.nan)
    if a == b:
        return a if (math.copysign(1, a) == sign) else b
    return a if (a > b) == (sign == 1) else b


OPERATORS = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "maximum": lambda a, b: extreme(a, b, 1),
    "minimum": lambda a, b: extreme(a, b, -1),
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
}
FUNCTIONS = {
    "copy": lambda x: x,
    "relu": lambda x: extreme(x, F(0), 1) if not math.isnan(x) else x,
    "square": lambda x: x * x,
    "abs": abs,
}


def apply(op, a, b, reverse=False):
    """Return an operator's result for two float32."""
    with np.errstate(all="ignore"):
        return F(OPERATORS[op.name](b, a) if reverse else OPERATORS[op.name](a, b))


def folded(op, values):
    """Reduce float32 values, the first one first."""
    total, *rest = values
    for value in rest:
        total = apply(op, total, value)
    return total


def column(rows, formula):
    """Return one float32 per partition, as rows of one element."""
    made = np.empty((len(rows), 1), rows.dtype)
    for p in range(len(rows)):
        made[p, 0] = convert(formula(p), rows.dtype)
    return made


def moved(name, source):
    """Return the twin of an instruction that moves elements to the same place."""
    return lambda given: {name: given.each(name, lambda p, f: given.rows[source].reshape(given.rows[name].shape)[p, f])}


def tensor_tensor(given):
    op = given.values["op"]
    return {"dst": given.each("dst", lambda p, f: apply(op, given.at("data1", p, f), given.at("data2", p, f)))}


def scalars(given, p, f, steps):
    """Return ``(data <op0> operand0) <op1> operand1``."""
    value = given.at("data", p, f)
    for number in steps:
        op = given.values.get(f"op{number}")
        if op is not None:
            value = apply(op, value, given.at(f"operand{number}", p, f), given.values.get(f"reverse{number}", False))
    return value


def tensor_scalar(given):
    return {"dst": given.each("dst", lambda p, f: scalars(given, p, f, (0, 1)))}


def tensor_scalar_reduce(given):
    rows = [
        [scalars(given, p, f, (0,)) for f in range(given.rows["data"].shape[1])] for p in range(len(given.rows["dst"]))
    ]
    made = {"dst": given.each("dst", lambda p, f: rows[p][f])}
    if "reduce_res" in given.rows:
        sign = F(-1) if given.values.get("reduce_res_negate") else F(1)
        total = [sign * folded(given.values["reduce_op"], row) for row in rows]
        made["reduce_res"] = column(given.rows["reduce_res"], lambda p: total[p])
    return made


def tensor_reduce(given):
    op, sign = given.values["op"], F(-1) if given.values.get("negate") else F(1)
    data = given.rows["data"]
    return {"dst": column(given.rows["dst"], lambda p: sign * folded(op, [F(value) for value in data[p]]))}


def tensor_tensor_scan(given):
    rows = []
    for p in range(len(given.rows["dst"])):
        state, row = given.at("initial", p, 0), []
        for f in range(given.rows["dst"].shape[1]):
            first = apply(given.values["op0"], given.at("data0", p, f), state, given.values.get("reverse0", False))
            state = apply(given.values["op1"], first, given.at("data1", p, f), given.values.get("reverse1", False))
            row.append(state)
        rows.append(row)
    return {"dst": given.each("dst", lambda p, f: rows[p][f])}


def reciprocal(given):
    with np.errstate(all="ignore"):
        return {"dst": given.each("dst", lambda p, f: F(1) / given.at("data", p, f))}


def activation(given):
    function = FUNCTIONS[given.values["op"].name]
    op = given.values.get("reduce_op")

    def value(p, f):
        with np.errstate(all="ignore"):
            scaled = given.at("data", p, f) * (given.at("scale", p, f) if has(given, "scale") else F(1))
            return F(function(scaled + given.at("bias", p, f) if has(given, "bias") else scaled))

    made = {"dst": given.each("dst", value)}
    if "reduce_res" in given.rows:
        width = given.rows["data"].shape[1]
        made["reduce_res"] = column(
            given.rows["reduce_res"], lambda p: folded(op or ADD, [value(p, f) for f in range(width)])
        )
    return made


def has(given, name):
    return name in given.rows or given.values.get(name) is not None


class ADD:
    name = "add"


def memset(given):
    return {"dst": given.each("dst", lambda p, f: F(given.values["value"]))}


def tensor_copy_predicated(given):
    chosen, reverse = given.rows["predicate"] != 0, given.values.get("reverse_pred", False)
    before = given.rows["dst"].copy()

    def value(p, f):
        if chosen[p, f] == reverse:
            return before[p, f]
        return given.rows["src"][p, f] if "src" in given.rows else F(given.values["src"])

    return {"dst": given.each("dst", value)}


def select_reduce(given):
    chosen, reverse = given.rows["predicate"] != 0, given.values.get("reverse_pred", False)

    def value(p, f):
        return given.at("on_true" if chosen[p, f] != reverse else "on_false", p, f)

    return with_maximum(given, value)


def range_select(given):
    first, second, start = given.values["comp_op0"], given.values["comp_op1"], given.values.get("range_start", 0)

    def value(p, f):
        holds = apply(first, F(start + f), given.at("bound0", p, 0)) and apply(
            second, F(start + f), given.at("bound1", p, 0)
        )
        return given.at("on_true_tile", p, f) if holds else F(np.finfo(F).min)

    return with_maximum(given, value)


def with_maximum(given, value):
    made = {"dst": given.each("dst", value)}
    if "reduce_res" in given.rows:
        width = given.rows["dst"].shape[1]
        largest = [given.rows["reduce_res"][p, 0] for p in range(len(given.rows["reduce_res"]))]
        for p in range(len(largest)):
            total = value(p, 0)
            for f in range(1, width):
                total = extreme(total, value(p, f), 1)
            largest[p] = total
        made["reduce_res"] = column(given.rows["reduce_res"], lambda p: largest[p])
    return made


def affine_select(given):
    ((step, _),) = given.values["pattern"]
    start = given.values.get("offset", 0)

    def value(p, f):
        place = start + given.values["channel_multiplier"] * p + step * f
        holds = apply(given.values.get("cmp_op", EQUAL), F(place), F(0))
        return given.rows["on_true_tile"][p, f] if holds else F(given.values["on_false_value"])

    return {"dst": given.each("dst", value)}


class EQUAL:
    name = "equal"


def turned(name):
    return lambda given: {"dst": given.each("dst", lambda p, f: given.rows[name][f, p])}


def nc_stream_shuffle(given):
    mask, source, before = given.values["shuffle_mask"], given.rows["src"], given.rows["dst"].copy()

    def value(p, f):
        chosen = mask[p % 32]
        return before[p, f] if chosen == 255 else source[p // 32 * 32 + chosen, f]

    return {"dst": given.each("dst", value)}


def order(value):
    """Sort descending: NaN first, and +0 before -0."""
    wide = float(F(value))
    return (not math.isnan(wide), -wide if not math.isnan(wide) else 0, math.copysign(1, wide) < 0)


def max8(given):
    return {"dst": given.each("dst", lambda p, f: F(sorted(given.rows["src"][p], key=order)[f]))}


def nc_find_index8(given):
    found = np.full(given.rows["dst"].shape, np.iinfo(given.rows["dst"].dtype).max, np.int64)
    for p, values in enumerate(given.rows["vals"]):
        taken = set()
        for column_, wanted in enumerate(values):
            for place, element in enumerate(given.rows["data"][p]):
                if place not in taken and F(element) == F(wanted):
                    found[p, column_] = place
                    taken.add(place)
                    break
    return {"dst": found.astype(given.rows["dst"].dtype)}


def nc_match_replace8(given):
    made = [[F(element) for element in row] for row in given.rows["data"]]
    places = np.zeros(given.rows["vals"].shape, np.uint32)
    for p, values in enumerate(given.rows["vals"]):
        taken = set()
        for number in reversed(range(len(values))):
            for place, element in enumerate(given.rows["data"][p]):
                if place not in taken and F(element) == F(values[number]):
                    made[p][place], places[p, number] = F(given.values["imm"]), place
                    taken.add(place)
                    break
    return {"dst": given.each("dst", lambda p, f: made[p][f]), "dst_idx": places}


def local_gather(given):
    size = given.values.get("num_elem_per_idx", 1)

    def value(p, f):
        group = given.rows["index"][p // 16 * 16 : p // 16 * 16 + 16]
        number = f // size
        first = int(group[number % 16, number // 16])
        return given.rows["src_buffer"][p, first + f % size]

    return {"dst": given.each("dst", value)}


def nc_n_gather(given):
    return {"dst": given.each("dst", lambda p, f: given.rows["data"][p, given.rows["indices"][p, f]])}


def bn_stats(given):
    rows = given.rows["data"].astype(np.float64)

    def value(p, f):
        part = rows[p, f // 3 :: 2]
        return (len(part), part.mean(), part.var() * len(part))[f % 3]

    return {"dst": given.each("dst", value)}


def bn_aggr(given):
    def value(p, f):
        count, mean, spread = given.rows["data"][p].astype(np.float64).reshape(-1, 3).T
        total = (count * mean).sum() / count.sum()
        return total if f == 0 else (spread + count * (mean - total) ** 2).sum() / count.sum()

    return {"dst": given.each("dst", value)}


TWINS = {
    "activation": activation,
    "activation_reduce": activation,
    "affine_select": affine_select,
    "bn_aggr": bn_aggr,
    "bn_stats": bn_stats,
    "dma_copy": moved("dst", "src"),
    "dma_transpose": turned("src"),
    "local_gather": local_gather,
    "max8": max8,
    "memset": memset,
    "nc_find_index8": nc_find_index8,
    "nc_match_replace8": nc_match_replace8,
    "nc_n_gather": nc_n_gather,
    "nc_stream_shuffle": nc_stream_shuffle,
    "nc_transpose": turned("data"),
    "range_select": range_select,
    "reciprocal": reciprocal,
    "scalar_tensor_tensor": tensor_scalar,
    "select_reduce": select_reduce,
    "tensor_copy": moved("dst", "src"),
    "tensor_copy_predicated": tensor_copy_predicated,
    "tensor_reduce": tensor_reduce,
    "tensor_scalar": tensor_scalar,
    "tensor_scalar_reduce": tensor_scalar_reduce,
    "tensor_tensor": tensor_tensor,
    "tensor_tensor_scan": tensor_tensor_scan,
}
"""By instruction. Others have a property test of their own; ``test_twins.py`` says which."""
