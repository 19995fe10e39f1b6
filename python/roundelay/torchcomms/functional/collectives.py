"""Operations of communicators by torch's functional collectives, which have gradients and can be compiled.

While this module is imported, an operation goes this way where a tensor of it requires a gradient, or where
``torch.compile`` traces it: through the process group that is the communicator (:mod:`roundelay.torchcomms._group`),
so by the same connections. All other calls go as they did.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed._functional_collectives  # Registers the gradients.
from torch import Tensor

from ...errors import UnsupportedError, UsageError
from .. import _base
from .._group import process_group
from .._types import RedOpType, ReduceOp

if TYPE_CHECKING:
    from .._base import Base
    from .._hooks import PreHookArgs

_NAMES = {
    RedOpType.SUM: "sum",
    RedOpType.PRODUCT: "product",
    RedOpType.MIN: "min",
    RedOpType.MAX: "max",
    RedOpType.BAND: "band",
    RedOpType.BOR: "bor",
    RedOpType.BXOR: "bxor",
    RedOpType.AVG: "avg",
}

_numbers = itertools.count()


class FunctionalWork:
    """An operation with gradients, or one that is being compiled: ``wait`` puts the results into the tensors."""

    def __init__(self, targets: Sequence[Tensor], results: Sequence[Tensor], is_list: bool) -> None:
        self._targets = list(targets)
        self._results = list(results)
        self._is_list = is_list
        self._waited: list[Tensor] | None = None

    def wait(self) -> Any:
        """Wait for the end; return the tensor, or the list of tensors, that gradients go back from."""
        if self._waited is None:
            waited = [torch.ops._c10d_functional.wait_tensor(each) for each in self._results]
            self._waited = [_store(target, each) for target, each in zip(self._targets, waited)]
        return self._waited if self._is_list else self._waited[0]

    wait_blocking = wait

    def is_completed(self) -> bool:
        """Return True if the operation was waited for."""
        return self._waited is not None


def _store(target: Tensor, result: Tensor) -> Tensor:
    """Copy a result into the tensor of a call; return the one that has the gradient."""
    if target.requires_grad and target.is_leaf and torch.is_grad_enabled():
        # A leaf cannot become a result: its gradient is that of what it was.
        with torch.no_grad():
            target.copy_(result)
        return result
    target.copy_(result)
    return target


def takes(name: str, args: PreHookArgs) -> bool:
    """Return True if an operation goes this way: it is compiled, or a tensor that it reads requires a gradient."""
    if name not in _PERFORMERS:
        return False
    if torch.compiler.is_compiling():
        return True
    if not torch.is_grad_enabled():
        return False
    given = args.input if args.tensor is None else args.tensor
    tensors = [given] if isinstance(given, Tensor) else given or []
    return any(tensor.requires_grad for tensor in tensors)


def prepare(comm: Base) -> None:
    """Make the process group by whose name the functional collectives find a communicator."""
    name = f"torchcomms/functional/{comm.get_name()}/{next(_numbers)}"
    process_group(comm, name)  # type: ignore[arg-type]
    comm._functional_group = name


def perform(comm: Base, name: str, args: PreHookArgs, rest: tuple[Any, ...]) -> Any:
    """Perform an operation; return its work, or the tensors that it has written if it is not asynchronous."""
    if comm._functional_group is None:
        if torch.compiler.is_compiling():
            raise UsageError(
                f"{name}: the communicator {comm.get_name()!r} was made before functional collectives were there: "
                "set TORCHCOMMS_PATCH_FOR_COMPILE=1, or import roundelay.torchcomms.functional.collectives before new_comm"
            )
        prepare(comm)
    work = _PERFORMERS[name](comm, comm._functional_group, args, rest)
    return work if args.async_op else work.wait()


def _operand(tensor: Tensor, op: ReduceOp | None) -> tuple[Tensor, str]:
    """Return the operand and the operator by torch's names; the tensor of the call is overwritten later."""
    assert op is not None
    if op.type is RedOpType.PREMUL_SUM:
        assert op.factor is not None
        return tensor * op.factor, "sum"
    if op.type is RedOpType.MIN or op.type is RedOpType.MAX:
        return tensor.clone(), _NAMES[op.type]  # The gradient needs it as it was.
    return tensor, _NAMES[op.type]


