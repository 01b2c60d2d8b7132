"""Two runs side by side: which line is which, sums that are exact, reasons in words, files and the command."""

from __future__ import annotations

import contextlib
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

import neurosim
from neurosim import cli
from neurosim.comparison.alignment import Place, aligned
from neurosim.comparison.changes import Diff
from neurosim.comparison.page import NOTEBOOK_LINES
from neurosim.comparison.why import headline, why_engine, why_line
from neurosim.errors import ConfigurationError
from neurosim.shell.loading import load_kernel, packaged_kernel

LADDER = str(packaged_kernel("matmul_ladder.py"))


def ladder(rung: str, size: int = 512, **options: Any) -> neurosim.Result:
    run = neurosim.simulate(load_kernel(f"{LADDER}:{rung}"), values=False, **{"chip": "trn2", **options})
    return run(*[neurosim.spec((size, size), "bfloat16")] * 2)


@pytest.fixture(scope="module")
def tiled() -> neurosim.Result:
    return ladder("matmul_tiled")


@pytest.fixture(scope="module")
def rungs(tiled: neurosim.Result) -> Diff:
    return neurosim.diff(tiled, ladder("matmul_blocked"))


# Which line is which


def place(line: int, source: str) -> Place:
    return Place("kernel.py", line, source.partition("(")[0], source, {})


def pairs(a: list[str], b: list[str]) -> list[tuple[int | None, int | None]]:
    """Return numbers of lines, from 1 in A and from 101 in B."""
    rows = [place(number, source) for number, source in enumerate(a, 1)]
    columns = [place(number, source) for number, source in enumerate(b, 101)]
    return [(one and one.line, other and other.line) for one, other in aligned(rows, columns)]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (["load(x)", "add(y)"], ["load(x)", "add(y)"], [(1, 101), (2, 102)]),
        (["load(x)", "add(y)"], ["memset(y)", "load(x)", "add(y)"], [(None, 101), (1, 102), (2, 103)]),
        (["load(x)", "memset(y)", "add(y)"], ["load(x)", "add(y)"], [(1, 101), (2, None), (3, 102)]),
        # an edited line between lines that stayed; one that moved; one that is everywhere
        (["load(x)", "mul(a, b)", "store(o)"], ["load(x)", "mul(pq, rs)", "store(o)"], [(1, 101), (2, 102), (3, 103)]),
        (["mul(a)", "load(x)", "store(o)"], ["load(x)", "mul(a)", "store(o)"], [(2, 101), (1, 102), (3, 103)]),
        (["load(x)", "load(x)", "mul(a)"], ["load(x)", "mul(a)"], [(1, None), (2, 101), (3, 102)]),
        # moved and edited: as much alike as ALIKE asks for, or not
        (["mul(a)", "copy(dst=tile, src=row)"], ["copy(dst=tiles, src=row)", "mul(a)"], [(2, 101), (1, 102)]),
        (["mul(a)", "copy(a)"], ["copy(dst=a_long_other_name)", "mul(a)"], [(None, 101), (1, 102), (2, None)]),
        # by what they work on: a load that moved and changed, loads that came and went, names that go on from others
        (
            ["copy(dst=row[p, :], src=bias)", "copy(dst=at, src=a_t[k])", "copy(dst=bt, src=b[k])", "mul(at, bt)"],
            ["copy(at, a_t[k, :])", "copy(dst=bt, src=b[k, :])", "copy(dst=row, src=bias.view(p))", "mul(ats[k], bts)"],
            [(2, 101), (3, 102), (1, 103), (4, 104)],
        ),
        (
            ["copy(dst=row, src=bias)", "copy(dst=at, src=a_t)", "mul(a)"],
            ["copy(dst=block, src=a_t)", "copy(dst=bt, src=b)", "mul(a)"],
            [(1, None), (2, 101), (None, 102), (3, 103)],
        ),
        (["copy(q, x)", "mul(a)"], ["copy(v, y)", "copy(q, x[1:])", "mul(a)"], [(None, 101), (1, 102), (2, 103)]),
        # with other names all over, in their order where there are as many
        (["copy(q, x)", "copy(k, y)"], ["copy(rows, a)", "copy(other, b)"], [(1, 101), (2, 102)]),
        (["copy(q, x)", "copy(k, y)"], ["copy(rows, a)"], [(1, None), (2, None), (None, 101)]),
        ([], ["load(x)"], [(None, 101)]),
        (["load(x)"], [], [(1, None)]),
    ],
)
def test_a_lines_partner(a: list[str], b: list[str], expected: list[tuple[int | None, int | None]]) -> None:
    assert pairs(a, b) == expected


