"""Backends in Python: a class whose operations are ours until one is overridden."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore

from .._algorithm import Algorithm
from ..errors import RefusedError, UnsupportedError, UsageError
from ..torch._symmetric import symmetric_memory
from ..torch._work import Done
from ._comm import TorchComm
from ._types import CommOptions, ReduceOp
from ._work import TorchWork

_B = TypeVar("_B", bound="PythonBackend")


class PythonBackend:
    """One rank's part in a communicator of a backend of the user's own.

    Subclass it, override what is to be different, and register the class::

        class Mine(torchcomms.PythonBackend):
            algorithms = (ring,)                       # schedules, which serve their collectives

            def broadcast(self, tensor, root, async_op):
                self.peer_group("gloo").broadcast(tensor, root).wait()

        torchcomms.register_backend("mine", Mine)

    ``torchcomms.new_comm("mine", …)`` and ``torch.distributed.init_process_group("mine")`` find it. Operations have the
    names and arguments that torchcomms has for backends in Python. They return None when they have ended, or work that
    has ``wait()``; ``super()`` and ``communicator``, which is ours and has the same ranks, run what is not overridden.
    An override that has parameters ``hints`` and ``timeout`` gets those of the call. Calls of operations that are not
    overridden do not pass through the class.
    """

    algorithms: ClassVar[Sequence[Algorithm]] = ()
    """Schedules (``roundelay.load``, ``roundelay.algorithm``), each of which serves its collective."""
    backend_name: str = "python"
    """The name under which the class was registered."""
    communicator: TorchComm
    """Ours, of the same ranks: it is there when ``init`` is called."""

    def __init__(self) -> None:
        self._peer_groups: dict[str, dist.ProcessGroup] = {}

    def init(self, device: torch.device, name: str, options: CommOptions) -> None:
        """Prepare the rank's part, once the ranks have joined; parts of ``split`` are prepared, too. Does nothing."""

    def finalize(self) -> None:
        """End this rank's part."""
        self._peer_groups.clear()
        self.communicator.finalize()

    def get_rank(self) -> int:
        """Return the number of this rank."""
        return self.communicator.get_rank()

    def get_size(self) -> int:
        """Return the number of ranks."""
        return self.communicator.get_size()

    def get_backend_name(self) -> str:
        """Return the name of the backend."""
        return self.backend_name

    def get_comm_name(self) -> str:
        """Return the name of the communicator."""
        return self.communicator.get_name()

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the longest time without progress of operations from now on."""
        self.communicator.set_timeout(timeout)

    def split(self: _B, ranks: Sequence[int], name: str, options: CommOptions) -> _B | None:
        """Make the part of some ranks; None on the others.

        An override may return an object that it made itself: its ``communicator`` is then made of the same ranks.
        """
        part = self.communicator.split(ranks, name, options.hints, options.timeout)
        return None if part is None else attach(type(self), part)

    # What is there beside torchcomms' interface.

    def install(self, algorithm: Algorithm) -> None:
        """Have a schedule serve its collective from now on, on the hosts, or the GPUs if these are the device.

        Collective: all ranks bring the same one. Raises ``RefusedError`` with the diagnostics if it is wrong at this
        number of ranks.
        """
        calls = self.communicator._engine._calls
        if self.communicator.get_device().type == "cuda":
            calls.on(self.communicator.get_device())
        try:
            for comm in calls.all_comms():
                comm.install(algorithm._native)
        except RefusedError as error:
            raise algorithm._refused(error) from None

    def peer_group(self, backend: str) -> dist.ProcessGroup:
        """Return a process group of the same ranks by another backend of ``torch.distributed``: ``gloo``, ``nccl``, …

        Its methods take tensors: ``group.allreduce(tensor).wait()``. The first call is collective.
        """
        found = self._peer_groups.get(backend)
        if found is None:
            found = self._peer_groups[backend] = _open_group(backend, self.communicator)
        return found

    def symmetric_memory(self, count: int, dtype: torch.dtype) -> tuple[Tensor, Any]:
        """Return a tensor on this GPU that kernels of all ranks reach, and torch's handle of it. Collective.

        ``handle.buffer_ptrs`` has the addresses of all ranks' tensors, ``handle.barrier(channel)`` waits for all in
        the current stream. The ranks meet in the communicator's store: no other backend is needed. Raises
        ``UnsupportedError`` on the CPU, and of a communicator of ``enable_reconfigure``, which has no store.
        """
        own = self.communicator
        if own._store is None:
            raise UnsupportedError("symmetric_memory: a communicator of enable_reconfigure has no store to meet at")
        return symmetric_memory(count, dtype, own.get_device(), own.get_rank(), own.get_size(), own._store)

    # Messages and collectives, by torchcomms' names.

    def send(self, tensor: Tensor, dst: int, async_op: bool) -> Any:
        """Send a tensor to a rank."""
        return self.communicator.send(tensor, dst, async_op)

    def recv(self, tensor: Tensor, src: int, async_op: bool) -> Any:
        """Receive a tensor from a rank."""
        return self.communicator.recv(tensor, src, async_op)

    def broadcast(self, tensor: Tensor, root: int, async_op: bool) -> Any:
        """Copy the tensor of ``root`` to all ranks."""
        return self.communicator.broadcast(tensor, root, async_op)

    def all_reduce(self, tensor: Tensor, op: ReduceOp, async_op: bool) -> Any:
        """Reduce the tensors of all ranks, in place on all."""
        return self.communicator.all_reduce(tensor, op, async_op)

    def reduce(self, tensor: Tensor, root: int, op: ReduceOp, async_op: bool) -> Any:
        """Reduce the tensors of all ranks to that of ``root``."""
        return self.communicator.reduce(tensor, root, op, async_op)

    def all_gather(self, tensor_list: Sequence[Tensor], tensor: Tensor, async_op: bool) -> Any:
        """Collect the tensors of all ranks, of one size."""
        return self.communicator.all_gather(tensor_list, tensor, async_op)

    def all_gather_v(self, tensor_list: Sequence[Tensor], tensor: Tensor, async_op: bool) -> Any:
        """Collect the tensors of all ranks, of different sizes."""
        return self.communicator.all_gather_v(tensor_list, tensor, async_op)

    def all_gather_single(self, output: Tensor, input: Tensor, async_op: bool) -> Any:
        """Collect the tensors of all ranks in one."""
        return self.communicator.all_gather_single(output, input, async_op)

    def reduce_scatter(self, output: Tensor, input_list: Sequence[Tensor], op: ReduceOp, async_op: bool) -> Any:
        """Reduce the lists of all ranks; each has one result."""
        return self.communicator.reduce_scatter(output, input_list, op, async_op)

    def reduce_scatter_v(self, output: Tensor, input_list: Sequence[Tensor], op: ReduceOp, async_op: bool) -> Any:
        """Reduce the lists of all ranks, of different sizes."""
        return self.communicator.reduce_scatter_v(output, input_list, op, async_op)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, op: ReduceOp, async_op: bool) -> Any:
        """Reduce the inputs of all ranks; each has one part."""
        return self.communicator.reduce_scatter_single(output, input, op, async_op)

    def all_to_all_single(self, output: Tensor, input: Tensor, async_op: bool) -> Any:
        """Exchange equal parts of one tensor."""
        return self.communicator.all_to_all_single(output, input, async_op)

    def all_to_all_v_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        async_op: bool,
    ) -> Any:
        """Exchange parts of one tensor, of as many rows as the lists say for each rank."""
        return self.communicator.all_to_all_v_single(output, input, output_split_sizes, input_split_sizes, async_op)

    def all_to_all(
        self, output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], async_op: bool
    ) -> Any:
        """Exchange a tensor with each rank."""
        return self.communicator.all_to_all(output_tensor_list, input_tensor_list, async_op)

    def barrier(self, async_op: bool) -> Any:
        """Wait until all ranks have come."""
        return self.communicator.barrier(async_op)

    def scatter(self, output_tensor: Tensor, input_tensor_list: Sequence[Tensor], root: int, async_op: bool) -> Any:
        """Pass a tensor of ``root`` to each rank."""
        return self.communicator.scatter(output_tensor, input_tensor_list, root, async_op)

    def gather(self, output_tensor_list: Sequence[Tensor], input_tensor: Tensor, root: int, async_op: bool) -> Any:
        """Collect the tensors of all ranks on ``root``."""
        return self.communicator.gather(output_tensor_list, input_tensor, root, async_op)

    def gather_single(self, output: Tensor, input: Tensor, root: int, async_op: bool) -> Any:
        """Collect the tensors of all ranks in one of ``root``."""
        return self.communicator.gather_single(output, input, root, async_op)


TorchCommBackend = PythonBackend
"""torchcomms' name."""

