"""Sends and receives of tensors in host memory: messages with tags, in any order and from any rank, beside collectives.

Each is started at once and needs nothing of this thread: ``irecv`` before ``isend`` on both ranks ends, in whatever
order they are waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from ._errors import face
from ._memory import Address, Finish, address
from ._work import Done, Failed, Pending

if TYPE_CHECKING:
    from .._native import Work as NativeWork
    from ._calls import Calls


class MessageWork(Pending):
    """A send or receive in the background."""

    def __init__(
        self, native: NativeWork, tensor: Tensor, finish: Sequence[Finish], failed: Failed, peer: int | None
    ) -> None:
        super().__init__([native], [tensor], finish, "send/recv", failed)
        self._peer = peer

    def source_rank(self) -> int:
        """Return the rank at the other end; of a receive from any rank, wait for it."""
        if self._peer is None:
            self.wait()
            self._peer = self._natives[0].source()
        return -1 if self._peer is None else self._peer

    def _source_rank(self) -> int:
        return self.source_rank()


def begin(calls: Calls, place: Address, peer: int | None, is_send: bool) -> None:
    """Note a message, which is not over."""
    out, into = (None, place) if is_send else (place, None)
    calls.messages_record.begin([("send" if is_send else "recv", out, into, peer)], calls.timeout)


def start(
    calls: Calls, tensor: Tensor, peer: int | None, tag: int, is_send: bool, finish: Sequence[Finish]
) -> MessageWork | Done:
    """Start a message of plain memory: to or from a rank, or from any where there is none."""
    comm = calls.comm
    place = address(tensor)
    begin(calls, place, peer, is_send)
    try:
        if is_send:
            assert peer is not None
            source: int | None = peer
            native = comm.send(place, peer, tag, None, tensor)
        else:
            source, native = comm.recv(place, peer, tag, None, tensor)
    except RuntimeError as error:
        raise calls.failed(face(error, own="send/recv")) from None
    if native is None:
        calls.messages_record.open = 0
        for due in finish:
            due()
        return Done([tensor], -1 if source is None else source)
    calls.messages_record.started(native)
    return MessageWork(native, tensor, finish, calls.failed, peer)
