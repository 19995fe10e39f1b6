"""Operations in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from roundelay.errors import OperationTimeoutError

if TYPE_CHECKING:
    from roundelay import _native

__all__ = ["Work"]


class Work:
    """An operation that a call with ``async_op=True`` started.

    Dropped, it goes on; the arrays of the call live until it has ended, and must not be touched before. Any thread
    may use it, and ``await work`` waits in a coroutine.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.Work) -> None:
        self._native = native

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of the operation, at most ``timeout`` seconds.

        Other threads run meanwhile, and Ctrl-C interrupts the wait. Raises the error of the operation, or
        ``OperationTimeoutError`` if it has not ended in time; it goes on then.
        """
        if not self._native.wait(timeout):
            raise OperationTimeoutError(f"the operation has not ended within {timeout:g} s; it goes on", code="RL0703")

    def done(self) -> bool:
        """Return True if the operation has ended, with or without success."""
        return self._native.done()

    def exception(self) -> BaseException | None:
        """Return the error of an operation that has failed; None if it has not, or not ended yet."""
        return self._native.exception()

    def source(self) -> int | None:
        """Return the rank that sent a message that was received; None before, and of other operations."""
        return self._native.source()

    def add_done_callback(self, callback: Callable[[Work], object]) -> None:
        """Have ``callback(work)`` called once, when the operation has ended, or now if it has.

        It is called on a thread of its own, and may start operations and wait for them. What it raises is reported by
        ``sys.unraisablehook``. The end of the program waits for callbacks that are due, up to half a minute, and gives
        operations half a second to end; callbacks of operations that have not ended then are never called.
        """
        self._native.add_done_callback(lambda: callback(self))

    def __await__(self) -> Generator[Any, None, None]:
        """Wait for the end of the operation in a coroutine."""
        if not self.done():
            loop = asyncio.get_running_loop()
            ended: asyncio.Future[None] = loop.create_future()

            def wake() -> None:
                if not ended.done():
                    ended.set_result(None)

            def tell(_: Work) -> None:
                # A loop that was closed meanwhile waits no more.
                if not loop.is_closed():
                    loop.call_soon_threadsafe(wake)

            self.add_done_callback(tell)
            yield from ended.__await__()
        self.wait()

    def __repr__(self) -> str:
        return f"<roundelay.Work: {self._native.status().replace('_', ' ')}>"
