"""What a notebook shows: HTML of results and timelines, and plots whose bars and points are those of the run."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import ConfigurationError
from neurosim.shell.loading import load_kernel, packaged_kernel
from neurosim.timing.timeline import Op

PLOTS = ("plot_timeline", "plot_engines", "plot_roofline", "plot_memory")


@pytest.fixture(scope="module")
def result() -> neurosim.Result:
    kernel = load_kernel(f"{packaged_kernel('attention.py')}:attention")
    spec = neurosim.spec((512, 64), "bfloat16")
    return neurosim.simulate(kernel, chip="trn2", values=False)(spec, spec, spec, causal=True)


class Page(HTMLParser):
    """Counts tags that are open, and keeps text and the widths of bars."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.widths: list[list[float]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        style = dict(attrs).get("style") or ""
        if style.startswith("width: 6em"):
            self.widths.append([])
        elif style.startswith("width: "):
            self.widths[-1].append(float(style.removeprefix("width: ").partition("%")[0]))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


# HTML


@pytest.mark.parametrize("what", ["result", "timeline", "two cores"])
def test_each_engine_has_a_bar_as_long_as_its_time(what: str, result: neurosim.Result) -> None:
    shown: Any = result if what == "result" else result.timeline
    bars = 6 if what == "result" else 21
    if what == "two cores":
        kernel = load_kernel(f"{packaged_kernel('sharded_rmsnorm.py')}:sharded_rmsnorm")
        shown = neurosim.simulate(kernel)[2](np.ones((256, 64), np.float32), np.ones(64, np.float32))
        bars = 12
    text = shown._repr_html_()
    page = Page(text)
    assert not page.open
    assert page.tags <= {"div", "b", "span", "table", "tr", "th", "td"}
    assert len(page.widths) == bars
    for widths in page.widths:
        assert sum(widths) == pytest.approx(100, abs=0.05)
    assert len(text) < 40_000


def test_a_result_shows_its_facts_and_lines(result: neurosim.Result) -> None:
    text, summary = Page(result._repr_html_()).text, result.summary()
    assert "attention on trn2: simulated, not measured" in text
    for line in summary["lines"][:3]:
        assert f"{line['file']}:{line['line']}" in text
    report = " ".join(result.report().split())
    (facts,) = [part for part in text.split("\n") if part.startswith("SBUF ")]
    assert " ".join(facts.split()) in report


def test_names_cannot_break_out_of_it(tmp_path: Path) -> None:
    def kernel(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm, name="<script>alert(1)</script>&\"'")
        nisa.dma_copy(dst=out, src=x)
        return out

    kernel.__name__ = "<img src=x onerror=alert(2)>"
    shown = neurosim.simulate(kernel)(np.ones((1, 8), np.float32))
    text = shown._repr_html_()
    assert "<script" not in text
    assert "<img" not in text
    page = Page(text)
    assert "<script>alert(1)</script>&\"'" in page.text
    assert "<img src=x onerror=alert(2)> on trn2" in page.text


def test_ipython_shows_them(result: neurosim.Result) -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    formatter = formatters.DisplayFormatter()
    for shown in (result, result.timeline):
        data, _ = formatter.format(shown)
        assert data["text/html"] == shown._repr_html_()
        assert data["text/plain"] == repr(shown)
    data, _ = formatter.format(neurosim.diff(result, result))
    assert data["text/html"].startswith("<style>")
    data, _ = formatter.format(result.plot_roofline())
    assert data["image/png"][:4] in (b"\x89PNG", "iVBO")


# Plots


def test_the_timelines_bars_cover_what_the_engines_did(result: neurosim.Result) -> None:
    pytest.importorskip("matplotlib")
    timeline = result.timeline
    (axes,) = result.plot_timeline().axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(timeline.units)
    drawn = dict.fromkeys(timeline.units, 0.0)
    for bars in axes.collections:
        for path in bars.get_paths():
            box = path.get_extents()
            row = round((box.y0 + box.y1) / 2)
            drawn[timeline.units[row]] += box.x1 - box.x0
    for row, name in enumerate(timeline.units):
        ops = timeline.ops[timeline.ops["unit"] == row]
        expected = 0
        for loads in (True, False):  # in bars of their own
            of_kind = ops[(ops["kind"] == Op.LOAD_STATIONARY) == loads]
            reached = 0
            for op in of_kind:
                expected += max(int(op["end_ps"]) - max(int(op["start_ps"]), reached), 0)
                reached = max(reached, int(op["end_ps"]))
        gaps = len(ops) * timeline.makespan_ps / 2000  # at most, since narrower ones are not drawn
        assert expected / 1e6 <= drawn[name] + 1e-9 <= (expected + gaps) / 1e6 + 2e-9


