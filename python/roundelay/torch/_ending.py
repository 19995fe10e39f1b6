"""The end of groups that the program has not destroyed."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Protocol

from .._ending import abort_after_exception

__all__ = ["alive"]


class _Group(Protocol):
    def shutdown(self) -> None: ...


alive: dict[int, _Group] = {}
"""Groups that were not shut down, by ``id``: torch's wrappers may keep the C++ half of a group only."""

# A process that is forked from a rank is none.
os.register_at_fork(after_in_child=alive.clear)


@atexit.register
def _end() -> None:
    """End what the program has not ended, so that no thread needs the interpreter later."""
    abort_after_exception()
    for group in list(alive.values()):
        try:
            group.shutdown()
        except Exception as error:  # The program ends anyway.
            sys.stderr.write(f"roundelay: at exit: {error}\n")
