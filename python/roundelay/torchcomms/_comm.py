"""Communicators by the API of torchcomms."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
from torch import Tensor

from .. import _native
from ..errors import AbortedError, Error, UnsupportedError, UsageError
from ..torch._join import join
from ._batch import BatchSendRecv
from ._engine import Engine, Options
from ._hooks import AbortHook, Hooks, OpName, PostHook, PostHookArgs, PreHook, PreHookArgs, RemovableHandle, operation
from ._join import below, place, store_of
from ._types import CommOptions, ReduceOp, checked_hints, checked_timeout
from ._work import TorchWork

_Hints = Mapping[str, str] | None
_Timeout = timedelta | None


def new_comm(
    backend: str,
    device: torch.device | str,
    name: str,
    abort_process_on_timeout_or_error: bool | None = None,
    timeout: timedelta | None = None,
    is_high_priority_stream: bool | None = None,
    store: Any = None,
    enable_reconfigure: bool = False,
    hints: Mapping[str, str] | None = None,
    *,
    rank: int | None = None,
    size: int | None = None,
) -> TorchComm:
    """Make a communicator of all ranks. All of them call it, with the same name.

    ``backend`` is ``"roundelay"``, ``device`` a CPU or a GPU. Rank and size come from the launcher (torchrun, mpirun,
    ``TORCHCOMM_RANK`` and ``TORCHCOMM_SIZE``); ``rank`` and ``size``, which torchcomms has not, are for ranks that
    are threads. The ranks meet in ``store``, or at ``MASTER_ADDR`` and ``MASTER_PORT``. ``timeout`` is the longest
    time without progress (600 s), ``hints`` are those of ``docs/hints.md``. Errors are raised, and never end the
    process.

    Raises ``UsageError`` for wrong arguments, ``SettingsError`` for unknown hints, ``StartError`` if the ranks cannot
    come together.
    """
    if backend != "roundelay":
        raise UsageError(
            f"failed to find backend {backend}: this module has `roundelay` only; `torchcomms` itself has others"
        )
    if enable_reconfigure:
        raise UnsupportedError("enable_reconfigure=True is not supported by backend roundelay: make a new communicator")
    options = CommOptions(store=store, name=name)
    if abort_process_on_timeout_or_error is not None:
        options.abort_process_on_timeout_or_error = abort_process_on_timeout_or_error
    if timeout is not None:
        options.timeout = checked_timeout(timeout)
    if is_high_priority_stream is not None:
        options.is_high_priority_stream = is_high_priority_stream
    options.hints = dict(hints or {})
    device = torch.device(device)
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"the device is {device}: roundelay has cpu and cuda")
    rank, size = place(rank, size)
    found = below(store_of(store, rank, options.timeout), name, rank)
    native = join(found, rank, size, options.timeout, checked_hints(options.hints))
    return TorchComm(native, device, name, options, found, list(range(size)))


class TorchComm:
    """One rank's part in a communicator, on one device.

    Every operation takes ``async_op``, ``hints`` for this call, and a ``timeout`` (the communicator's if none), and
    returns :class:`TorchWork`. Operations run in the order in which they are called, which must be the same on all
    ranks; sends and receives move beside them.
    """

    def __init__(
        self,
        native: _native.Communicator,
        device: torch.device,
        name: str,
        options: CommOptions,
        store: Any,
        ranks: list[int],
    ) -> None:
        self._native = native
        self._engine = Engine(native, options.timeout)
        self._device = device
        self._name = name
        self._options = options
        self._store = store
        self._ranks = ranks
        self._rank: int = native.rank
        self._size: int = native.size
        self._timeout = options.timeout
        self._finalized = False
        self._told = False
        self._pre: Hooks[PreHook] = Hooks()
        self._post: Hooks[PostHook] = Hooks()
        self._abort: Hooks[AbortHook] = Hooks()
        # Nothing of a communicator that is forgotten stays behind.
        self._end = weakref.finalize(self, native.shutdown)
        native.set_timeout(options.timeout.total_seconds())

    def __copy__(self) -> TorchComm:
        return self

    def __deepcopy__(self, memo: object) -> TorchComm:
        return self

    def __repr__(self) -> str:
        return f"<TorchComm {self._name!r}: rank {self._rank} of {self._size}, roundelay on {self._device}>"

    # What it is.

    def get_rank(self) -> int:
        """Return the number of this rank."""
        return self._rank

    def get_size(self) -> int:
        """Return the number of ranks."""
        return self._size

    def get_ranks(self) -> list[int]:
        """Return the ranks by their numbers in the communicator that was not made by ``split``."""
        return list(self._ranks)

    def get_name(self) -> str:
        """Return the name."""
        return self._name

    def get_device(self) -> torch.device:
        """Return the device of the tensors."""
        return self._device

    def get_options(self) -> CommOptions:
        """Return what the communicator was made with."""
        return self._options

    def get_backend(self) -> str:
        """Return ``roundelay``."""
        return "roundelay"

    def get_backend_version(self) -> str:
        """Return the version of roundelay."""
        return _native.__version__

    def get_backend_impl(self) -> _native.Communicator:
        """Return the native communicator, which has ``explain``, ``install`` and ``flight``."""
        return self._native

    unsafe_get_backend = get_backend_impl

    # Settings, and the end.

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the longest time without progress of the operations from now on."""
        self._timeout = checked_timeout(timeout)
        self._options.timeout = self._timeout
        self._native.set_timeout(timeout.total_seconds())

    def set_hints(self, hints: Mapping[str, str]) -> None:
        """Set the hints of the operations from now on; the same on all ranks."""
        self._native.set_hints(checked_hints(hints))
        self._options.hints = dict(hints)

    def finalize(self) -> None:
        """End this rank's part, after all operations that were started. The other ranks do the same."""
        self._live("finalize")
        if self._pre:
            for pre in self._pre.all():
                pre(OpName.finalize, -1, PreHookArgs())
        self._finalized = True
        self._end()
        for post in self._post.all():
            post(-1, PostHookArgs())

    def abort(self) -> None:
        """End the communicator on all ranks, from any thread, at once: pending and later operations fail."""
        self._tell_abort()
        self._native.abort("abort() was called on the communicator")

    def is_abort_supported(self) -> bool:
        """Return True."""
        return True

    def is_aborted(self) -> bool:
        """Return True once any rank has ended the communicator."""
        return self._native.aborted

    def _tell_abort(self) -> None:
        if not self._told:
            self._told = True
            for hook in self._abort.all():
                hook()

    # Hooks.

    def register_pre_hook(self, callback: PreHook) -> RemovableHandle:
        """Have ``callback(name, op_id, args)`` called before each operation."""
        return self._pre.add(callback)

    def register_post_hook(self, callback: PostHook) -> RemovableHandle:
        """Have ``callback(op_id, args)`` called after each operation was started."""
        return self._post.add(callback)

    def register_abort_hook(self, callback: AbortHook) -> RemovableHandle:
        """Have ``callback()`` called once, before ``abort``, or when an operation was called and has failed."""
        return self._abort.add(callback)

    # In place, or to one rank.

    def broadcast(
        self, tensor: Tensor, root: int, async_op: bool, hints: _Hints = None, timeout: _Timeout = None
    ) -> TorchWork:
        """Copy the tensor of ``root`` to all ranks, in place."""
        args = PreHookArgs(tensor=tensor, root=self._peer(root, "root"), async_op=async_op)
        return self._play(OpName.broadcast, Engine.broadcast, args, hints, timeout, [tensor])

    def all_reduce(
        self, tensor: Tensor, op: ReduceOp, async_op: bool, hints: _Hints = None, timeout: _Timeout = None
    ) -> TorchWork:
        """Reduce the tensors of all ranks, in place on all."""
        args = PreHookArgs(tensor=tensor, op=op, async_op=async_op)
        return self._play(OpName.all_reduce, Engine.allreduce, args, hints, timeout, [tensor])

    def reduce(
        self, tensor: Tensor, root: int, op: ReduceOp, async_op: bool, hints: _Hints = None, timeout: _Timeout = None
    ) -> TorchWork:
        """Reduce the tensors of all ranks to the one of ``root``; the others keep theirs."""
        args = PreHookArgs(tensor=tensor, op=op, root=self._peer(root, "root"), async_op=async_op)
        return self._play(OpName.reduce, Engine.reduce, args, hints, timeout, [tensor])

    # From all to all.

    def all_gather(
        self,
        tensor_list: Sequence[Tensor],
        tensor: Tensor,
        async_op: bool,
        hints: _Hints = None,
        timeout: _Timeout = None,
    ) -> TorchWork:
        """Collect the tensors of all ranks, of one size, in a list on all."""
        self._equal(tensor_list, tensor, "all_gather", "tensor_list")
        return self._gathered(OpName.all_gather, tensor_list, tensor, async_op, hints, timeout)

    def all_gather_v(
        self,
        tensor_list: Sequence[Tensor],
        tensor: Tensor,
        async_op: bool,
        hints: _Hints = None,
        timeout: _Timeout = None,
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
        hints: _Hints,
        timeout: _Timeout,
    ) -> TorchWork:
        args = PreHookArgs(input=tensor, output=tensor_list, async_op=async_op)
        return self._play(name, Engine.allgather, args, hints, timeout, [list(tensor_list)], [tensor])

    def all_gather_single(
        self, output: Tensor, input: Tensor, async_op: bool, hints: _Hints = None, timeout: _Timeout = None
    ) -> TorchWork:
        """Collect the inputs of all ranks in one tensor, of ``size`` times as many elements."""
        args = PreHookArgs(input=input, output=output, async_op=async_op)
        return self._play(OpName.all_gather_single, Engine.all_gather_single, args, hints, timeout, output, input)

    def reduce_scatter(
        self,
        output: Tensor,
        input_list: Sequence[Tensor],
        op: ReduceOp,
        async_op: bool,
        hints: _Hints = None,
        timeout: _Timeout = None,
    ) -> TorchWork:
        """Reduce the lists of all ranks, of tensors of one size; rank r has the r-th result."""
        self._equal(input_list, output, "reduce_scatter", "input_list")
        args = PreHookArgs(input=input_list, output=output, op=op, async_op=async_op)
        return self._play(
            OpName.reduce_scatter, Engine.reduce_scatter, args, hints, timeout, [output], [list(input_list)]
        )

    def reduce_scatter_v(
        self,
        output: Tensor,
        input_list: Sequence[Tensor],
        op: ReduceOp,
        async_op: bool,
        hints: _Hints = None,
        timeout: _Timeout = None,
    ) -> TorchWork:
        """Reduce the lists of all ranks, of tensors whose sizes may differ; rank r has the r-th result."""
        self._count(input_list, "reduce_scatter_v", "input_list")
        args = PreHookArgs(input=input_list, output=output, op=op, async_op=async_op)
        return self._play(
            OpName.reduce_scatter_v, Engine.reduce_scatter, args, hints, timeout, [output], [list(input_list)]
        )

    def reduce_scatter_single(
        self,
        output: Tensor,
        input: Tensor,
        op: ReduceOp,
        async_op: bool,
        hints: _Hints = None,
        timeout: _Timeout = None,
    ) -> TorchWork:
        """Reduce the inputs of all ranks; rank r has the r-th part of the result."""
        args = PreHookArgs(input=input, output=output, op=op, async_op=async_op)
        return self._play(
            OpName.reduce_scatter_single, Engine.reduce_scatter_single, args, hints, timeout, output, input
        )

    def all_to_all_single(
        self, output: Tensor, input: Tensor, async_op: bool, hints: _Hints = None, timeout: _Timeout = None
    ) -> TorchWork:
        """Exchange equal parts of one tensor."""
        args = PreHookArgs(input=input, output=output, async_op=async_op)
        if output.numel() != input.numel():
            raise UsageError(
                f"all_to_all_single: the output has {output.numel()} elements, the input {input.numel()}: they must "
                "have the same size"
            )
        return self._play(
            OpName.all_to_all_single, Engine.all_to_all_single, args, hints, timeout, output, input, [], []
        )

    def all_to_all_v_single(
        self,
        output: Tensor,
        input: Tensor,
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        async_op: bool,
        hints: _Hints = None,
        timeout: _Timeout = None,
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
        return self._play(
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
        hints: _Hints = None,
        timeout: _Timeout = None,
    ) -> TorchWork:
        """Exchange a tensor with each rank; the sizes may differ."""
        self._count(output_tensor_list, "all_to_all", "output_tensor_list")
        self._count(input_tensor_list, "all_to_all", "input_tensor_list")
        args = PreHookArgs(input=input_tensor_list, output=output_tensor_list, async_op=async_op)
        outputs, inputs = list(output_tensor_list), list(input_tensor_list)
        return self._play(OpName.all_to_all, Engine.alltoall, args, hints, timeout, outputs, inputs)

    def barrier(self, async_op: bool, hints: _Hints = None, timeout: _Timeout = None) -> TorchWork:
        """Wait until all ranks have come."""
        return self._play(OpName.barrier, Engine.barrier, PreHookArgs(async_op=async_op), hints, timeout)

    # From and to a root.

    def scatter(
        self,
        output_tensor: Tensor,
        input_tensor_list: Sequence[Tensor],
        root: int,
        async_op: bool,
        hints: _Hints = None,
        timeout: _Timeout = None,
    ) -> TorchWork:
        """Pass a tensor of the list of ``root`` to each rank; on the others the list counts for nothing."""
        here = self._peer(root, "root") == self._rank
        if here:
            self._equal(input_tensor_list, output_tensor, "scatter", "input_tensor_list")
        args = PreHookArgs(input=input_tensor_list, output=output_tensor, root=root, async_op=async_op)
        inputs = [list(input_tensor_list)] if here else []
        return self._play(OpName.scatter, Engine.scatter, args, hints, timeout, [output_tensor], inputs)

    def gather(
        self,
        output_tensor_list: Sequence[Tensor],
        input_tensor: Tensor,
        root: int,
        async_op: bool,
        hints: _Hints = None,
        timeout: _Timeout = None,
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
        hints: _Hints = None,
        timeout: _Timeout = None,
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
        hints: _Hints,
        timeout: _Timeout,
    ) -> TorchWork:
        assert args.root is not None
        here = self._peer(args.root, "root") == self._rank
        if here:
            self._equal(outputs, tensor, name.name, "output_tensor_list")
        return self._play(name, Engine.gather, args, hints, timeout, [list(outputs)] if here else [], [tensor])

    # Between two ranks.

    def send(
        self, tensor: Tensor, dst: int, async_op: bool, hints: _Hints = None, timeout: _Timeout = None
    ) -> TorchWork:
        """Send a tensor to rank ``dst``, which receives as many bytes."""
        args = PreHookArgs(tensor=tensor, peer=self._peer(dst, "dst"), async_op=async_op)
        return self._play(OpName.send, _send, args, hints, timeout, tensor, dst)

    def recv(
        self, tensor: Tensor, src: int, async_op: bool, hints: _Hints = None, timeout: _Timeout = None
    ) -> TorchWork:
        """Receive a tensor from rank ``src``; messages of one rank come in the order in which it sends them."""
        args = PreHookArgs(tensor=tensor, peer=self._peer(src, "src"), async_op=async_op)
        return self._play(OpName.recv, _recv, args, hints, timeout, tensor, src)

    def batch_op_create(self) -> BatchSendRecv:
        """Begin a batch of sends and receives."""
        return BatchSendRecv(self)

    # Parts.

    def split(
        self, ranks: Sequence[int], name: str, hints: _Hints = None, timeout: _Timeout = None
    ) -> TorchComm | None:
        """Make a communicator of a part of the ranks, numbered as they are listed.

        The ranks of a part call it with the same list and name; a rank that is in none passes an empty list and gets
        None. ``hints`` go before those of this communicator, and ``timeout`` is this one's by default.

        Raises ``UsageError`` if a rank is listed twice or does not exist, or if the caller is not listed.
        """
        self._live("split")
        listed = [self._peer(rank, "rank") for rank in ranks]
        if len(set(listed)) != len(listed):
            raise UsageError(f"split: {listed} lists a rank twice")
        if listed and self._rank not in listed:
            raise UsageError(f"split: rank {self._rank} is not in {listed}: pass [] on ranks that are in no part")
        number = next(operation)
        for pre in self._pre.all():
            pre(OpName.split, number, PreHookArgs(ranks=listed, name=name))
        if not listed:
            return None
        options = CommOptions(
            self._options.abort_process_on_timeout_or_error,
            self._timeout if timeout is None else checked_timeout(timeout),
            self._options.is_high_priority_stream,
            self._options.store,
            False,
            {**self._options.hints, **(hints or {})},
            name,
        )
        rank = listed.index(self._rank)
        # Parts of the same name are told apart by their ranks.
        found = below(self._store, f"{name}/{','.join(map(str, listed))}", rank)
        native = join(found, rank, len(listed), options.timeout, checked_hints(options.hints))
        made = TorchComm(native, self._device, name, options, found, [self._ranks[each] for each in listed])
        for post in self._post.all():
            post(number, PostHookArgs(comm=made))
        return made

    # What is not there.

    def get_init_handle(self) -> NoReturn:
        """Raise ``UnsupportedError``."""
        raise UnsupportedError("getInitHandle not implemented: roundelay has no reconfigure yet")

    def reconfigure(self, uuid: int, init_handles: Any, timeout: _Timeout = None, hints: _Hints = None) -> NoReturn:
        """Raise ``UnsupportedError``."""
        raise UnsupportedError("reconfigure not implemented: finalize or abort, and make a new communicator")

    def new_window(self, tensor: Tensor | None = None) -> NoReturn:
        """Raise ``UnsupportedError``."""
        raise UnsupportedError("new_window not implemented: roundelay has no one-sided operations; use send, recv")

    def all_gather_p_init(self, output: Tensor, hints: _Hints = None, timeout: _Timeout = None) -> NoReturn:
        """Raise ``UnsupportedError``."""
        raise UnsupportedError("all_gather_p_init not implemented: use all_gather_single")

    def get_mem_allocator(self) -> NoReturn:
        """Raise ``UnsupportedError``."""
        raise UnsupportedError("roundelay has no allocator: any tensor will do")

    def tensor_register(self, tensor: Tensor) -> None:
        """Do nothing: roundelay needs no registration."""

    def tensor_deregister(self, tensor: Tensor) -> None:
        """Do nothing."""

    # What operations have in common.

    def _live(self, what: str) -> None:
        if self._finalized:
            raise UsageError(f"{what}: the communicator {self._name!r} was finalized: make a new one by new_comm")

    def _peer(self, rank: int, what: str) -> int:
        if not 0 <= rank < self._size:
            raise UsageError(f"{what} must be in range [0, {self._size}), but got {rank}")
        return rank

    def _count(self, tensors: Sequence[Tensor], what: str, which: str) -> None:
        if len(tensors) != self._size:
            raise UsageError(f"{what}: {which} has {len(tensors)} tensors for {self._size} ranks: give one a rank")

    def _equal(self, tensors: Sequence[Tensor], one: Tensor, what: str, which: str) -> None:
        self._count(tensors, what, which)
        if any(each.numel() != one.numel() for each in tensors):
            raise UsageError(
                f"{what}: all tensors of {which} must have {one.numel()} elements, as the other one, but they have "
                f"{[each.numel() for each in tensors]}"
            )

    def _play(
        self, name: OpName, call: Any, args: PreHookArgs, hints: _Hints, timeout: _Timeout, *tensors: Any
    ) -> TorchWork:
        """Make a call between the hooks."""
        self._live(name.name)
        limit = checked_timeout(timeout)
        opts = Options(bool(args.async_op), checked_hints(hints) if hints else [], limit, args.op, args.root or 0)
        number = next(operation)
        if self._pre:
            for pre in self._pre.all():
                pre(name, number, args)
        try:
            work = TorchWork(self._engine.perform(call, opts, *tensors))
        except Error as error:
            if self._native.aborted or isinstance(error, AbortedError):
                self._tell_abort()
            raise
        except ValueError as error:
            raise UsageError(str(error)) from None
        if self._post:
            for post in self._post.all():
                post(number, PostHookArgs(work=work))
        return work


def _send(engine: Engine, tensor: Tensor, peer: int, opts: Options) -> Any:
    return engine.message(tensor, peer, True, opts)


def _recv(engine: Engine, tensor: Tensor, peer: int, opts: Options) -> Any:
    return engine.message(tensor, peer, False, opts)
