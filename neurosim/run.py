"""Running a kernel: arrays in, arrays out, and everything that was recorded in between."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neurosim.analysis.lifetimes import SPILLS, check_capacity
from neurosim.analysis.spilling import spill
from neurosim.analysis.unreturned import LOST, UnreturnedOutputWarning, unreturned
from neurosim.chip import Chip, psum_bytes
from neurosim.devices import available, load_chip
from neurosim.engines import Engine
from neurosim.errors import (
    CapacityExceeded,
    ConfigurationError,
    IllegalCall,
    IllegalOperand,
    NeurosimError,
    no_kernel,
)
from neurosim.execution import seen
from neurosim.execution.calls import bound as bound_call
from neurosim.execution.device_loops import check_left
from neurosim.execution.fine_lanes import FineLanes, float32_of
from neurosim.execution.lanes import Lanes
from neurosim.execution.rounding import Asked, asked, rounding_of
from neurosim.execution.straight import refused
from neurosim.hazards import check_races
from neurosim.kernel import Kernel, boundary, run, warn
from neurosim.launch.arguments import Arguments, check_same, outputs
from neurosim.launch.cores import Cores
from neurosim.launch.grids import ALONE, Grid, check_grid, grid_of
from neurosim.launch.miscalled import miscalled
from neurosim.launch.no_tensors import Mistake, no_tensor
from neurosim.launch.schedules import Schedule, add_edges
from neurosim.launch.settings import VARIABLES, check_environment, is_precise
from neurosim.program import Program
from neurosim.record.call_stacks import where_raised
from neurosim.replay import (
    LIBRARY,
    Launch,
    Recording,
    Unreplayable,
    find,
    is_on,
    keep,
    recorded,
    replayed,
    without_values,
)
from neurosim.replay import launch as launch_of
from neurosim.replay.tape import LanesOf
from neurosim.result import Result as Result
from neurosim.spelling import spelt
from neurosim.timing import LaunchOverhead, TimingOptions
from neurosim.versions import NKI_0_1, NKI_0_4, NkiVersion, nki_version_of
from neurosim.views.methods import no_method, no_number

if TYPE_CHECKING:
    from neurosim.shadow import Shadow


@dataclass(frozen=True)
class _Options:
    """How to run a kernel; see :func:`simulate`."""

    chip: Chip
    values: bool
    precise: bool | None
    rounding: Asked
    partial_outputs: Collection[str]
    timing: TimingOptions
    nki_version: NkiVersion
    edges: Schedule
    grid: Grid
    spills: Callable[[CapacityExceeded], str] | None
    replay: bool | None = None
    shadow: Shadow | None = None


class Simulated:
    """A kernel that runs on the simulator when it is called; ``[2]`` gives one that runs on two cores."""

    def __init__(self, function: Callable[..., Any], options: _Options, times: bool) -> None:
        self._function, self._options, self._times = function, options, times
        self.__name__ = getattr(function, "__name__", "kernel")
        self.__doc__ = function.__doc__

    def __getitem__(self, grid: Any) -> Simulated:
        return Simulated(self._function, replace(self._options, grid=grid_of(grid)), self._times)

    def shadowed(self, shadow: Shadow) -> Simulated:
        """Return the same kernel beside a float64 shadow."""
        return Simulated(self._function, replace(self._options, shadow=shadow), self._times)

    def __call__(self, *args: Any, **kwargs: Any) -> Result:
        """Run the kernel on arrays."""
        result = _run(self._function, self._options, args, kwargs)
        if self._times:
            result.time_at_once()
        return result


@spelt
def simulate(
    kernel: Callable[..., Any],
    chip: str | Path | Chip | None = None,
    *,
    values: bool = True,
    precise: bool | None = None,
    rounding: str | None = None,
    rounding_seed: int | None = None,
    partial_outputs: Collection[str] = (),
    nki_version: str | NkiVersion | None = None,
    launch_overhead: LaunchOverhead = True,
    schedule: str = "compiler",
    throttle: bool = True,
    replay: bool | None = None,
) -> Simulated:
    """Return a function that runs ``kernel`` on arrays and returns a :class:`Result`.

    Args:
        kernel: an ``@nki.jit`` kernel, or a plain function; ``kernel[2]`` for two cores, as ``simulate(kernel)[2]``.
        chip: a name (``"trn2"``), a device file, or a :class:`Chip`; by default ``NEURON_PLATFORM_TARGET_OVERRIDE``,
            else trn2.
        values: with False, record without computing: arguments may be :func:`neurosim.spec`, outputs are specs. The
            run assumes that instructions with a predicate write everything and that indices are in range, and raises
            where it would need a value.
        precise: with False, values of narrow float formats stay float32 as in the vendor's simulator with
            ``NKI_PRECISE_FP=0`` (:mod:`neurosim.execution.fine_lanes`), and outputs in such formats are float32 arrays;
            record and time are the same. By default as that variable says, and precise where it is not set.
        rounding: how engines write short float formats, to ``"nearest"`` (ties to even) or ``"stochastic"``
            (:mod:`neurosim.execution.rounding`); by default as ``NEURON_RT_STOCHASTIC_ROUNDING_EN`` says, else to
            nearest.
        rounding_seed: of stochastic rounding; by default ``NEURON_RT_STOCHASTIC_ROUNDING_SEED``, else 0.
        partial_outputs: outputs that may stay unwritten in part, as places in what the kernel returns: ``output``,
            ``output[1]``, ``output['key']``, as the tensor's name or its variable in the kernel, or the name of an
            argument that it writes. What was never stored is 0.
        nki_version: whose semantics hold where versions of NKI differ (``docs/nki_versions.md``): ``"0.3"`` to
            ``"0.6"``, or ``"0.1"`` for the legacy dialect; by default the kernel's own (a legacy kernel's is 0.1),
            else ``NEUROSIM_NKI_VERSION``, else 0.6.
        launch_overhead: what the result's time counts beside the kernel's body, as an item of its own: ``True`` or
            ``"benchmark"`` what ``nki.benchmark`` measures more, ``"profile"`` what a profile's total time holds more,
            ``False`` nothing. The figures are in the device file.
        schedule: engines go in ``program`` order, or take what may start (``reorder``, or after passes ``compiler``).
        throttle: whether the tensor engine begins at a lower clock, on chips that do so, until it is busy enough.
        replay: whether a launch like an earlier one executes that one's record again where the kernel's Python cannot
            do anything else (:mod:`neurosim.replay`); ``Result.replayed`` and ``Result.unreplayable`` say what came
            of it. By default as ``NEUROSIM_REPLAY`` says, and yes where it is not set.

    Raises (when called):
        KernelError: the kernel is wrong; ``Unsupported`` and ``UnknownBehavior`` where neurosim stops short.
    """
    function = getattr(kernel, "function", kernel)
    check_kernel(kernel)
    _check_switches(values=values, precise=precise, replay=replay)
    partial = _named_outputs(partial_outputs) or getattr(kernel, "partial_outputs", ())
    target = chip_of(kernel, chip)
    timing = TimingOptions(launch_overhead, schedule, throttle).check(target)
    version, rounds = _version(kernel, nki_version), asked(rounding, rounding_seed)
    options = _Options(target, values, precise, rounds, partial, timing, version, *_own_options(kernel), replay)
    return Simulated(function, options, times=False)


def chip_of(kernel: Any, chip: Any) -> Chip:
    """Return the chip that a kernel runs on: what is asked for, else its own, else the default."""
    return load_chip(getattr(kernel, "platform_target", None) if chip is None else chip)


def _own_options(kernel: Any) -> tuple[Schedule, Grid, Callable[[CapacityExceeded], str] | None]:
    """Return what a kernel carries: edges between its instructions, its grid, what it says of spills."""
    return getattr(kernel, "schedule", ()), getattr(kernel, "grid", ALONE), getattr(kernel, "spills", None)


def _named_outputs(partial_outputs: Any) -> Collection[str]:
    """Return names of outputs as a collection."""
    if isinstance(partial_outputs, str):
        return (partial_outputs,)
    if isinstance(partial_outputs, Collection) and all(isinstance(name, str) for name in partial_outputs):
        return tuple(partial_outputs)
    raise IllegalOperand(
        f"simulate: partial_outputs={partial_outputs!r}", advice="give names of outputs, such as ['output[1]']"
    )


def check_kernel(kernel: Any) -> None:
    """Refuse what cannot be called as a kernel; IllegalOperand says why."""
    function = getattr(kernel, "function", kernel)
    try:
        inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise no_kernel(function, f": {error}") from None


def _check_switches(**switches: Any) -> None:
    for option, given in switches.items():
        if not isinstance(given, bool) and (option == "values" or given is not None):
            raise IllegalOperand(f"simulate: {option}={given!r} is not a bool", advice="pass True or False")


def _version(kernel: Any, asked: Any) -> NkiVersion:
    """Return whose semantics hold for a kernel: what is asked for, else its own, else the default."""
    own = getattr(kernel, "nki_version", None)
    if asked is None or own is None:
        return nki_version_of(own if asked is None else asked)
    version = nki_version_of(asked)
    if nki_version_of(own) == NKI_0_1 and version >= NKI_0_4:
        raise IllegalOperand(
            f"{getattr(kernel, '__name__', 'kernel')} is of neuronxcc.nki, which NKI {version} does not compile",
            advice="leave nki_version out to run it as NKI 0.1, or write it with the package nki",
        )
    return NKI_0_1 if nki_version_of(own) == NKI_0_1 else version  # NKI 0.3 still had both packages


@spelt
def reopen(
    path: str | Path,
    chip: str | Path | Chip | None = None,
    *,
    launch_overhead: LaunchOverhead = True,
    schedule: str = "compiler",
    throttle: bool = True,
) -> Result:
    """Return a saved program as a :class:`Result` without outputs, to time and report it again.

    Args:
        path: what ``Program.save`` wrote.
        chip: the chip to time it on; by default its own, which must be one that comes with neurosim.
        launch_overhead, schedule, throttle: as :func:`simulate` takes them.

    Raises:
        ConfigurationError: no program in the file, no such chip, or no such launch overhead or schedule.
    """
    timing = TimingOptions(launch_overhead, schedule, throttle)
    program = Program.load(path)
    if chip is None and program.chip_name not in available():
        raise ConfigurationError(
            f"{path} was recorded for {program.chip_name!r}, which does not come with neurosim",
            advice="give the chip's device file, as in --chip mychip.toml",
        )
    frames = program.where(0) if len(program) else ()
    name = frames[-1].function if frames else "kernel"
    target = load_chip(chip or program.chip_name)
    return Result(None, program, target, name, timing.check(target))


@spelt
def profile(
    kernel: Callable[..., Any],
    chip: str | Path | Chip | None = None,
    *,
    values: bool = True,
    precise: bool | None = None,
    rounding: str | None = None,
    rounding_seed: int | None = None,
    partial_outputs: Collection[str] = (),
    nki_version: str | NkiVersion | None = None,
    launch_overhead: LaunchOverhead = True,
    schedule: str = "compiler",
    throttle: bool = True,
    replay: bool | None = None,
) -> Simulated:
    """Like :func:`simulate`, and times the program at once."""
    simulated = simulate(
        kernel,
        chip,
        values=values,
        precise=precise,
        rounding=rounding,
        rounding_seed=rounding_seed,
        partial_outputs=partial_outputs,
        nki_version=nki_version,
        launch_overhead=launch_overhead,
        schedule=schedule,
        throttle=throttle,
        replay=replay,
    )
    return Simulated(simulated._function, simulated._options, times=True)


@boundary
def _run(function: Callable[..., Any], options: _Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Result:
    name, chip = getattr(function, "__name__", "kernel"), options.chip
    seen.note(f"it runs another kernel, {name}")
    check_environment()
    check_grid(options.grid, chip, name)
    precise = is_precise(options.precise)
    program = Program(chip.name, chip.generation, options.nki_version)
    lanes = _lanes(options, precise, program)
    bound = bound_call(name, function, args, _without_alias_marks(name, kwargs))
    launch = _launch(function, bound, options, precise)
    recording = find(launch.key, chip) if launch.key else None
    if recording is not None:
        again = _again(recording, launch, bound, options, precise, name)
        if again is not None:
            _say_lost(again, function)
            return again
    if not options.values:
        program.notes["Values"] = "not computed: predicates are assumed to write all, indices to be in range"
    kernel = Kernel(chip, program, values=options.values, grid=options.grid, lanes=lanes)
    with seen.watching() as reasons:
        collected, returned, inputs = _fresh(function, options, kernel, bound, precise)
    reason = launch.reason or next(iter(reasons), "")
    if not reason and launch != _launch(function, bound, options, precise):
        reason = "the kernel changes what it, or a function that it calls, can see"
    recording = None
    if not reason:
        recording, reason = _recorded(launch, kernel, returned, inputs)
    result = Result(collected, program, chip, name, options.timing, recording, unreplayable=reason)
    _say_lost(result, function)
    return result


def _say_lost(result: Result, function: Callable[..., Any]) -> None:
    """Warn of what a kernel stores and loses, also in a replay of it, at the line where the kernel begins."""
    if LOST in result.program.notes:
        text = f"{result.kernel_name}: {result.program.notes[LOST]}; return it, or leave it out"
        python = inspect.unwrap(function)
        if inspect.isfunction(python):
            code, seen_before = python.__code__, python.__globals__.setdefault("__warningregistry__", {})
            warnings.warn_explicit(
                text, UnreturnedOutputWarning, code.co_filename, code.co_firstlineno, registry=seen_before
            )
        else:
            warn(text, UnreturnedOutputWarning)


def _launch(function: Callable[..., Any], bound: inspect.BoundArguments, options: _Options, precise: bool) -> Launch:
    """Return what a launch depends on, where it may be replayed."""
    if not is_on(options.replay):
        return Launch(reason="replays are off")
    if options.shadow is not None:
        return Launch(reason="it runs beside a float64 shadow")
    rounding = rounding_of(options.rounding)
    settings = [(variable, os.environ.get(variable)) for variable in VARIABLES]
    how = (options.values, precise, None if rounding is None else rounding.seed, sorted(options.partial_outputs))
    rest = (str(options.nki_version), repr(options.edges), repr(options.grid), options.spills is None)
    return launch_of(function, bound.arguments, options.chip, (how, rest, settings))


def _recorded(launch: Launch, kernel: Kernel, returned: Any, inputs: int) -> tuple[Recording | None, str]:
    """Keep a run to be replayed; return the recording, or why it is not kept."""
    try:
        recording = recorded(kernel, returned, inputs)
    except Unreplayable as found:
        return None, str(found)
    if not keep(launch.key, recording):
        return None, f"{len(kernel.program)} instructions are too many to be kept"
    return recording, ""


def _again(
    recording: Recording, launch: Launch, bound: inspect.BoundArguments, options: _Options, precise: bool, name: str
) -> Result | None:
    """Replay a recording; None where it has to be a run, which then says what is wrong."""
    try:
        if options.values:
            wider = None if precise else float32_of
            lanes: Callable[[Kernel], LanesOf | None] = lambda kernel: _lanes(options, precise, kernel.program)  # noqa: E731
            collected = replayed(recording, bound.arguments, name, lanes, options.partial_outputs, wider)
        else:
            collected = without_values(recording)
    except Exception as error:
        if not isinstance(error, NeurosimError):
            LIBRARY.drop(launch.key)
        return None
    return Result(collected, recording.program.copy(), options.chip, name, options.timing, recording, replayed=True)


def _fresh(
    function: Callable[..., Any], options: _Options, kernel: Kernel, bound: inspect.BoundArguments, precise: bool
) -> tuple[Any, Any, int]:
    """Run a kernel's Python; return the outputs, what it returned, and how many tensors its arguments are."""
    name, chip, program = getattr(function, "__name__", "kernel"), options.chip, kernel.program
    if options.shadow is not None:
        kernel.lanes = options.shadow.beside(kernel.lanes)
    arguments = Arguments(kernel)
    with run(kernel):
        arguments.prepare(bound.arguments)
    inputs = len(kernel.inputs)

    def body(core: Kernel) -> Any:
        return _programs(function, bound, core, arguments)

    if options.grid.cores == 1:
        returned = body(kernel)
    else:
        cores = Cores(options.grid.cores)
        kernel.team = cores
        kernels = [kernel, *(kernel.beside(core) for core in range(1, cores.size))]
        returned, *others = cores.run([partial(body, core) for core in kernels])
        kernel.writes.meet(len(program.meetings))
        for other in others:
            check_same(returned, other, name)
    with run(kernel):
        add_edges(program, options.edges)
        try:
            check_capacity(program, chip.name, chip.sbuf.partition_bytes, psum_bytes(chip))
        except CapacityExceeded as error:
            if options.spills is None:
                raise
            program.notes[SPILLS] = options.spills(error)
        if check_races(program, kernel.writes if options.values else None):
            seen.note("whether its cores race depends on what they write")
        arguments.check_overlaps()
        collected = outputs(
            returned, kernel, name, arguments.kind, options.partial_outputs, None if precise else float32_of
        )
        if options.shadow is not None:
            of = options.shadow.shadow_of
            options.shadow.outputs = outputs(returned, kernel, name, "numpy", options.partial_outputs, of)
    arguments.write_back()
    lost = unreturned(program)
    if lost:
        program.notes[LOST] = lost
    if SPILLS in program.notes:
        _spill(program, chip)
    return collected, returned, inputs


