"""The operations of a communicator, which are those of :mod:`roundelay.torch`, with hints for each call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import UsageError
from ..torch import _memory as memory
from ..torch._errors import face
from ..torch._memory import Finish, address
from ..torch._calls import Calls
from ..torch._operations import Operations, Together
from ..torch._work import Done, OnStream, Pending
from ._types import RedOpType, ReduceOp

if TYPE_CHECKING:
    from .._native import Communicator

_OPERATORS: dict[RedOpType, Any] = {
    kind: getattr(dist.ReduceOp, kind.name) for kind in RedOpType if kind is not RedOpType.PREMUL_SUM
}


class Options:
    """Options of one call, by the names of c10d."""

    __slots__ = ("asyncOp", "hints", "reduceOp", "rootRank", "timeout")

    def __init__(
        self, async_op: bool, hints: list[tuple[str, str]], timeout: timedelta, op: ReduceOp | None, root: int
    ) -> None:
        self.asyncOp = async_op
        self.hints = hints
        self.timeout = timeout
        self.rootRank = root
        self.reduceOp: Any = None
        if op is not None:
            if op.factor is not None:
                self.reduceOp = dist._make_nccl_premul_sum(op.factor)  # type: ignore[attr-defined]
            else:
                self.reduceOp = dist.ReduceOp(_OPERATORS[op.type])


class _Local(threading.local):
    """The hints of the call that a thread makes."""

    hints: list[tuple[str, str]] = []


class _Hinted:
    """A native communicator that adds the hints of the call that this thread makes."""

    def __init__(self, native: Any, local: _Local) -> None:
        self._native = native
        self._local = local

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def call(
        self,
        collective: str,
        output: Any,
        input: Any,
        op: str,
        factor: float,
        root: int,
        timeout: float | None = None,
        given: list[tuple[str, str]] | None = None,
        *rest: Any,
    ) -> Any:
        own = self._local.hints
        if own:
            given = [*(given or []), *own]
        return self._native.call(collective, output, input, op, factor, root, timeout, given, *rest)

    def cuda(self, index: int) -> _Hinted:
        return _Hinted(self._native.cuda(index), self._local)


class Engine(Operations):
    """The operations of one rank."""

    def __init__(self, native: Communicator, timeout: timedelta) -> None:
        self.native: Any = native
        self._local = _Local()
        self._calls = Calls(_Hinted(native, self._local), timeout.total_seconds())  # type: ignore[arg-type]

    def comm_on(self, device: torch.device) -> Any:
        """Return the native communicator of a device; the first call for a GPU is collective."""
        return self._calls.on(device) if device.type == "cuda" else self.native

    @property
    def calls(self) -> Calls:
        """The calls of the communicator, which a process group of it shares."""
        return self._calls

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the longest time without progress of operations that follow, on the hosts and on the GPUs."""
        self._calls.set_timeout(timeout.total_seconds())

    def abort(self, why: str) -> None:
        """End the communicators of the hosts and of the GPUs on all ranks at once."""
        self._calls.abort(why)

    def set_hints(self, hints: Any) -> None:
        """Set the hints of operations that follow, on the hosts and on the GPUs."""
        for comm in self._calls.all_comms():
            comm.set_hints(hints)

    def perform(self, operation: Callable[..., Any], opts: Options, *args: Any) -> Any:
        """Make a call with the hints of its options; returns work."""
        self._local.hints = opts.hints
        try:
            work = operation(self, *args, opts)
        finally:
            self._local.hints = []
        return Done() if work is None else work

    def message(self, tensor: Tensor, peer: int, is_send: bool, opts: Options, tag: int = 0) -> Any:
        """Send or receive a tensor: messages move beside all other operations, in any order of ranks."""
        return self.messages([(tensor, peer, is_send)], opts, tag)

    def messages(self, messages: Sequence[tuple[Tensor, int, bool]], opts: Options, tag: int = 0) -> Any:
        """Send and receive tensors at once; no order among the messages can block them."""
        kinds = {tensor.device.type for tensor, _, _ in messages}
        if len(kinds) > 1:
            raise UsageError(f"a batch has tensors on {' and '.join(sorted(kinds))}: make one for each device")
        if "cuda" in kinds:
            return self._on_stream(messages, opts)
        seconds = opts.timeout.total_seconds()
        limit = seconds if seconds > 0 else None
        works: list[Any] = []
        for tensor, peer, is_send in messages:
            finish: list[Finish] = []
            data = memory.readable(tensor) if is_send else memory.writable(tensor, finish)
            at = memory.bytes_of(data)
            # Only a message by itself can run on this thread.
            kept = data if opts.asyncOp or len(messages) > 1 else None
            try:
                if is_send:
                    work = self.native.send(at, peer, tag, limit, kept)
                else:
                    _, work = self.native.recv(at, peer, tag, limit, kept)
            except RuntimeError as error:
                raise face(error, limit) from None
            if work is None:
                for due in finish:
                    due()
            else:
                works.append(Pending([work], None, finish, "send" if is_send else "recv"))
        together = works[0] if len(works) == 1 else Together(works)
        if not opts.asyncOp:
            together.wait()
            return Done()
        return together

    def _on_stream(self, messages: Sequence[tuple[Tensor, int, bool]], opts: Options) -> Any:
        device = messages[0][0].device
        seconds = opts.timeout.total_seconds()
        finish: list[Finish] = []
        tensors = [tensor for tensor, _, _ in messages]
        # Copies that are made for the call live as long as the tensors.
        plain = [
            memory.readable(tensor) if is_send else memory.writable(tensor, finish) for tensor, _, is_send in messages
        ]
        batch = [(address(data), peer, is_send) for data, (_, peer, is_send) in zip(plain, messages)]
        comm = self._calls.on(device)
        beside = self._calls.beside(device) if opts.asyncOp else None
        stream = torch.cuda.current_stream(device) if beside is None else beside.stream
        limit = seconds if seconds > 0 else None
        try:
            comm.messages(batch, limit, stream.cuda_stream, None, opts.asyncOp)
        except RuntimeError as error:
            raise face(error, limit, "send/recv") from None
        with torch.cuda.stream(stream):
            for due in finish:
                due()
        return OnStream(None, device, [*plain, *tensors], beside)