def _all_reduce(comm: Base, group: Any, args: PreHookArgs, rest: Any) -> FunctionalWork:
    data, op = _operand(args.tensor, args.op)
    result = torch.ops._c10d_functional.all_reduce(data.contiguous(), op, group)
    return FunctionalWork([args.tensor], [result], False)


def _broadcast(comm: Base, group: Any, args: PreHookArgs, rest: Any) -> FunctionalWork:
    if args.tensor.requires_grad and torch.is_grad_enabled():
        raise UnsupportedError("broadcast has no gradient, as in torchcomms: call it with a detached tensor")
    result = torch.ops._c10d_functional.broadcast(args.tensor.contiguous(), args.root, group)
    return FunctionalWork([args.tensor], [result], False)


def _gathered(comm: Base, group: Any, data: Tensor) -> Any:
    flat = data.contiguous().reshape(-1)
    return torch.ops._c10d_functional.all_gather_into_tensor(flat, comm.get_size(), group)


def _all_gather_single(comm: Base, group: Any, args: PreHookArgs, rest: Any) -> FunctionalWork:
    result = _gathered(comm, group, args.input)
    return FunctionalWork([args.output], [result.view(args.output.shape)], False)


def _all_gather(comm: Base, group: Any, args: PreHookArgs, rest: Any) -> FunctionalWork:
    result = torch.ops._c10d_functional.wait_tensor(_gathered(comm, group, args.input))
    parts = result.chunk(comm.get_size())
    return FunctionalWork(args.output, [part.view(out.shape) for part, out in zip(parts, args.output)], True)


def _scattered(comm: Base, group: Any, data: Tensor, output: Tensor, op: ReduceOp | None) -> FunctionalWork:
    data, operator = _operand(data, op)
    result = torch.ops._c10d_functional.reduce_scatter_tensor(data, operator, comm.get_size(), group)
    return FunctionalWork([output], [result.view(output.shape)], False)


def _reduce_scatter_single(comm: Base, group: Any, args: PreHookArgs, rest: Any) -> FunctionalWork:
    return _scattered(comm, group, args.input.contiguous().reshape(-1), args.output, args.op)


def _reduce_scatter(comm: Base, group: Any, args: PreHookArgs, rest: Any) -> FunctionalWork:
    return _scattered(comm, group, torch.cat([each.reshape(-1) for each in args.input]), args.output, args.op)


def _all_to_all_single(comm: Base, group: Any, args: PreHookArgs, rest: Any) -> FunctionalWork:
    part = args.input.numel() // comm.get_size()
    counts = [part] * comm.get_size()
    flat = args.input.contiguous().reshape(-1)
    result = torch.ops._c10d_functional.all_to_all_single(flat, counts, counts, group)
    return FunctionalWork([args.output], [result.view(args.output.shape)], False)


def _all_to_all_v_single(comm: Base, group: Any, args: PreHookArgs, rest: Any) -> FunctionalWork:
    output, data, received, sent = rest
    result = torch.ops._c10d_functional.all_to_all_single(data.contiguous(), received, sent, group)
    return FunctionalWork([output], [result], False)


_PERFORMERS: dict[str, Callable[..., FunctionalWork]] = {
    "all_reduce": _all_reduce,
    "broadcast": _broadcast,
    "all_gather": _all_gather,
    "all_gather_single": _all_gather_single,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_single": _reduce_scatter_single,
    "all_to_all_single": _all_to_all_single,
    "all_to_all_v_single": _all_to_all_v_single,
}
"""What goes this way, by the names of the operations."""

_base.switch_on(takes, perform, prepare)
