"""Names of backends other than ``roundelay``, which programs register."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ._comm import TorchComm

CommWrapper = Callable[["TorchComm"], "TorchComm"]
"""What makes a communicator of another backend of one of ours, in which the same ranks have joined."""

ENTRY_POINTS = "torchcomms.backends"

_wrappers: dict[str, CommWrapper] = {}


def add_wrapper(name: str, wrapper: CommWrapper) -> None:
    """Have ``new_comm`` find a backend by a name; a later one of that name takes its place."""
    _wrappers[name] = wrapper


def find_wrapper(name: str) -> CommWrapper:
    """Return what makes communicators of a name: one that was registered, or that an entry point registers.

    Raises ``UsageError`` if there is none.
    """
    if name not in _wrappers:
        for point in entry_points(group=ENTRY_POINTS, name=name):
            point.load()
            break
    if name not in _wrappers:
        known = ", ".join(["roundelay", *sorted(_wrappers)])
        raise UsageError(
            f"failed to find backend {name}: this module has {known}; register_backend({name!r}, …) adds a class in "
            f"Python, also from a module that an entry point of {ENTRY_POINTS} names; `torchcomms` itself has others"
        )
    return _wrappers[name]
