"""One simulator on one case, in a process of its own: what ``peers.py`` starts, and reads a line of JSON from.

    python -m peer_kernels.runs triton "matmul bfloat16" 2048 3

A peer is a function that takes a case and returns what to time: a call without arguments that gives the result, or
None where the peer computes no values. The first call is not counted: it compiles. One that takes more than a minute
of a processor is the only one, and counts. Results are checked against float64.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
import math
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

WIDTH = 128
"""Of a head of attention."""
LONG_S = 60.0
"""Seconds of a processor after which a run is not repeated."""
SCALE_SIM = """
[general]
run_name = peer
[architecture_presets]
ArrayHeight = 128
ArrayWidth = 128
IfmapSramSzkB = 8192
FilterSramSzkB = 8192
OfmapSramSzkB = 8192
IfmapOffset = 0
FilterOffset = 10000000
OfmapOffset = 20000000
Dataflow = ws
Bandwidth = 256
ReadRequestBuffer = 64
WriteRequestBuffer = 64
[layout]
IfmapCustomLayout = False
FilterCustomLayout = False
IfmapSRAMBankBandwidth = 10
IfmapSRAMBankNum = 10
IfmapSRAMBankPort = 2
FilterSRAMBankBandwidth = 10
FilterSRAMBankNum = 10
FilterSRAMBankPort = 2
[sparsity]
SparsitySupport = false
SparseRep = ellpack_block
OptimizedMapping = false
BlockSize = 8
RandomNumberGeneratorSeed = 40
[run_presets]
InterfaceBandwidth = USER
UseRamulatorTrace = False
"""
"""An array of 128 × 128, weight-stationary, with 24 MiB of SRAM."""


class Case(NamedTuple):
    """What is computed: ``matmul`` of size × size, or ``attention`` of size × 128; in which dtype."""

    maths: str
    dtype: str
    size: int

    @property
    def inputs(self) -> list[Any]:
        """Normal random operands: a and b, or q, k and v."""
        count, shape = (2, (self.size, self.size)) if self.maths == "matmul" else (3, (self.size, WIDTH))
        normal = np.random.default_rng(0).standard_normal
        return [normal(shape, np.float32).astype(self.numpy) for _ in range(count)]

    @property
    def numpy(self) -> Any:
        """The dtype as NumPy has it."""
        return getattr(ml_dtypes, self.dtype, None) or np.dtype(self.dtype)


class Missing(Exception):
    """A peer that is not there, or does not do this, with the reason."""


def numpy_float32(case: Case) -> Callable[[], Any]:
    """NumPy in float32, on BLAS: no simulator."""
    arrays = [array.astype(np.float32) for array in case.inputs]
    if case.maths == "matmul":
        return lambda: arrays[0] @ arrays[1]
    q, k, v = arrays

    def attend() -> Any:
        scores = q @ k.T
        scores *= np.float32(1 / math.sqrt(WIDTH))
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        return (scores @ v) / scores.sum(axis=1, keepdims=True)

    return attend


def neurosim(case: Case, *, replay: bool = False) -> Callable[[], Any]:
    """Values, checks and timeline of the kernels in ``kernels/``; each time a run of the kernel's Python."""
    from neurosim import profile
    from neurosim.shell.loading import load_kernel, packaged_kernel

    kernel = load_kernel(f"{packaged_kernel(f'{case.maths}.py')}:{case.maths}")
    arrays = case.inputs
    if case.maths == "matmul":
        arrays[0] = np.ascontiguousarray(arrays[0].T)
    run = profile(kernel, "trn2", replay=replay)
    return lambda: run(*arrays).outputs


def neurosim_replayed(case: Case) -> Callable[[], Any]:
    """The same, replayed from its record."""
    run = neurosim(case, replay=True)
    run()
    return run


def triton_viz(case: Case) -> Callable[[], Any]:
    """triton-viz's NKI interpreter alone, without its tracer. It takes ``nki`` from neurosim."""
    import neurosim  # noqa: F401 (makes nki importable)

    try:
        from triton_viz.core.frontend.base import _LangPatchScope
        from triton_viz.core.simulation import nki_beta2
    except ImportError as error:
        raise Missing(f"{error}; releases up to 3.0 lack this interpreter, its repository has it") from None
    from peer_kernels import nki_viz

    arrays = case.inputs
    if case.maths == "matmul":
        arrays[0] = np.ascontiguousarray(arrays[0].T)
    out = np.zeros((case.size, case.size if case.maths == "matmul" else WIDTH), case.numpy)
    interpreted = nki_beta2.NKIBeta2InterpretedFunction(getattr(nki_viz, case.maths))

    def run() -> Any:
        scope = _LangPatchScope()
        nki_beta2.nki_patch_lang(scope)
        try:
            interpreted.run(*arrays, out, grid=(1,))
        finally:
            nki_beta2.nki_unpatch_lang(scope)
        return out

    return run


