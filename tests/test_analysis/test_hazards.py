"""Data races: found exactly where two cores access the same bytes with no meeting in between."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import DataRace
from neurosim.hazards import races

F = np.float32
DATA = np.zeros((16, 24), F)


@pytest.fixture(autouse=True)
def zeros_again():
    """Kernels write into what they are given."""
    yield
    DATA[...] = 0


def on_two(body, *arrays, **options):
    return neurosim.simulate(nki.jit(body)[2], **options)(*arrays)


def write(view):
    row = nl.ndarray(view.shape, view.dtype)
    nisa.memset(row, value=float(nl.program_id(0)))
    nl.store(view, row)


def write_zeros(view):
    zeros = nl.ndarray(view.shape, view.dtype)
    nisa.memset(zeros, value=0.0)
    nl.store(view, zeros)


def caught(body, *arrays):
    with pytest.raises(DataRace, match="two cores access the same bytes") as found:
        on_two(body, *arrays)
    return found.value


def test_a_race_names_both_lines():
    def body(x):
        if nl.program_id(0):
            nl.load(x[4:8])
        else:
            write(x[7:9])

    error = caught(body, DATA)
    assert error.what.startswith("x[16, 24] float32 in HBM")
    assert [line.split(" at ")[0] for line in error.numbers] == [
        "core 0: dma_copy writes it",
        "core 1: dma_copy reads it",
        "both reach [7:8, 0:24]",
    ]
    assert all("test_hazards.py" in line for line in error.numbers[:2])
    assert "core_barrier" in error.advice
    assert "oob_mode" not in error.advice


@pytest.mark.parametrize(
    ("first", "second", "meets"),
    [
        ("write", "write", True),
        ("write", "read", True),
        ("read", "write", True),
        ("read", "read", False),
    ],
)
def test_one_of_the_two_writes(first, second, meets):
    def body(x):
        if (second if nl.program_id(0) else first) == "write":
            write(x[0:4])
        else:
            nl.load(x[0:4])

    if meets:
        caught(body, DATA)
    else:
        on_two(body, DATA)


def test_bytes_are_compared_exactly():
    """Column blocks of one tensor, every second column, and rows between each other's: none has a byte in common."""

    def halves(x):
        write(x[:, 12 * nl.program_id(0) : 12 * nl.program_id(0) + 12])

    def combs(x):
        write(x[:, nl.program_id(0) : 24 : 2])

    def rows(x):
        write(x[nl.program_id(0) : 16 : 2])

    for body in (halves, combs, rows):
        on_two(body, DATA)

    def meeting(x):
        write(x[:, 0:24:2] if nl.program_id(0) else x[:, 1:24:3])

    caught(meeting, DATA)


@pytest.mark.parametrize("how", ["barrier", "sendrecv"])
def test_a_meeting_orders_what_comes_before_and_after(how):
    def meet(x):
        if how == "barrier":
            nisa.core_barrier(x, (0, 1))
            return
        src, other = nl.load(x[8:9]), 1 - nl.program_id(0)
        dst = nl.ndarray(src.shape, src.dtype)
        nisa.sendrecv(src=src, dst=dst, send_to_rank=other, recv_from_rank=other, pipe_id=3)

    def good(x):
        if nl.program_id(0):
            write(x[0:4])
        meet(x)
        nl.load(x[0:4])

    on_two(good, DATA)

    def bad(x):
        meet(x)
        nl.load(x[0:4])
        if nl.program_id(0):
            write(x[0:4])
        meet(x)

    assert "core 1: dma_copy writes" in str(caught(bad, DATA))


def test_private_memory_and_one_core_never_race():
    def private(x):
        mine = nl.ndarray((4, 4), nl.float32, nl.private_hbm)
        write(mine)
        nl.load(mine)

    on_two(private, DATA)

    def alone(x):
        write(x[0:4])
        nl.load(x[0:4])

    assert list(races(neurosim.simulate(alone)(DATA).program)) == []


def test_a_shared_output_that_both_write():
    def body(x):
        out = nl.ndarray((4, 4), nl.float32, nl.shared_hbm)
        write(out)
        return out

    error = caught(body, DATA)
    assert error.numbers[0].startswith("core 0: dma_copy writes")
    assert error.numbers[1].startswith("core 1: dma_copy writes")


def test_without_values_races_are_found_too():
    def body(x):
        write(x[nl.program_id(0) : nl.program_id(0) + 4])

    with pytest.raises(DataRace):
        on_two(body, neurosim.spec((16, 24), "float32"), values=False)


