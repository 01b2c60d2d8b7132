"""The page of a run: what its columns hold, and what a headless Chromium shows of it."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import neurosim
from neurosim.engines import Memory
from neurosim.errors import ConfigurationError
from neurosim.report.occupancy import Lives, lives
from neurosim.report.page.columns import bars
from neurosim.report.page.thinning import PIXELS, thinned
from neurosim.shell.loading import load_kernel, packaged_kernel
from neurosim.timing.causes import BUSY

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def result():
    kernel = load_kernel(f"{packaged_kernel('attention.py')}:attention")
    return neurosim.profile(kernel, values=False)(*[neurosim.spec((700, 64), "bfloat16")] * 3)


@pytest.fixture(scope="module")
def page(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "attention.html"
    result.html(path)
    return path


def test_bars_are_the_ops(result):
    """Each op is a bar on its engine's row, as long as the op; each DMA one more on its queue's."""
    drawn, timeline = bars(result.program, result.causes()), result.timeline
    dmas = sum(record.signature.instruction == "dma_copy" for record in result.program)
    assert len(drawn.row) == len(timeline.ops) + dmas
    for name in ("vector", "scalar", "gpsimd", "sync", "dma0"):
        ops = timeline.ops[timeline.ops["unit"] == timeline.units.index(name)]
        mine = drawn.row == drawn.rows.index(name)
        assert (drawn.end_ps - drawn.start_ps)[mine].sum() == (ops["end_ps"] - ops["start_ps"]).sum()
        assert {drawn.texts[text][0] for text in drawn.text[mine]} == {
            result.program.record(record).signature.instruction for record in ops["record"]
        }
    assert "queue sync hwdge" in drawn.rows


def test_waits_end_where_their_bar_begins(result):
    _, start, end, cause, producer = bars(result.program, result.causes()).waits
    ops = result.timeline.ops
    before = ops["stall_ps"][ops["unit"] < 5]  # a DMA engine without work does not wait
    assert (end - start).sum() == before.sum()
    assert set(cause.tolist()).isdisjoint(BUSY)
    assert (producer >= 0).any()


def test_memory_over_time(result):
    """What is in use never exceeds the capacity, and nobody lies where another one is."""
    chip = result.chip
    for memory, limit in (
        (Memory.sbuf, chip.sbuf.partition_bytes),
        (Memory.psum, chip.psum.banks * chip.psum.bank_bytes),
    ):
        found = lives(result.timeline, memory)
        moments, used = found.steps()
        assert used.max() <= limit
        assert used[-1] == 0
        assert (np.diff(moments) > 0).all()
        for index in range(0, len(found.storages), 7):
            at = found.start_ps[index]
            there = np.flatnonzero((found.start_ps <= at) & (found.end_ps > at))
            order = there[np.argsort(found.place_bytes[there])]
            ends = (found.place_bytes + found.size_bytes)[order]
            assert (ends[:-1] <= found.place_bytes[order][1:]).all()


def test_steps_add_up():
    """Two tensors by hand: 100 bytes from 0 to 10, 50 from 5 to 20."""
    both = Lives(*(np.array(column) for column in ([0, 1], [0, 5], [10, 20], [100, 50], [0, 100])))
    moments, used = both.steps()
    assert moments.tolist() == [0, 5, 10, 20]
    assert used.tolist() == [100, 150, 50, 0]


def test_bars_within_a_pixel_become_one():
    from bokeh.models import Range1d

    left = np.arange(10 * PIXELS, dtype=np.float64)
    columns = {
        "row": np.zeros(len(left), np.float32),
        "left": left,
        "right": left + 0.5,
        "count": np.ones(len(left), np.int32),
        "text": np.zeros(len(left), np.int32),
    }
    shown = thinned(columns, Range1d(0, float(len(left)))).data
    assert shown["count"].sum() == len(left)
    assert len(shown["left"]) <= 2 * PIXELS
    assert (shown["text"] == -1).all()
    assert shown["right"][0] == columns["right"][shown["count"][0] - 1]
    boxes = {"left": np.array([0.0, 5.0]), "right": np.array([0.5, 900.0])}
    assert thinned(boxes, Range1d(0, 1e6 / 2)).data["left"].tolist() == [5.0], "narrower than a pixel"
    few = {name: values[:5] for name, values in columns.items()}
    assert len(thinned(few, Range1d(0, 10.0)).data["left"]) == 5


def test_the_kernels_source_is_in_it(page):
    text = page.read_text()
    assert "nisa.activation_reduce(" in text
    assert "reduce_res=total" in text


def test_words_where_bokeh_is_missing(result, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "bokeh.embed", None)
    with pytest.raises(ConfigurationError, match="a page needs bokeh"):
        result.html(tmp_path / "page.html")


def test_words_where_it_cannot_be_written(result, tmp_path):
    with pytest.raises(ConfigurationError, match="cannot write"):
        result.html(tmp_path / "nowhere" / "page.html")


@pytest.fixture
def browser():
    from playwright.sync_api import sync_playwright

    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=quiet)
        yield browser
        browser.close()


@needs_browser
def test_in_a_browser(browser, page):
    """It opens without a request or an error; a bar says what it is; zooming shows more of the bars."""
    tab = browser.new_page(viewport={"width": 1300, "height": 900})
    errors, requests = [], []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(page.as_uri())
    tab.wait_for_function("window.Bokeh && Bokeh.documents.length && Bokeh.documents[0].is_idle", timeout=300_000)
    assert requests == [page.as_uri()]
    assert not errors
    assert tab.locator("table.lines tr.cost").count() > 10
    plot = "Bokeh.documents[0].roots()[0]"
    rows = tab.evaluate(f"{plot}.renderers.map(r => r.data_source.data.left.length)")
    assert rows[1] > 100
    # the longest bar on Vector says its instruction
    at = tab.evaluate(
        f"""() => {{
            const view = Bokeh.index.get_one({plot}), data = {plot}.renderers[1].data_source.data
            const found = [...data.row].map((r, i) => [r == 2 ? data.right[i] - data.left[i] : -1, i])
            const i = found.reduce((a, b) => a[0] > b[0] ? a : b)[1], box = view.el.getBoundingClientRect()
            const x = view.frame.x_scale.compute((data.left[i] + data.right[i]) / 2)
            return [box.x + x, box.y + view.frame.y_scale.compute(2)]
        }}"""
    )
    tab.mouse.move(*at)
    tab.locator(".bk-Tooltip", has_text="tensor_").first.wait_for(timeout=300_000)
    before = tab.evaluate(f"{plot}.x_range.end - {plot}.x_range.start")
    tab.mouse.wheel(0, -400)
    tab.wait_for_function(f"{plot}.x_range.end - {plot}.x_range.start < {before}", timeout=300_000)
    assert not errors


@needs_browser
def test_the_browser_thins_as_python_does(browser, tmp_path):
    """The page opens with what Python kept; after zooming in and out, the browser keeps the very same."""
    kernel = load_kernel(f"{packaged_kernel('matmul_ladder.py')}:matmul_tiled")
    profiled = neurosim.profile(kernel, values=False, schedule="reorder")  # with all loads that its source has
    profiled(*[neurosim.spec((4096, 1024), "bfloat16")] * 2).html(tmp_path / "p.html")
    tab = browser.new_page(viewport={"width": 1300, "height": 900})
    tab.goto((tmp_path / "p.html").as_uri())
    tab.wait_for_function("window.Bokeh && Bokeh.documents.length && Bokeh.documents[0].is_idle", timeout=300_000)
    tab.evaluate(
        """() => {
            const range = Bokeh.documents[0].roots()[0].x_range
            const callbacks = range.js_property_callbacks["change:end"]
            window.shown = () => JSON.stringify(callbacks.map(c => Object.entries(c.args.shown.data).map(
                ([name, values]) => [name, [...values]]).sort()))
            window.full = callbacks.map(c => c.args.full.data.left.length)
            window.whole = [range.start, range.end]
            window.zoom = (start, end) => range.setv({start, end})
            window.kept = shown()
        }"""
    )
    assert tab.evaluate("full"), "nothing was thinned"
    # callbacks run when they come to it: wait for what they are to show
    tab.evaluate("zoom(whole[1] / 3, whole[1] / 2)")
    tab.wait_for_function("shown() !== kept", timeout=300_000)
    tab.evaluate("zoom(...whole)")
    tab.wait_for_function("shown() === kept", timeout=300_000)


def test_the_page_says_what_limits_the_kernel(result, page, tmp_path):
    text = page.read_text(encoding="utf-8")
    summary = result.summary() | result.limits()
    assert "What limits it" in text
    assert summary["what_ifs"][0]["text"] in text
    assert all(each["text"].partition(" ")[0] in text for each in summary["advice"])
    for line in summary["critical_path"]:
        assert f"{line['file'].rpartition('/')[2]}:{line['line']}</td>" in text
    waits = [wait for line in summary["lines"] for wait in line["waits"] if wait["place"]]
    assert any(f"in line {wait['place']['line']}" in text for wait in waits)
    short = tmp_path / "short.html"
    result.html(short, limits=False)
    assert "ask for them with --advice" in short.read_text(encoding="utf-8")
