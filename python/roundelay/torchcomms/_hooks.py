"""Hooks: functions that are called before and after the operations of a communicator."""

from __future__ import annotations

import inspect
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
    """What an operation has returned: its work, or the communicator that ``split`` made; its name and number."""

    work: Any = None
    comm: Any = None
    name: OpName | None = None
    op_id: int = -1


class NamedHookArgs:
    """What a hook of one argument is passed: ``name`` and ``op_id`` of the operation, and what it was called with."""

    def __init__(self, name: OpName, op_id: int, args: PreHookArgs) -> None:
        self.name = name
        self.op_id = op_id
        self._args = args

    def __getattr__(self, name: str) -> Any:
        return getattr(self._args, name)


PreHook = Callable[[OpName, int, PreHookArgs], object]
PostHook = Callable[[int, PostHookArgs], object]
AbortHook = Callable[[], object]

_F = TypeVar("_F")


def _takes_one(hook: Callable[..., object]) -> bool:
    """Return True if a function takes one argument by its place, as hooks in torchcomms' own pages do."""
    try:
        parameters = list(inspect.signature(hook).parameters.values())
    except (TypeError, ValueError):
        return False
    placed = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return len(placed) == 1 and not any(each.kind is each.VAR_POSITIONAL for each in parameters)


def full_pre_hook(hook: Callable[..., object]) -> PreHook:
    """Return a hook of three arguments for one of three, or of one (:class:`NamedHookArgs`)."""
    if not _takes_one(hook):
        return hook
    return lambda name, op_id, args: hook(NamedHookArgs(name, op_id, args))


def full_post_hook(hook: Callable[..., object]) -> PostHook:
    """Return a hook of two arguments for one of two, or of one, which is passed the second."""
    if not _takes_one(hook):
        return hook
    return lambda op_id, args: hook(args)


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