@pytest.mark.parametrize("reads", [False, True])
def test_what_both_cores_store_alike_is_no_race(reads):
    """Kernels do so where dividing the work is not worth it; each core may read its own back."""

    def body(x, differs):
        out = nl.ndarray((4, 4), nl.float32, nl.shared_hbm)
        row = nl.ndarray((4, 4), nl.float32)
        nisa.memset(row, value=2.0 + (nl.program_id(0) if differs else 0))
        nl.store(out, row)
        if reads:
            nl.load(out[1:3])
        return out

    assert (on_two(body, DATA, False).outputs == 2).all()
    on_two(body, neurosim.spec((16, 24), "float32"), False, values=False)
    caught(body, DATA, True)


@pytest.mark.parametrize(("last", "reads"), [(5.0, False), (6.0, False), (5.0, True)])
def test_both_cores_may_go_the_same_way(last, reads):
    """Each fills with zeros and scatters values into them: in any order the values come last. Not so what is read."""

    def body(x, index):
        rows = nl.load(index)
        write_zeros(x)
        row = nl.ndarray((2, 24), nl.float32)
        nisa.memset(row, value=last if nl.program_id(0) else 5.0)
        nisa.dma_copy(dst=x.vector_select(0, rows), src=row)
        if reads:
            nl.load(x[0:1])

    index = np.array([[3], [9]], np.int32)
    if last == 5.0 and not reads:
        data = DATA.copy()
        on_two(body, data, index)
        assert (data[[3, 9]] == 5).all()
        assert data.sum() == 240
    else:
        caught(body, DATA.copy() + 1, index)


@pytest.mark.parametrize("value", [5.0, 6.0])
@pytest.mark.parametrize("wide", [0, 1])
@pytest.mark.parametrize("far", [slice(4, 8), slice(4, 24, 5)])
def test_equal_bytes_of_a_store_that_also_writes_others(wide, value, far):
    """One core stores some columns, the other the same bytes there and something else beside them."""

    def body(x):
        is_wide = nl.program_id(0) == wide
        row = nl.ndarray((4, 4), nl.float32)
        nisa.memset(row, value=value if is_wide else 5.0)
        nl.store(x[0:4, far], row)
        if is_wide:
            every = nl.ndarray((4, 24), nl.float32)
            nisa.memset(every, value=value)
            nl.store(x[0:4], every)

    if value == 5.0:
        data = DATA.copy()
        on_two(body, data)
        assert (data[:4] == 5).all()
    else:
        caught(body, DATA.copy())


def test_equal_bytes_that_only_one_core_writes_are_a_race():
    """Core 1 stores the zeros that are there already: with other data it would not."""

    def body(x):
        if nl.program_id(0):
            nl.store(x[0:4], nl.load(x[8:12]))
        else:
            nl.load(x[0:4])

    caught(body, DATA)


def test_a_core_that_writes_again_is_a_race():
    """Both store the same, and then core 0 stores something else, in the same epoch."""

    def body(x):
        for value in (1.0,) if nl.program_id(0) else (1.0, 3.0, 1.0):
            row = nl.ndarray((4, 4), nl.float32)
            nisa.memset(row, value=value)
            nl.store(x[0:4, 0:4], row)
            src, other = row, 1 - nl.program_id(0)
        nisa.sendrecv(src=src, dst=nl.ndarray((4, 4), nl.float32), send_to_rank=other, recv_from_rank=other, pipe_id=0)
        nl.load(x[0:4, 0:4])

    on_two(body, DATA.copy())  # the order in which it ran: 1, 3, 1, and then 1 once more

    def turned(x):
        for value in (1.0, 3.0) if nl.program_id(0) else (1.0,):
            row = nl.ndarray((4, 4), nl.float32)
            nisa.memset(row, value=value)
            nl.store(x[0:4, 0:4], row)

    caught(turned, DATA.copy())


def test_the_first_race_is_the_one_that_is_told():
    def body(x):
        write(x[8 + nl.program_id(0) : 9 + nl.program_id(0)])
        for start in (4, 0):
            if nl.program_id(0):
                nl.load(x[start : start + 2])
            else:
                write(x[start : start + 2])

    program = None
    try:
        on_two(body, DATA)
    except DataRace as error:
        program = error
    assert program is not None
    assert program.numbers[1].startswith("core 1: dma_copy reads")


