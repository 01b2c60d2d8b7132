"""Data races: programs of two cores that are none give one result, in whichever order the two run."""

from __future__ import annotations

import random
from itertools import combinations, permutations, product

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import DataRace

F = np.float32


def caught(body, *arrays):
    with pytest.raises(DataRace, match="two cores access the same bytes"):
        neurosim.simulate(nki.jit(body)[2])(*arrays)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_no_race_gives_one_result_in_every_order(seed):
    """Random writes and reads by both cores between barriers; the twin runs them in each order of the two."""
    draw = random.Random(seed)
    epochs = [
        [
            [
                (draw.choice("wwr"), *sorted((draw.randrange(4), 1 + draw.randrange(4))), draw.randrange(2))
                for _ in "abc"
            ]
            for _ in "01"
        ]
        for _ in "ab"
    ]

    def body(x):
        for epoch in epochs:
            for what, low, high, value in epoch[nl.program_id(0)]:
                if what == "r":
                    nl.load(x[0:1, low : high + 1])
                    continue
                row = nl.ndarray((1, high + 1 - low), nl.float32)
                nisa.memset(row, value=float(value))
                nl.store(x[0:1, low : high + 1], row)
            nisa.core_barrier(x, (0, 1))

    def outcome(memory, epoch, order):
        memory, seen, counts = memory.copy(), {}, [0, 0]
        for core in order:
            number = counts[core]
            what, low, high, value = epoch[core][number]
            counts[core] += 1
            if what == "r":
                seen[core, number] = memory[low : high + 1].tobytes()
            else:
                memory[low : high + 1] = value
        return memory.tobytes(), tuple(sorted(seen.items()))

    memory, differs = np.zeros(5, F), False
    for epoch in epochs:
        orders = [tuple(int(place not in mine) for place in range(6)) for mine in combinations(range(6), 3)]
        differs |= len({outcome(memory, epoch, order) for order in orders}) > 1
        memory = np.frombuffer(outcome(memory, epoch, orders[0])[0], F)
    if differs:
        caught(body, np.zeros((1, 5), F))


def test_short_programs_that_end_or_read_differently_in_some_order_are_refused():
    """All of one or two steps by each core, on one element."""

    def body(x, steps):
        for step in steps[nl.program_id(0)]:
            if step == "read":
                nl.load(x)
            elif step == "copy":
                nisa.dma_copy(dst=x, src=x)
            else:
                tile = nl.ndarray((1, 1), nl.float32)
                nisa.memset(tile, value=step)
                nl.store(x, tile)

    def outcome(steps, order):
        value, left = 0.0, [iter(steps[0]), iter(steps[1])]
        seen, taken = ([], []), [0.0, 0.0]
        for core in order:
            step = next(left[core])
            if step == "read":
                seen[core].append(value)
            elif step == "take":
                taken[core] = value
            else:
                value = taken[core] if step == "put" else step
        return value, *map(tuple, seen)

    def parts(way):
        return [part for step in way for part in (("take", "put") if step == "copy" else (step,))]

    ways = [way for count in (1, 2) for way in product(("read", "copy", 0.0, 1.0), repeat=count)]
    for steps in product(ways, ways):
        halves = [parts(way) for way in steps]
        places = {tuple(order) for order in permutations([0] * len(halves[0]) + [1] * len(halves[1]))}
        if len({outcome(halves, order) for order in places}) > 1:
            caught(body, np.zeros((1, 1), F), steps)
