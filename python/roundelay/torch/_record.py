"""The record of calls: the latest operations of this process, and which of them are not over.

Torch (2.15 and later) has a flight recorder, which it hangs before and after each operation of a backend that does not
say that it records its operations itself. This one costs a quarter of that: it keeps what is there anyway.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch._C._profiler import gather_traceback

from ._version import VERSION

if TYPE_CHECKING:
    from .._native import Work as NativeWork

_SIZE = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_KEPT = 64
"""Operations in the background whose end is looked for at the next one."""

Note = tuple["Record", int, Sequence[tuple[Any, ...]], float, int, int, Any]
"""An operation: its record, its number there, its calls, its timeout in seconds, the time in ns, thread and stack."""


def variable(names: tuple[str, ...]) -> str:
    """Return the first of several environment variables that says something."""
    return next((value for name in names if (value := os.environ.get(name))), "")


sources: list[Callable[[bool], list[tuple[Any, ...]]]] = []
"""What else the dump has: functions that return calls, with stacks if the argument says so, in its order of fields."""


def size() -> int:
    """Return how many operations the environment asks a recorder to keep: 2000 where it says nothing.

    Raises ``ValueError`` if the environment says it by what is no number.
    """
    said = variable(_SIZE) or "2000"
    try:
        number = int(said)
    except ValueError:
        name = next(name for name in _SIZE if os.environ.get(name))
        text = f"roundelay: {name} is {said!r}, which is no number: it says how many calls are recorded"
        raise ValueError(text) from None
    return max(number, 0)


def kept() -> int:
    """Return how many operations of a process are kept: what torch's own recorder keeps, and none before torch 2.15.

    Raises ``ValueError`` if the environment says it by what is no number.
    """
    return size() if VERSION >= (2, 15) else 0


notes: deque[Note] = deque(maxlen=0)
"""The latest operations of all groups of the process."""

# A process that is forked from a rank is none.
os.register_at_fork(after_in_child=lambda: notes.clear())


def _note() -> Callable[[Note], None] | None:
    """Return what keeps an operation, or None where none is to be kept."""
    global notes
    most = kept()
    if most != notes.maxlen:
        notes = deque(notes, most)
    return notes.append if most else None


class Record:
    """The operations of one kind of a group: how many there were, and which of them are not over."""

    def __init__(self, options: Any, rank: int, is_message: bool = False) -> None:
        self.options = options
        """The options of the group, with its name; without them operations are counted only."""
        self.rank = rank
        self.is_message = is_message
        self.count = 0
        self.open = 0
        """The number of the operation on the caller's thread; that of one that has failed stays."""
        self._pending: deque[tuple[int, NativeWork]] = deque()
        self._note = None if options is None else _note()

    def begin(self, calls: Sequence[tuple[Any, ...]], timeout: float) -> None:
        """Count an operation, which is not over."""
        self.count = self.open = number = self.count + 1
        if self._note is not None:
            stack = gather_traceback(True, False, False)
            self._note((self, number, calls, timeout, time.time_ns(), threading.get_ident(), stack))

    def started(self, native: NativeWork) -> None:
        """Note that the operation goes on in the background."""
        pending = self._pending
        pending.append((self.open, native))
        self.open = 0
        while len(pending) > _KEPT and pending[0][1].done():
            pending.popleft()

    def wait(self) -> None:
        """Wait until what goes on in the background has ended, with success or without."""
        for _, native in list(self._pending):
            try:
                native.wait()
            except RuntimeError:  # It is raised by the operation's own work.
                pass

    def unfinished(self) -> set[int]:
        """Return the numbers of the operations that have not ended with success."""
        pending = list(self._pending)
        found = {number for number, native in pending if not native.done() or native.exception() is not None}
        return found | ({self.open} if self.open else set())
