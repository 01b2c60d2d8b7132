"""Random programs: legal ones compute what a twin computes, illegal ones are refused in words, and nothing crashes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurosim.errors import KernelError
from neurosim.loading import load_module

runs = load_module(Path(__file__).with_name("runs.py"))
LONG = 10_000


def check_legal(random):
    """Run a legal program; values are compared inside, the timeline here."""
    timeline = runs.legal(random).timeline
    for account in timeline.engines.values():
        terms = (account.busy_ps, *account.stall_ps.values(), account.idle_ps)
        assert min(terms) >= 0
        assert sum(terms) == timeline.makespan_ps


def check_illegal(random):
    done, error = runs.illegal(random)
    assert error is not None, f"accepted: {done}"
    assert isinstance(error, KernelError), f"{type(error).__name__} of {done}"
    check_words(error, done)


def check_wild(random):
    done, error = runs.wild(random)
    if error is not None:
        check_words(error, done)


def check_words(error, done):
    """A message has what, where (in the kernel) and what to do; numbers only where there are any."""
    assert error.what, done
    assert error.advice, f"no advice: {error} of {done}"
    assert any("fuzz" in place for place in error.where), f"not where: {error.where} of {done}"


randoms = st.randoms(use_true_random=False)


@settings(max_examples=60)
@given(randoms)
def test_legal(random):
    check_legal(random)


@settings(max_examples=200)
@given(randoms)
def test_illegal(random):
    check_illegal(random)


@settings(max_examples=200)
@given(randoms)
def test_wild(random):
    check_wild(random)


@pytest.mark.long
@pytest.mark.parametrize("check", [check_legal, check_illegal, check_wild])
def test_many(check):
    for seed in range(LONG):
        try:
            check(Random(seed))
        except Exception as error:
            raise AssertionError(f"{check.__name__}(Random({seed}))") from error
