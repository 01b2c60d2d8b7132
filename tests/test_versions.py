"""Which NKI's semantics a run has: given, by the environment, or the newest."""

from __future__ import annotations

import nki
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import ConfigurationError
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


def test_an_instruction_may_ask():
    import nki.isa as nisa

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
