"""Persistent operations: what is known before the first call is said once."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import UsageError
from ._base import CallHints, CallTimeout


class AllGatherPHandle:
    """An all_gather whose output is known. ``all_gather_p_exec`` runs it, as often as one likes."""

    __slots__ = ("_comm", "_output", "hints", "timeout")

    def __init__(self, comm: Any, output: Tensor, hints: CallHints, timeout: CallTimeout) -> None:
        if output.numel() % comm.get_size() != 0:
            raise UsageError(
                f"all_gather_p_init: the output has {output.numel()} elements, which {comm.get_size()} ranks do not divide"
            )
        self._comm = comm
        self._output: Tensor | None = output
        self.hints = hints
        self.timeout = timeout

    def output_of(self, comm: Any, what: str) -> Tensor:
        """Return the output. Raises ``UsageError`` if the handle was freed, or is another communicator's."""
        if self._output is None:
            raise UsageError(f"{what}: the handle was freed: call all_gather_p_init")
        if self._comm is not comm:
            raise UsageError(f"{what}: the handle is of {self._comm.get_name()!r}, not of {comm.get_name()!r}")
        return self._output

    def free(self) -> None:
        """Forget the output."""
        self._output = self._comm = None
