"""A hook that records operations, in the format of torch's flight recorder as JSON.

``roundelay.torch.dump`` has what the package records by itself for all process groups, without a hook.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ...errors import UsageError
from .._hooks import OpName, PostHookArgs, PreHookArgs, RemovableHandle

if TYPE_CHECKING:
    from .._comm import TorchComm

_MESSAGES = (OpName.send, OpName.recv)
_UNRECORDED = (OpName.split, OpName.new_window, OpName.finalize)


class FlightRecorderHook:
    """The latest operations of the communicators that it is registered with.

    ``max_entries`` is the number of operations that are kept. Recorders are independent of each other here, whatever
    ``isolated`` says.
    """

    def __init__(self, max_entries: int = 2048, isolated: bool = False) -> None:
        if max_entries < 1:
            raise UsageError(f"max_entries is {max_entries}: a recorder keeps one operation at least")
        self._entries: deque[_RecordedCall] = deque(maxlen=max_entries)
        self._open: dict[int, _RecordedCall] = {}
        self._comms: dict[str, tuple[int, str]] = {}
        self._handles: list[RemovableHandle] = []
        self._numbers = itertools.count()

    def register_with_comm(self, comm: TorchComm) -> None:
        """Record the operations of a communicator from now on."""
        name = comm.get_name()
        if name in self._comms:
            raise UsageError(f"the recorder has a communicator of the name {name!r} already")
        group = len(self._comms)
        self._comms[name] = (group, str(comm.get_ranks()))
        counts = {False: itertools.count(1), True: itertools.count(1)}

        def begin(op: OpName, op_id: int, args: PreHookArgs) -> None:
            if op in _UNRECORDED:
                return
            seconds = comm.get_options().timeout.total_seconds()
            number = next(counts[op in _MESSAGES])
            call = _RecordedCall(next(self._numbers), group, name, op, op_id, number, args, seconds)
            self._entries.append(call)
            self._open[op_id] = call

        def end(op_id: int, args: PostHookArgs) -> None:
            call = self._open.pop(op_id, None)
            if call is not None:
                call.work = args.work
                call.is_issued = True

        self._handles += [comm.register_pre_hook(begin), comm.register_post_hook(end)]

    def unregister(self) -> None:
        """Record no communicator any more; what was recorded stays."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._comms.clear()

    def dump_json(self, include_completed: bool = True) -> str:
        """Return what was recorded as JSON; without ``include_completed`` only operations that have not ended."""
        calls = [call for call in self._entries if include_completed or call.state() != "completed"]
        status: dict[str, dict[str, int]] = {}
        for call in self._entries:
            if call.op not in _MESSAGES:
                last = status.setdefault(
                    str(call.group), dict.fromkeys(["last_enqueued_collective", "last_completed_collective"], -1)
                )
                last["last_enqueued_collective"] = call.number
                if call.state() == "completed":
                    last["last_completed_collective"] = call.number
        config = {name: {"name": name, "desc": name, "ranks": ranks} for name, (_, ranks) in self._comms.items()}
        trace = {
            "version": "2.10",
            "pg_config": config,
            "pg_status": status,
            "entries": [call.entry() for call in calls],
        }
        return json.dumps(trace)

    def dump_file(self, rank: int, include_completed: bool = True) -> str:
        """Write the JSON to a file; return its path: what ``TORCHCOMM_FR_DUMP_TEMP_FILE`` says, and the rank.

        Raises ``UsageError`` if the variable is not set.
        """
        prefix = os.environ.get("TORCHCOMM_FR_DUMP_TEMP_FILE")
        if not prefix:
            raise UsageError("dump_file: set TORCHCOMM_FR_DUMP_TEMP_FILE to the first part of the file's path")
        path = Path(f"{prefix}{rank}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.dump_json(include_completed))
        return str(path)

    def reset(self) -> None:
        """Forget what was recorded."""
        self._entries.clear()
        self._open.clear()

    def is_enabled(self) -> bool:
        """Return True if the operations of a communicator are recorded."""
        return bool(self._handles)

    def size(self) -> int:
        """Return the number of operations that are kept."""
        return len(self._entries)


class _RecordedCall:
    """An operation: what it was called with, and its work once it was issued. It keeps no tensors."""

    def __init__(
        self, record: int, group: int, comm: str, op: OpName, op_id: int, number: int, args: PreHookArgs, timeout: float
    ) -> None:
        self.record = record
        self.group = group
        self.comm = comm
        self.op = op
        self.op_id = op_id
        self.number = number
        self.timeout = timeout
        self.created = time.time_ns()
        self.work: Any = None
        self.is_issued = False
        self.peer = args.peer
        read, written = _sizes(args.input), _sizes(args.output)
        if args.tensor is not None:
            read = written = _sizes(args.tensor)
        self.read, self.written = read, written

    def state(self) -> str:
        """Return the state by torch's words."""
        if not self.is_issued:
            return "scheduled"
        ended = self.work is None or self.work.is_completed()
        if ended and self.work is not None:
            self.work = None  # What it keeps is needed no more.
        return "completed" if ended else "started"

    def entry(self) -> dict[str, Any]:
        """Return the operation as an entry of the trace."""
        state = self.state()
        is_message = self.op in _MESSAGES
        name = self.op.name if self.peer is None else f"{self.op.name} {self.peer}"
        return {
            "record_id": self.record,
            "pg_id": self.group,
            "process_group": [self.comm, self.comm],
            "collective_seq_id": 0 if is_message else self.number,
            "p2p_seq_id": self.number if is_message else 0,
            "op_id": self.op_id,
            "is_p2p": is_message,
            "profiling_name": f"roundelay:{name}",
            "input_sizes": [shape for shape, _ in self.read],
            "input_dtypes": [kind for _, kind in self.read],
            "output_sizes": [shape for shape, _ in self.written],
            "output_dtypes": [kind for _, kind in self.written],
            "time_created_ns": self.created,
            "timeout_ms": round(self.timeout * 1000),
            "state": state,
            "retired": state == "completed",
        }


def _sizes(given: Any) -> list[tuple[list[int], str]]:
    """Return shape and type of each tensor of one side."""
    if given is None:
        return []
    tensors = [given] if isinstance(given, Tensor) else given
    return [(list(tensor.shape), str(tensor.dtype).removeprefix("torch.")) for tensor in tensors]
