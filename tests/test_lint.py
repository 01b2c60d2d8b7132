"""What ``neurosim check`` finds: an example for each restriction, and nothing in kernels that are fine."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from neurosim.errors import ConfigurationError
from neurosim.lint import Restriction, check

ROOT = Path(__file__).resolve().parents[1]
HEAD = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\nfrom enum import Enum\n"

FINE = '''
from dataclasses import dataclass

LIMITS = [128, 512]

@dataclass
class Tiles(nl.NKIObject):
    rows: int = 128

    def count(self, size):
        return -(-size // self.rows)

class Mode(Enum):
    fast = 1
    exact = 2

@nki.jit
def kernel(x, mode=Mode.fast, sizes=(1, 2), scale=None):
    """Docstrings, f-strings, prints, asserts, loops, conditions, lists and dictionaries are in the guide."""
    assert x.shape[0] <= nl.tile_size.pmax, f"{x.shape}"
    tiles, names = Tiles(64), {"a": 1}
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    scratch = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    done = []
    for k in names.keys():
        names[k] = 2
        names[f"{k},{tiles.count(128)}"] = 3
    for i in range(4):
        if scale == None and i % 2 == 0:
            done.append(i)
            continue
        print(i, LIMITS[0])
    while len(done) < 3:
        done.append(-1)
        break
    with nl.no_reorder():
        copy(out, scratch)

    def body(i):
        nisa.dma_copy(dst=out, src=x.ap([[1, 1]], scalar_offset=i))

    nl.fori_loop(0, 8, body)
    return out

def copy(dst, src):
    nisa.dma_copy(dst=dst, src=src)

def not_a_kernel(x=[]):
    try:
        return {1, 2} if x is None else [y for y in x]
    finally:
        pass
'''

CASES = [
    (Restriction.identity, "is", "def kernel(x, y=None):\n    return x if y is None else y"),
    (Restriction.identity, "is not", "def kernel(x, y=None):\n    return y if y is not None else x"),
    (Restriction.keyword_only, "causal after *", "def kernel(x, *, causal=False):\n    return x"),
    (Restriction.list_argument, "the default [1, 1]", "def kernel(x, stride=[1, 1]):\n    return x"),
    (Restriction.list_argument, "xs is a list", "def kernel(xs: list[int]):\n    return xs"),
    (
        Restriction.class_base,
        "class Tiles inherits from nothing",
        "def kernel(x):\n    return Tiles()\n\nclass Tiles:\n    rows: int = 1",
    ),
    (
        Restriction.class_base,
        "class B inherits from A",
        "def kernel(x):\n    return B()\n\nclass A(nl.NKIObject):\n    x: int = 1\n\nclass B(A):\n    y: int = 1",
    ),
    (Restriction.dict_key, "the key 1", "def kernel(x):\n    return {1: x}"),
    (Restriction.dict_key, "the key (i, j)", "def kernel(x, i, j):\n    tiles = {}\n    tiles[i, j] = x\n    return x"),
    (Restriction.dict_key, "the key i", "def kernel(x):\n    t = dict()\n    for i in range(4):\n        t[i] = x"),
    (Restriction.dict_key, "the key i + 1", "def kernel(x, i):\n    t = {}\n    return t.get(i + 1)"),
    (
        Restriction.output_memory,
        "out is returned",
        "def kernel(x):\n    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)\n    return out",
    ),
    (
        Restriction.inner_jit,
        "inner() is under nki.jit",
        "def kernel(x):\n    return inner(x)\n\n@nki.jit\ndef inner(x):\n    return x",
    ),
    (
        Restriction.loop_in_no_reorder,
        "nl.dynamic_range in nl.no_reorder()",
        "def kernel(x, n):\n    with nl.no_reorder():\n        for i in nl.dynamic_range(n):\n            print(x)",
    ),
    (
        Restriction.loop_in_no_reorder,
        "nl.while_loop in nl.no_reorder()",
        "def kernel(x, n):\n    with nl.no_reorder():\n        nl.while_loop(n, x)",
    ),
    (
        Restriction.loop_step,
        "the step -1",
        "def kernel(x, n):\n    for i in nl.dynamic_range(n, 0, -1):\n        print(x)",
    ),
    (
        Restriction.loop_variable,
        "i * 128 computes with the loop's variable",
        "def kernel(x, n):\n    for i in nl.dynamic_range(n):\n        print(x[i * 128])",
    ),
    (
        Restriction.loop_variable,
        "i == 0 computes with the loop's variable",
        "def kernel(x, n):\n    def body(i):\n        if i == 0:\n            print(x)\n    nl.fori_loop(0, n, body)",
    ),
    (
        Restriction.loop_variable,
        "i is written",
        "def kernel(x, n):\n    for i in nl.dynamic_range(n):\n        nisa.register_load(i, x)",
    ),
    (
        Restriction.loop_result,
        "body returns i",
        "def kernel(x, n):\n    def body(i):\n        return i\n    nl.fori_loop(0, n, body)",
    ),
    (Restriction.outer_state, "global COUNT", "def kernel(x):\n    global COUNT\n    COUNT = 1\n    return x"),
    (
        Restriction.outer_state,
        "CACHE belongs to the file and changes",
        "def kernel(x):\n    CACHE['x'] = x\n    return x\n\nCACHE = {}",
    ),
    (
        Restriction.outer_state,
        "SEEN belongs to the file and changes",
        "def kernel(x):\n    SEEN.append(x)\n    return x\n\nSEEN = []",
    ),
    (
        Restriction.tensor_attribute,
        "t[0:4].size_bytes",
        "def kernel(x):\n    t = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)\n    return t[0:4].size_bytes",
    ),
    (Restriction.tensor_attribute, "x.array", "def kernel(x, y):\n    print(x.array(), y.array)\n    return x.shape"),
    (
        Restriction.tensor_attribute,
        "row.lanes",
        "def kernel(x):\n    y = nl.load(x)\n    row = y.reshape((4, 4)).slice(0, 1, 2)\n    return row.lanes",
    ),
    (Restriction.value, "a set", "def kernel(x):\n    return {1, 2}"),
    (Restriction.value, "set()", "def kernel(x):\n    return set()"),
    (Restriction.value, "2j", "def kernel(x):\n    return 2j"),
    (Restriction.value, "b'x'", "def kernel(x):\n    return b'x'"),
    (Restriction.value, "4294967296, which 32 bits do not hold", "def kernel(x):\n    return 4294967296"),
    (Restriction.value, "1e+39, which float32 does not hold", "def kernel(x):\n    return 1e39"),
    (Restriction.control_flow, "try", "def kernel(x):\n    try:\n        return x\n    finally:\n        print(x)"),
    (Restriction.control_flow, "yield", "def kernel(x):\n    yield x"),
    (Restriction.control_flow, "match", "def kernel(x, m):\n    match m:\n        case 1:\n            return x"),
    (Restriction.control_flow, "with open('f')", "def kernel(x):\n    with open('f'):\n        return x"),
]


def found(tmp_path, source, **options):
    path = tmp_path / "kernels.py"
    path.write_text(source, encoding="utf-8")
    return check(path, **options)


@pytest.mark.parametrize(("restriction", "what", "source"), CASES, ids=[what for _, what, _ in CASES])
def test_each_restriction(tmp_path, restriction, what, source):
    (finding,) = found(tmp_path, f"{HEAD}\n@nki.jit\n{source}\n")
    assert (finding.restriction, finding.what) == (restriction, what)


@pytest.mark.parametrize("option", ["platform_target='trn2'", "mode='trace'"])
def test_options_of_jit(tmp_path, option):
    (finding,) = found(tmp_path, f"{HEAD}\n@nki.jit({option})\ndef kernel(x):\n    return x\n")
    assert finding.restriction is Restriction.jit_option


def test_the_old_namespace(tmp_path):
    source = "import neuronxcc.nki as nki\nimport neuronxcc.nki.language as nl\n\n@nki.jit\ndef kernel(x):\n"
    findings = found(tmp_path, f"{source}    y = nl.load(x)\n    return nl.store(x, y)\n")
    assert [(finding.line, finding.what) for finding in findings] == [
        (4, "nki is neuronxcc.nki"),
        (6, "nl is neuronxcc.nki.language"),
    ]
    assert {finding.restriction for finding in findings} == {Restriction.legacy}


def test_a_list_for_a_kernel(tmp_path):
    source = f"{HEAD}\n@nki.jit\ndef kernel(x, order):\n    return x\n\nkernel(1, order=[0, 1])\n"
    (finding,) = found(tmp_path, source)
    assert (finding.line, finding.what) == (10, "a list for kernel")


def test_what_is_neither_listed_nor_forbidden_is_reported_when_asked_for(tmp_path):
    source = f"{HEAD}\n@nki.jit\ndef kernel(x):\n    return [y for y in (x, *x)]\n"
    assert found(tmp_path, source) == []
    findings = found(tmp_path, source, strict=True)
    assert [finding.what for finding in findings] == ["a list comprehension", "unpacking with *"]


def test_every_restriction_has_an_example():
    others = {Restriction.jit_option, Restriction.legacy, Restriction.unlisted}
    assert {restriction for restriction, _, _ in CASES} | others == set(Restriction)


def test_what_the_guide_lists_is_fine(tmp_path):
    assert found(tmp_path, HEAD + FINE) == []


@pytest.mark.parametrize(
    "body",
    [
        "y = x.shape, x.dtype, x.strides, x.reshape((2, 8)).ndim, x[0:1].buffer, x.ap, x.__class__",
        "y = x.shape, x.steps, x.heads",  # some settings, not a tensor
        "y = nl.load(x)\n    y = settings(y)\n    print(x.shape, y.array)",
    ],
)
def test_what_tensors_have_and_what_is_no_tensor(tmp_path, body):
    assert found(tmp_path, f"{HEAD}\n@nki.jit\ndef kernel(x):\n    {body}\n    return x\n") == []


def test_code_that_no_kernel_uses_is_not_read(tmp_path):
    findings = found(tmp_path, HEAD + FINE, kernel="not_a_kernel")
    assert [finding.what for finding in findings] == ["try", "a set", "is"]


def test_a_kernel_that_is_decorated_where_it_is_called(tmp_path):
    source = f"{HEAD}\ndef kernel(x):\n    return x is None\n\nrun = nki.jit(kernel)\n"
    assert [finding.what for finding in found(tmp_path, source)] == ["is"]


@pytest.mark.parametrize("path", sorted((ROOT / "kernels").glob("*.py")), ids=lambda path: path.name)
def test_our_kernels_have_no_findings(path):
    assert [str(finding) for finding in check(path)] == []


def test_a_finding_says_where_what_why_and_what_instead(tmp_path):
    (finding,) = found(tmp_path, f"{HEAD}\n@nki.jit\ndef kernel(x):\n    return x is None\n")
    assert str(finding).splitlines() == [
        f"{tmp_path / 'kernels.py'}:8:12  in kernel: is",
        "  why      the compiler has no identity: it evaluates values, not Python objects",
        "  source   AWS Neuron SDK, nki/migration/index.rst, on 'is' and 'is not' (NKI 0.3)",
        "  instead  compare with == or !=, with None too",
    ]


@pytest.mark.parametrize(
    ("source", "kernel", "message"),
    [
        ("x = 1\n", None, "has no kernel"),
        (f"{HEAD}\n@nki.jit\ndef kernel(x):\n    return x\n", "kernal", "functions under nki.jit: kernel"),
        ("def kernel(:\n", None, "is not Python"),
    ],
)
def test_nothing_to_check(tmp_path, source, kernel, message):
    with pytest.raises(ConfigurationError) as caught:
        found(tmp_path, source, kernel=kernel)
    assert message in str(caught.value)


def run(*words, folder):
    command = [sys.executable, "-m", "neurosim.cli", "check", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def test_the_command(tmp_path):
    source = """
        import nki
        raise SystemExit("a file is read, not run")

        @nki.jit
        def first(x):
            return x is None

        @nki.jit
        def second(x):
            return x
        """
    (tmp_path / "kernels.py").write_text(textwrap.dedent(source), encoding="utf-8")
    done = run("kernels.py", folder=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("kernels.py:7:12  in first: is\n")
    assert done.stdout.endswith("kernels.py: 1 finding\n")
    done = run("kernels.py:second", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "kernels.py: no findings\n")
    done = run("nowhere.py", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "ConfigurationError: nowhere.py: No such file or directory\n  check the path\n"


def test_calls_of_python_and_numpy_that_no_document_speaks_of(tmp_path):
    source = f"""import numpy as np
{HEAD}
@nki.jit
def kernel(x):
    for i, y in enumerate((x, x)):
        z = np.sqrt(i)
    dtype = np.float32
    c = nl.shared_constant(np.identity(128), dtype=nl.bfloat16)
    return range(len(z))
"""
    assert found(tmp_path, source) == []
    assert [finding.what for finding in found(tmp_path, source, strict=True)] == ["enumerate()", "numpy.sqrt()"]
    assert found(tmp_path, source.replace("@nki.jit", "def enumerate(a):\n    return a\n\n@nki.jit"), strict=True)
