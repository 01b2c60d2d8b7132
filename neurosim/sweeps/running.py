"""Running the points of a sweep in other processes: what is sent there, and what comes back.

A kernel is sent by value where the other process could not import it (a script, a notebook, a file on the command
line), so that nothing but neurosim has to be installed there. One point's error is its result; a process that dies
takes the points that it was running along, which are then run again, one at a time.
"""

from __future__ import annotations

import contextlib
import io
import marshal
import os
import pickle
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

import cloudpickle
import joblib
import numpy as np
import numpy.typing as npt

from neurosim import finder
from neurosim.errors import NeurosimError
from neurosim.launch.settings import VARIABLES
from neurosim.run import Result, profile
from neurosim.shell.loading import check_call, parse_arguments
from neurosim.sweeps.grid import Setting

Sent = npt.NDArray[np.uint8]
"""A call as bytes: see :func:`packed`."""

DIED = "WorkerDied"
"""In place of an error's name: the process that ran the point ended without a word."""


def _environment() -> tuple[tuple[str, str | None], ...]:
    return tuple((name, os.environ.get(name)) for name in VARIABLES)


@dataclass(frozen=True)
class Call:
    """What all points of a sweep have in common.

    Attributes:
        kernel: the kernel.
        words: arguments as the command line has them, which are made where they are needed; ``seed`` is theirs.
        positional, named: arguments as they are.
        values: whether to compute.
        environment: what the environment asks for; other processes may have been started with another one.
    """

    kernel: Any
    words: tuple[str, ...] = ()
    seed: int = 0
    positional: tuple[Any, ...] = ()
    named: tuple[tuple[str, Any], ...] = ()
    values: bool = False
    environment: tuple[tuple[str, str | None], ...] = field(default_factory=_environment)

    def arguments(self, setting: Setting, *, values: bool) -> tuple[list[Any], dict[str, Any]]:
        """Return a point's arguments, positional and named.

        Raises:
            ConfigurationError: a word that is no argument, or arguments that the kernel does not take.
        """
        words = [*self.words, *(f"{name}={text.text}" for name, text in setting.arguments.items() if _is_text(text))]
        positional, named = parse_arguments(words, self.seed, values=values)
        named.update(self.named)
        named.update({name: value for name, value in setting.arguments.items() if not _is_text(value)})
        positional.extend(self.positional)
        check_call(self.kernel, positional, named)
        return positional, named


@dataclass(frozen=True, slots=True)
class Text:
    """A value of a grid as the command line has it."""

    text: str

    def __str__(self) -> str:
        return self.text


def _is_text(value: Any) -> bool:
    return isinstance(value, Text)


def launched(call: Call, setting: Setting) -> Result:
    """Run a kernel as one point of a grid says, and return its result.

    Raises:
        ConfigurationError: arguments that the kernel does not take.
        KernelError: the kernel is wrong.
    """
    positional, named = call.arguments(setting, values=call.values)
    simulated = profile(
        call.kernel,
        setting.chip,
        values=call.values,
        nki_version=setting.nki_version,
        schedule=setting.schedule,
        throttle=setting.throttle,
    )
    return (simulated if setting.cores is None else simulated[setting.cores])(*positional, **named)


def run_point(call: Call, setting: Setting) -> dict[str, Any]:
    """Run one point and return its summary, or its error, as JSON takes it."""
    entry: dict[str, Any] = {"point": setting.labels}
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("always")
        try:
            entry["summary"] = launched(call, setting).summary()
        except Exception as error:
            entry["error"] = {
                "kind": type(error).__name__,
                "message": str(error),
                "is_final": isinstance(error, NeurosimError),  # the same whenever it is run again
            }
    texts = dict.fromkeys(str(entry.message) for entry in caught)
    return {**entry, "warnings": list(texts)} if texts else entry


