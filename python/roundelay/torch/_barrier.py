"""A barrier that names who did not come. It goes through the store, so that it works while operations hang."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from ..store import wait_for
from ._errors import BackendError, OperationTimeoutError

_OPEN = b"open"


class Monitor:
    """The monitored barriers of one group."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        self._count = 0

    def wait(self, seconds: float, wait_all_ranks: bool) -> None:
        """Wait until all ranks have come.

        Rank 0 raises an error that names the first rank that is late, or with ``wait_all_ranks`` all of them; the
        others raise one that refers to rank 0.
        """
        self._count += 1
        key = f"roundelay/monitored/{self._count}"
        if self._rank == 0:
            self._lead(key, seconds, wait_all_ranks)
        else:
            self._follow(key, seconds)

    def _lead(self, key: str, seconds: float, wait_all_ranks: bool) -> None:
        until = time.monotonic() + seconds
        milliseconds = round(seconds * 1000)
        late: list[int] = []
        for rank in range(1, self._size):
            left = until - time.monotonic()
            if left <= 0 and not late:
                text = f"Rank 0 timed out in monitoredBarrier after {milliseconds} ms."
                self._store.set(f"{key}/word", text)
                raise OperationTimeoutError(text, code="RL0703", rank=0)
            if not self._came(f"{key}/{rank}", left):
                late.append(rank)
                if not wait_all_ranks:
                    break
        if late:
            names = ", ".join(str(rank) for rank in late)
            text = f"Rank{'s' if wait_all_ranks else ''} {names} failed to pass monitoredBarrier in {milliseconds} ms"
            self._store.set(f"{key}/word", text)
            raise OperationTimeoutError(text, code="RL0703", rank=0, peer=late[0])
        self._store.set(f"{key}/word", _OPEN)

    def _came(self, key: str, left: float) -> bool:
        if left <= 0:
            return bool(self._store.check([key]))
        try:
            wait_for(self._store, [key], timedelta(seconds=left))
        except RuntimeError:
            return bool(self._store.check([key]))
        return True

    def _follow(self, key: str, seconds: float) -> None:
        self._store.set(f"{key}/{self._rank}", b"here")
        until = (
            f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting for "
            "send/recv from rank 0. Please check rank 0 logs for faulty rank."
        )
        try:
            # Rank 0 may come late itself, and then waits as long.
            wait_for(self._store, [f"{key}/word"], timedelta(seconds=max(seconds, 0.001)))
        except RuntimeError as error:
            raise OperationTimeoutError(until, code="RL0703", rank=self._rank, peer=0) from error
        word = bytes(self._store.get(f"{key}/word"))
        if word != _OPEN:
            raise BackendError(f"{until} Rank 0 said: {word.decode()}", code="RL0703", rank=self._rank, peer=0)
