"""Work: operations of a communicator that have ended, or go on in the background."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import OperationTimeoutError
from ._types import WorkStatus


class TorchWork:
    """An operation.

    On CPU ``wait`` waits for its end; on a GPU it has the current stream wait. Dropped, the operation goes on, and its
    tensors live until it has ended.
    """

    __slots__ = ("_device", "_waited", "_work")

    def __init__(self, work: Any, device: torch.device) -> None:
        self._work = work
        self._device = device
        self._waited: WorkStatus | None = None

    def wait(self) -> None:
        """Wait for the end of the operation, as often as one likes; raise its error."""
        try:
            self._work.wait()
        except Exception as error:
            self._waited = WorkStatus.TIMEDOUT if isinstance(error, OperationTimeoutError) else WorkStatus.ERROR
            raise
        self._waited = WorkStatus.COMPLETED

    def wait_blocking(self) -> None:
        """Wait on this thread until the operation has ended, on a GPU too; raise its error."""
        self.wait()
        event = getattr(self._work, "_event", None)
        if event is not None:
            event.synchronize()
        elif self._device.type == "cuda":
            # It was put into a stream that may not be the current one any more.
            torch.cuda.synchronize(self._device)

    def is_completed(self) -> bool:
        """Return True if the operation has ended with success. Never waits."""
        return self.status() is WorkStatus.COMPLETED

    def status(self) -> WorkStatus:
        """Return the state of the operation. Never waits."""
        if self._waited in (WorkStatus.TIMEDOUT, WorkStatus.ERROR):
            return self._waited
        if not self._work.is_completed():
            return WorkStatus.INPROGRESS
        exception = getattr(self._work, "exception", None)
        error = exception() if exception is not None else None
        if error is None:
            return WorkStatus.COMPLETED
        return WorkStatus.TIMEDOUT if isinstance(error, OperationTimeoutError) else WorkStatus.ERROR

    def __repr__(self) -> str:
        return f"<roundelay.torchcomms.TorchWork: {self.status().name}>"
