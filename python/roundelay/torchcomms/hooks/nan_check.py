"""A hook that refuses tensors with NaN, on the rank that has it, before the others receive it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...errors import UsageError
from .._hooks import OpName, PreHookArgs, RemovableHandle

if TYPE_CHECKING:
    from .._comm import TorchComm


class NanCheckHook:
    """Raises ``UsageError``, which is a ``RuntimeError``, before an operation whose tensors have a NaN.

    ``check_inputs`` asks for the tensors that the operation reads, ``check_outputs`` for those that it writes. The
    check reads all elements; on a GPU the thread waits for it.
    """

    def __init__(self, check_inputs: bool = True, check_outputs: bool = False) -> None:
        self._check_inputs = check_inputs
        self._check_outputs = check_outputs
        self._handles: list[RemovableHandle] = []

    def register_with_comm(self, comm: TorchComm) -> None:
        """Check the operations of a communicator from now on."""
        name, rank = comm.get_name(), comm.get_rank()

        def check(op: OpName, op_id: int, args: PreHookArgs) -> None:
            for side, tensor in self._wanted(op, args):
                if tensor.is_floating_point() and bool(torch.isnan(tensor).any()):
                    raise UsageError(
                        f"NaN detected in {side} tensor for '{op.name}' on comm '{name}': rank {rank} has it; nothing "
                        "was sent"
                    )

        self._handles.append(comm.register_pre_hook(check))

    def unregister(self) -> None:
        """Check no communicator any more."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def is_enabled(self) -> bool:
        """Return True if the operations of a communicator are checked."""
        return bool(self._handles)

    def _wanted(self, op: OpName, args: PreHookArgs) -> Iterator[tuple[str, Tensor]]:
        read, written = args.input, args.output
        if args.tensor is not None:
            read = None if op is OpName.recv else args.tensor
            written = None if op is OpName.send else args.tensor
        for side, wanted, given in (("input", self._check_inputs, read), ("output", self._check_outputs, written)):
            if wanted:
                yield from ((side, tensor) for tensor in _tensors(given))


def _tensors(given: Any) -> list[Tensor]:
    if given is None:
        return []
    return [given] if isinstance(given, Tensor) else list(given)
