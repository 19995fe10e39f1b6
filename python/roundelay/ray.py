"""Groups of Ray's actors: a backend of ``ray.util.collective``.

>>> import roundelay.ray
>>> roundelay.ray.register()   # in the driver and in each actor
>>> ray.util.collective.init_collective_group(world_size, rank, "ROUNDELAY", "gradients")

Importing this module loads Ray.
"""

from __future__ import annotations

import datetime
import socket
from typing import Any

import ray  # type: ignore[import-not-found, unused-ignore]
import ray.experimental.internal_kv as kv  # type: ignore[import-not-found, unused-ignore]
from ray.util.collective import types  # type: ignore[import-not-found, unused-ignore]
from ray.util.collective.backend_registry import (  # type: ignore[import-not-found, unused-ignore]
    register_collective_backend,
)
from ray.util.collective.collective_group.base_collective_group import (  # type: ignore[import-not-found, unused-ignore]
    BaseGroup,
)

from roundelay._buffers import is_cuda
from roundelay._options import RedOp
from roundelay.communicator import Communicator
from roundelay.errors import UsageError

__all__ = ["NAME", "RoundelayGroup", "register"]

NAME = "ROUNDELAY"
"""The name of the backend."""

_CONNECT_TIMEOUT = 1.0
"""Seconds in which an address of rank 0 answers."""

_OPERATORS: dict[str, RedOp] = {"SUM": "sum", "PRODUCT": "prod", "MIN": "min", "MAX": "max"}


def register() -> None:
    """Register the backend with Ray, in this process; a second call does nothing."""
    try:
        register_collective_backend(NAME, RoundelayGroup)
    except ValueError:  # It is registered.
        pass


class _Notes:
    """The key-value store of Ray's cluster, by which actors of one namespace join."""

    def __init__(self, group: str) -> None:
        self._prefix = f"roundelay/{ray.get_runtime_context().namespace}/{group}/"

    def set(self, key: str, value: bytes, /) -> None:
        kv._internal_kv_put(self._prefix + key, value, overwrite=True)

    def get(self, key: str, /) -> bytes | None:
        found: bytes | None = kv._internal_kv_get(self._prefix + key)
        return found if found is not None and _is_reachable(found) else None

    def forget(self, key: str) -> None:
        kv._internal_kv_del(self._prefix + key)


def _is_reachable(note: bytes) -> bool:
    """Return True if rank 0 listens at an address of its note; a rank 0 that was killed leaves its note behind."""
    for address in note.decode().partition(";")[2].split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_TIMEOUT).close()
        except OSError:
            continue
        return True
    return False


class RoundelayGroup(BaseGroup):  # type: ignore[misc, unused-ignore]
    """One actor's part in a group; numpy arrays and tensors of the CPU or of a GPU, one a rank."""

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        notes = _Notes(group_name)
        self._gpu: Communicator | None = None
        try:
            self._comm = Communicator.join(rank, world_size, notes)
        finally:
            if rank == 0:
                # All have joined, or will not: a later group of this name must not find it.
                notes.forget("roundelay/world")

    def destroy_group(self) -> None:
        """End this actor's part."""
        if self._gpu is not None:
            self._gpu.shutdown()
        self._comm.shutdown()

    @classmethod
    def backend(cls) -> str:
        """Return the name of the backend."""
        return NAME

    @classmethod
    def check_backend_availability(cls) -> bool:
        """Return True: it needs nothing else."""
        return True

    def allreduce(self, tensor: Any, allreduce_options: Any = None) -> None:
        """Reduce the tensors of all ranks, in place."""
        data = _one(tensor, "allreduce")
        self._on(data).all_reduce(data, _operator(allreduce_options), **_timeout(allreduce_options))

    def barrier(self, barrier_options: Any = None) -> None:
        """Wait until all ranks have come."""
        self._comm.barrier(**_timeout(barrier_options))

    def reduce(self, tensor: Any, reduce_options: Any = None) -> None:
        """Reduce the tensors of all ranks into that of the root; the others stay as they are."""
        data, root = _one(tensor, "reduce"), getattr(reduce_options, "root_rank", 0)
        own = data.clone() if hasattr(data, "clone") else data.copy()
        output = data if self.rank == root else None
        self._on(data).reduce_into(output, own, root, _operator(reduce_options), **_timeout(reduce_options))

    def allgather(self, tensor_list: Any, tensor: Any, allgather_options: Any = None) -> None:
        """Copy the tensor of each rank into its place in the list of every rank."""
        data = _one(tensor, "allgather")
        self._on(data).all_gather(_one(tensor_list, "allgather"), data, **_timeout(allgather_options))

    def broadcast(self, tensor: Any, broadcast_options: Any = None) -> None:
        """Copy the tensor of the root to all other ranks."""
        data = _one(tensor, "broadcast")
        root = getattr(broadcast_options, "root_rank", 0)
        self._on(data).broadcast(data, root, **_timeout(broadcast_options))

    def reducescatter(self, tensor: Any, tensor_list: Any, reducescatter_options: Any = None) -> None:
        """Reduce the tensors that the lists of all ranks have for a rank into its tensor."""
        data = _one(tensor, "reducescatter")
        parts = _one(tensor_list, "reducescatter")
        options = reducescatter_options
        self._on(data).reduce_scatter(data, parts, _operator(options), **_timeout(options))

    def send(self, tensor: Any, send_options: Any) -> None:
        """Send a tensor to a rank."""
        data = _one(tensor, "send")
        self._on(data).send(data, send_options.dst_rank, **_timeout(send_options))

    def recv(self, tensor: Any, recv_options: Any) -> None:
        """Receive a tensor from a rank."""
        data = _one(tensor, "recv")
        self._on(data).recv(data, recv_options.src_rank, **_timeout(recv_options))

    def _on(self, data: Any) -> Communicator:
        """Return the communicator for where a tensor lies; the first call for a GPU is collective."""
        if not is_cuda(data):
            return self._comm
        if self._gpu is None:
            self._gpu = self._comm.cuda(data.__dlpack_device__()[1])
        return self._gpu


def _one(given: Any, what: str) -> Any:
    """Return the tensor, or the list of tensors, of the actor's one GPU: Ray passes a list with one for each."""
    if not isinstance(given, list) or len(given) != 1:
        count = len(given) if isinstance(given, list) else 1
        raise UsageError(f"{what} of {count} tensors of one actor: give each GPU an actor of its own")
    return given[0]


def _operator(options: Any) -> RedOp:
    return _OPERATORS[(getattr(options, "reduceOp", None) or types.ReduceOp.SUM).name]


def _timeout(options: Any) -> Any:
    """Return the keyword of an operation's timeout, where it has one; Ray says "unset" by a negative time."""
    limit = getattr(options, "timeout_ms", None)
    if isinstance(limit, (int, float)):
        limit = datetime.timedelta(milliseconds=limit)
    return {"timeout": limit} if isinstance(limit, datetime.timedelta) and limit > datetime.timedelta() else {}
