"""What scripts do with kernels: measure them, hand them objects, and spell old options."""

from __future__ import annotations

import copy
import dataclasses
import json
import warnings

import nki
import nki.compiler
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import neurosim
from neurosim.errors import ConfigurationError, IllegalCall, IllegalOperand, Unsupported
from neurosim.nki._measuring import CompilerOptionWarning, NotMeasured

F = np.float32
X = np.arange(512, dtype=F).reshape(128, 4)


def double(x):
    """Return twice x."""
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out


jitted = nki.jit(double)


# -- measuring --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: nki.benchmark(jitted),
        lambda: nki.benchmark(warmup=5, iters=10)(double),
        lambda: nki.benchmark(double, warmup=0),
        lambda: nki.benchmark()(jitted),
        lambda: nki.benchmark(jitted)[1],
        lambda: nki.benchmark(iters=3)(jitted[1]),
        lambda: nki.profile(jitted),
    ],
)
def test_measured_kernels(make):
    measured = make()
    with pytest.raises(NotMeasured, match="it did not run yet"):
        _ = measured.benchmark_result
    assert not hasattr(measured, "benchmark_result")
    np.testing.assert_array_equal(measured(X), X * 2)
    latency = measured.benchmark_result.nc_latency
    timeline = neurosim.profile(jitted)(X).timeline
    assert timeline.launch_ps > 0
    for percentile in (0, 50, 99, 99.9, 100):
        assert latency.get_latency_percentile(percentile) == timeline.total_ps / 1e6
    assert measured.__name__ == measured.func_name == "double"
    assert "measured" in repr(measured)


def test_a_measured_kernel_with_a_grid_keeps_its_own_time():
    measured = nki.benchmark(jitted)
    launched = measured[1]
    launched(X)
    assert launched.benchmark_result.nc_latency.get_latency_percentile(50) > 10
    with pytest.raises(NotMeasured):
        _ = measured.benchmark_result
    assert copy.copy(launched).result is launched.result


def test_a_measured_kernel_within_a_kernel_is_inlined():
    measured = nki.benchmark(jitted)
    np.testing.assert_array_equal(nki.simulate(lambda x: measured(x))(X), X * 2)
    assert measured.result is None


@pytest.mark.parametrize("wrong", [-1, 101, "50", None, True])
def test_no_percentile(wrong):
    measured = nki.benchmark(jitted)
    measured(X)
    with pytest.raises(IllegalOperand, match="give a number from 0 to 100"):
        measured.benchmark_result.nc_latency.get_latency_percentile(wrong)


