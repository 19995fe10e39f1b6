"""Events of torch's profiler: one for each operation, with the shapes of its inputs, named as Gloo's are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.autograd.profiler as _profiler
from torch import Tensor

_thread: list[ThreadPoolExecutor] = []
"""The thread on which events end: one that another thread ends than began it is asynchronous for the profiler."""

# A process that is forked has no threads.
os.register_at_fork(after_in_child=_thread.clear)


def active() -> bool:
    """Return True if a profiler is active."""
    return bool(_profiler._is_profiler_enabled)


class Event:
    """An event that begins now."""

    def __init__(self, name: str, inputs: Sequence[Tensor]) -> None:
        record = torch._C._autograd._record_function_with_args_enter(name, *inputs)
        self._ended: Any = torch.futures.Future()
        torch.ops.profiler._call_end_callbacks_on_jit_fut(record, self._ended)

    def end(self) -> None:
        """End the event; once."""
        if not _thread:
            _thread.append(ThreadPoolExecutor(1, "roundelay-profile"))
        _thread[0].submit(self._ended.set_result, None).result()


def profiled(name: str, inputs: Sequence[Tensor], start: Callable[[], Any]) -> Any:
    """Return the work that a function starts; the event ends with it."""
    event = Event(name, inputs)
    try:
        work = start()
    except BaseException:
        event.end()
        raise
    if hasattr(work, "end_with"):
        work.end_with(event)
    else:
        event.end()
    return work
