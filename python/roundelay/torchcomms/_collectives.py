"""The operations of a communicator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..errors import UsageError
from ._base import Base, CallHints, CallTimeout
from ._engine import Engine, Options
from ._hooks import OpName, PreHookArgs
from ._types import ReduceOp
from ._work import TorchWork


class Collectives(Base):
    """The operations, each with hints and a timeout for the call."""

    # In place, or to one rank.

    def broadcast(
        self, tensor: Tensor, root: int, async_op: bool, hints: CallHints = None, timeout: CallTimeout = None
    ) -> TorchWork:
        """Copy the tensor of ``root`` to all ranks, in place."""
        args = PreHookArgs(tensor=tensor, root=self._peer(root, "root"), async_op=async_op)
        return self._run(OpName.broadcast, Engine.broadcast, args, hints, timeout, [tensor])

    def all_reduce(
        self, tensor: Tensor, op: ReduceOp, async_op: bool, hints: CallHints = None, timeout: CallTimeout = None
    ) -> TorchWork:
        """Reduce the tensors of all ranks, in place on all."""
        args = PreHookArgs(tensor=tensor, op=op, async_op=async_op)
        return self._run(OpName.all_reduce, Engine.allreduce, args, hints, timeout, [tensor])

    def reduce(
        self, tensor: Tensor, root: int, op: ReduceOp, async_op: bool, hints: CallHints = None, timeout: CallTimeout = None
    ) -> TorchWork:
        """Reduce the tensors of all ranks to the one of ``root``; the others keep theirs."""
        args = PreHookArgs(tensor=tensor, op=op, root=self._peer(root, "root"), async_op=async_op)
        return self._run(OpName.reduce, Engine.reduce, args, hints, timeout, [tensor])

    # From all to all.

    def all_gather(
        self,
        tensor_list: Sequence[Tensor],
        tensor: Tensor,
        async_op: bool,
        hints: CallHints = None,
        timeout: CallTimeout = None,
    ) -> TorchWork:
        """Collect the tensors of all ranks, of one size, in a list on all."""
        self._equal(tensor_list, tensor, "all_gather", "tensor_list")
        return self._gathered(OpName.all_gather, tensor_list, tensor, async_op, hints, timeout)

    def all_gather_v(
        self,
        tensor_list: Sequence[Tensor],
        tensor: Tensor,
        async_op: bool,
        hints: CallHints = None,
        timeout: CallTimeout = None,
    ) -> TorchWork:
        """Collect the tensors of all ranks, whose sizes may differ, in a list on all."""
        self._count(tensor_list, "all_gather_v", "tensor_list")
        return self._gathered(OpName.all_gather_v, tensor_list, tensor, async_op, hints, timeout)

    def _gathered(
        self,
        name: OpName,
        tensor_list: Sequence[Tensor],
        tensor: Tensor,
        async_op: bool,
        hints: CallHints,
        timeout: CallTimeout,
    ) -> TorchWork:
        args = PreHookArgs(input=tensor, output=tensor_list, async_op=async_op)
        return self._run(name, Engine.allgather, args, hints, timeout, [list(tensor_list)], [tensor])

    def all_gather_single(
        self, output: Tensor, input: Tensor, async_op: bool, hints: CallHints = None, timeout: CallTimeout = None
    ) -> TorchWork:
        """Collect the inputs of all ranks in one tensor, of ``size`` times as many elements."""
        args = PreHookArgs(input=input, output=output, async_op=async_op)
        return self._run(OpName.all_gather_single, Engine.all_gather_single, args, hints, timeout, output, input)

    def reduce_scatter(
        self,
        output: Tensor,
        input_list: Sequence[Tensor],
        op: ReduceOp,
        async_op: bool,
        hints: CallHints = None,
        timeout: CallTimeout = None,
    ) -> TorchWork:
        """Reduce the lists of all ranks, of tensors of one size; rank r has the r-th result."""
        self._equal(input_list, output, "reduce_scatter", "input_list")
        args = PreHookArgs(input=input_list, output=output, op=op, async_op=async_op)
        return self._run(
            OpName.reduce_scatter, Engine.reduce_scatter, args, hints, timeout, [output], [list(input_list)]
        )

    def reduce_scatter_v(
        self,
        output: Tensor,
        input_list: Sequence[Tensor],
        op: ReduceOp,
        async_op: bool,
        hints: CallHints = None,
        timeout: CallTimeout = None,
    ) -> TorchWork:
        """Reduce the lists of all ranks, of tensors whose sizes may differ; rank r has the r-th result."""
        self._count(input_list, "reduce_scatter_v", "input_list")
        args = PreHookArgs(input=input_list, output=output, op=op, async_op=async_op)
        return self._run(
            OpName.reduce_scatter_v, Engine.reduce_scatter, args, hints, timeout, [output], [list(input_list)]
        )

    def reduce_scatter_single(
        self,
        output: Tensor,
        input: Tensor,
        op: ReduceOp,
        async_op: bool,
        hints: CallHints = None,
        timeout: CallTimeout = None,
    ) -> TorchWork:
        """Reduce the inputs of all ranks; rank r has the r-th part of the result."""
        args = PreHookArgs(input=input, output=output, op=op, async_op=async_op)
        return self._run(
            OpName.reduce_scatter_single, Engine.reduce_scatter_single, args, hints, timeout, output, input
        )

    def all_to_all_single(
        self, output: Tensor, input: Tensor, async_op: bool, hints: CallHints = None, timeout: CallTimeout = None
    ) -> TorchWork:
        """Exchange equal parts of one tensor."""
        args = PreHookArgs(input=input, output=output, async_op=async_op)
        if output.numel() != input.numel():
            raise UsageError(
                f"all_to_all_single: the output has {output.numel()} elements, the input {input.numel()}: they must "
                "have the same size"
            )
        return self._run(
            OpName.all_to_all_single, Engine.all_to_all_single, args, hints, timeout, output, input, [], []
        )

    def all_to_all_v_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        async_op: bool,
        hints: CallHints = None,
        timeout: CallTimeout = None,
    ) -> TorchWork:
        """Exchange parts of one tensor, of as many rows as the lists say for each rank."""
        sides = []
        for side, tensor, sizes in (("output", output, output_split_sizes), ("input", input, input_split_sizes)):
            rows = tensor.size(0) if tensor.dim() else 0
            if len(sizes) != self._size:
                raise UsageError(f"{side}_split_sizes has {len(sizes)} entries for {self._size} ranks: give one a rank")
            if sum(sizes) > rows or min(sizes) < 0:
                raise UsageError(f"{side}_split_sizes is {list(sizes)}, but the {side} has {rows} rows")
            # What lies after the last part takes no part.
            sides.append(tensor if sum(sizes) == rows else tensor.narrow(0, 0, sum(sizes)))
        args = PreHookArgs(input=input, output=output, async_op=async_op)
        return self._run(
            OpName.all_to_all_v_single,
            Engine.all_to_all_single,
            args,
            hints,
            timeout,
            *sides,
            list(output_split_sizes),
            list(input_split_sizes),
        )

    def all_to_all(
        self,
        output_tensor_list: Sequence[Tensor],
        input_tensor_list: Sequence[Tensor],
        async_op: bool,
        hints: CallHints = None,
        timeout: CallTimeout = None,
    ) -> TorchWork:
        """Exchange a tensor with each rank; the sizes may differ."""
        self._count(output_tensor_list, "all_to_all", "output_tensor_list")
        self._count(input_tensor_list, "all_to_all", "input_tensor_list")
        args = PreHookArgs(input=input_tensor_list, output=output_tensor_list, async_op=async_op)
        outputs, inputs = list(output_tensor_list), list(input_tensor_list)
        return self._run(OpName.all_to_all, Engine.alltoall, args, hints, timeout, outputs, inputs)

    def barrier(self, async_op: bool, hints: CallHints = None, timeout: CallTimeout = None) -> TorchWork:
        """Wait until all ranks have come."""
        return self._run(OpName.barrier, Engine.barrier, PreHookArgs(async_op=async_op), hints, timeout)

    # From and to a root.

    def scatter(
        self,
        output_tensor: Tensor,
        input_tensor_list: Sequence[Tensor],
        root: int,
        async_op: bool,
        hints: CallHints = None,
        timeout: CallTimeout = None,
    ) -> TorchWork:
        """Pass a tensor of the list of ``root`` to each rank; on the others the list counts for nothing."""
        here = self._peer(root, "root") == self._rank
        if here:
            self._equal(input_tensor_list, output_tensor, "scatter", "input_tensor_list")
        args = PreHookArgs(input=input_tensor_list, output=output_tensor, root=root, async_op=async_op)
        inputs = [list(input_tensor_list)] if here else []
        return self._run(OpName.scatter, Engine.scatter, args, hints, timeout, [output_tensor], inputs)

    def gather(
        self,
        output_tensor_list: Sequence[Tensor],
        input_tensor: Tensor,
        root: int,
        async_op: bool,
        hints: CallHints = None,
        timeout: CallTimeout = None,
    ) -> TorchWork:
        """Collect the tensors of all ranks in a list of ``root``; on the others the list counts for nothing."""
        args = PreHookArgs(input=input_tensor, output=output_tensor_list, root=root, async_op=async_op)
        return self._gather(OpName.gather, args, output_tensor_list, input_tensor, hints, timeout)

    def gather_single(
        self,
        output: Tensor,
        input: Tensor,
        root: int,
        async_op: bool,
        hints: CallHints = None,
        timeout: CallTimeout = None,
    ) -> TorchWork:
        """Collect the inputs of all ranks in one tensor of ``root``, of ``size`` times as many elements."""
        args = PreHookArgs(input=input, output=output, root=root, async_op=async_op)
        parts: list[Tensor] = []
        if root == self._rank:
            if output.numel() != self._size * input.numel():
                raise UsageError(
                    f"gather_single: the output has {output.numel()} elements, and {self._size} inputs of "
                    f"{input.numel()} come"
                )
            parts = list(output.view(self._size, -1).unbind()) if input.numel() else [input] * self._size
        return self._gather(OpName.gather_single, args, parts, input, hints, timeout)

    def _gather(
        self,
        name: OpName,
        args: PreHookArgs,
        outputs: Sequence[Tensor],
        tensor: Tensor,
        hints: CallHints,
        timeout: CallTimeout,
    ) -> TorchWork:
        assert args.root is not None
        here = self._peer(args.root, "root") == self._rank
        if here:
            self._equal(outputs, tensor, name.name, "output_tensor_list")
        return self._run(name, Engine.gather, args, hints, timeout, [list(outputs)] if here else [], [tensor])

    # Between two ranks.

    def send(
        self, tensor: Tensor, dst: int, async_op: bool, hints: CallHints = None, timeout: CallTimeout = None
    ) -> TorchWork:
        """Send a tensor to rank ``dst``, which receives as many bytes."""
        args = PreHookArgs(tensor=tensor, peer=self._peer(dst, "dst"), async_op=async_op)
        return self._run(OpName.send, _send, args, hints, timeout, tensor, dst)

    def recv(
        self, tensor: Tensor, src: int, async_op: bool, hints: CallHints = None, timeout: CallTimeout = None
    ) -> TorchWork:
        """Receive a tensor from rank ``src``; messages of one rank come in the order in which it sends them."""
        args = PreHookArgs(tensor=tensor, peer=self._peer(src, "src"), async_op=async_op)
        return self._run(OpName.recv, _recv, args, hints, timeout, tensor, src)


def _send(engine: Engine, tensor: Tensor, peer: int, opts: Options) -> Any:
    return engine.message(tensor, peer, True, opts)


def _recv(engine: Engine, tensor: Tensor, peer: int, opts: Options) -> Any:
    return engine.message(tensor, peer, False, opts)