OPERATIONS = (
    "send recv broadcast all_reduce reduce all_gather all_gather_v all_gather_single reduce_scatter reduce_scatter_v "
    "reduce_scatter_single all_to_all_single all_to_all_v_single all_to_all barrier scatter gather gather_single"
).split()
"""The operations that can be overridden."""


def attach(kind: type[_B], communicator: TorchComm) -> _B:
    """Return a rank's part: the schedules of its class are installed, and ``init`` was called."""
    made = kind()
    _give(made, communicator)
    made.init(communicator.get_device(), communicator.get_name(), communicator.get_options())
    return made


def adopt_part(
    part: PythonBackend, whole: TorchComm, ranks: Sequence[int], name: str, options: CommOptions
) -> None:
    """Give a part that an override of ``split`` made by itself its communicator, unless it has one."""
    if not hasattr(part, "communicator"):
        made = whole.split(ranks, name, options.hints, options.timeout)
        assert made is not None, "this rank is in the part"
        _give(part, made)


def _give(made: PythonBackend, communicator: TorchComm) -> None:
    kind = type(made)
    if not hasattr(made, "_peer_groups"):
        raise UsageError(f"{kind.__name__}.__init__ does not call super().__init__(): add that as its first line")
    made.communicator = communicator
    for algorithm in kind.algorithms:
        made.install(algorithm)


