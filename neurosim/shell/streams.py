"""How a command meets the world: what it prints goes somewhere or nowhere, and somebody asks it to end."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

import typer
from typer.core import TyperGroup

from neurosim.errors import ConfigurationError
from neurosim.record.call_stacks import is_own, is_packaged

_CLOSED_PIPE: Final = 128 + 13
"""What a shell says of a command that SIGPIPE ended, as it ends others whose reader went away."""
INTERRUPTED: Final = 128 + 2
"""What it says of one that Ctrl-C ended."""


_LIBRARIES: Final = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))


class Commands(TyperGroup):
    """The commands, which hand over all that they printed before they end.

    They end without a word when nobody reads on, as in ``neurosim profile … | head``, with a message where what they
    print finds no space, and with the kernel's line where Ctrl-C ends them.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
        except KeyboardInterrupt as error:
            sys.stderr.write(f"interrupted{_place(error)}\n")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            _let_go()
            raise typer.Exit(_CLOSED_PIPE) from None
        except OSError as error:
            if error.errno != errno.ENOSPC or error.filename is not None or ctx.invoked_subcommand == "run":
                raise
            _let_go()
            raise ConfigurationError(
                f"cannot write the standard output: {error.strerror}", advice="send it where there is space"
            ) from None


def _place(error: BaseException) -> str:
    """Return the innermost line of a user's file, or of a kernel that comes along, that an error came through."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        is_library = file.startswith(_LIBRARIES) and not is_packaged(frame.f_code)
        if not is_own(frame.f_code) and not is_library and not file.startswith("<"):
            place = f" at {file}:{line} in {frame.f_code.co_name}"
    return place


def _let_go() -> None:
    """Send what is left to flush at exit nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def orderly() -> Iterator[None]:
    """Print any text on any terminal, and clean up when asked to end.

    A character that the standard output does not have is a question mark there; where it is closed, what is printed
    goes nowhere. SIGTERM ends the block by an exception, as Ctrl-C does, so that no draft of a file is left.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    with contextlib.ExitStack() as stack:
        if sys.stdout is None:
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # else somebody else wants it
            signal.signal(signal.SIGTERM, _end)
            stack.callback(signal.signal, signal.SIGTERM, signal.SIG_DFL)
        yield


def _end(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)
