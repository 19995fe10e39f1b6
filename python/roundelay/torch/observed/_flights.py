"""Flight records of observed groups, in the format of the runtime's: ``roundelay doctor`` reads them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._diagnosis import RankVerdict
from ._entries import BEGAN, ENDED, NAME, NUMBER, CallDescription, Entry, describe
from ._process import host_name

if TYPE_CHECKING:
    from ._observer import GroupObserver

COMPARED = 16
"""The latest calls of a record that ``roundelay doctor`` compares between the ranks."""

_OTHERS = 6
"""Ranks beside the first one that a wait names."""

_TORCH_TYPES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long",
    "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}  # fmt: skip
"""The names of types in torch's flight recorder."""

_TORCH_NAMES = {
    "all_gather_single": "_all_gather_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "all_reduce_coalesced": "allreduce_coalesced",
    "all_gather_coalesced": "allgather_coalesced",
    "all_gather_single_coalesced": "all_gather_into_tensor_coalesced",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
    "gather_single": "gather",
}
"""The names of operations in torch's flight recorder, where they differ."""


def torch_name(name: str, rank: int, described: CallDescription) -> str:
    """Return the name of an operation in torch's flight recorder."""
    if name in ("send", "recv"):
        peer = "?" if described.root < 0 else described.root
        return f"{name} {rank}{'->' if name == 'send' else '<-'}{peer}"
    return _TORCH_NAMES.get(name, name)


def torch_sides(side: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return elements and types in the words of torch's flight recorder."""
    return [(count, _TORCH_TYPES.get(dtype, dtype)) for count, dtype in side]


def _call(entry: Entry, rank: int) -> dict[str, Any]:
    described = describe(entry)
    # What has a root, or no operator, is one text: a name beside numbers would lack it.
    is_sum = bool(described.op) and described.text.endswith(f"with {described.op}")
    return {
        "call": {
            "call": entry[NUMBER],
            "name": entry[NAME] if is_sum else described.text,
            "count": described.elements if is_sum else 0,
            "dtype": described.dtype,
            "op": described.op,
            "digest": described.digest,
            "at": entry[BEGAN],
            "ended": bool(entry[ENDED]),
        }
    }


def _peers(observer: GroupObserver, verdict: RankVerdict | None) -> list[int]:
    """Return the ranks that a pending collective waits for: those at fault, or all others."""
    blamed = [] if verdict is None else [rank for rank in verdict.ranks if rank != observer.rank]
    return blamed or [rank for rank in range(observer.size) if rank != observer.rank] or [observer.rank]


def dump(
    observer: GroupObserver, verdict: RankVerdict | None, conditions: Mapping[int, tuple[str, int]]
) -> dict[str, Any]:
    """Return the record of a rank.

    Its calls end soon after the call of the verdict, so that this one is among those that are compared.
    """
    entries = list(observer.collectives.latest)
    if verdict is not None and verdict.kind == "mismatch":
        entries = [entry for entry in entries if entry[NUMBER] < verdict.call + COMPARED]
    waiting = None
    pending = next(observer.collectives.pending(), None)
    message = next(observer.messages.awaited(), None)
    if pending is not None:
        peers = _peers(observer, verdict)
        waiting = _wait(peers, "meeting", pending, describe(pending))
    elif message is not None:
        described = describe(message)
        waiting = _wait([max(described.root, 0)], "message", message, described)
        # Messages have numbers of their own, which the calls of other ranks are not compared with.
        waiting["call"] = observer.collectives.count
    gone = {rank: state for rank, (state, _) in conditions.items() if state != "running"}
    return {
        "rank": observer.rank,
        "ranks": observer.size,
        "pid": os.getpid(),
        "host": host_name(),
        "communicator": observer.name,
        "now": time.monotonic_ns(),
        "calls": observer.collectives.count,
        "waiting": waiting,
        "error": None if verdict is None else verdict.cause,
        "recorded": observer.collectives.count,
        "events": [_call(entry, observer.rank) for entry in entries],
        "seen": [_standing(rank, state, conditions[rank][1]) for rank, state in sorted(gone.items())],
    }


def _wait(peers: list[int], what: str, entry: Entry, described: CallDescription) -> dict[str, Any]:
    return {
        "peer": peers[0],
        "others": peers[1 : 1 + _OTHERS],
        "channel": 0,
        "what": what,
        "call": entry[NUMBER],
        "digest": described.digest,
        "step": 0,
        "pass": 0,
        "site": "",
        "since": entry[BEGAN],
    }


def _standing(rank: int, state: str, pid: int) -> dict[str, Any]:
    condition: Any = "stopped" if state == "stopped" else {"died": f"process {pid} has ended"}
    return {"rank": rank, "pid": pid, "condition": condition, "calls": 0, "recent": [], "waiting": None}


def write(
    observer: GroupObserver, verdict: RankVerdict | None, conditions: Mapping[int, tuple[str, int]]
) -> Path:
    """Write the record of a rank to the file of the observer's prefix and its rank; return its path."""
    path = Path(f"{observer.flight_prefix}{observer.rank}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    unfinished.write_text(json.dumps(dump(observer, verdict, conditions)))
    os.replace(unfinished, path)
    return path
