"""What this process does, and the condition of the processes of ranks on the same host."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

import torch

_OWN = (f"{Path(__file__).parents[2]}{os.sep}", f"{Path(torch.__file__).parent}{os.sep}")
"""Folders whose frames are not those of the program."""


def host_name() -> str:
    """Return the name of the host and of its present run: ranks that share it share numbers of processes."""
    try:
        return f"{socket.gethostname()}/{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{_namespace()}"
    except OSError:
        return socket.gethostname()


def _namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _fields(pid: int) -> list[str]:
    """Return the state of a process and what follows it, as the kernel has it. Raises ``OSError`` if it is gone."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def start_of(pid: int) -> str:
    """Return the start of a process, by which it is distinguished from a later one of its number."""
    try:
        return _fields(pid)[19]
    except OSError:
        return ""


def condition(pid: int, start: str) -> str:
    """Return ``running``, ``stopped`` or ``died`` of a process of this host; ``running`` if that is not known."""
    if not start:
        return "running"
    try:
        fields = _fields(pid)
    except FileNotFoundError:
        return "died"
    except OSError:
        return "running"
    if fields[0] in "ZX" or fields[19] != start:
        return "died"
    return "stopped" if fields[0] in "Tt" else "running"


def place(thread: int) -> str:
    """Return where a thread is, outside of this package and of torch: ``file:line in function``; empty if unknown."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OWN):
            return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def main_thread() -> int:
    """Return the number of the main thread."""
    return threading.main_thread().ident or 0
