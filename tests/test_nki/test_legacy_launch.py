"""What scripts call on legacy kernels, and what they import."""

import importlib
import os
import subprocess
import sys
import textwrap

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
import pytest
from neuronxcc.nki.isa.constants import dge_mode
from neuronxcc.nki.language.constants import sizeinbytes
from neuronxcc.nki.typing import tensor

import neurosim
from neurosim.errors import IllegalOperand, Unsupported


def double(a, scale=2.0):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x: tensor[8, 16] = nl.load(a)
    nl.store(out, x * scale)
    return out


def into(a, out):
    nl.store(out, nl.load(a) * 2.0)


kernel = nki.jit(double)


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "made",
    [
        nki.jit(double),
        nki.jit()(double),
        nki.jit(mode="simulation", platform_target="trn1")(double),
        nki.jit(nki.jit(double), mode="simulation"),
        nki.trace(double),
        nki.baremetal(double, save_neff_name="file.neff", additional_compile_opt="--disable-dge"),
        nki.baremetal()(double),
        nki.benchmark(warmup=2, iters=10)(double),
        nki.benchmark(double),
        nki.profile(working_directory="/nowhere", save_neff_name="file.neff")(double),
        lambda a: nki.simulate_kernel(double, a),
        lambda a: nki.simulate_kernel(kernel, a),
        nki.compiler.enable_stack_allocator(nki.compiler.skip_middle_end_transformations(kernel)),
        nki.compiler.enable_stack_allocator(log_level=10)(kernel),
    ],
)
def test_every_way_to_call_a_kernel(made):
    a = numbers(8, 16)
    np.testing.assert_array_equal(made(a), a * 2)


def test_parameters_and_outputs_that_are_arguments():
    a, out = numbers(8, 16), np.zeros((8, 16), np.float32)
    np.testing.assert_array_equal(kernel(a, scale=3.0), a * 3)
    assert nki.simulate_kernel(into, a, out) is None
    np.testing.assert_array_equal(out, a * 2)
    assert neurosim.simulate(kernel)(a).program.notes["Dialect"].startswith("neuronxcc.nki")
    assert str(neurosim.simulate(kernel)(a).program.nki_version) == "0.1"


def test_a_kernel_in_a_kernel():
    @nki.jit
    def outer(a):
        return kernel(kernel(a))

    a = numbers(8, 16)
    np.testing.assert_array_equal(outer(a), a * 4)


def test_latencies_come_from_the_timeline():
    a = numbers(8, 16)
    made = nki.benchmark(warmup=2, iters=10)(double)
    assert made.benchmark_result is None
    made(a)
    latency = made.benchmark_result.nc_latency
    expected = neurosim.profile(kernel)(a).timeline.total_ps / 1e6
    assert latency.get_latency_percentile(50) == latency.get_latency_percentile(99) == expected > 0
    made(nt.tensor[[8, 16], nl.float32])  # without data
    assert made.benchmark_result.nc_latency.get_latency_percentile(99) == expected
    grid = nki.benchmark(nki.jit(double))[2]
    grid(a)
    assert grid.benchmark_result.nc_latency.get_latency_percentile(99) > expected
    with pytest.raises(IllegalOperand, match="give 0 to 100"):
        latency.get_latency_percentile(101)
    with pytest.raises(IllegalOperand, match="no option iterations"):
        nki.benchmark(iterations=3)


def test_names_that_are_not_here_say_why():
    for module, name, text in (
        (nki, "nccl", "collectives of the old dialect are not built"),
        (nki, "_private_kernels", "part of the vendor's package"),
        (nki, "jitt", "did you mean jit"),
        (nki.isa, "sparse_dot_product", "never documented"),
        (nl, "all_reduce", "do not meet"),
        (nl, "affine_rang", "did you mean affine_range"),
    ):
        with pytest.raises(AttributeError, match=text):
            getattr(module, name)
    with pytest.raises(Unsupported, match="modes are auto"):
        nki.jit(mode="fast")
    with pytest.raises(ImportError):
        importlib.import_module("neuronxcc.nki.kernels.attention")


def test_modules_exist_once():
    assert importlib.import_module("neuronxcc.nki.language") is nl
    assert importlib.import_module("neuronxcc.nki") is nki
    assert importlib.import_module("neuronxcc").nki is nki
    assert sizeinbytes(nl.bfloat16) == 2
    assert dge_mode is nki.isa.dge_mode
    assert nl.tile_size.pmax == 128
    assert nl.fp32.min == np.finfo(np.float32).min
    assert nl.finfo(nl.bfloat16).max > 3e38


def test_a_real_package_is_not_shadowed(tmp_path):
    package = tmp_path / "neuronxcc"
    (package / "nki").mkdir(parents=True)
    (package / "__init__.py").write_text("real = True\n")
    (package / "nki" / "__init__.py").write_text("real = True\n")
    script = "import neurosim, neuronxcc, neuronxcc.nki; print(getattr(neuronxcc.nki, 'real', False))"
    for forced, expected in (("0", "True"), ("1", "False")):
        environment = {**os.environ, "NEUROSIM_NKI": forced, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}"}
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
        )
        assert done.stdout.strip() == expected


def test_the_command_line_runs_a_legacy_kernel(tmp_path):
    file = tmp_path / "old.py"
    file.write_text(
        textwrap.dedent(
            """
            import neuronxcc.nki as nki
            import neuronxcc.nki.language as nl

            @nki.jit
            def double(a):
                out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
                i_p, i_f = nl.mgrid[0:128, 0:64]
                for i in nl.affine_range(2):
                    x = nl.load(a[i * 128 + i_p, i_f], mask=i * 128 + i_p < a.shape[0])
                    y = nl.multiply(x, 2.0, mask=i * 128 + i_p < a.shape[0])
                    nl.store(out[i * 128 + i_p, i_f], y, mask=i * 128 + i_p < a.shape[0])
                return out
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "neurosim", "profile", f"{file}:double", "200x64:float32"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "neuronxcc.nki (NKI 0.1)" in done.stdout
