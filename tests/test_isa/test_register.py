"""Scalar registers: what they hold, where they place views, and what they refuse."""

from __future__ import annotations

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neurosim
from neurosim.analysis.dependences import Dependence, dependences
from neurosim.engines import Memory
from neurosim.errors import IllegalOperand, OutOfBounds, Uninitialized, UnknownBehavior, Unsupported

F = np.float32
DATA = np.arange(24, dtype=F).reshape(4, 6)
INTEGERS = {"int8": nl.int8, "int16": nl.int16, "int32": nl.int32, "uint8": nl.uint8, "uint16": nl.uint16}


def run(kernel, *args, **options):
    return neurosim.simulate(kernel, **options)(*args)


def through_a_register(source, target):
    """Return a kernel that loads one element of its argument, and stores it as another dtype."""

    def kernel(x):
        tile, out = nl.load(x), nl.ndarray((1, 1), target, nl.shared_hbm)
        register = nisa.register_alloc()
        nisa.register_load(register, tile if source == "sbuf" else x)
        again = nisa.register_alloc(-1)
        nisa.register_move(again, register)
        nisa.register_store(out, again)
        return out

    return kernel


@given(name=st.sampled_from(sorted(INTEGERS)), source=st.sampled_from(["sbuf", "hbm"]), data=st.data())
def test_whole_numbers_go_through(name, source, data):
    limits = np.iinfo(name)
    value = data.draw(st.integers(int(limits.min), int(limits.max)))
    argument = np.array([[value]], name)
    assert run(through_a_register(source, INTEGERS[name]), argument).outputs == argument
    assert run(through_a_register(source, nl.int32), argument).outputs == value


def test_a_number_of_more_than_31_bits_keeps_its_bits():
    value = np.array([[0xFFFFFFFE]], np.uint32)
    assert run(through_a_register("sbuf", nl.uint32), value).outputs == 0xFFFFFFFE
    with pytest.raises(UnknownBehavior, match="4294967294 does not fit int32"):
        run(through_a_register("sbuf", nl.int32), value)


def test_floats_keep_their_bits():
    value = np.array([[-1.5]], F)
    assert run(through_a_register("sbuf", nl.float32), value).outputs == value
    half = value.astype(nl.bfloat16)
    assert run(through_a_register("hbm", nl.bfloat16), half).outputs == half


@pytest.mark.parametrize(("dtype", "target"), [("float32", nl.int32), ("int32", nl.float32), ("float32", nl.bfloat16)])
def test_a_float_is_no_whole_number(dtype, target):
    with pytest.raises(UnknownBehavior, match=r"register_store: register again holds"):
        run(through_a_register("sbuf", target), np.ones((1, 1), dtype))


def test_a_number_that_does_not_fit_the_target():
    with pytest.raises(UnknownBehavior, match="register_store: 300 does not fit int8"):
        run(through_a_register("sbuf", nl.int8), np.array([[300]], np.int32))


def test_registers_of_the_documentation():
    def kernel():
        out = nl.ndarray((1, 4), nl.int32, nl.shared_hbm)
        zero, five = nisa.register_alloc(0), nisa.register_alloc(nl.full((1, 1), 5, nl.int32))
        ten = nisa.register_alloc(None)
        nisa.register_move(ten, 10)
        copied = nisa.register_alloc()
        nisa.register_move(dst=copied, src=ten)
        nisa.register_move(ten, -11)
        for place, register in enumerate((zero, five, copied, ten)):
            nisa.register_store(out[0:1, place : place + 1], register)
        assert isinstance(zero, nisa.VirtualRegister)
        return out

    assert run(kernel).outputs.tolist() == [[0, 5, 10, -11]]


@pytest.mark.parametrize(
    "use",
    [
        lambda r, x, out: nisa.register_store(out[0:1, 0:1], r),
        lambda r, x, out: nisa.register_move(nisa.register_alloc(), r),
        lambda r, x, out: nisa.dma_copy(dst=out, src=x[r].reshape((1, 6))),
        lambda r, x, out: nl.fori_loop(0, r, lambda i: None),
        lambda r, x, out: nl.while_loop(r, lambda i: i),
    ],
)
def test_an_unwritten_register(use):
    def kernel(x):
        out = nl.ndarray((1, 6), nl.float32, nl.shared_hbm)
        use(nisa.register_alloc(), x, out)
        return out

    with pytest.raises(Uninitialized, match=r"register_\d+") as caught:
        run(kernel, DATA)
    assert caught.value.where


def test_a_hole_is_no_value():
    def kernel(x):
        tile = nl.ndarray((1, 2), nl.int32)
        nisa.memset(dst=tile[0:1, 0:1], value=1)
        nisa.register_alloc(tile[0:1, 1:2])

    with pytest.raises(Uninitialized, match="register_load: src"):
        run(kernel, DATA)


# -- views that a register places -------------------------------------------------------------------------------------

