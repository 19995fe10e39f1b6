"""Works of observed calls: a wait for one records its end, and raises the error of a verdict.

The method ``wait`` of each class of works is put in a function that looks for the observer of the work first. Works of
other calls are waited for as before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ._entries import ENDED, TRACK, WORK, WORKS
from ._tracks import has_ended

WATCHED: set[type] = set()
"""The classes of works whose waits pass through their observers."""


def _watched(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def wait(self: Any, timeout: Any = None) -> Any:
        entry = WORKS.pop(id(self), None)
        if entry is None:
            return own(self) if timeout is None else own(self, timeout)
        track = entry[TRACK]
        try:
            if timeout is not None:
                done = own(self, timeout)
            elif track.patience is None:
                done = own(self)
            else:
                done = own(self, track.patience)
        except RuntimeError as error:
            done = track.wait_on(own, self, timeout, entry, error)
        if track.is_on_streams and not has_ended(self, 0.0):
            # On a GPU the wait has only ordered streams: the thread looks for the end.
            return done
        entry[ENDED], entry[WORK] = True, None
        return done

    return wait


def watch_class(kind: type) -> None:
    """Have waits for works of a class pass through their observers; once for each class."""
    if kind in WATCHED:
        return
    WATCHED.add(kind)
    for name in ("wait", "wait_blocking"):
        # In the class that has the method: one that is watched already has that of all its subclasses.
        owner = next((each for each in kind.__mro__ if name in each.__dict__), None)
        if owner is not None and getattr(owner.__dict__[name], "__wrapped__", None) is None:
            setattr(owner, name, _watched(owner.__dict__[name]))
