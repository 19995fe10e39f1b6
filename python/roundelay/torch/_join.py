"""Joining the ranks of a group through torch's store."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from .._ending import watch
from ..errors import UsageError
from ..store import wait_for
from ._errors import face

if TYPE_CHECKING:
    from .._native import Communicator


_rank_process = 0
"""The process that made the first group here, or 0; a forked child inherits the number of its parent."""


def check_process() -> None:
    """Raise ``UsageError`` in a process that was forked from a rank and still has the rank's groups.

    A group that it makes of these, by ``new_group`` or a split, would be joined in the rank's place.
    """
    global _rank_process
    own = os.getpid()
    if _rank_process not in (0, own) and dist.is_initialized():
        raise UsageError(
            f"this process group belongs to process {_rank_process}, and process {own}, which was forked from it, is no "
            f"rank: nothing was sent or changed; make the group in process {_rank_process}",
            code="RL0718",
        )
    _rank_process = own


def announce(store: Any, note: str) -> None:
    """Tell ``roundelay doctor --store``, which knows no prefixes, where the ranks of the first group meet."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    # A store of another kind may lack the call, or be for files, which have no such call.
    with suppress(Exception):
        if store.add("roundelay/doctors", 1) == 1:
            store.set("roundelay/doctor", note)


def join(
    store: Any, rank: int, size: int, timeout: timedelta, hints: list[tuple[str, str]]
) -> Communicator:
    """Return the communicator of a group, whose ranks share a store."""
    from .._native import Communicator

    check_process()
    key = "roundelay/note"

    def share(note: str | None) -> str | None:
        if note is not None:
            store.set(key, note)
            announce(store, note)
            return None
        wait_for(store, [key], timeout)
        return bytes(store.get(key)).decode()

    try:
        return watch(Communicator.join(rank, size, share, hints, max(timeout.total_seconds(), 0.001)))
    except RuntimeError as error:
        raise face(error, timeout.total_seconds()) from error.__cause__
