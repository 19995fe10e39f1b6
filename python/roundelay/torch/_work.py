"""Work: operations that have ended, or go on in the background."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C._distributed_c10d import Work

from ._errors import described, face, timed_out
from ._holder import NO_FUTURE, found_in_holder, searched_holders
from ._memory import Finish
from ._version import VERSION

if TYPE_CHECKING:
    from .._native import Work as NativeWork
    from ._profile import Event

Future = torch.futures.Future
Failed = Callable[[BaseException], BaseException]
"""What is to be done with the error of an operation, which it returns."""


class Promise:
    """A future that can fail for code in C++ too, such as DDP's.

    ``Future.set_exception`` completes a future with the exception as its value, which only the Python object raises:
    others take it for the result. The error of a callback is one for all; torch makes it a ``RuntimeError`` whose text
    has the class and the text of ours.
    """

    def __init__(self, devices: Sequence[torch.device] = ()) -> None:
        self._result: Any = None
        self._error: BaseException | None = None
        self._ended: Any = Future(devices=list(devices))
        self.future: Any = self._ended.then(self._value)

    def _value(self, _: Any) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def end(self, result: Any, error: BaseException | None) -> None:
        """Complete the future with a result, or with an error if there is one."""
        self._result = result
        self._error = error
        self._ended.set_result(None)

    def reached(self) -> None:
        """Wait until the future is complete, which another thread has begun to do; its callbacks are not waited for."""
        try:
            self.future.wait()
        except Exception:  # Its error is that of the operation, which has been or will be raised.
            pass


def seconds(timeout: timedelta | None) -> float | None:
    """Return a timeout in seconds; torch says "unset" by zero or a negative time."""
    if timeout is None:
        return None
    total = timeout.total_seconds()
    return total if total > 0 else None


class BackendWork(Work):
    """Work that a backend in Python returns, which torch passes to programs in a holder (:mod:`._holder`)."""

    def get_future(self) -> Any:
        """Return the future of the operation."""
        return NO_FUTURE if searched_holders and found_in_holder(self) else self._future()

    def _future(self) -> Any:
        raise NotImplementedError


class Done(BackendWork):
    """Work that has ended with success."""

    def __init__(self, result: Any = None, source: int = -1) -> None:
        super().__init__()
        self._result = result
        self._source = source

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return at once."""
        return True

    def _future(self) -> Any:
        """Return a completed future of the output tensors."""
        future: Any = Future()
        future.set_result(self._result)
        return future

    def is_completed(self) -> bool:
        """Return True."""
        return True

    def is_success(self) -> bool:
        """Return True."""
        return True

    def exception(self) -> BaseException | None:
        """Return None."""
        return None

    def result(self) -> Any:
        """Return the output tensors."""
        return self._result

    def source_rank(self) -> int:
        """Return the rank that a message came from."""
        return self._source

    def _source_rank(self) -> int:
        return self._source

    def synchronize(self) -> None:
        """Return at once."""


def ended(result: Any) -> Done | None:
    """Return the work of a call that was not asynchronous and has ended: None, which torch takes since 2.8.

    To make a work, and torch's two for it, and to wait for it costs twice as much as a short call.
    """
    return None if VERSION >= (2, 8) else Done(result)


class Pending(BackendWork):
    """Operations in the background, which end in the order in which they were started."""

    def __init__(
        self,
        natives: Sequence[NativeWork],
        result: Any,
        finish: Sequence[Finish],
        label: str,
        failed: Failed | None = None,
        calls: Sequence[tuple[Any, ...]] = (),
    ) -> None:
        super().__init__()
        self._natives = natives
        self._failed = failed
        self._calls = calls
        self._result = result
        self._finish = list(finish)
        self._label = label
        self._lock = threading.Lock()
        self._promise: Promise | None = None
        self._error: BaseException | None = None
        self._ended = False
        self._completed = False
        self._event: Event | None = None
        if self._finish:
            # The copies are due even without a waiter.
            natives[-1].add_done_callback(self._settle)

    def end_with(self, event: Event) -> None:
        """Have an event of the profiler end with the operations."""
        self._event = event
        self._natives[-1].add_done_callback(self._settle)

    def _settle(self) -> None:
        """Take note of the end of the operations, which has come, and make the copies that are due."""
        with self._lock:
            if self._ended:
                return
            for native in self._natives:
                error = native.exception()
                if error is not None:
                    self._error = face(error, None, described(self._calls))
                    break
            else:
                for finish in self._finish:
                    finish()
            self._finish = []
            if self._event is not None:
                self._event.end()
                self._event = None
            self._ended = True
        if self._error is not None and self._failed is not None:
            self._failed(self._error)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the end; raise the error of the operation, or one that begins with "Timed out"."""
        limit = seconds(timeout)
        if not self._ended:
            try:
                for native in self._natives:
                    if not native.wait(limit):
                        raise timed_out(f"{self._label} operation to complete", limit or 0.0)
            except RuntimeError as error:
                made = face(error, limit, described(self._calls))
                if made is not error and self._failed is not None:
                    self._failed(made)
                raise made from None
            self._settle()
        if self._promise is not None:
            # Callbacks that are added from now on run at once, whichever thread completes the future.
            self._complete()
            self._promise.reached()
        if self._error is not None:
            raise self._error
        return True

    def _future(self) -> Any:
        """Return a future of the output tensors: completed if the operations have ended, or else on a thread that may
        wait for others.

        Callbacks of a completed future run at once where they are added, which programs rely on after ``wait``.
        """
        with self._lock:
            if self._promise is not None:
                return self._promise.future
            promise = self._promise = Promise()
        if self.is_completed():
            self._complete()
        else:
            self._natives[-1].add_done_callback(self._complete)
        return promise.future

    def _complete(self) -> None:
        self._settle()
        assert self._promise is not None
        with self._lock:
            is_first, self._completed = not self._completed, True
        if is_first:
            self._promise.end(self._result, self._error)

    def is_completed(self) -> bool:
        """Return True if the operations have ended, with or without success, and the output tensors are written."""
        if not self._ended:
            if not all(native.done() for native in self._natives):
                return False
            self._settle()
        return True

    def is_success(self) -> bool:
        """Return True if the operations have ended with success."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """Return the error, if there is one by now."""
        for native in self._natives:
            error = native.exception()
            if error is not None:
                return face(error, own=self._label)
        return None

    def result(self) -> Any:
        """Wait, and return the output tensors."""
        self.wait()
        return self._result

    def synchronize(self) -> None:
        """Wait for the end."""
        self.wait()


def raw_stream(index: int) -> int:
    """Return the current stream of a GPU as the driver names it; 0 is the default stream."""
    return int(torch._C._cuda_getCurrentRawStream(index))


_streams: dict[tuple[int, int], torch.cuda.Stream] = {}
"""The streams that were current, by GPU and by the driver's name: to make torch's object takes several times as long."""


def current_stream(index: int) -> torch.cuda.Stream:
    """Return the current stream of a GPU."""
    key = (index, torch._C._cuda_getCurrentRawStream(index))
    found = _streams.get(key)
    if found is None:
        found = _streams[key] = torch.cuda.current_stream(index)
    return found


def _event() -> Any:
    """Return an event of the class below torch's own, whose methods are functions of Python around those of this one."""
    return torch._C._CudaEventBase()


