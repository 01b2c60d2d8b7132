"""How much later each record could be: the least of what those that come after it can bear."""

from __future__ import annotations

from typing import Any

from neurosim.jit import compiled


@compiled
def relax(slack_ps: Any, first: Any, second: Any, gap_ps: Any) -> None:
    """Lower slacks until no record has more than those behind it have, and the gap between them.

    Args:
        slack_ps: by record, lowered in place.
        first, second: of each pair, the record that comes first and the one that waits for it. One pass is enough where
            pairs come by the start of their first record, latest first.
        gap_ps: of each pair, how much later the first could be before the second had to wait for it.
    """
    changed = True
    while changed:
        changed = False
        for index in range(len(first)):
            limit = slack_ps[second[index]] + gap_ps[index]
            if limit < slack_ps[first[index]]:
                slack_ps[first[index]] = limit
                changed = True