class OwnOperation:
    """An operation that a class overrides."""

    def __init__(self, name: str, method: Callable[..., Any]) -> None:
        self._name = name
        self._method = method
        parameters = inspect.signature(method).parameters
        self._takes = [each for each in ("hints", "timeout") if each in parameters]

    def call(
        self,
        arguments: Sequence[Any],
        async_op: bool,
        hints: Mapping[str, str] | None = None,
        timeout: timedelta | None = None,
    ) -> Any:
        """Make the call; return work that has the methods of c10d's."""
        options = {"hints": hints, "timeout": timeout}
        result = self._method(*arguments, async_op, **{each: options[each] for each in self._takes})
        if isinstance(result, TorchWork):
            result = result._work
        if result is None or isinstance(result, Done):
            return Done() if result is None else result
        if not callable(getattr(result, "wait", None)):
            owner = type(getattr(self._method, "__self__", None)).__name__
            raise UsageError(
                f"{self._name} of {owner} has returned {result!r}: return None where it has ended, or work with wait()"
            )
        if not async_op:
            result.wait()
            return Done()
        return result if isinstance(result, dist.Work) else _ForeignWork(result)


class _ForeignWork(Done):
    """Work of a class that is no ``torch.distributed.Work``."""

    def __init__(self, work: Any) -> None:
        super().__init__()
        self._foreign = work
        self._waited = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the end."""
        if not self._waited:
            self._foreign.wait()
            self._waited = True
        return True

    def is_completed(self) -> bool:
        """Return True if it has ended, or was waited for where it cannot say so."""
        if self._waited:
            return True
        asked = getattr(self._foreign, "is_completed", None)
        return bool(asked()) if callable(asked) else False

    def is_success(self) -> bool:
        """Return True if it has ended."""
        return self.is_completed()

    def synchronize(self) -> None:
        """Wait for the end."""
        self.wait()

    def _future(self) -> Any:
        """Wait, and return a completed future."""
        self.wait()
        return super()._future()


def own_operations(backend: PythonBackend) -> dict[str, OwnOperation]:
    """Return the operations that the class of a backend overrides."""
    kind = type(backend)
    return {
        name: OwnOperation(name, getattr(backend, name))
        for name in OPERATIONS
        if getattr(kind, name) is not getattr(PythonBackend, name)
    }


def _open_group(backend: str, communicator: TorchComm) -> dist.ProcessGroup:
    """Make a process group by a backend of c10d, of the ranks of a communicator. Collective."""
    if communicator._store is None:
        raise UnsupportedError("peer_group: a communicator of enable_reconfigure has no store for others to meet at")
    rank, size = communicator.get_rank(), communicator.get_size()
    timeout, name = communicator.get_options().timeout, backend.lower()
    store: Any = PrefixStore(f"peers/{name}", communicator._store)
    kinds: Any = dist.ProcessGroup.BackendType
    made: Any
    plugin = dist.Backend._plugins.get(name.upper())
    if name == "gloo":
        devices, kind = ["cpu", "cuda"], kinds.GLOO
        made = dist.ProcessGroupGloo(store, rank, size, timeout)
    elif name == "nccl" and dist.is_nccl_available():
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        devices, kind = ["cuda"], kinds.NCCL
        made = dist.ProcessGroupNCCL(store, rank, size, options)
    elif plugin is not None and plugin.extended_api:
        c10d: Any = dist.distributed_c10d
        given = c10d._DistributedBackendOptions()
        given.store, given.group_rank, given.group_size, given.timeout = store, rank, size, timeout
        given.group_id = f"{communicator.get_name()}/{name}"
        given.global_ranks_in_group = list(range(size))
        devices, kind = dist.Backend.backend_capability.get(name, ["cpu"]), kinds.CUSTOM
        made = plugin.creator_fn(given, None)
    else:
        raise UsageError(f"peer_group: {backend!r} is no backend that is here: give gloo, nccl or a plugin's name")
    group = dist.ProcessGroup(store, rank, size)
    group._set_default_backend(kind)
    for device in devices:
        group._register_backend(torch.device(device), kind, made)
    return group
