"""Stores by which ranks find each other."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable
from typing import Any, Protocol

from roundelay.errors import StartError

__all__ = ["Store", "share", "wait_for"]

_TIMEOUT = 30.0
_PAUSE = 0.005


# The seconds between two looks for signals, as Ctrl-C.
_PART = 0.1


def wait_for(store: Any, keys: list[str], timeout: datetime.timedelta) -> None:
    """Wait for keys of a store of torch.distributed, in parts, between which Ctrl-C is seen.

    Raises what the store raises, and names the whole time where that is over.
    """
    until = time.monotonic() + timeout.total_seconds()
    while True:
        begun = time.monotonic()
        left = max(until - begun, 0.001)
        part = min(left, _PART)
        try:
            store.wait(keys, datetime.timedelta(seconds=part))
            return
        except RuntimeError as error:
            # What fails before its time is the store.
            if time.monotonic() - begun < part / 2:
                raise
            if left <= _PART:
                whole = f"{round(timeout.total_seconds() * 1000)}ms"
                raise type(error)(re.sub(r"\d+ ?ms", whole, str(error), count=1)) from None


class Store(Protocol):
    """A key-value store, as torch.distributed's."""

    def set(self, key: str, value: bytes, /) -> object:
        """Keep a value."""

    def get(self, key: str, /) -> bytes | str | None:
        """Return the value of a key, or wait for it. None, or a ``KeyError``: there is none yet."""


def share(store: Store, key: str, timeout: float | None) -> Callable[[str | None], str | None]:
    """Return the function by which ranks pass a note: rank 0 gives it, the others ask for it."""
    limit = _TIMEOUT if timeout is None else timeout

    def passed(note: str | None) -> str | None:
        if note is not None:
            store.set(key, note.encode())
            return None
        until = time.monotonic() + limit
        if hasattr(store, "wait") and hasattr(store, "check"):
            # Torch's stores wait in `get`, where no signal is seen.
            wait_for(store, [key], datetime.timedelta(seconds=limit))
        while True:
            try:
                found = store.get(key)
            except KeyError:
                found = None
            if found is not None:
                return found if isinstance(found, str) else bytes(found).decode()
            if time.monotonic() > until:
                raise StartError(
                    f"the store has had no value at `{key}` for {limit:g} s: see whether rank 0 was started with the "
                    "same store and name",
                    code="RL0709",
                )
            time.sleep(_PAUSE)

    return passed
