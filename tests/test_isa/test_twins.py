"""Random calls, drawn from the declarations, give what a scalar twin gives.

A call is one of the examples with everything redrawn that the declaration leaves open: extents, dtypes, memories,
numbers or tiles, operators, flags. What is not legal is dropped; which calls are, other tests say.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from neurosim import dtypes
from neurosim.datapath.operators import Operator
from neurosim.devices import load_chip
from neurosim.errors import IllegalOperand, OutOfBounds, UnknownBehavior
from neurosim.kernel import Kernel, run
from neurosim.launch.cores import Mirror
from neurosim.manual.calls import Tile, examples, operands
from neurosim.memory import WRITTEN
from neurosim.nki import _catalogue, language
from neurosim.program import Access, Program
from neurosim.shell.loading import load_module

twins = load_module(Path(__file__).parent / "twins.py")
TRN2 = load_chip("trn2")
FORMATS = (dtypes.float32, dtypes.bfloat16, dtypes.float16, dtypes.int16, dtypes.int8, dtypes.uint8)
SPECIAL = (0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, 65504.0, 1e-40, 3e38)
ELSEWHERE = {
    "activate2": "test_activate2.py::test_is_the_twin",
    "core_barrier": "../test_execution/test_meetings.py",
    "dma_compute": "test_dma_compute.py::test_the_sum_is_the_scalar_twin_s",
    "dropout": "test_dropout.py::test_is_the_twin",
    "exponential": "test_exponential.py::test_is_the_twin",
    "iota": "test_iota.py::test_any_pattern",
    "nc_matmul": "test_matmul.py::test_any_sequence_of_windows_and_flags",
    "nc_matmul_mx": "test_mx.py::test_any_product_is_the_loop",
    "nonzero_with_count": "test_positions.py::test_the_scalar_twin",
    "quantize_mx": "test_mx.py::test_any_block",
    "rand2": "test_rng.py::test_rand2_stays_in_its_range",
    "register_load": "test_register.py::test_whole_numbers_go_through",
    "register_move": "test_register.py::test_whole_numbers_go_through",
    "register_store": "test_register.py::test_whole_numbers_go_through",
    "sendrecv": "../test_execution/test_meetings.py::test_sendrecv_exchanges_bits",
    "sequence_bounds": "test_positions.py::test_bounds_are_the_scalar_twin_s",
    "tensor_partition_reduce": "test_partition_reduce.py::test_is_the_twin",
    "tensor_scalar_cumulative": "test_cumulative.py::test_is_the_twin",
    "topk": "test_topk.py::test_the_scalar_twin",
}
CLOSE = {"bn_aggr", "bn_stats"}
"""Instructions whose order of operations no text gives: their twins are in float64, and results are close."""


def is_plain(call):
    """Whether the call has no views that an index chooses, no registers, and keeps nothing in them."""
    tiles = [value for value in call.operands.values() if isinstance(value, Tile)]
    formats = [call.dtype, *(tile.dtype for tile in tiles if tile.dtype is not None)]
    command = getattr(call.operands.get("reduce_cmd"), "name", "idle")
    chosen = any(tile.how or tile.start for tile in tiles) or command not in {"idle", "reset_reduce"}
    return not chosen and not any(dtype.is_packed for dtype in formats)


def redrawn(draw, call):
    """Return the operands of a call with another choice of what the declaration leaves open."""
    extents = {32: draw(st.sampled_from((32, 16, 5, 1))), 16: draw(st.sampled_from((16, 8, 9, 21)))}
    extents[16] = 16 if call.mnemonic == "local_gather" else extents[16]
    dtype = draw(st.sampled_from(FORMATS)) if call.dtype == dtypes.float32 else call.dtype
    made = {}
    for name, operand in operands(call.mnemonic).items():
        value = call.operands.get(name)
        if isinstance(value, Tile):
            shape = tuple(extents.get(extent, extent) for extent in value.shape)
            other = draw(st.sampled_from(FORMATS)) if draw(st.integers(0, 3)) == 0 else dtype
            memory = value.memory
            if memory.is_on_chip and len(operand.memories) > 1:
                memory = draw(st.sampled_from([found for found in operand.memories if found.is_on_chip]))
            made[name] = replace(value, shape=shape, dtype=value.dtype or other, memory=memory)
            if operand.number and draw(st.booleans()):
                made[name] = draw(st.sampled_from((0.5, -2.0, 3.0)))
        elif operand is not None and operand.number and value is not None:
            as_column = Tile((extents[32], 1), dtypes.float32)
            made[name] = draw(st.sampled_from((value, 0.5, -2.0, as_column))) if draw(st.booleans()) else value
        elif isinstance(value, Operator):
            made[name] = draw(st.sampled_from(alike(value)))
        elif isinstance(value, list):
            made[name] = [[step, extents.get(count, count)] for step, count in value] if name == "pattern" else value
        elif name in call.operands:
            made[name] = value
        elif operand is None and isinstance(default_of(call.mnemonic, name), bool):
            made[name] = draw(st.booleans())
    return made


def alike(op):
    """Return the operators that a twin knows, of the kind of one."""
    known = twins.FUNCTIONS if op.name in {*twins.FUNCTIONS, "exp"} else twins.OPERATORS
    return [getattr(language, name) for name in known]


def default_of(mnemonic, name):
    return getattr(_catalogue.instructions()[mnemonic].instruction, name, None)


def elements(tile, dtype, seed, mild=False):
    """Return data for a tile: whole numbers where it asks for some, else what floats and integers have.

    ``mild`` numbers are positive and none of them is special.
    """
    random = np.random.default_rng(seed)
    count = math.prod(tile.shape)
    if mild:
        return (1 + 3 * random.random(count)).astype(dtype.numpy)
    if not dtype.is_float or tile.below is not None:
        top = tile.below or 8
        low = -top if tile.below is None and dtype.numpy.kind == "i" else 0
        return random.integers(low, top, count).astype(dtype.numpy)
    chosen = np.where(random.random(count) < 0.2, random.choice(SPECIAL, count), 4 * random.standard_normal(count))
    with np.errstate(over="ignore"):
        return chosen.astype(np.float32).astype(dtype.numpy)


def execute(mnemonic, given_operands, seed):
    """Run one instruction; return its written operands and the twin's, by name, or None where it is not legal."""
    kernel = Kernel(TRN2, Program(TRN2.name, TRN2.generation), team=Mirror())
    rows, values, tensors, passed = {}, {}, {}, {}
    with run(kernel):
        for place, (name, value) in enumerate(given_operands.items()):
            passed[name] = value
            if not isinstance(value, Tile):
                values[name] = value
                continue
            try:
                tensor = kernel.allocate(value.shape, value.dtype, value.memory, name)
            except IllegalOperand:
                return None
            tensor.array()[...] = elements(value, value.dtype, (seed, place), mnemonic in CLOSE).reshape(value.shape)
            tensor.allocation.storage.mark(tensor, WRITTEN)
            rows[name] = tensor.array().reshape(value.shape[0], -1).copy()
            passed[name] = tensors[name] = tensor
        try:
            _catalogue.instructions()[mnemonic](**passed)
        except (IllegalOperand, UnknownBehavior, OutOfBounds):
            return None
        written = {
            name: tensors[name].array().reshape(len(rows[name]), -1)
            for name, operand in operands(mnemonic).items()
            if operand is not None and operand.access is not Access.READ and name in tensors
        }
    expected = twins.TWINS[mnemonic](twins.Given(rows, values))
    return {name: (found, expected[name]) for name, found in written.items()}


