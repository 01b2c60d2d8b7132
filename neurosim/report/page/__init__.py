"""A run as one page of HTML that needs nothing else: no network, no other file.

Figures are Bokeh's, whose JavaScript is part of the page.
"""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import neurosim
from neurosim.chip import Chip, psum_bytes
from neurosim.engines import Memory
from neurosim.errors import ConfigurationError
from neurosim.program import Program
from neurosim.report import units
from neurosim.report.costs import Costs
from neurosim.report.occupancy import lives
from neurosim.report.page.columns import bars
from neurosim.report.schema import LineSummary, Summary
from neurosim.report.words import words
from neurosim.timing.timeline import Timeline
from neurosim.writing import replacing


def write_page(path: str | Path, program: Program, timelines: Mapping[int, Timeline], chip: Chip, summary: Any) -> None:
    """Write the page. An interrupt leaves no file.

    Args:
        path: the file.
        program: the record.
        timelines: by core.
        chip: what was timed.
        summary: of all cores, as :func:`neurosim.report.summary.kernel_summary` gives it.

    Raises:
        ConfigurationError: Bokeh is not installed, or the file cannot be written.
    """
    text = page(program, timelines, chip, summary)
    with replacing(path) as file:
        file.write(text.encode())


def page(program: Program, timelines: Mapping[int, Timeline], chip: Chip, summary: Any) -> str:
    """Return the page as text; see :func:`write_page`."""
    try:
        import jinja2
        from bokeh.embed import components
        from bokeh.resources import INLINE

        from neurosim.report.page import figures
    except ImportError as error:
        raise ConfigurationError(f"a page needs {error.name}", advice="pip install 'neurosim-npu[report]'") from error

    whole = cast("Summary", summary)
    cores = []
    drawn: list[Any] = []
    engines = {core["core"]: core["engines"] for core in whole["cores"]} or {whole["core"]: whole["engines"]}
    for core in sorted(timelines):
        timeline = timelines[core]
        costs = Costs(program, timeline)
        time = figures.timeline_figure(bars(program, costs.causes), timeline.makespan_ps)
        spaces = [
            figures.occupancy_figure(
                name.upper(), lives(timeline, memory), timeline.compiled.program, limit, time.x_range
            )
            for name, memory, limit in (
                ("sbuf", Memory.sbuf, chip.sbuf.partition_bytes),
                ("psum", Memory.psum, psum_bytes(chip)),
            )
        ]
        drawn += [time, figures.stalls_figure(engines[core], timeline.makespan_ps), *spaces]
        cores.append({"core": core, "files": _files(costs.lines(), program)})
    drawn.append(figures.roofline_figure(whole["roofline"], chip, whole["kernel"]))
    script, parts = components(drawn)
    for index, core_parts in enumerate(cores):
        core_parts["timeline"], core_parts["stalls"], core_parts["sbuf"], core_parts["psum"] = parts[
            4 * index : 4 * index + 4
        ]
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(
        Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    )
    return template.render(
        summary=whole,
        version=neurosim.__version__,
        cores=cores,
        roofline=parts[-1],
        script=script,
        resources=INLINE.render(),
        facts=_facts(whole),
        time=units.time,
        percent=units.percent,
        words=words,
    )


def _facts(summary: Summary) -> list[tuple[str, str]]:
    hbm = summary["hbm"]
    traffic = f"read {units.binary(hbm['read_bytes'])}, written {units.binary(hbm['written_bytes'])}"
    return [
        ("chip", summary["chip"]),
        ("time", f"{units.time(summary['makespan_ps'])}, and {units.time(summary['launch_ps'])} to launch"),
        ("order", f"schedule={summary['schedule']}"),
        ("instructions", f"{summary['instructions']:,}"),
        ("tensor engine", f"MFU {units.percent(summary['mfu'])}"),
        ("HBM", f"{traffic}, MBU {units.percent(summary['mbu'])}"),
        ("inputs and outputs", ", ".join(f"{t['name']} {t['shape']} {t['dtype']}" for t in summary["tensors"])),
    ]


def _files(lines: list[LineSummary], program: Program) -> list[dict[str, Any]]:
    """Return the kernel's files, each with its source and what its lines cost."""
    paths = {frame.file: frame.path or frame.file for stack in program.stacks for frame in stack}
    files = []
    for name in sorted({line["file"] for line in lines}):
        costs: dict[int, list[LineSummary]] = {}
        for line in lines:
            if line["file"] == name:
                costs.setdefault(line["line"], []).append(line)
        source = linecache.getlines(paths.get(name, name)) or [""] * max(costs)
        first, last = min(costs), max(costs)
        rows = [
            {
                "number": number,
                "source": source[number - 1].rstrip() if number <= len(source) else "",
                "costs": costs.get(number, []),
            }
            for number in range(max(first - 3, 1), min(last + 3, len(source)) + 1)
        ]
        files.append({"name": name, "rows": rows})
    return files
