"""What every instruction gets from its declaration: checking, error text, order, the record."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.engines import Engine
from neurosim.errors import IllegalCall, IllegalOperand, KernelError, NkiValidationError, Uninitialized
from neurosim.execution.calls import OlderSpellingWarning
from neurosim.execution.handle import NkiInstruction
from neurosim.instruction import Instruction
from neurosim.program import Access

F = np.float32
CALLS = {
    "dma_copy": lambda t: {"dst": t, "src": t},
    "tensor_copy": lambda t: {"dst": t, "src": t},
    "memset": lambda t: {"dst": t, "value": 0.0},
    "nc_matmul": lambda t: {"dst": t, "stationary": t, "moving": t},
    "nc_transpose": lambda t: {"dst": t, "data": t},
    "tensor_tensor": lambda t: {"dst": t, "data1": t, "data2": t, "op": nl.add},
    "tensor_scalar": lambda t: {"dst": t, "data": t, "op0": nl.add, "operand0": 1.0},
    "tensor_reduce": lambda t: {"dst": t, "op": nl.add, "data": t, "axis": 1},
    "activation": lambda t: {"dst": t, "op": nl.exp, "data": t},
    "activation_reduce": lambda t: {"dst": t, "op": nl.exp, "data": t, "reduce_op": nl.add, "reduce_res": t},
    "iota": lambda t: {"dst": t, "pattern": [[1, 4]]},
    "affine_select": lambda t: {
        "dst": t,
        "pattern": [[1, 4]],
        "channel_multiplier": 0,
        "on_true_tile": t,
        "on_false_value": 0.0,
    },
    "reciprocal": lambda t: {"dst": t, "data": t},
}


def in_kernel(body, *arrays):
    """Run ``body`` on a written [4, 4] float32 tile (and HBM tensors of ``arrays``); return the result."""

    def kernel(*tensors):
        tile = nl.ndarray((4, 4), nl.float32, nl.sbuf, name="t")
        nisa.memset(dst=tile, value=1.0)
        return body(tile, *tensors)

    return neurosim.simulate(kernel)(*arrays)


# -- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CALLS)
def test_a_misspelt_operand_names_the_right_one(name):
    """F2: for each operand of each instruction."""
    instruction = getattr(nisa, name)
    for operand in CALLS[name](None):
        wrong = operand[:-2] + operand[-1] if len(operand) > 3 else operand + "x"

        def body(tile, operand=operand, wrong=wrong):
            given = CALLS[name](tile)
            given[wrong] = given.pop(operand)
            instruction(**given)

        with pytest.raises(IllegalCall) as caught:
            in_kernel(body)
        assert isinstance(caught.value, TypeError)
        assert isinstance(caught.value, NkiValidationError)
        text = str(caught.value)
        assert text.startswith(f"{name}: no operand {wrong!r}")
        assert f"did you mean {operand}?" in text
        assert "test_instruction.py:" in caught.value.where[0]


@pytest.mark.parametrize("name", CALLS)
def test_a_missing_operand_is_named(name):
    instruction = getattr(nisa, name)
    for operand in CALLS[name](None):

        def body(tile, operand=operand):
            given = CALLS[name](tile)
            del given[operand]
            instruction(**given)

        with pytest.raises(IllegalCall, match=f"{name}: missing .*{operand!r}"):
            in_kernel(body)


def test_too_many_and_double_operands():
    with pytest.raises(IllegalCall, match="reciprocal: takes from 3 to 4 positional arguments but 5 were given"):
        in_kernel(lambda t: nisa.reciprocal(t, t, None, 1))
    with pytest.raises(IllegalCall, match="reciprocal: got multiple values for argument 'dst'"):
        in_kernel(lambda t: nisa.reciprocal(t, dst=t, data=t))


def test_operands_by_position_are_in_nki_order():
    array = np.arange(16, dtype=F).reshape(4, 4)

    def body(tile, x):
        nisa.dma_copy(tile, x)
        nisa.tensor_tensor(tile, tile, tile, nl.multiply)
        nisa.tensor_scalar(tile, tile, nl.add, 1.0, False, nl.multiply, 2.0)
        nisa.activation(tile, nl.copy, tile, 0.5, 2.0)
        out = nl.ndarray((4, 4), nl.float32, nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    np.testing.assert_array_equal(in_kernel(body, array).outputs, (array * array + 1) * 2 * 2 + F(0.5))


@pytest.mark.parametrize("name", CALLS)
def test_outside_of_a_kernel(name):
    with pytest.raises(KernelError, match=rf"nisa\.{name} was called outside of a kernel"):
        getattr(nisa, name)(**CALLS[name](None))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.zeros((4, 4), F), r"a NumPy array \[4, 4\] float32"),
        (1.0, r"1.0 \(float\)"),
        (None, r"None \(NoneType\)"),
        ("t", r"'t' \(str\)"),
        ([1, 2], r"\[1, 2\] \(list\)"),
    ],
)
def test_an_operand_that_is_no_tensor(value, kind):
    with pytest.raises(IllegalOperand, match=f"reciprocal: data is {kind}; it must be a tensor"):
        in_kernel(lambda t: nisa.reciprocal(dst=t, data=value))
    with pytest.raises(IllegalOperand, match=f"reciprocal: dst is {kind}; it must be a tensor"):
        in_kernel(lambda t: nisa.reciprocal(dst=value, data=t))


def test_errors_are_nki_validation_errors():
    assert nisa.NkiValidationError is NkiValidationError
    with pytest.raises(nisa.NkiValidationError):
        in_kernel(lambda t: nisa.reciprocal(dst=t[:, 0:2], data=t))


# -- double writes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("nc_matmul", "dma_copy")])
def test_broadcast_views_are_read_only(name):
    def body(tile):
        given = CALLS[name](tile)
        # a reduction alone may be wanted, with dst one column: step 0 is then no mistake, an overlap still is
        overlap = name == "activation_reduce"
        given["dst"] = tile.ap([[4, 4], [1, 2], [1, 2]]) if overlap else tile[:, 0:1].broadcast(1, 4)
        getattr(nisa, name)(**given)

    with pytest.raises(IllegalOperand, match=f"{name}: dst .* reaches the same element twice"):
        in_kernel(body)


def test_overlapping_steps_are_a_double_write_too():
    with pytest.raises(IllegalOperand, match="reaches the same element twice"):
        in_kernel(lambda t: nisa.memset(dst=t.ap([[4, 4], [1, 2], [1, 2]]), value=0.0))


# -- handles ----------------------------------------------------------------------------------------------------------


def test_calls_return_handles():
    seen = {}

    def body(tile):
        seen["first"] = nisa.memset(dst=tile, value=0.0, name="zero")
        seen["second"] = nisa.reciprocal(dst=tile, data=tile)
        assert seen["second"].depends_on(seen["first"]) is seen["second"]
        third = nisa.reciprocal(dst=tile, data=tile).depends_on(seen["second"], seen["first"])
        assert isinstance(third, nisa.NkiInstruction)

    program = in_kernel(body).program
    assert isinstance(seen["first"], NkiInstruction)
    assert seen["first"].name == "zero"
    assert repr(seen["second"]) == "NkiInstruction(reciprocal, 2)"
    assert program.names == {1: "zero"}
    assert program.edges == [(2, 1), (3, 2), (3, 1)]
    assert program.record(1).name == "zero"
    assert program.record(2).name is None


def test_depends_on_takes_earlier_instructions_of_the_kernel():
    kept = {}

    def first(tile):
        kept["handle"] = nisa.memset(dst=tile, value=0.0)

    in_kernel(first)

    def other(tile):
        nisa.memset(dst=tile, value=0.0).depends_on(kept["handle"])

    def later(tile):
        handle = nisa.memset(dst=tile, value=0.0)
        handle.depends_on(handle)

    def wrong(tile):
        nisa.memset(dst=tile, value=0.0).depends_on("zero")

    for body in (other, later, wrong):
        with pytest.raises(IllegalOperand, match="is not an earlier instruction of this kernel"):
            in_kernel(body)


# -- the record -------------------------------------------------------------------------------------------------------


def test_equal_instructions_share_a_signature():
    """What repeats is recorded once: other tiles, other places, equal patterns."""

    def kernel():
        for _ in range(5):
            a = nl.ndarray((64, 32), nl.float32, nl.sbuf)
            nisa.memset(dst=a, value=0.0)
            for column in range(4):
                nisa.memset(dst=a[:, column * 8 : column * 8 + 8], value=1.0)

    program = neurosim.simulate(kernel)().program
    assert len(program) == 25
    assert len(program.signatures) == 2
    assert [record.slots[0][1] for record in program][:5] == [0, 0, 32, 64, 96]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: nisa.memset(dst=t, value=2.0),
        lambda t: nisa.memset(dst=t, value=1),
        lambda t: nisa.memset(dst=t[:, 0:3], value=1.0),
        lambda t: nisa.memset(dst=t[:, ::2], value=1.0),
        lambda t: nisa.memset(dst=t[0:3], value=1.0),
        lambda t: nisa.memset(dst=t, value=1.0, engine=nisa.engine.gpsimd),
        lambda t: nisa.memset(dst=t.view(nl.int32), value=1),
        lambda t: nisa.memset(dst=t.reshape((4, 2, 2)), value=1.0),
        lambda t: nisa.memset(dst=nl.ndarray((4, 4), nl.float32, nl.psum), value=1.0),
        lambda t: nisa.memset(dst=nl.ndarray((4, 8), nl.float32, nl.sbuf)[:, 0:4], value=1.0),
    ],
)
def test_anything_that_differs_makes_another_signature(change):
    assert len(in_kernel(change).program.signatures) == 2


def test_a_signature_seen_before_says_nothing_of_memory():
    """The same call on other tiles: what was never written raises, and a written argument stays the caller's."""

    def unwritten(tile):
        for fresh in (False, True):
            source = nl.ndarray((4, 4), nl.float32, nl.sbuf, name="source") if fresh else tile
            nisa.tensor_copy(dst=nl.ndarray((4, 4), nl.float32, nl.sbuf), src=source)

    with pytest.raises(Uninitialized, match="source"):
        in_kernel(unwritten)

    given = np.arange(16, dtype=F).reshape(4, 4)

    def written(tile, argument):
        before = argument[0:2, 0:4]
        for _ in range(2):
            nisa.dma_copy(dst=nl.ndarray((4, 4), nl.float32, nl.shared_hbm), src=tile)
            nisa.dma_copy(dst=argument.reshape((4, 4)), src=tile)
        out = nl.ndarray((2, 4), nl.float32, nl.shared_hbm)
        nisa.dma_copy(dst=out, src=before)
        return out, argument

    kept = given.copy()
    out, _ = in_kernel(written, kept).outputs
    assert (out == 1.0).all()  # the view was made before the argument got bytes of its own