def test_a_read_may_see_what_stood_there_meanwhile():
    """Both cores end with the same bytes, and what either reads in between depends on who is faster."""

    def put(x, value):
        row = nl.ndarray((4, 4), nl.float32)
        nisa.memset(row, value=value)
        nl.store(x[0:4, 0:4], row)

    def first_reads(x):
        if nl.program_id(0):
            put(x, 2.0)
            return
        put(x, 1.0)
        nl.load(x[0:4, 0:4])
        put(x, 2.0)

    def second_reads(x):
        if nl.program_id(0):
            put(x, 2.0)
            nl.load(x[0:4, 0:4])
            return
        put(x, 1.0)
        put(x, 2.0)

    def nobody_reads(x):
        for value in (2.0,) if nl.program_id(0) else (1.0, 2.0):
            put(x, value)

    for before in (0.0, 1.0, 2.0):  # a write of what stood there already is one that the other may see, too
        caught(first_reads, np.full_like(DATA, before))
        caught(second_reads, np.full_like(DATA, before))
        on_two(nobody_reads, np.full_like(DATA, before))


def write_pieces(x, pieces, value=1.0):
    for rows in pieces:
        row = nl.ndarray(x[rows].shape, x.dtype)
        nisa.memset(row, value=value)
        nl.store(x[rows], row)


def test_a_core_may_read_what_it_wrote_in_pieces_as_the_other_did():
    """nki-library, dynamic_elementwise_add: each core stores all tiles, and copies the whole onto itself."""

    def body(x):
        write_pieces(x, [slice(0, 4), slice(4, 8), slice(8, 16)])
        nisa.dma_copy(dst=x, src=x)
        nl.load(x)

    data = DATA.copy()
    on_two(body, data)
    assert (data == 1).all()


def test_in_other_pieces_than_the_other_wrote():
    """Columns on one core and rows on the other; what one of them leaves out is a race."""

    def body(x, last):
        if nl.program_id(0):
            write_pieces(x, [slice(0, 5), slice(5, 10), slice(10, last)])
        else:
            for columns in (slice(0, 24, 2), slice(1, 24, 2)):
                row = nl.ndarray((16, 12), x.dtype)
                nisa.memset(row, value=1.0)
                nl.store(x[:, columns], row)
        nl.load(x)

    on_two(lambda x: body(x, 16), DATA.copy())
    found = caught(lambda x: body(x, 15), DATA.copy() + 1)
    assert {line[:14] for line in found.numbers[:2]} == {"core 0: dma_co", "core 1: dma_co"}


def test_pieces_of_another_value_are_a_race():
    def body(x):
        write_pieces(x, [slice(0, 8)])
        write_pieces(x, [slice(8, 16)], value=1.0 + nl.program_id(0))
        nl.load(x)

    caught(body, DATA.copy())


def flush(x, meets):
    """Write a half, and end as nki-library's bwmm_shard_on_I_mx.py does, on both cores."""
    write(x[nl.ds(8 * nl.program_id(0), 8)])
    if meets:
        nisa.core_barrier(x, (0, 1))
    nisa.dma_copy(dst=x, src=x)


@pytest.mark.parametrize("values", [True, False])
def test_a_copy_of_a_region_onto_itself_is_a_read(values):
    x = DATA if values else neurosim.spec((16, 24), "float32")
    on_two(lambda x: flush(x, meets=True), x, values=values)
    assert not values or (DATA[8:] == 1).all()
    for body in (
        lambda x: flush(x, meets=False),
        lambda x: nisa.dma_copy(dst=x[0:8], src=x[1:9]),
        lambda x: nisa.dma_copy(dst=x[0:16, 0:16], src=x[0:16, 0:16].permute((1, 0))),
    ):
        with pytest.raises(DataRace, match="two cores access the same bytes"):
            on_two(body, x, values=values)


def test_what_is_added_to_in_place_is_read():
    """Core 1 adds zeros, which changes nothing today: it reads what core 0 writes all the same."""

    def body(x):
        rows = nl.ndarray((4, 4), nl.float32)
        nisa.memset(rows, value=1.0 - nl.program_id(0))
        if nl.program_id(0):
            nisa.dma_compute(dst=x[0:4, 0:4], srcs=[rows, x[0:4, 0:4]], reduce_op=nl.add)
        else:
            nl.store(x[0:4, 0:4], rows)

    caught(body, DATA.copy())


def test_a_barrier_of_one_core_touches_nothing():
    def body(x):
        if nl.program_id(0):
            nisa.core_barrier(x, (1,))
        else:
            nl.load(x)

    program = on_two(body, DATA).program
    assert [record.signature.instruction for record in program] == ["dma_copy", "core_barrier"]
    assert list(races(program)) == []


