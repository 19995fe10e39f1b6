"""A backend of ``torch.distributed``.

``torch.distributed.init_process_group("roundelay")`` is all that a program needs: the name is known as soon as torch
is imported, through the entry points of the package. See ``docs/pytorch.md``.

Importing this module loads neither torch nor the native part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ._hints import ACTIVE, pairs

if TYPE_CHECKING:
    from ._flight import dump
    from ._options import Options

__all__ = ["Options", "autoload", "dump", "hints", "register", "replace", "set_timeout"]

NAME = "roundelay"
"""The name of the backend."""


@contextmanager
def hints(**given: object) -> Iterator[None]:
    """Give hints to all operations that this process starts inside a ``with`` block.

    They go before the hints of the group (:class:`Options`), key by key; ``docs/hints.md`` has the keys. All ranks of
    a group need the same. The block counts for all threads of the process, since the backward pass of a model may
    run on a thread of torch.

    >>> with hints(algorithm="ring", timeout="5s"):
    ...     torch.distributed.all_reduce(tensor)
    """
    active = pairs(given)
    ACTIVE.append(active)
    try:
        yield
    finally:
        for index in reversed(range(len(ACTIVE))):
            if ACTIVE[index] is active:
                del ACTIVE[index]
                break


def register() -> None:
    """Make the name ``roundelay`` known to ``torch.distributed``; done at ``import torch`` where it is installed."""
    from ._register import register_as

    register_as(NAME)


def replace(name: str) -> None:
    """Put roundelay in the place of a backend of another name, such as ``gloo``, in this process.

    The environment variable ``ROUNDELAY_REPLACE`` does it for a program that is not changed.
    """
    from ._register import register_as

    register_as(name)


def set_timeout(timeout: timedelta, group: Any = None) -> None:
    """Set the longest time without progress of a group's operations from now on; of the default group if none is named.

    ``torch.distributed.set_timeout`` does the same from torch 2.14 on. Raises ``ValueError`` if there is no group.
    """
    from ._options import set_timeout as set_it

    set_it(timeout, group)


def autoload() -> None:
    """Register the name, and take the place that ``ROUNDELAY_REPLACE`` names; ``import torch`` calls it."""
    from ._register import autoload as load

    load()


def __getattr__(name: str) -> Any:
    if name == "Options":
        from ._options import Options

        return Options
    if name == "dump":
        from ._flight import dump

        return dump
    if name == "RoundelayBackend":
        from ._backend import RoundelayBackend

        return RoundelayBackend
    if name == "RoundelayGroup":
        from ._group import RoundelayGroup

        return RoundelayGroup
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