class Beside:
    """A stream of a GPU for operations that go on beside what the caller puts into its own."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.raw = int(self.stream.cuda_stream)
        self.events: list[Any] = []
        """Events that no work needs any more: to make one takes as long as a short operation."""
        self._index = device.index
        self._forked = _event()

    def follow(self) -> None:
        """Have what is put there now come after what is in the current stream."""
        self._forked.record(current_stream(self._index))
        self._forked.wait(self.stream)

    def ended(self) -> Any:
        """Return an event that comes after what is there by now."""
        event = self.events.pop() if self.events else _event()
        event.record(self.stream)
        return event


def _tensors(kept: Any, found: dict[int, torch.Tensor]) -> None:
    """Collect the tensors of what is kept, each once."""
    if isinstance(kept, torch.Tensor):
        found[id(kept)] = kept
    elif isinstance(kept, (list, tuple)):
        for each in kept:
            _tensors(each, found)


class OnStream(BackendWork):
    """Operations in the current stream of a GPU, or in one beside it, up to the event that follows them.

    It keeps their tensors as long as it lives. If no stream has waited by then, their memory is used anew only when the
    operations are done.
    """

    _awaited = False
    _beside: Beside | None = None

    def __init__(
        self, result: Any, device: torch.device, keep: Any = None, beside: Beside | None = None
    ) -> None:
        Work.__init__(self)
        self._result = result
        self._device = device
        self._keep = keep
        if beside is not None:
            self._stream, self._raw, self._event = beside.stream, beside.raw, beside.ended()
            self._beside = beside
            return
        self._stream, self._raw = current_stream(device.index), raw_stream(device.index)
        self._event = _event()
        self._event.record(self._stream)

    def __del__(self) -> None:
        if not self._awaited and not sys.is_finalizing():
            found: dict[int, torch.Tensor] = {}
            _tensors((self._keep, self._result), found)
            for tensor in found.values():
                tensor.record_stream(self._stream)
        if self._beside is not None:
            self._beside.events.append(self._event)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Have the current stream wait for the operations."""
        self._awaited = True
        index = self._device.index
        if torch._C._cuda_getCurrentRawStream(index) != self._raw:
            self._event.wait(current_stream(index))
        return True

    def _future(self) -> Any:
        """Return a future of the output tensors, which are there in the order of the streams.

        It is complete for those streams that wait for it. DDP asks for one of each bucket, between its kernels: what
        ``torch.cuda.stream`` and ``torch.futures.Future`` do in Python takes longer than the operation's start.
        """
        device = self._device
        future: Any = torch._C.Future([device])
        if torch._C._cuda_getDevice() != device.index:
            with torch.cuda.stream(self._stream):
                future.set_result(self._result)
            return future
        before = torch._C._cuda_getCurrentStream(device.index)
        stream = self._stream
        torch._C._cuda_setStream(stream.stream_id, stream.device_index, stream.device_type)
        try:
            future.set_result(self._result)
        finally:
            torch._C._cuda_setStream(*before)
        return future

    def is_completed(self) -> bool:
        """Return True if the GPU has done the operations."""
        return bool(self._event.query())

    def is_success(self) -> bool:
        """Return True if the GPU has done the operations."""
        return self.is_completed()

    def exception(self) -> BaseException | None:
        """Return None: an error of a GPU is raised by a later operation of the group."""
        return None

    def result(self) -> Any:
        """Return the output tensors."""
        return self._result

    def source_rank(self) -> int:
        """Return -1: there is none."""
        return -1

    def _source_rank(self) -> int:
        return -1

    def synchronize(self) -> None:
        """Have the current stream wait for the operations."""
        self.wait()
