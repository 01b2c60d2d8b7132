"""The timing model against real chips: published latencies of public kernels, each predicted and compared.

    python benchmarks/validate.py [--public DIR] [--held-out] [--rows TEXT …] [--chip trn2] [--kept FILE] …

Rows are in ``measured_rows.toml``, with where each was published. Without ``--public``, those run that a kernel in
``kernels/`` covers. ``DIR`` holds clones of the public repositories at the commits that the file states, each under its
own name, or ``NAME@COMMIT`` (eight digits) where there are two; a row runs from there where its file is found, byte for
byte. No values are computed. Each row has a process of its own and a limit of time; a row that does not run is listed
with the reason. ``--held-out`` runs those of ``held_out_rows.toml``, which nothing was ever fitted to. All rows take
the better part of an hour: with ``--kept`` a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from rich.progress import track
from validation.kept import Kept
from validation.rows import HELD_OUT, ROWS, Row, load_rows
from validation.running import Outcome, run_row
from validation.statistics import Held, groups
from validation.tables import console, print_all

from neurosim.sweeps.journal import Journal


def chosen(rows: list[Row], options: argparse.Namespace) -> list[Row]:
    """Return the rows that the options ask for."""
    wanted = options.rows or [""]
    return [
        row
        for row in rows
        if any(text in row.id or text in row.family for text in wanted) and options.chip in (None, row.chip)
    ]


def kind_of(row: Row, public: Path | None, only_own: bool) -> str:
    """Return which kernel a row runs: the public one where there is a folder for it, ours elsewhere."""
    return "own" if row.own and (public is None or only_own) else "public"


def in_a_process(row: Row, kernel: str, options: argparse.Namespace) -> Outcome:
    """Run a row by this script in a process of its own."""
    command = [sys.executable, __file__, "--one", row.id, "--kernel", kernel]
    command += [] if options.public is None else ["--public", str(options.public)]
    command += ["--held-out"] if options.held_out else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return Outcome(row.id, kernel, why_not=f"not done in {options.limit:g} s")
    if done.returncode:
        return Outcome(row.id, kernel, why_not=f"ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def kept_or_run(row: Row, kept: Kept, options: argparse.Namespace) -> Outcome:
    """Return what is kept of a row, else run it; what did not run is asked for again another time."""
    kernel = kind_of(row, options.public, options.own)
    outcome = kept.get(row, kernel)
    if outcome is None:
        outcome = in_a_process(row, kernel, options)
        if outcome.predicted_us is not None:
            kept.put(row, outcome)
    return outcome


def report(held: list[Held], missing: list[tuple[Row, Outcome]]) -> dict[str, Any]:
    """Return everything that was found, as JSON takes it."""
    rows = [
        {
            **each.outcome.as_json(),
            "measured_us": each.row.measured_us,
            "at_most": each.row.at_most,
            "error": each.error,
            "bound": each.row.bound,
            "bottleneck": each.outcome.bottleneck,
            "measured_busy_percent": each.row.busy_percent,
            "trust": each.row.trust,
        }
        for each in held
    ]
    keys = {"families": "family", "bounds": "bound_class", "chips": "chip", "trust": "grade"}
    return {
        "rows": rows,
        "not_run": {row.id: outcome.why_not for row, outcome in missing},
        **{name: [vars(each) for each in groups(held, key)] for name, key in keys.items()},
    }


def main() -> None:
    """Parse options, run the rows, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--public", type=Path, help="a folder of clones, each at its commit")
    parser.add_argument("--held-out", action="store_true", help="the rows that nothing was fitted to")
    parser.add_argument("--own", action="store_true", help="run our own kernel where there is one, even with --public")
    parser.add_argument("--rows", nargs="*", help="only rows with one of these texts in their id or family")
    parser.add_argument("--chip", help="only rows of this chip")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a row, 120")
    parser.add_argument("--jobs", type=int, default=1, help="rows at a time, 1")
    parser.add_argument(
        "--kept", type=Path, help="keep each row's outcome here; those of these sources are not run again"
    )
    parser.add_argument("--json", type=Path, help="write everything that was found to this file")
    parser.add_argument("--plot", type=Path, help="write predicted against measured to this .svg, .png or .pdf")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--kernel", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = load_rows(HELD_OUT if options.held_out else ROWS)
    if options.one:
        row = next(row for row in rows if row.id == options.one)
        print(json.dumps(run_row(row, options.kernel, options.public).as_json()))
        return
    if options.public is not None and not options.public.is_dir():
        sys.exit(f"--public {options.public}: there is no such folder")
    rows = chosen(rows, options)
    if not rows:
        sys.exit("no row has such a name")
    out = console()
    with Journal(options.kept) as journal, ThreadPoolExecutor(options.jobs) as pool:
        run = partial(kept_or_run, kept=Kept(journal), options=options)
        outcomes = list(track(pool.map(run, rows), "running", total=len(rows), transient=True))
    pairs = list(zip(rows, outcomes, strict=True))
    held = [Held(row, outcome) for row, outcome in pairs if outcome.predicted_us is not None]
    missing = [(row, outcome) for row, outcome in pairs if outcome.predicted_us is None]
    print_all(out, held, missing)
    if options.json is not None:
        options.json.write_text(json.dumps(report(held, missing), indent=1) + "\n", encoding="utf-8")
    if options.plot is not None and held:
        from validation.plot import plot

        plot(held, options.plot)


if __name__ == "__main__":
    main()
