"""Messages between single ranks, at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

from roundelay._buffers import Array, View, view
from roundelay._core import apart

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from roundelay._core import Core
    from roundelay._options import CallOptions, Options
    from roundelay.work import Work

__all__ = ["Batch"]


class Batch:
    """Messages that are sent and received at once, so that their order on the ranks does not matter.

    ``comm.batch().send(a, 1).recv(b, 1).run()`` exchanges two buffers with rank 1. Between two ranks messages arrive
    in the order in which they were added.
    """

    __slots__ = ("_comm", "_messages")

    def __init__(self, comm: Core) -> None:
        self._comm = comm
        self._messages: list[tuple[View, int, bool]] = []

    def send(self, data: Array, dst: int) -> Self:
        """Add a message to rank ``dst``."""
        self._messages.append((view(data, "data", False), self._comm._peer(dst, "dst"), True))
        return self

    def recv(self, data: Array, src: int) -> Self:
        """Add a message from rank ``src``, of as many elements and the same type as ``data``."""
        self._messages.append((view(data, "data", True), self._comm._peer(src, "src"), False))
        return self

    @overload
    def run(self, *, async_op: Literal[True], **options: Unpack[CallOptions]) -> Work: ...

    @overload
    def run(self, **options: Unpack[Options]) -> Work | None: ...

    def run(self, **options: Unpack[Options]) -> Work | None:
        """Send and receive all of them; the batch can be run again."""
        messages = self._messages
        if len(messages) > 1:
            apart([m[0] for m in messages if not m[2]], [m[0] for m in messages if m[2]])
        return self._comm._messages(messages, options)

    def __len__(self) -> int:
        return len(self._messages)
