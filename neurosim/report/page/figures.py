"""The figures of the page, as Bokeh draws them. Arrays go over as bytes, and texts once, however many bars say them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    CustomJSHover,
    FixedTicker,
    HoverTool,
    LabelSet,
    NumeralTickFormatter,
    Range1d,
    WheelZoomTool,
)
from bokeh.palettes import Category20_20
from bokeh.plotting import figure

from neurosim.chip import Chip
from neurosim.program import Program
from neurosim.report.accounts import rows
from neurosim.report.colors import CAUSE_COLORS, CAUSES_IN_ORDER, UNIT_COLORS, WAIT
from neurosim.report.occupancy import Lives
from neurosim.report.page.columns import Bars, cause_names
from neurosim.report.page.thinning import PIXELS, thinned
from neurosim.report.schema import EngineSummary, RooflineSummary
from neurosim.report.words import words

_ROW_PIXELS: Final = 18
_LEGEND_PIXELS: Final = 24
_TOOLS: Final = "xpan,xbox_zoom,reset,save"
_FROM_TO: Final = ("from, to [µs]", "@left{0.000}, @right{0.000}")


def timeline_figure(bars: Bars, makespan_ps: int) -> Any:
    """Return the timeline: a row per engine, queue and DMA engine; waits are thin red lines."""
    plot = figure(
        height=80 + _ROW_PIXELS * len(bars.rows),
        sizing_mode="stretch_width",
        tools=_TOOLS,
        x_axis_label="time [µs]",
        x_range=Range1d(0, makespan_ps / 1e6, bounds=(0, max(makespan_ps / 1e6, 1e-6))),
        y_range=Range1d(len(bars.rows) - 0.4, -0.6),
    )
    _zoom_in_time(plot)
    plot.yaxis.ticker = FixedTicker(ticks=list(range(len(bars.rows))))
    plot.yaxis.major_label_overrides = dict(enumerate(bars.rows))
    plot.ygrid.grid_line_color = None
    _draw_waits(plot, bars)
    _draw_bars(plot, bars)
    return plot


def _zoom_in_time(plot: Any) -> None:
    zoom = WheelZoomTool(dimensions="width")
    plot.add_tools(zoom)
    plot.toolbar.active_scroll = zoom


def _draw_waits(plot: Any, bars: Bars) -> None:
    row, start, end, cause, producer = bars.waits
    ones = np.ones(len(row), np.int32)
    columns = {"row": _f4(row), "left": _us(start), "right": _us(end), "count": ones}
    columns |= {"cause": cause.astype(np.int32), "producer": producer.astype(np.int32)}
    source = thinned(columns, plot.x_range)
    drawn = plot.hbar(y="row", left="left", right="right", height=0.12, source=source, fill_color=WAIT, line_color=None)
    tooltips = [("waits for", "@cause{custom}@producer{custom}"), _FROM_TO]
    formatters = {"@cause": _lookup(cause_names()), "@producer": _producer(bars)}
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=tooltips, formatters=formatters))


def _producer(bars: Bars) -> Any:
    """Return what says which instruction was waited for."""
    names, _, lines = [list(texts) for texts in zip(*bars.texts, strict=True)] or [[], [], []]
    code = "return value < 0 ? '' : ': ' + names[value] + ', ' + lines[value]"
    return CustomJSHover(args={"names": names, "lines": lines}, code=code)


def _draw_bars(plot: Any, bars: Bars) -> None:
    source = thinned(
        {
            "row": _f4(bars.row),
            "left": _us(bars.start_ps),
            "right": _us(bars.end_ps),
            "text": bars.text.astype(np.int32),
            "count": np.ones(len(bars.row), np.int32),
            "waited": _us(bars.waited_ps),
            "cause": bars.cause.astype(np.int32),
            "producer": bars.producer.astype(np.int32),
            "color": _colors(bars.rows)[bars.row],
        },
        plot.x_range,
    )
    drawn = plot.hbar(
        y="row", left="left", right="right", height=0.76, source=source, fill_color="color", line_color=None
    )
    names, operands, lines = [list(texts) for texts in zip(*bars.texts, strict=True)] or [[], [], []]
    # what is said of a bar is looked up when it is pointed at: most bars share their texts
    of_bar = "const t = source.data.text[special_vars.index];"
    formatters = {
        "@text": CustomJSHover(
            args={"texts": names, "source": source},
            code=f"{of_bar} return t < 0 ? source.data.count[special_vars.index] + ' instructions' : texts[t]",
        ),
        "@count": CustomJSHover(args={"texts": operands, "source": source}, code=f"{of_bar} return texts[t] ?? ''"),
        "@row": CustomJSHover(args={"texts": lines, "source": source}, code=f"{of_bar} return texts[t] ?? ''"),
        "@cause": _lookup(cause_names()),
        "@producer": _producer(bars),
    }
    tooltips = [
        ("instruction", "@text{custom}"),
        ("operands", "@count{custom}"),
        ("line", "@row{custom}"),
        _FROM_TO,
        ("waited before [µs]", "@waited{0.000} @cause{custom}@producer{custom}"),
    ]
    plot.add_tools(HoverTool(renderers=[drawn], tooltips=tooltips, formatters=formatters))


def stalls_figure(engines: Mapping[str, EngineSummary], makespan_ps: int) -> Any:
    """Return a bar per engine, one for all DMA engines: work, overhead, each cause of a wait, idle at the end."""
    engines = rows(engines)
    names = list(engines)
    parts = [name for name in CAUSES_IN_ORDER if any(name in engine["causes_ps"] for engine in engines.values())]
    shares = {part: [engine["causes_ps"].get(part, 0) for engine in engines.values()] for part in parts}
    data = {part: [100 * ps / max(makespan_ps, 1) for ps in shares[part]] for part in parts}
    plot = figure(
        y_range=names[::-1],
        height=max(90 + _ROW_PIXELS * len(names), 40 + _LEGEND_PIXELS * len(parts)),
        sizing_mode="stretch_width",
        tools="save",
        x_axis_label="share of the makespan [%]",
        x_range=Range1d(0, 100),
    )
    colors = [CAUSE_COLORS[part] for part in parts]
    labels = [words(part) for part in parts]
    drawn = plot.hbar_stack(
        parts,
        y="engine",
        height=0.8,
        color=colors,
        source=ColumnDataSource({"engine": names, **data}),
        legend_label=labels,
    )
    for renderer, label in zip(drawn, labels, strict=True):
        plot.add_tools(HoverTool(renderers=[renderer], tooltips=f"@engine: {label} @$name{{0.0}} %"))
    plot.add_layout(plot.legend[0], "right")
    return plot


def roofline_figure(roofline: RooflineSummary, chip: Chip, kernel_name: str) -> Any:
    """Return the roof that memory and tensor engine leave, and the kernel under it."""
    intensity = roofline["intensity_flop_per_byte"] or 0.0
    ridge, peak = roofline["ridge_flop_per_byte"], roofline["peak_tflop_per_s"]
    bandwidth = roofline["bandwidth_gb_per_s"]
    plot = figure(
        height=300,
        sizing_mode="stretch_width",
        tools="pan,wheel_zoom,reset,save",
        x_axis_type="log",
        y_axis_type="log",
        x_axis_label="intensity [FLOP per byte of HBM traffic]",
        y_axis_label="TFLOP/s",
    )
    if peak > 0 and ridge > 0:
        low, high = min(ridge, intensity or ridge) / 10, max(ridge, intensity) * 10
        plot.line([low, ridge, high], [low * bandwidth / 1000, peak, peak], line_width=2, color="#555555")
        label = ColumnDataSource(
            {
                "x": [low * 1.2, ridge],
                "y": [low * bandwidth / 900, peak * 1.1],
                "text": [f"{bandwidth:.0f} GB/s", f"{peak:.1f} TFLOP/s"],
            }
        )
        plot.add_layout(LabelSet(x="x", y="y", text="text", source=label, text_font_size="9pt"))
    if intensity > 0 and roofline["achieved_tflop_per_s"] > 0:
        point = plot.scatter([intensity], [roofline["achieved_tflop_per_s"]], size=12, color=WAIT)
        reached = f"{kernel_name} on {chip.name}: @y{{0.000}} TFLOP/s at @x{{0.0}} FLOP/byte"
        plot.add_tools(HoverTool(renderers=[point], tooltips=reached))
    return plot


def occupancy_figure(memory: str, lives: Lives, program: Program, capacity_bytes: int, x_range: Any) -> Any:
    """Return what was in a memory over time: a box per tensor, as high as the bytes it takes of each partition."""
    plot = figure(
        height=240,
        sizing_mode="stretch_width",
        tools=_TOOLS,
        x_range=x_range,
        x_axis_label="time [µs]",
        y_axis_label=f"{memory}, KiB of each partition",
    )
    _zoom_in_time(plot)
    kib = 1024.0
    infos = [program.storages[index] for index in lives.storages.tolist()]
    labels = map(program.label, lives.storages.tolist())  # what the kernel calls it, not a name of its own
    texts = [f"{label} {list(info.shape)} {info.dtype}" for label, info in zip(labels, infos, strict=True)]
    unique = sorted(set(texts))
    number = {text: index for index, text in enumerate(unique)}
    index = np.array([number[text] for text in texts], dtype=np.int32)
    palette = np.array([_rgba(color) for color in Category20_20], dtype=np.uint32)
    source = thinned(
        {
            "left": _us(lives.start_ps),
            "right": _us(lives.end_ps),
            "bottom": _f4(lives.place_bytes / kib),
            "top": _f4((lives.place_bytes + lives.size_bytes) / kib),
            "text": index,
            "color": palette[index % len(palette)],
        },
        x_range,
    )
    boxes = plot.quad(
        left="left", right="right", bottom="bottom", top="top", source=source, fill_color="color", fill_alpha=0.7,
        line_color="white", line_width=0.5,
    )  # fmt: skip
    tooltips = [
        ("tensor", "@text{custom}"),
        _FROM_TO,
        ("KiB, up to", "@top{0.0}"),
    ]
    plot.add_tools(HoverTool(renderers=[boxes], tooltips=tooltips, formatters={"@text": _lookup(unique)}))
    moments, used = lives.steps() if len(texts) else (np.zeros(0), np.zeros(0))
    moments, used = _highest(moments, used)
    plot.step(_us(moments), used / kib, mode="after", line_color="black", line_width=1, legend_label="in use")
    plot.line(
        [0, float(x_range.end)],
        [capacity_bytes / kib] * 2,
        line_color=WAIT,
        line_dash="dashed",
        legend_label="capacity",
    )
    plot.legend.location = "top_right"
    plot.yaxis.formatter = NumeralTickFormatter(format="0")
    return plot


def _highest(moments: Any, used: Any) -> tuple[Any, Any]:
    """Return steps of which a screen can show all: the highest of each pixel."""
    if len(moments) <= 4 * PIXELS:
        return moments, used
    firsts = np.unique(np.searchsorted(moments, np.linspace(moments[0], moments[-1], 4 * PIXELS)))
    firsts = firsts[firsts < len(moments)]
    return moments[firsts], np.maximum.reduceat(used, firsts)


def _lookup(texts: Sequence[str]) -> CustomJSHover:
    return CustomJSHover(args={"texts": list(texts)}, code="return texts[value] ?? ''")


def _colors(rows: Sequence[str]) -> Any:
    names = [row if row in UNIT_COLORS else "queue" if row.startswith("queue") else "dma" for row in rows]
    return np.array([_rgba(UNIT_COLORS[name]) for name in names], dtype=np.uint32)


def _rgba(color: str) -> int:
    return int(color[1:], 16) << 8 | 0xFF


def _us(ps: Any) -> Any:
    return np.asarray(ps, dtype=np.float64) / 1e6


def _f4(values: Any) -> Any:
    return np.asarray(values, dtype=np.float32)
