"""The end of a program that an exception ends."""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from roundelay._native import Communicator

__all__ = ["abort_after_exception", "exception", "watch"]

_alive: WeakSet[Communicator] = WeakSet()

# A process that is forked from a rank is none, and must not end what belongs to that rank.
os.register_at_fork(after_in_child=_alive.clear)


def watch(comm: Communicator) -> Communicator:
    """Have a communicator aborted if an exception ends the program; return it."""
    _alive.add(comm)
    return comm


def exception() -> str | None:
    """Return in words the uncaught exception that ends the program, if there is one."""
    # The interpreter sets it where it prints the traceback, which is before exit handlers run.
    error = getattr(sys, "last_value", None)
    if error is None or hasattr(sys, "ps1"):
        return None
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"an exception ended the program: {said}"


@atexit.register
def abort_after_exception() -> None:
    """Abort all communicators if an exception ends the program.

    Otherwise the interpreter would wait for operations that this rank has started and that others may never
    join, up to their timeout; and the other ranks would wait for this one. A program that ends normally
    completes what it has started.
    """
    why = exception()
    if why is not None:
        for comm in list(_alive):
            # Not all ways to fork call what was registered above.
            if comm.is_here:
                comm.abort(why)
