"""The transport of PyTorch 2.15: one-sided reads and writes between two endpoints, without a process group.

``torch.distributed._transport.new_transport("roundelay", "cpu")`` makes a ``Transport``; docs/transport.md has what it
does, and PyTorch's page of the function an example.
"""

from __future__ import annotations

import asyncio
import datetime
import math
import operator
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.distributed import Work, _transport

from .. import errors
from .._options import Hints
from ..endpoint import Connecting, Endpoint, Link, Region, RemoteRegion

if TYPE_CHECKING:
    from .._native import Work as NativeWork

__all__ = ["Memory", "MemoryView", "MutableMemoryView", "RemoteBuffer", "Transport"]

_KEY = 36
"""The bytes of a key (docs/transport.md)."""


@dataclass(frozen=True)
class RemoteBuffer:
    """The registered memory of a peer, by its key. Its holder may read and write that memory over a link."""

    key: bytes

    def serialize(self) -> bytes:
        """Return the bytes that the peer is to be given."""
        return self.key

    @classmethod
    def deserialize(cls, data: bytes) -> RemoteBuffer:
        """Return what ``serialize`` made bytes of. Raises ``ValueError`` for others."""
        if type(data) is not bytes:
            raise TypeError("a serialized remote buffer is bytes")
        if len(data) != _KEY or not data.startswith(b"rlk1"):
            raise ValueError("these bytes are not a remote buffer of roundelay, or one of another version")
        return cls(data)


@dataclass(eq=False)
class _Registration:
    tensor: torch.Tensor
    region: Region
    address: int
    length: int
    active: bool = True

    def ensure_active(self) -> None:
        if not self.active:
            raise RuntimeError("this memory was unregistered: register it again, and pass the new descriptor on")


class MemoryView:
    """Bytes of registered memory."""

    def __init__(self, memory: Memory, offset: int, length: int) -> None:
        self._memory = memory
        self._offset = offset
        self._length = length

    def size(self) -> int:
        """Return the number of bytes."""
        return self._length


class MutableMemoryView(MemoryView):
    """Bytes of registered memory that may be written."""

    writable: Literal[True] = True


class Memory:
    """A tensor that is registered with a ``Transport``."""

    def __init__(self, transport: Transport, registration: _Registration) -> None:
        self._transport = transport
        self._registration = registration

    def _range(self, offset: int | None, length: int | None) -> tuple[int, int]:
        self._registration.ensure_active()
        whole = self._registration.length
        first = 0 if offset is None else operator.index(offset)
        if not 0 <= first <= whole:
            raise ValueError(f"the offset {first} is outside of the {whole} bytes that are registered")
        count = whole - first if length is None else operator.index(length)
        if not 0 <= count <= whole - first:
            raise ValueError(f"{count} bytes from {first} on are outside of the {whole} bytes that are registered")
        return first, count

    def to_view(self, offset: int | None = None, length: int | None = None) -> MemoryView:
        """Return ``length`` bytes from ``offset`` on, all by default."""
        return MemoryView(self, *self._range(offset, length))

    def to_mutable_view(self, offset: int | None = None, length: int | None = None) -> MutableMemoryView:
        """Return bytes that may be written."""
        return MutableMemoryView(self, *self._range(offset, length))

    def to_remote_buffer(self, *, timeout: float | None = None) -> RemoteBuffer:
        """Return what the peer needs to read and write the memory."""
        self._registration.ensure_active()
        return RemoteBuffer(self._registration.region.key)


class _Pending(Work):
    """A read or a write in the background."""

    def __init__(self, native: NativeWork, view: MemoryView, timeout: float) -> None:
        super().__init__()
        self._native = native
        self._view = view
        self._timeout = timeout
        self._lock = threading.Lock()
        self._future: Any = None

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        """Wait for the end, at most ``timeout``; raise the error of the operation.

        Raises ``OperationTimeoutError`` if it has not ended by then; it goes on.
        """
        limit = timeout.total_seconds() or self._timeout
        if not self._native.wait(limit):
            text = f"the transfer has not ended within {limit:g} s; it goes on"
            raise errors.OperationTimeoutError(text, code="RL0703")
        return True

    def is_completed(self) -> bool:
        """Return True if it has ended, with or without success."""
        return self._native.done()

    def is_success(self) -> bool:
        """Return True if it has ended with success."""
        return self.is_completed() and self._native.exception() is None

    def exception(self) -> BaseException | None:
        """Return the error, if there is one by now."""
        return self._native.exception()

    def get_future(self) -> Any:
        """Return a future of an empty list."""
        with self._lock:
            if self._future is not None:
                return self._future
            future: Any = torch.futures.Future()
            self._future = future

        def complete() -> None:
            error = self._native.exception()
            if error is None:
                future.set_result([])
            else:
                future.set_exception(error if isinstance(error, Exception) else RuntimeError(str(error)))

        # Called at once where it has ended.
        if self._native.done():
            complete()
        else:
            self._native.add_done_callback(complete)
        return future

    def result(self) -> list[torch.Tensor]:
        """Wait, and return an empty list."""
        self.wait()
        return []

    def synchronize(self) -> None:
        """Wait for the end."""
        self.wait()