def _spill(program: Program, chip: Chip) -> None:
    """Add what the old compiler spilled to a program that does not fit, where that makes it fit."""
    spills = spill(program, chip)
    if spills is None:
        return
    del program.notes[SPILLS]
    places = (("SBUF", "DMAs", spills.sbuf, "HBM"), ("PSUM", "copies", spills.psum, "SBUF"))
    program.notes["Spills"] = "; ".join(
        f"the tiles do not fit into {memory}: as the old compiler did, {means} of their own move "
        f"{traffic.written_bytes} bytes of them to {home} and {traffic.read_bytes} back"
        for memory, means, traffic, home in places
        if traffic.written_bytes
    )


def _programs(function: Callable[..., Any], bound: inspect.BoundArguments, kernel: Kernel, arguments: Arguments) -> Any:
    """Run a core's programs one after the other and return what they return, which is the same for all."""
    results = []
    with run(kernel):
        for program in kernel.grid.programs[kernel.core]:
            kernel.begin(program)
            own = inspect.BoundArguments(bound.signature, arguments.given(bound.arguments))
            try:
                results.append(_call(function, own))
                check_left(kernel)
            except NeurosimError as error:  # views know nothing of the kernel that makes them
                raise error.at(where_raised(error)) from error.__cause__
            except (AttributeError, TypeError, IndexError) as error:
                found = _said(error, own.arguments, function.__name__)
                if found is None:
                    raise
                raise found.at(where_raised(error)) from error
            check_same(results[0], results[-1], function.__name__)
    return results[0]


