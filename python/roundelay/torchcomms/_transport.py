"""Transports by torchcomms' names: one-sided writes and reads between two processes, without a communicator.

``docs/transport.md`` has what they do, and what differs from torchcomms.
"""

from __future__ import annotations

import datetime
import os
import socket
import threading
import weakref
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import torch

from .._options import Hints
from .._options import seconds as checked_seconds
from ..endpoint import Connecting, Endpoint, Link, RemoteRegion
from ..errors import Error, OperationTimeoutError, UsageError
from ._memory_table import ENTRY_BYTES, AccessKey, MemoryEntry, memories
from ._rdma_memory import RdmaMemory, RdmaMemoryMutableView, RdmaMemoryView, RdmaRemoteBuffer

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RdmaMemory", "RdmaMemoryMutableView", "RdmaMemoryView", "RdmaRemoteBuffer", "RdmaTransport"]

_SCHEME = "rlt1"
_WRITTEN = 1
"""The notification of a write."""


class RdmaTransport:
    """A connection of two processes: over shared memory on one host, over RDMA or TCP between two.

    Both sides bind, pass each other by any means what that returns, and connect. ``connect`` returns at once: the
    first transfer waits for the peer. Any thread may use it. ``device`` is that of the tensors, the CPU or a GPU.

    torchcomms' class has the device only. ``name`` is the one by which errors of the peer name this side, ``timeout``
    the longest wait, in seconds; ``hints`` are those of docs/hints.md, as ``{"transport": "tcp"}``; ``secret`` is that
    of ``ROUNDELAY_SECRET`` by default, which both sides must have. Errors are raised: those of the peer name it.
    """

    def __init__(
        self,
        device: torch.device | str | None = None,
        *,
        name: str | None = None,
        timeout: float | datetime.timedelta = 30.0,
        hints: Hints | None = None,
        secret: str | None = None,
    ) -> None:
        self.device = torch.device("cpu" if device is None else device)
        if self.device.type not in ("cpu", "cuda"):
            raise UsageError(f"the device is {self.device}: RdmaTransport has cpu and cuda")
        self._timeout = max(checked_seconds(timeout), 0.001)
        own = f"process {os.getpid()} on {socket.gethostname()}"
        self._label = own if name is None else f"{name} ({own})"
        self._peer = "a peer that has not connected"
        self._peer_table = b""
        endpoint = Endpoint(hints=hints, secret=secret, timeout=self._timeout)
        self._endpoint = endpoint
        self._table = memories.open_table(endpoint)
        self._end = weakref.finalize(self, memories.close_table, self._table)
        self._connecting: Connecting | None = None
        self._link: Link | None = None
        self._lock = threading.Lock()
        self._opened: dict[str, tuple[RemoteRegion, MemoryEntry]] = {}

    @staticmethod
    def supported() -> bool:
        """Return True: where there is no RDMA, there is TCP (:meth:`transport`)."""
        return True

    def bind(self) -> bytes:
        """Return the printable bytes that the peer connects to. Without a secret they serve as one."""
        address = self._endpoint.address.decode()
        return f"{_SCHEME} {self._table.key.hex()} {quote(self._label)} {address}".encode()

    def connect(self, peer_url: bytes, timeout: float | datetime.timedelta | None = None) -> int:
        """Start to connect to the peer, which connects to this transport within the timeout; return 0.

        Raises ``UsageError`` if the bytes are not what a peer's ``bind`` returned, or if it is connected already.
        """
        parts = bytes(peer_url).decode("ascii", "replace").split(" ", 3)
        if len(parts) != 4 or parts[0] != _SCHEME:
            raise UsageError("peer_url is not what RdmaTransport.bind() of this version returned: pass these bytes on")
        limit = self._timeout if timeout is None else checked_seconds(timeout)
        with self._lock:
            if self._connecting is not None:
                raise UsageError(f"this transport is connected to {self._peer}: make another one for another peer")
            connecting = self._endpoint.start_connect(parts[3].encode(), limit)
            if connecting.done():
                # It is refused.
                connecting.wait()
            self._peer_table = bytes.fromhex(parts[1])
            self._peer = unquote(parts[2])
            self._connecting = connecting
        return 0

    def connected(self) -> bool:
        """Return True once ``connect`` was called, unless the link is known to have ended."""
        if not self._end.alive or self._connecting is None:
            return False
        return self._link is None or self._link.is_open

    def peer(self) -> str:
        """Return the name of the peer, its process and its host."""
        return self._peer

    def transport(self) -> str:
        """Return what carries the bytes: ``shm``, ``rdma`` or ``tcp``. Waits for the peer."""
        return self._linked().transport

    def write(self, local_buffer: RdmaMemoryView, remote_buffer: RdmaRemoteBuffer, notify: bool = False) -> int:
        """Write a view to the beginning of a buffer of the peer; return 0 when it is there.

        With ``notify`` the peer's :meth:`wait_for_write` returns then, as torchcomms has it in C++.
        Raises ``UsageError`` if the view is larger, ``WindowError`` if the peer has released the memory,
        ``LostRankError`` and ``OperationTimeoutError`` if it is gone or does not answer: the transport has ended then.
        """
        if not isinstance(local_buffer, RdmaMemoryView):
            raise UsageError(f"local_buffer is a {type(local_buffer).__name__}: give RdmaMemory.to_view()")
        value = _WRITTEN if notify else None
        try:
            region, at = self._open(local_buffer, remote_buffer)
            if local_buffer._length == 0:
                if notify:
                    self._linked().notify(_WRITTEN)
            elif local_buffer._memory.is_staged():
                staged = local_buffer._bytes().cpu()
                region._native.write((staged.data_ptr(), local_buffer._length, "u8", False), at, value)
            else:
                region._native.write(local_buffer._place(), at, value)
        except UsageError:
            raise
        except Error as error:
            raise self._named(error) from error
        return 0

    def read(self, local_buffer: RdmaMemoryMutableView, remote_buffer: RdmaRemoteBuffer) -> int:
        """Read the beginning of a buffer of the peer into a view; return 0 when it is here.

        Raises the errors of :meth:`write`.
        """
        if not isinstance(local_buffer, RdmaMemoryMutableView):
            kind = type(local_buffer).__name__
            raise UsageError(f"local_buffer is a {kind}, which is not to be written: give RdmaMemory.to_mutable_view()")
        try:
            region, at = self._open(local_buffer, remote_buffer)
            if local_buffer._length == 0:
                pass
            elif local_buffer._memory.is_staged():
                staged = torch.empty(local_buffer._length, dtype=torch.uint8)
                region._native.read((staged.data_ptr(), local_buffer._length, "u8", False), at)
                local_buffer._bytes().copy_(staged)
            else:
                region._native.read(local_buffer._place(), at)
        except UsageError:
            raise
        except Error as error:
            raise self._named(error) from error
        return 0

    def wait_for_write(self, timeout: float | datetime.timedelta | None = None) -> int:
        """Wait until the peer has written with ``notify``, once for each such write; return 0.

        Raises ``OperationTimeoutError`` if none comes in time (the transport goes on), ``LostRankError`` if the peer
        is gone.
        """
        limit = self._timeout if timeout is None else checked_seconds(timeout)
        try:
            if self._linked().wait_notification(limit) is None:
                raise OperationTimeoutError(f"it has written nothing in {limit:g} s", code="RL0703")
        except UsageError:
            raise
        except Error as error:
            raise self._named(error) from error
        return 0

    def close(self) -> None:
        """Close the connection: waits of other threads end, and the peer's transfers fail."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _linked(self) -> Link:
        link = self._link
        if link is None:
            if not self._end.alive:
                raise UsageError("this transport was closed: make a new one")
            if self._connecting is None:
                raise UsageError("this transport is not connected: call connect with what the peer's bind returned")
            link = self._connecting.wait(self._timeout)
            link.set_timeout(self._timeout)
            self._link = link
        return link

    def _open(self, view: RdmaMemoryView, remote: RdmaRemoteBuffer) -> tuple[RemoteRegion, int]:
        """Return the peer's region of a buffer, and the buffer's first byte in it."""
        found = self._opened.get(remote.access_key)
        if found is None:
            found = self._opened[remote.access_key] = self._find(remote)
        region, entry = found
        at = remote.ptr - entry.address
        if at < 0 or at + remote.len > entry.length:
            raise UsageError(
                f"{remote.len} bytes at {remote.ptr:#x} are outside of the memory of this access key, "
                f"{entry.length} bytes at {entry.address:#x}"
            )
        if view._length > remote.len:
            raise UsageError(f"a view of {view._length} bytes does not fit into a buffer of {remote.len}")
        return region, at

    def _find(self, remote: RdmaRemoteBuffer) -> tuple[RemoteRegion, MemoryEntry]:
        access = AccessKey.parse(remote.access_key)
        link = self._linked()
        data = bytearray(ENTRY_BYTES)
        link.region(self._peer_table).read(data, access.slot * ENTRY_BYTES)
        entry = MemoryEntry.unseal(bytes(data), access, self._peer_table)
        return link.region(entry.key), entry

    def _named(self, error: Error) -> Error:
        """Return an error that names the peer."""
        return type(error)(
            f"{self._peer}: {error}", code=error.code, rank=error.rank, peer=error.peer, step=error.step
        )