VIEWS = {
    "brackets": (lambda x, r: x[r], lambda x, i: x[i], 4),
    "inner": (lambda x, r: x[:, r], lambda x, i: x[:, i], 6),
    "ds": (lambda x, r: x[nl.ds(r, 2)], lambda x, i: x[i : i + 2], 3),
    "inner ds": (lambda x, r: x[1:3, nl.ds(r, 3)], lambda x, i: x[1:3, i : i + 3], 4),
    "select": (lambda x, r: x.select(0, r), lambda x, i: x[i], 4),
    "ap": (
        lambda x, r: x.ap([[6, 2], [1, 3]], scalar_offset=r, indirect_dim=0),
        lambda x, i: x[i : i + 2, 0:3],
        3,
    ),
}


def copied(view, index, store):
    """Return what a kernel loads from, or stores into, a view that a register places."""

    def kernel(x):
        out = nl.ndarray((4, 6), nl.float32, nl.shared_hbm)
        register = nisa.register_alloc(index)
        place = view(out if store else x, register)
        if store:
            nl.store(out, nl.zeros((4, 6), nl.float32))
            tile = nl.full((1, place.size), 7.0, nl.float32)
            nisa.dma_copy(dst=place, src=tile.reshape((1, *place.shape)).reshape((1, place.size)))
            return out
        tile = nl.ndarray((1, place.size), nl.float32)
        nisa.dma_copy(dst=tile, src=place)
        found = nl.ndarray(tile.shape, nl.float32, nl.shared_hbm)
        nl.store(found, tile)
        return found

    return run(kernel, DATA).outputs


@given(name=st.sampled_from(sorted(VIEWS)), data=st.data())
def test_a_view_that_a_register_places(name, data):
    view, twin, count = VIEWS[name]
    index = data.draw(st.integers(0, count - 1))
    assert copied(view, index, store=False).tolist() == [twin(DATA, index).reshape(-1).tolist()]
    expected = np.zeros((4, 6), F)
    twin(expected, index)[...] = 7
    assert copied(view, index, store=True).tolist() == expected.tolist()


@pytest.mark.parametrize("name", sorted(VIEWS))
@pytest.mark.parametrize("index", [-1, 1000])
def test_a_register_out_of_bounds(name, index):
    """C8: past the end is an error with the register's value."""
    view, _, count = VIEWS[name]
    with pytest.raises(OutOfBounds, match=f"index {index} .*") as caught:
        copied(view, index, store=False)
    assert f"{count} indices are valid" in str(caught.value)
    assert "register register" in str(caught.value)


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (lambda t, x, r: t[r], "axis 0 is the partition axis"),
        (lambda t, x, r: t.select(0, r), "axis 0 of .* is the partition axis"),
        (lambda t, x, r: x[r, r], "one register places a view"),
        (lambda t, x, r: x[r][nl.ds(r, 1)], "one register places a view"),
        (lambda t, x, r: r[0], "a register is one scalar"),
        (lambda t, x, r: r[0:1,], "a register is one scalar"),
        (lambda t, x, r: r[:], "a register is one scalar"),
        (lambda t, x, r: x.vector_select(0, r), "the index is register"),
    ],
)
def test_views_that_a_register_cannot_place(view, message):
    with pytest.raises(IllegalOperand, match=message) as caught:
        run(lambda x: view(nl.load(x), x, nisa.register_alloc(1)), DATA)
    assert caught.value.where


def test_a_float_is_no_index():
    def kernel(x):
        register = nisa.register_alloc(nl.ones((1, 1), nl.float32))
        nl.load(x[nl.ds(register, 1)])

    with pytest.raises(UnknownBehavior, match="holds float32 and is used as a whole number"):
        run(kernel, DATA)


def test_loads_from_a_place_that_a_register_says():
    def kernel(x):
        out = nl.ndarray((1, 1), nl.float32, nl.shared_hbm)
        register = nisa.register_alloc()
        nisa.register_load(register, x[2:3, nl.ds(nisa.register_alloc(4), 1)])
        nisa.register_store(out, register)
        return out

    assert run(kernel, DATA).outputs == DATA[2, 4]


