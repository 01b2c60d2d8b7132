"""Device files: what is read, and what is refused, with the field's name in the message."""

from __future__ import annotations

import pickle
import re
import tomllib
from pathlib import Path

import pytest

from neurosim.chip import STANDINGS, Chip, load
from neurosim.errors import ConfigurationError

DEVICE = Path(__file__).resolve().parents[1] / "isa" / "devices" / "trn2.toml"
TEXT = DEVICE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def trn2() -> Chip:
    return load(DEVICE)


def test_trn2(trn2):
    assert (trn2.name, trn2.generation, trn2.partitions) == ("trn2", 3, 128)
    assert trn2.sbuf.partition_bytes == 224 * 1024
    assert trn2.psum.banks * trn2.psum.bank_bytes == 16 * 1024
    assert trn2.tensor.clock_ghz == 2.4
    assert trn2.tensor.peak_tflop_per_s() == pytest.approx(78.6, abs=0.1)
    assert trn2.tensor.peak_tflop_per_s(passes=4) == pytest.approx(19.66, abs=0.01)
    assert trn2.dma.engines * trn2.dma.load_gb_per_s == 368
    assert isinstance(trn2.scalar.table_sets[0], tuple)


def test_a_figure_tells_where_it_comes_from(trn2):
    figure = trn2.figure("tensor.clock_ghz")
    assert (figure.value, figure.unit, figure.standing) == (2.4, "GHz", "documented")
    assert "trainium2_arch.rst" in figure.source


def test_every_figure_has_a_source_and_its_unit_in_its_name(trn2):
    suffix = {"GHz": "_ghz", "GB/s": "_gb_per_s", "ns": "_ns", "cycles": "_cycles", "B": "_bytes"}
    suffix["cycles/element"] = "cycles_per_element"
    for path, figure in trn2.figures.items():
        assert len(figure.source) >= 10, path
        assert figure.standing in STANDINGS
        assert path.endswith(suffix.get(figure.unit, ""))
    assert len(trn2.figures) == len(re.findall(r"^\[\w+\.\w+\]$", TEXT, re.MULTILINE))


def test_a_chip_is_a_value(trn2):
    assert load(DEVICE) == trn2
    assert hash(load(DEVICE)) == hash(trn2)
    assert pickle.loads(pickle.dumps(trn2)) == trn2
    with pytest.raises(AttributeError):
        trn2.tensor.clock_ghz = 1.2  # type: ignore[misc]


def test_replace(trn2):
    cold = trn2.replace(tensor__clock_ghz=1.2)
    assert cold == trn2.replace(**{"tensor.clock_ghz": 1.2})
    assert cold != trn2
    assert (cold.tensor.clock_ghz, trn2.tensor.clock_ghz) == (1.2, 2.4)
    assert cold.tensor.rows == trn2.tensor.rows
    figure = cold.figure("tensor.clock_ghz")
    assert (figure.value, figure.unit, figure.source, figure.standing) == (1.2, "GHz", "Chip.replace", "assumed")
    assert cold.replace(tensor__clock_ghz=2.4) == trn2
    assert trn2.replace(vector__clock_ghz=1).vector.clock_ghz == 1.0
    assert trn2.replace(scalar__table_sets=[["exp", "tanh"]]).scalar.table_sets == (("exp", "tanh"),)
    assert trn2.replace(sync__semaphore_ns=0).sync.semaphore_ns == 0
    two = trn2.replace(dma__engines=8, hbm__bandwidth_gb_per_s=100.0)
    assert (two.dma.engines, two.hbm.bandwidth_gb_per_s) == (8, 100.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tensor.clok_ghz": 1.2}, "trn2: unknown field tensor.clok_ghz\n  did you mean tensor.clock_ghz"),
        ({"warp__clock_ghz": 1.2}, "unknown field warp.clock_ghz"),
        ({"clock_ghz": 1.2}, "unknown field clock_ghz"),
        ({"tensor.clock_ghz": 0}, "trn2: tensor.clock_ghz = 0 GHz makes no sense\n  it must be above 0"),
        ({"tensor.clock_ghz": float("nan")}, "tensor.clock_ghz = nan GHz makes no sense"),
        ({"hbm.bandwidth_gb_per_s": float("inf")}, "hbm.bandwidth_gb_per_s = inf GB/s makes no sense"),
        ({"sbuf.partition_bytes": -4}, "sbuf.partition_bytes = -4 B makes no sense"),
        ({"sync.semaphore_ns": -1}, "sync.semaphore_ns = -1 ns makes no sense\n  it must be 0 or more"),
        ({"psum.banks": 7.5}, "psum.banks = 7.5 is not a whole number\n  unit: count"),
        ({"psum.banks": True}, "psum.banks = True is not a whole number"),
        ({"vector.clock_ghz": "fast"}, "vector.clock_ghz = 'fast' is not a number"),
        ({"vector.clock_ghz": True}, "vector.clock_ghz = True is not a number"),
        ({"chip.generation": 5}, "chip.generation = 5\n  known generations: (2, 3, 4)"),
        ({"chip.name": ""}, "chip.name = '' is no name"),
        ({"scalar.table_sets": ["exp"]}, "scalar.table_sets = ['exp'] is no list of functions"),
        ({"scalar.resident_functions": "copy"}, "scalar.resident_functions = 'copy' is no list of functions"),
        ({"scalar.resident_functions": [1]}, "scalar.resident_functions = [1] is no list of functions"),
    ],
)
def test_replace_refuses(trn2, change, message):
    with pytest.raises(ConfigurationError) as caught:
        trn2.replace(**change)
    assert message in str(caught.value)


