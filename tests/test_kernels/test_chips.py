"""Each kernel runs on each chip and gives the same bits there: chips differ in time and in what fits."""

from __future__ import annotations

import ast
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import neurosim
from neurosim.devices import load_chip
from neurosim.shell.loading import packaged_kernel

BF16 = ml_dtypes.bfloat16
MATRICES = ((200, 150), (200, 530))
CASES = {
    "adamw.py:adamw": (((130, 33),) * 4, {"step": 2}),
    "attention.py:attention": (((300, 64),) * 3, {"causal": True}),
    "average_pool2d.py:average_pool2d": (((130, 9, 12),), {"pool": 3}),
    "batched_matmul.py:batched_matmul": (((2, 130, 64), (2, 64, 530)), {}),
    "copy_columns.py:copy_columns": (((130, 70),), {"columns": 33}),
    "matmul_double_row.py:matmul_double_row": (MATRICES, {}),
    "conv1d.py:conv1d": (((2, 130, 40), (33, 130, 3)), {"padding": 1}),
    "conv2d.py:conv2d": (((1, 130, 10, 12), (33, 130, 3, 3), (33,)), {"pool": 2}),
    "layernorm.py:layernorm": (((130, 33), (33,), (33,)), {}),
    "linear_gelu.py:linear_gelu": (((200, 150), (200, 530), (1, 530)), {}),
    "matmul.py:matmul": (MATRICES, {}),
    "matmul_ladder.py:matmul_tiled": (MATRICES, {}),
    "matmul_ladder.py:matmul_hoisted": (MATRICES, {}),
    "matmul_ladder.py:matmul_blocked_free": (MATRICES, {}),
    "matmul_ladder.py:matmul_blocked": (MATRICES, {}),
    "rmsnorm.py:rmsnorm": (((130, 33), (33,)), {}),
    "rope.py:rope": (((130, 3, 32), (130, 16), (130, 16)), {}),
    "selective_scan.py:selective_scan": (((1, 130, 40), (1, 130, 40), (130, 3), (1, 3, 40), (1, 3, 40)), {}),
    "sharded_rmsnorm.py:sharded_rmsnorm": (((130, 33), (33,)), {}),
    "silu.py:silu": (((130, 33),), {}),
    "softmax.py:softmax": (((130, 300),), {}),
    "swiglu.py:swiglu": (((130, 96), (96, 160), (96, 160), (160, 96)), {}),
    "transpose2d.py:transpose2d": (((130, 200),), {}),
    "transpose2d.py:transpose_free": (((130, 33, 5),), {}),
    "vector_add.py:vector_add": (((1290,), (1290,)), {"columns": 4}),
}


def test_every_kernel_is_here():
    found = set()
    for path in Path(packaged_kernel("matmul.py")).parent.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and "nki.jit" in map(ast.unparse, node.decorator_list):
                found.add(f"{path.name}:{node.name}")
    assert set(CASES) == found


@pytest.mark.parametrize("dtype", [np.float32, BF16])
@pytest.mark.parametrize("target", CASES)
def test_the_same_bits_on_each_chip(kernels, target, dtype):
    shapes, options = CASES[target]
    arrays = [kernels.normal(seed, *shape, dtype=dtype, scale=0.5) for seed, shape in enumerate(shapes)]
    if "adamw" in target:  # moments are float32, and the second ones are squares
        arrays[2:] = [np.abs(kernels.normal(seed, *shapes[0])) for seed in (2, 3)]
    chips = kernels.chips
    if "double_row" in target:  # of 8-bit floats, and only later chips have it
        chips = [chip for chip in chips if load_chip(chip).generation >= 3]
        arrays = [array.astype(ml_dtypes.float8_e4m3) for array in arrays]
    seen, times = set(), {}
    for chip in chips:
        result = neurosim.profile(kernels.load(target), chip=chip)(*arrays, **options)
        outputs = result.outputs if isinstance(result.outputs, tuple) else (result.outputs,)
        seen.add(b"".join(np.asarray(output).tobytes() for output in outputs))
        times[chip] = result.timeline.makespan_ps
        assert result.program.generation == load_chip(chip).generation
    assert len(seen) == 1
    assert times.get("inf2") == times.get("trn1")
    assert len(set(times.values())) == len({load_chip(chip).generation for chip in chips})