def _said(error: Mistake, arguments: Mapping[str, Any], kernel: str) -> NeurosimError | None:
    """Return what a mistake in a kernel that Python refused is about; None of one that is not about NKI."""
    found = refused(error) or no_method(error) or no_number(error)
    return found or no_tensor(error, arguments, kernel) or miscalled(error)


def _without_alias_marks(name: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return named arguments with ``x.must_alias_input`` as ``x``: inputs written in place are updated in any case.

    Source: aws-neuron/nki-library, whose tests name inputs so that an output shares its memory with.
    """
    plain = {key.removesuffix(".must_alias_input"): value for key, value in kwargs.items()}
    if len(plain) < len(kwargs):
        twice = next(key for key in kwargs if f"{key}.must_alias_input" in kwargs)
        raise IllegalCall(f"{name}: {twice} and {twice}.must_alias_input are one argument", advice="give one of them")
    return plain


def _lanes(options: _Options, precise: bool, program: Program) -> Callable[[Kernel, Engine], Lanes] | None:
    """Return what gives instructions access to values, where it is not the usual; the program notes what it is."""
    rounding = rounding_of(options.rounding)
    if rounding is not None and not precise:
        raise IllegalOperand(
            "stochastic rounding, and narrow floats kept as float32: nothing would be rounded",
            advice="leave out one of precise=False (NKI_PRECISE_FP=0) and rounding='stochastic'",
        )
    if not options.values or (rounding is None and precise):
        return None
    if rounding is not None:
        program.notes["Rounding"] = f"stochastic, seed {rounding.seed}"
        return rounding
    program.notes["Precision"] = "narrow floats kept as float32: values are not those of the hardware"
    return FineLanes


@boundary
def _call(function: Callable[..., Any], bound: inspect.BoundArguments) -> Any:
    returned = function(*bound.args, **bound.kwargs)
    if inspect.isgenerator(returned) or inspect.iscoroutine(returned):
        raise IllegalOperand(
            "the kernel is a generator or a coroutine, so that nothing of it has run",
            advice="remove yield and async: a kernel returns its outputs",
        )
    return returned
