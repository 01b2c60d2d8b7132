"""The manual: its pages are current, and what its tables say is so."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from neurosim import dtypes
from neurosim.engines import Memory
from neurosim.errors import ConfigurationError, Unsupported
from neurosim.manual import pages, refusals, trials
from neurosim.manual.__main__ import stale, write
from neurosim.manual.calls import Call, Tile, examples, parse
from neurosim.manual.text import overview, page_text
from neurosim.nki import _catalogue, isa, language


def test_the_committed_pages_are_current():
    """Where this fails, run ``python -m neurosim.manual`` and look at what changed."""
    assert stale(pages.home()) == []


def test_pages_are_the_same_in_another_process():
    code = "from neurosim.manual.pages import page; print(page('tensor_copy'), end='')"
    made = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    ]
    assert made[0] == made[1] == pages.pages()["tensor_copy.md"]


def test_writing_replaces_what_is_old_and_removes_what_is_gone(tmp_path):
    (tmp_path / "gone.md").write_text("", encoding="utf-8")
    (tmp_path / "max8.md").write_text("old", encoding="utf-8")
    changed = write(tmp_path)
    assert {"gone.md", "max8.md", pages.INDEX} <= set(changed)
    assert stale(tmp_path) == []
    assert not (tmp_path / "gone.md").exists()


@pytest.mark.parametrize("name", tuple(_catalogue.instructions()))
def test_a_dtype_that_works_also_computes(name):
    for chip in trials.chips().values():
        for call in examples(name).calls:
            for dtype, error in zip(dtypes.ALL, pages.dtype_errors(call, chip), strict=True):
                computed = trials.attempt(replace(call, dtype=dtype), chip, values=True).error
                assert error is not None or computed is None, f"{call} in {dtype}: {computed}"


def test_an_instruction_s_page():
    page = pages.page("tensor_tensor")
    assert page.startswith("# tensor_tensor\n\ndst = data1 \\<op> data2, element by element.\n")
    assert "nisa.tensor_tensor(dst, data1, data2, op, engine=nisa.engine.unknown, name=None)" in page
    assert "| `data1` | read | tensor in SBUF or PSUM, offsets may choose its elements, on trn3 |  |" in page
    refused = "`op=nl.power, engine=nisa.engine.vector` | all | nl.power runs on GpSimd only; leave engine= out"
    assert f"| the first | {refused} |" in page
    assert "Declared in `isa/tensor_tensor.py`." in page


def test_a_page_lists_the_operators_that_a_parameter_may_be():
    functions = refusals.taken("activation", "op")
    assert {language.gelu, language.exp} < set(functions)
    assert language.subtract not in functions
    assert f"`op` may be (a call below takes it): {', '.join(f'`{each!r}`' for each in functions)}." in pages.page(
        "activation"
    )
    assert refusals.taken("activation", "reduce_op") == (language.add,)


def test_every_refused_call_says_which_it_was_and_what_was_changed():
    for name in ("nc_matmul", "rand2", "tensor_scalar"):
        table = pages.page(name).partition("| Of the calls above |")[2].partition("\n\n")[0]
        rows = [line.split(" | ") for line in table.splitlines()[2:]]
        labels = {call.label.replace("_", " ") or "the first" for call in examples(name).calls}
        assert rows
        for which, changed, *_ in rows:
            assert which.removeprefix("| ") in labels
            assert changed
    assert "| gathered | tiles in float32 | trn3 | stationary is float32" in pages.page("nc_matmul")


def test_the_table_on_a_terminal():
    lines = overview().splitlines()
    assert lines[0].split()[:2] == ["instruction", "engines"]
    assert max(map(len, lines)) <= 120
    for name in _catalogue.instructions():
        assert any(line.startswith(f"{name} ") for line in lines)
    assert page_text("max8") == pages.page("max8")
    assert "\x1b[" in page_text("max8", color=True)


@pytest.mark.parametrize(("name", "error"), [("max16", Unsupported), ("max9", ConfigurationError)])
def test_an_instruction_that_is_not_there(name, error, monkeypatch):
    """One that NKI documents and neurosim lacks (there may be none), and one that nobody knows."""
    monkeypatch.setattr(isa, "_NOT_BUILT", frozenset({"max16"}))
    with pytest.raises(error, match=name):
        page_text(name)


@pytest.mark.parametrize("prefix", ["", "nisa.", "isa.", "nki.isa."])
def test_an_instruction_is_found_as_kernels_write_it(prefix):
    assert page_text(f"{prefix}max8") == pages.page("max8")


@pytest.mark.parametrize("name", ["ndarray", "nl.add", "language.load", "nki.language.sbuf"])
def test_what_nki_language_has_is_told_by_python(name):
    with pytest.raises(ConfigurationError, match=r"is in nki\.language, and no instruction") as caught:
        page_text(name)
    assert f"help(nl.{name.rpartition('.')[2]})" in caught.value.advice


def test_a_function_that_an_instruction_does_names_it():
    with pytest.raises(ConfigurationError, match=r"as an instruction use nisa\.nc_matmul"):
        page_text("matmul")


def test_examples_are_read():
    assert parse("T[32, 16]") == Tile((32, 16))
    assert parse("psum int32[8, 2] < 5 at 32 with gaps") == Tile(
        (8, 2), dtypes.int32, Memory.psum, below=5, start=32, gaps=True
    )
    gathered = parse("hbm T[64, 16] gather int32[32, 1] < 64")
    assert (gathered.how, gathered.index) == ("gather", Tile((32, 1), dtypes.int32, below=64))
    assert parse("T[1, 1] = 1").value == 1
    assert parse(["nl.exp", "None", 3]) == [language.exp, None, 3]
    with pytest.raises(ConfigurationError, match="float33 is not a dtype"):
        parse("float33[4, 4]")


def test_a_call_reads_like_one():
    call = Call("memset", {"dst": Tile((4, 8), memory=Memory.psum), "value": 1}, dtypes.bfloat16)
    assert str(call) == "nisa.memset(dst=psum bfloat16[4, 8], value=1)"


def test_every_rule_names_its_place():
    rule = next(rule for rule in refusals.rules() if rule.function == "Reciprocal.rules")
    assert str(rule).startswith("isa/reciprocal.py:")
    assert rule.text == "same_elements('dst', self.dst, 'data', self.data)"
    assert all(field.name in ("file", "function", "first", "last", "text") for field in dataclasses.fields(rule))
