"""What tests of two cores share: a launch on both, an exchange between them, a kernel that swaps two halves."""

from __future__ import annotations

import threading

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim

HALVES = np.arange(2 * 8 * 6, dtype=np.float32).reshape(2, 8, 6)


@pytest.fixture(autouse=True)
def no_thread_stays():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def tile(shape=(8, 6), dtype=nl.float32):
    return nl.ndarray(shape, dtype, nl.sbuf)


def exchange(src, dst, **options):
    other = 1 - nl.program_id(0)
    return nisa.sendrecv(src=src, dst=dst, send_to_rank=other, recv_from_rank=other, pipe_id=0, **options)


@nki.jit
def swapped(halves):
    """Each core sends its half to the other and stores what it got."""
    out = nl.ndarray(halves.shape, halves.dtype, nl.shared_hbm)
    own = nl.program_id(0)
    mine, theirs = nl.load(halves[own]), tile(halves.shape[1:], halves.dtype)
    exchange(mine, theirs)
    nl.store(out[own], theirs)
    return out


def on_two(body, *arrays, **options):
    return neurosim.simulate(nki.jit(body)[2], **options)(*arrays)
