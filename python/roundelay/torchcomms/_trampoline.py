"""The backend of torchcomms by torchcomms' own interface for backends in Python.

It stands in where the backend in C++ was not built: torchcomms passes it neither hints nor timeouts of a call, and
has no way to batches, ``abort``, ``set_hints`` and factors of ``PREMUL_SUM`` there. Collectives have ended when their
call returns, ``async_op`` or not: torchcomms drops the work of a Python backend on threads that do not hold the
interpreter's lock. Only messages go on in the background.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedError
from ._comm import TorchComm, new_comm
from ._types import RedOpType, ReduceOp
from ._work import TorchWork

BUILD = "set TORCHCOMMS_INCLUDE to a checkout of torchcomms and run `python -m roundelay torchcomms build`"


def _operator(op: Any) -> ReduceOp:
    kind = RedOpType[op.type.name]
    if kind is RedOpType.PREMUL_SUM:
        raise UnsupportedError(
            f"PREMUL_SUM, which FSDP uses: torchcomms does not tell backends in Python the factor; {BUILD}"
        )
    return ReduceOp(kind)


class BackendCalls:
    """One rank's part in a communicator: ``communicator`` has all that torchcomms passes no calls for."""

    communicator: TorchComm
    backend = "roundelay"

    def init(self, device: torch.device, name: str, options: Any) -> None:
        """Join the other ranks."""
        self.communicator = new_comm(
            self.backend,
            device,
            name,
            abort_process_on_timeout_or_error=options.abort_process_on_timeout_or_error,
            timeout=options.timeout,
            store=options.store,
            hints=options.hints,
        )

    def finalize(self) -> None:
        """End this rank's part."""
        self.communicator.finalize()

    def get_rank(self) -> int:
        """Return the number of this rank."""
        return self.communicator.get_rank()

    def get_size(self) -> int:
        """Return the number of ranks."""
        return self.communicator.get_size()

    def get_backend_name(self) -> str:
        """Return ``roundelay``, or the name of a backend in Python."""
        return self.communicator.get_backend()

    def get_comm_name(self) -> str:
        """Return the name."""
        return self.communicator.get_name()

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the longest time without progress."""
        self.communicator.set_timeout(timeout)

    def split(self, ranks: Sequence[int], name: str, options: Any) -> BackendCalls | None:
        """Make a communicator of a part of the ranks."""
        part = self.communicator.split(ranks, name, options.hints, options.timeout)
        if part is None:
            return None
        made = type(self)()
        made.communicator = part
        return made

    # Messages, in the background too.

    def send(self, tensor: Tensor, dst: int, async_op: bool) -> TorchWork | None:
        """Send a tensor to a rank."""
        work = self.communicator.send(tensor, dst, async_op)
        return work if async_op else None

    def recv(self, tensor: Tensor, src: int, async_op: bool) -> TorchWork | None:
        """Receive a tensor from a rank."""
        work = self.communicator.recv(tensor, src, async_op)
        return work if async_op else None

    # Collectives, which have ended when their call returns.

    def broadcast(self, tensor: Tensor, root: int, async_op: bool) -> None:
        """Copy the tensor of ``root`` to all ranks."""
        self.communicator.broadcast(tensor, root, False)

    def all_reduce(self, tensor: Tensor, op: Any, async_op: bool) -> None:
        """Reduce the tensors of all ranks."""
        self.communicator.all_reduce(tensor, _operator(op), False)

    def reduce(self, tensor: Tensor, root: int, op: Any, async_op: bool) -> None:
        """Reduce the tensors of all ranks to that of ``root``."""
        self.communicator.reduce(tensor, root, _operator(op), False)

    def all_gather(self, tensor_list: Sequence[Tensor], tensor: Tensor, async_op: bool) -> None:
        """Collect the tensors of all ranks."""
        self.communicator.all_gather(tensor_list, tensor, False)

    def all_gather_v(self, tensor_list: Sequence[Tensor], tensor: Tensor, async_op: bool) -> None:
        """Collect the tensors of all ranks, of different sizes."""
        self.communicator.all_gather_v(tensor_list, tensor, False)

    def all_gather_single(self, output: Tensor, input: Tensor, async_op: bool) -> None:
        """Collect the tensors of all ranks in one."""
        self.communicator.all_gather_single(output, input, False)

    def reduce_scatter(self, output: Tensor, input_list: Sequence[Tensor], op: Any, async_op: bool) -> None:
        """Reduce the lists of all ranks; each has one result."""
        self.communicator.reduce_scatter(output, input_list, _operator(op), False)

    def reduce_scatter_v(self, output: Tensor, input_list: Sequence[Tensor], op: Any, async_op: bool) -> None:
        """Reduce the lists of all ranks, of different sizes."""
        self.communicator.reduce_scatter_v(output, input_list, _operator(op), False)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, op: Any, async_op: bool) -> None:
        """Reduce the inputs of all ranks; each has one part."""
        self.communicator.reduce_scatter_single(output, input, _operator(op), False)

    def all_to_all_single(self, output: Tensor, input: Tensor, async_op: bool) -> None:
        """Exchange equal parts of one tensor."""
        self.communicator.all_to_all_single(output, input, False)

    def all_to_all_v_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        async_op: bool,
    ) -> None:
        """Exchange parts of one tensor."""
        self.communicator.all_to_all_v_single(output, input, output_split_sizes, input_split_sizes, False)

    def all_to_all(
        self, output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], async_op: bool
    ) -> None:
        """Exchange a tensor with each rank."""
        self.communicator.all_to_all(output_tensor_list, input_tensor_list, False)

    def barrier(self, async_op: bool) -> None:
        """Wait until all ranks have come."""
        self.communicator.barrier(False)

    def scatter(self, output_tensor: Tensor, input_tensor_list: Sequence[Tensor], root: int, async_op: bool) -> None:
        """Pass a tensor of ``root`` to each rank."""
        self.communicator.scatter(output_tensor, input_tensor_list, root, False)

    def gather(self, output_tensor_list: Sequence[Tensor], input_tensor: Tensor, root: int, async_op: bool) -> None:
        """Collect the tensors of all ranks on ``root``."""
        self.communicator.gather(output_tensor_list, input_tensor, root, False)


def _backend(interface: Any, name: str) -> type[Any]:
    return type("Backend", (BackendCalls, interface.TorchCommBackend), {"backend": name, "__doc__": BackendCalls.__doc__})


def register_as(name: str) -> None:
    """Have ``torchcomms.new_comm`` find a backend in Python that is registered with ``roundelay.torchcomms``."""
    import torchcomms  # type: ignore[import-not-found]

    torchcomms.register_backend(name, _backend(torchcomms, name))


def register(interface: Any, remedy: str = BUILD) -> None:
    """Have ``new_comm("roundelay", …)`` of a module find this backend: ``torchcomms``, or ``torch.comms``.

    Warns of what it cannot do, and says the remedy. Raises ``AttributeError`` if the module takes no backends in Python.
    """
    interface.register_backend("roundelay", _backend(interface, "roundelay"))
    warnings.warn(
        f"roundelay: no compiled backend is there, so the interface of {interface.__name__} for backends in Python is "
        "used: it has no batches, abort, set_hints, tensor_register, PREMUL_SUM (FSDP), or hints and timeouts of single "
        f"calls, and collectives do not go on in the background. For these {remedy}",
        stacklevel=2,
    )
