"""Pseudo-random numbers as pure functions of a state: the generators of the engines, and their seeds.

The documentation names the algorithms and the size of a state, and no more. XORWOW is the one of G. Marsaglia,
"Xorshift RNGs" (Journal of Statistical Software 8, 2003): five words of a shift register and a Weyl counter. *Assumed*:

* a state of six words lies in memory as Marsaglia lists it: x, y, z, w, v, then the counter d;
* a lane with several states takes a number from each in turn, and a step moves all of them: what a tile does not take
  of the last step is lost, so a tile may be drawn in pieces of whole steps;
* ``LFSR``, which no instruction can read, is Marsaglia's xor128, a linear feedback shift register of four words;
* a single seed is spread over all words of all lanes by a mixing function, so that no two lanes begin alike.

A state of zeros stays zero in a shift register; XORWOW then counts. The bits are those of these algorithms, and not
those of the hardware.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neurosim.jit import compiled

Words = NDArray[np.uint32]

_GOLDEN: Final = np.uint32(0x9E3779B9)
_FRACTION_BITS: Final = 24


@compiled
def _xorwow(states: Words, out: Words) -> None:
    lanes, size = states.shape
    streams = size // 6
    count = out.shape[1]
    for lane in range(lanes):
        for first in range(0, count, streams):
            for stream in range(streams):
                at = 6 * stream
                t = states[lane, at]
                v = states[lane, at + 4]
                t = np.uint32(t ^ np.uint32(t >> np.uint32(2)))
                new = np.uint32(
                    np.uint32(v ^ np.uint32(v << np.uint32(4))) ^ np.uint32(t ^ np.uint32(t << np.uint32(1)))
                )
                for word in range(4):
                    states[lane, at + word] = states[lane, at + word + 1]
                states[lane, at + 4] = new
                counter = np.uint32(np.int64(states[lane, at + 5]) + np.int64(362437))
                states[lane, at + 5] = counter
                if first + stream < count:
                    out[lane, first + stream] = np.uint32(np.int64(counter) + np.int64(new))


@compiled
def _lfsr(states: Words, out: Words) -> None:
    lanes, count = out.shape
    for lane in range(lanes):
        for column in range(count):
            t = states[lane, 0]
            w = states[lane, 3]
            t = np.uint32(t ^ np.uint32(t << np.uint32(11)))
            t = np.uint32(t ^ np.uint32(t >> np.uint32(8)))
            new = np.uint32(np.uint32(w ^ np.uint32(w >> np.uint32(19))) ^ t)
            for word in range(3):
                states[lane, word] = states[lane, word + 1]
            states[lane, 3] = new
            out[lane, column] = new


@dataclass(frozen=True, slots=True)
class Generator:
    """What one lane of an engine has.

    Attributes:
        name: the algorithm.
        words: 32-bit words of a state.
        streams: states that a lane has.
        step: compiled (states (L, words · streams), out (L, N)): writes numbers, and moves the states on in place.
    """

    name: str
    words: int
    streams: int
    step: Any

    @property
    def lane_words(self) -> int:
        """32-bit words that a lane has in all."""
        return self.words * self.streams


LFSR: Final = Generator("LFSR", 4, 1, _lfsr)
XORWOW: Final = Generator("XORWOW", 6, 1, _xorwow)
XORWOW_BY_FOUR: Final = Generator("XORWOW", 6, 4, _xorwow)


def _mixed(words: Words) -> Words:
    """Spread each word's bits over all of it, one to one: the finalizer of MurmurHash3."""
    words = words ^ (words >> np.uint32(16))
    words = words * np.uint32(0x85EBCA6B)
    words = words ^ (words >> np.uint32(13))
    words = words * np.uint32(0xC2B2AE35)
    return words ^ (words >> np.uint32(16))


def seeded(generator: Generator, seed: int, lanes: int) -> Words:
    """Return the states of all lanes that a single 32-bit seed leaves, (lanes, words of a lane).

    All words of one seed differ, since each is a one-to-one function of its place; so no shift register is zero.
    """
    places = np.arange(lanes * generator.lane_words, dtype=np.uint32) + np.uint32(generator.streams << 24)
    start = _mixed(np.array([seed & 0xFFFFFFFF], np.uint32))
    return _mixed(start + places * _GOLDEN).reshape(lanes, generator.lane_words)


def draw(generator: Generator, states: Words, count: int) -> Words:
    """Return ``count`` numbers of 32 bits for each lane, (L, count), and move ``states`` (L, words) on in place.

    ``states`` is C-contiguous.
    """
    out = np.empty((len(states), count), np.uint32)
    generator.step(states, out)
    return out


def unit(numbers: Words) -> NDArray[np.float32]:
    """Return numbers of 32 bits as float32 in [0, 1): their upper 24 bits, each value exact and equally likely."""
    return (numbers >> np.uint32(32 - _FRACTION_BITS)).astype(np.float32) * np.float32(2.0**-_FRACTION_BITS)
