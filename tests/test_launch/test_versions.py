"""Which NKI's semantics a run has: given, by the environment, or the newest."""

from __future__ import annotations

import re
from pathlib import Path

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import ConfigurationError, IllegalOperand, NeurosimError, SimulatorBug
from neurosim.kernel import running
from neurosim.program import Program
from neurosim.run import reopen
from neurosim.versions import NEWEST, NKI_0_1, NKI_0_3, NKI_0_5, NKI_0_6, VERSIONS, NkiVersion, nki_version_of

X = np.ones((4, 8), np.float32)


def asks(x):
    """Return a tensor; its program and the running kernel know the version."""
    assert running().nki_version == running().program.nki_version
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


def test_versions_are_ordered():
    assert tuple(sorted(VERSIONS)) == VERSIONS
    assert NKI_0_1 < NKI_0_3 < NKI_0_5 < NKI_0_6 == NEWEST
    assert NkiVersion(0, 10) > NKI_0_6


@pytest.mark.parametrize(("given", "found"), [("0.3", NKI_0_3), ("0.5.0", NKI_0_5), (NKI_0_1, NKI_0_1), (0.5, NKI_0_5)])
def test_a_version_is_taken_in_several_spellings(given, found):
    assert nki_version_of(given) is found or nki_version_of(given) == found
    assert neurosim.simulate(asks, nki_version=given)(X).program.nki_version == found


def test_by_default_it_is_the_newest_or_the_environments(monkeypatch):
    monkeypatch.delenv("NEUROSIM_NKI_VERSION", raising=False)
    assert neurosim.profile(asks)(X).program.nki_version == NEWEST
    monkeypatch.setenv("NEUROSIM_NKI_VERSION", "0.4")
    assert str(neurosim.profile(asks)(X).program.nki_version) == "0.4"
    assert neurosim.profile(asks, nki_version="0.3")(X).program.nki_version == NKI_0_3
    monkeypatch.setenv("NEUROSIM_NKI_VERSION", "4")
    with pytest.raises(ConfigurationError, match=r"nki_version '4' in NEUROSIM_NKI_VERSION is not a version"):
        neurosim.simulate(asks)


@pytest.mark.parametrize("wrong", ["0.2", "0.7", "1", "", "newest", "0.3.1", NkiVersion(0, 2), "9" * 99])
def test_another_version_is_refused(wrong):
    with pytest.raises(ConfigurationError, match=r"known: 0\.1, 0\.3, 0\.4, 0\.5, 0\.6") as caught:
        neurosim.simulate(asks, nki_version=wrong)
    assert ("run its kernels as 0.3" in str(caught.value)) == str(wrong).startswith("0.2")


def test_it_is_the_kernels_own_unless_the_caller_says_otherwise():
    kernel = nki.jit(asks)
    kernel.nki_version = "0.5"
    assert neurosim.simulate(kernel)(X).program.nki_version == NKI_0_5
    assert neurosim.simulate(kernel, nki_version="0.3")(X).program.nki_version == NKI_0_3


def test_a_legacy_kernel_runs_as_0_1_or_not_at_all():
    """Migration guide, 0.3 to 0.4: neuronxcc.nki inside kernels is a compilation error."""
    kernel = nki.jit(asks)
    kernel.nki_version = "0.1"
    assert neurosim.simulate(kernel)(X).program.nki_version == NKI_0_1
    assert neurosim.simulate(kernel, nki_version="0.3")(X).program.nki_version == NKI_0_1
    with pytest.raises(IllegalOperand, match=r"is of neuronxcc\.nki, which NKI 0\.4 does not compile"):
        neurosim.simulate(kernel, nki_version="0.4")


def test_an_instruction_may_ask():
    seen = []

    def kernel():
        seen.append(nisa.memset.instruction(nl.ndarray((4, 4), nl.float32), 0.0).nki_version)

    neurosim.simulate(kernel, nki_version="0.4")()
    outside = nisa.memset.instruction(None, 0.0).nki_version
    assert [*map(str, seen), outside] == ["0.4", NEWEST]


def test_the_record_and_the_summary_carry_it(tmp_path):
    result = neurosim.profile(asks, nki_version="0.3")(X)
    assert result.summary()["nki_version"] == "0.3"
    result.program.save(tmp_path / "program")
    assert Program.load(tmp_path / "program").nki_version == NKI_0_3
    assert reopen(tmp_path / "program").summary()["nki_version"] == "0.3"


def test_the_command_line(tmp_path, capsys, monkeypatch):
    from typer.testing import CliRunner

    from neurosim.cli import app

    monkeypatch.setenv("NEUROSIM_NKI_VERSION", "0.6")  # restored afterwards: the command changes it
    script = tmp_path / "script.py"
    script.write_text(
        "import nki, numpy as np, neurosim\n"
        "from neurosim.kernel import running\n"
        "nki.simulate(lambda: print('as', running().nki_version))()\n"
    )
    assert "as 0.5" in CliRunner().invoke(app, ["run", "--nki-version", "0.5", str(script)]).output
    answer = CliRunner().invoke(app, ["run", "--nki-version", "5", str(script)])
    assert isinstance(answer.exception, ConfigurationError)


@pytest.mark.parametrize("version", ["0.3", "0.6"])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda a, t: nisa.dma_copy(dst=t, src=a, dst_rmw_op=nl.add), "no operand 'dst_rmw_op'"),
        (lambda a, t: nisa.dma_copy(dst=t, src=nl.zeros(t.shape, t.dtype, nl.psum)), "src is in PSUM"),
        (lambda a, t: nl.store(a, nl.zeros(t.shape, t.dtype, nl.psum)), "in PSUM; it must be in SBUF"),
        (lambda a, t: nisa.dma_copy(dst=t, src=a, dge_mode=9), "dge_mode=9 is not a nisa.dge_mode"),
        (
            lambda a, t: nisa.dma_copy(dst=t.view(nl.int32), src=a, dge_mode=nisa.dge_mode.hwdge),
            "float32 to int32: bytes move as they are",
        ),
        (lambda a, t: nl.ndarray((4, 4), nl.float32, "sbuf"), "buffer='sbuf' is not a memory"),
        (lambda a, t: nisa.memset(dst=t.view(nl.int32), value=2.0), "2.0"),
        (lambda a, t: t.reshape((4, 9)), "36 elements asked for, 32 there"),
        (lambda a, t: nisa.nc_matmul(t, t, t, is_moving_zero=True), "no operand 'is_moving_zero'"),
        (lambda a, t: nisa.nc_matmul(t, t, t, psumAccumulateFlag=1), "no operand 'psumAccumulateFlag'"),
        (lambda a, t: nisa.tensor_copy_dynamic_src(t, t), "use nisa.tensor_copy with a view"),
    ],
)
def test_what_0_3_removed_is_refused(body, words, version):
    def kernel(a):
        body(a, nl.load(a))

    with pytest.raises((NeurosimError, AttributeError)) as caught:
        neurosim.simulate(kernel, nki_version=version)(X)
    assert words in str(caught.value)
    assert not isinstance(caught.value, SimulatorBug)


def test_every_row_of_the_table_says_how_it_is_treated():
    """docs/nki_versions.md: a table row names its source, and one of the ways in which differences are treated."""
    text = (Path(neurosim.__file__).parents[1] / "docs" / "nki_versions.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    rows = [row for row in rows if not row.startswith(("| Difference", "| What"))]
    assert len(rows) > 30
    for row in rows:
        assert re.search(r"(RN|MG) 0\.\d", row), row
