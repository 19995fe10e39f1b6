"""Endpoints: memory of single peers, written and read without a communicator."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal, overload

from roundelay import _native
from roundelay._buffers import Array, view
from roundelay._options import Hints, pairs, seconds, whole
from roundelay.errors import OperationTimeoutError
from roundelay.window import Right
from roundelay.work import Work

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Connecting", "Endpoint", "Link", "Region", "RemoteRegion"]


class Endpoint:
    """A place at which peers meet this process, to write and read the arrays that it registers.

    Two processes each make an endpoint, tell each other its ``address`` in whatever way they have, and connect each to
    the other's; the key of a region travels the same way (docs/transport.md). Any thread may use it::

        endpoint = roundelay.Endpoint()
        send(endpoint.address)
        link = endpoint.connect(receive())
        region = endpoint.register(weights)
        send(region.key)
        link.region(receive()).write(gradients, notify=1)
        link.wait_notification()
        region.revoke()

    ``hints`` are those of a communicator; ``secret``, which peers must have too, is that of ``ROUNDELAY_SECRET`` by
    default. ``timeout`` is the longest wait for a peer, 30 s by default; ``host_label`` makes processes with other
    labels count as being on other machines.
    """

    __slots__ = ("__weakref__", "_native")

    def __init__(
        self,
        *,
        hints: Hints | None = None,
        secret: str | None = None,
        timeout: float | datetime.timedelta | None = None,
        host_label: str | None = None,
    ) -> None:
        limit = None if timeout is None else seconds(timeout)
        self._native = _native.Endpoint(pairs(hints or {}), secret, limit, host_label)

    @property
    def address(self) -> bytes:
        """The bytes by which a peer connects: printable, at most 4 KiB. Without a secret they are one."""
        return self._native.address

    @property
    def closed(self) -> bool:
        """True once the endpoint was closed."""
        return self._native.closed

    def connect(self, address: bytes, timeout: float | datetime.timedelta = 30.0) -> Link:
        """Connect to the endpoint of that address, which connects to this one. Two endpoints connect once."""
        return self.start_connect(address, timeout).wait()

    def start_connect(self, address: bytes, timeout: float | datetime.timedelta = 30.0) -> Connecting:
        """Start to connect, in the background."""
        return Connecting(self._native.start_connect(bytes(address), seconds(timeout)))

    def register(self, data: Array, peers_may: Sequence[Right] = ("read", "write")) -> Region:
        """Register an array, which lives until the region ends: peers that know the region's key may use it.

        With the right ``atomics`` it begins at a multiple of 8 bytes.
        The owner reads and writes it as always, when it knows that no peer does: after a notification, say.
        """
        seen = view(data, "data", not {"write", "atomics"}.isdisjoint(peers_may))
        return Region(self._native.register(seen[0], list(peers_may), seen))

    def close(self) -> None:
        """Close its links and regions. Waits of other threads end."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Connecting:
    """A link that ``Endpoint.start_connect`` is making."""

    __slots__ = ("_link", "_native")

    def __init__(self, native: _native.Connecting) -> None:
        self._native = native
        self._link: Link | None = None

    def wait(self, timeout: float | None = None) -> Link:
        """Wait for the link, at most ``timeout`` seconds.

        Raises ``OperationTimeoutError`` if there is none by then; the attempt goes on.
        """
        if self._link is None:
            made = self._native.wait(timeout)
            if made is None:
                text = f"the peer has not connected within {timeout:g} s; it goes on"
                raise OperationTimeoutError(text, code="RL0703")
            self._link = Link(made)
        return self._link

    def done(self) -> bool:
        """Return True if the attempt has ended, with or without success."""
        return self._native.done()


