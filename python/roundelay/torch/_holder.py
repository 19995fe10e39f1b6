"""Holders: what torch gives to programs in the place of the works of a backend in Python.

A holder is a work in C++ that passes on ``wait`` and ``get_future`` only. To other queries it answers as one that has
just begun: ``is_completed()`` is false, ``exception()`` is None, and ``source_rank()`` raises. :func:`forward_queries`
puts methods in the place of torch's own that find the work in Python first. Nothing is kept for it: the work is found
by ``get_future``, which the holder passes on.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work

if TYPE_CHECKING:
    from ._work import BackendWork

_QUERIES = ("is_completed", "is_success", "exception", "result", "source_rank", "_source_rank", "synchronize")

_UNKNOWN_OP = 100
"""The type of the operation in a holder. Works of torch's own backends have others."""

NO_FUTURE: Any = torch.futures.Future()
"""What a work returns to :func:`held_work` in the place of its future."""

searched_holders: dict[int, BackendWork | None] = {}
"""The threads that are in :func:`held_work`, and the work that each has found."""


def held_work(work: Work) -> BackendWork | None:
    """Return the work in Python that a holder holds; None for a work that is no holder, or holds one of others."""
    if type(work) is not Work or work._get_op_type() != _UNKNOWN_OP:  # type: ignore[attr-defined]
        return None
    thread = get_ident()
    searched_holders[thread] = None
    try:
        work.get_future()
    except RuntimeError:  # It has none, so it holds none of ours.
        pass
    finally:
        found = searched_holders.pop(thread, None)
    return found


def found_in_holder(work: BackendWork) -> bool:
    """Take note of a work whose ``get_future`` was called, and return True, if that was done by :func:`held_work`.

    A work of others may call it too, while the thread looks into that one: then there is a function between.
    """
    thread = get_ident()
    if thread not in searched_holders or sys._getframe(2).f_code is not held_work.__code__:
        return False
    searched_holders[thread] = work
    return True


def _forwarded(name: str) -> Callable[..., Any]:
    own: Callable[..., Any] = getattr(Work, name)

    @functools.wraps(own)
    def query(self: Work) -> Any:
        work = held_work(self)
        return own(self) if work is None else getattr(work, name)()

    return query


@functools.cache
def forward_queries() -> None:
    """Have holders pass all queries on to the works in Python; once in a process."""
    for name in _QUERIES:
        setattr(Work, name, _forwarded(name))
