"""What loops on the device refuse, and in which words."""

from __future__ import annotations

import warnings

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import IllegalOperand, Uninitialized, UnknownBehavior

F = np.float32


ROW = np.arange(1, 9, dtype=F).reshape(1, 8)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def left_by_break(x):
    for _ in nl.dynamic_range(3):
        nisa.memset(dst=nl.ndarray((1, 1), nl.float32), value=0.0)
        break


def left_by_return(x):
    register = nisa.register_alloc(1)
    while register:
        nisa.register_move(register, 0)
        return


def left_within_another(x):
    for _ in nl.dynamic_range(3):
        for _ in nl.dynamic_range(3):
            break


def tile_of_a_body(x):
    kept = []
    nl.fori_loop(0, 2, lambda i: kept.append(nl.load(x)))
    nisa.memset(dst=kept[0], value=0.0)


def edge_into_a_loop(x):
    tile, kept = nl.load(x), []
    nl.fori_loop(0, 2, lambda i: kept.append(nisa.memset(dst=tile, value=0.0)))
    nisa.memset(dst=tile, value=0.0).depends_on(kept[0])


def written_bound(x):
    bound = nisa.register_alloc(3)
    nl.fori_loop(0, bound, lambda i: nisa.register_move(bound, 1) and None)


def in_no_reorder(x):
    with nl.no_reorder():
        nl.fori_loop(0, 3, lambda i: None)


def while_in_no_reorder(x):
    register = nisa.register_alloc(1)
    with nl.no_reorder():
        while register:
            nisa.register_move(register, 0)


def a_condition_with_more(x):
    register = nisa.register_alloc(1)
    while register and True:
        nisa.register_move(register, 0)


def endless(x):
    register = nisa.register_alloc(1)
    nl.while_loop(register, lambda r: r)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (left_by_break, "left from within its body"),
        (left_by_return, "left from within its body"),
        (left_within_another, "left from within its body"),
        (tile_of_a_body, "memset: kept.* belongs to the body of a loop that was left"),
        (edge_into_a_loop, "is in a trip of a loop on the device that .* is not in"),
        (written_bound, "is a bound of nl.fori_loop, which is running"),
        (in_no_reorder, "nl.fori_loop in nl.no_reorder"),
        (while_in_no_reorder, "while in nl.no_reorder"),
        (a_condition_with_more, "write `while register:` with the register alone"),
        (lambda x: nl.fori_loop(0, 3, lambda i: nisa.register_move(i, 0) and None), "is the variable of nl.fori_loop"),
        (lambda x: nl.fori_loop(0, 3, lambda i: nisa.register_load(i, x[0:1, 0:1]) and None), "is the variable of"),
        (lambda x: nl.fori_loop(0, 3, lambda i: i), "the body returned VirtualRegister"),
        (lambda x: nl.fori_loop(0, 3, lambda i: None, step=0), "step 0 is no positive int"),
        (lambda x: nl.fori_loop(0, 3, lambda i: None, step=-1), "step -1 is no positive int"),
        (lambda x: list(nl.dynamic_range(0, 3, nisa.register_alloc(1))), "step VirtualRegister.* is no positive int"),
        (lambda x: nl.fori_loop(0, 3.0, lambda i: None), "stop 3.0 is neither an int of 32 bits nor a register"),
        (lambda x: nl.fori_loop(0, nl.load(x), lambda i: None), "stop NkiTensor.* is neither"),
        (lambda x: nl.fori_loop(0, 1 << 31, lambda i: None), "stop 2147483648 is neither"),
        (lambda x: nl.while_loop(1, lambda r: r), "init is 1; it must be a register"),
        (lambda x: nl.while_loop(nisa.register_alloc(1), lambda r: None), "the body returned is None"),
    ],
)
def test_what_is_refused(kernel, message):
    with pytest.raises(IllegalOperand, match=message) as caught:
        neurosim.simulate(kernel)(ROW)
    assert caught.value.where
    assert caught.value.advice or "neither" in message


def test_a_loop_that_never_ends(monkeypatch):
    monkeypatch.setattr("neurosim.execution.device_loops._MOST_TRIPS", 100)
    with pytest.raises(IllegalOperand, match=r"nl\.while_loop has made 100 trips"):
        neurosim.simulate(endless)(ROW)


def test_a_condition_that_is_no_number():
    def kernel(x):
        nl.while_loop(nisa.register_alloc(nl.ones((1, 1), nl.float32)), lambda r: r)

    with pytest.raises(UnknownBehavior, match="holds float32"):
        neurosim.simulate(kernel)(ROW)


def test_a_tile_that_only_a_later_trip_reads_unwritten():
    """Tensors of a body are one for all trips; nothing is forgotten between them."""

    def kernel(x):
        out, tile = nl.ndarray(x.shape, x.dtype, nl.shared_hbm), nl.ndarray(x.shape, x.dtype)

        def body(i):
            nl.store(out, tile)
            nl.load(x)

        nl.fori_loop(0, 2, body)

    with pytest.raises(Uninitialized, match="dma_copy: src"):
        neurosim.simulate(kernel)(ROW)
