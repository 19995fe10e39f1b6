"""Joining the ranks of a group through torch's store."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .._ending import watch
from ._errors import face

if TYPE_CHECKING:
    from .._native import Communicator


def announce(store: Any, note: str) -> None:
    """Tell ``roundelay doctor --store``, which knows no prefixes, where the ranks of the first group meet."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    # A store of another kind may lack the call, or be for files: nobody asks there.
    with suppress(Exception):
        if store.add("roundelay/doctors", 1) == 1:
            store.set("roundelay/doctor", note)


def join(
    store: Any, rank: int, size: int, timeout: timedelta, hints: list[tuple[str, str]]
) -> Communicator:
    """Return the communicator of a group, whose ranks share a store."""
    from .._native import Communicator

    key = "roundelay/note"

    def share(note: str | None) -> str | None:
        if note is not None:
            store.set(key, note)
            announce(store, note)
            return None
        store.wait([key], timeout)
        return bytes(store.get(key)).decode()

    try:
        return watch(Communicator.join(rank, size, share, hints, max(timeout.total_seconds(), 0.001)))
    except RuntimeError as error:
        raise face(error, timeout.total_seconds()) from error.__cause__
