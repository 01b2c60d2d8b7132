"""``import nki``: ours where no real one is installed, each module once, and never in a real one's way."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def python(code, *paths, **environment):
    """Run code in a fresh interpreter with ``paths`` in front of the checkout; return its output."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("NEURO", "NKI", "PYTEST"))}
    variables |= {"PYTHONPATH": os.pathsep.join([*map(str, paths), str(ROOT)]), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=variables | environment,
        capture_output=True,
        text=True,
        cwd=paths[0] if paths else "/",
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def package(folder, name, **modules):
    """Write a package with modules of given contents."""
    (folder / name).mkdir(parents=True)
    for module, text in modules.items():
        (folder / name / f"{module}.py").write_text(text)
    return folder


def test_nki_is_neurosim_nki():
    out = python(
        """
        import neurosim
        import nki, nki.isa, nki.language as nl
        from nki import isa, language, collectives
        import neurosim.nki, neurosim.nki.isa, neurosim.nki.language, sys
        assert nki is neurosim.nki
        assert nki.isa is isa is neurosim.nki.isa is sys.modules["nki.isa"] is sys.modules["neurosim.nki.isa"]
        assert nki.language is nl is language is neurosim.nki.language
        assert nki.__spec__.name == "neurosim.nki" and nki.isa.__spec__.name == "neurosim.nki.isa"
        assert nki.__name__ == "neurosim.nki"
        print("one")
        """
    )
    assert out == "one"


@pytest.mark.parametrize(
    "statements",
    [
        "import nki.language as nl; import nki.isa",
        "from nki.isa import nc_matmul; import neurosim.nki.isa as other; assert other.nc_matmul is nc_matmul",
        "import neurosim.nki.isa as first; import nki.isa; assert nki.isa is first",
        "import importlib; assert importlib.import_module('nki.isa') is importlib.import_module('neurosim.nki.isa')",
    ],
)
def test_any_order_of_imports_gives_one_module(statements):
    python(f"import neurosim; {statements}")


def test_without_neurosim_there_is_no_nki():
    assert python("import importlib.util; print(importlib.util.find_spec('nki'))") == "None"


def test_modules_that_nki_does_not_have():
    out = python(
        """
        import neurosim, nki, importlib.util
        assert importlib.util.find_spec("nki.isa") is not None
        assert importlib.util.find_spec("nki.runtime") is None
        import nki.isa.constants, nki.dtype
        assert nki.isa.constants.oob_mode is nki.isa.oob_mode
        assert nki.dtype.bfloat16 is nki.language.bfloat16
        for name in ("nki.runtime", "nki.isa.nothing"):
            try:
                __import__(name)
            except ModuleNotFoundError as error:
                print(error)
        """
    )
    assert "No module named 'nki.runtime'" in out
    assert "nki.isa.nothing" in out


def test_a_real_nki_wins(tmp_path):
    """Where the vendor's package is installed, scripts that import neurosim still get it."""
    package(tmp_path, "nki", __init__="REAL = True", isa="REAL = True")
    out = python(
        """
        import neurosim, nki, nki.isa
        assert nki.REAL and nki.isa.REAL
        import neurosim.nki.isa
        assert not hasattr(neurosim.nki.isa, "REAL") and nki.isa.REAL
        try:
            import nki.language
        except ModuleNotFoundError:
            print("its own modules only")
        """,
        tmp_path,
    )
    assert out == "its own modules only"


def test_the_environment_may_ask_for_ours(tmp_path):
    package(tmp_path, "nki", __init__="REAL = True", isa="REAL = True")
    out = python(
        """
        import neurosim, nki, nki.isa
        print(hasattr(nki, "REAL"), hasattr(nki.isa, "REAL"), nki.__name__)
        """,
        tmp_path,
        NEUROSIM_NKI="1",
    )
    assert out == "False False neurosim.nki"


def test_install_with_force(tmp_path):
    package(tmp_path, "nki", __init__="REAL = True", isa="REAL = True")
    out = python(
        """
        import neurosim, nki, nki.isa
        assert nki.REAL
        from neurosim import finder
        finder.install(force=True)
        import nki, nki.isa
        print(hasattr(nki, "REAL"), hasattr(nki.isa, "REAL"))
        """,
        tmp_path,
    )
    assert out == "False False"


@pytest.mark.parametrize("content", [{}, {"isa": "REAL = True"}])
def test_a_bare_folder_named_nki_does_not_count(tmp_path, content):
    """A namespace package (a checkout with a folder nki/) is not the vendor's package."""
    package(tmp_path, "nki", **content)
    assert python("import neurosim, nki.isa; print(nki.__name__, hasattr(nki.isa, 'REAL'))", tmp_path) == (
        "neurosim.nki False"
    )


def test_the_finder_stands_first_and_once():
    out = python(
        """
        import sys, neurosim
        from neurosim import finder
        finder.install(); finder.install()
        print([type(entry).__name__ for entry in sys.meta_path if hasattr(entry, "force")], sys.meta_path[0].force)
        """
    )
    assert out == "['NkiFinder'] False"


def test_importing_neurosim_is_light():
    """The pytest plugin and help texts load no compiler, no arrays, no instruction."""
    out = python(
        """
        import sys, neurosim
        print([name for name in ("numba", "numpy", "ml_dtypes", "isa", "nki", "neurosim.run") if name in sys.modules])
        """
    )
    assert out == "[]"


def test_the_time_of_a_small_program_needs_little():
    """No compiler, and nothing of NumPy that is imported when it is first asked for."""
    out = python(
        """
        import sys, numpy, neurosim, nki.isa as nisa, nki.language as nl
        def kernel(x):
            out = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.shared_hbm)
            tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
            product = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
            nisa.dma_copy(dst=tile, src=x)
            nisa.nc_matmul(dst=product, stationary=tile, moving=tile)
            nisa.tensor_copy(dst=tile[:8], src=product)
            nisa.dma_copy(dst=tile, src=x)
            nisa.dma_copy(dst=out, src=tile)
            return out
        assert neurosim.profile(kernel, values=False)(numpy.ones((128, 8), "f4")).timeline.makespan_ps > 0
        print([name for name in ("numba", "numpy.ma", "numpy.random", "numpy.fft") if name in sys.modules])
        """
    )
    assert out == "[]"


def test_public_names():
    out = python(
        """
        import neurosim
        names = [name for name in dir(neurosim) if not name.startswith("_")]
        for name in neurosim.__all__:
            assert name in names and getattr(neurosim, name) is not None, name
        try:
            neurosim.simulat
        except AttributeError as error:
            print(error)
        """
    )
    assert out.startswith("module 'neurosim' has no attribute 'simulat'")


def test_another_package_named_isa(tmp_path):
    """Its path is in the error, whatever is imported first."""
    package(tmp_path, "isa", __init__="")
    for statement in ("neurosim.load_chip('trn2')", "import nki", "import nki.isa", "neurosim.simulate(print)"):
        out = python(
            f"""
            import neurosim
            try:
                {statement}
            except neurosim.errors.ConfigurationError as error:
                print(error)
            """.replace("import neurosim\n", "import neurosim, neurosim.errors\n"),
            tmp_path,
        )
        assert "is not neurosim's" in out, statement
        assert str(tmp_path / "isa") in out
        assert "sys.path" in out


def test_a_script_runs_from_anywhere(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import neurosim
            import numpy as np
            import nki, nki.isa as nisa, nki.language as nl

            @nki.jit
            def kernel(x):
                out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
                nisa.dma_copy(dst=out, src=x)
                return out

            print(kernel(np.ones((2, 2), np.float32)).sum())
            """
        )
    )
    assert python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')", tmp_path) == "4.0"


def test_submodules_are_attributes():
    """Kernels in use say ``import nki`` and then ``nki.dtype.float8_e4m3`` or ``nki.typing.tensor``."""
    code = "import neurosim, nki; print(nki.dtype.bfloat16, nki.typing.tensor.__name__, nki.collectives.__name__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.split() == ["bfloat16", "tensor", "neurosim.nki.collectives"]


def test_the_old_package_makes_a_level_of_logging():
    """Scripts written beside it say ``logging.disable(logging.OFF)``, which Python alone does not have."""
    out = python(
        """
        import logging
        import neurosim
        assert not hasattr(logging, "OFF")
        import neuronxcc.nki
        logging.disable(logging.OFF)
        logging.critical("silent")
        logging.disable(logging.NOTSET)
        print(logging.OFF > logging.CRITICAL)
        """
    )
    assert out == "True"
