"""``bn_stats`` and ``bn_aggr``: bits against Welford's and Chan's recurrences, values against NumPy's float64."""

from __future__ import annotations

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from neurosim.errors import Uninitialized


def stats(dtype=nl.float32):
    def body(data):
        made = nl.ndarray((data.shape[0], 6), dtype, nl.sbuf)
        nisa.bn_stats(dst=made, data=data)
        return made

    return body


def aggr(dtype=nl.float32):
    def body(data):
        made = nl.ndarray((data.shape[0], 2), dtype, nl.sbuf)
        nisa.bn_aggr(dst=made, data=data)
        return made

    return body


def welford(x):
    """Return count, mean and squares of each row, in float32, one element after the other."""
    f = np.float32
    count = np.zeros(len(x), f)
    mean, squares = count.copy(), count.copy()
    with np.errstate(all="ignore"):
        for column in x.T:
            count = count + f(1)
            delta = column - mean
            mean = mean + delta / count
            squares = squares + delta * (column - mean)
    return np.stack([count, mean, squares], axis=1)


def chan(tuples):
    """Return mean and variance of (P, T, 3) tuples, in float32, one tuple after the other."""
    count, mean, squares = tuples[:, 0].T
    with np.errstate(all="ignore"):
        for more, other_mean, other_squares in tuples[:, 1:].transpose(1, 2, 0):
            total = count + more
            delta = other_mean - mean
            share = more / total
            mean = mean + delta * share
            squares = (squares + other_squares) + (delta * delta) * (count * share)
            count = total
        return np.stack([mean, squares / count], axis=1)


@pytest.mark.parametrize("elements", [1, 2, 3, 7, 128, 511, 512])
def test_statistics(machine, rng, elements):
    data = (rng.standard_normal((5, elements)) * 3 + 100).astype(np.float32)
    got = machine.outputs(stats(), data)
    machine.assert_same(got, np.hstack([welford(data[:, 0::2]), welford(data[:, 1::2])]))
    for half in range(2):
        part = data[:, half::2].astype(np.float64)
        if part.size:
            np.testing.assert_allclose(got[:, 3 * half + 1], part.mean(axis=1), rtol=1e-5)
            np.testing.assert_allclose(got[:, 3 * half + 2], part.var(axis=1) * part.shape[1], rtol=1e-3, atol=1e-3)
        else:
            assert not got[:, 3:].any()


