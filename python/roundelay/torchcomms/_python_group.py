"""Process groups of backends in Python: the face of c10d."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from ..torch import _memory as memory
from ..torch._ending import alive
from ..torch._operations import Operations, Together
from ..torch._register import supports_backends
from ..torch._work import Done, ended
from ._comm import TorchComm
from ._python_backend import OwnOperation, PythonBackend, attach, own_operations
from ._types import CommOptions, RedOpType, ReduceOp

_KINDS = {
    "sum": RedOpType.SUM,
    "prod": RedOpType.PRODUCT,
    "min": RedOpType.MIN,
    "max": RedOpType.MAX,
    "and": RedOpType.BAND,
    "or": RedOpType.BOR,
    "xor": RedOpType.BXOR,
    "avg": RedOpType.AVG,
}


def _operator(op: Any, dtype: torch.dtype) -> ReduceOp:
    name, factor = memory.operator(op, dtype)
    return ReduceOp.PREMUL_SUM(factor) if name == "premul_sum" else ReduceOp(_KINDS[name])


def _equal(tensors: Sequence[torch.Tensor]) -> bool:
    return len({tensor.numel() for tensor in tensors}) <= 1


class PythonOperations(Operations):
    """The operations of c10d, which a class overrides by torchcomms' names."""

    backend_class: ClassVar[type[PythonBackend]]
    python_backend: PythonBackend
    """The object of the user's class."""
    _own: dict[str, OwnOperation]

    def attach(self, store: Any, timeout: timedelta, hints: Sequence[tuple[str, str]], ranks: Sequence[int]) -> None:
        """Make the object of the class for this group's ranks."""
        options = CommOptions(store=store, timeout=timeout, hints=dict(hints))
        inner = TorchComm(
            self._comm, torch.device("cpu"), "group", options, PrefixStore("python", store), list(ranks)
        )
        self.python_backend = attach(self.backend_class, inner)
        self._own = own_operations(self.python_backend)

    def _call(self, own: OwnOperation, arguments: Sequence[Any], opts: Any, result: Any) -> Any:
        is_async = bool(getattr(opts, "asyncOp", True))
        timeout = getattr(opts, "timeout", None)
        limit = timeout if timeout is not None and timeout.total_seconds() > 0 else None
        work = own.call(arguments, is_async, None, limit)
        if type(work) is Done:
            work = self._calls.noted(Done(result)) if is_async else ended(result)
            return work
        return self._calls.noted(work)

    def _each(self, works: Sequence[Any]) -> Any:
        return Together([Done() if work is None else work for work in works])

    def allreduce(self, tensors: Any, opts: Any) -> Any:
        """Reduce a tensor of each rank, in place on all."""
        own = self._own.get("all_reduce")
        if own is None:
            return super().allreduce(tensors, opts)
        (tensor,) = tensors
        return self._call(own, (tensor, _operator(opts.reduceOp, tensor.dtype)), opts, tensors)

    def allreduce_coalesced(self, tensors: Any, opts: Any) -> Any:
        """Reduce several tensors of each rank, in place."""
        if "all_reduce" not in self._own:
            return super().allreduce_coalesced(tensors, opts)
        # Not by the name: that of torch before 2.14 takes options of another class for an operator.
        return self._each([PythonOperations.allreduce(self, [tensor], opts) for tensor in tensors])

    def broadcast(self, tensors: Any, opts: Any) -> Any:
        """Copy the root's tensor to all."""
        own = self._own.get("broadcast")
        if own is None:
            return super().broadcast(tensors, opts)
        (tensor,) = tensors
        return self._call(own, (tensor, opts.rootRank), opts, tensors)

    def reduce(self, tensors: Any, opts: Any) -> Any:
        """Reduce a tensor of each rank to the root's."""
        own = self._own.get("reduce")
        if own is None:
            return super().reduce(tensors, opts)
        (tensor,) = tensors
        return self._call(own, (tensor, opts.rootRank, _operator(opts.reduceOp, tensor.dtype)), opts, tensors)

    def allgather(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        """Collect a tensor of each rank on all."""
        own = self._own.get("all_gather" if _equal(outputs[0]) else "all_gather_v")
        if own is None:
            return super().allgather(outputs, inputs, opts)
        return self._call(own, (outputs[0], inputs[0]), opts, outputs)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        """Collect several tensors; ``outputs`` has a list a rank."""
        if not {"all_gather", "all_gather_v"} & self._own.keys():
            return super().allgather_coalesced(outputs, inputs, opts)
        rows = [[each[index] for each in outputs] for index in range(len(inputs))]
        return self._each([self.allgather([row], [tensor], opts) for row, tensor in zip(rows, inputs, strict=True)])

    def all_gather_single(self, output: Any, input: Any, opts: Any) -> Any:
        """Collect equal tensors in one."""
        own = self._own.get("all_gather_single")
        if own is None:
            return super().all_gather_single(output, input, opts)
        return self._call(own, (output, input), opts, output)

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any, result: Any = None) -> Any:
        """Collect several tensors, each in one."""
        if "all_gather_single" not in self._own:
            return super().all_gather_single_coalesced(outputs, inputs, opts, result)
        return self._each([self.all_gather_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)])

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        """Reduce a list with a tensor for each rank."""
        own = self._own.get("reduce_scatter" if _equal(inputs[0]) else "reduce_scatter_v")
        if own is None:
            return super().reduce_scatter(outputs, inputs, opts)
        (output,) = outputs
        return self._call(own, (output, inputs[0], _operator(opts.reduceOp, output.dtype)), opts, outputs)

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any) -> Any:
        """Reduce tensors of as many equal parts as there are ranks."""
        own = self._own.get("reduce_scatter_single")
        if own is None:
            return super().reduce_scatter_single(output, input, opts)
        return self._call(own, (output, input, _operator(opts.reduceOp, output.dtype)), opts, output)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any, result: Any = None) -> Any:
        """Reduce several tensors; each rank has its parts at the end."""
        if "reduce_scatter_single" not in self._own:
            return super().reduce_scatter_single_coalesced(outputs, inputs, opts, result)
        return self._each([self.reduce_scatter_single(*pair, opts) for pair in zip(outputs, inputs, strict=True)])

    def all_to_all_single(self, output: Any, input: Any, output_splits: Any, input_splits: Any, opts: Any) -> Any:
        """Exchange parts of one tensor."""
        own = self._own.get("all_to_all_v_single" if output_splits or input_splits else "all_to_all_single")
        if own is None:
            return super().all_to_all_single(output, input, output_splits, input_splits, opts)
        given: tuple[Any, ...] = (output, input)
        if output_splits or input_splits:
            sides = ((output, output_splits), (input, input_splits))
            given += tuple(list(rows) or [side.size(0) // self._calls.size] * self._calls.size for side, rows in sides)
        return self._call(own, given, opts, output)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        """Exchange a tensor with each rank."""
        own = self._own.get("all_to_all")
        if own is None:
            return super().alltoall(outputs, inputs, opts)
        return self._call(own, (outputs, inputs), opts, outputs)

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        """Collect a tensor of each rank on the root."""
        own = self._own.get("gather")
        if own is None:
            return super().gather(outputs, inputs, opts)
        return self._call(own, (outputs[0] if outputs else [], inputs[0], opts.rootRank), opts, outputs)

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        """Pass a tensor of the root's list to each rank."""
        own = self._own.get("scatter")
        if own is None:
            return super().scatter(outputs, inputs, opts)
        return self._call(own, (outputs[0], inputs[0] if inputs else [], opts.rootRank), opts, outputs)

    def barrier(self, opts: Any) -> Any:
        """Wait until all ranks have come."""
        own = self._own.get("barrier")
        return super().barrier(opts) if own is None else self._call(own, (), opts, None)

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Any:
        """Send a tensor to a rank."""
        own = self._own.get("send")
        return super().send(tensors, dst, tag) if own is None else self._call(own, (tensors[0], dst), None, tensors)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Any:
        """Receive a tensor from a rank."""
        own = self._own.get("recv")
        return super().recv(tensors, src, tag) if own is None else self._call(own, (tensors[0], src), None, tensors)


def group_class(kind: type[PythonBackend]) -> Any:
    """Return the class of process groups of a backend in Python, for the torch that there is."""
    if supports_backends():
        from ..torch._backend import RoundelayBackend

        class PythonGroup(RoundelayBackend, PythonOperations):
            backend_class = kind

            def __init__(self, store: Any, rank: int, size: int, comm: Any, options: Any, name: str) -> None:
                super().__init__(store, rank, size, comm, options, name)
                self.attach(store, options._timeout, options.hints, options.global_ranks_in_group)

            def getBackendName(self) -> str:
                """Return the name of the backend."""
                return self._calls.name

            def shutdown(self) -> None:
                """End this rank's part, after what was started."""
                is_first = id(self) in alive
                super().shutdown()
                if is_first:
                    self.python_backend.finalize()

        return PythonGroup
    from ..torch._group import RoundelayGroup

    class OlderGroup(RoundelayGroup, PythonOperations):  # type: ignore[misc]
        backend_class = kind

        def __init__(self, store: Any, comm: Any, timeout: timedelta, name: str) -> None:
            super().__init__(store, comm, timeout, name)
            self.attach(store, timeout, (), range(comm.size))

        def getBackendName(self) -> str:
            """Return the name of the backend."""
            return self._calls.name

        def shutdown(self) -> None:
            """End this rank's part, after what was started."""
            is_first = id(self) in alive
            super().shutdown()
            if is_first:
                self.python_backend.finalize()

    return OlderGroup


_groups: dict[str, Any] = {}
"""Classes of groups by names of backends."""


def create_group(opts: Any, group_options: Any = None, *, name: str) -> Any:
    """Make the group of a backend in Python: what torch calls."""
    if supports_backends():
        from ..torch._backend import create

        return create(opts, group_options, name, _groups[name])
    from ..torch._group import create as create_older

    return create_older(opts, group_options, name, _groups[name])


def has_group(name: str) -> bool:
    """Return True if the name is that of a backend in Python."""
    return name in _groups


def add_group(name: str, kind: type[PythonBackend]) -> None:
    """Have ``torch.distributed.init_process_group`` find a backend by a name; a later one takes its place."""
    if not dist.is_available():
        return
    _groups[name] = group_class(kind)
    plugin = dist.Backend._plugins.get(name.upper())
    if plugin is None:
        creator = functools.partial(create_group, name=name)
        dist.Backend.register_backend(name, creator, extended_api=True, devices=["cpu", "cuda"])
        recording: set[str] = getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set())
        recording.add(name)
