"""The hooks of a communicator, for the calls that ``torch.distributed`` makes on a process group of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ._hooks import OpName, PostHookArgs, PreHookArgs, operation

Description = Callable[..., PreHookArgs]
"""Returns what hooks are passed, from the arguments of a call of c10d."""


def _asks_async(opts: Any) -> bool:
    return bool(getattr(opts, "asyncOp", True))


def _one(tensors: Any) -> Tensor:
    """Return the tensor of a call in place, which torch 2.13 and before may pass by itself."""
    found = tensors if isinstance(tensors, Tensor) else tensors[0]
    assert isinstance(found, Tensor)
    return found


def _in_place(tensors: Any, opts: Any = None, timeout: Any = None) -> PreHookArgs:
    return PreHookArgs(tensor=_one(tensors), async_op=_asks_async(opts))


def _rooted(tensors: Any, opts: Any = None, timeout: Any = None) -> PreHookArgs:
    root = opts if isinstance(opts, int) else getattr(opts, "rootRank", 0)
    return PreHookArgs(tensor=_one(tensors), root=root, async_op=_asks_async(opts))


def _lists(outputs: Any, inputs: Any, opts: Any) -> PreHookArgs:
    return PreHookArgs(input=inputs, output=outputs, async_op=_asks_async(opts))


def _gathered(outputs: Any, inputs: Any, opts: Any) -> PreHookArgs:
    return PreHookArgs(input=inputs[0], output=outputs[0] if outputs else [], async_op=_asks_async(opts))


def _scattered(outputs: Any, inputs: Any, opts: Any) -> PreHookArgs:
    return PreHookArgs(input=inputs[0] if inputs else [], output=outputs[0], async_op=_asks_async(opts))


def _single(output: Any, input: Any, *rest: Any) -> PreHookArgs:
    return PreHookArgs(input=input, output=output, async_op=_asks_async(rest[-1]))


def _to_root(outputs: Any, inputs: Any, opts: Any) -> PreHookArgs:
    args = _gathered(outputs, inputs, opts)
    return PreHookArgs(input=args.input, output=args.output, root=opts.rootRank, async_op=args.async_op)


def _from_root(outputs: Any, inputs: Any, opts: Any) -> PreHookArgs:
    args = _scattered(outputs, inputs, opts)
    return PreHookArgs(input=args.input, output=args.output, root=opts.rootRank, async_op=args.async_op)


def _message(tensors: Any, peer: int, tag: int = 0) -> PreHookArgs:
    return PreHookArgs(tensor=tensors[0], peer=peer, async_op=True)


_OPERATIONS: dict[str, tuple[OpName, Description]] = {
    "allreduce": (OpName.all_reduce, _in_place),
    "broadcast": (OpName.broadcast, _rooted),
    "reduce": (OpName.reduce, _rooted),
    "allgather": (OpName.all_gather, _gathered),
    "all_gather_single": (OpName.all_gather_single, _single),
    "reduce_scatter": (OpName.reduce_scatter, _scattered),
    "reduce_scatter_single": (OpName.reduce_scatter_single, _single),
    "all_to_all_single": (OpName.all_to_all_single, _single),
    "alltoall": (OpName.all_to_all, _lists),
    "gather": (OpName.gather, _to_root),
    "scatter": (OpName.scatter, _from_root),
    "barrier": (OpName.barrier, lambda opts=None: PreHookArgs(async_op=_asks_async(opts))),
    "send": (OpName.send, _message),
    "recv": (OpName.recv, _message),
}
"""The calls of c10d that have hooks, by their names there. Calls of several operations in one have none."""


def add_hooks(face: type[Any]) -> None:
    """Have a class of process groups call the hooks of the communicator that ``hooked`` of an instance names."""
    for method, (name, describe) in _OPERATIONS.items():
        setattr(face, method, _hooked(getattr(face, method), name, describe))


def _hooked(own: Callable[..., Any], name: OpName, describe: Description) -> Callable[..., Any]:
    @functools.wraps(own)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        comm = self.hooked
        if not comm._pre and not comm._post:
            return own(self, *args, **named)
        number = next(operation)
        described = describe(*args, **named)
        for pre in comm._pre.all():
            pre(name, number, described)
        work = own(self, *args, **named)
        for post in comm._post.all():
            post(number, PostHookArgs(work=work, name=name, op_id=number))
        return work

    return call
