"""Dumps of the record of calls, in the format of torch's flight recorder."""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch._C._profiler import symbolize_tracebacks

from . import _record as record
from ._record import Record, variable
from ._version import VERSION

_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_ON_FAILURE = ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT")

_TYPES = {
    "f32": "Float", "f64": "Double", "f16": "Half", "bf16": "BFloat16", "i64": "Long", "i32": "Int", "i8": "Char",
    "u8": "Byte", "bool": "Bool", "u32": "UInt32", "u64": "UInt64",
}  # fmt: skip
"""Torch's names of types, by ours."""

_WHOLE = {"all_gather": "_all_gather_base", "reduce_scatter": "_reduce_scatter_base"}
"""Torch's names of operations on one buffer a rank, by those of operations on lists."""

_COALESCED = {
    "all_reduce": "allreduce_coalesced",
    "all_gather": "allgather_coalesced",
    "_all_gather_base": "all_gather_into_tensor_coalesced",
    "_reduce_scatter_base": "reduce_scatter_tensor_coalesced",
}
"""Torch's names of several operations in one."""

_lock = threading.Lock()
_dumped: list[int] = []
"""The processes that have written a dump because of a failure: this one, or the one that it was forked from."""


def _is_wanted() -> bool:
    """Return True if the environment asks for a dump at a failure."""
    said = variable(_ON_FAILURE).lower()
    if said:
        return said in ("1", "y", "yes", "true", "on")
    return bool(variable(_FILES))


def dump(prefix: str | os.PathLike[str] | None = None) -> Path:
    """Write the record of this process to a file that ``torchfrtrace`` reads; return its path.

    The file is named by the prefix and the rank. Without a prefix it is that of ``TORCH_FR_DUMP_TEMP_FILE``.
    Raises ``RuntimeError`` before torch 2.15, whose analyser knows no backend but its own, and ``ValueError`` where no
    prefix is given.
    """
    trace = _trace()
    given = os.fspath(prefix) if prefix is not None else variable(_FILES)
    if not given:
        raise ValueError("roundelay: dump() needs a prefix for its file: dump('trace/rank_'), or set " + _FILES[0])
    path = Path(f"{given}{dist.get_rank() if dist.is_initialized() else 0}")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    unfinished.write_bytes(pickle.dumps(trace, protocol=2))
    os.replace(unfinished, path)
    return path


def description_of(name: str) -> str:
    """Return the description of a group that torch has, by its name."""
    for group, known in list(dist.distributed_c10d._world.pg_names.items()):
        if known == name:
            return str(group.group_desc)
    return "undefined"


def describe(options: Any) -> str:
    """Return the description of a group that torch has, by the name in its options."""
    return description_of(options.group_name)


def _side(memory: Any) -> list[tuple[int, str]]:
    """Return the elements and the type of each buffer of one side of a call."""
    if memory is None:
        return []
    if isinstance(memory, list):
        return [(count, kind) for _, count, kind, _ in memory]
    if len(memory) == 2:
        (_, _, kind, _), counts = memory
        return [(count, kind) for count in counts]
    return [(memory[1], memory[2])]


def _named(rank: int, calls: Sequence[tuple[Any, ...]]) -> str:
    """Return torch's name of an operation."""
    name = str(calls[0][0])
    if name in ("send", "recv"):
        peer = "?" if calls[0][3] is None else calls[0][3]
        return f"{name} {rank}{'->' if name == 'send' else '<-'}{peer}"
    whole = calls[0][2 if name == "reduce_scatter" else 1]
    if isinstance(whole, tuple) and len(whole) == 4:
        name = _WHOLE.get(name, name)
    return _COALESCED.get(name, name) if len(calls) > 1 else name