def check(name, count):
    """Compare some random calls of an instruction with the twin."""
    tried = Counter()
    calls = [call for call in examples(name).calls if is_plain(call)]

    @settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=[Phase.generate],
    )
    @given(st.data(), st.integers(0, 2**16))
    def property_test(data, seed):
        drawn = redrawn(data.draw, data.draw(st.sampled_from(calls)))
        pairs = execute(name, drawn, seed)
        tried["legal" if pairs else "not"] += 1
        for operand, (found, expected) in (pairs or {}).items():
            assert found.dtype == expected.dtype
            both = [rows.astype(np.float64) for rows in (found, expected)]
            message = f"{operand} of {name}({drawn})"
            if name in CLOSE:
                tolerance = 1e-5 if found.dtype == np.float32 else 1e-2
                apart = 1 if found.dtype.kind in "iu" else tolerance  # a half may round to either side
                np.testing.assert_allclose(*both, rtol=tolerance, atol=apart, err_msg=message)
            else:
                np.testing.assert_array_equal(*both, err_msg=message)

    property_test()
    assert tried["legal"] >= count // 10, tried


@pytest.mark.parametrize("name", sorted(twins.TWINS))
def test_random_calls_are_the_twins(name):
    check(name, 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(twins.TWINS))
def test_many_random_calls_are_the_twins(name):
    check(name, 500)


def test_every_instruction_has_a_property_test():
    """Here, or where this file says; the bits of random numbers have no text to be written from (test_rng.py)."""
    states = {"rng", "set_rng_seed", "rand_get_state", "rand_set_state"}
    assert {*twins.TWINS, *ELSEWHERE, *states} == set(_catalogue.instructions())
    for place in ELSEWHERE.values():
        file, _, function = place.partition("::")
        text = (Path(__file__).parent / file).read_text(encoding="utf-8")
        assert not function or re.search(rf"@given(.|\n)*?def {function}\(", text), place


def test_a_wrong_instruction_is_found(monkeypatch):
    cls = _catalogue.instructions()["tensor_scalar"].instruction
    right = cls.execute

    def wrong(self, lanes):
        self.reverse0 = False
        right(self, lanes)

    monkeypatch.setattr(cls, "execute", wrong)
    with pytest.raises(AssertionError):
        check("tensor_scalar", 40)