def test_a_part_of_the_timeline(result: neurosim.Result, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (axes,) = result.timeline.plot(tmp_path / "part.svg", first_ps=2_000_000, last_ps=5_000_000).axes
    assert axes.get_xlim() == (2.0, 5.0)
    assert (tmp_path / "part.svg").read_text(encoding="utf-8").startswith("<?xml")
    for first, last in ((5, 5), (-1, None), (2 * result.timeline.makespan_ps, None), (0, float("inf")), ("a", 5)):
        with pytest.raises(ConfigurationError, match="there is no time from"):
            result.plot_timeline(first_ps=first, last_ps=last)
    with pytest.raises(ConfigurationError, match="ran on cores 0 only"):
        result.plot_timeline(core=1)


def test_the_engines_bars_are_whole(result: neurosim.Result) -> None:
    pytest.importorskip("matplotlib")
    (axes,) = result.plot_engines().axes
    reached: dict[int, float] = {}
    for bar in axes.patches:
        row = round(bar.get_y() + bar.get_height() / 2)
        reached[row] = reached.get(row, 0.0) + bar.get_width()
    assert len(reached) == 6
    assert all(width == pytest.approx(100, abs=0.01) for width in reached.values())


def test_the_kernel_is_under_the_roof(result: neurosim.Result) -> None:
    pytest.importorskip("matplotlib")
    roof = result.summary()["roofline"]
    (axes,) = result.plot_roofline().axes
    line, point = axes.lines
    assert point.get_xydata().tolist() == [[roof["intensity_flop_per_byte"], roof["achieved_tflop_per_s"]]]
    assert line.get_ydata()[-1] == roof["peak_tflop_per_s"]
    assert line.get_xdata()[1] == roof["ridge_flop_per_byte"]

    def copy(x: Any) -> Any:
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        return out

    (axes,) = neurosim.simulate(copy)(np.ones((1, 8), np.float32)).plot_roofline().axes
    assert len(axes.lines) == 1, "what multiplies nothing has no point on a logarithmic axis"


def test_memory_reaches_its_peak(result: neurosim.Result) -> None:
    pytest.importorskip("matplotlib")
    for axes, limit_bytes in zip(result.plot_memory().axes, (224 * 1024, 16 * 1024), strict=True):
        (shape,) = axes.collections
        highest = shape.get_paths()[0].get_extents().y1
        assert 0 < highest * 1024 <= limit_bytes
        assert axes.lines[0].get_ydata()[0] == limit_bytes / 1024


@pytest.mark.parametrize("plot", PLOTS)
def test_plots_are_files_or_words(plot: str, result: neurosim.Result, tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("matplotlib")
    getattr(result, plot)(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(ConfigurationError, match=r"a plot is a \.png, \.svg or \.pdf file"):
        getattr(result, plot)(tmp_path / "a.gif")
    with pytest.raises(ConfigurationError, match="cannot write"):
        getattr(result, plot)(tmp_path / "nowhere" / "a.png")
    from neurosim.report import picture

    picture._shown.cache_clear()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigurationError, match="plots need matplotlib, which is not installed"):
        getattr(result, plot)()


def test_a_run_without_instructions_shows_itself_too(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    pytest.importorskip("matplotlib")

    def nothing(x: Any) -> Any:
        return x

    empty = neurosim.simulate(nothing)(np.ones((4, 4), np.float32))
    assert len(empty.timeline.ops) == 0
    for plot in PLOTS:
        assert getattr(empty, plot)().axes
    assert len(Page(empty._repr_html_()).widths) == 6
    assert len(Page(empty.timeline._repr_html_()).widths) == 21
    empty.csv(tmp_path / "ops.csv")
    assert (tmp_path / "ops.csv").read_text(encoding="utf-8").count("\n") == 1
    assert [str(warning.message) for warning in recwarn] == []
