"""How far predictions are from measurements: errors, ranks within a family, bottlenecks."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from validation.rows import Row
from validation.running import Outcome

LEAST_DIFFERENCE = 0.03
"""Pairs of a family whose measured times are closer than this have no rank: the noise of a run is 1 to 2 %."""

LEAST_PAIRS = 3
"""Families with fewer pairs than this have no rank correlation."""


@dataclass(frozen=True)
class Held:
    """A row held against its outcome. ``error`` is signed: above 0, the prediction is too slow."""

    row: Row
    outcome: Outcome

    @property
    def error(self) -> float:
        """Prediction over measurement, less 1; of a bound, only what is above it."""
        assert self.outcome.predicted_us is not None
        error = self.outcome.predicted_us / self.row.measured_us - 1
        return max(error, 0.0) if self.row.at_most else error

    @property
    def hit(self) -> bool | None:
        """Whether the bottleneck is one of the published engines; None where none is published."""
        if not set(self.row.bound) - {"latency"} or self.row.at_most:
            return None
        return self.outcome.bottleneck in self.row.bound


@dataclass(frozen=True)
class Group:
    """Statistics of a group of rows that have a two-sided measurement.

    Attributes:
        name: what they share.
        rows: how many there are.
        median, worst: of the errors without sign; the worst row's id stands beside it.
        bias: median of the signed errors.
        hits, named: rows whose bottleneck is right, and rows where one is published.
        tau, pairs: Kendall's tau, and over how many pairs; None below ``LEAST_PAIRS``.
    """

    name: str
    rows: int
    median: float
    bias: float
    worst: float
    worst_id: str
    hits: int
    named: int
    tau: float | None
    pairs: int


def group(name: str, members: Sequence[Held]) -> Group:
    """Return the statistics of one group, which must not be empty."""
    worst = max(members, key=lambda held: abs(held.error))
    tau, pairs = kendall(members)
    hits = [held.hit for held in members if held.hit is not None]
    return Group(
        name=name,
        rows=len(members),
        median=statistics.median(abs(held.error) for held in members),
        bias=statistics.median(held.error for held in members),
        worst=worst.error,
        worst_id=worst.row.id,
        hits=sum(hits),
        named=len(hits),
        tau=tau,
        pairs=pairs,
    )


def groups(held: Iterable[Held], key: str) -> list[Group]:
    """Return the statistics by an attribute of the row, in the order in which its values first come."""
    members: dict[str, list[Held]] = {}
    for each in held:
        if not each.row.at_most:
            members.setdefault(getattr(each.row, key), []).append(each)
    return [group(name, each) for name, each in members.items()]


def kendall(members: Sequence[Held]) -> tuple[float | None, int]:
    """Return Kendall's tau over the pairs whose measured times differ enough, and their number.

    A pair counts 1 where the prediction has the measured order, -1 where it has the other one, 0 where it is equal.
    """
    score = pairs = 0
    for a, b in combinations(members, 2):
        if a.row.family != b.row.family:
            continue
        shorter, longer = sorted((a, b), key=lambda held: held.row.measured_us)
        if longer.row.measured_us < (1 + LEAST_DIFFERENCE) * shorter.row.measured_us:
            continue
        pairs += 1
        left, right = (held.outcome.predicted_us or 0.0 for held in (shorter, longer))
        score += (left < right) - (left > right)
    return (score / pairs if pairs >= LEAST_PAIRS else None), pairs
