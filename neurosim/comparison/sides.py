"""What may be compared: results, summaries, and files that hold a program or a summary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from neurosim.comparison.changes import Diff, Side
from neurosim.errors import ConfigurationError
from neurosim.report.costs import Costs
from neurosim.report.json_schema import check_summary
from neurosim.report.schema import Summary
from neurosim.result import Result
from neurosim.run import reopen
from neurosim.spelling import spelt


@spelt
def diff(a: Result | Mapping[str, Any] | str | Path, b: Result | Mapping[str, Any] | str | Path) -> Diff:
    """Return what changed from run ``a`` to run ``b``, aligned by kernel line: print it, or write it with ``html``.

    Args:
        a, b: each a :class:`neurosim.Result`, what its ``summary`` returned, or a file with either: a saved program, or
            a summary's JSON. Programs from files are timed as :func:`neurosim.run.reopen` does by itself.

    Raises:
        ConfigurationError: something else, a file of another version, or one that is none of these.
    """
    return Diff(side(a), side(b))


def side(run: Any) -> Side:
    """Return one side of a comparison; see :func:`diff`."""
    if isinstance(run, Result):
        return side_of_result(run)
    if isinstance(run, Mapping):
        return _side_of_summary(run, "diff")
    if isinstance(run, (str, Path)):
        content = summary_in(Path(run))
        return side_of_result(reopen(run)) if content is None else _side_of_summary(content, str(run))
    raise ConfigurationError(
        f"diff: {type(run).__name__} is no run", advice="give a Result, its summary, or a file of either"
    )


def side_of_result(result: Result, given: Mapping[str, str] | None = None) -> Side:
    """Return a side with all of a result's lines; ``given`` are arguments that only it was given."""
    lines = Costs(result.program, result.timeline).lines()
    return Side(cast("Summary", result.summary()), lines, is_whole=True, given=given or {})


def summary_in(path: Path) -> Any:
    """Return what a file of JSON holds, None for a file that begins otherwise.

    Raises:
        ConfigurationError: there is no such file, or no JSON in what begins as such.
    """
    try:
        with path.open("rb") as file:
            if file.read(1) not in (b"{", b"["):
                return None
            file.seek(0)
            return json.loads(file.read())
    except OSError as error:
        raise ConfigurationError(
            f"cannot read {path}: {error.strerror or error}", advice="check the name and the permissions"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{path} begins as JSON and is none: {error}", advice="write it again with neurosim profile --json"
        ) from None


def _side_of_summary(content: Any, where: str) -> Side:
    check_summary(content, where)
    if not content["engines"]:
        raise ConfigurationError(f"{where} is of a run without engines", advice="write it again with this neurosim")
    return Side(content, content["lines"], is_whole=False)
