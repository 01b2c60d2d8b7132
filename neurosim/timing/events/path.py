"""The chain of records that decides when a program ends, from its end to its beginning."""

from __future__ import annotations

from typing import Any

from neurosim.jit import compiled


@compiled
def walk(steps: Any, start_ps: Any, begin_ps: Any, waited_for: Any, behind: Any, last: int, end_ps: int) -> int:
    """Fill ``steps`` (record, start_ps, end_ps) backwards, and return how many there are, -1 where they do not end.

    From the record that ends last one goes to the one that it waited for, whenever that was: to the one that decided
    its start, or, from a transfer that moved behind another one, to that.

    Args:
        steps: room for them.
        start_ps, waited_for: by record, when it began and which record decided that.
        begin_ps, behind: by record, when a transfer began to move and which transfer decided that, -1 for none.
        last: the record that ends last.
        end_ps: when that is.
    """
    record, at, count = last, end_ps, 0
    for _ in range(4 * len(start_ps) + 4):
        if record < 0 or at <= 0:
            break
        ahead, since = behind[record], min(start_ps[record], at)
        following = waited_for[record]
        if ahead >= 0 and begin_ps[record] < at:
            since, following = begin_ps[record], ahead
        if since < at:
            steps[count].record = record
            steps[count].start_ps = since
            steps[count].end_ps = at
            count += 1
        record, at = following, since
    else:
        return -1
    if count > 0:
        steps[count - 1].start_ps = 0  # what came before the first record began belongs to it
    return count