def test_a_signature_seen_before_takes_no_tile_of_another_run_nor_one_that_was_overwritten():
    kept = []

    def keep(tile):
        kept.append(tile)
        nisa.tensor_copy(dst=nl.ndarray((4, 4), nl.float32, nl.sbuf), src=tile)

    def foreign(tile):
        for source in (tile, kept[0]):
            nisa.tensor_copy(dst=nl.ndarray((4, 4), nl.float32, nl.sbuf), src=source)

    def overwritten(tile):
        placed = [nl.ndarray((4, 4), nl.float32, nl.sbuf, address=(0, 0)) for _ in range(2)]
        for target in placed:
            nisa.tensor_copy(dst=target, src=tile)
        for source in placed[::-1]:
            nisa.tensor_copy(dst=tile, src=source)

    in_kernel(keep)
    with pytest.raises(IllegalOperand, match="another run"):
        in_kernel(foreign)
    with pytest.raises(KernelError, match="overwr"):
        in_kernel(overwritten)


def test_a_tile_of_a_loop_that_was_left_is_refused_in_a_call_like_others():
    def body(tile):
        out, inner = nl.ndarray((4, 4), nl.float32, nl.sbuf), []

        def trip(_):
            inner.append(nl.ndarray((4, 4), nl.float32, nl.sbuf))
            nisa.memset(dst=inner[0], value=1.0)
            nisa.tensor_copy(dst=out, src=inner[0])

        nl.fori_loop(0, 2, trip)
        nisa.tensor_copy(dst=out, src=tile)
        nisa.tensor_copy(dst=out, src=inner[0])

    with pytest.raises(IllegalOperand, match="a loop that was left"):
        in_kernel(body)