def test_an_edited_file_of_the_same_kernel_is_aligned_by_its_text(tmp_path: Path) -> None:
    """Lines that only moved down, since something was written above them, are the same lines."""
    source = Path(LADDER).read_text(encoding="utf-8")
    (tmp_path / "ladder.py").write_text(f"# one more line\n# and another\n{source}", encoding="utf-8")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "ladder.py").write_text(source, encoding="utf-8")
    specs = [neurosim.spec((256, 256), "bfloat16")] * 2
    runs = [
        neurosim.simulate(load_kernel(f"{folder / 'ladder.py'}:matmul_hoisted"), "trn2", values=False)(*specs)
        for folder in (tmp_path / "old", tmp_path)
    ]
    found = neurosim.diff(*runs)
    assert len(found.lines) > 4
    for row in found.lines:
        assert row.a is not None
        assert row.b is not None
        assert row.b.line == row.a.line + 2
        assert row.change_ps == 0


# Figures


def test_causes_add_up_to_the_change_on_each_engine(rungs: Diff) -> None:
    assert rungs.change_ps == rungs.b.summary["makespan_ps"] - rungs.a.summary["makespan_ps"] < 0
    assert set(rungs.engines) == {"tensor", "vector", "scalar", "gpsimd", "sync", "dma"}
    for causes in rungs.engines.values():
        assert sum(causes.values()) == rungs.change_ps


def test_lines_add_up_to_the_change_of_their_engine(rungs: Diff) -> None:
    for engine, causes in rungs.engines.items():
        moved = sum(row.change_ps for row in rungs.lines if row.engine == engine)
        assert moved + causes.get("idle", 0.0) == rungs.change_ps
    for row in rungs.lines:
        assert sum(row.causes_ps.values()) == row.change_ps


def test_a_run_against_itself_has_no_change(tiled: neurosim.Result) -> None:
    found = neurosim.diff(tiled, tiled)
    assert found.change_ps == 0
    assert not found.setup
    assert not any(found.engines.values())
    assert all(row.change_ps == 0 for row in found.lines)
    assert "Both take " in str(found)
    assert "No line moved." in str(found)
    assert "no line moved" in found._repr_html_()


def test_text_of_a_run_against_itself_says_that_nothing_moved(tiled: neurosim.Result) -> None:
    text = neurosim.diff(tiled, tiled).text()
    assert "No engine's time moved.\nNo line moved.\n" in text
    assert "+0 ns went" not in text


def test_an_engines_row_adds_up() -> None:
    causes_ps = {"work": 50_000.0, "overhead": -20_000.0, "overwrite": 9_000.0, "edge": 2_000.0, "results": -1_000.0}
    assert why_engine(causes_ps).endswith(", 2 others +1.00 ns")
    assert why_engine({**dict(list(causes_ps.items())[:4])}).endswith(", 1 other +2.00 ns")
    assert "other" not in why_engine(dict(list(causes_ps.items())[:3]))


def test_the_way_back_has_the_other_sign(rungs: Diff) -> None:
    back = Diff(rungs.b, rungs.a)
    assert back.change_ps == -rungs.change_ps
    assert {
        name: {cause: -ps for cause, ps in causes.items()} for name, causes in back.engines.items()
    } == rungs.engines


# Why


