"""The flight recorder: torch's own record of the calls of each group, with what only this backend knows.

Torch (2.15 and later) notes every operation before it starts it. It learns of the end of those of the backend in C++;
of a backend in Python it does not, so :class:`Record` keeps which operations are not over.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from ._ending import alive

if TYPE_CHECKING:
    from .._native import Work as NativeWork

_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_ON_FAILURE = ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT")
_KEPT = 64
"""Operations in the background whose end is looked for at the next one."""

_lock = threading.Lock()
_dumped: list[int] = []
"""The processes that have written a dump because of a failure: this one, or the one that it was forked from."""


class Record:
    """The operations of one kind of a group: how many there were, and which of them are not over."""

    def __init__(self) -> None:
        self.count = 0
        self.open = 0
        """The number of the operation on the caller's thread; that of one that has failed stays."""
        self._pending: deque[tuple[int, NativeWork]] = deque()

    def begin(self) -> None:
        """Count an operation, which is not over."""
        self.count += 1
        self.open = self.count

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


def _variable(names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := os.environ.get(name))), "")


def _is_wanted() -> bool:
    """Return True if the environment asks for a dump at a failure."""
    said = _variable(_ON_FAILURE).lower()
    if said:
        return said in ("1", "y", "yes", "true", "on")
    return bool(_variable(_FILES))


def dump(prefix: str | os.PathLike[str] | None = None) -> Path:
    """Write the record of this process to a file that ``torchfrtrace`` reads; return its path.

    The file is named by the prefix and the rank. Without a prefix it is that of ``TORCH_FR_DUMP_TEMP_FILE``.
    Raises ``RuntimeError`` before torch 2.15, which records no backend but its own, and ``ValueError`` where no prefix is given.
    """
    trace = _trace()
    given = os.fspath(prefix) if prefix is not None else _variable(_FILES)
    if not given:
        raise ValueError("roundelay: dump() needs a prefix for its file: dump('trace/rank_'), or set " + _FILES[0])
    path = Path(f"{given}{dist.get_rank() if dist.is_initialized() else 0}")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    unfinished.write_bytes(pickle.dumps(trace, protocol=2))
    os.replace(unfinished, path)
    return path


def _trace() -> dict[str, Any]:
    from torch._C import _distributed_c10d as c10d

    # The backends that record themselves: torch records the others since it tells them apart.
    if not hasattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS"):
        raise RuntimeError("roundelay: dump() needs torch 2.15 or later, which records the calls of each backend")
    stacks = os.environ.get("TORCH_INCLUDE_STACK_TRACE", "1").lower() not in ("0", "n", "no", "false", "off")
    trace: dict[str, Any] = pickle.loads(c10d._dump_fr_trace(True, stacks, False, backend="roundelay"))
    # The groups of the backend in Python; torch knows of the others when their operations end.
    python: list[Any] = [group for group in list(alive.values()) if hasattr(group, "_options")]
    groups = {group._options.group_name: group._calls for group in python}
    left = {name: (calls.record.unfinished(), calls.messages_record.unfinished()) for name, calls in groups.items()}
    for entry in trace.get("entries", ()):
        name = entry["process_group"][0]
        if name in groups:
            collective, message = left[name]
            number, open_ = (
                (entry["p2p_seq_id"], message) if entry["is_p2p"] else (entry["collective_seq_id"], collective)
            )
            entry["state"] = "scheduled" if number in open_ else "completed"
            entry["retired"] = number not in open_
    return trace


def on_failure() -> None:
    """Write the dump of a failure if the environment asks for one; once for a process."""
    if not _is_wanted() or not _variable(_FILES):
        return
    with _lock:
        if os.getpid() in _dumped:
            return
        _dumped.append(os.getpid())
        try:
            dump()
        except Exception as error:  # The error of the operation is what counts.
            sys.stderr.write(f"roundelay: the flight recorder could not be written: {error}\n")
