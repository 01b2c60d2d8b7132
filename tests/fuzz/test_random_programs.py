"""Random programs: legal ones compute what a twin computes, illegal ones are refused in words, and nothing crashes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurosim.errors import DataRace, Deadlock, IllegalOperand, KernelError
from neurosim.shell.loading import load_module

runs = load_module(Path(__file__).with_name("runs.py"))
pairs = load_module(Path(__file__).with_name("pairs.py"))
agreement = load_module(Path(__file__).with_name("agreement.py"))
LONG = 10_000


def check_legal(random):
    """Run a legal program; values are compared inside, the timeline here."""
    check_accounts(runs.legal(random))


def check_accounts(result):
    """What an engine does at each moment adds up, on each core."""
    for timeline in result.timelines.values():
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


def check_two_cores(random):
    """Run a program on two cores, which meet wherever they have to."""
    result = pairs.careful(random)
    check_accounts(result)
    assert sorted(result.timelines) == [0, 1]


def check_races(random):
    """Run a program whose cores meet somewhere: what one of them would have had to wait for is found."""
    is_racing, error = pairs.careless(random)
    assert type(error) is (DataRace if is_racing else type(None)), f"{error}"
    if error is not None:
        check_words(error, "two cores")
        *accesses, both = error.numbers
        assert sorted(line[:7] for line in accesses) == ["core 0:", "core 1:"]
        assert both.startswith("both reach [")


def check_agreement(random):
    """Run a program whose cores store the same: a read is a race exactly where the reader did not store, too."""
    is_racing, is_found = agreement.run(random)
    assert is_found == is_racing


def check_forgotten(random):
    """Run a program one core of which forgets a meeting."""
    planned, error = pairs.forgetful(random)
    assert isinstance(error, (Deadlock, IllegalOperand)), f"{error} of {planned}"
    check_words(error, planned)


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


@settings(max_examples=40)
@given(randoms)
def test_two_cores(random):
    check_two_cores(random)


@settings(max_examples=30)
@given(randoms)
def test_races(random):
    check_races(random)


@settings(max_examples=60)
@given(randoms)
def test_agreement(random):
    check_agreement(random)


@settings(max_examples=20)
@given(randoms)
def test_forgotten_meetings(random):
    check_forgotten(random)


@pytest.mark.long
@pytest.mark.parametrize(
    "check", [check_legal, check_illegal, check_wild, check_two_cores, check_races, check_agreement, check_forgotten]
)
def test_many(check):
    for seed in range(LONG):
        try:
            check(Random(seed))
        except Exception as error:
            raise AssertionError(f"{check.__name__}(Random({seed}))") from error