def test_words_name_what_was_waited_for_longer(tiled: neurosim.Result) -> None:
    """With a tenth of the bandwidth, and nothing else, the tensor engine waits for it: in B, for the loads."""
    chip = tiled.chip.replace(hbm__bandwidth_gb_per_s=tiled.chip.hbm.bandwidth_gb_per_s / 10)
    found = neurosim.diff(tiled, ladder("matmul_tiled", chip=chip))
    assert [row.name for row in found.setup] == ["chip's figures"]
    assert found.setup[0].a == "its own"
    assert found.setup[0].b.startswith("hbm.bandwidth_gb_per_s = ")
    row = next(row for row in found.lines if row.engine == "tensor")
    assert row.change_ps > 0
    load = next(row for row in found.lines if row.engine == "dma" and row.change_ps > 0)
    assert load.b is not None
    assert f"more for DMA bandwidth (dma_copy, line {load.b.line})" in why_line(row)
    before, after = (side.summary["makespan_ps"] for side in (found.a, found.b))
    assert f": {100 * (after / before - 1):.1f} % longer. On " in headline(found)


def test_words_say_how_often_and_how_long_each(rungs: Diff) -> None:
    loads = next(row for row in rungs.lines if row.engine == "dma" and row.a and row.b and row.a_count > row.b_count)
    assert why_line(loads).startswith(f"{loads.b_count:,} times, not {loads.a_count:,}; each busy ")
    new = next(row for row in rungs.lines if row.a is None)
    assert why_line(new) == "not in A"
    before, after = (side.summary["makespan_ps"] for side in (rungs.a, rungs.b))
    assert f": {100 * (1 - after / before):.1f} % shorter. On " in headline(rungs)


def test_what_runs_were_given(tiled: neurosim.Result) -> None:
    other = ladder("matmul_hoisted", schedule="program", throttle=False)
    rows = {row.name: (row.a, row.b) for row in neurosim.diff(tiled, other).setup}
    assert rows == {
        "kernel": ("matmul_tiled", "matmul_hoisted"),
        "schedule": ("compiler", "program"),
        "throttle": ("on", "off"),
    }
    assert {row.name for row in neurosim.diff(tiled, ladder("matmul_tiled", size=256)).setup} == {"tensors"}
    assert [row.b for row in neurosim.diff(tiled, ladder("matmul_tiled", chip="trn3")).setup][:1] == ["trn3"]


def test_text_is_of_fixed_width_and_the_same_in_colors(rungs: Diff) -> None:
    text = rungs.text()
    assert max(map(len, text.splitlines())) <= 120
    assert "\x1b" not in text
    assert "\x1b" in rungs.text(color=True)
    assert f"{Path(LADDER).name}:" in text


def test_runs_on_several_cores_say_which_core_it_is_about() -> None:
    kernel = load_kernel(f"{packaged_kernel('sharded_rmsnorm.py')}:sharded_rmsnorm")
    specs = neurosim.spec((512, 256), "float32"), neurosim.spec((256,), "float32")
    one, two = (neurosim.simulate(kernel, "trn2", values=False)[cores](*specs) for cores in (1, 2))
    found = neurosim.diff(one, two)
    assert {row.name: (row.a, row.b) for row in found.setup} == {"cores": ("1", "2")}
    for causes in found.engines.values():
        assert sum(causes.values()) == found.change_ps == two.timeline.makespan_ps - one.timeline.makespan_ps
    for shown in (str(found), found._repr_html_()):
        assert "those of the core that ends last" in shown
    assert "core that ends last" not in str(neurosim.diff(one, one))


# Files


