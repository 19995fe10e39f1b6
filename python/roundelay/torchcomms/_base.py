"""One rank's part in a communicator: what it is, and what all operations have in common."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from .. import _native
from ..errors import AbortedError, Error, UsageError
from ._engine import Engine, Options
from ._hints import checked_hints
from ._hooks import (
    AbortHook,
    Hooks,
    OpName,
    PostHook,
    PostHookArgs,
    PreHook,
    PreHookArgs,
    RemovableHandle,
    full_post_hook,
    full_pre_hook,
    operation,
)
from ._types import CommOptions, checked_timeout
from ._work import TorchWork

CallHints: TypeAlias = Mapping[str, str] | None
"""Hints of one call."""
CallTimeout: TypeAlias = timedelta | None
"""The longest time without progress of one call; None is that of the communicator."""


@dataclass(frozen=True)
class FunctionalFace:
    """How operations are performed that need a gradient, or that are compiled."""

    takes: Callable[[str, PreHookArgs], bool]
    perform: Callable[[Base, str, PreHookArgs, tuple[Any, ...]], Any]
    prepare: Callable[[Base], None]


_functional: FunctionalFace | None = None


def switch_on(
    takes: Callable[[str, PreHookArgs], bool],
    perform: Callable[[Base, str, PreHookArgs, tuple[Any, ...]], Any],
    prepare: Callable[[Base], None],
) -> None:
    """Have operations performed by functional collectives where ``takes`` returns True."""
    global _functional
    _functional = FunctionalFace(takes, perform, prepare)


def prepare_functional(comm: Base) -> None:
    """Prepare a communicator for functional collectives, where these are switched on."""
    if _functional is not None and not comm._waits:
        _functional.prepare(comm)


class GroupEntry(Protocol):
    """A process group that was made of a communicator."""

    name: str
    group: Any

    def forget(self) -> None:
        """Take the group out of the tables of ``torch.distributed``."""

    def release(self) -> None:
        """Leave the end of the group to its communicator."""


class Base:
    """What a communicator is and has: its native part, its hooks, and the making of a call between them."""

    def __init__(
        self,
        native: _native.Communicator,
        device: torch.device,
        name: str,
        options: CommOptions,
        store: Any,
        ranks: list[int],
    ) -> None:
        self._native = native
        self._engine = Engine(native, options.timeout)
        self._device = device
        self._name = name
        self._options = options
        self._store = store
        self._ranks = ranks
        self._rank: int = native.rank
        self._size: int = native.size
        self._timeout = options.timeout
        self._finalized = False
        self._waits = options.enable_reconfigure
        self._uuids: set[int] = set()
        self._groups: list[GroupEntry] = []
        self._family = object()
        self._told = False
        self._pre: Hooks[PreHook] = Hooks()
        self._post: Hooks[PostHook] = Hooks()
        self._abort: Hooks[AbortHook] = Hooks()
        # Nothing of a communicator that is forgotten stays behind.
        self._end = weakref.finalize(self, _shut_down, native)
        native.set_timeout(options.timeout.total_seconds())
        self._functional_group: str | None = None

    def __repr__(self) -> str:
        return f"<TorchComm {self._name!r}: rank {self._rank} of {self._size}, roundelay on {self._device}>"

    # What it is.

    def get_rank(self) -> int:
        """Return the number of this rank."""
        return self._rank

    def get_size(self) -> int:
        """Return the number of ranks."""
        return self._size

    def get_ranks(self) -> list[int]:
        """Return the ranks by their numbers in the communicator that was not made by ``split``."""
        return list(self._ranks)

    def get_name(self) -> str:
        """Return the name."""
        return self._name

    def get_device(self) -> torch.device:
        """Return the device of the tensors."""
        return self._device

    def get_options(self) -> CommOptions:
        """Return what the communicator was made with."""
        return self._options

    def get_backend(self) -> str:
        """Return ``roundelay``."""
        return "roundelay"

    def get_backend_version(self) -> str:
        """Return the version of roundelay."""
        return _native.__version__

    def get_backend_impl(self) -> Any:
        """Return the native communicator, which has ``explain``, ``install`` and ``flight``.

        That of a backend in Python is the object of the program's class.
        """
        return self._native

    unsafe_get_backend = get_backend_impl

    # Hooks.

    def register_pre_hook(self, callback: PreHook | Callable[[Any], object]) -> RemovableHandle:
        """Have ``callback(name, op_id, args)`` called before each operation; one of one argument gets all in that."""
        return self._pre.add(full_pre_hook(callback))

    def register_post_hook(self, callback: PostHook | Callable[[Any], object]) -> RemovableHandle:
        """Have ``callback(op_id, args)``, or ``callback(args)``, called after each operation was started."""
        return self._post.add(full_post_hook(callback))

    def register_abort_hook(self, callback: AbortHook) -> RemovableHandle:
        """Have ``callback()`` called once, before ``abort``, or when an operation was called and has failed."""
        return self._abort.add(callback)

    def _tell_abort(self) -> None:
        if not self._told:
            self._told = True
            for hook in self._abort.all():
                hook()

    # Process groups.

    def _forget_groups(self) -> None:
        groups, self._groups = self._groups, []
        self._functional_group = None
        for group in groups:
            group.forget()

    # What operations have in common.

    def _there(self, what: str) -> None:
        if self._finalized:
            raise UsageError(f"{what}: the communicator {self._name!r} was finalized: make a new one by new_comm")

    def _live(self, what: str) -> None:
        self._there(what)
        if self._waits:
            raise UsageError(f"{what}: the communicator {self._name!r} has no ranks yet: call reconfigure first")

    def _peer(self, rank: int, what: str) -> int:
        if not 0 <= rank < self._size:
            raise UsageError(f"{what} must be in range [0, {self._size}), but got {rank}")
        return rank

    def _count(self, tensors: Sequence[Tensor], what: str, which: str) -> None:
        if len(tensors) != self._size:
            raise UsageError(f"{what}: {which} has {len(tensors)} tensors for {self._size} ranks: give one a rank")

    def _equal(self, tensors: Sequence[Tensor], one: Tensor, what: str, which: str) -> None:
        self._count(tensors, what, which)
        if any(each.numel() != one.numel() for each in tensors):
            raise UsageError(
                f"{what}: all tensors of {which} must have {one.numel()} elements, as the other one, but they have "
                f"{[each.numel() for each in tensors]}"
            )

    def _run(
        self, name: OpName, call: Any, args: PreHookArgs, hints: CallHints, timeout: CallTimeout, *tensors: Any
    ) -> TorchWork:
        """Make a call between the hooks."""
        self._live(name.name)
        if _functional is not None and _functional.takes(name.name, args):
            return _functional.perform(self, name.name, args, tensors)  # type: ignore[no-any-return]
        limit = checked_timeout(timeout)
        opts = Options(bool(args.async_op), checked_hints(hints) if hints else [], limit, args.op, args.root or 0)
        number = next(operation)
        if self._pre:
            for pre in self._pre.all():
                pre(name, number, args)
        try:
            work = TorchWork(self._engine.perform(call, opts, *tensors), self._device)
        except Error as error:
            if self._native.aborted or isinstance(error, AbortedError):
                self._tell_abort()
            raise
        except ValueError as error:
            raise UsageError(str(error)) from None
        if self._post:
            for post in self._post.all():
                post(number, PostHookArgs(work=work, name=name, op_id=number))
        return work


def _shut_down(native: _native.Communicator) -> None:
    # A child that was forked from the rank has a copy of the communicator, and ends nothing.
    if native.is_here:
        native.shutdown()
