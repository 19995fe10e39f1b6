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
from .._dtypes import NAMES, DType

if TYPE_CHECKING:
    from .._native import Communicator

Address = tuple[int, int, str, bool]
"""Address, elements, name of the type, whether it is on a GPU."""

Finish = Callable[[], None]
"""A copy that is due when the operation has ended."""

_TYPES: dict[torch.dtype, DType] = {getattr(torch, name): dtype for name, dtype in NAMES.items() if hasattr(torch, name)}

_NAMES: dict[torch.dtype, str] = {dtype: known.native for dtype, known in _TYPES.items() if known.ops is None}
"""The types of which the runtime has all arithmetic."""

_STRIDED = torch.strided

_OVERLAPS = 1
"""What torch answers of a tensor whose elements share memory."""

_WIDER: dict[torch.dtype, torch.dtype] = {
    dtype: getattr(torch, known.wider) for dtype, known in _TYPES.items() if known.wider is not None
}
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


def _type(dtype: torch.dtype) -> DType:
    """Return how elements go; those of types that are only copied go as bytes."""
    known = _TYPES.get(dtype)
    return known or DType(str(dtype), "u8", dtype.itemsize, dtype.itemsize, frozenset())


def address(tensor: Tensor) -> Address:
    """Return the address of a plain tensor."""
    dtype = _type(tensor.dtype)
    return tensor.data_ptr(), dtype.scale * tensor.numel(), dtype.native, tensor.is_cuda


def bytes_of(tensor: Tensor) -> Address:
    """Return the address of a plain tensor as bytes, of which the other end need not know the type."""
    return tensor.data_ptr(), tensor.numel() * tensor.element_size(), "i8", tensor.is_cuda


def units(tensor: Tensor) -> int:
    """Return how many elements of :func:`address` one element of the tensor is."""
    return _type(tensor.dtype).scale


def is_plain(tensor: Tensor) -> bool:
    """Return True if the memory of a tensor is its elements, one after the other.

    Raises ``ValueError`` if it has none.
    """
    if tensor.layout is not _STRIDED:
        raise ValueError(f"roundelay: a tensor of layout {tensor.layout} has no plain memory: pass .to_dense()")
    if not (tensor.is_cpu or tensor.is_cuda):
        raise ValueError(f"roundelay: a tensor is on {tensor.device}: move it to the CPU or a CUDA GPU")
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def is_plain_output(tensor: Tensor) -> bool:
    """Return True if the memory of an output is its elements. Raises ``ValueError`` if it has none for each of them."""
    if is_plain(tensor):
        return True
    if torch._debug_has_internal_overlap(tensor) == _OVERLAPS:
        raise ValueError(
            "roundelay: several elements of an output lie at one address, as after expand: pass a copy of it, as .clone()"
        )
    return False


def plain(tensor: Tensor) -> Address | None:
    """Return the address of a tensor if it can be used as it is; None if it is to be looked at more closely.

    Nearly all can; each question of the general way costs as much as a short call of the native part.
    """
    name = _NAMES.get(tensor.dtype)
    if name is None or tensor.layout is not _STRIDED or not tensor.is_contiguous() or tensor.is_neg():
        return None
    pointer = tensor.data_ptr()
    # What has no memory, and what has no elements, is looked at more closely.
    return (pointer, tensor.numel(), name, tensor.is_cuda) if pointer else None


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
    is_there = is_plain(tensor)
    tensor = tensor.detach()
    return tensor if is_there else tensor.resolve_conj().resolve_neg().contiguous()


def writable(tensor: Tensor, finish: list[Finish], is_read: bool = False) -> Tensor:
    """Return the tensor, or plain memory that is copied to it at the end; it has the values if the call reads them."""
    if is_plain_output(tensor):
        return tensor.detach()
    made = readable(tensor) if is_read else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return staged(tensor, made, finish)


def staged(output: Tensor, result: Tensor, finish: list[Finish]) -> Tensor:
    """Return the result of an operation, which is copied to an output at the end."""
    output = output.detach()
    finish.append(lambda: _copy(output, result))
    return result


def _copy(to: Tensor, of: Tensor) -> None:
    to.copy_(of)


def flat_for(parts: Sequence[Tensor], dtype: torch.dtype, finish: list[Finish]) -> Tensor:
    """Return memory for several outputs one after the other, which is copied to them at the end."""
    for part in parts:
        is_plain_output(part)
    counts = [part.numel() for part in parts]
    flat = torch.empty(sum(counts), dtype=dtype, device=parts[0].device)
    for part, cut in zip(parts, torch.split(flat, counts), strict=True):
        staged(part, cut.view(part.shape), finish)
    return flat


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
    if dtype in _WIDER:
        return _WIDER[dtype]
    if _type(dtype).ops == frozenset():
        raise TypeError(f"roundelay: Invalid scalar type {dtype} for a reduction: convert to float16 or wider first")
    return None


def reduced_from(tensor: Tensor) -> Tensor:
    """Return memory that is read by a reduction."""
    dtype = wider(tensor.dtype)
    data = readable(tensor)
    return data if dtype is None else data.to(dtype)


def reduced_to(tensor: Tensor, finish: list[Finish], is_read: bool = False) -> Tensor:
    """Return memory that a reduction writes, and reads if it is in place."""
    dtype = wider(tensor.dtype)
    if dtype is None:
        return writable(tensor, finish, is_read)
    is_plain_output(tensor)
    made = reduced_from(tensor) if is_read else torch.empty(tensor.shape, dtype=dtype, device=tensor.device)
    return staged(tensor, made, finish)


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


def tensor_at(address: int, like: Tensor) -> Tensor:
    """Return a contiguous tensor as another one, in memory of a peer's GPU that is mapped at an address, which it does not keep."""
    if like.numel() == 0:
        return torch.empty_like(like)
    nbytes = like.numel() * like.element_size()
    storage: Any = torch._C._construct_storage_from_data_pointer(address, like.device, nbytes)
    made = torch.empty(0, dtype=like.dtype, device=like.device)
    made.set_(storage, 0, like.shape, like.stride())
    return made
