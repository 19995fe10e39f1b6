"""Stores by which ranks find each other."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from roundelay.errors import StartError

__all__ = ["Store", "share"]

_TIMEOUT = 30.0
_PAUSE = 0.005


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
