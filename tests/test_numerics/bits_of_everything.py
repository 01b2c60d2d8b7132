"""Print a hash of what every kernel computes on small arrays. test_jit.py runs it compiled and as plain Python."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import numpy as np

from neurosim import dtypes
from neurosim.dtypes import Kind
from neurosim.numerics import act, alu, convert, matmul, random, reduce, stochastic


def values() -> Any:
    rng = np.random.default_rng(12)
    patterns = rng.integers(0, 1 << 32, 40, dtype=np.uint64).astype(np.uint32).view(np.float32)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.5, 1e-45, 3.4e38, -100.0, 100.0, 0.5, 9.0, 2.0]
    normal = (rng.standard_normal(41) * 4).astype(np.float32)
    return np.concatenate([patterns, np.array(edges, np.float32), normal])  # 96


def results() -> dict[str, Any]:
    x = values()
    out: dict[str, Any] = {}
    for dtype in dtypes.FORMATS:
        if dtype.kind in (Kind.SCALE, Kind.PACKED):
            continue
        narrow = convert.narrow(x, dtype)
        out[f"narrow {dtype}"] = narrow.view(dtype.bits)
        out[f"widen {dtype}"] = convert.widen(narrow, dtype)
    left, right = x.reshape(4, 24), x[::-1].copy().reshape(4, 24)
    for op in alu.ALU.values():
        if op.kind == "arithmetic":
            out[f"alu {op.name}"] = alu.binary(op.name, left, right)
            out[f"alu {op.name} column"] = alu.binary(op.name, left, right[:, :1])
            short = [convert.narrow(values, dtypes.bfloat16) for values in (left, right)]
            out[f"alu {op.name} bfloat16"] = alu.binary_bfloat16(op.name, *short)
        elif op.kind == "unary":
            out[f"alu {op.name}"] = alu.unary(op.name, x)
    for name in act.ACTIVATIONS:
        out[f"act {name}"] = act.activate(name, left, right[:, :1].copy(), 0.25)
    for name in reduce.REDUCTIONS:
        if not name.startswith("bitwise"):
            out[f"reduce {name}"] = reduce.reduce_free(name, np.abs(np.nan_to_num(x)).reshape(16, 6), 2)
    rng = np.random.default_rng(5)
    weights, moving = rng.standard_normal((7, 6), np.float32), rng.standard_normal((7, 19), np.float32)
    out["matmul 1"], out["matmul 4"] = matmul.matmul(weights, moving, 1), matmul.matmul(weights, moving, 4)
    half = convert.narrow(moving, dtypes.bfloat16)
    psum = np.ones((6, 19), np.float32)
    matmul.matmul_into(psum, weights, dtypes.float32, half, dtypes.bfloat16, 1, False)
    out["matmul bfloat16"] = psum
    for generator in (random.LFSR, random.XORWOW, random.XORWOW_BY_FOUR):
        states = random.seeded(generator, 3, 5)
        out[f"random {generator.name} {generator.streams}"] = random.draw(generator, states, 9)
        out[f"state {generator.name} {generator.streams}"] = states
    for dtype in (dtypes.bfloat16, dtypes.float8_e4m3):
        out[f"stochastic {dtype}"] = stochastic.narrow(x, dtype, stochastic.philox(3, (0, 1, 2), x.size)).view(
            dtype.bits
        )
    return out | wide_results(left.astype(np.float64), right.astype(np.float64))


def wide_results(left: Any, right: Any) -> dict[str, Any]:
    """Return the same in float64, in which any NaN is as good as another."""
    out: dict[str, Any] = {}
    for op in alu.ALU.values():
        if op.kind == "arithmetic":
            out[f"wide {op.name}"] = alu.binary(op.name, left, right)
    for name in act.ACTIVATIONS:
        out[f"wide act {name}"] = act.activate(name, left, right[:, :1].copy(), 0.25)
    for name in ("add", "multiply", "maximum"):
        out[f"wide reduce {name}"] = reduce.reduce_free(name, np.abs(np.nan_to_num(left, posinf=3.0)), 2)
    psum = np.ones((24, 24))
    matmul.accumulate_into(psum, left, right, 1, False)
    out["wide matmul"] = psum
    return {name: np.where(np.isnan(array), np.nan, array) for name, array in out.items()}


if __name__ == "__main__":
    hashes = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in results().items()}
    sys.stdout.write(json.dumps(hashes))
