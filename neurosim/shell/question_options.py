"""Questions on the command line: what limits a kernel, and what it would take if something were otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from neurosim.errors import ConfigurationError

if TYPE_CHECKING:
    from neurosim.report.schema import Summary
    from neurosim.result import Result

FACTORS = (
    "hbm_bandwidth",
    "dma_bandwidth",
    "dma_latency",
    "dma_issue",
    "descriptor_overhead",
    "queue_depth",
    "semaphore_latency",
    "loop_overhead",
    "register_latency",
    "core_latency",
    "sbuf_space",
    "psum_space",
    "table_load",
    "activation_latency",
    "load_stationary",
)
"""Words of :func:`neurosim.timing.what_if.words`, which are of no engine; in the help, before a chip is loaded."""

ENGINES = ("tensor", "vector", "scalar", "gpsimd")
OF_ENGINES = ("ENGINE_clock", "ENGINE_latency", "ENGINE_overhead", "ENGINE_rate")

Limits = Annotated[
    bool,
    typer.Option(
        "--advice", help="Say what limits the kernel, too: its critical path, ready-made what-ifs by gain, advice."
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--what-if",
        metavar="NAME=VALUE[,…]",
        help="Time the program again with changes; repeatable, each by itself. A factor on figures of one kind: "
        f"{', '.join(FACTORS)}, and {', '.join(OF_ENGINES)} of an ENGINE ({', '.join(ENGINES)}), as in vector_clock=2. "
        "A figure of the chip in its unit: dma.queue_depth=16. Else: throttle=off, schedule=program, overwrites=off "
        "(a buffer for each contents of a tile), matmul=bfloat16 (in place of float32), without=FILE:LINE (no time for "
        "a line's instructions), earliest=RECORD:PS (a record, as --csv counts them, starts no sooner); these two may "
        "be there several times.",
    ),
]

_SWITCHES = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


def parsed(what_if: Sequence[str]) -> list[dict[str, Any]]:
    """Return the changes that each option asks for.

    Raises:
        ConfigurationError: one of them is no list of names with values.
    """
    return [_changes(text) for text in what_if]


def _changes(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not name or not equals or not value:
            raise ConfigurationError(
                f"--what-if {text}: {item.strip()!r} is no change",
                advice="give names with values, as in dma_bandwidth=2 or dma_latency=0,throttle=off",
            )
        if name == "without":
            found[name] = (*found.get(name, ()), _value(value))
        elif name == "earliest":
            found[name] = found.get(name, {}) | _start(text, value)
        elif name in found:
            raise ConfigurationError(f"--what-if {text}: {name} is there twice", advice="give it a value of its own")
        else:
            found[name] = _value(value)
    return found


def _start(change: str, text: str) -> dict[int, int]:
    """Return by a record's number when it may start at the earliest, in picoseconds."""
    record, colon, start_ps = text.partition(":")
    if not (colon and record.isdecimal() and start_ps.isdecimal() and text.isascii()):
        raise ConfigurationError(
            f"--what-if {change}: {text!r} is no record with a time",
            advice="give the number of a record and a time in picoseconds, as in earliest=17:2000000",
        )
    return {int(record): int(start_ps)}


def _value(text: str) -> Any:
    if text.lower() in _SWITCHES:
        return _SWITCHES[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def answer(
    result: Result, summary: dict[str, Any], *, advice: bool, what_if: Sequence[dict[str, Any]], color: bool
) -> str:
    """Return answers as text, and put them into the summary."""
    from neurosim.report.limits import what_if_rows
    from neurosim.report.limits_text import answers, limits

    parts = [""]
    if what_if:
        summary["what_if"] = what_if_rows([result.what_if(**changes) for changes in what_if])
        parts.append(answers(summary["what_if"], color=color))
    if advice:
        summary |= result.limits()
        parts.append(limits(cast("Summary", summary), color=color))
    return "\n".join(parts)
