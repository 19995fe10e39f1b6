"""Windows by the API of torchcomms: tensors that the other ranks put to, in memory of the host or of GPUs."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor

from ..errors import OperationTimeoutError, UsageError
from .._buffers import mapped
from ..torch._memory import bytes_of, is_plain, readable, tensor_at
from ..torch._work import Done, OnStream
from ..window import Right
from ._base import Base, CallHints, CallTimeout
from ._types import checked_timeout
from ._work import TorchWork

_RIGHTS: list[Right] = ["read", "write", "atomics"]


class TorchCommWinAccessType(Enum):
    """The models of memory: one copy of the tensor, or one for others and one for its owner."""

    WIN_ACCESS_TYPE_UNIFIED = auto()
    WIN_ACCESS_TYPE_SEPARATE = auto()


@dataclass
class TorchCommWindowAttr:
    """The attributes of a window, seen from a peer."""

    access_type: TorchCommWinAccessType = TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED


class _Signalled:
    """A signal that is waited for: it is taken once."""

    def __init__(self, native: Any, peer: int, limit: float) -> None:
        self._native = native
        self._peer = peer
        self._limit = limit
        self._lock = threading.Lock()
        self._taken = False

    def is_completed(self) -> bool:
        if not self._lock.acquire(blocking=False):  # Another thread waits for it.
            return False
        try:
            self._taken = self._taken or self._native.take_signal(self._peer)
            return self._taken
        finally:
            self._lock.release()

    def wait(self) -> None:
        if not self._limit:
            with self._lock:
                if not self._taken:
                    self._native.wait_signal(self._peer)
                    self._taken = True
            return
        until = time.monotonic() + self._limit
        while not self.is_completed():
            if time.monotonic() >= until:
                raise OperationTimeoutError(
                    f"waited {self._limit:g} s for a signal of rank {self._peer}: see whether it calls signal",
                    code="RL0703",
                    peer=self._peer,
                )
            time.sleep(0.0001)


class TorchCommWindow:
    """A tensor of each rank that the others put to, while its owner does something else (docs/windows.md).

    A signal is seen after what its rank has put there before. ``new_window``, ``tensor_register`` and
    ``tensor_deregister`` are collective.

    If the tensor is on a GPU, so are those that are put, and operations go into the current stream, whatever
    ``async_op`` says: what follows there sees what they did, and a signal that does not come ends the communicator
    after its timeout. Tensors of all ranks have one length then.
    """

    def __init__(self, comm: Base, tensor: Tensor | None) -> None:
        self._comm = comm
        self._native: Any = None
        self._tensor: Tensor | None = None
        if tensor is not None:
            self.tensor_register(tensor)

    def tensor_register(self, tensor: Tensor, owning: bool = True) -> None:
        """Have the peers put to a contiguous tensor, which lives as long as it is registered. Collective."""
        self._comm._live("tensor_register")
        if self._native is not None:
            raise UsageError("tensor_register: the window has a tensor already: call tensor_deregister first")
        if tensor.is_cuda and tensor.device != self._comm._device:
            raise UsageError(
                f"tensor_register: the tensor is on {tensor.device}, the communicator on {self._comm._device}: "
                "pass a tensor of that device or of the CPU"
            )
        if not is_plain(tensor):
            raise UsageError(
                "the tensor of a window must be contiguous, and its elements as they are read: pass a copy of it, as "
                ".contiguous() or .resolve_conj().resolve_neg()"
            )
        if tensor.is_cuda:
            # The first access of a peer comes after what the caller's streams still do to the tensor.
            torch.cuda.synchronize(tensor.device)
        self._native = self._comm._engine.comm_on(tensor.device).window(bytes_of(tensor), _RIGHTS, tensor)
        self._tensor = tensor

    def tensor_deregister(self) -> None:
        """End all puts to the tensor. Collective."""
        self._there("tensor_deregister").free()
        self._native = self._tensor = None

    def put(
        self,
        tensor: Tensor,
        dst_rank: int,
        target_offset_nelems: int,
        async_op: bool,
        hints: CallHints = None,
        timeout: CallTimeout = None,
    ) -> TorchWork:
        """Write a tensor to a peer's, from an element on. It may be changed when this returns.

        On a GPU it may be changed, and freed, by what follows in the stream.
        """
        native, own = self._there("put"), self._tensor
        assert own is not None
        if tensor.dtype != own.dtype or tensor.device != own.device:
            raise UsageError(
                f"put: the tensor is {tensor.dtype} on {tensor.device}, the window {own.dtype} on {own.device}"
            )
        if target_offset_nelems < 0:
            raise UsageError(f"put: elements are counted from 0, not from {target_offset_nelems}")
        peer = self._comm._peer(dst_rank, "dst_rank")
        data = readable(tensor)
        native.put(bytes_of(data), peer, target_offset_nelems * data.element_size(), self._stream(), None)
        return self._done(data)

    def signal(
        self, peer_rank: int, async_op: bool, hints: CallHints = None, timeout: CallTimeout = None
    ) -> TorchWork:
        """Signal a peer, which sees that after what this thread has put there."""
        self._there("signal").signal(self._comm._peer(peer_rank, "peer_rank"), self._stream())
        return self._done()

    def wait_signal(
        self, peer_rank: int, async_op: bool, hints: CallHints = None, timeout: CallTimeout = None
    ) -> TorchWork:
        """Wait for a signal of a peer, and take it: each ends one wait. On a GPU what follows in the stream waits.

        There a ``timeout`` is that of all waits of the window that follow.
        """
        native, peer = self._there("wait_signal"), self._comm._peer(peer_rank, "peer_rank")
        limit = checked_timeout(timeout).total_seconds()
        if (stream := self._stream()) is not None:
            if limit:
                native.set_timeout(limit)
            native.wait_signal(peer, stream)
            return self._done()
        work = TorchWork(_Signalled(native, peer, limit), self._comm._device)
        if not async_op:
            work.wait()
        return work

    def map_remote_tensor(self, rank: int) -> Tensor:
        """Return a peer's tensor as it is mapped here, if that is one of ``allocate_tensor`` or on a GPU of this host.

        It is the peer's as long as this window has a tensor. Raises ``WindowError`` for other memory.
        """
        native, own = self._there("map_remote_tensor"), self._tensor
        assert own is not None
        peer = self._comm._peer(rank, "rank")
        if own.is_cuda:
            return tensor_at(native.map_remote(peer), own)
        bytes = mapped(native.view_remote(peer), own)
        found = torch.frombuffer(bytes, dtype=own.dtype) if bytes.nbytes else own.new_empty(0)
        return found.view(own.shape) if found.numel() == own.numel() else found

    def get_attr(self, peer_rank: int) -> TorchCommWindowAttr:
        """Return what the window is, seen from a peer."""
        self._there("get_attr")
        self._comm._peer(peer_rank, "peer_rank")
        return TorchCommWindowAttr()

    def get_tensor(self) -> Tensor | None:
        """Return the registered tensor."""
        return self._tensor

    def get_size(self) -> int:
        """Return the bytes of the registered tensor, 0 without one."""
        return 0 if self._tensor is None else self._tensor.numel() * self._tensor.element_size()

    @property
    def dtype(self) -> torch.dtype:
        """The type of the registered tensor; float32 without one."""
        return torch.float32 if self._tensor is None else self._tensor.dtype

    @property
    def shape(self) -> list[int]:
        """The shape of the registered tensor."""
        return [] if self._tensor is None else list(self._tensor.shape)

    @property
    def device(self) -> torch.device:
        """The device of the registered tensor; the communicator's without one."""
        return self._comm._device if self._tensor is None else self._tensor.device

    def _there(self, what: str) -> Any:
        self._comm._live(what)
        if self._native is None:
            raise UsageError(f"{what}: the window has no tensor: call tensor_register on all ranks first")
        return self._native

    def _stream(self) -> int | None:
        """Return the current stream of the tensor's GPU, or None if the tensor is in memory of the host."""
        own = self._tensor
        return None if own is None or not own.is_cuda else torch.cuda.current_stream(own.device).cuda_stream

    def _done(self, kept: Tensor | None = None) -> TorchWork:
        on_gpu = self._tensor is not None and self._tensor.is_cuda
        device = self.device
        return TorchWork(OnStream(None, device, kept) if on_gpu else Done(), device)