def _sides(calls: Sequence[tuple[Any, ...]]) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Return the inputs and the outputs of an operation; those of one in place are both."""
    inputs: list[tuple[int, str]] = []
    outputs: list[tuple[int, str]] = []
    for name, output, input, *_ in calls:
        out, into = _side(output), _side(input)
        outputs += into if output is None and name != "send" else out
        inputs += out if input is None and name != "recv" else into
    return inputs, outputs


@dataclass
class _Call:
    """An operation in the words of torch; the module in C++ gives its own in this order."""

    group: str
    description: str
    ranks: list[int]
    number: int
    is_message: bool
    name: str
    inputs: list[tuple[int, str]]
    """Elements and type of each buffer."""
    outputs: list[tuple[int, str]]
    timeout_ms: int
    began_ns: int
    thread: int
    has_ended: bool
    is_retired: bool
    """No thread waits for it: it has ended, or its end is not looked for."""
    frames: list[dict[str, Any]]
    backend: str = "roundelay"


def _calls_of_python(stacks: bool) -> list[_Call]:
    """Return the calls of the groups of the backend in Python, the oldest first."""
    notes = list(record.notes)
    frames = symbolize_tracebacks([note[-1] for note in notes]) if stacks else [[] for _ in notes]
    own = os.path.dirname(__file__)
    unfinished: dict[Record, set[int]] = {}
    found = []
    for (kept, number, calls, timeout, began, thread, _), stack in zip(notes, frames, strict=True):
        if kept not in unfinished:
            unfinished[kept] = kept.unfinished()
        ended = number not in unfinished[kept]
        inputs, outputs = _sides(calls)
        found.append(
            _Call(
                kept.options.group_name,
                kept.options.group_desc or describe(kept.options),
                list(kept.options.global_ranks_in_group),
                number,
                kept.is_message,
                _named(kept.rank, calls),
                [(count, _TYPES[kind]) for count, kind in inputs],
                [(count, _TYPES[kind]) for count, kind in outputs],
                round(timeout * 1000),
                began,
                thread,
                ended,
                ended,
                [frame for frame in stack if not frame["filename"].startswith(own)],
            )
        )
    return found


def _entry(at: int, group: int, call: _Call, threads: dict[int | None, str]) -> dict[str, Any]:
    return {
        "record_id": at,
        "pg_id": group,
        "process_group": (call.group, call.description),
        "collective_seq_id": 0 if call.is_message else call.number,
        "p2p_seq_id": call.number if call.is_message else 0,
        "op_id": call.number,
        "is_p2p": call.is_message,
        "profiling_name": f"{call.backend}:{call.name}",
        "input_sizes": [[count] for count, _ in call.inputs],
        "input_dtypes": [kind for _, kind in call.inputs],
        "output_sizes": [[count] for count, _ in call.outputs],
        "output_dtypes": [kind for _, kind in call.outputs],
        "time_created_ns": call.began_ns,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "timeout_ms": call.timeout_ms,
        "thread_id": str(call.thread),
        "thread_name": threads.get(call.thread, ""),
        "state": "completed" if call.has_ended else "scheduled",
        "retired": call.is_retired,
        "frames": call.frames,
    }


def _trace() -> dict[str, Any]:
    from torch._C import _distributed_c10d as c10d

    from . import compiled

    if VERSION < (2, 15):
        raise RuntimeError("roundelay: dump() needs torch 2.15 or later, whose analyser reads what other backends record")
    stacks = os.environ.get("TORCH_INCLUDE_STACK_TRACE", "1").lower() not in ("0", "n", "no", "false", "off")
    calls = _calls_of_python(stacks) + [_Call(*call) for call in compiled.calls(stacks)]
    for source in record.sources:
        calls += [_Call(*call) for call in source(stacks)]
    calls.sort(key=lambda call: call.began_ns)
    # Torch records groups that have another backend too, which does not record itself: ours are known better.
    trace: dict[str, Any] = pickle.loads(c10d._dump_fr_trace(True, False, False, backend="roundelay"))
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    groups: dict[str, int] = {}
    trace["entries"] = [
        _entry(at, groups.setdefault(call.group, len(groups)), call, threads) for at, call in enumerate(calls)
    ]
    config, status = trace.setdefault("pg_config", {}), trace.setdefault("pg_status", {})
    for call in calls:
        config[call.group] = {"name": call.group, "desc": call.description, "ranks": str(call.ranks)}
        if not call.is_message:
            status[str(groups[call.group])] = {
                "last_enqueued_collective": call.number,
                "last_started_collective": -1,
                "last_completed_collective": -1,
            }
    return trace


def on_failure() -> None:
    """Write the dump of a failure if the environment asks for one; once for a process."""
    if not _is_wanted() or not variable(_FILES):
        return
    with _lock:
        if os.getpid() in _dumped:
            return
        _dumped.append(os.getpid())
        try:
            dump()
        except Exception as error:  # The error of the operation is what counts.
            sys.stderr.write(f"roundelay: the flight recorder could not be written: {error}\n")
