"""The face for torch 2.11 to 2.13: a ``ProcessGroup`` in Python, which takes the place of torch's own.

It serves CPU and CUDA tensors alike, so names such as ``cpu:gloo,cuda:roundelay`` need torch 2.14.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    ReduceScatterOptions,
)

from . import NAME
from ._barrier import Monitor
from ._calls import Calls
from ._ending import alive
from ._join import join
from ._operations import Operations
from ._options import hints_of
from ._symmetric import make_group, share_store

if TYPE_CHECKING:
    from .._native import Communicator


def _waited(tensor: Tensor) -> Tensor:
    """Return what a tensor of functional collectives stands for, which has no memory of its own; others as they are."""
    wait = None if type(tensor) is Tensor else getattr(tensor, "trigger_wait", None)
    waited: Tensor = tensor if wait is None else wait()
    return waited


class RoundelayGroup(Operations, dist.ProcessGroup):  # type: ignore[misc]
    """One rank's part in a group of ranks.

    ``calls`` are those of a communicator that makes calls by itself too, which the group then shares with it.
    """

    def __init__(
        self,
        store: Any,
        comm: Communicator,
        timeout: timedelta,
        name: str = NAME,
        calls: Calls | None = None,
    ) -> None:
        make_group(self, store, comm.rank, comm.size)
        self._place = (comm.rank, comm.size)
        self._given_store = store
        self._timeout = timeout
        self._names = ("", "undefined")
        self._comm = comm
        self._calls = calls or Calls(comm, timeout.total_seconds(), name)
        self._monitor = Monitor(store, comm.rank, comm.size)
        alive[id(self)] = self

    def getBackendName(self) -> str:
        """Return ``roundelay``."""
        return "roundelay"

    def getRank(self) -> int:
        """Return the number of this rank."""
        return self._place[0]

    def getSize(self) -> int:
        """Return the number of ranks."""
        return self._place[1]

    def rank(self) -> int:
        """Return the number of this rank."""
        return self._place[0]

    def size(self) -> int:
        """Return the number of ranks."""
        return self._place[1]

    def getGroupName(self) -> str:
        """Return the name that torch gave."""
        return self._names[0]

    def setGroupName(self, name: str) -> None:
        """Take the name that torch gives."""
        self._names = (name, self._names[1])
        share_store(name, *self._place, self._given_store)

    def getGroupDesc(self) -> str:
        """Return the description that torch gave."""
        return self._names[1]

    def setGroupDesc(self, text: str) -> None:
        """Take the description that torch gives."""
        self._names = (self._names[0], text)

    # What torch asks of the backends in a group: this one is all of them.

    @property
    def _device_types(self) -> list[torch.device]:
        """Return the kinds of devices, of which checkpoints need the CPU."""
        return [torch.device(kind) for kind in ("cpu", "cuda") if kind == "cpu" or torch.cuda.is_available()]

    def _get_backend(self, device: torch.device) -> Any:
        return self

    @property
    def supports_splitting(self) -> bool:
        """Return False: torch splits groups of its own class only."""
        return False

    # The names and forms of torch 2.13 and before.

    def allreduce(
        self, tensors: list[Tensor] | Tensor, opts: Any = None, timeout: timedelta | None = None
    ) -> Any:
        """Reduce a tensor of each rank, in place on all; an operator does for the options."""
        if not isinstance(opts, AllreduceOptions):
            op, opts = opts, AllreduceOptions()
            if op is not None:
                opts.reduceOp = op
            if timeout is not None:
                opts.timeout = timeout
        return super().allreduce(tensors if isinstance(tensors, list) else [tensors], opts)

    def broadcast(
        self, tensors: list[Tensor] | Tensor, opts: Any = None, timeout: timedelta | None = None
    ) -> Any:
        """Copy the root's tensor to all; the root does for the options."""
        if opts is None or isinstance(opts, int):
            root, opts = opts, BroadcastOptions()
            opts.rootRank = root or 0
            if timeout is not None:
                opts.timeout = timeout
        return super().broadcast(tensors if isinstance(tensors, list) else [tensors], opts)

    def send(self, tensors: list[Tensor], dst: int, tag: int = 0) -> Any:
        """Send a tensor; one that waits for its collective is waited for, which torch 2.14 does before the call."""
        return super().send([_waited(each) for each in tensors], dst, tag)

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        return self.all_gather_single(output, input, opts or AllgatherOptions())

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        return self.reduce_scatter_single(output, input, opts or ReduceScatterOptions())

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_split_sizes: Any, input_split_sizes: Any, opts: Any = None
    ) -> Any:
        """Exchange parts of one tensor; the sizes may be an array of numpy, which torch's own groups make a list of."""
        received, sent = ([int(rows) for rows in side] for side in (output_split_sizes, input_split_sizes))
        return self.all_to_all_single(output, input, received, sent, opts or AllToAllOptions())

    def allgather_into_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Collect several tensors, each in one."""
        return self.all_gather_single_coalesced(outputs, inputs, opts or AllgatherOptions())

    def reduce_scatter_tensor_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduce several tensors; each rank has its parts at the end."""
        return self.reduce_scatter_single_coalesced(outputs, inputs, opts or ReduceScatterOptions())

    def _start_coalescing(self, device: Any = None) -> None:
        self.start_coalescing()

    def _end_coalescing(self, device: Any = None) -> Any:
        return self.end_coalescing()

    def barrier(self, opts: Any = None) -> Any:
        """Wait until all ranks have come."""
        return super().barrier(opts or BarrierOptions())

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Wait for all ranks; name those that did not come."""
        self._monitor.wait((timeout or self._timeout).total_seconds(), wait_all_ranks)

    # The end.

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout
        self._calls.set_timeout(timeout.total_seconds())

    def abort(self) -> None:
        """End the group on all ranks at once."""
        self._calls.abort("abort() was called on the process group")

    def shutdown(self) -> None:
        """End this rank's part, after what was started."""
        if alive.pop(id(self), None) is not None:
            self._calls.messages.start()
            self._calls.shutdown()

    def _get_sequence_number_for_group(self) -> int:
        return self._calls.record.count

    def _set_sequence_number_for_group(self) -> None:
        pass


def create(
    opts: Any, group_options: Any, name: str, kind: type[RoundelayGroup] | None = None
) -> RoundelayGroup:
    """Make the group, as torch asks for it by a name; of another class than this one's if one is given."""
    hints = hints_of(group_options)
    comm = join(opts.store, opts.group_rank, opts.group_size, opts.timeout, hints)
    return (kind or RoundelayGroup)(opts.store, comm, opts.timeout, name)