def test_programs_and_summaries_of_files_are_compared_as_results_are(rungs: Diff, tmp_path: Path) -> None:
    a, b = ladder("matmul_tiled"), ladder("matmul_blocked")
    for name, result in (("a", a), ("b", b)):
        result.program.save(tmp_path / f"{name}.nsim")
        (tmp_path / f"{name}.json").write_text(json.dumps(result.summary()), encoding="utf-8")
    programs = neurosim.diff(tmp_path / "a.nsim", str(tmp_path / "b.nsim"))
    assert programs.to_dict()["lines"] == rungs.to_dict()["lines"]
    assert programs.engines == rungs.engines
    mixed = neurosim.diff(tmp_path / "a.json", b.summary())
    assert mixed.engines == rungs.engines
    assert [row.change_ps for row in mixed.lines][:3] == [row.change_ps for row in rungs.lines][:3]
    assert "A summary from a file holds its costliest lines only" in str(mixed)
    assert json.loads(json.dumps(rungs.to_dict()))["schema"] == "neurosim.diff/1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "begins as JSON and is none"),
        (b"[1]", "holds no summary"),
        (b'{"schema": "neurosim.summary/0"}', "holds 'neurosim.summary/0', where a summary of version"),
        (b'{"traceEvents": []}', "is a trace, where a summary"),
        (b'{"schema": "neurosim.summary/%s"}', "is no whole summary of version"),
        (b"PK not a program", "no neurosim program|not a program|is no program"),
        (None, "cannot read"),
    ],
)
def test_files_that_hold_no_run(content: bytes | None, message: str, tmp_path: Path, tiled: neurosim.Result) -> None:
    if content is not None:
        version = tiled.summary()["schema"].partition("/")[2].encode()
        (tmp_path / "run").write_bytes(content.replace(b"%s", version))
    with pytest.raises(ConfigurationError, match=message):
        neurosim.diff(tiled, tmp_path / "run")


def test_what_a_reader_does_not_know_is_passed_over(tiled: neurosim.Result) -> None:
    """Later versions may add fields, and --sensitivity adds one now."""
    more = tiled.summary() | {"sensitivity": [{"figure": "x", "less": None}], "later": [[1], {"a": 2}]}
    assert neurosim.diff(json.loads(json.dumps(more)), tiled).change_ps == 0


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_summary_is_refused_or_compared(seed: int, tiled: neurosim.Result, tmp_path: Path) -> None:
    """Anything in it replaced by something else, or gone: a sentence, or a comparison, and never another exception."""
    chance = random.Random(seed)
    content = json.loads(json.dumps(tiled.summary()))
    for _ in range(chance.randrange(1, 4)):
        place: Any = content
        while True:
            key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
            inner = place[key]
            if not (isinstance(inner, (dict, list)) and inner) or chance.random() < 0.2:
                break
            place = inner
        if chance.random() < 0.3:
            del place[key]
        else:
            place[key] = chance.choice(
                [None, -1, 0, 10**30, 0.5, float("nan"), "", "λ", [], {}, True, [None], {"a": 1}]
            )
        if not place:
            break
    (tmp_path / "s.json").write_text(json.dumps(content), encoding="utf-8")
    with contextlib.suppress(ConfigurationError):
        found = neurosim.diff(tmp_path / "s.json", tiled)
        assert found.text()
        assert found._repr_html_()
        assert json.dumps(found.to_dict())


def test_what_is_no_run(tiled: neurosim.Result) -> None:
    with pytest.raises(ConfigurationError, match="int is no run"):
        neurosim.diff(tiled, 3)  # type: ignore[arg-type]


# Pages


def test_a_page_holds_all_lines_and_escapes_them(rungs: Diff, tmp_path: Path) -> None:
    (tmp_path / "a<b>.py").write_text(Path(LADDER).read_text(encoding="utf-8"), encoding="utf-8")
    kernel = load_kernel(f"{tmp_path / 'a<b>.py'}:matmul_tiled")
    other = neurosim.simulate(kernel, "trn2", values=False)(*[neurosim.spec((512, 512), "bfloat16")] * 2)
    found = neurosim.diff(other, ladder("matmul_blocked"))
    found.html(tmp_path / "diff.html")
    text = (tmp_path / "diff.html").read_text(encoding="utf-8")
    assert "<b>.py" not in text
    assert "a&lt;b&gt;.py:" in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")
    for row in found.lines[:NOTEBOOK_LINES]:
        assert f"<td>{row.engine}</td>" in text
    assert len(rungs._repr_html_()) < 50_000


