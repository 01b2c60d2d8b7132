"""Messages call a tensor what the kernel's source calls it."""
# ruff: noqa: RET503, RET504, F841 (what is assigned is what the tests are about)

from __future__ import annotations

import re

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import CapacityExceeded, KernelError
from neurosim.program import Frame, Program
from neurosim.record.naming import variable

DATA = np.ones((128, 8), np.float32)


def sbuf(columns=8, **options):
    return nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf, **options)


def helped():
    made = sbuf
    return made()


class Holder:
    pass


def plain(x):
    scores = sbuf()
    return scores


def on_one_line(x):
    one, two = sbuf(), sbuf()
    return [one, two][1]


def nested_targets(x):
    (one, [two, three]), four = (sbuf(), [sbuf(), sbuf()]), sbuf()
    return three


def over_lines(x):
    scores = (
        nl.ndarray(
            (128, 8), dtype=nl.float32, buffer=nl.sbuf,
        )
    )  # fmt: skip
    return scores


def through_a_helper(x):
    scores = helped()
    return scores


def through_a_lambda(x):
    make = lambda: sbuf()  # noqa: E731
    scores = make()
    return scores


def in_a_list(x):
    tiles = [sbuf() for _ in range(3)]
    return tiles[2]


def in_a_dict(x):
    tiles = {"a": sbuf(), **{str(number): sbuf() for number in range(2)}}
    return tiles["1"]


def appended(x):
    tiles = []
    for _ in range(2):
        tiles.append(sbuf())
    return tiles[1]


def an_attribute(x):
    held = Holder()
    held.tile = sbuf()
    return held.tile


def an_element(x):
    tiles = {}
    for k in range(2):
        tiles[k] = sbuf()
    return tiles[1]


def a_view_of_it(x):
    scores = sbuf().reshape((128, 4, 2))
    return scores


def chosen(x):
    scores = sbuf(8) if x is not None else sbuf(16)
    return scores


def annotated(x):
    scores: object = sbuf()
    return scores


def by_walrus(x):
    if (scores := sbuf()) is not None:
        return scores


def named(x):
    scores = sbuf(name="mine")
    return scores


def of_an_operation(x):
    doubled = nl.add(nl.load(x), nl.load(x))
    sums = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=sums, data=doubled, op=nl.add, axis=1)
    return doubled


NAMES = {
    plain: "scores",
    on_one_line: "two",
    nested_targets: "three",
    over_lines: "scores",
    through_a_helper: "scores",
    through_a_lambda: "scores",
    in_a_list: "tiles",
    in_a_dict: "tiles",
    appended: "tiles",
    an_attribute: "held.tile",
    an_element: "tiles[k]",
    a_view_of_it: "scores",
    chosen: "scores",
    annotated: "scores",
    by_walrus: "scores",
    named: "mine",
    of_an_operation: "doubled",
}


@pytest.mark.parametrize("kernel", NAMES, ids=lambda kernel: kernel.__name__)
def test_a_message_has_the_variable(kernel):
    with pytest.raises(KernelError) as caught:
        neurosim.simulate(kernel)(DATA)  # an output must be in HBM
    words = str(caught.value)
    assert re.search(rf"(returns |a view of ){re.escape(NAMES[kernel])} ?\[", words), words


def test_what_no_variable_says_has_a_made_up_name():
    def argument(x):
        nisa.tensor_copy(dst=sbuf(), src=sbuf())

    def from_several(x):
        pair = lambda: (sbuf(), sbuf())  # noqa: E731
        one, two = pair()
        nisa.tensor_copy(dst=one, src=two)

    for kernel in (argument, from_several):
        with pytest.raises(KernelError, match=r"sbuf_\d \["):
            neurosim.simulate(kernel)(DATA)


def test_a_source_that_is_not_there_has_made_up_names():
    scope = {"sbuf": sbuf}
    exec("def kernel(x):\n    scores = sbuf()\n    return scores", scope)
    with pytest.raises(KernelError, match="returns sbuf_2 "):
        neurosim.simulate(scope["kernel"])(DATA)
    assert variable([Frame("<no file>", 1, "kernel", "<no file>", 0, 0)]) is None
    assert variable([]) is None


@pytest.mark.parametrize(
    ("shape", "buffer", "options"),
    [
        ((129, 4), nl.sbuf, {}),
        ((128, 10**6), nl.sbuf, {}),
        ((128, 10**5), nl.psum, {}),
        ((128,), nl.sbuf, {}),
        ((128, 10**18), nl.shared_hbm, {}),
        ((4, 4), nl.shared_hbm, {"address": (0, 0)}),
        ((4, 4), nl.sbuf, {"address": 3}),
        ((4, 4), nl.sbuf, {"address": (0, 10**6)}),
    ],
)
def test_a_tensor_that_cannot_be_made_is_called_by_its_variable(shape, buffer, options):
    def kernel(x):
        scores = nl.ndarray(shape, dtype=nl.float32, buffer=buffer, **options)

    with pytest.raises(KernelError, match=r"^nl\.ndarray scores\b"):
        neurosim.simulate(kernel)(DATA)


def test_what_the_record_alone_says_has_it_too(tmp_path):
    def kernel(x):
        kept = []
        for _ in range(4):
            large = sbuf(16 * 1024)
            nisa.memset(dst=large, value=0.0)
            kept.append(large)
        for tile in kept:
            nisa.tensor_copy(dst=tile, src=tile)

    with pytest.raises(CapacityExceeded, match=r"large and \d like it"):
        neurosim.simulate(kernel)(DATA)

    def small(x):
        scores = sbuf()
        nisa.memset(dst=scores, value=0.0)

    program = neurosim.simulate(small)(DATA).program
    program.save(tmp_path / "small.nsim")
    for kept in (program, Program.load(tmp_path / "small.nsim")):
        assert [kept.label(storage) for storage in range(2)] == ["x", "scores"]


def test_a_kernel_without_mistakes_is_not_looked_up_in_its_source(monkeypatch):
    def kernel(x):
        out = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        rows, moved, numbers = sbuf(), sbuf(), sbuf()
        nisa.dma_copy(dst=rows, src=x)
        nisa.nc_stream_shuffle(dst=moved, src=rows, shuffle_mask=list(range(32)))
        nisa.iota(dst=numbers, pattern=[[1, 8]], offset=0, channel_multiplier=0)
        product = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=product, stationary=moved, moving=rows)
        turned = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.nc_transpose(dst=turned, data=product, engine=nisa.engine.vector)
        nisa.dma_copy(dst=out, src=turned)
        return out

    def looked_up(name, frames):
        raise AssertionError(name)

    for module in ("memory", "kernel"):
        monkeypatch.setattr(f"neurosim.{module}.label", looked_up)
    assert (neurosim.profile(kernel)(DATA).outputs == 128).all()