class Transport(_transport.Transport):
    """One endpoint with one peer: over shared memory on one machine, over TCP between two.

    Both sides connect, each to what the other's ``bind`` returned. ``connect`` returns at once: the first transfer
    waits for the peer, and raises why it did not come. Options: ``timeout``, in seconds, for every wait that is
    given none; ``hints`` of the connection (docs/hints.md), as ``{"transport": "tcp"}``; ``secret``, that of
    ``ROUNDELAY_SECRET`` by default, which both sides must have.
    """

    def __init__(
        self,
        device: torch.device | str | None = None,
        *,
        timeout: float = 30.0,
        hints: Hints | None = None,
        secret: str | None = None,
    ) -> None:
        super().__init__(device)
        if self.device is not None and self.device.type != "cpu":
            raise ValueError(f"the transport roundelay moves memory of this host, not of {self.device}")
        self._default_timeout: float = self._seconds(timeout, timeout)
        self._endpoint = Endpoint(hints=hints, secret=secret, timeout=max(timeout, 0.001))
        self._connecting: Connecting | None = None
        self._link: Link | None = None
        self._lock = threading.Lock()
        self._registrations: dict[tuple[int, int], _Registration] = {}
        self._opened: dict[bytes, RemoteRegion] = {}
        self._pending: list[_Pending] = []
        self._closing = False

    @staticmethod
    def supported() -> bool:
        """Return True: there is always TCP."""
        return True

    def _seconds(self, timeout: float | None, default: float | None = None) -> float:
        if timeout is None:
            return self._default_timeout if default is None else default
        if not math.isfinite(timeout) or timeout < 0:
            raise ValueError("timeout must be finite and nonnegative")
        return timeout

    def _ensure_open(self) -> None:
        if self._closing:
            raise RuntimeError("this transport is closed: make a new one")

    def bind(self, *, timeout: float | None = None) -> bytes:
        """Return the bytes that the peer is to connect to."""
        self._seconds(timeout)
        self._ensure_open()
        return self._endpoint.address

    def connect(self, peer_url: bytes, *, timeout: float | None = None) -> int:
        """Begin to connect to the peer, which connects to this transport within that number of seconds; return 0."""
        limit = self._seconds(timeout)
        with self._lock:
            self._ensure_open()
            if self._connecting is not None:
                raise RuntimeError("this transport is connected: make another one for another peer")
            connecting = self._endpoint.start_connect(peer_url, limit)
            if connecting.done():
                # It is refused.
                connecting.wait()
            self._connecting = connecting
        return 0

    def connected(self) -> bool:
        """Return True once it was connected, unless the link is known to have ended."""
        if self._closing or self._connecting is None:
            return False
        return self._link is None or self._link.is_open

    def _linked(self, timeout: float) -> Link:
        """Return the link to the peer, which may still be on its way."""
        self._ensure_open()
        if self._link is None:
            if self._connecting is None:
                raise RuntimeError("this transport is not connected: call connect with what the peer's bind returned")
            self._link = self._connecting.wait(timeout)
        return self._link

    def register_memory(self, tensor: torch.Tensor, *, timeout: float | None = None) -> Memory:
        """Register a contiguous tensor; one that is registered already has one registration."""
        self._seconds(timeout)
        self._ensure_open()
        if not isinstance(tensor, torch.Tensor):
            raise TypeError("tensor must be a torch.Tensor")
        self._check_device(tensor.device)
        if tensor.device.type != "cpu":
            raise ValueError(f"the transport roundelay moves memory of this host, not of {tensor.device}")
        if not tensor.is_contiguous():
            raise ValueError("the tensor is not contiguous: register tensor.contiguous()")
        if tensor.numel() == 0:
            raise ValueError("the tensor has no elements")
        data = tensor.detach().view(-1).view(torch.uint8)
        key = (data.data_ptr(), data.numel())
        with self._lock:
            found = self._registrations.get(key)
            if found is None:
                found = _Registration(tensor, self._endpoint.register(data), *key)
                self._registrations[key] = found
        return Memory(self, found)

    def unregister_memory(self, memory: _transport.Memory, *, timeout: float | None = None) -> None:
        """Revoke the descriptors of memory; when this returns, the peer uses it no more."""
        self._seconds(timeout)
        self._ensure_open()
        if not isinstance(memory, Memory) or memory._transport is not self:
            raise TypeError("this memory was not registered by this transport")
        registration = memory._registration
        with self._lock:
            if not registration.active:
                return
            self._pending = [work for work in self._pending if not work.is_completed()]
            if any(work._view._memory._registration is registration for work in self._pending):
                raise RuntimeError("there are transfers of this memory: wait for them first")
            registration.active = False
            del self._registrations[registration.address, registration.length]
        registration.region.revoke()

    def _check_transfer(
        self, local_buffer: _transport.MemoryView, remote_buffer: _transport.RemoteBuffer, *, mutable: bool
    ) -> None:
        wanted = MutableMemoryView if mutable else MemoryView
        if not isinstance(local_buffer, wanted) or local_buffer._memory._transport is not self:
            raise TypeError(f"local_buffer is no {wanted.__name__} of memory that this transport has registered")
        if not isinstance(remote_buffer, RemoteBuffer):
            raise TypeError("remote_buffer is no RemoteBuffer of the transport roundelay")
        registration = local_buffer._memory._registration
        registration.ensure_active()
        tensor = registration.tensor
        if (tensor.data_ptr(), tensor.numel() * tensor.element_size()) != (registration.address, registration.length):
            raise RuntimeError("the tensor was resized, or has other storage, since it was registered")

    def _start(
        self, name: str, view: Any, remote: Any, mutable: bool, async_op: bool, timeout: float | None
    ) -> int | Work:
        limit = self._seconds(timeout)
        until = time.monotonic() + limit
        self._ensure_open()
        self._check_transfer(view, remote, mutable=mutable)
        link = self._linked(limit)
        with self._lock:
            self._ensure_open()
            region = self._opened.get(remote.key)
            if region is None:
                region = self._opened[remote.key] = link.region(remote.key)
            if view.size() > len(region):
                raise ValueError(f"a view of {view.size()} bytes does not fit into the peer's {len(region)}")
            registration = view._memory._registration
            place = (registration.address + view._offset, view.size(), "u8", False)
            native = getattr(region._native, name)(place, 0, kept=registration.tensor)
            work = _Pending(native, view, limit)
            self._pending = [work for work in self._pending if not work.is_completed()]
            self._pending.append(work)
        if async_op:
            return work
        work.wait(datetime.timedelta(seconds=max(until - time.monotonic(), 1e-6)))
        return 0

    def write(
        self,
        local_buffer: _transport.MemoryView,
        remote_buffer: _transport.RemoteBuffer,
        *,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> int | Work:
        """Write a view to the beginning of the peer's memory; return 0 when it is there, or at once a ``Work``."""
        return self._start("write", local_buffer, remote_buffer, False, async_op, timeout)

    def read(
        self,
        local_buffer: _transport.MutableMemoryView,
        remote_buffer: _transport.RemoteBuffer,
        *,
        async_op: bool = False,
        timeout: float | None = None,
    ) -> int | Work:
        """Read the beginning of the peer's memory into a view; return 0 when it is here, or at once a ``Work``."""
        return self._start("read", local_buffer, remote_buffer, True, async_op, timeout)

    def _begin_close(self) -> list[_Pending]:
        self._closing = True
        with self._lock:
            return [work for work in self._pending if not work.is_completed()]

    def _release(self) -> None:
        self._endpoint.close()
        with self._lock:
            for registration in self._registrations.values():
                registration.active = False
                registration.region.revoke()
            self._registrations.clear()
            self._opened.clear()
            self._pending.clear()

    def close(self, *, timeout: float | None = None) -> None:
        """Wait for transfers that have begun, and close. After ``OperationTimeoutError`` call it again."""
        until = time.monotonic() + self._seconds(timeout)
        error: BaseException | None = None
        for work in self._begin_close():
            try:
                work.wait(datetime.timedelta(seconds=max(until - time.monotonic(), 1e-6)))
            except BaseException as failure:
                if not work.is_completed():
                    raise
                error = error or failure
        self._release()
        if error is not None:
            raise error

    async def close_async(self, *, timeout: float | None = None) -> None:
        """Close as ``close`` does, and let other tasks run meanwhile."""
        limit = self._seconds(timeout)
        pending = self._begin_close()
        error: BaseException | None = None
        try:
            await _transport.wait_all(pending, timeout=limit)
        except BaseException as failure:
            if isinstance(failure, asyncio.CancelledError) or not all(work.is_completed() for work in pending):
                raise
            error = failure
        await asyncio.get_running_loop().run_in_executor(None, self._release)
        if error is not None:
            raise error
