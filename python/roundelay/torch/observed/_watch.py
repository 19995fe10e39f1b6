"""The thread of a process that looks at its observers."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from typing import Protocol

PERIOD = 0.1
"""The time in seconds between two looks."""


class _WatchedObserver(Protocol):
    def look(self) -> None: ...

    def waits_in(self) -> str: ...


class WatchThread:
    """Looks at all observers of the process, at a low rate; there is one, which ends with the last observer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._observers: list[_WatchedObserver] = []
        self._thread: threading.Thread | None = None
        self._event = threading.Event()

    def add(self, observer: _WatchedObserver) -> None:
        """Look at an observer from now on."""
        with self._lock:
            self._observers.append(observer)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="roundelay-observe", daemon=True)
                self._thread.start()

    def remove(self, observer: _WatchedObserver) -> None:
        """Look at an observer no more."""
        with self._lock:
            self._observers = [each for each in self._observers if each is not observer]
        self.wake()

    def wake(self) -> None:
        """Look at once."""
        self._event.set()

    def all(self) -> list[_WatchedObserver]:
        """Return the observers of the process."""
        with self._lock:
            return list(self._observers)

    def others(self, observer: _WatchedObserver) -> list[_WatchedObserver]:
        """Return the observers of the other groups of the process."""
        with self._lock:
            return [each for each in self._observers if each is not observer]

    def _run(self) -> None:
        reported = False
        while True:
            self._event.wait(PERIOD)
            self._event.clear()
            with self._lock:
                observers = list(self._observers)
                if not observers:
                    self._thread = None
                    return
            for observer in observers:
                try:
                    observer.look()
                except Exception:
                    # The store may be gone with the rank that had it: the calls go on.
                    if not reported:
                        reported = True
                        sys.stderr.write(f"roundelay: observe: {traceback.format_exc(limit=-2)}")

    def stop(self) -> None:
        """End the thread, so that it needs no interpreter later; wait for it for a second at most."""
        with self._lock:
            self._observers = []
            thread = self._thread
        self._event.set()
        if thread is not None:
            thread.join(1.0)

    def forget(self) -> None:
        """Begin anew in a process that was forked from the rank: it has none of the threads."""
        self.__init__()  # type: ignore[misc]


WATCH = WatchThread()

os.register_at_fork(after_in_child=WATCH.forget)
atexit.register(WATCH.stop)