def test_an_unknown_figure(trn2):
    with pytest.raises(ConfigurationError, match=r"trn2: unknown field tensor.clock") as caught:
        trn2.figure("tensor.clock")
    assert "did you mean tensor.clock_ghz" in str(caught.value)


CLOCK = re.search(r"\[tensor.clock_ghz\]\n(.+\n)+", TEXT)
assert CLOCK is not None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (CLOCK[0], "", "chip.toml: missing field tensor.clock_ghz"),
        (CLOCK[0], "", "add [tensor.clock_ghz] with value, unit = 'GHz', source and standing"),
        ("[tensor.clock_ghz]", "[tensor.clock_mhz]", "chip.toml: unknown field tensor.clock_mhz"),
        ("[tensor.clock_ghz]", "[tensor.clock_mhz]", "did you mean tensor.clock_ghz"),
        ("[tensor.clock_ghz]", "[tensr.clock_ghz]", "chip.toml: unknown section tensr"),
        ("[tensor.clock_ghz]", "[tensr.clock_ghz]", "did you mean tensor"),
        ("[chip.name]", "speed = 3\n[chip.name]", "chip.toml: unknown section speed"),
        ("[chip.name]", "[chip]\nspeed = 3\n[chip.name]", "unknown field chip.speed"),
        (CLOCK[0], "[tensor]\nclock_ghz = 2.4\n", "tensor.clock_ghz must have exactly value, unit, source and"),
        ('value = 2.4\nunit = "GHz"', "value = 2.4", "it has value, standing, source"),
        ('value = 2.4\nunit = "GHz"', 'value = 2.4\nunit = "MHz"', "clock_ghz has unit 'MHz'\n  it must be 'GHz'"),
        ('value = 2.4\nunit = "GHz"\nstanding = "documented"', 'value = 2.4\nunit = "GHz"\nstanding = "sure"',
         "tensor.clock_ghz has standing 'sure'\n  known: documented, measured, fitted, assumed"),
        ("value = 2.4\n", "value = 0.0\n", "chip.toml: tensor.clock_ghz = 0.0 GHz makes no sense"),
        ("value = 2.4\n", "value = -2.4\n", "chip.toml: tensor.clock_ghz = -2.4 GHz makes no sense"),
        ("value = 2.4\n", 'value = "2.4"\n', "chip.toml: tensor.clock_ghz = '2.4' is not a number"),
        ("value = 3\n", "value = 3\nextra = 1\n", "chip.generation must have exactly value, unit, source and standing"),
        ('source = "AWS Trainium2"', 'source = " "', "chip.name has no source"),
        ("value = 2.4\n", "value = \n", "is no TOML"),
    ],
)  # fmt: skip
def test_load_refuses(tmp_path, old, new, message):
    assert TEXT.count(old) >= 1
    path = tmp_path / "chip.toml"
    path.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert message in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigurationError, match=r"device file .*none.toml: No such file"):
        load(tmp_path / "none.toml")


def test_each_single_field_is_missed(tmp_path):
    """Leaving out any one field names exactly that one."""
    tree = tomllib.loads(TEXT)
    for section, entries in tree.items():
        for name in entries:
            block = re.search(rf"\[{section}\.{name}\]\n(.+\n)+", TEXT)
            assert block is not None
            path = tmp_path / "chip.toml"
            path.write_text(TEXT.replace(block[0], ""), encoding="utf-8")
            with pytest.raises(ConfigurationError, match=rf"missing field {section}\.{name}\n  1 missing"):
                load(path)