def test_profiles_are_written(tmp_path):
    profiled = nki.profile(working_directory=tmp_path / "deep" / "er")(jitted)
    profiled(X)
    written = {path.name for path in (tmp_path / "deep" / "er").iterdir()}
    assert written == {"double.summary.json", "double.trace.json.gz"}
    summary = json.loads((tmp_path / "deep" / "er" / "double.summary.json").read_text())
    assert summary == json.loads(json.dumps(profiled.result.summary()))
    before = set(tmp_path.iterdir())
    nki.profile(jitted)(X)
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "make",
    [
        lambda: nki.benchmark(jitted, save_neff_name="file.neff", save_trace_name="profile.ntff"),
        lambda: nki.jit(additional_compile_opt="--x")(double),
        lambda: nki.jit(double, experimental_flags="enable-mutable-parameter", debug_kernel=True),
        lambda: nki.baremetal(artifacts_dir="debug", save_neff_name="file.neff")(double),
        lambda: nki.profile(jitted, profile_nth=2, overwrite=True),
    ],
)
def test_options_of_the_compiler_have_no_effect_and_say_so(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.warns(CompilerOptionWarning, match="without effect: neurosim compiles nothing") as caught:
        kernel = make()
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(kernel(X), X * 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", [nki.benchmark, nki.profile, nki.baremetal, nki.jit])
def test_unknown_options(call):
    with pytest.raises(Unsupported, match=rf"nki\.{call.__name__}: option speed is not built"):
        call(double, speed=9)


@pytest.mark.parametrize("options", [{"warmup": -1}, {"iters": 2.5}, {"iters": True}])
def test_senseless_counts(options):
    with pytest.raises(IllegalOperand, match="give how often, as an int"):
        nki.benchmark(double, **options)


def test_modes_and_simulator_switches_change_nothing(monkeypatch):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for mode in ("trace", "simulation", "auto"):
            np.testing.assert_array_equal(nki.jit(mode=mode)(double)(X), X * 2)


def test_platform_target_of_a_decorated_kernel():
    def generation():
        return nisa.get_nc_version()

    assert nki.jit(generation, platform_target="trn3")() is nisa.nc_version.gen4
    assert nki.jit(nki.jit(generation), platform_target="trn1")() is nisa.nc_version.gen2


def test_compiler_decorators_leave_kernels_as_they_are():
    assert nki.compiler.skip_middle_end_transformations(jitted) is jitted
    assert nki.compiler.enable_stack_allocator(jitted) is jitted
    with pytest.raises(Unsupported, match=r"nki\.compiler\.kernel_builder is part of NKI's compiler"):
        _ = nki.compiler.kernel_builder
    assert not hasattr(nki.compiler, "driver")


# -- objects that carry tensors ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Weights:
    left: object
    right: object = None
    scale: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Slim:
    x: object


class Config(nl.NKIObject):
    rows = 4

    def __init__(self, weights, **more):
        super().__init__(**more)
        self.weights = weights


@dataclasses.dataclass
class Both(nl.NKIObject):
    weights: Weights
    width: int = 3


def test_objects_hand_tensors_in_and_out():
    seen = []

    def kernel(weights, config, plain, many):
        seen.append(config)
        assert isinstance(config, Config)
        assert (config.rows, config.depth) == (4, 7)
        assert isinstance(plain.weights, Weights)
        tensors = [weights.left, config.weights.left, plain.weights.right, many[0].x]
        assert [tensor.name for tensor in tensors] == [
            "weights.left",
            "config.weights.left",
            "plain.weights.right",
            "many[0].x",
        ]
        return Both(Weights(double(weights.left), None, 2.0)), [Slim(double(many[0].x))]

    weights, config = Weights(X), Config(Weights(X + 1), depth=7)
    out, slim = nki.simulate(kernel)(weights, config, Both(Weights(1.0, X + 2)), (Slim(X + 3),))
    assert isinstance(out, Both)
    assert (out.width, out.weights.scale, out.weights.right) == (3, 2.0, None)
    np.testing.assert_array_equal(out.weights.left, X * 2)
    np.testing.assert_array_equal(slim[0].x, (X + 3) * 2)
    assert weights.left is X
    assert isinstance(config.weights.left, np.ndarray)
    assert seen[0] is not config


def test_objects_without_arrays_stay_the_same():
    config = Config(None, depth=1)
    config.itself = config
    assert nki.simulate(lambda given: given)(config) is config
    kind = nki.simulate(lambda given: given)(Weights)
    assert kind is Weights


def test_an_object_that_holds_itself_and_an_array():
    config = Config(X)
    config.itself = config
    np.testing.assert_array_equal(nki.simulate(lambda given: double(given.weights))(config), X * 2)


def test_arrays_in_objects_are_written_in_place():
    array = X.copy()

    def kernel(given):
        nl.store(given.left, nl.add(nl.load(given.left), 1.0))

    nki.simulate(kernel)(Weights(array))
    np.testing.assert_array_equal(array, X + 1)


def test_attributes_of_a_frozen_class():
    @dataclasses.dataclass(frozen=True)
    class Frozen(nl.NKIObject):
        width: int
        depth = 2

    made = Frozen(width=1, depth=5)
    assert (made.width, made.depth) == (1, 5)


@pytest.mark.parametrize("decorate", [lambda cls: cls, dataclasses.dataclass])
def test_fields_have_the_initializer_of_the_language_guide(decorate):
    """By position, by name, or None: nki-library leaves out fields of MLPTKGConstantsDimensionSizes."""

    @decorate
    class Sizes(nl.NKIObject):
        rows: int
        columns: int
        wide: bool = False

        def __post_init__(self):
            self.seen = (self.rows, self.columns, self.wide)

    assert Sizes(3).seen == (3, None, False)
    assert Sizes(columns=4, wide=True).seen == (None, 4, True)
    assert Sizes(1, 2, True).seen == (1, 2, True)
    with pytest.raises(TypeError):
        Sizes(1, 2, True, 4)
    with pytest.raises(TypeError):
        Sizes(1, rows=1)


def test_an_initializer_of_its_own_says_what_is_needed():
    class Area(nl.NKIObject):
        area: int
        name: str

        def __init__(self, rows):
            self.area = rows * rows
            super().__init__(columns=rows)

        def __post_init__(self):
            raise AssertionError("only the default initializer calls it")

    made = Area(3)
    assert (made.area, made.name, made.columns) == (9, None, 3)

    @dataclasses.dataclass
    class Sizes(nl.NKIObject):
        rows: int

        def __init__(self, rows, columns):
            self.rows = rows * columns

    assert Sizes(3, columns=2).rows == 6
    with pytest.raises(TypeError):
        Sizes(3)


# -- arguments and outputs --------------------------------------------------------------------------------------------


def test_inputs_that_alias_outputs():
    """nki-library's spelling: the array is written in place, and returned."""

    def kernel(x, cache):
        nl.store(cache, nl.load(x))
        return cache

    cache = np.zeros_like(X)
    got = nki.simulate(kernel)(X, **{"cache.must_alias_input": cache})
    np.testing.assert_array_equal(got, X)
    np.testing.assert_array_equal(cache, X)
    with pytest.raises(IllegalCall, match=r"cache and cache\.must_alias_input are one argument"):
        nki.simulate(kernel)(X, cache=cache, **{"cache.must_alias_input": cache})


@pytest.mark.parametrize("buffer", [nl.hbm, nl.private_hbm])
def test_outputs_are_in_shared_hbm_since_0_3(buffer):
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer)
        nl.store(out, nl.load(x))
        return {"out": out}

    for version in ("0.3", "0.6"):
        with pytest.raises(IllegalOperand, match="which is not in shared HBM"):
            neurosim.simulate(kernel, nki_version=version)(X)
    np.testing.assert_array_equal(neurosim.simulate(kernel, nki_version="0.1")(X).outputs["out"], X)


def test_settings_that_are_not_built(monkeypatch):
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    with pytest.raises(Unsupported, match="NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE"):
        jitted(X)


# -- what no kernel object takes --------------------------------------------------------------------------------------

ONES = np.ones((4, 6), np.float32)


@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, x.dtype, nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out


def holding_itself(first):
    entries = [first]
    entries.append(entries)
    return entries


def by_index(x):
    index = nl.ndarray((1, 1), nl.int32)
    nisa.memset(index, value=1)
    return x.ap(pattern=[[6, 1], [1, 6]], offset=0, scalar_offset=index, indirect_dim=0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: neurosim.simulate(3)(ONES), "is no kernel"),
        (lambda: nki.simulate(None)(ONES), "is no kernel"),
        (lambda: nki.simulate_kernel(3, ONES), "is no kernel"),
        (lambda: neurosim.simulate(dict)(ONES), "is no kernel"),
        (lambda: neurosim.profile(ONES), r"an array \(.*\) of float32 is no kernel(?s:.)*profile\(kernel\)\(x\)"),
        (lambda: nki.jit(ONES), r"an array \(.*\) of float32 is no kernel"),
        (lambda: neurosim.simulate(doubled, values=3), "values=3"),
        (lambda: neurosim.simulate(doubled, partial_outputs=3), "partial_outputs=3"),
        (lambda: neurosim.simulate(doubled, partial_outputs=["nope"])(ONES), "names 'nope', which it does not return"),
        (lambda: neurosim.simulate(doubled, partial_outputs="tile")(ONES), "names 'tile', which it does not return"),
        (lambda: neurosim.simulate(by_index)(ONES), "known at run time only"),
        (lambda: neurosim.simulate(holding_itself)(ONES), r"output\[1\] is a list that holds itself"),
        (
            lambda: neurosim.simulate(lambda x: None)(holding_itself(ONES)),
            r"argument x\[1\] is a list that holds itself",
        ),
        (lambda: doubled(np.ma.array(ONES, mask=ONES > 0)), "masked array"),
        (lambda: neurosim.spec("ab", "float32"), "not made of ints"),
        (lambda: neurosim.spec(3, "float32"), "not made of ints"),
        (lambda: nki.profile(doubled, working_directory=3), "working_directory=3"),
    ],
)
def test_what_is_no_kernel_argument_or_output(call, words):
    with pytest.raises(IllegalOperand, match=words):
        call()


def test_a_tensor_of_another_run_is_no_output():
    """It was returned as it had been left, and the record named one of its own tensors after it."""
    kept = []
    neurosim.simulate(lambda x: kept.append(x))(ONES)
    with pytest.raises(IllegalOperand, match="allocated in another run of a kernel"):
        neurosim.simulate(lambda x: kept[0])(ONES)


def test_a_list_may_be_an_argument_twice():
    entries = [ONES]
    first, second = neurosim.simulate(lambda pair: [doubled(pair[0][0]), doubled(pair[1][0])])(
        [entries, entries]
    ).outputs
    assert (first == 2).all()
    assert (second == 2).all()


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="working_directory"):
        nki.profile(doubled, working_directory=tmp_path / "file")(ONES)


def test_percentiles_may_be_numbers_of_numpy():
    measured = nki.benchmark(doubled)
    measured(ONES)
    latency = measured.benchmark_result.nc_latency
    assert latency.get_latency_percentile(np.int64(50)) == latency.get_latency_percentile(50) > 0
