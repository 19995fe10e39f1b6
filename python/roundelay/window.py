"""Windows: memory that the other ranks put to and get from."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from roundelay._buffers import View, view
from roundelay._dtypes import DType
from roundelay._options import Op, reduction, seconds
from roundelay.errors import UsageError
from roundelay.work import Work

if TYPE_CHECKING:
    from roundelay import _native

__all__ = ["Right", "Window"]

Right = Literal["read", "write", "atomics"]
"""The rights of peers: to get; to put; to accumulate, add and swap."""


class Window:
    """An array of each rank that the others put to and get from, while its owner does something else.

    Make one by ``comm.window``. Places are counted in elements, ``at`` is the first. A *signal* is seen after
    everything that its rank has put and accumulated there before; nothing else orders operations of several ranks
    (docs/windows.md). The owner reads and writes its array as always, when it knows that nobody else does: after a
    signal, between barriers.

    Operations raise ``WindowError`` if they lie beyond the end or the peer does not allow them; the window can be used
    further. With ``async_op=True`` they return a ``Work``, and the array must not be touched before that has ended.
    """

    __slots__ = ("_dtype", "_native")

    def __init__(self, native: _native.Window, dtype: DType) -> None:
        self._native = native
        self._dtype = dtype

    def put(self, data: object, peer: int, at: int = 0, *, async_op: bool = False) -> Work | None:
        """Write elements to a peer's part. A ``flush`` returns when they are there; ``data`` may be changed before."""
        seen = self._view(data, False)
        return _work(self._native.put(seen[0], peer, self._place(at), seen if async_op else None))

    def get(self, data: object, peer: int, at: int = 0, *, async_op: bool = False) -> Work | None:
        """Read elements of a peer's part into ``data``."""
        seen = self._view(data, True)
        return _work(self._native.get(seen[0], peer, self._place(at), seen if async_op else None))

    def accumulate(
        self, data: object, peer: int, at: int = 0, op: Op = "sum", *, async_op: bool = False
    ) -> Work | None:
        """Combine elements with those of a peer's part: each as one with regard to all accumulates."""
        seen = self._view(data, False)
        name = reduction(op, seen[1])[0]
        return _work(self._native.accumulate(seen[0], name, peer, self._place(at), seen if async_op else None))

    def fetch_add(self, value: int, peer: int, at: int = 0) -> int:
        """Add to the word of 8 bytes that begins at element ``at`` of a peer's part; return what it was.

        It is a number without sign, which wraps around, whatever the type of the elements is.
        """
        return self._native.fetch_add(value % 2**64, peer, self._place(at))

    def compare_swap(self, expected: int, value: int, peer: int, at: int = 0) -> int:
        """Store ``value`` in the word that begins at element ``at`` if that is ``expected``; return what it was."""
        return self._native.compare_swap(expected % 2**64, value % 2**64, peer, self._place(at))

    def signal(self, peer: int) -> None:
        """Signal a peer, after everything that this thread has done to its part."""
        self._native.signal(peer)

    def wait_signal(self, peer: int) -> None:
        """Wait for a signal of a peer, and take it: each ends one wait."""
        self._native.wait_signal(peer)

    def take_signal(self, peer: int) -> bool:
        """Take a signal of a peer if one is there; return False if none is."""
        return self._native.take_signal(peer)

    def flush(self, peer: int, *, async_op: bool = False) -> Work | None:
        """Wait until everything that this rank began on a peer's part has taken effect.

        Raises ``WindowError`` for the first operation since the last flush that the peer has refused.
        """
        return _work(self._native.flush(peer, async_op))

    def withdraw(self, *rights: Right) -> None:
        """Withdraw rights to this rank's part; when it returns, nothing is under way that needed them."""
        self._native.withdraw(list(rights))

    def len(self, peer: int) -> int:
        """Return the number of elements of a peer's part."""
        return self._native.attributes(peer)[0] // self._dtype.scale

    def is_mapped(self, peer: int) -> bool:
        """Return True if a peer's part is mapped here; else the peer's process serves it."""
        return self._native.attributes(peer)[1]

    def set_timeout(self, timeout: float | datetime.timedelta) -> None:
        """Set the longest time without progress of a wait on this window."""
        self._native.set_timeout(seconds(timeout))

    def free(self) -> None:
        """End the window on all ranks, which call together: nobody writes to the array any more."""
        self._native.free()

    def _view(self, data: object, written: bool) -> View:
        seen = view(data, "data", written)
        if seen[1].native != self._dtype.native:
            own, given = self._dtype.native, seen[1].native
            raise UsageError(f"`data` has elements of {given}, and the window of {own}")
        return seen

    def _place(self, at: int) -> int:
        if at < 0:
            raise UsageError(f"`at` is {at}: elements are counted from 0")
        return at * self._dtype.scale


def _work(native: _native.Work | None) -> Work | None:
    return None if native is None else Work(native)


def window(native: _native.Communicator, data: object, peers_may: Sequence[Right]) -> Window:
    """Make a window of an array."""
    seen = view(data, "data", True)
    return Window(native.window(seen[0], list(peers_may), seen), seen[1])
