"""Sends and receives of tensors on GPUs, which are batches in a stream.

A send or receive that is started and not waited for is collected; all that were collected are issued as one batch
when one of them is waited for, when ``batch_isend_irecv`` ends, or when another operation of this thread comes. So
``irecv`` before ``isend`` on both ranks ends, in whatever order the two are waited for.

Messages between two ranks arrive in the order in which they are sent. A tag other than 0 travels in a header before
the message; a receive that wants another tag puts what comes aside, where a later receive finds it.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work
from torch import Tensor

from .. import errors
from ._errors import MismatchError, face, timed_out
from ._memory import Finish, address
from ._work import BackendWork, OnStream, Promise, seconds

if TYPE_CHECKING:
    from .._native import Communicator
    from .._native import Work as NativeWork

_HEADER = struct.Struct("<8sqqq9x")
"""Magic, tag, bytes, spare: of a length that messages seldom have, so that one without a tag is recognised."""

_MAGIC = b"rl tag 1"

_open: dict[int, set[Messages]] = {}
"""The groups in which a thread has collected messages that are not issued yet."""


@dataclass
class Message:
    """A tensor on its way; ``tensor`` is plain memory."""

    tensor: Tensor
    peer: int
    is_send: bool
    tag: int
    finish: list[Finish] = field(default_factory=list)


class Batch:
    """Messages that are issued at once."""

    def __init__(self, group: Messages) -> None:
        self.group = group
        self.messages: list[Message] = []
        self.mutex = threading.Lock()
        self.native: NativeWork | None = None
        self.on_stream: OnStream | None = None
        self.stream: Any = None
        """The stream of the GPU in which the messages were made: what they read is there."""
        self.ended = False
        self.error: BaseException | None = None

    def start(self) -> None:
        """Issue the messages in the background; those with tags are exchanged here."""
        self.group.close(self)
        with self.mutex:
            if self.ended or self.native is not None:
                return
            if any(message.tag for message in self.messages) or not self.messages:
                self._perform()
                return
            tensors = [message.tensor for message in self.messages]
            if tensors[0].is_cuda:
                self._perform()
                return
            try:
                self.native = self.group.comm.messages(plain(self.messages), None, None, tensors)
            except RuntimeError as error:
                self._end(face(error, own="send/recv"))
                return
            if any(message.finish for message in self.messages):
                assert self.native is not None
                self.native.add_done_callback(self._settle)

    def run(self, limit: float | None) -> None:
        """Wait for the end of the messages; issue them on this thread if they are not yet."""
        self.group.close(self)
        with self.mutex:
            if not self.ended and self.native is None:
                self._perform()
        if not self.ended:
            assert self.native is not None
            try:
                if not self.native.wait(limit):
                    raise timed_out("send/recv operation to complete", limit or 0.0)
            except RuntimeError as error:
                raise face(error, limit, "send/recv") from None
            self._settle()
        if self.error is not None:
            raise self.error

    def is_ended(self) -> bool:
        """Issue the messages if they are not yet; return True if they have ended, or are in the stream of a GPU."""
        self.start()
        if not self.ended:
            if self.native is None or not self.native.done():
                return False
            self._settle()
        return True

    def on_end(self, callback: Any) -> None:
        """Have a function called when the messages have ended; issue them if they are not yet."""
        self.start()
        native = self.native
        if self.ended or native is None:
            callback()
            return

        def ended() -> None:
            self._settle()
            callback()

        native.add_done_callback(ended)

    def _settle(self) -> None:
        with self.mutex:
            if not self.ended:
                assert self.native is not None
                error = self.native.exception()
                self._end(None if error is None else face(error, own="send/recv"))

    def _end(self, error: BaseException | None) -> None:
        if error is None:
            for message in self.messages:
                for finish in message.finish:
                    finish()
        self.messages = []
        self.error = error
        self.ended = True

    def _perform(self) -> None:
        try:
            with torch.cuda.stream(self.stream):
                tensors = [message.tensor for message in self.messages]
                self.group.perform(self.messages)
                self._end(None)
                if self.stream is not None:
                    self.on_stream = OnStream(None, self.stream.device, tensors)
        except RuntimeError as error:
            self._end(face(error, own="send/recv"))
        except BaseException as error:
            self._end(error)
            raise


class Messages:
    """The sends and receives of one group."""

    def __init__(self, comm: Communicator) -> None:
        self.comm = comm
        self._current: Batch | None = None
        self._thread = 0
        self._lock = threading.Lock()
        self._early: dict[int, list[tuple[int, Tensor]]] = {}

    def add(self, message: Message) -> CollectedWork:
        """Collect a message; issue those before it if they are of another stream."""
        device = message.tensor.device
        stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        current = self._current
        if current is not None and current.stream != stream:
            current.start()
        with self._lock:
            if self._current is None:
                self._current = Batch(self)
                self._current.stream = stream
                self._thread = threading.get_ident()
                _open.setdefault(self._thread, set()).add(self)
            self._current.messages.append(message)
            return CollectedWork(self._current, message)

    def close(self, batch: Batch) -> None:
        """Have messages that follow be of another batch."""
        with self._lock:
            if self._current is batch:
                self._current = None
                groups = _open.get(self._thread, set())
                groups.discard(self)
                if not groups:
                    _open.pop(self._thread, None)

    def start(self) -> Batch | None:
        """Issue what was collected, in the background."""
        batch = self._current
        if batch is not None:
            batch.start()
        return batch

    def perform(self, messages: Sequence[Message]) -> None:
        """Exchange messages on this thread."""
        if not any(message.tag for message in messages):
            if messages:
                self._exchange(plain(messages), messages[0].tensor)
            return
        queues: dict[tuple[int, bool], list[Message]] = {}
        for message in messages:
            queues.setdefault((message.peer, message.is_send), []).append(message)
        while queues:
            self._round(queues)
            queues = {key: queue for key, queue in queues.items() if queue}

    def _round(self, queues: dict[tuple[int, bool], list[Message]]) -> None:
        """Exchange, with each peer each way, messages without a tag, or one with a tag."""
        first: list[tuple[Any, int, bool]] = []
        second: list[tuple[Any, int, bool]] = []
        headers: list[tuple[Message, Tensor]] = []
        for (peer, is_send), queue in queues.items():
            if not queue[0].tag:
                while queue and not queue[0].tag:
                    first.append((address(queue.pop(0).tensor), peer, is_send))
                continue
            message = queue[0]
            if not is_send and self._found(message):
                queue.pop(0)
                continue
            size = message.tensor.numel() * message.tensor.element_size()
            packed = _HEADER.pack(_MAGIC, message.tag, size, 0) if is_send else bytes(_HEADER.size)
            header = torch.frombuffer(bytearray(packed), dtype=torch.int8).to(message.tensor.device)
            first.append((address(header), peer, is_send))
            headers.append((message, header))
            if is_send:
                queue.pop(0)
                second.append((address(message.tensor), peer, True))
        if first:
            self._exchange(first, headers[0][1] if headers else None)
        early: list[tuple[int, int, Tensor]] = []
        for message, header in headers:
            if message.is_send:
                continue
            tag, size = self._read(header, message)
            if tag == message.tag:
                self._fits(message, size)
                queues[message.peer, False].pop(0)
                second.append((address(message.tensor), message.peer, False))
            else:
                # Typed as the receive that is next, which is what a sender of several tags usually sends.
                aside = torch.empty(size, dtype=torch.uint8, device=message.tensor.device)
                like = aside.view(message.tensor.dtype) if size % message.tensor.element_size() == 0 else aside
                early.append((message.peer, tag, aside))
                second.append((address(like), message.peer, False))
        if second:
            self._exchange(second, headers[0][1])
        for peer, tag, aside in early:
            self._early.setdefault(peer, []).append((tag, aside))

    def _found(self, message: Message) -> bool:
        """Take a message that was put aside."""
        waiting = self._early.get(message.peer, [])
        for index, (tag, data) in enumerate(waiting):
            if tag == message.tag:
                self._fits(message, data.numel())
                del waiting[index]
                message.tensor.copy_(data.view(message.tensor.dtype).view(message.tensor.shape))
                return True
        return False

    def _fits(self, message: Message, size: int) -> None:
        wanted = message.tensor.numel() * message.tensor.element_size()
        if wanted != size:
            raise MismatchError(
                f"roundelay: Collective mismatch across ranks: rank {message.peer} sends {size} bytes with tag {message.tag}, "
                f"but the tensor that receives them has {wanted}: both ends need the same shape and type",
                code="RL0702",
                peer=message.peer,
            )

    def _read(self, header: Tensor, message: Message) -> tuple[int, int]:
        magic, tag, size, _ = _HEADER.unpack(header.cpu().numpy().tobytes())
        if magic != _MAGIC:
            raise MismatchError(
                f"roundelay: Collective mismatch across ranks: a receive with tag {message.tag} meets a send without a tag of "
                f"rank {message.peer}: give both ends the same tag",
                code="RL0702",
                peer=message.peer,
            )
        return tag, size

    def _exchange(self, messages: list[tuple[Any, int, bool]], tensor: Tensor | None) -> None:
        stream = None
        if tensor is not None and tensor.is_cuda:
            stream = torch.cuda.current_stream(tensor.device).cuda_stream
        try:
            self.comm.messages(messages, None, stream, None)
        except errors.MismatchError as error:
            raise face(error, own="send/recv") from None


def plain(messages: Sequence[Message]) -> list[tuple[Any, int, bool]]:
    """Return messages as the native part takes them."""
    return [(address(message.tensor), message.peer, message.is_send) for message in messages]


def flush_others(own: Messages) -> None:
    """Issue what this thread has collected in other groups, whose ranks may wait for it."""
    for group in list(_open.get(threading.get_ident(), ())):
        if group is not own:
            group.start()


class CollectedWork(BackendWork):
    """A send or receive."""

    def __init__(self, batch: Batch, message: Message) -> None:
        super().__init__()
        self._batch = batch
        self._tensors = [message.tensor]
        self._peer = message.peer

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Issue what was collected, if that is not done, and wait for it."""
        self._batch.run(seconds(timeout))
        if self._batch.on_stream is not None:
            self._batch.on_stream.wait()
        return True

    def _future(self) -> Any:
        """Return a future of the tensor; issue what was collected."""
        if self._batch.stream is not None:
            self._batch.start()
            device = self._batch.stream.device
            if self._batch.on_stream is not None:
                self._batch.on_stream.wait()
            ended = Promise([device])
            ended.end(self._tensors, self._batch.error)
            return ended.future
        promise = Promise()
        self._batch.on_end(lambda: promise.end(self._tensors, self._batch.error))
        return promise.future

    def is_completed(self) -> bool:
        """Issue what was collected; return True if it has ended, and the tensors are written."""
        return self._batch.is_ended() and (self._batch.on_stream is None or self._batch.on_stream.is_completed())

    def is_success(self) -> bool:
        """Return True if the messages have ended with success."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """Return the error, if there is one by now."""
        native = self._batch.native
        if self._batch.error is not None or native is None:
            return self._batch.error
        error = native.exception()
        return None if error is None else face(error, own="send/recv")

    def result(self) -> list[Tensor]:
        """Wait, and return the tensor in a list."""
        self.wait()
        return self._tensors

    def source_rank(self) -> int:
        """Return the rank at the other end."""
        return self._peer

    def _source_rank(self) -> int:
        return self._peer

    def synchronize(self) -> None:
        """Wait for the end."""
        self.wait()


class BatchWork(CollectedWork):
    """All messages of a batch: what ``batch_isend_irecv`` waits for."""

    def __init__(self, batch: Batch) -> None:
        Work.__init__(self)
        self._batch = batch
        self._tensors = [message.tensor for message in batch.messages]
        self._peer = -1