@pytest.mark.parametrize("lines", [1, 2])
def test_without_values_writes_by_one_line_are_equal_for_readers_too(lines):
    """Where both cores write a place and read it back, again and again; not where two lines take turns there."""

    def body(x):
        row = nl.ndarray((4, 4), nl.float32)
        nisa.memset(row, value=1.0)
        for trip in range(2):
            if trip < lines - 1:
                nl.store(x[0:4, 0:4], row)
            else:
                nl.store(x[0:4, 0:4], row)
            nl.load(x[0:4, 0:4])

    spec = neurosim.spec((16, 24), "float32")
    if lines == 1:
        on_two(body, spec, values=False)
    else:
        with pytest.raises(DataRace):
            on_two(body, spec, values=False)


# -- dynamic addresses ------------------------------------------------------------------------------------------------


def rows_of(x, index):
    """Return rows of x that an SBUF column chooses."""
    return x.ap(pattern=[[24, 4], [1, 24]], offset=0, vector_offset=index, indirect_dim=0)


def row_at(x, index):
    return x.ap(pattern=[[24, 2], [1, 24]], offset=0, scalar_offset=index, indirect_dim=0)


def scattered(x, rows, differs=True):
    index = nl.load(rows[nl.program_id(0)])
    tile = nl.ndarray((index.shape[0], 24), nl.float32)
    nisa.memset(tile, value=3.0 + (nl.program_id(0) if differs else 0))
    nisa.dma_copy(dst=rows_of(x, index), src=tile)


def chosen(*rows):
    return np.array(rows, np.int32).reshape(2, -1, 1)


@pytest.mark.parametrize(
    ("rows", "meets"),
    [
        (((0, 2, 4, 6), (1, 3, 5, 7)), False),
        (((0, 2, 4, 6), (1, 3, 6, 7)), True),
        (((3, 3, 0, 9), (15, 8, 2, 1)), False),
        (((3, 3, 0, 9), (15, 9, 2, 1)), True),
    ],
)
def test_rows_that_two_cores_scatter(rows, meets):
    run = caught if meets else on_two
    run(scattered, DATA.copy(), chosen(*rows))


def test_equal_rows_that_two_cores_scatter_are_no_race():
    def body(x, rows):
        scattered(x, rows, differs=False)

    on_two(body, DATA.copy(), chosen((0, 1, 5, 3), (5, 3, 1, 1)))
    caught(scattered, DATA.copy(), chosen((0, 1, 5, 3), (5, 3, 1, 1)))


@pytest.mark.parametrize(("row", "meets"), [(3, True), (4, True), (5, False), (2, False)])
@pytest.mark.parametrize("how", ["gathered", "selected"])
def test_rows_that_one_core_gathers_where_the_other_stores(row, meets, how):
    """A pattern of two rows at a scalar index, and single rows by a column of indices."""

    def body(x, rows):
        if nl.program_id(0):
            write(x[4:5])
            return
        index = nl.load(rows[0])
        tile = nl.ndarray((4 if how == "gathered" else 2, 24), nl.float32)
        nisa.dma_copy(dst=tile, src=rows_of(x, index) if how == "gathered" else row_at(x, index))

    rows = chosen((row,), (0,)) if how == "selected" else chosen((0, row, row + 1, 9), (0, 0, 0, 0))
    (caught if meets else on_two)(body, DATA.copy(), rows)


def test_rows_left_out_are_not_reached():
    def body(x, rows):
        index = nl.load(rows[nl.program_id(0)])
        tile = nl.ndarray((4, 24), nl.float32)
        nisa.memset(tile, value=3.0 + nl.program_id(0))
        nisa.dma_copy(dst=rows_of(x, index), src=tile, oob_mode=nisa.oob_mode.skip)

    data = DATA.copy()
    on_two(body, data, chosen((0, 99, 1, 2), (4, 99, 5, 6)))
    assert (data[:3] == 3).all()
    assert (data[4:7] == 4).all()
    np.testing.assert_array_equal(data[[3, *range(7, 16)]], DATA[[3, *range(7, 16)]])
    caught(body, DATA.copy(), chosen((0, 99, 1, 2), (4, 99, 2, 6)))


def test_without_values_dynamic_addresses_are_left_out():
    specs = neurosim.spec((16, 24), "float32"), neurosim.spec((2, 4, 1), "int32")
    assert list(races(on_two(scattered, *specs, values=False).program)) == []
    caught(scattered, DATA.copy(), np.zeros((2, 4, 1), np.int32))  # with values the same kernel is refused
