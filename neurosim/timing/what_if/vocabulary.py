"""The words of a what-if: which figures of a device file each of them moves, and by what.

A word is a **factor** on figures of one kind: ``dma_bandwidth=2`` doubles rates, ``dma_latency=0`` takes latencies
away, ``math.inf`` is as much as makes no difference any more. Words are made from the names of the figures, so that a
new figure takes part without another word. A single figure is given by its path, as an **absolute value** in the unit
of the device file: ``dma__queue_depth=16``, or ``**{"dma.queue_depth": 16}``.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from neurosim.chip import Chip
from neurosim.errors import ConfigurationError
from neurosim.plain_numbers import plain

ENDLESS: Final = 1 << 20
"""The factor that stands for an infinite one: a millionfold; more would only cost digits."""


class Word(NamedTuple):
    """A word for figures that are moved by one factor.

    Attributes:
        meaning: what it is a factor on.
        paths: the figures.
        inverse: whether they are divided by it: rates given as cycles per element.
    """

    meaning: str
    paths: tuple[str, ...]
    inverse: bool = False


_ENGINES: Final = {"tensor": "the tensor engine", "vector": "Vector", "scalar": "Scalar", "gpsimd": "GpSimd"}
_BESIDE: Final = ("issue", "pointer", "overhead", "minimum")


def words(chip: Chip) -> dict[str, Word]:
    """Return the words that a chip has figures for, by name."""
    found = {
        "hbm_bandwidth": _word(chip, "the bandwidth of HBM", "hbm", "bandwidth"),
        "dma_bandwidth": _word(chip, "the rates of the DMA engines", "dma", "gb_per_s"),
        "dma_latency": _word(
            chip, "what a DMA takes beside its bytes and its queue", "dma", "first_data", "payload_ns", "semaphore"
        ),
        "dma_issue": _word(
            chip, "how long a DMA holds its engine and its queue", "dma", "trigger", "interval", "swdge_descriptor_ns"
        ),
        "descriptor_overhead": Word("what a descriptor costs beside its bytes", ("dma.descriptor_ns",)),
        "queue_depth": Word("DMAs that a queue has on the way at once", ("dma.queue_depth",)),
        "semaphore_latency": Word("what a semaphore takes", ("sync.semaphore_ns", "sync.own_semaphore_ns")),
        "loop_overhead": Word("what a trip of a loop on the device takes", ("sequencer.turn_ns",)),
        "register_latency": _word(chip, "what registers of the sequencers take", "sequencer", "move", "load", "store"),
        "core_latency": _word(chip, "what cores take to meet and to exchange tiles", "sync", "core_barrier", "swap_ns"),
        "sbuf_space": Word("the bytes of SBUF", ("sbuf.partition_bytes",)),
        "psum_space": Word("the banks of PSUM", ("psum.banks",)),
        "table_load": Word("what loading an activation table takes", ("scalar.table_load_cycles",)),
        "activation_latency": _word(
            chip, "from an activation to its result", "scalar", "activation_latency", "activation_psum_latency"
        ),
        "load_stationary": _word(chip, "what loading weights takes", "tensor", "load_cycles"),
    }
    for engine, name in _ENGINES.items():
        found |= {
            f"{engine}_clock": _word(chip, f"the clock of {name}", engine, "clock_ghz"),
            f"{engine}_latency": _word(chip, f"from issue to result on {name}", engine, "latency", "drain"),
            f"{engine}_overhead": _word(chip, f"what instructions on {name} cost beside elements", engine, *_BESIDE),
            f"{engine}_rate": _word(chip, f"elements per cycle of {name}", engine, "per_element", inverse=True),
        }  # fmt: skip
    return {name: word for name, word in found.items() if word.paths}


def _word(chip: Chip, meaning: str, section: str, *fragments: str, but: str = "\0", inverse: bool = False) -> Word:
    """Return a word for the numbers of a section whose names have one of some fragments in them."""
    paths = (
        path
        for path, figure in chip.figures.items()
        if path.startswith(f"{section}.")
        and isinstance(figure.value, int | float)
        and any(fragment in path for fragment in fragments)
        and but not in path
    )
    return Word(meaning, tuple(paths), inverse)


def figures_of(chip: Chip, changes: Mapping[str, Any], others: Sequence[str] = ()) -> dict[str, Any]:
    """Return new values of figures, by path, from words with factors and paths with values.

    Args:
        chip: whose.
        changes: by word or path.
        others: names that are known elsewhere, for the message.

    Raises:
        ConfigurationError: a name is neither, a factor makes no sense, or two changes move one figure.
    """
    known = words(chip)
    values: dict[str, Any] = {}
    for name, given in changes.items():
        path = name.replace("__", ".")
        if name in known:
            moved = _moved(chip, name, known[name], given)
        elif path in chip.figures:
            moved = {path: given}
        else:
            raise _unknown(name, [*known, *others, *chip.figures])
        twice = sorted(values.keys() & moved.keys())
        if twice:
            raise ConfigurationError(
                f"what_if: {name} moves {twice[0]}, which another change moves, too",
                advice="ask for one of the two at a time",
            )
        values |= moved
    return values


def _moved(chip: Chip, name: str, word: Word, given: Any) -> dict[str, int | float]:
    may_be_zero = not word.inverse and all(chip.figures[path].may_be_zero for path in word.paths)
    factor = _factor(name, given, may_be_zero=may_be_zero)
    return {path: _scaled(chip, path, 1 / factor if word.inverse else factor) for path in word.paths}


def _factor(name: str, given: Any, *, may_be_zero: bool) -> float:
    """Return what a figure is multiplied by."""
    given = plain(given)
    is_number = isinstance(given, int | float) and not isinstance(given, bool) and given == given  # nan is none
    if not is_number or given < 0 or not (given or may_be_zero):
        least = "of 0 or more" if may_be_zero else "above 0"
        raise ConfigurationError(
            f"what_if: {name}={given!r} is no factor", advice=f"give a number {least}, such as 2, 0.5 or math.inf"
        )
    return ENDLESS if given > sys.float_info.max else float(given)


def _scaled(chip: Chip, path: str, factor: float) -> int | float:
    """Return a figure times a factor; a count stays whole, and one of 1 or more at least 1."""
    value = chip.figures[path].value
    if isinstance(value, float):
        return value * factor
    assert isinstance(value, int)  # words name numbers only
    scaled = round(value * factor)
    if scaled == 0 and value and factor and chip.figures[path].unit in ("count", "B"):
        scaled = 1
    return scaled


def _unknown(name: str, known: list[str]) -> ConfigurationError:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    close += [each for each in known if name in each and each not in close][:3]
    return ConfigurationError(
        f"what_if: nothing is called {name!r}",
        numbers=(f"words: {', '.join(each for each in known if '.' not in each)}",),
        advice=f"did you mean {' or '.join(close)}?" if close else "or give a figure's path, such as dma__queue_depth",
    )
