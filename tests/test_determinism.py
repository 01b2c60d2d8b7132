"""The same kernel gives the same bytes: values, record, times, reports; whatever the threads, the hash seed, BLAS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import hashlib, json, sys, tempfile, time
from pathlib import Path
import ml_dtypes, numpy as np
import neurosim, nki, nki.isa as nisa, nki.language as nl
from neurosim import pool
from neurosim.compiling import mailbox
from neurosim.record.listing import listing
from neurosim.shell.loading import load_kernel, packaged_kernel
from neurosim.report.perfetto import write_trace

matmul = load_kernel(f"{packaged_kernel('matmul.py')}:matmul")
attention = load_kernel(f"{packaged_kernel('attention.py')}:attention")


def everything(x, column):
    '''One of most instructions, with sums whose order would show.'''
    tile, bias = nl.load(x), nl.load(column)
    made, total = nl.ndarray(tile.shape, nl.bfloat16), nl.ndarray((x.shape[0], 1), nl.float32)
    nisa.activation_reduce(made, nl.gelu, tile, nl.add, total, bias=bias, scale=0.37)
    nisa.tensor_scalar(made, made, nl.multiply, total, op1=nl.add, operand1=bias)
    peak = nl.ndarray((x.shape[0], 1), nl.float32)
    nisa.tensor_reduce(peak, nl.add, made, axis=1, negate=True)
    nisa.tensor_tensor(tile, tile, made, nl.subtract)
    nisa.affine_select(tile, [[-1, x.shape[1]]], 1, tile, 0.25, nl.greater_equal, 30)
    nisa.reciprocal(peak, peak)
    nisa.tensor_scalar(tile, tile, nl.multiply, peak)
    out = nl.ndarray(x.shape, nl.float16, nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def digest(data):
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()[:16]


def normal(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


most = [1]
if "threads" in sys.argv[2:]:  # small products, too, on all threads that there are
    pool._PARALLEL_MIN, pool._LEARN_NS = 1, 0
    pool._LOSS_LIMIT_NS = float("inf")
    share = pool._Pool._share

    def share_if_anyone_comes(mine, count, serve, function, arguments):
        for _ in range(10_000):
            share(mine, count, serve, lambda words: 1, ())  # wakes the others
            if (mine.crew.mailbox(count)[mailbox.ROW :: mailbox.ROW] == mailbox.READY).any():
                break
            time.sleep(1e-4)
        share(mine, count, serve, lambda *given: most.append(function(*given)) or most[-1], arguments)

    pool._Pool._share = share_if_anyone_comes
SIZE = int(sys.argv[1])
runs = {
    "matmul bfloat16": (matmul, [normal(seed, SIZE, SIZE, dtype=ml_dtypes.bfloat16) for seed in (1, 2)], {}),
    "matmul float32": (matmul, [normal(seed, SIZE // 2 + 1, SIZE // 2 + 3) for seed in (3, 4)], {}),
    "attention": (attention, [normal(seed, SIZE // 2, 48, dtype=ml_dtypes.bfloat16) for seed in (5, 6, 7)],
                  {"causal": True}),
    "everything": (everything, [normal(8, 96, 200), normal(9, 96, 1)], {}),
}
found = {}
for name, (kernel, arrays, options) in runs.items():
    result = neurosim.profile(kernel)(*arrays, **options)
    timeline = result.timeline
    found[f"{name}: values"] = digest(result.outputs.tobytes())
    found[f"{name}: listing"] = digest(listing(result.program))
    found[f"{name}: ops"] = digest(timeline.ops.tobytes())
    found[f"{name}: makespan"] = timeline.makespan_ps
    found[f"{name}: summary"] = digest(json.dumps(result.summary()))
    found[f"{name}: report"] = digest(result.report())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        write_trace(path, result.program, result.timelines, result.chip)
        found[f"{name}: trace"] = digest(path.read_bytes())
sys.stderr.write(f"threads: {pool.threads() if max(most) > 1 else 1}")
print(json.dumps(found))
"""

ROOT = Path(__file__).resolve().parents[1]
BLAS = {
    "OPENBLAS_NUM_THREADS": "1",
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_L2_SIZE": "262144",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
SMALL = 40
SETTINGS = {
    "one thread, seed 0, BLAS set": {"NUMBA_NUM_THREADS": "1", "PYTHONHASHSEED": "0"} | BLAS,
    "two threads, seed 1, BLAS unset": {"NUMBA_NUM_THREADS": "2", "PYTHONHASHSEED": "1"},
    "two threads, another BLAS": {
        "NUMBA_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "OPENBLAS_CORETYPE": "Prescott",
    },
}


def run(size, environment, *options):
    """Run the script in a fresh process; return what it printed, and how many threads it used."""
    names = ("NUMBA_", "OPENBLAS_", "OMP_", "MKL_", "PYTHONHASHSEED", "NEUR", "NKI")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(names) or "CACHE" in name}
    clean |= {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"} | environment
    command = [sys.executable, "-c", SCRIPT, str(size), *options]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, cwd=ROOT, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), int(done.stderr.rpartition("threads: ")[2])


