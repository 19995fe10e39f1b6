"""The operations of c10d, in terms of the native part. Both faces, ``Backend`` and ``ProcessGroup``, are made of it.

Every operation returns work, or None where it was not asynchronous and has ended (:func:`roundelay.torch._work.ended`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor

from . import _batches as batches
from . import _memory as memory
from . import _messages as messages
from . import _profile as profile
from ._calls import NO_DEVICE, Calls
from ._errors import face, missing
from ._memory import Finish, address
from ._work import Done

if TYPE_CHECKING:
    from .._native import Communicator


def _one(tensors: Sequence[Any], what: str) -> Any:
    if len(tensors) != 1:
        raise ValueError(f"roundelay: {what} takes one tensor a rank, not {len(tensors)}")
    return tensors[0]


def _bytes_of(counts: Sequence[int], tensor: Tensor) -> list[int]:
    unit = memory.units(tensor)
    return [count * unit for count in counts]


class Operations:
    """The operations of one group; ``_calls`` makes them."""

    _calls: Calls
    _comm: Communicator

    # Memory.

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Return True for the CPU: operations on tensors of ``allocate_tensor`` are not copied on the way."""
        return torch.device(device).type == "cpu"

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: Any) -> Tensor:
        """Return a tensor of zeros in memory that the other ranks of this host map."""
        if not self.supports_tensor_alloc(device):
            missing(f"the allocation of tensors on {device}", "use torch.empty")
        try:
            return memory.shared(self._comm, size, dtype)
        except RuntimeError as error:
            raise face(error, self._calls.timeout) from error.__cause__

    # In place, or to one rank.

    def allreduce(self, tensors: list[Tensor], opts: Any) -> Any:
        """Reduce a tensor of each rank, in place on all."""
        tensor = _one(tensors, "all_reduce")
        plain = memory.plain(tensor)
        if plain is None and tensor.layout is torch.sparse_coo:
            return self.allreduce_sparse(tensors, opts)
        op, factor = memory.operator(opts.reduceOp, tensor.dtype)
        if plain is not None:
            calls = [("all_reduce", plain, None, op, factor, 0)]
            return self._calls.execute(opts, tensors, calls, (), tensor, tensor.device, tensors)
        finish: list[Finish] = []
        data = memory.reduced_to(tensor, finish, is_read=True)
        calls = [("all_reduce", address(data), None, op, factor, 0)]
        return self._calls.execute(opts, tensors, calls, finish, data, data.device, tensors)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any) -> Any:
        """Reduce several tensors of each rank, in place."""
        finish: list[Finish] = []
        calls, keep = [], []
        for tensor in tensors:
            op, factor = memory.operator(opts.reduceOp, tensor.dtype)
            data = memory.reduced_to(tensor, finish, is_read=True)
            keep.append(data)
            calls.append(("all_reduce", address(data), None, op, factor, 0))
        device = tensors[0].device if tensors else NO_DEVICE
        return self._calls.execute(opts, tensors, calls, finish, keep, device, tensors)

    def allreduce_sparse(self, tensors: list[Tensor], opts: Any) -> Any:
        """Sum sparse COO tensors, in place; the ranks' numbers of elements may differ."""
        from ._sparse import sum_sparse

        tensor = _one(tensors, "all_reduce")
        if memory.operator(opts.reduceOp, tensor.dtype)[0] != "sum":
            raise ValueError("roundelay: sparse tensors can only be summed; use ReduceOp.SUM")
        calls = self._calls
        if profile.active():
            name = f"{calls.name}:sparse_all_reduce"
            profile.profiled(name, tensors, lambda: sum_sparse(calls, tensor, opts))
        else:
            sum_sparse(calls, tensor, opts)
        return calls.noted(Done(tensors))

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Any:
        """Copy the root's tensor to all."""
        tensor = _one(tensors, "broadcast")
        plain = memory.plain(tensor)
        if plain is not None:
            calls = [("broadcast", plain, None, "sum", 1.0, opts.rootRank)]
            return self._calls.execute(opts, tensors, calls, (), tensor, tensor.device, tensors)
        finish: list[Finish] = []
        # Of one shape on all ranks, so that all refuse what one cannot write.
        memory.is_plain_output(tensor)
        data = memory.readable(tensor) if opts.rootRank == self._calls.rank else memory.writable(tensor, finish)
        calls = [("broadcast", address(data), None, "sum", 1.0, opts.rootRank)]
        return self._calls.execute(opts, tensors, calls, finish, data, data.device, tensors)

    def reduce(self, tensors: list[Tensor], opts: Any) -> Any:
        """Reduce a tensor of each rank to the root's; the others keep theirs."""
        tensor = _one(tensors, "reduce")
        op, factor = memory.operator(opts.reduceOp, tensor.dtype)
        finish: list[Finish] = []
        root = opts.rootRank
        data = memory.reduced_from(tensor)
        output = None
        keep = [data]
        if root == self._calls.rank:
            memory.is_plain_output(tensor)
            result = memory.staged(tensor, torch.empty_like(data), finish)
            output = address(result)
            keep.append(result)
        calls = [("reduce", output, address(data), op, factor, root)]
        return self._calls.execute(opts, tensors, calls, finish, keep, data.device, tensors)

    # From all to all.

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Any:
        """Collect a tensor of each rank, of equal or unequal sizes, on all."""
        tensor, listed = _one(inputs, "all_gather"), _one(outputs, "all_gather")
        finish: list[Finish] = []
        call, keep = self._gathered("all_gather", listed, tensor, finish)
        return self._calls.execute(opts, outputs, [call], finish, keep, tensor.device, inputs)

    def _gathered(self, name: str, listed: list[Tensor], tensor: Tensor, finish: list[Finish]) -> tuple[Any, Any]:
        calls = self._calls
        if len(listed) != calls.size:
            raise ValueError(
                f"{name}: Invalid output tensor list: {len(listed)} tensors for {calls.size} ranks; give one a rank"
            )
        data = memory.readable(tensor)
        counts = [each.numel() for each in listed]
        flat, targets = None, listed
        if len(set(counts)) == 1:
            targets = [memory.writable(each, finish) for each in listed]
        else:
            flat = memory.flat_for(listed, data.dtype, finish)
        memory.same_type([tensor, *listed], name)
        if listed[calls.rank].numel() != data.numel():
            raise ValueError(
                f"{name}: output {calls.rank} has {listed[calls.rank].numel()} elements, but this rank's input has "
                f"{data.numel()}"
            )
        if flat is None:
            return (name, [address(each) for each in targets], address(data)), (data, targets)
        return (name, (address(flat), _bytes_of(counts, data)), address(data)), (data, flat)

    def allgather_coalesced(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Any:
        """Collect several tensors; ``outputs`` has a list a rank."""
        calls: list[Any] = []
        keep: list[Any] = []
        finish: list[Finish] = []
        for index, tensor in enumerate(inputs):
            call, kept = self._gathered("all_gather", [each[index] for each in outputs], tensor, finish)
            calls.append(call)
            keep.append(kept)
        device = inputs[0].device if inputs else NO_DEVICE
        return self._calls.execute(opts, outputs, calls, finish, keep, device, inputs)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any) -> Any:
        """Collect equal tensors in one; the input may be a part of the output."""
        pair = memory.plain_pair(output, input)
        if pair is not None and pair[0][1] == pair[1][1] * self._calls.size:
            calls = [("all_gather", *pair)]
            return self._calls.execute(opts, output, calls, (), (input, output), output.device, (input,))
        return self.all_gather_single_coalesced([output], [input], opts, output)

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any, result: Any = None
    ) -> Any:
        """Collect several tensors, each in one."""
        calls, keep = [], []
        finish: list[Finish] = []
        for output, input in zip(outputs, inputs, strict=True):
            data, target = memory.readable(input), memory.writable(output, finish)
            memory.same_type([output, input], "all_gather_single")
            if output.numel() != input.numel() * self._calls.size:
                raise ValueError(
                    f"all_gather_single: the output has {output.numel()} elements; output tensor size must be equal "
                    f"to world_size times input tensor size, {self._calls.size} times {input.numel()}"
                )
            if memory.overlap(data, target):
                data = data.clone()
            keep.append((data, target))
            calls.append(("all_gather", address(target), address(data)))
        device = inputs[0].device if inputs else NO_DEVICE
        return self._calls.execute(opts, outputs if result is None else result, calls, finish, keep, device, inputs)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Any:
        """Reduce a list with a tensor for each rank; each rank has its own at the end."""
        output, listed = _one(outputs, "reduce_scatter"), _one(inputs, "reduce_scatter")
        calls = self._calls
        if len(listed) != calls.size:
            raise ValueError(
                f"reduce_scatter: {len(listed)} input tensors for {calls.size} ranks; give one a rank"
            )
        finish: list[Finish] = []
        target = memory.reduced_to(output, finish)
        sources = [memory.reduced_from(each) for each in listed]
        memory.same_type([output, *listed], "reduce_scatter")
        if listed[calls.rank].numel() != output.numel():
            raise ValueError(
                f"reduce_scatter: the output has {output.numel()} elements, but input {calls.rank} has "
                f"{listed[calls.rank].numel()}"
            )
        op, factor = memory.operator(opts.reduceOp, output.dtype)
        counts = [each.numel() for each in listed]
        source: Any
        if len(set(counts)) == 1:
            source = [address(each) for each in sources]
        else:
            sources = [torch.cat([each.reshape(-1) for each in sources])]
            source = (address(sources[0]), _bytes_of(counts, target))
        call = ("reduce_scatter", address(target), source, op, factor, 0)
        return calls.execute(opts, outputs, [call], finish, (target, sources), target.device, listed)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any) -> Any:
        """Reduce tensors of as many equal parts as there are ranks; each rank has its own part at the end."""
        pair = memory.plain_pair(output, input)
        if pair is not None and pair[1][1] == pair[0][1] * self._calls.size:
            op, factor = memory.operator(opts.reduceOp, output.dtype)
            calls = [("reduce_scatter", *pair, op, factor, 0)]
            return self._calls.execute(opts, output, calls, (), (input, output), output.device, (input,))
        return self.reduce_scatter_single_coalesced([output], [input], opts, output)

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any, result: Any = None
    ) -> Any:
        """Reduce several tensors, as :meth:`reduce_scatter_single` does."""
        calls, keep = [], []
        finish: list[Finish] = []
        for output, input in zip(outputs, inputs, strict=True):
            data, target = memory.reduced_from(input), memory.reduced_to(output, finish)
            memory.same_type([output, input], "reduce_scatter_single")
            if input.numel() != output.numel() * self._calls.size:
                raise ValueError(
                    f"reduce_scatter_single: the input has {input.numel()} elements; input tensor must be the same "
                    f"size as output size times world size, {output.numel()} times {self._calls.size}"
                )
            op, factor = memory.operator(opts.reduceOp, output.dtype)
            if memory.overlap(data, target):
                data = data.clone()
            keep.append((data, target))
            calls.append(("reduce_scatter", address(target), address(data), op, factor, 0))
        device = inputs[0].device if inputs else NO_DEVICE
        return self._calls.execute(opts, outputs if result is None else result, calls, finish, keep, device, inputs)

    def all_to_all_single(
        self, output: Tensor, input: Tensor, output_split_sizes: list[int], input_split_sizes: list[int], opts: Any
    ) -> Any:
        """Exchange parts of one tensor, of equal or unequal numbers of rows."""
        pair = None if output_split_sizes or input_split_sizes else memory.plain_pair(output, input)
        if pair is not None:
            whole = [("all_to_all", *pair)]
            return self._calls.execute(opts, output, whole, (), (input, output), output.device, (input,))
        finish: list[Finish] = []
        data, target = memory.readable(input), memory.writable(output, finish)
        memory.same_type([output, input], "all_to_all_single")
        if memory.overlap(data, target):
            data = data.clone()
        sides: tuple[Any, Any] = (address(target), address(data))
        if output_split_sizes or input_split_sizes:
            received = self._rows(target, output_split_sizes, "output")
            sides = (sides[0], received), (sides[1], self._rows(data, input_split_sizes, "input"))
        calls = [("all_to_all", *sides)]
        return self._calls.execute(opts, output, calls, finish, (data, target), data.device, [input])

    def _rows(self, tensor: Tensor, sizes: Sequence[int], side: str) -> list[int]:
        """Return the elements of each rank's part."""
        size = self._calls.size
        rows = tensor.size(0) if tensor.dim() else 0
        if not sizes:
            if rows % size:
                raise ValueError(
                    f"all_to_all_single: tensor's dim 0 ({rows}) does not divide equally across group size {size}"
                )
            sizes = [rows // size] * size
        if len(sizes) != size:
            raise ValueError(f"all_to_all_single: number of {side} splits ({len(sizes)}) not equal to group size {size}")
        if sum(sizes) != rows:
            raise ValueError(
                f"all_to_all_single: split sizes {list(sizes)} don't match total dim 0 size {rows} of the {side}"
            )
        row = tensor.numel() // rows if rows else 0
        return _bytes_of([rows_of * row for rows_of in sizes], tensor)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> Any:
        """Exchange a tensor with each rank; the sizes may differ."""
        size = self._calls.size
        if len(outputs) != size or len(inputs) != size:
            raise ValueError(f"all_to_all: {len(outputs)} outputs and {len(inputs)} inputs for {size} ranks")
        finish: list[Finish] = []
        plain = [memory.readable(each).reshape(-1) for each in inputs]
        target = memory.flat_for(outputs, inputs[0].dtype, finish)
        memory.same_type([*inputs, *outputs], "all_to_all")
        data = torch.cat(plain)
        sent, received = [each.numel() for each in inputs], [each.numel() for each in outputs]
        calls = [
            (
                "all_to_all",
                (address(target), _bytes_of(received, data)),
                (address(data), _bytes_of(sent, data)),
            )
        ]
        return self._calls.execute(opts, outputs, calls, finish, (data, target), data.device, inputs)

    # From and to a root.

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Any:
        """Collect a tensor of each rank on the root."""
        tensor = _one(inputs, "gather")
        root = opts.rootRank
        finish: list[Finish] = []
        data = memory.readable(tensor)
        targets: list[Tensor] = []
        if root == self._calls.rank:
            listed = _one(outputs, "gather")
            if len(listed) != self._calls.size:
                raise ValueError(f"gather: {len(listed)} output tensors for {self._calls.size} ranks; give one a rank")
            targets = [memory.writable(each, finish) for each in listed]
            memory.same_type([tensor, *listed], "gather")
        elif outputs and outputs[0]:
            raise ValueError("gather: requires empty output on non-root: only the root has outputs")
        call = ("gather", [address(each) for each in targets], address(data), "sum", 1.0, root)
        return self._calls.execute(opts, outputs, [call], finish, (data, targets), data.device, inputs)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Any:
        """Pass a tensor of the root's list to each rank."""
        tensor = _one(outputs, "scatter")
        root = opts.rootRank
        finish: list[Finish] = []
        target = memory.writable(tensor, finish)
        sources: list[Tensor] = []
        if root == self._calls.rank:
            listed = _one(inputs, "scatter")
            if len(listed) != self._calls.size:
                raise ValueError(f"scatter: {len(listed)} input tensors for {self._calls.size} ranks; give one a rank")
            sources = [memory.readable(each) for each in listed]
            memory.same_type([tensor, *listed], "scatter")
        elif inputs and inputs[0]:
            raise ValueError("scatter: requires empty input on non-root: only the root has inputs")
        call = ("scatter", address(target), [address(each) for each in sources], "sum", 1.0, root)
        given = inputs[0] if inputs else []
        return self._calls.execute(opts, outputs, [call], finish, (target, sources), target.device, given)

    def barrier(self, opts: Any) -> Any:
        """Wait until all ranks have come; as NCCL's barrier, after what the GPUs have been given."""
        self._calls.synchronize()
        return self._calls.execute(opts, None, [("barrier", None, None)], (), None, inputs=())

    # Between two ranks.

    def send(self, tensors: list[Tensor], dst: int, tag: int = 0) -> Any:
        """Send a tensor; one on a GPU is collected until it is waited for (:mod:`roundelay.torch._batches`)."""
        return self._message(tensors, dst, tag, True)

    def recv(self, tensors: list[Tensor], src: int, tag: int = 0) -> Any:
        """Receive a tensor; one on a GPU is collected until it is waited for."""
        return self._message(tensors, src, tag, False)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Any:
        """Receive a tensor of the CPU from any rank, which the work names."""
        return self._message(tensors, None, tag, False)

    def _message(self, tensors: list[Tensor], peer: int | None, tag: int, is_send: bool) -> Any:
        tensor = _one(tensors, "send" if is_send else "recv")
        finish: list[Finish] = []
        data = memory.readable(tensor) if is_send else memory.writable(tensor, finish)
        calls = self._calls
        if not data.is_cuda:
            if not profile.active():
                return calls.noted(messages.start(calls, data, peer, tag, is_send, finish))
            name = f"{calls.name}:{'send' if is_send else 'recvAnySource' if peer is None else 'recv'}"
            start = functools.partial(messages.start, calls, data, peer, tag, is_send, finish)
            return calls.noted(profile.profiled(name, tensors, start))
        if peer is None:
            raise NotImplementedError(
                "roundelay does not support recv from any source into a tensor on a GPU; name the rank: src=…"
            )
        calls.messages.comm = calls.on(data.device)
        messages.begin(calls, address(data), peer, is_send)
        calls.messages_record.open = 0
        if batches._open:
            batches.flush_others(calls.messages)
        return calls.messages.add(batches.Message(data, peer, is_send, tag, finish))

    def start_coalescing(self) -> None:
        """Begin to collect operations, which :meth:`end_coalescing` returns as one work."""
        self._calls.messages.start()
        self._calls.coalesced = []

    def end_coalescing(self) -> Any:
        """Issue the messages that were collected as one batch; return work of all since ``start_coalescing``."""
        works = self._calls.coalesced or []
        self._calls.coalesced = None
        batch = self._calls.messages.start()
        if batch is not None:
            works.append(batches.BatchWork(batch))
        return works[0] if len(works) == 1 else Together(works)

    # What neither face has: torch lets only a backend in C++ make the arguments of the hook.

    def _register_on_completion_hook(self, hook: Any) -> NoReturn:
        missing("completion hooks", "use Options(compiled=True), or work.get_future().then(…)")


class Together(Done):
    """Several works as one."""

    def __init__(self, works: Sequence[Any]) -> None:
        super().__init__([])
        self._works = list(works)

    def wait(self, timeout: Any = None) -> bool:
        """Wait for all."""
        for work in self._works:
            work.wait(timeout)
        return True

    def _future(self) -> Any:
        """Return a future that is completed with the last one."""
        if not self._works:
            return super()._future()
        return torch.futures.collect_all([work.get_future() for work in self._works])

    def is_completed(self) -> bool:
        """Return True if all have ended."""
        return all(work.is_completed() for work in self._works)

    def exception(self) -> BaseException | None:
        """Return the first error."""
        return next((error for work in self._works if (error := work.exception()) is not None), None)

    def is_success(self) -> bool:
        """Return True if all have ended with success."""
        return self.is_completed() and self.exception() is None

    def synchronize(self) -> None:
        """Wait for all."""
        self.wait()