def run_all(call: Call, settings: Sequence[Setting], jobs: int | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield, as they come in, the number and the outcome of each point.

    Args:
        call: what is run.
        settings: the points.
        jobs: processes at a time, -1 for one per CPU; None for what ``joblib.parallel_config`` says.
    """
    sent = np.frombuffer(packed(call), np.uint8)  # of which joblib writes one copy for all processes, where it is large
    waiting = set(range(len(settings)))
    try:
        for number, outcome in _as_they_come([_task(sent, settings, number) for number in sorted(waiting)], jobs):
            waiting.discard(number)
            yield number, outcome
    except BrokenExecutor:
        for number in sorted(waiting):
            yield number, _alone(sent, settings, number)


def _as_they_come(tasks: list[Any], jobs: int | None) -> Iterator[Any]:
    """Yield results: each when it is there, or where a backend (Ray's) gives none before its last, a round at a time.

    A round is a task per process, so that little is lost when a sweep is killed.
    """
    backend, _ = joblib.parallel.get_active_backend()
    if backend.supports_return_generator:
        yield from _parallel(jobs)(tasks)
        return
    parallel = joblib.Parallel(n_jobs=jobs, batch_size=1)
    width = max(backend.effective_n_jobs(parallel.n_jobs), 1)
    for first in range(0, len(tasks), width):
        yield from parallel(tasks[first : first + width])


def _parallel(jobs: int | None) -> joblib.Parallel:
    return joblib.Parallel(n_jobs=jobs, batch_size=1, return_as="generator_unordered")


def _task(sent: Sent, settings: Sequence[Setting], number: int) -> Any:
    return joblib.delayed(_received)(sent, sys.path, os.getpid(), settings[number], number)


def _alone(sent: Sent, settings: Sequence[Setting], number: int) -> dict[str, Any]:
    """Run a point in a process that it may take down."""
    try:
        with joblib.parallel_config(backend="loky"):
            ((_, outcome),) = _parallel(2)([_task(sent, settings, number)])
    except BrokenExecutor as error:
        message = f"the process that ran this point died: {str(error).partition('.')[0]}"
        return {
            "point": settings[number].labels,
            "error": {"kind": DIED, "message": f"{message}\n  run fewer at a time (jobs)", "is_final": False},
        }
    return outcome  # type: ignore[no-any-return]


def _received(
    sent: Sent, paths: Sequence[str], sender: int, setting: Setting, number: int
) -> tuple[int, dict[str, Any]]:
    """Run a point in the process that it was sent to."""
    if sender == os.getppid():
        _end_with(sender)
    sys.path.extend(path for path in paths if path not in sys.path)
    force, content = pickle.loads(sent.data)
    finder.install(force=force)  # before the kernel is unpacked: its modules import nki
    call: Call = pickle.loads(content)
    for name, value in call.environment:
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return number, run_point(call, setting)


@lru_cache
def _end_with(parent: int) -> None:
    """End this process when the one that started it has gone: a sweep that is killed leaves nothing running."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def packed(call: Call) -> bytes:
    """Return a call as bytes that another process understands.

    Raises:
        Whatever pickle raises for arguments that cannot be sent.
    """
    content = io.BytesIO()
    function = getattr(call.kernel, "function", call.kernel)
    module = sys.modules.get(getattr(function, "__module__", ""))
    with _by_value(module):
        _Pickler(content).dump(call)
    return pickle.dumps((finder.provides_nki(), content.getvalue()))


@contextlib.contextmanager
def _by_value(module: ModuleType | None) -> Iterator[None]:
    """Send what a module defines by value: it was read from a file under a name that no other process knows."""
    if module is None or module.__name__ == "__main__":
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Sends kernel objects with what they hold; by themselves they are pickled as the name that they stand under.

    Code is sent as Python writes it to disk, which both processes' Python must agree on.
    """

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CodeType):  # cloudpickle forgets the file, which errors and reports name
            return marshal.loads, (marshal.dumps(obj),)
        kind = type(obj)
        if kind.__module__.startswith("neurosim.nki") and hasattr(obj, "function") and hasattr(obj, "__qualname__"):
            return object.__new__, (kind,), vars(obj)
        return super().reducer_override(obj)