def test_rules_are_checked_for_each_pattern():
    """A legal call does not hide an illegal one of another shape, nor one at another place in a PSUM bank."""

    def body(tile):
        small = nl.ndarray((4, 1024), nl.float32, nl.psum)
        nisa.nc_matmul(dst=small[:, 0:4], stationary=tile, moving=tile)
        nisa.nc_matmul(dst=small[:, 508:512], stationary=tile, moving=tile)
        nisa.nc_matmul(dst=small[:, 510:514], stationary=tile, moving=tile)

    with pytest.raises(IllegalOperand, match="covers bytes 2040 to 2055"):
        in_kernel(body)


def test_a_record_reads_like_the_call():
    def kernel(a):
        tile = nl.ndarray((64, 32), nl.bfloat16, nl.sbuf, name="tile")
        nisa.dma_copy(dst=tile[:, 8:16], src=a[64:128, ::2], name="load")
        nisa.activation(dst=tile[0:32, 8:16], op=nl.exp, data=tile[0:32, 8:16], scale=0.5)

    program = neurosim.simulate(kernel)(np.zeros((128, 16), F)).program
    load, exp = program
    assert load.signature.instruction == "dma_copy"
    assert (load.name, load.core, load.block, load.index) == ("load", 0, -1, 0)
    dst, src = load.signature.patterns
    assert (dst.role, dst.access, dst.memory, dst.dtype) == ("dst", Access.WRITE, nl.sbuf, nl.bfloat16)
    assert (dst.shape, dst.steps, dst.partition_axis, dst.start_partition) == ((64, 8), (1, 1), 0, 0)
    assert dst.row_bytes == 64
    assert (src.role, src.access, src.dtype, src.shape) == ("src", Access.READ, nl.float32, (64, 8))
    assert (src.steps, src.partition_axis, src.row_bytes) == ((16, 2), -1, 0)
    assert [slot[1] for slot in load.slots] == [16, 64 * 16 * 4]
    assert [program.storages[slot[0]].name for slot in load.slots] == ["tile", "a"]
    assert exp.signature.engine is Engine.scalar
    parameters = dict(exp.signature.parameters)
    assert parameters["scale"] == 0.5
    assert repr(parameters["op"]) == "nl.exp"
    assert "dst" not in parameters