def test_words_where_jinja2_is_missing(rungs: Diff, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(ConfigurationError, match="a page needs jinja2"):
        rungs.html(tmp_path / "diff.html")
    assert rungs._repr_html_().startswith("<pre>A and B: simulated")


# The command


def command(*words: str) -> tuple[int, str, str]:
    """Run it here; return the exit code and what was printed."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["neurosim", "diff", *words])
        try:
            cli.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()


TILED = f"{LADDER}:matmul_tiled"
SPECS = ("256x256:bfloat16", "256x256:bfloat16")


def test_the_command_compares_rungs(tmp_path: Path) -> None:
    files = ("--json", str(tmp_path / "d.json"), "--html", str(tmp_path / "d.html"))
    code, out, err = command(TILED, f"{LADDER}:matmul_blocked", *SPECS, "--chip", "trn2", *files)
    assert (code, err) == (0, "")
    expected = neurosim.diff(ladder("matmul_tiled", 256), ladder("matmul_blocked", 256))
    assert out == expected.text()
    assert json.loads((tmp_path / "d.json").read_text(encoding="utf-8")) == json.loads(json.dumps(expected.to_dict()))
    assert "matmul_blocked on trn2</title>" in (tmp_path / "d.html").read_text(encoding="utf-8")


def test_options_of_one_run(tmp_path: Path) -> None:
    code, out, err = command(
        TILED, TILED, *SPECS, "--b", "chip=trn3", "--a", "dma.load_gb_per_s=5", "--b", "throttle=false"
    )
    assert (code, err) == (0, "")
    assert "chip: trn2 in A, trn3 in B" in out
    assert "chip's figures: dma.load_gb_per_s = 5.0 in A, its own in B" in out
    assert "throttle: on in A, off in B" in out
    softmax = f"{packaged_kernel('vector_add.py')}:vector_add"
    code, out, err = command(
        softmax, softmax, "50000:float32", "50000:float32", "--a", "columns=128", "--b", "columns=512"
    )
    assert (code, err) == (0, "")
    assert "columns: 128 in A, 512 in B" in out
    ladder("matmul_tiled", 256).program.save(tmp_path / "a.nsim")
    code, out, err = command(str(tmp_path / "a.nsim"), str(tmp_path / "a.nsim"), "--b", "schedule=program")
    assert (code, err) == (0, "")
    assert "schedule: compiler in A, program in B" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nowhere.nsim", TILED, *SPECS), "cannot read nowhere.nsim"),
        (("nowhere.py:kernel", TILED, *SPECS), "there is no file nowhere.py"),
        ((LADDER, TILED, *SPECS), "names no kernel"),
        ((f"{LADDER}:nothing", TILED, *SPECS), "has no kernel nothing"),
        ((TILED, TILED, "256x256"), "write 256x256:bfloat16"),
        ((TILED, TILED, "256x256:bfloat16"), "missing"),
        ((TILED, TILED, *SPECS, "--a", "tile_n"), "--a 'tile_n' is no name with a value"),
        ((TILED, TILED, *SPECS, "--a", "tile_n=4"), "has no parameter 'tile_n'"),
        ((TILED, TILED, *SPECS, "--b", "chip=trn9"), "trn9"),
        ((TILED, TILED, *SPECS, "--b", "cores=two"), "--b cores: 'two' is no number"),
        ((TILED, TILED, *SPECS, "--b", "chip=trn3", "--b", "chip=trn2"), "--b chip is given twice"),
        ((TILED, TILED, *SPECS, "--html", "nowhere/d.html"), "cannot write nowhere/d.html: there is no folder"),
        (("{json}", TILED, *SPECS, "--a", "chip=trn2"), "was run already"),
        (("{program}", TILED, *SPECS, "--a", "tile_n=2"), "tile_n: {program} was run already"),
        (("{program}", "{json}", *SPECS), "were run already"),
    ],
)
def test_bad_input_of_the_command(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"json": str(tmp_path / "a.json"), "program": str(tmp_path / "a.nsim")}
    if "{" in words[0]:
        result = ladder("matmul_tiled", 256)
        result.program.save(names["program"])
        Path(names["json"]).write_text(json.dumps(result.summary()), encoding="utf-8")
    code, out, err = command(*(word.format(**names) for word in words))
    assert (code, out) == (1, "")
    assert err.startswith("ConfigurationError: ")
    assert message.format(**names) in err
