"""Tensors as memory: addresses, lengths and names of types.

The native part takes contiguous elements of the types it knows. What is otherwise is staged: copied before the
operation, and copied back when it has ended. Elements keep their logical order, so ranks whose tensors have
different strides get the same result as ranks whose tensors are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import ReduceOp

from .._buffers import mapped

if TYPE_CHECKING:
    from .._native import Communicator

Address = tuple[int, int, str, bool]
"""Address, elements, name of the type, whether it is on a GPU."""

Finish = Callable[[], None]
"""A copy that is due when the operation has ended."""

_NAMES: dict[torch.dtype, str] = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
    torch.uint32: "u32",
    torch.uint64: "u64",
}

_STRIDED = torch.strided

_COMPLEX: dict[torch.dtype, str] = {torch.complex64: "f32", torch.complex128: "f64"}

_WIDER: dict[torch.dtype, torch.dtype] = {torch.int16: torch.int32, torch.uint16: torch.int32}
"""Types that the runtime has no arithmetic of, and the type in which it is done."""

_OPS: dict[int, str] = {
    ReduceOp.SUM.value: "sum",
    ReduceOp.AVG.value: "avg",
    ReduceOp.PRODUCT.value: "prod",
    ReduceOp.MIN.value: "min",
    ReduceOp.MAX.value: "max",
    ReduceOp.BAND.value: "and",
    ReduceOp.BOR.value: "or",
    ReduceOp.BXOR.value: "xor",
    ReduceOp.PREMUL_SUM.value: "premul_sum",
}
"""By number: to look an enumerator up takes several times as long."""

_SUM: Any = ReduceOp.SUM

_LOGICAL: dict[str, str] = {
    "sum": "or",
    "max": "or",
    "or": "or",
    "prod": "and",
    "min": "and",
    "and": "and",
    "xor": "xor",
}
"""Operators of ``bool``: a sum is true where any operand is."""


def address(tensor: Tensor) -> Address:
    """Return the address of a contiguous tensor; types that are only copied go as bytes."""
    name = _NAMES.get(tensor.dtype)
    if name is not None:
        return tensor.data_ptr(), tensor.numel(), name, tensor.is_cuda
    name = _COMPLEX.get(tensor.dtype)
    if name is not None:
        return tensor.data_ptr(), 2 * tensor.numel(), name, tensor.is_cuda
    return tensor.data_ptr(), tensor.numel() * tensor.element_size(), "u8", tensor.is_cuda


def units(tensor: Tensor) -> int:
    """Return how many elements of :func:`address` one element of the tensor is."""
    if tensor.dtype in _NAMES:
        return 1
    return 2 if tensor.dtype in _COMPLEX else tensor.element_size()


def is_plain(tensor: Tensor) -> bool:
    """Return True if the memory of a tensor is its elements, one after the other."""
    return tensor.is_contiguous() and not tensor.is_neg() and not (tensor.is_complex() and tensor.is_conj())


def plain(tensor: Tensor) -> Address | None:
    """Return the address of a tensor if it can be used as it is; None if it is to be looked at more closely.

    Nearly all can; each question of the general way costs as much as a short call of the native part.
    """
    name = _NAMES.get(tensor.dtype)
    if name is None or tensor.layout is not _STRIDED or not tensor.is_contiguous() or tensor.is_neg():
        return None
    return tensor.data_ptr(), tensor.numel(), name, tensor.is_cuda


def plain_pair(output: Tensor, input: Tensor) -> tuple[Address, Address] | None:
    """Return the addresses of two tensors if they can be used as they are, have one type, and lie apart."""
    to, of = plain(output), plain(input)
    if to is None or of is None or to[2:] != of[2:]:
        return None
    width = output.dtype.itemsize
    if of[0] < to[0] + to[1] * width and to[0] < of[0] + of[1] * width:
        return None
    return to, of


def readable(tensor: Tensor) -> Tensor:
    """Return the tensor, or a plain copy of it."""
    if tensor.layout is not torch.strided:
        raise ValueError(f"roundelay: a tensor of layout {tensor.layout} has no plain memory: make it dense first")
    tensor = tensor.detach()
    return tensor if is_plain(tensor) else tensor.resolve_conj().resolve_neg().contiguous()


def writable(tensor: Tensor, finish: list[Finish], keep: bool = False) -> Tensor:
    """Return the tensor, or plain memory that is copied to it at the end; with ``keep`` it has the values."""
    if tensor.layout is not torch.strided:
        raise ValueError(f"roundelay: a tensor of layout {tensor.layout} has no plain memory: make it dense first")
    tensor = tensor.detach()
    if is_plain(tensor):
        return tensor
    if keep:
        staged = tensor.resolve_conj().resolve_neg().contiguous()
    else:
        staged = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    finish.append(lambda: _copy(tensor, staged))
    return staged


def _copy(to: Tensor, of: Tensor) -> None:
    to.copy_(of)


def operator(op: ReduceOp, dtype: torch.dtype) -> tuple[str, float]:
    """Return the name of an operator for a type, and its factor.

    Raises ``ValueError`` where the operator has no meaning for the type.
    """
    # To compare takes a third of what a look at the number takes.
    name = "sum" if op == _SUM else _OPS.get(op.op.value)
    if name is None:
        raise ValueError(f"roundelay: no reduction is called {op}")
    if dtype is torch.bool:
        logical = _LOGICAL.get(name)
        if logical is None:
            raise ValueError(f"roundelay: Cannot use ReduceOp.{name.upper()} with Bool tensors")
        return logical, 1.0
    if name == "sum":
        return name, 1.0
    if dtype.is_complex and name not in ("avg", "premul_sum"):
        raise ValueError(f"roundelay: ReduceOp {name} has no meaning for {dtype}; there are sum, avg and premul_sum")
    if name == "premul_sum":
        # Before torch 2.14 the factor is to be had from the pickled state only.
        return name, float(op.factor if hasattr(op, "factor") else op.__getstate__()[1])  # type: ignore[index]
    return name, 1.0


def wider(dtype: torch.dtype) -> torch.dtype | None:
    """Return the type in which a type is reduced, or None if it is reduced as it is.

    Raises ``TypeError`` for types that cannot be reduced.
    """
    if dtype in _NAMES or dtype in _COMPLEX:
        return None
    if dtype in _WIDER:
        return _WIDER[dtype]
    raise TypeError(f"roundelay: Invalid scalar type {dtype} for a reduction: convert to float16 or wider first")


def reduced_in_place(tensor: Tensor, finish: list[Finish]) -> Tensor:
    """Return memory that is reduced in place of a tensor."""
    dtype = wider(tensor.dtype)
    if dtype is None:
        return writable(tensor, finish, keep=True)
    tensor = tensor.detach()
    staged = tensor.to(dtype).contiguous()
    finish.append(lambda: _copy(tensor, staged))
    return staged


def reduced_from(tensor: Tensor) -> Tensor:
    """Return memory that is read by a reduction."""
    dtype = wider(tensor.dtype)
    return readable(tensor) if dtype is None else tensor.detach().to(dtype).contiguous()


def reduced_to(tensor: Tensor, finish: list[Finish]) -> Tensor:
    """Return memory that a reduction writes."""
    dtype = wider(tensor.dtype)
    if dtype is None:
        return writable(tensor, finish)
    tensor = tensor.detach()
    staged = torch.empty(tensor.shape, dtype=dtype, device=tensor.device)
    finish.append(lambda: _copy(tensor, staged))
    return staged


def overlap(a: Tensor, b: Tensor) -> bool:
    """Return True if two plain tensors share memory."""
    begin, other = a.data_ptr(), b.data_ptr()
    return begin < other + b.numel() * b.element_size() and other < begin + a.numel() * a.element_size()


def same_type(tensors: Sequence[Tensor], what: str) -> None:
    """Raise ``ValueError`` unless all tensors have the type and the device of the first."""
    first = tensors[0]
    for tensor in tensors:
        if tensor.dtype != first.dtype or tensor.device.type != first.device.type:
            raise ValueError(
                f"{what}: all tensors need the same type and device, but there are {first.dtype} on {first.device} "
                f"and {tensor.dtype} on {tensor.device}"
            )


def shared(comm: Communicator, count: int, dtype: torch.dtype) -> Tensor:
    """Return a tensor of zeros in memory that the other ranks of this host map."""
    if count < 0:
        raise ValueError(f"roundelay: allocate_tensor: the size is {count}: elements are counted from 0")
    if count == 0:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer(mapped(comm.alloc(count * dtype.itemsize)), dtype=dtype)
