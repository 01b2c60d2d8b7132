"""Programs in files: what comes back, what is refused, and that no bytes whatsoever do anything else."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import linecache
import os
import pickle
import zipfile
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import neurosim
from neurosim.analysis.loops import trips
from neurosim.errors import ConfigurationError, NeurosimError
from neurosim.program import Program, Signature
from neurosim.record import encoding, listing, program_file
from neurosim.record.encoding import Malformed, Word
from neurosim.report.summary import summary
from neurosim.run import reopen
from neurosim.shell.loading import load_kernel, packaged_kernel
from neurosim.timing import time

GOLDEN = Path(__file__).parents[1] / "golden"
CHIP = neurosim.load_chip("trn2")


def everything() -> Program:
    kernel = load_kernel(f"{GOLDEN / 'listing_kernel.py'}:everything")
    arrays = [np.ones(shape, ml_dtypes.bfloat16) for shape in ((128, 64), (128, 256))]
    return neurosim.simulate(kernel, chip=CHIP)(*arrays).program


def attention() -> Program:
    kernel = load_kernel(f"{packaged_kernel('attention.py')}:attention")
    spec = neurosim.spec((512, 64), "bfloat16")
    return neurosim.simulate(kernel, chip=CHIP, values=False)(spec, spec, spec, causal=True).program


def placed() -> Program:
    """Return a program of tensors with addresses, views backwards, and an indirect operand."""

    def kernel(x: Any, rows: Any) -> Any:
        out = nl.ndarray((64, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((64, 32), dtype=x.dtype, buffer=nl.sbuf, address=(64, 4096))
        index = nl.ndarray((64, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=index, src=rows)
        nisa.dma_copy(dst=tile, src=x.ap([[32, 64], [1, 32]], vector_offset=index, indirect_dim=0))
        nisa.tensor_copy(dst=tile[:, 0:16], src=tile[:, 16:32])
        nisa.dma_copy(dst=out, src=tile)
        return out

    arguments = (np.ones((256, 32), np.float32), np.arange(64, dtype=np.int32).reshape(64, 1))
    return neurosim.simulate(kernel, chip=CHIP)(*arguments).program


def looped() -> Program:
    """Return a program of two loops over ``affine_range``, one in the other."""

    def kernel(x: Any) -> None:
        for row in nl.affine_range(2):
            tile = nl.load(x[4 * row : 4 * row + 4])
            for _ in nl.affine_range(3):
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
            nl.store(x[4 * row : 4 * row + 4], tile)

    return neurosim.simulate(kernel, chip=CHIP, replay=False)(np.ones((8, 8), np.float32)).program


@pytest.fixture(scope="module", params=[everything, attention, placed, looped, lambda: Program("trn2", 3)])
def program(request: pytest.FixtureRequest) -> Program:
    return request.param()  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("saved") / "program"
    everything().save(path)
    return path.read_bytes()


def again(program: Program, folder: Path) -> Program:
    program.save(folder / "program")
    return Program.load(folder / "program")


def without_paths(value: Any) -> Any:
    """Return stacks without what a file does not keep: where the sources were."""
    return [[dataclasses.replace(frame, path="") for frame in stack] for stack in value]


# What comes back


def test_everything_comes_back(program: Program, tmp_path: Path) -> None:
    found, expected = vars(again(program, tmp_path)), dict(vars(program))
    for content in (found, expected):
        content["stacks"] = without_paths(content["stacks"])
        content["signatures"] = [signature_text(signature) for signature in content["signatures"]]
    assert found == expected


def signature_text(signature: Signature) -> tuple[Any, ...]:
    """Return a signature with its parameters as the text that they print."""
    parameters = [(name, listing.value_text(value)) for name, value in signature.parameters]
    return (
        *(getattr(signature, name) for name in ("instruction", "patterns", "engine", "engines", "work")),
        parameters,
    )


def test_its_time_listing_and_report_are_the_same(program: Program, tmp_path: Path) -> None:
    found = again(program, tmp_path)
    assert found.listing() == program.listing()
    chip = neurosim.load_chip(program.chip_name)
    before, after = time(program, chip), time(found, chip)
    assert before.keys() == after.keys()
    for core in before:
        assert before[core].ops.tobytes() == after[core].ops.tobytes()
        for name in ("makespan_ps", "engines", "hbm_read_bytes", "flops"):
            assert getattr(before[core], name) == getattr(after[core], name)
        assert summary(program, before[core], chip) == summary(found, after[core], chip)


def test_loops_and_sources_are_known_where_the_files_are_not(tmp_path: Path) -> None:
    file = tmp_path / "gone.py"
    file.write_text((GOLDEN / "listing_kernel.py").read_text(encoding="utf-8"), encoding="utf-8")
    arrays = [np.ones(shape, ml_dtypes.bfloat16) for shape in ((128, 64), (128, 256))]
    program = neurosim.simulate(load_kernel(f"{file}:everything"))(*arrays).program
    expected = [[(trip.line, trip.index) for trip in around] for around in trips(program)]
    assert expected[-1] == [(14, 1)]
    program.save(tmp_path / "program")
    file.unlink()
    linecache.clearcache()
    found = Program.load(tmp_path / "program")
    assert [[(trip.line, trip.index) for trip in around] for around in trips(found)] == expected
    assert not any(os.sep in frame.path for stack in found.stacks for frame in stack)


def test_a_file_opens_no_file_of_its_choice(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("password = 'mine'\n", encoding="utf-8")
    program = everything()
    program.stacks = [
        tuple(dataclasses.replace(frame, file=str(secret), path="", line=1) for frame in stack)
        for stack in program.stacks
    ]
    found = again(program, tmp_path)
    assert "password" not in str(summary(found, time(found, CHIP)[0], CHIP))


def test_equal_programs_make_equal_files(program: Program, tmp_path: Path) -> None:
    program.save(tmp_path / "first")
    Program.load(tmp_path / "first").save(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_numpy_reads_the_columns(saved: bytes) -> None:
    with np.load(io.BytesIO(saved), allow_pickle=False) as columns:
        np.testing.assert_array_equal(columns["signature_ids"], everything().signature_ids)
        np.testing.assert_array_equal(columns["edges"].reshape(-1, 2), everything().edges)


def test_a_saved_program_can_grow(tmp_path: Path) -> None:
    program = again(everything(), tmp_path)
    index = program.append(0, list(program.slots[: program.slot_starts[1]]), 0)
    assert program.record(index).slots == program.record(0).slots


def test_every_attribute_of_a_program_is_in_the_file() -> None:
    """An attribute that is new must be saved, or be in this list because it follows from others."""
    derived = {"slot_starts", "rows", "first"}  # rows are in the columns as soon as one is asked for
    held = {
        "chip_name",
        "generation",
        "nki_version",
        "notes",
        "signatures",
        "stacks",
        "storages",
        "trips",
        "iterations",
        "names",
        "meetings",
        *program_file.COLUMNS,
    }
    assert set(vars(Program("trn2", 3))) == held | derived


def test_reopening_gives_a_result(tmp_path: Path) -> None:
    program = attention()
    program.save(tmp_path / "program")
    result = reopen(tmp_path / "program")
    assert (result.kernel_name, result.chip.name, result.outputs) == ("attention", "trn2", None)
    assert result.timeline.makespan_ps == time(program, CHIP)[0].makespan_ps
    with pytest.raises(ConfigurationError, match="another generation"):
        _ = reopen(tmp_path / "program", CHIP.replace(chip__generation=2)).timelines
    program.chip_name = "chip-of-mine"
    program.save(tmp_path / "mine")
    with pytest.raises(ConfigurationError, match="chip-of-mine"):
        reopen(tmp_path / "mine")


def test_an_interrupt_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = everything()
    (tmp_path / "old").write_text("old", encoding="utf-8")

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(program_file, "_tables", interrupted)
    for name in ("new", "old"):
        with pytest.raises(KeyboardInterrupt):
            program.save(tmp_path / name)
    assert [file.name for file in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text(encoding="utf-8") == "old"


# What is refused


def rewritten(saved: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """Return an archive with members changed, and their check sums right."""
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def with_json(saved: bytes, member: str, change: Callable[[Any], None]) -> bytes:
    def change_member(members: dict[str, bytes]) -> None:
        content = json.loads(members[member])
        change(content)
        members[member] = json.dumps(content).encode()

    return rewritten(saved, change_member)


def with_column(saved: bytes, name: str, change: Callable[[Any], Any]) -> bytes:
    def change_member(members: dict[str, bytes]) -> None:
        column = np.load(io.BytesIO(members[f"{name}.npy"]))
        file = io.BytesIO()
        changed = change(column)
        np.save(file, column if changed is None else changed)
        members[f"{name}.npy"] = file.getvalue()

    return rewritten(saved, change_member)


def refusal(content: bytes, folder: Path) -> str:
    (folder / "program").write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        Program.load(folder / "program")
    return str(caught.value)


@pytest.mark.parametrize("version", [0, 1, None, "4"])
def test_another_version_is_refused_in_words(saved: bytes, tmp_path: Path, version: Any) -> None:
    message = refusal(
        with_json(saved, "header.json", lambda header: header.update(version=version, neurosim="9.9")), tmp_path
    )
    assert f"version {version!r}, written by neurosim 9.9" in message
    assert f"this is neurosim {neurosim.__version__}, which reads version {program_file.VERSION}" in message


def test_other_fields_are_refused_in_words(saved: bytes, tmp_path: Path) -> None:
    message = refusal(with_json(saved, "header.json", lambda header: header["shapes"]["Matmul"].pop()), tmp_path)
    assert "hold other fields" in message
    assert "different: Matmul" in message


def test_what_is_no_program(tmp_path: Path, saved: bytes) -> None:
    other = io.BytesIO()
    np.savez(other, x=np.ones(3))
    for content in (b"", b"PK", saved[:-1], saved[: len(saved) // 2], pickle.dumps([1]), other.getvalue()):
        assert "no program file, or a broken one" in refusal(content, tmp_path)
    with pytest.raises(ConfigurationError, match="cannot read"):
        Program.load(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="cannot read"):
        Program.load(tmp_path)


def test_a_pickle_in_a_column_is_not_opened(saved: bytes, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "sprung",))

    trap = np.empty(11, dtype=object)
    trap[:] = Trap()
    refusal(with_column(saved, "cores", lambda column: trap), tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_a_small_file_that_claims_to_be_large(saved: bytes, tmp_path: Path) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", b" " * (1 << 20))
    content = bytearray(file.getvalue())
    size = (1 << 20).to_bytes(4, "little")
    claimed = content.replace(size, (0xF0000000).to_bytes(4, "little"))
    assert "broken" in refusal(bytes(claimed), tmp_path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("signature_ids", lambda column: column.__setitem__(3, 6)),
        ("signature_ids", lambda column: column.__setitem__(3, -1)),
        ("signature_ids", lambda column: column[:-1]),
        ("signature_ids", lambda column: column.astype(np.int64)),
        ("signature_ids", lambda column: column.reshape(-1, 1)),
        ("stack_ids", lambda column: column.__setitem__(0, 1 << 30)),
        ("cores", lambda column: column.__setitem__(0, -1)),
        ("blocks", lambda column: column.__setitem__(0, -2)),
        ("slots", lambda column: column.__setitem__(0, 12)),
        ("slots", lambda column: column.__setitem__(0, -1)),
        ("slots", lambda column: column.__setitem__(1, 2)),
        ("slots", lambda column: column.__setitem__(1, -1)),
        ("slots", lambda column: column.__setitem__(1, np.iinfo(np.int64).max)),
        ("slots", lambda column: column.__setitem__(0, column[2])),
        ("slots", lambda column: column[:-2]),
        ("edges", lambda column: column.__setitem__(0, 11)),
        ("edges", lambda column: column.__setitem__(1, column[0])),
        ("edges", lambda column: column.__setitem__(1, -1)),
    ],
)
def test_a_column_that_points_nowhere(saved: bytes, tmp_path: Path, name: str, change: Callable[[Any], Any]) -> None:
    assert "broken" in refusal(with_column(saved, name, change), tmp_path)


@pytest.mark.parametrize(
    ("number", "field", "value"),
    [
        (0, "entered", 1),
        (2, "entered", 2),
        (2, "entered", 9),
        (3, "entered", 0),
        (4, "entered", -1),
        (1, "core", 1),
        (1, "stack", 99),
        (2, "number", 0),
        (2, "number", -1),
        (1, "first", 5),
        (1, "first", -1),
        (1, "end", 99),
    ],
)
def test_an_iteration_that_cannot_be(tmp_path: Path, number: int, field: str, value: int) -> None:
    program = looped()
    assert [one.number for one in program.iterations] == [0, 0, 1, 2, 1, 0, 1, 2]
    program.iterations[number] = dataclasses.replace(program.iterations[number], **{field: value})
    program.save(tmp_path / "program")
    with pytest.raises(ConfigurationError, match="an iteration of a loop that cannot be"):
        Program.load(tmp_path / "program")


# Any bytes whatsoever


def survives(content: bytes, path: Path) -> None:
    """Load a file; it is refused, or gives a program that can be listed and timed, or not, in words.

    What is read is whole: it can be written again, and comes back the same.
    """
    path.write_bytes(content)
    refused = None
    try:
        program = Program.load(path)
        assert len(program.listing().splitlines()) == 1 + len(program)
        assert vars(again(program, path.parent)).keys() == vars(program).keys()
        timelines = time(program, CHIP)
        found = [summary(program, timeline, CHIP) for timeline in timelines.values()]
        assert sum(one["instructions"] for one in found) == len(program)
    except NeurosimError as error:
        refused = error
    assert refused is None or refused.advice


FUZZ = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@FUZZ
@given(places=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=8))
def test_bytes_changed_anywhere(saved: bytes, tmp_path: Path, places: list[tuple[float, int]]) -> None:
    content = bytearray(saved)
    for place, value in places:
        content[int(place * len(content))] = value
    survives(bytes(content), tmp_path / "program")


@FUZZ
@given(first=st.floats(0, 1), length=st.integers(0, 400), more=st.binary(max_size=100))
def test_a_piece_replaced(saved: bytes, tmp_path: Path, first: float, length: int, more: bytes) -> None:
    begin = int(first * len(saved))
    survives(saved[:begin] + more + saved[begin + length :], tmp_path / "program")


INTEGERS = st.one_of(st.integers(-2, 2), st.integers(-200, 200), st.integers(-(2**64), 2**64))
VALUES = st.one_of(
    INTEGERS,
    st.none(),
    st.booleans(),
    st.floats(),
    st.sampled_from(["", "sbuf", "psum", "shared_hbm", "state", "float32", "tensor", "Matmul", "hwdge", "activation"]),
    st.builds(list),
    st.builds(dict),
    st.builds(lambda: [[0, 0]]),
)


@settings(FUZZ, max_examples=400)
@given(data=st.data())
def test_values_changed_in_the_tables(saved: bytes, tmp_path: Path, data: st.DataObject) -> None:
    """The archive is sound and so is the JSON; a few of its values are not what they were."""

    def change(content: Any) -> None:
        for _ in range(data.draw(st.integers(1, 3))):
            parent: Any = content
            while True:
                keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
                if not keys:
                    break
                key = data.draw(st.sampled_from(keys))
                child = parent[key]
                if not isinstance(child, (list, dict)) or data.draw(st.integers(0, 9)) == 0:
                    parent[key] = data.draw(VALUES)
                    break
                parent = child

    member = data.draw(st.sampled_from(["tables.json", "tables.json", "tables.json", "header.json"]))
    survives(with_json(saved, member, change), tmp_path / "program")


@settings(FUZZ, max_examples=200)
@given(
    name=st.sampled_from(list(program_file.COLUMNS)),
    place=st.floats(0, 1, exclude_max=True),
    value=st.one_of(st.integers(-2, 20), st.integers(-(2**63), 2**63 - 1)),
)
def test_numbers_changed_in_the_columns(saved: bytes, tmp_path: Path, name: str, place: float, value: int) -> None:
    def change(column: Any) -> None:
        limits = np.iinfo(column.dtype)
        column[int(place * len(column))] = min(max(value, limits.min), limits.max)

    survives(with_column(saved, name, change), tmp_path / "program")


# The encoding


@dataclasses.dataclass(frozen=True)
class Odd:
    value: list[int]


def test_a_type_without_an_encoding_is_named() -> None:
    for make in (encoding.encoder, encoding.decoder):
        with pytest.raises(TypeError, match="no encoding for"):
            make(Odd)


@given(
    value=st.recursive(
        st.one_of(st.none(), st.booleans(), INTEGERS, st.floats(allow_nan=False), st.text(max_size=5)),
        lambda inner: st.lists(inner, max_size=3).map(tuple),
        max_leaves=8,
    )
)
def test_parameters_come_back(value: Any) -> None:
    kind: Any = Hashable
    text = json.dumps(encoding.encoder(kind)(value), allow_nan=False)
    found = encoding.decoder(kind)(json.loads(text))
    assert repr(found) == repr(value)
    assert encoding.encoder(kind)(found) == encoding.encoder(kind)(value)


@pytest.mark.parametrize(
    "value", [{}, {"word": 1}, {"word": "a", "b": 1}, {"float": "1e5"}, {"engine": "wheel"}, {"dtype": "float33"}]
)
def test_parameters_that_nobody_wrote(value: Any) -> None:
    with pytest.raises(Malformed):
        encoding.decoder(Hashable)(value)


def test_a_word_prints_as_itself() -> None:
    assert repr(Word("reset_reduce")) == "reset_reduce"
    assert copy.deepcopy(Word("fast")) == Word("fast")