def triton(case: Case, **blocks: int) -> Callable[[], Any]:
    """Triton's interpreter; a matmul in blocks of 128, or of ``block``."""
    if blocks and case.maths != "matmul":
        raise Missing("attention is in blocks of 128")
    os.environ["TRITON_INTERPRET"] = "1"
    import torch

    from peer_kernels import triton_gpu

    kind = getattr(torch, case.dtype)
    arrays = [torch.from_numpy(array.astype(np.float32)).to(kind) for array in case.inputs]
    run = getattr(triton_gpu, case.maths)
    return lambda: run(*arrays, **blocks).float().numpy()


def pallas(case: Case, block: int = 512, *, races: bool = False) -> Callable[[], Any]:
    """JAX Pallas in TPU interpret mode, as a whole compiled by XLA, in blocks of so many rows and columns."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax.numpy as jnp

    from peer_kernels import pallas_tpu

    arrays = [jnp.asarray(array) for array in case.inputs]
    sizes = (case.size,) if case.maths == "matmul" else (case.size, WIDTH)
    run = getattr(pallas_tpu, case.maths)(*sizes, case.dtype, block, races=races)
    return lambda: np.asarray(run(*arrays))


def scale_sim(case: Case) -> Callable[[], Any]:
    """SCALE-Sim: time without values."""
    if case.maths != "matmul":
        raise Missing("it takes one layer, and attention is several")
    from scalesim.scale_sim import scalesim

    folder = Path(tempfile.mkdtemp(prefix="peer-"))
    (folder / "chip.cfg").write_text(SCALE_SIM)
    (folder / "layout.csv").write_text("Layer,\n")  # read in any case, and not used
    (folder / "layer.csv").write_text(f"Layer, M, N, K,\nproduct, {case.size}, {case.size}, {case.size},\n")

    def run() -> None:
        places = {
            "config": str(folder / "chip.cfg"),
            "topology": str(folder / "layer.csv"),
            "layout": str(folder / "layout.csv"),
        }
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            scalesim(save_disk_space=True, verbose=False, input_type_gemm=True, **places).run_scale(
                top_path=str(folder)
            )

    return run


class Peer(NamedTuple):
    """A simulator: what makes a run of it, the distribution that it comes from, and what one run of it tells."""

    make: Callable[[Case], Callable[[], Any]]
    distribution: str
    tells: str


_PALLAS = "values, bounds, NaN where unwritten"
PEERS: dict[str, Peer] = {
    "numpy float32": Peer(numpy_float32, "numpy", "values"),
    "neurosim": Peer(neurosim, "neurosim-npu", "bits, memory, races, time"),
    "neurosim, replayed": Peer(neurosim_replayed, "neurosim-npu", "bits, memory, races, time"),
    "triton-viz NKI": Peer(triton_viz, "triton-viz", "values, some rules"),
    "Triton interpreter": Peer(triton, "triton", "values"),
    "Triton, blocks of 256": Peer(partial(triton, block=256), "triton", "values"),
    "Pallas TPU interpret": Peer(pallas, "jax", _PALLAS),
    "Pallas, blocks of 256": Peer(partial(pallas, block=256), "jax", _PALLAS),
    "Pallas, race detection": Peer(partial(pallas, races=True), "jax", f"{_PALLAS}, races"),
    "Pallas, 256 and races": Peer(partial(pallas, block=256, races=True), "jax", f"{_PALLAS}, races"),
    "SCALE-Sim": Peer(scale_sim, "scalesim", "time"),
}


def check(case: Case, found: Any) -> str:
    """Return the largest error against float64, as a part of the largest element; Missing where it is no rounding."""
    arrays = [array.astype(np.float64) for array in case.inputs]
    if case.maths == "matmul":
        right = arrays[0] @ arrays[1]
    else:
        scores = arrays[0] @ arrays[1].T / math.sqrt(WIDTH)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        right = weights @ arrays[2] / weights.sum(axis=1, keepdims=True)
    error = np.abs(np.asarray(found, np.float64) - right).max() / np.abs(right).max()
    if not error < 0.02:
        raise Missing(f"its values are wrong: {error:.3g} of the largest element")
    return f"{error:.1e}"


def timed(name: str, case: Case, repeats: int) -> dict[str, Any]:
    """Return what each run takes, in seconds on the clock and of all processors; or why it cannot be said."""
    make, distribution, tells = PEERS[name]
    times, processor = [], []

    def once() -> Any:
        start, used = time.perf_counter(), time.process_time()
        found = run()
        times.append(time.perf_counter() - start)
        processor.append(time.process_time() - used)
        return found

    try:
        run = make(case)
        found = once()
        error = "" if found is None else check(case, found)
    except (ImportError, Missing) as reason:
        return {"missing": str(reason)}
    if processor[0] < LONG_S:
        times.clear()
        processor.clear()
        for _ in range(repeats):
            once()
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        version = "of this folder"
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    measured = {"times_s": times, "cpu_s": processor, "peak_mib": peak_mib}
    return measured | {"error": error, "version": version, "tells": tells}


def main() -> None:
    """Run one peer on one case."""
    name, kind, size, repeats = sys.argv[1:]
    maths, dtype = kind.split()
    print(json.dumps(timed(name, Case(maths, dtype, int(size)), int(repeats))))


if __name__ == "__main__":
    main()
