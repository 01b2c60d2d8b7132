"""What a command prints goes wherever its output goes: to terminals of few characters, to full disks, nowhere."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from pathlib import Path

import pytest

from neurosim import cli
from neurosim.shell.streams import orderly
from neurosim.writing import replacing

KERNEL = f"{Path(__file__).parents[2] / 'kernels' / 'softmax.py'}:softmax"
PROFILE = ("profile", KERNEL, "128x64:float32", "--no-values")


class Output(io.BytesIO):
    """A file that takes some bytes and has no space for more."""

    def __init__(self, space: int, descriptor: int) -> None:
        super().__init__()
        self.space, self.descriptor = space, descriptor

    def write(self, content: object) -> int:
        size = super().write(content)  # type: ignore[arg-type]
        if self.tell() > self.space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return size

    def fileno(self) -> int:
        return self.descriptor


def run(monkeypatch: pytest.MonkeyPatch, output: io.TextIOBase | None, *words: str) -> int:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["neurosim", *words])
        patch.setattr(sys, "stdout", output)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert sys.stdout is output
    return int(ended.value.code or 0)


@pytest.fixture
def descriptor(tmp_path: Path) -> int:
    return os.open(tmp_path / "output", os.O_WRONLY | os.O_CREAT)


@pytest.mark.parametrize(("encoding", "bar"), [("ascii", b"???"), ("latin-1", b"???"), ("utf-8", "▒▒▒".encode())])
def test_a_report_is_printed_on_any_terminal(
    monkeypatch: pytest.MonkeyPatch, descriptor: int, encoding: str, bar: bytes
) -> None:
    raw = Output(1 << 20, descriptor)
    assert run(monkeypatch, io.TextIOWrapper(raw, encoding), *PROFILE) == 0
    assert b"softmax on trn2" in raw.getvalue()
    assert bar in raw.getvalue()


def test_where_the_output_is_closed_files_are_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run(monkeypatch, None, *PROFILE, "--json", str(tmp_path / "s.json")) == 0
    assert (tmp_path / "s.json").stat().st_size


@pytest.mark.parametrize("words", [PROFILE, (*PROFILE, "--json", "-"), ("schema",)], ids=str)
def test_an_output_without_space_is_a_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], descriptor: int, words: tuple[str, ...]
) -> None:
    output = io.TextIOWrapper(Output(100, descriptor), "utf-8")
    assert run(monkeypatch, output, *words) == 1
    message = "cannot write the standard output: No space left on device\n  send it where there is space\n"
    assert capsys.readouterr().err == f"ConfigurationError: {message}"
    assert os.fstat(descriptor).st_rdev == Path(os.devnull).stat().st_rdev, "the end of the process would fail again"


def test_a_scripts_streams_are_its_own(monkeypatch: pytest.MonkeyPatch, descriptor: int, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import signal, sys\nprint(sys.stdout.errors, signal.getsignal(signal.SIGTERM))\nsys.exit(3)\n")
    raw = Output(1 << 20, descriptor)
    assert run(monkeypatch, io.TextIOWrapper(raw, "utf-8"), "run", str(script)) == 3
    assert raw.getvalue().decode().split() == ["strict", str(signal.getsignal(signal.SIGTERM))]


def test_what_asks_a_command_to_end_leaves_no_draft(tmp_path: Path) -> None:
    def command() -> None:
        with orderly(), replacing(tmp_path / "trace.json") as file:
            file.write(b"half")
            drafts.extend(tmp_path.iterdir())
            signal.raise_signal(signal.SIGTERM)

    drafts: list[Path] = []
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as ended:
            command()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (len(drafts), ended.value.code, list(tmp_path.iterdir())) == (1, 143, [])


STOPPED = """
import signal
import nki.isa as nisa
import nki.language as nl

def kernel(x):
    nl.load(x)
    stop()

def stop():
    signal.raise_signal(signal.SIGINT)

if __name__ == "__main__":
    stop()
"""


def test_ctrl_c_says_where_a_kernel_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(STOPPED)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for words in (
            ("profile", f"{script}:kernel", "128x8:float32"),
            ("precision", f"{script}:kernel", "8x8:float32"),
        ):
            assert run(monkeypatch, sys.stdout, *words) == 130
            assert capsys.readouterr().err == f"interrupted at {script}:11 in stop\n"
        assert run(monkeypatch, sys.stdout, "run", str(script)) == 130
        error = capsys.readouterr().err
        assert error.startswith("Traceback (most recent call last):\n" + f'  File "{script}", line 14, in <module>')
        assert error.endswith("KeyboardInterrupt\n")
    finally:
        signal.signal(signal.SIGINT, before)
