"""Communicators of backends in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import Any

from ._base import CallHints, CallTimeout
from ._comm import TorchComm
from ._hooks import OpName, PostHookArgs, PreHookArgs, operation
from ._python_backend import PythonBackend, adopt_part, attach, own_operations
from ._types import CommOptions, checked_timeout
from ._work import TorchWork

Arguments = Callable[[PreHookArgs, Sequence[Any]], Sequence[Any]]

_ARGUMENTS: dict[str, Arguments] = {
    "send": lambda given, _: (given.tensor, given.peer),
    "recv": lambda given, _: (given.tensor, given.peer),
    "broadcast": lambda given, _: (given.tensor, given.root),
    "all_reduce": lambda given, _: (given.tensor, given.op),
    "reduce": lambda given, _: (given.tensor, given.root, given.op),
    "all_gather": lambda given, _: (given.output, given.input),
    "all_gather_v": lambda given, _: (given.output, given.input),
    "all_gather_single": lambda given, _: (given.output, given.input),
    "reduce_scatter": lambda given, _: (given.output, given.input, given.op),
    "reduce_scatter_v": lambda given, _: (given.output, given.input, given.op),
    "reduce_scatter_single": lambda given, _: (given.output, given.input, given.op),
    "all_to_all_single": lambda given, _: (given.output, given.input),
    "all_to_all_v_single": lambda given, rest: (given.output, given.input, *rest[2:]),
    "all_to_all": lambda given, _: (given.output, given.input),
    "barrier": lambda given, _: (),
    "scatter": lambda given, _: (given.output, given.input, given.root),
    "gather": lambda given, _: (given.output, given.input, given.root),
    "gather_single": lambda given, _: (given.output, given.input, given.root),
}
"""The arguments of a method of ``PythonBackend``, from those of a call."""


class PythonComm(TorchComm):
    """A communicator whose operations are those of a ``PythonBackend``; what it does not override is ours."""

    def __init__(self, backend: PythonBackend) -> None:
        inner = backend.communicator
        super().__init__(inner._native, inner._device, inner._name, inner._options, inner._store, inner._ranks)
        self._backend = backend
        self._inner = inner
        self._own = own_operations(backend)
        self._adopt()

    def _adopt(self) -> None:
        self._engine = self._inner._engine
        self._rank, self._size, self._ranks = self._inner._rank, self._inner._size, self._inner._ranks
        self._waits = self._inner._waits

    def __repr__(self) -> str:
        return f"<TorchComm {self._name!r}: rank {self._rank} of {self._size}, {self.get_backend()} on {self._device}>"

    def get_backend(self) -> str:
        """Return the name of the backend."""
        return self._backend.backend_name

    def get_backend_impl(self) -> Any:
        """Return the object of the user's class, with what that has beside the operations."""
        return self._backend

    unsafe_get_backend = get_backend_impl

    def _run(
        self, name: OpName, call: Any, args: PreHookArgs, hints: CallHints, timeout: CallTimeout, *tensors: Any
    ) -> TorchWork:
        own = self._own.get(name.name)
        if own is None:
            return super()._run(name, call, args, hints, timeout, *tensors)
        arguments = _ARGUMENTS[name.name](args, tensors)

        def call_own(*_: Any) -> Any:
            return own.call(arguments, bool(args.async_op), hints, timeout)

        return super()._run(name, call_own, args, hints, timeout)

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the longest time without progress of the operations from now on."""
        super().set_timeout(timeout)
        self._backend.set_timeout(self._timeout)

    def _finish(self) -> None:
        self._backend.finalize()
        super()._finish()

    def split(
        self, ranks: Sequence[int], name: str, hints: CallHints = None, timeout: CallTimeout = None
    ) -> TorchComm | None:
        """Make a communicator of a part of the ranks, of the same backend."""
        self._live("split")
        number = next(operation)
        for pre in self._pre.all():
            pre(OpName.split, number, PreHookArgs(ranks=list(ranks), name=name))
        options = CommOptions(timeout=self._timeout if timeout is None else checked_timeout(timeout), name=name)
        options.hints = dict(hints or {})
        part = self._backend.split(ranks, name, options)
        if part is None:
            return None
        adopt_part(part, self._inner, ranks, name, options)
        made = PythonComm(part)
        for post in self._post.all():
            post(number, PostHookArgs(comm=made))
        return made

    def reconfigure(
        self,
        uuid: int,
        init_handles: Sequence[str] | AbstractSet[str],
        timeout: CallTimeout = None,
        hints: CallHints = None,
    ) -> TorchWork:
        """Go on with exactly the ranks that the handles name; the class's part is prepared anew for them."""
        work = self._inner.reconfigure(uuid, init_handles, timeout, hints)
        self._adopt()
        self._told = False
        self._backend = attach(type(self._backend), self._inner)
        self._own = own_operations(self._backend)
        return work


def wrapper(kind: type[PythonBackend]) -> Callable[[TorchComm], TorchComm]:
    """Return what makes communicators of a class of one of ours."""

    def wrap(communicator: TorchComm) -> TorchComm:
        return PythonComm(attach(kind, communicator))

    return wrap
