"""From a run to a recording, and from a recording to a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from neurosim.kernel import Kernel, run
from neurosim.launch.arguments import Arguments, outputs
from neurosim.launch.specs import Spec
from neurosim.memory import Bytes
from neurosim.replay.library import Recording
from neurosim.replay.tape import Classes, LanesOf, Unreplayable
from neurosim.replay.template import NotPlain, filled, template
from neurosim.view import NkiTensor


def recorded(kernel: Kernel, returned: Any, inputs: int) -> Recording:
    """Return what a run that has ended leaves; ``inputs`` says how many of its tensors are arguments.

    Raises:
        Unreplayable: what it did cannot be done again from its record alone.
    """
    program = kernel.program
    if program.trips:
        raise Unreplayable("it has loops on the device")
    try:
        made = template(returned)
    except NotPlain as found:
        raise Unreplayable(str(found)) from None
    constants = _constants(kernel, inputs)
    return Recording(
        program.copy(), kernel.chip, _classes(kernel), made, constants, kernel.writers, frozenset(kernel.blank)
    )


def _classes(kernel: Kernel) -> Classes:
    classes: list[Any] = [None] * len(kernel.program.signatures)
    for known in kernel.signatures.values():
        classes[known.number] = known.instruction
    return classes


def _constants(kernel: Kernel, inputs: int) -> dict[int, Bytes]:
    """Return the bytes of tensors that are there before the kernel begins and are no arguments."""
    constants = {}
    for allocation in kernel.inputs[inputs:]:
        if not allocation.storage.borrowed:
            raise Unreplayable(f"it writes the constant {allocation.name}")
        constants[allocation.storage.id] = allocation.storage.buffer
    return constants


def without_values(recording: Recording) -> Any:
    """Return what a run without values returns: specs."""
    return filled(recording.returned, lambda place: Spec(place.shape, place.dtype))


def replayed(
    recording: Recording,
    arguments: Mapping[str, Any],
    name: str,
    lanes: Callable[[Kernel], LanesOf | None],
    partial: Collection[str],
    wider: Callable[[NkiTensor], Any] | None,
) -> Any:
    """Return what a run on these arguments returns, as arrays; inputs that the kernel writes are updated.

    ``lanes`` gives what a run of the kernel executes with.

    Raises:
        Unreplayable: somebody else replays this recording now, or it cannot be replayed at all.
        NeurosimError: the kernel is wrong for these values.
    """
    tape = recording.tape()
    if not tape.lock.acquire(blocking=False):
        raise Unreplayable("another thread replays it now")
    try:
        kernel = tape.kernel()
        kernel.lanes = lanes(kernel)
        with run(kernel):
            given = Arguments(kernel)
            given.prepare(arguments)
            tape.execute(kernel, recording.outputs)
            given.check_overlaps()
            collected = outputs(filled(recording.returned, tape.view), kernel, name, given.kind, partial, wider)
        given.write_back()
        return collected
    finally:
        tape.release()
        tape.lock.release()