class Link:
    """The connection of two endpoints. It is closed when it and all its remote regions are gone.

    In errors the two ends are ranks 0 and 1. An operation that fails by anything but ``WindowError`` ends the link at
    both ends: a timeout, a peer that is lost.
    """

    __slots__ = ("__weakref__", "_native")

    def __init__(self, native: _native.Link) -> None:
        self._native = native

    @property
    def side(self) -> int:
        """The number by which errors name this end."""
        return self._native.side

    @property
    def transport(self) -> str:
        """The transport that carries the link, as ``shm`` or ``tcp``."""
        return self._native.transport

    @property
    def is_open(self) -> bool:
        """False if the link was closed or has failed, or the peer is known to be gone."""
        return self._native.open

    def set_timeout(self, timeout: float | datetime.timedelta) -> None:
        """Set the longest time without progress of a wait on this link."""
        self._native.set_timeout(seconds(timeout))

    def region(self, key: bytes) -> RemoteRegion:
        """Return the peer's region of that key. Whether the key is good shows when it is used."""
        return RemoteRegion(self._native.region(bytes(key)))

    def notify(self, value: int) -> None:
        """Notify the peer by a number of 64 bits, after everything that this thread has done on the link."""
        self._native.notify(value % 2**64)

    def wait_notification(self, timeout: float | datetime.timedelta | None = None) -> int | None:
        """Wait for the next notification of the peer, and take it: what was written before it is there.

        Returns None if none comes within ``timeout`` seconds.
        """
        return self._native.wait_notification(None if timeout is None else seconds(timeout))

    def abort(self, why: str = "the program ended it") -> None:
        """End the link at both ends, from any thread."""
        self._native.abort(why)

    def close(self) -> None:
        """Close the link: waits of other threads end, and the peer's operations fail."""
        self._native.close()


class Region:
    """An array of this process that peers may use by its ``key``. Revoked when it is dropped."""

    __slots__ = ("__weakref__", "_native")

    def __init__(self, native: _native.Region) -> None:
        self._native = native

    @property
    def key(self) -> bytes:
        """The bytes by which a peer names the region: 36, with a random number of 64 bits."""
        return self._native.key

    def revoke(self) -> None:
        """Revoke the key: when this returns, no peer reads or writes the array any more."""
        self._native.revoke()


class RemoteRegion:
    """A region of the peer of a link. Places are counted in bytes.

    Operations raise ``WindowError`` if they lie outside, are not allowed, or the key is none or was revoked. With
    ``async_op=True`` they return a ``Work``, and the array must not be touched before that has ended.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.Remote) -> None:
        self._native = native

    def __len__(self) -> int:
        return len(self._native)

    @overload
    def write(self, data: Array, at: int = 0, *, notify: int | None = None, async_op: Literal[True]) -> Work: ...

    @overload
    def write(
        self, data: Array, at: int = 0, *, notify: int | None = None, async_op: bool = False
    ) -> Work | None: ...

    def write(
        self, data: Array, at: int = 0, *, notify: int | None = None, async_op: bool = False
    ) -> Work | None:
        """Write an array to the region, from byte ``at`` on; return when it is there, and the peer was notified."""
        seen = view(data, "data", False)
        value = None if notify is None else notify % 2**64
        return _work(self._native.write(seen[0], _place(at), value, seen if async_op else None))

    @overload
    def read(self, data: Array, at: int = 0, *, async_op: Literal[True]) -> Work: ...

    @overload
    def read(self, data: Array, at: int = 0, *, async_op: bool = False) -> Work | None: ...

    def read(self, data: Array, at: int = 0, *, async_op: bool = False) -> Work | None:
        """Read the region into an array, from byte ``at`` on."""
        seen = view(data, "data", True)
        return _work(self._native.read(seen[0], _place(at), seen if async_op else None))

    def fetch_add(self, value: int, at: int = 0) -> int:
        """Add to the word of 8 bytes that begins at byte ``at``, a multiple of 8; return what it was.

        It is a number without sign, which wraps around.
        """
        return self._native.fetch_add(value % 2**64, _place(at))

    def compare_swap(self, expected: int, value: int, at: int = 0) -> int:
        """Store ``value`` in the word that begins at byte ``at`` if that is ``expected``; return what it was."""
        return self._native.compare_swap(expected % 2**64, value % 2**64, _place(at))


def _place(at: int) -> int:
    return whole(at, "at", "bytes are counted from 0")


def _work(native: _native.Work | None) -> Work | None:
    return None if native is None else Work(native)
