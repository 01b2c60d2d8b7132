"""How a command meets the world: what it prints goes somewhere or nowhere, and somebody asks it to end."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

import typer
from typer.core import TyperGroup

from neurosim.errors import ConfigurationError

_CLOSED_PIPE: Final = 128 + 13
"""What a shell says of a command that SIGPIPE ended, as it ends others whose reader went away."""


class Commands(TyperGroup):
    """The commands, which hand over all that they printed before they end.

    They end without a word when nobody reads on, as in ``neurosim profile … | head``, and with a message where what
    they print finds no space.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()
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
