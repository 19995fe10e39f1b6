"""Hooks: functions that are called before and after the operations of a communicator."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, TypeVar


class OpName(Enum):
    """The operations, as hooks receive them."""

    send = auto()
    recv = auto()
    broadcast = auto()
    all_reduce = auto()
    reduce = auto()
    all_gather = auto()
    all_gather_v = auto()
    all_gather_single = auto()
    reduce_scatter = auto()
    reduce_scatter_v = auto()
    reduce_scatter_single = auto()
    all_to_all_single = auto()
    all_to_all_v_single = auto()
    all_to_all = auto()
    barrier = auto()
    scatter = auto()
    gather = auto()
    gather_single = auto()
    split = auto()
    new_window = auto()
    batch_op_issue = auto()
    finalize = auto()


@dataclass(frozen=True)
class PreHookArgs:
    """What an operation was called with. Fields that the operation has not are None."""

    tensor: Any = None
    input: Any = None
    output: Any = None
    op: Any = None
    root: int | None = None
    peer: int | None = None
    ranks: list[int] | None = None
    name: str | None = None
    num_ops: int | None = None
    async_op: bool | None = None


@dataclass(frozen=True)
class PostHookArgs:
    """What an operation has returned: its work, or the communicator that ``split`` made."""

    work: Any = None
    comm: Any = None


PreHook = Callable[[OpName, int, PreHookArgs], object]
PostHook = Callable[[int, PostHookArgs], object]
AbortHook = Callable[[], object]

_F = TypeVar("_F")


class RemovableHandle:
    """A hook that was registered."""

    def __init__(self, remove: Callable[[], object]) -> None:
        self._remove: Callable[[], object] | None = remove

    def remove(self) -> None:
        """Take the hook away; a second call does nothing."""
        remove, self._remove = self._remove, None
        if remove is not None:
            remove()


class Hooks(Generic[_F]):
    """Hooks of one kind, in the order in which they were registered."""

    def __init__(self) -> None:
        self._hooks: dict[int, _F] = {}
        self._numbers = itertools.count()

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def all(self) -> list[_F]:
        """Return the hooks that are registered now."""
        return list(self._hooks.values())

    def add(self, hook: _F) -> RemovableHandle:
        """Register a hook."""
        number = next(self._numbers)
        self._hooks[number] = hook
        return RemovableHandle(lambda: self._hooks.pop(number, None))


operation = itertools.count()
"""Numbers of operations, over all communicators of the process."""
