"""Children of a rank: processes that were forked from it, and are no ranks."""

from __future__ import annotations

import ctypes
import os
import platform
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
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


def _malloc_lock(child: int) -> int | None:
    """Return the address of a lock of malloc that a child waits for.

    `fork` takes malloc's locks first; the system call alone does not, and where another thread held one at that moment
    the child, which has no such thread, waits for ever. That says nothing of what the child was to show.
    """
    try:
        number, *arguments = Path(f"/proc/{child}/syscall").read_text().split()
    except OSError:  # It has ended.
        return None
    if number != {"x86_64": "202", "aarch64": "98"}[platform.machine()]:
        return None
    address = int(arguments[0], 16)
    # The lock of an arena: the first is in the C library's data, each other at the head of 64 MiB of its own.
    if address % (64 << 20) < 4096:
        return address
    for line in Path(f"/proc/{child}/maps").read_text().splitlines():
        ends, *_, name = line.split()
        first, last = (int(end, 16) for end in ends.split("-"))
        if first <= address < last and Path(name).name.startswith("libc.so"):
            return address
    return None


def forked(body: Callable[[], Any], way: str = "fork") -> str:
    """Return what a function returns in a child, or the error that it ends with, as text."""
    while (said := _forked(body, way)) is None:
        pass
    return said


def _forked(body: Callable[[], Any], way: str) -> str | None:
    """Return None if the child was made while another thread of its parent held malloc's lock."""
    ours, theirs = os.pipe()
    child = os.fork() if way == "fork" else _clone()
    if child == 0:
        try:
            text = repr(body())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(theirs, text.encode()[:4096])
        os._exit(0)
    os.close(theirs)
    said: str | None = "the child hangs"
    lock, end = None, time.monotonic() + LIMIT
    while time.monotonic() < end and said is not None:
        if select.select([ours], [], [], 0.25)[0]:
            said = os.read(ours, 4096).decode()
            break
        before, lock = lock, _malloc_lock(child) if way == "clone" else None
        if lock is not None and lock == before:
            said = None
    # It has said all, or never will.
    os.kill(child, signal.SIGKILL)
    os.close(ours)
    os.waitpid(child, 0)
    return said