def hashes(size, environment):
    """Run the script in a fresh process and return its hashes."""
    return run(size, environment)[0]


@pytest.fixture(scope="module")
def reference():
    return hashes(384, SETTINGS["one thread, seed 0, BLAS set"])


@pytest.mark.parametrize("name", list(SETTINGS)[1:])
def test_same_bytes(reference, name):
    """J2, J6, J8: run to run, and with other threads, BLAS settings and hash seeds."""
    found = hashes(384, SETTINGS[name])
    assert len(found) == 28
    assert {key: value for key, value in found.items() if value != reference[key]} == {}


def test_hashes_tell_runs_apart(reference):
    """The comparison can fail: other inputs have other values."""
    values = [value for key, value in reference.items() if key.endswith((": values", ": listing", ": ops"))]
    assert len(set(values)) == len(values)


@pytest.mark.slow
def test_same_bytes_on_larger_sizes():
    found = [hashes(1024, environment) for environment in SETTINGS.values()]
    assert found[0] == found[1] == found[2]


NO_AVX2 = {"NPY_DISABLE_CPU_FEATURES": "AVX512F AVX2 FMA3"}
ANY_CPU = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}

#: Each changes one thing that must not matter; how many threads the run then has.
MATRIX = {
    "two threads": ({"NUMBA_NUM_THREADS": "2"}, 2),
    "eight threads": ({"NUMBA_NUM_THREADS": "8"}, 8),
    "another hash seed": ({"NUMBA_NUM_THREADS": "1", "PYTHONHASHSEED": "1234"}, 1),
    "a hash seed of its own": ({"NUMBA_NUM_THREADS": "2", "PYTHONHASHSEED": "random"}, 2),
    "plain Python": ({"NUMBA_DISABLE_JIT": "1"}, 1),
    "any CPU": ({"NUMBA_NUM_THREADS": "1"} | ANY_CPU, 1),
    "bounds checks": ({"NUMBA_NUM_THREADS": "1", "NUMBA_BOUNDSCHECK": "1"}, 1),
    "NumPy without AVX2": ({"NUMBA_NUM_THREADS": "1"} | NO_AVX2, 1),
}

#: All of that in three processes instead of eight. Where one of these fails, the matrix says which setting it was.
TOGETHER = {
    "eight threads, another hash seed, NumPy without AVX2": (
        {"NUMBA_NUM_THREADS": "8", "PYTHONHASHSEED": "1234"} | NO_AVX2,
        8,
    ),
    "plain Python, a hash seed of its own": ({"NUMBA_DISABLE_JIT": "1", "PYTHONHASHSEED": "random"}, 1),
    "two threads, any CPU, bounds checks": ({"NUMBA_NUM_THREADS": "2", "NUMBA_BOUNDSCHECK": "1"} | ANY_CPU, 2),
}


@pytest.fixture(scope="module")
def small_reference():
    return hashes(SMALL, {"NUMBA_NUM_THREADS": "1", "PYTHONHASHSEED": "0"})


def check_on_small_kernels(reference, environment, threads):
    found, used = run(SMALL, environment, "threads")
    assert found == reference
    assert used == threads


#: Compiled anew, as no other test asks for such code.
ANEW = "two threads, any CPU, bounds checks"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == ANEW else ()) for name in TOGETHER]
)
def test_same_bytes_on_small_kernels(small_reference, name):
    """J1, G7, G8: threads, hash seeds, the compiler, its target and its checks change nothing."""
    check_on_small_kernels(small_reference, *TOGETHER[name])


def test_the_three_processes_cover_the_matrix():
    together = [setting for environment, _ in TOGETHER.values() for setting in environment.items()]
    alone = {setting for environment, _ in MATRIX.values() for setting in environment.items()}
    assert alone - set(together) == {("NUMBA_NUM_THREADS", "1")}  # which the reference has
    assert len(together) == len(set(together))


@pytest.mark.slow
@pytest.mark.parametrize("name", MATRIX)
def test_same_bytes_with_one_setting_changed(small_reference, name):
    check_on_small_kernels(small_reference, *MATRIX[name])
