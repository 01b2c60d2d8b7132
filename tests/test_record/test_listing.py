"""A program as text: the golden listing, and that text alone tells programs apart."""

from __future__ import annotations

import os
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import neurosim
from neurosim import dtypes
from neurosim.datapath.operators import Operator
from neurosim.engines import Engine, Memory
from neurosim.program import Access, Frame, Pattern, Program, Signature, StorageInfo
from neurosim.record import listing
from neurosim.record.encoding import Word
from neurosim.shell.loading import load_kernel

GOLDEN = Path(__file__).parents[1] / "golden"


class Mode(Enum):
    unknown = 0
    fast = 1


@pytest.fixture(scope="module")
def program() -> Program:
    kernel = load_kernel(f"{GOLDEN / 'listing_kernel.py'}:everything")
    arrays = [np.ones(shape, ml_dtypes.bfloat16) for shape in ((128, 64), (128, 256))]
    return neurosim.simulate(kernel, chip="trn2")(*arrays).program


def test_the_golden_listing(program: Program) -> None:
    """NEUROSIM_UPDATE_GOLDEN=1 writes it anew; look at the difference before you commit it."""
    file = GOLDEN / "listing.txt"
    if os.environ.get("NEUROSIM_UPDATE_GOLDEN"):
        file.write_text(program.listing(), encoding="utf-8")
    assert program.listing() == file.read_text(encoding="utf-8")


def test_a_part_has_the_lines_of_the_whole(program: Program) -> None:
    heading, *lines = program.listing().splitlines()
    assert len(lines) == len(program)
    assert program.listing(3, 5).splitlines() == [heading, *lines[3:5]]
    assert program.listing(8).splitlines() == [heading, *lines[8:]]
    assert program.listing(100).splitlines() == [heading]


def test_an_empty_program_has_a_heading() -> None:
    assert Program("trn1", 2).listing() == "program for trn1 (NeuronCore-v2): 0 records, 0 signatures, 0 tensors\n"


def test_equal_text_under_every_hash_seed(program: Program) -> None:
    script = (
        "import ml_dtypes, numpy as np, neurosim, sys\n"
        "from neurosim.shell.loading import load_kernel\n"
        "arrays = [np.ones(shape, ml_dtypes.bfloat16) for shape in ((128, 64), (128, 256))]\n"
        "result = neurosim.simulate(load_kernel(sys.argv[1]), chip='trn2')(*arrays)\n"
        "sys.stdout.write(result.program.listing())\n"
    )
    command = [sys.executable, "-c", script, f"{GOLDEN / 'listing_kernel.py'}:everything"]
    for seed in ("0", "1"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=600)
        assert done.stdout == program.listing()


def pattern(shape: tuple[int, ...], steps: tuple[int, ...], axis: int = 0, start: int = 0) -> Pattern:
    memory = Memory.sbuf if axis >= 0 else Memory.shared_hbm
    return Pattern("src", Access.READ, memory, dtypes.float32, shape, steps, axis, start, 0)


@pytest.mark.parametrize(
    ("operand", "text"),
    [
        (pattern((128, 4, 8), (1, 8, 1)), "float32[128, 4, 8] SBUF"),
        (pattern((128, 4, 8), (1, 16, 1)), "float32[128, 4, 8] SBUF steps [1, 16, 1]"),
        (pattern((128, 8), (1, 0)), "float32[128, 8] SBUF steps [1, 0]"),
        (pattern((64, 8), (2, 1)), "float32[64, 8] SBUF steps [2, 1]"),
        (pattern((32, 1), (1, 99)), "float32[32, 1] SBUF"),
        (pattern((8, 128), (1, 1), axis=1), "float32[8, 128] SBUF"),
        (pattern((8, 32), (1, 1), axis=1, start=32), "from partition 32 float32[8, 32] SBUF"),
        (pattern((4, 8), (8, 1), axis=-1), "float32[4, 8] HBM"),
        (pattern((8, 4), (1, 8), axis=-1), "float32[8, 4] HBM steps [1, 8]"),
    ],
)
def test_steps_stand_where_elements_are_not_dense(operand: Pattern, text: str) -> None:
    program = Program("trn2", 3)
    program.storages.append(
        StorageInfo("x", operand.memory, (128, 128), dtypes.float32, 128, 512, 0, "tile"),
    )
    program.stacks.append((Frame("a/b/k.py", 7, "kernel"),))
    program.signatures.append(Signature("copy", (operand,), (), Engine.vector, frozenset(), ()))
    program.append(0, [0, 12], 0)
    assert program.listing().splitlines()[1] == f"0  vector  copy  src=x+12 {text}  k.py:7"


def test_cores_stand_where_there_are_several(program: Program) -> None:
    assert "core " not in program.listing()
    two = Program("trn2", 3)
    two.stacks.append(())
    two.signatures.append(Signature("halt", (), (), Engine.sync, frozenset(), ()))
    two.append(0, [], 0, core=0)
    two.append(0, [], 0, core=1)
    assert two.listing().splitlines()[1:] == ["0  core 0  sync    halt    ?", "1  core 1  sync    halt    ?"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2, "2"),
        (0.5, "0.5"),
        (float("-inf"), "-inf"),
        (np.float32(2), "2.0"),
        (ml_dtypes.bfloat16(0.5), "0.5"),
        ("text", "'text'"),
        (True, "True"),
        (dtypes.bfloat16, "bfloat16"),
        (Operator("add"), "nl.add"),
        (Mode.fast, "fast"),
        (Word("fast"), "fast"),
        (((1, 128), (2,)), "((1, 128), (2,))"),
    ],
)
def test_values(value: Any, text: str) -> None:
    assert listing.value_text(value) == text


def test_what_was_not_given_is_left_out() -> None:
    given = {"a": None, "b": Mode.unknown, "c": (), "d": Word("unknown"), "e": "unknown", "f": 0, "g": False}
    signature = Signature("copy", (), tuple(given.items()), Engine.vector, frozenset(), ())
    assert listing.parameters_text(signature) == "e='unknown', f=0, g=False"