# -- what registers refuse --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        lambda r: r + 1,
        lambda r: 2 * r,
        lambda r: -r,
        lambda r: r // 2,
        lambda r: r < 3,
        lambda r: r == 0,
        lambda r: r != 0,
        lambda r: range(r),
        lambda r: int(r),
        lambda r: float(r),
        lambda r: [0, 1][r],
        lambda r: 1 if r else 2,
        lambda r: not r,
    ],
)
def test_python_cannot_compute_with_a_register(use):
    with pytest.raises(IllegalOperand, match="register_2") as caught:
        run(lambda x: use(nisa.register_alloc(3)), DATA)
    assert "register" in caught.value.advice or "while" in caught.value.advice


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r, t: nisa.register_move(r, 1 << 31), "no whole number of 32 bits"),
        (lambda r, t: nisa.register_move(r, 1.0), "no whole number of 32 bits"),
        (lambda r, t: nisa.register_move(r, t), "src is in SBUF; it must be a register"),
        (lambda r, t: nisa.register_move(5, r), "dst is 5 .*; it must be a register"),
        (lambda r, t: nisa.register_move(r, imm=5), "no operand 'imm'"),
        (lambda r, t: nisa.register_load(r, t), "src has 24 elements; a register holds one"),
        (lambda r, t: nisa.register_load(r, r), "src is a register; it must be a tensor in SBUF or HBM"),
        (lambda r, t: nisa.register_load(t, t), "dst is in SBUF; it must be a register"),
        (lambda r, t: nisa.register_store(t, r), "dst has 24 elements; a register holds one"),
        (lambda r, t: nisa.register_store(r, t), "dst is a register; it must be a tensor in SBUF or HBM"),
        (lambda r, t: nisa.register_alloc("5"), "src is '5'"),
        (
            lambda r, t: nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=r),
            "operand0 is a register; it must be a tensor in SBUF or PSUM",
        ),
        (
            lambda r, t: nisa.register_load(r, nl.ndarray((1, 1), nl.int32, nl.psum)),
            "register_load: src is in PSUM; it must be in SBUF or HBM",
        ),
    ],
)
def test_operands_that_are_refused(call, message):
    with pytest.raises(IllegalOperand, match=message):
        run(lambda x: call(nisa.register_alloc(0), nl.load(x)), DATA)


def test_registers_print_their_value(capsys):
    def kernel(x):
        nl.device_print("unset", nisa.register_alloc())
        nl.device_print("set", nisa.register_alloc(-3))

    run(kernel, DATA)
    assert capsys.readouterr().out.splitlines() == [
        "unset register register_2, never written",
        "set register register_3 = -3",
    ]


# -- the record -------------------------------------------------------------------------------------------------------


def chain(x):
    out = nl.ndarray((1, 1), nl.int32, nl.shared_hbm)
    tile = nl.load(x)
    register = nisa.register_alloc()
    nisa.register_load(register, tile)
    other = nisa.register_alloc()
    nisa.register_move(other, register)
    nisa.register_store(out, other)
    return out


def test_registers_are_operands_of_the_record():
    program = run(chain, np.ones((1, 1), np.int32)).program
    assert [record.signature.instruction for record in program] == [
        "dma_copy",
        "register_load",
        "register_move",
        "register_store",
    ]
    assert [dependences(program).of(record) for record in (1, 2, 3)] == [[(i, Dependence.RAW)] for i in (0, 1, 2)]
    registers = [info for info in program.storages if info.memory is Memory.state]
    assert [(info.role, info.dtype, info.row_bytes) for info in registers] == [("state", nl.int32, 4)] * 2


def test_times_of_register_instructions():
    """Each waits for what it reads, and takes the time that the device file says."""
    result = neurosim.profile(chain)(np.ones((1, 1), np.int32))
    line, figures = result.timeline, result.chip.sequencer
    spans = [line.complete_ps[record] - line.start_ps[record] for record in (1, 2, 3)]
    assert spans == [1000 * ns for ns in (figures.sbuf_load_ns, figures.move_ns, figures.hbm_store_ns)]
    assert line.start_ps[1] >= line.complete_ps[0]


def test_runs_without_values():
    """What a kernel sets is known; what it loads is not."""

    def known(x):
        out = nl.ndarray((1, 6), nl.float32, nl.shared_hbm)
        register = nisa.register_alloc(3)
        nisa.dma_copy(dst=out, src=nl.load(x[register].reshape((1, 6))))
        return out

    neurosim.simulate(known, values=False)(neurosim.spec((4, 6), "float32"))
    with pytest.raises(OutOfBounds, match="index 3"):
        neurosim.simulate(known, values=False)(neurosim.spec((2, 6), "float32"))

    def unknown(x, n):
        nl.fori_loop(0, nisa.register_alloc(nl.load(n)), lambda i: [nl.load(x[nl.ds(i, 1)])].clear())

    with pytest.raises(Unsupported, match="its value is needed, and this run computes none"):
        neurosim.simulate(unknown, values=False)(neurosim.spec((4, 6), "float32"), neurosim.spec((1, 1), "int32"))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda tile, register: nl.fori_loop(0, register, lambda i: None), "and is used as a whole number"),
        (lambda tile, register: nisa.register_store(tile, register), "and dst is int32: the manual does not say how"),
    ],
)
def test_a_scale_is_no_whole_number(use, message):
    def kernel(x):
        tile = nl.ndarray((1, 1), nl.float8_e8m0fnu)
        nisa.dma_copy(dst=tile, src=x.view(nl.float8_e8m0fnu))
        use(nl.ndarray((1, 1), nl.int32), nisa.register_alloc(tile))

    with pytest.raises(UnknownBehavior, match=f"holds float8_e8m0fnu {message}"):
        neurosim.simulate(kernel, "trn3")(np.array([[200]], np.uint8))