@pytest.mark.parametrize("elements", [128, 1024, 1300])
def test_mean_and_variance_of_long_rows(machine, rng, elements):
    """The documented use: one bn_stats per 512 elements, one bn_aggr for all."""
    data = (rng.random((128, elements)) * 100).astype(np.float32)

    def body(data):
        parts = -(-elements // 512)
        collected = nl.ndarray((128, 6 * parts), nl.float32, nl.sbuf)
        for index in range(parts):
            end = min(512 * index + 512, elements)
            nisa.bn_stats(dst=collected[:, 6 * index : 6 * index + 6], data=data[:, 512 * index : end])
        made = nl.ndarray((128, 2), nl.float32, nl.sbuf)
        nisa.bn_aggr(dst=made, data=collected)
        return made

    got = machine.outputs(body, data)
    np.testing.assert_allclose(got[:, 0], data.mean(axis=1, dtype=np.float64), rtol=1e-5)
    np.testing.assert_allclose(got[:, 1], data.var(axis=1, dtype=np.float64), rtol=1e-4)


def test_aggregation(machine, rng):
    tuples = np.empty((6, 5, 3), np.float32)
    tuples[..., 0] = rng.integers(1, 300, (6, 5))
    tuples[..., 1:] = rng.random((6, 5, 2))
    machine.assert_same(machine.outputs(aggr(), tuples.reshape(6, 15)), chan(tuples))


def test_empty_tuples_are_passed_over(machine):
    tuples = np.array([[0, 5, 5, 2, 1, 4, 0, 7, 7]], np.float32)
    np.testing.assert_array_equal(machine.outputs(aggr(), tuples), [[1, 2]])
    nothing = machine.outputs(aggr(), np.zeros((1, 3), np.float32))
    assert nothing[0, 0] == 0
    assert np.isnan(nothing[0, 1])


@pytest.mark.parametrize("target", [np.float32, ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("source", [np.float32, ml_dtypes.bfloat16, np.uint8, np.int32])
def test_dtypes(machine, rng, source, target):
    data = rng.integers(1, 100, (4, 30)).astype(source)
    values = machine.single(data)
    expected = np.hstack([welford(values[:, 0::2]), welford(values[:, 1::2])])
    machine.assert_same(machine.outputs(stats(np.dtype(target)), data), machine.rounded(expected, target))
    machine.assert_same(
        machine.outputs(aggr(np.dtype(target)), data), machine.rounded(chan(values.reshape(4, 10, 3)), target)
    )


def test_nan_and_infinity_stay_in_their_half_and_row(machine):
    data = np.ones((3, 8), np.float32)
    data[0, 3], data[1, 4] = np.nan, np.inf
    got = machine.outputs(stats(), data)
    assert np.isnan(got[0, 4:]).all()
    assert np.isfinite(got[0, :4]).all()
    assert np.isnan(got[1, 2])
    assert np.isfinite(got[1, 3:]).all()
    assert np.isfinite(got[2]).all()


def test_views(machine, rng):
    data = rng.standard_normal((4, 12)).astype(np.float32)

    def body(out, data):
        made, both = out((4, 6), nl.float32), out((4, 2), nl.bfloat16)
        nisa.bn_stats(dst=made, data=data)
        nisa.bn_aggr(dst=both, data=made)
        return made, both

    machine.same_from_views(body, data)


@pytest.mark.parametrize("psum", [set(), {0}])
def test_psum(machine, rng, psum):
    data = rng.standard_normal((4, 12)).astype(np.float32)
    machine.assert_same(machine.outputs(stats(), data, psum=psum), machine.outputs(stats(), data))
    machine.assert_same(machine.outputs(aggr(), data, psum=psum), machine.outputs(aggr(), data))


def test_a_hole_reaches_its_half_and_not_the_counts(machine):
    def body(_, columns):
        part = nl.ndarray((2, 8), nl.float32, nl.sbuf)
        nisa.memset(dst=part[:, 0:7], value=1.0)
        made = nl.ndarray((2, 6), nl.float32, nl.sbuf)
        nisa.bn_stats(dst=made, data=part)
        again = nl.ndarray((2, columns), nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=again, src=made[:, 0:columns])
        return again

    nothing = np.ones((1, 1), np.float32)
    np.testing.assert_array_equal(machine.outputs(lambda t: body(t, 4), nothing), [[4, 1, 0, 4]] * 2)
    with pytest.raises(Uninitialized, match=r"\[0:2, 4:5\]"):
        machine.run(lambda t: body(t, 5), nothing)


def test_a_hole_reaches_mean_and_variance_of_its_row(machine):
    def body(_, rows):
        part = nl.ndarray((2, 3), nl.float32, nl.sbuf)
        nisa.memset(dst=part[0:1], value=1.0)
        nisa.memset(dst=part[:, 0:2], value=1.0)
        made = nl.ndarray((2, 2), nl.float32, nl.sbuf)
        nisa.bn_aggr(dst=made, data=part)
        again = nl.ndarray((rows, 2), nl.float32, nl.sbuf)
        nisa.tensor_copy(dst=again, src=made[0:rows])
        return again

    nothing = np.ones((1, 1), np.float32)
    np.testing.assert_array_equal(machine.outputs(lambda t: body(t, 1), nothing), [[1, 1]])
    with pytest.raises(Uninitialized, match=r"\[1:2, 0:2\]"):
        machine.run(lambda t: body(t, 2), nothing)


def test_refuses(machine):
    def call(name, rows, columns):
        def body(data):
            getattr(nisa, name)(dst=nl.ndarray((rows, columns), nl.float32, nl.sbuf), data=data)

        return body

    long, short = np.ones((4, 513), np.float32), np.ones((4, 8), np.float32)
    assert "bn_stats: data has 513 elements per partition; it must have at most 512" in machine.refused(
        call("bn_stats", 4, 6), long
    )
    assert "bn_stats: dst has 5 elements per partition; it must have 6" in machine.refused(
        call("bn_stats", 4, 5), short
    )
    assert "bn_stats: dst has 2 partitions and data has 4" in machine.refused(call("bn_stats", 2, 6), short)
    assert "bn_aggr: data has 8 elements per partition, which are no whole tuples of 3" in machine.refused(
        call("bn_aggr", 4, 2), short
    )
    assert "bn_aggr: dst has 3 elements per partition; it must have 2" in machine.refused(call("bn_aggr", 4, 3), short)
    assert "bn_aggr: dst has 2 partitions and data has 4" in machine.refused(call("bn_aggr", 2, 2), short)


def test_time(machine):
    """One element per cycle; 13 cycles for a tuple."""
    assert machine.time("bn_stats", stats(), np.ones((128, 512), np.float32))[0] == pytest.approx(572 / 0.96, rel=1e-3)
    assert machine.time("bn_aggr", aggr(), np.ones((128, 60), np.float32))[0] == pytest.approx(320 / 0.96, rel=1e-3)