def test_a_failed_call_records_nothing():
    def body(tile):
        with pytest.raises(IllegalOperand):
            nisa.reciprocal(dst=tile[:, 0:2], data=tile)
        with pytest.raises(Uninitialized):
            nisa.reciprocal(dst=tile, data=nl.ndarray((4, 4), nl.float32, nl.sbuf))
        nisa.reciprocal(dst=tile, data=tile)

    program = in_kernel(body).program
    assert [record.signature.instruction for record in program] == ["memset", "reciprocal"]
    assert len(program.signatures) <= 2


# -- where ------------------------------------------------------------------------------------------------------------


def helper(tile):
    nisa.reciprocal(dst=tile, data=tile)


def line_of(function, offset):
    return function.__code__.co_firstlineno + offset


def frames(stack):
    return [(frame.function, frame.line) for frame in stack]


def test_call_stacks_name_kernel_lines_innermost_first():
    """F6, F7: helpers, loops, lambdas and comprehensions, and none of the simulator's own frames."""

    def body(tile):
        helper(tile)
        nisa.reciprocal(
            dst=tile,
            data=tile,
        )
        [helper(tile) for _ in range(1)]
        (lambda: helper(tile))()

    def kernel():
        tile = nl.ndarray((4, 4), nl.float32, nl.sbuf)
        nisa.memset(dst=tile, value=1.0)
        body(tile)

    program = neurosim.simulate(kernel)().program
    here = [("body", line_of(body, 1)), ("kernel", line_of(kernel, 3))]
    call = [("helper", line_of(helper, 1))]
    assert frames(program.where(0)) == [("kernel", line_of(kernel, 2))]
    assert frames(program.where(1)) == call + here
    assert frames(program.where(2)) == [("body", line_of(body, 2)), here[1]]
    assert frames(program.where(3))[0] == call[0]
    assert frames(program.where(3))[-1] == here[1]
    assert [name for name, _ in frames(program.where(4))][:2] == ["helper", "<lambda>"]
    assert all(frame.file.endswith("tests/test_execution/test_instruction.py") for frame in program.where(4))


def test_two_calls_on_one_line_and_in_a_helper():
    """F6: the message names the call stack inside the kernel, helper first."""

    def kernel():
        tile = nl.ndarray((4, 4), nl.float32, nl.sbuf)
        nisa.memset(dst=tile, value=1.0)
        _ = (helper(tile), helper(tile[:, 0:1].broadcast(1, 2)))

    with pytest.raises(IllegalOperand) as caught:
        neurosim.simulate(kernel)()
    file = "tests/test_execution/test_instruction.py"
    first, second = caught.value.where
    assert first.endswith(f"{file}:{line_of(helper, 1)}  in helper")
    assert second.endswith(f"{file}:{line_of(kernel, 3)}  in kernel")


