"""Print the score: ``python tests/mutations/score.py``. A row per kind of bug, a column per what caught it."""

from __future__ import annotations

from collections import Counter, defaultdict

import mutants as m
from rich.console import Console
from rich.table import Table

import neurosim  # noqa: F401 (makes nki importable)


def main() -> None:
    fates: dict[str, Counter[str]] = defaultdict(Counter)
    for target in m.LAUNCHES:
        for mutant in m.mutants(target):
            if not mutant.is_equivalent:
                outcome, _ = m.fate(mutant)
                known = outcome in next(kind.caught_by for kind in m.KINDS if kind.name == mutant.kind)
                fates[mutant.kind][outcome if known else m.SURVIVED] += 1
    table = Table(title=f"bugs seeded into {len(m.LAUNCHES)} kernels")
    for heading in ("kind", "caught / seeded", "by"):
        table.add_column(heading)
    for kind in m.KINDS:
        outcomes = fates[kind.name]
        caught = outcomes.total() - outcomes[m.SURVIVED]
        by = ", ".join(f"{outcome} {count}" for outcome, count in outcomes.most_common() if outcome != m.SURVIVED)
        table.add_row(kind.name, f"{caught} / {outcomes.total()}", by)
    Console().print(table)


if __name__ == "__main__":
    main()
