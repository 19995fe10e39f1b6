"""Ranks for tests: processes, or threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import roundelay
from roundelay import Communicator

T = TypeVar("T")

# Two cores, several ranks, other programs: far above what a test takes, and below the deadline of a test.
LIMIT = 90.0


def processes(fn: Callable[..., T], n: int, *args: Any, hints: Any = None) -> list[T]:
    """Call a function on ranks that are processes."""
    return roundelay.launcher(timeout=LIMIT, hints=hints)(fn, n, *args)


def threads(fn: Callable[..., T], n: int, *args: Any) -> list[T]:
    """Call a function on ranks that are threads; raise the first error by rank."""
    results: list[Any] = [None] * n
    errors: list[BaseException | None] = [None] * n

    def one(comm: Communicator) -> None:
        try:
            results[comm.rank] = fn(comm, *args)
        except BaseException as error:
            errors[comm.rank] = error
            comm.abort(f"{type(error).__name__}: {error}")

    ranks = [threading.Thread(target=one, args=(comm,), daemon=True) for comm in Communicator.local(n)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(LIMIT)
        assert not rank.is_alive(), "a rank hangs"
    own = [e for e in errors if e is not None and not isinstance(e, roundelay.AbortedError)]
    for error in own + [e for e in errors if e is not None]:
        raise error
    return results
