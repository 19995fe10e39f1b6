"""Collectives of Python objects, which are pickled: as slow as that is, and as safe as the ranks that send them.

``weights_only`` is that of ``torch.load``: with it only tensors and plain containers are unpickled. ``timeout`` is the
longest time without progress of each operation; None is that of the communicator.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from ..errors import UsageError
from ._comm import TorchComm

__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
]


def _packed(objects: Sequence[object], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the pickled objects, one after the other, and the bytes of each."""
    parts = []
    for each in objects:
        stream = io.BytesIO()
        torch.save(each, stream)
        parts.append(stream.getvalue())
    data = torch.frombuffer(bytearray(b"".join(parts)), dtype=torch.uint8) if parts else torch.empty(0).byte()
    sizes = torch.tensor([len(part) for part in parts], dtype=torch.long)
    return data.to(device), sizes.to(device)


def _unpacked(data: Tensor, sizes: Sequence[int], weights_only: bool) -> list[Any]:
    bytes = data.cpu().numpy().tobytes()
    found, at = [], 0
    for size in sizes:
        found.append(torch.load(io.BytesIO(bytes[at : at + size]), weights_only=weights_only, map_location="cpu"))
        at += size
    return found


def _whole_sizes(sizes: Tensor) -> list[int]:
    listed: list[int] = sizes.tolist()
    return listed


def _check_list(objects: list[Any] | None, count: int, what: str, name: str) -> list[Any]:
    if objects is None or len(objects) < count:
        given = "None" if objects is None else f"a list of {len(objects)}"
        raise UsageError(f"{what}: {name} is {given}: pass a list of {count}")
    return objects


def all_gather_object(
    comm: TorchComm, object_list: list[Any], obj: object, timeout: timedelta | None = None, weights_only: bool = True
) -> None:
    """Collect an object of each rank in ``object_list``, which has an element for each rank, on all ranks."""
    ranks = comm.get_size()
    _check_list(object_list, ranks, "all_gather_object", "object_list")
    data, own = _packed([obj], comm.get_device())
    sizes = own.new_empty(ranks)
    comm.all_gather_single(sizes, own, async_op=False, timeout=timeout)
    listed = _whole_sizes(sizes)
    parts = [data.new_empty(size) for size in listed]
    comm.all_gather_v(parts, data, async_op=False, timeout=timeout)
    object_list[:ranks] = _unpacked(torch.cat(parts), listed, weights_only)


def gather_object(
    comm: TorchComm,
    obj: object,
    root: int,
    object_gather_list: list[Any] | None = None,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """Collect an object of each rank in ``object_gather_list`` of ``root``; on the others the list counts for nothing."""
    ranks, here = comm.get_size(), comm._peer(root, "root") == comm.get_rank()
    if here:
        _check_list(object_gather_list, ranks, "gather_object", "object_gather_list")
    data, own = _packed([obj], comm.get_device())
    sizes = own.new_empty(ranks)
    comm.all_gather_single(sizes, own, async_op=False, timeout=timeout)
    listed = _whole_sizes(sizes)
    # A gather has parts of one size.
    padded = data.new_zeros(max(listed))
    padded[: data.numel()] = data
    parts = [torch.empty_like(padded) for _ in listed] if here else []
    comm.gather(parts, padded, root, async_op=False, timeout=timeout)
    if here:
        assert object_gather_list is not None
        whole = torch.cat([part[:size] for part, size in zip(parts, listed)])
        object_gather_list[:ranks] = _unpacked(whole, listed, weights_only)


def send_object_list(comm: TorchComm, object_list: list[Any], dst: int, timeout: timedelta | None = None) -> None:
    """Send objects to rank ``dst``, which receives as many."""
    data, sizes = _packed(object_list, comm.get_device())
    comm.send(sizes, dst, async_op=False, timeout=timeout)
    comm.send(data, dst, async_op=False, timeout=timeout)


def recv_object_list(
    comm: TorchComm, object_list: list[Any], src: int, timeout: timedelta | None = None, weights_only: bool = True
) -> None:
    """Receive as many objects as the list has elements from rank ``src``, in place."""
    sizes = torch.empty(len(object_list), dtype=torch.long, device=comm.get_device())
    comm.recv(sizes, src, async_op=False, timeout=timeout)
    listed = _whole_sizes(sizes)
    data = torch.empty(sum(listed), dtype=torch.uint8, device=comm.get_device())
    comm.recv(data, src, async_op=False, timeout=timeout)
    object_list[:] = _unpacked(data, listed, weights_only)


def broadcast_object_list(
    comm: TorchComm, object_list: list[Any], root: int, timeout: timedelta | None = None, weights_only: bool = True
) -> None:
    """Copy the objects of ``root`` to all ranks, in place; the lists have one length."""
    here = comm._peer(root, "root") == comm.get_rank()
    device = comm.get_device()
    sizes = torch.empty(len(object_list), dtype=torch.long, device=device)
    data = torch.empty(0, dtype=torch.uint8, device=device)
    if here:
        data, sizes = _packed(object_list, device)
    comm.broadcast(sizes, root, async_op=False, timeout=timeout)
    listed = _whole_sizes(sizes)
    if not here:
        data = data.new_empty(sum(listed))
    comm.broadcast(data, root, async_op=False, timeout=timeout)
    if not here:
        object_list[:] = _unpacked(data, listed, weights_only)


def scatter_object_list(
    comm: TorchComm,
    root: int,
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    timeout: timedelta | None = None,
    weights_only: bool = True,
) -> None:
    """Pass an object of the list of ``root`` to each rank, as the first element of its ``scatter_object_output_list``.

    On the others ``scatter_object_input_list`` counts for nothing.
    """
    ranks, here = comm.get_size(), comm._peer(root, "root") == comm.get_rank()
    _check_list(scatter_object_output_list, 1, "scatter_object_list", "scatter_object_output_list")
    device = comm.get_device()
    sizes = torch.empty(ranks, dtype=torch.long, device=device)
    parts: list[Tensor] = []
    if here:
        given = _check_list(scatter_object_input_list, ranks, "scatter_object_list", "scatter_object_input_list")
        data, sizes = _packed(given[:ranks], device)
        most = int(sizes.max())
        for part in torch.split(data, _whole_sizes(sizes)):
            padded = part.new_zeros(most)
            padded[: part.numel()] = part
            parts.append(padded)
    comm.broadcast(sizes, root, async_op=False, timeout=timeout)
    listed = _whole_sizes(sizes)
    output = torch.empty(max(listed), dtype=torch.uint8, device=device)
    comm.scatter(output, parts, root, async_op=False, timeout=timeout)
    size = listed[comm.get_rank()]
    scatter_object_output_list[0] = _unpacked(output[:size], [size], weights_only)[0]
