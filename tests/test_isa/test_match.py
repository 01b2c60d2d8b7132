"""``max8``, ``nc_find_index8`` and ``nc_match_replace8`` against loops over one row, with ties, NaN and zeros."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.errors import Uninitialized, UnknownBehavior

MISSING = {np.uint32: 0xFFFFFFFF, np.uint16: 0xFFFF}


def top(dtype=None):
    def body(src):
        made = nl.ndarray((src.shape[0], 8), dtype or src.dtype, nl.sbuf)
        nisa.max8(dst=made, src=src)
        return made

    return body


def finder(dtype=nl.uint32):
    def body(data, vals):
        made = nl.ndarray((data.shape[0], 8), dtype, nl.sbuf)
        nisa.nc_find_index8(dst=made, data=data, vals=vals)
        return made

    return body


def replacer(imm=-1.0, index=nl.uint32, dtype=None):
    def body(data, vals):
        made = nl.ndarray(data.shape, dtype or data.dtype, nl.sbuf)
        where = None if index is None else nl.ndarray((data.shape[0], 8), index, nl.sbuf)
        nisa.nc_match_replace8(dst=made, data=data, vals=vals, imm=imm, dst_idx=where)
        return made if where is None else (made, where)

    return body


def positions(data, vals, order):
    """Return the place that each value takes, asked in ``order``: the first equal element that none took before."""
    found = np.full(vals.shape, -1, np.int64)
    for row, (elements, wanted) in enumerate(zip(data, vals, strict=True)):
        taken = set()
        for slot in order:
            for place, element in enumerate(elements):
                if place not in taken and element == wanted[slot]:
                    found[row, slot] = place
                    taken.add(place)
                    break
    return found


# -- max8 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elements", [8, 9, 100, 1000])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32, np.uint8])
def test_largest(machine, rng, dtype, elements):
    data = rng.integers(0, 60, (5, elements)).astype(dtype)
    expected = np.sort(machine.single(data), axis=1)[:, ::-1][:, :8]
    machine.assert_same(machine.outputs(top(), data), expected.astype(dtype))


def test_largest_of_negatives_and_between_dtypes(machine, rng):
    data = -rng.random((4, 50)).astype(np.float32)
    expected = np.sort(data, axis=1)[:, ::-1][:, :8]
    machine.assert_same(machine.outputs(top(), data), expected)
    machine.assert_same(machine.outputs(top(nl.bfloat16), data), machine.rounded(expected, ml_dtypes.bfloat16))


def test_nan_is_the_largest_and_zeros_have_an_order(machine):
    """As in every maximum: NaN wins, and +0 is above -0."""
    rest = np.full(6, -5, np.float32)
    data = np.stack(
        [
            np.concatenate([[np.nan, 1, np.inf], rest]),
            np.concatenate([[-0.0, 0.0, -0.0], rest]),
            np.concatenate([[-np.inf, 3, -np.nan], rest]),
        ]
    ).astype(np.float32)
    got = machine.outputs(top(), data)
    np.testing.assert_array_equal(got[0], [np.nan, np.inf, 1, *rest[:5]])
    np.testing.assert_array_equal(np.signbit(got[1, :3]), [False, True, True])
    np.testing.assert_array_equal(got[2], [np.nan, 3, *rest])

    def reduced(data):
        made = nl.ndarray((3, 1), nl.float32, nl.sbuf)
        nisa.tensor_reduce(dst=made, op=nl.maximum, data=data, axis=1)
        return made

    machine.assert_same(machine.outputs(reduced, data), got[:, :1].copy())


def test_largest_of_the_longest_row(machine, rng):
    data = rng.random((2, 16384)).astype(np.float32)
    machine.assert_same(machine.outputs(top(), data), np.sort(data, axis=1)[:, ::-1][:, :8])


# -- nc_find_index8 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [np.uint32, np.uint16])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.uint8])
def test_first_occurrences(machine, rng, dtype, index):
    data = rng.integers(0, 12, (6, 40)).astype(dtype)
    vals = rng.integers(0, 15, (6, 8)).astype(dtype)
    places = positions(machine.single(data), machine.single(vals), range(8))
    expected = np.where(places < 0, MISSING[index], places).astype(index)
    machine.assert_same(machine.outputs(finder(np.dtype(index)), data, vals), expected)


def test_duplicates_advance_and_unmatched_are_all_ones(machine):
    """NKI 0.6 release notes."""
    data = np.array([[5, 5, 5, 1, 2, 2, 2, 2]], np.float32)
    vals = np.array([[5, 5, 9, 5, 5, 1, 2, 9]], np.float32)
    got = machine.outputs(finder(), data, vals)
    np.testing.assert_array_equal(got, [[0, 1, 2**32 - 1, 2, 2**32 - 1, 3, 4, 2**32 - 1]])


def test_nan_is_never_found_and_the_zeros_are_one_value(machine):
    data = np.array([[np.nan, -0.0, 0.0, np.inf, 1, 2, 3, 4]], np.float32)
    vals = np.array([[np.nan, 0.0, -0.0, 0.0, np.inf, -np.inf, 4, 3]], np.float32)
    none = 2**32 - 1
    np.testing.assert_array_equal(machine.outputs(finder(), data, vals), [[none, 1, 2, none, 3, none, 7, 6]])


def test_what_max8_found_is_found_again(machine, rng):
    data = rng.integers(-50, 50, (128, 512)).astype(np.float32)

    def body(data):
        vals, where = nl.ndarray((128, 8), nl.float32, nl.sbuf), nl.ndarray((128, 8), nl.uint32, nl.sbuf)
        nisa.max8(dst=vals, src=data)
        nisa.nc_find_index8(dst=where, data=data, vals=vals)
        return vals, where

    vals, where = machine.outputs(body, data)
    np.testing.assert_array_equal(where, np.argsort(-data, axis=1, kind="stable")[:, :8])
    np.testing.assert_array_equal(np.take_along_axis(data, where.astype(np.int64), axis=1), vals)


# -- nc_match_replace8 --------------------------------------------------------------------------------------------


def test_documented_example(machine):
    data = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    vals = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    got, where = machine.outputs(replacer(-1.0), data, vals)
    np.testing.assert_array_equal(where, [[2, 10, 9, 8, 7, 6, 5, 4]])
    np.testing.assert_array_equal(got, [[1, 2, -1, 4, -1, -1, -1, -1, -1, -1, -1]])


@pytest.mark.parametrize("index", [np.uint32, np.uint16])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.uint8])
def test_replacing(machine, rng, dtype, index):
    data = rng.integers(0, 9, (6, 64)).astype(dtype)
    vals = data[:, rng.permutation(64)[:8]].copy()
    places = positions(machine.single(data), machine.single(vals), range(7, -1, -1))
    expected = machine.single(data).copy()
    np.put_along_axis(expected, places, np.float32(77), axis=1)
    got, where = machine.outputs(replacer(77.0, np.dtype(index)), data, vals)
    machine.assert_same(got, expected.astype(dtype))
    machine.assert_same(where, places.astype(index))


def test_unmatched_values_change_nothing(machine):
    data = np.arange(8, dtype=np.float32).reshape(1, 8)
    vals = np.array([[0, 0, 0, 50, np.nan, 7, 7, 1]], np.float32)
    got = machine.outputs(replacer(-1.0, None), data, vals)
    np.testing.assert_array_equal(got, [[-1, -1, 2, 3, 4, 5, 6, -1]])
    text = machine.refused(replacer(), data, vals, error=UnknownBehavior)
    assert "vals[0, 0] is not in data, and dst_idx asks where it is" in text
    assert "5 of 8 values are not in data" in text


def test_a_replaced_element_is_not_found_again(machine):
    """Also where the replacement is one of the values."""
    data = np.full((1, 10), -np.inf, np.float32)
    got, where = machine.outputs(replacer(float("-inf")), data, np.full((1, 8), -np.inf, np.float32))
    np.testing.assert_array_equal(got, data)
    np.testing.assert_array_equal(where, [[7, 6, 5, 4, 3, 2, 1, 0]])


@pytest.mark.parametrize("imm", [2.5, np.inf, -3, 1e-3])
def test_imm_and_other_dtypes_of_the_result(machine, imm):
    data = np.arange(10, dtype=np.float32).reshape(1, 10)
    vals = data[:, :8].copy()
    for dtype in (np.float32, ml_dtypes.bfloat16, np.int8):
        expected = data.copy()
        expected[:, :8] = np.float32(imm)
        got = machine.outputs(replacer(imm, None, np.dtype(dtype)), data, vals)
        machine.assert_same(got, machine.rounded(expected, dtype))


def test_rounds_of_max8_and_replace_sort(machine, rng):
    """The usual top-k: replaced in place, with everything already taken out of the way."""
    data = rng.integers(-20, 20, (16, 64)).astype(np.float32)

    def body(data):
        vals = nl.ndarray((16, 32), nl.float32, nl.sbuf)
        for start in range(0, 32, 8):
            part = vals[:, start : start + 8]
            nisa.max8(dst=part, src=data)
            nisa.nc_match_replace8(dst=data, data=data, vals=part, imm=float("-inf"))
        return vals

    machine.assert_same(machine.outputs(body, data), np.sort(data, axis=1)[:, ::-1][:, :32].copy())


# -- all three ----------------------------------------------------------------------------------------------------


def test_views(machine, rng):
    data = rng.integers(0, 30, (4, 24)).astype(np.float32)

    def body(out, data):
        vals, where = out((4, 8), nl.float32, flat=True), out((4, 8), nl.uint16, flat=True)
        replaced, matched = out((4, 24), nl.bfloat16), out((4, 8), nl.uint32)
        nisa.max8(dst=vals, src=data)
        nisa.nc_find_index8(dst=where, data=data, vals=vals)
        nisa.nc_match_replace8(dst=replaced, data=data, vals=vals, imm=0.0, dst_idx=matched)
        return vals, where, replaced, matched

    machine.same_from_views(body, data)


@pytest.mark.parametrize("psum", [set(), {0}, {1}, {0, 1}])
def test_psum(machine, rng, psum):
    data = rng.integers(0, 30, (4, 24)).astype(np.float32)
    vals = np.sort(data, axis=1)[:, :8].copy()
    for body in (finder(), replacer()):
        np.testing.assert_array_equal(
            machine.outputs(body, data, vals, psum=psum)[-1], machine.outputs(body, data, vals)[-1]
        )


@pytest.mark.parametrize("name", ["max8", "nc_find_index8", "nc_match_replace8"])
def test_holes_reach_their_row(machine, name):
    def body(vals, rows):
        part = nl.ndarray((4, 16), nl.float32, nl.sbuf)
        nisa.memset(dst=part[0:2], value=1.0)
        nisa.memset(dst=part[:, 0:8], value=1.0)
        made = nl.ndarray((4, 16 if name == "nc_match_replace8" else 8), nl.uint32, nl.sbuf)
        if name == "max8":
            nisa.max8(dst=made, src=part)
        elif name == "nc_find_index8":
            nisa.nc_find_index8(dst=made, data=part, vals=vals)
        else:
            nisa.nc_match_replace8(dst=made, data=part, vals=vals, imm=0.0)
        again = nl.ndarray((rows, made.shape[1]), nl.uint32, nl.sbuf)
        nisa.tensor_copy(dst=again, src=made[0:rows])
        return again

    vals = np.ones((4, 8), np.float32)
    machine.run(lambda vals: body(vals, 2), vals)
    with pytest.raises(Uninitialized, match=rf"\[2:4, 0:{16 if name == 'nc_match_replace8' else 8}\]"):
        machine.run(lambda vals: body(vals, 4), vals)


def call(name, **changes):
    """Return a body that calls with legal operands, some of them changed."""

    def body(data):
        rows = data.shape[0]
        operands = {
            "max8": {"dst": ((rows, 8), nl.float32), "src": (data.shape, nl.float32)},
            "nc_find_index8": {
                "dst": ((rows, 8), nl.uint32),
                "data": (data.shape, nl.float32),
                "vals": ((rows, 8), nl.float32),
            },
            "nc_match_replace8": {
                "dst": (data.shape, nl.float32),
                "data": (data.shape, nl.float32),
                "vals": ((rows, 8), nl.float32),
                "dst_idx": ((rows, 8), nl.uint32),
            },
        }[name]
        extra = {"imm": 1.0} if name == "nc_match_replace8" else {}
        for operand, change in changes.items():
            if isinstance(change, tuple):
                operands[operand] = change
            else:
                extra[operand] = change
        tiles = {}
        for operand, (shape, dtype) in operands.items():
            tiles[operand] = nl.ndarray(shape, dtype, nl.sbuf)
            nisa.memset(dst=tiles[operand], value=0)
        getattr(nisa, name)(**tiles, **extra)

    return body


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("max8", {"dst": ((4, 7), nl.float32)}, "dst has 7 elements per partition; it must have 8"),
        ("max8", {"dst": ((2, 8), nl.float32)}, "dst has 2 partitions and src has 4"),
        ("max8", {"dst": ((4, 2, 4), nl.float32)}, "dst has 3 axes; it may have 2"),
        ("max8", {"src": ((4, 7), nl.float32)}, "src has 7 elements per partition; it must have 8 to 16384"),
        ("max8", {"src": ((4, 16385), nl.float32)}, "src has 16385 elements per partition"),
        ("max8", {"src": ((4, 2, 2, 4), nl.float32)}, "src has 4 axes; it may have 3"),
        ("nc_find_index8", {"dst": ((4, 8), nl.int32)}, "dst is int32; it must be uint32 or uint16"),
        ("nc_find_index8", {"dst": ((4, 9), nl.uint32)}, "dst has 9 elements per partition; it must have 8"),
        ("nc_find_index8", {"dst": ((4, 4, 2), nl.uint32)}, "dst has 3 axes; it may have 2"),
        ("nc_find_index8", {"dst": ((2, 8), nl.uint32)}, "dst has 2 partitions and data has 4"),
        ("nc_find_index8", {"vals": ((4, 9), nl.float32)}, "vals has 9 elements per partition; it must have 8"),
        ("nc_find_index8", {"vals": ((2, 8), nl.float32)}, "data has 4 partitions and vals has 2"),
        ("nc_find_index8", {"vals": ((4, 2, 2, 2), nl.float32)}, "vals has 4 axes; it may have 3"),
        ("nc_find_index8", {"data": ((4, 7), nl.float32)}, "data has 7 elements per partition"),
        ("nc_find_index8", {"data": ((4, 2, 2, 2), nl.float32)}, "data has 4 axes; it may have 3"),
        ("nc_match_replace8", {"dst": ((4, 9), nl.float32)}, "dst has 9 elements per partition and data has 16"),
        ("nc_match_replace8", {"data": ((4, 4), nl.float32), "dst": ((4, 4), nl.float32)}, "data has 4 elements per"),
        ("nc_match_replace8", {"vals": ((4, 7), nl.float32)}, "vals has 7 elements per partition; it must have 8"),
        ("nc_match_replace8", {"vals": ((4, 2, 2, 2), nl.float32)}, "vals has 4 axes; it may have 3"),
        ("nc_match_replace8", {"vals": ((2, 8), nl.float32)}, "data has 4 partitions and vals has 2"),
        ("nc_match_replace8", {"dst_idx": ((4, 8), nl.int32)}, "dst_idx is int32; it must be uint32 or uint16"),
        ("nc_match_replace8", {"dst_idx": ((4, 9), nl.uint32)}, "dst_idx has 9 elements per partition and vals has 8"),
        ("nc_match_replace8", {"imm": "-inf"}, "imm '-inf' is not a number"),
    ],
)
def test_refuses(machine, name, changes, message):
    assert f"{name}: {message}" in machine.refused(call(name, **changes), np.zeros((4, 16), np.float32))


def test_time(machine):
    """One element per cycle; the eight values are fetched as a per-partition operand is."""
    data, vals = np.zeros((128, 512), np.float32), np.zeros((128, 8), np.float32)
    assert machine.time("max8", top(), data)[0] == pytest.approx(572 / 0.96, rel=1e-3)
    assert machine.time("nc_find_index8", finder(), data, vals)[0] == pytest.approx(630 / 0.96, rel=1e-3)
    assert machine.time("nc_match_replace8", replacer(), data, vals)[0] == pytest.approx(630 / 0.96, rel=1e-3)