def test_errors_carry_their_parts():
    def kernel():
        tile = nl.ndarray((4, 4), nl.float32, nl.sbuf, name="mine")
        nisa.memset(dst=tile, value=1.0)
        nisa.reciprocal(dst=tile[:, 0:3], data=tile)

    with pytest.raises(IllegalOperand) as caught:
        neurosim.simulate(kernel)()
    error = caught.value
    assert error.what == "reciprocal: dst has 3 elements per partition and data has 4"
    assert len(error.where) == 1
    assert error.numbers == (
        "dst   [4, 3] float32 in SBUF, a view of mine[4, 4] float32 in SBUF",
        "data  mine [4, 4] float32 in SBUF",
    )
    assert error.advice.startswith("NKI does not broadcast by itself")
    assert str(error) == "\n  ".join([error.what, *error.where, *error.numbers, error.advice])


def test_a_label_that_is_no_string_leaves_no_effects():
    seen = {}

    def kernel(a):
        tile = nl.ndarray(a.shape, a.dtype, nl.sbuf)
        nisa.dma_copy(dst=tile, src=a)
        with pytest.raises(IllegalOperand, match="name=7 is not a string"):
            nisa.memset(dst=tile, value=5.0, name=7)
        seen["tile"] = tile.array().copy()

    neurosim.simulate(kernel)(np.ones((4, 4), np.float32))
    assert (seen["tile"] == 1).all()


def test_dtype_of_older_releases_may_repeat_what_dst_says():
    """Kernels written before NKI 0.2 still give dtype= next to dst=."""

    def body(x):
        tile = nl.load(x)
        nisa.tensor_copy(dst=tile, src=tile, dtype=x.dtype)
        nisa.activation(tile, nl.exp, tile, dtype=np.float32)
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nl.store(out, tile)
        return out

    ones = np.ones((4, 4), F)
    np.testing.assert_allclose(nki.simulate(body)(ones), np.exp(ones), rtol=1e-6)


def test_an_engine_writes_what_dst_is_and_another_dtype_warns():
    """A sample of the vendor's copies with dtype=bfloat16 into a float32 tile."""

    def body(x):
        tile = nl.load(x)
        nisa.tensor_copy(dst=tile, src=tile, dtype=nl.bfloat16)
        out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
        nl.store(out, tile)
        return out

    thirds = np.full((4, 4), 1 / 3, F)
    with pytest.warns(OlderSpellingWarning, match="dtype=bfloat16 is not what dst is; the result is float32") as caught:
        np.testing.assert_array_equal(nki.simulate(body)(thirds), thirds)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: nisa.tensor_copy(dst=t, src=t, dtype="half"), "dtype='half', and dst is float32"),
        (lambda t: nisa.tensor_copy(dst=t, src=t, dtype=nl.float32, mask=None), "no operand 'mask'"),
        (lambda t: nisa.tensor_copy(dst=t, dtype=nl.float32), "missing 1 required"),
        (lambda t: nisa.tensor_copy(dst=None, src=t, dtype=nl.float32), "dtype=float32, and dst is None"),
    ],
)
def test_dtype_that_is_not_what_dst_says(call, message):
    with pytest.raises(IllegalOperand, match=message):
        in_kernel(call)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: nisa.activation(dst=t, op=nl.exp, data=t, reduce_cmd=np.zeros((2, 2))),
        lambda t: nisa.tensor_copy(dst=t, src=t, engine=np.zeros(2)),
        lambda t: nisa.iota(dst=t, pattern=[[1, np.arange(4)]]),
    ],
)
def test_parameters_are_no_arrays(call):
    with pytest.raises(IllegalOperand, match="is a NumPy array") as caught:
        in_kernel(call)
    assert caught.value.where
    assert caught.value.advice


def test_all_operands_that_are_equally_near_are_named():
    with pytest.raises(IllegalCall) as caught:
        in_kernel(lambda tile: nisa.tensor_scalar(dst=tile, data=tile, op=nl.add, operand0=1.0))
    assert caught.value.advice == "did you mean op0 or op1?"


def test_a_part_that_a_predicate_left_out_is_said():
    """The message names the instruction that wrote the rest, which looks like the one that wrote it all."""

    def kernel(x, chosen):
        tile = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy_predicated(dst=tile, src=nl.load(x), predicate=nl.load(chosen))
        nl.store(nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm), tile)
        out = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    chosen = np.zeros((4, 8), np.uint8)
    chosen[0, :3] = 1
    with pytest.raises(Uninitialized, match="tensor_copy_predicated wrote 3 of 32 elements of it\n"):
        neurosim.simulate(kernel)(np.ones((4, 8), np.float32), chosen)


def test_an_instruction_says_what_it_does_and_how_long_it_takes():
    class Half(Instruction, mnemonic="half", engines=(Engine.vector,)):
        def execute(self, lanes):
            """Nothing."""

    with pytest.raises(TypeError, match=r"abstract method '?work"):
        Half()
