"""The entries of one kind of a group: its collectives, or its messages."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from ._entries import BEGAN, ENDED, ERROR, NUMBER, TRACK, WORK, WORKS, Entry

UNWAITED_SECONDS = 60.0
"""The time for which the work of a message is kept that no thread waits for."""


def has_ended(work: Any, seconds: float) -> bool:
    """Return True if a work has ended, with or without success; as far as it says so.

    The holder of a work in Python does not know; after some ``seconds`` its future is asked. On a GPU that is no answer:
    futures are complete for the streams that wait for them.
    """
    try:
        if work.is_completed():
            return True
        if seconds > 1.0 and hasattr(work, "get_future"):
            return bool(work.get_future().done())
    except Exception:  # A work that answers nothing has not ended as far as is known.
        pass
    return False


def failure(work: Any, is_gloo: bool) -> str | None:
    """Return the error of a work that has ended, as far as it says so."""
    try:
        if is_gloo:
            # Its ``exception()`` warns that it is deprecated; a wait for what has ended returns at once.
            wait = type(work).wait
            getattr(wait, "__wrapped__", wait)(work)
            return None
        error = work.exception()
    except RuntimeError as raised:
        error = raised if is_gloo else None
    except Exception:
        return None
    return None if error is None else str(error) or type(error).__name__


def _no_wait(own: Any, work: Any, timeout: Any, entry: Entry, error: BaseException) -> Any:
    raise error


class CallTrack:
    """The calls of one kind: the latest of them, and those before that have not ended."""

    def __init__(self, kept: int, size: int, is_message: bool, patience: timedelta | None, is_on_streams: bool) -> None:
        self.size = size
        """The number of ranks."""
        self.is_message = is_message
        """They are sends and receives."""
        self.patience = patience
        """The longest wait at once; None: any."""
        self.is_on_streams = is_on_streams
        """A wait orders streams, and does not say that a call has ended."""
        self.prepare: Callable[[CallTrack, Entry], None] | None = None
        """What is done before a call is made."""
        self.wait_on: Callable[..., Any] = _no_wait
        """What goes on with a wait that has raised: by the wait, the work, the timeout, the entry and the error."""
        self.count = 0
        """Calls that were made."""
        self.latest: deque[Entry] = deque(maxlen=kept)
        """The latest calls. To keep but these costs the calls least: their memory is used anew while it is at hand."""

    def all(self) -> list[Entry]:
        """Return all entries, the oldest first."""
        latest = list(self.latest)
        first = latest[0][NUMBER] if latest else 0
        older = [entry for entry in list(WORKS.values()) if entry[TRACK] is self and entry[NUMBER] < first]
        return [*sorted(older, key=lambda entry: entry[NUMBER]), *latest]

    def pending(self) -> Iterator[Entry]:
        """Yield the calls that have not ended, the oldest first."""
        return (entry for entry in self.all() if not entry[ENDED])

    def awaited(self) -> Iterator[Entry]:
        """Yield those that have not ended and need other ranks now: of messages, what a thread waits for.

        A message may be begun long before, and its work may be dropped.
        """
        for entry in self.pending():
            if not self.is_message or entry[WORK] is None or id(entry[WORK]) not in WORKS:
                yield entry

    def find(self, number: int) -> Entry | None:
        """Return the call of a number, if it is kept."""
        return next((entry for entry in list(self.latest) if entry[NUMBER] == number), None)

    def since(self, number: int) -> list[Entry]:
        """Return the calls after one of a number that have not ended."""
        return [entry for entry in self.pending() if entry[NUMBER] > number]

    def cancel(self, entry: Entry) -> None:
        """Forget a call that was refused before anything moved, if no other one was made since."""
        if self.latest and self.latest[-1] is entry:
            self.latest.pop()
            self.count -= 1
        else:
            entry[ENDED] = True

    def sweep(self, is_gloo: bool) -> None:
        """Take note of works that have ended, and let go of them."""
        now = time.monotonic_ns()
        for entry in self.pending():
            work = entry[WORK]
            if work is None:
                continue
            seconds = (now - entry[BEGAN]) / 1e9
            if has_ended(work, 0.0 if self.is_on_streams else seconds):
                error = failure(work, is_gloo)
                if error is not None:
                    entry[ERROR] = error
                    continue
            elif not (self.is_message and seconds > UNWAITED_SECONDS):
                continue
            # While the entry keeps the work no other one has its number.
            if WORKS.get(id(work)) is entry:
                del WORKS[id(work)]
            entry[ENDED], entry[WORK] = True, None
