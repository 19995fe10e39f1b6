"""Children of a rank: processes that were forked from it, and are no ranks."""

from __future__ import annotations

import ctypes
import os
import platform
import select
import signal
from collections.abc import Callable
from typing import Any

WAYS = ["fork", "clone"]
"""The ways to make a child: as programs do, and by the system call alone, of which no handler learns."""

LIMIT = 40.0
"""The seconds after which a child hangs."""


def _clone() -> int:
    numbers = {"x86_64": 56, "aarch64": 220}
    # The interpreter's lock is kept: the child has it too.
    system = ctypes.PyDLL(None).syscall
    system.restype = ctypes.c_long
    return int(system(ctypes.c_long(numbers[platform.machine()]), signal.SIGCHLD, None, None, None, None))


def forked(body: Callable[[], Any], way: str = "fork") -> str:
    """Return what a function returns in a child, or the error that it ends with, as text."""
    ours, theirs = os.pipe()
    child = os.fork() if way == "fork" else _clone()
    if child == 0:
        try:
            said = repr(body())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(theirs, said.encode()[:4096])
        os._exit(0)
    os.close(theirs)
    ready, _, _ = select.select([ours], [], [], LIMIT)
    if not ready:
        os.kill(child, signal.SIGKILL)
    said = os.read(ours, 4096).decode() if ready else "the child hangs"
    os.close(ours)
    os.waitpid(child, 0)
    return said
