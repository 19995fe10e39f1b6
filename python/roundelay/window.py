"""Windows: memory that the other ranks put to and get from."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from roundelay._buffers import Array, View, mapped, owner, view
from roundelay._options import Op, reduction, seconds, stream_of, whole
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
    (docs/windows.md). The owner reads and writes its array as always, when it knows that no peer does: after a
    signal, between barriers.

    Operations raise ``WindowError`` if they lie beyond the end or the peer does not allow them; the window can be used
    further. With ``async_op=True`` they return a ``Work``, and the array must not be touched before that has ended.

    If the array is on a GPU, so are those of its operations. They are put into a CUDA stream, ``stream=`` or the
    current one of the window's array (torch, cupy), and return at once, so there is no ``async_op``: what follows in
    the stream sees what they did, and ``flush`` waits for it. There ``take_signal`` and ``withdraw`` raise
    ``UnsupportedError``, and ``accumulate`` to a rank on another host.
    """

    __slots__ = ("_array", "_dtype", "_native", "_on_gpu")

    def __init__(self, native: _native.Window, seen: View) -> None:
        self._native = native
        self._dtype = seen[1]
        self._array = owner(seen)
        # The array in whose stream operations are put; None for memory of the host.
        self._on_gpu = self._array if seen[0][3] else None

    @overload
    def put(self, data: Array, peer: int, at: int = 0, *, async_op: Literal[True], stream: Any = None) -> Work: ...

    @overload
    def put(self, data: Array, peer: int, at: int = 0, *, async_op: bool = False, stream: Any = None) -> Work | None: ...

    def put(self, data: Array, peer: int, at: int = 0, *, async_op: bool = False, stream: Any = None) -> Work | None:
        """Write elements to a peer's part. A ``flush`` returns when they are there; ``data`` may be changed before.

        On a GPU it may be changed, and freed, by what follows in the stream.
        """
        seen, put_in = self._view(data, False), self._stream(stream)
        return _work(self._native.put(seen[0], peer, self._place(at), put_in, seen if async_op else None))

    @overload
    def get(self, data: Array, peer: int, at: int = 0, *, async_op: Literal[True], stream: Any = None) -> Work: ...

    @overload
    def get(self, data: Array, peer: int, at: int = 0, *, async_op: bool = False, stream: Any = None) -> Work | None: ...

    def get(self, data: Array, peer: int, at: int = 0, *, async_op: bool = False, stream: Any = None) -> Work | None:
        """Read elements of a peer's part into ``data``; on a GPU they are there for what follows in the stream."""
        seen, put_in = self._view(data, True), self._stream(stream)
        return _work(self._native.get(seen[0], peer, self._place(at), put_in, seen if async_op else None))

    @overload
    def accumulate(
        self, data: Array, peer: int, at: int = 0, op: Op = "sum", *, async_op: Literal[True], stream: Any = None
    ) -> Work: ...

    @overload
    def accumulate(
        self, data: Array, peer: int, at: int = 0, op: Op = "sum", *, async_op: bool = False, stream: Any = None
    ) -> Work | None: ...

    def accumulate(
        self, data: Array, peer: int, at: int = 0, op: Op = "sum", *, async_op: bool = False, stream: Any = None
    ) -> Work | None:
        """Combine elements with those of a peer's part: each as one with regard to all accumulates."""
        seen, put_in = self._view(data, False), self._stream(stream)
        name = reduction(op, seen[1])[0]
        place = self._place(at)
        return _work(self._native.accumulate(seen[0], name, peer, place, put_in, seen if async_op else None))

    @overload
    def fetch_add(self, value: int, peer: int, at: int = 0) -> int: ...

    @overload
    def fetch_add(self, value: int, peer: int, at: int = 0, *, before: Array, stream: Any = None) -> None: ...

    def fetch_add(
        self, value: int, peer: int, at: int = 0, *, before: Array | None = None, stream: Any = None
    ) -> int | None:
        """Add to the word of 8 bytes that begins at element ``at`` of a peer's part; return what it was.

        It is a number without sign, which wraps around, whatever the type of the elements is. On a GPU what it was goes
        to the first 8 bytes of ``before``, an array there, in the stream.
        """
        place = self._place(at)
        if before is None:
            self._needs_no_place()
            return self._native.fetch_add(value % 2**64, peer, place)
        seen, put_in = self._word(before, stream)
        self._native.fetch_add_into(value % 2**64, peer, place, seen[0], put_in)
        return None

    @overload
    def compare_swap(self, expected: int, value: int, peer: int, at: int = 0) -> int: ...

    @overload
    def compare_swap(
        self, expected: int, value: int, peer: int, at: int = 0, *, before: Array, stream: Any = None
    ) -> None: ...

    def compare_swap(
        self, expected: int, value: int, peer: int, at: int = 0, *, before: Array | None = None, stream: Any = None
    ) -> int | None:
        """Store ``value`` in the word that begins at element ``at`` if that is ``expected``; return what it was.

        On a GPU as ``fetch_add``.
        """
        words, place = (expected % 2**64, value % 2**64), self._place(at)
        if before is None:
            self._needs_no_place()
            return self._native.compare_swap(*words, peer, place)
        seen, put_in = self._word(before, stream)
        self._native.compare_swap_into(*words, peer, place, seen[0], put_in)
        return None

    def signal(self, peer: int, *, stream: Any = None) -> None:
        """Signal a peer, after everything that this thread has done to its part; on a GPU, has put into streams."""
        self._native.signal(peer, self._stream(stream))

    def wait_signal(self, peer: int, *, stream: Any = None) -> None:
        """Wait for a signal of a peer, and take it: each ends one wait.

        On a GPU what follows in the stream waits. ``flush`` raises ``OperationTimeoutError`` if the signal does not
        come.
        """
        self._native.wait_signal(peer, self._stream(stream))

    def take_signal(self, peer: int) -> bool:
        """Take a signal of a peer if one is there; return False if none is."""
        return self._native.take_signal(peer)

    @overload
    def flush(self, peer: int, *, async_op: Literal[True], stream: Any = None) -> Work: ...

    @overload
    def flush(self, peer: int, *, async_op: bool = False, stream: Any = None) -> Work | None: ...

    def flush(self, peer: int, *, async_op: bool = False, stream: Any = None) -> Work | None:
        """Wait until everything that this rank began on a peer's part has taken effect.

        Raises ``WindowError`` for the first operation since the last flush that the peer has refused. On a GPU it waits
        for everything in the stream, and raises what went wrong there: ``OperationTimeoutError`` or ``LostRankError``
        for a signal that did not come, which end the communicator.
        """
        return _work(self._native.flush(peer, async_op, self._stream(stream)))

    def withdraw(self, *rights: Right) -> None:
        """Withdraw rights to this rank's part; when it returns, nothing is under way that needed them."""
        self._native.withdraw(list(rights))

    def len(self, peer: int) -> int:
        """Return the number of elements of a peer's part."""
        return self._native.attributes(peer)[0] // self._dtype.scale

    def map_remote(self, peer: int) -> int:
        """Return the address of a peer's part as it is mapped here, as long as the window is: on a GPU, for kernels.

        Raises ``WindowError`` for a part that is not mapped: one on another host, or in memory of the host that is not
        of ``comm.alloc``.
        """
        return self._native.map_remote(peer)

    def view_remote(self, peer: int) -> memoryview:
        """Return the bytes of a peer's part as they are mapped here: read-only if the peer may not be written to.

        It is the peer's part until the window is freed, and so long the peer cannot withdraw rights; afterwards it is
        memory of the peer that may serve something else, and must not be used. Loads and stores have no order but that
        of signals. Raises ``WindowError`` as ``map_remote``, and ``UnsupportedError`` on GPUs.

        >>> theirs = numpy.frombuffer(window.view_remote(1), numpy.float32)
        """
        return mapped(self._native.view_remote(peer), self._array)

    def is_mapped(self, peer: int) -> bool:
        """Return True if a peer's part is mapped here; else the peer's process serves it."""
        return self._native.attributes(peer)[1]

    def set_timeout(self, timeout: float | datetime.timedelta) -> None:
        """Set the longest time without progress of a wait on this window."""
        self._native.set_timeout(seconds(timeout))

    def free(self) -> None:
        """End the window on all ranks, which call together: no peer writes to the array any more."""
        self._native.free()

    def _view(self, data: object, written: bool) -> View:
        seen = view(data, "data", written)
        if seen[1].native != self._dtype.native:
            own, given = self._dtype.native, seen[1].native
            raise UsageError(f"`data` has elements of {given}, and the window of {own}")
        return seen

    def _stream(self, stream: Any) -> int | None:
        if self._on_gpu is not None:
            return stream_of(stream, self._on_gpu)
        if stream is not None:
            raise UsageError("`stream` is given, and the window is of memory of the host: it has no stream")
        return None

    def _word(self, before: Array, stream: Any) -> tuple[View, int]:
        put_in = self._stream(stream)
        if put_in is None:
            raise UsageError("`before` is given, and the window is of memory of the host: the word is returned")
        return view(before, "before", True), put_in

    def _needs_no_place(self) -> None:
        if self._on_gpu is not None:
            raise UsageError("`before` is not given: pass an array on the GPU of 8 bytes, for what the word was")

    def _place(self, at: int) -> int:
        return whole(at, "at", "elements are counted from 0") * self._dtype.scale


def _work(native: _native.Work | None) -> Work | None:
    return None if native is None else Work(native)


def window(native: _native.Communicator, data: Array, peers_may: Sequence[Right]) -> Window:
    """Make a window of an array."""
    seen = view(data, "data", True)
    return Window(native.window(seen[0], list(peers_may), seen), seen)
