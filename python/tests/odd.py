"""Tensors whose memory is not simply their elements, and what every face must make of them: the same.

Each tensor of the table has one outcome for each kind of argument: an input, an output, and what is reduced in place.
``faults`` performs operations of a face on all of them, and returns what was not as the table has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Make = Callable[[int], Tensor]

RIGHT = ""
"""The outcome of an argument that is taken: the result is that of plain tensors. Others are expressions for an error."""


def of(rank: int, count: int = 6, dtype: torch.dtype = torch.float32) -> Tensor:
    """Small whole numbers that differ by rank, so that every order of additions gives the same."""
    return (torch.arange(count) * (rank + 2) % 7 + rank + 1).to(dtype)


def _complex(rank: int, count: int = 6) -> Tensor:
    return torch.complex(of(rank, count), of(rank + 3, count))


def _inferred(rank: int) -> Tensor:
    with torch.inference_mode():
        return of(rank, 12)[::2]


class _Tagged(torch.Tensor):
    """A class of a user."""


@dataclass(frozen=True)
class Odd:
    """A tensor of each rank, and the outcomes."""

    make: Make
    reduced: str = RIGHT
    written: str = RIGHT
    read: str = RIGHT
    is_resolved: bool = False
    """Whether it is not as it lies in memory. PyTorch's dispatcher refuses the conjugated, and hands a backend copies of
    the negated, whose results are lost, with Gloo too."""
    is_dispatched: bool = True
    """Whether PyTorch's dispatcher hands it to a backend: calls with tensors of meta do nothing, and of those with sparse
    tensors it knows the sum alone."""


_COPIED = "roundelay: Invalid scalar type torch.{} for a reduction: convert to float16 or wider first"
_SHARED = "roundelay: several elements of an output lie at one address, .*: pass a copy of it, as .clone()"
_ABSENT = "roundelay: a tensor is on meta: move it to the CPU or a CUDA GPU"
_LAYOUT = "roundelay: a tensor of layout torch.{} has no plain memory: pass .to_dense()"


def _absent(make: Make, why: str, reduced: str | None = None) -> Odd:
    return Odd(make, why if reduced is None else reduced, why, why, is_dispatched=False)


def _copied(make: Make, name: str) -> Odd:
    return Odd(make, _COPIED.format(name))


TABLE: dict[str, Odd] = {
    "of no axis": Odd(lambda rank: torch.tensor(float(rank + 1))),
    "transposed": Odd(lambda rank: of(rank).view(2, 3).t()),
    "every other": Odd(lambda rank: of(rank, 12)[::2]),
    "from the middle": Odd(lambda rank: of(rank, 12)[3:9]),
    "channels last": Odd(lambda rank: of(rank, 24).view(1, 2, 3, 4).to(memory_format=torch.channels_last)),
    "empty": Odd(lambda rank: of(rank, 0).view(0, 3).t()),
    "of 16 bits": Odd(lambda rank: of(rank, dtype=torch.int16)),
    "of 16 bits, without sign": Odd(lambda rank: of(rank, dtype=torch.uint16)),
    "of 16 bits, transposed": Odd(lambda rank: of(rank, dtype=torch.int16).view(2, 3).t()),
    "of truth": Odd(lambda rank: of(rank) > 4),
    "of truth, transposed": Odd(lambda rank: of(rank).view(2, 3).t() > 4),
    "complex, every other": Odd(lambda rank: _complex(rank)[::2]),
    "complex of halves": Odd(lambda rank: _complex(rank).to(torch.complex32)),
    "a parameter": Odd(lambda rank: torch.nn.Parameter(of(rank))),
    "a parameter, transposed": Odd(lambda rank: torch.nn.Parameter(of(rank).view(2, 3).t())),
    "of 16 bits, with a gradient": Odd(lambda rank: of(rank, dtype=torch.bfloat16).requires_grad_()),
    "inside a graph": Odd(lambda rank: of(rank).requires_grad_() * 1),
    "inside a graph, every other": Odd(lambda rank: (of(rank, 12).requires_grad_() * 1)[::2]),
    "of inference, every other": Odd(_inferred),
    "of a class": Odd(lambda rank: of(rank).as_subclass(_Tagged)),
    "negated": Odd(lambda rank: torch._neg_view(of(rank)), is_resolved=True),
    # Its memory has stride 2, which one element does not show.
    "negated, of one element": Odd(lambda rank: _complex(rank, 1).conj().imag, is_resolved=True),
    "negated, every other": Odd(lambda rank: _complex(rank).conj().imag, is_resolved=True),
    "negated, of 16 bits": Odd(lambda rank: torch._neg_view(of(rank, dtype=torch.int16)), is_resolved=True),
    "conjugated": Odd(lambda rank: _complex(rank).conj(), is_resolved=True),
    "conjugated and transposed": Odd(lambda rank: _complex(rank).view(2, 3).conj().t(), is_resolved=True),
    "conjugated and negated": Odd(lambda rank: torch._neg_view(_complex(rank).conj()), is_resolved=True),
    "of 8 bits": _copied(lambda rank: of(rank).to(torch.float8_e4m3fn), "float8_e4m3fn"),
    "of 8 bits, transposed": _copied(lambda rank: of(rank).to(torch.float8_e5m2).view(2, 3).t(), "float8_e5m2"),
    "expanded": Odd(lambda rank: of(rank, 2).view(2, 1).expand(2, 3), _SHARED, _SHARED),
    "expanded, of 16 bits": Odd(lambda rank: of(rank, 2, torch.int16).view(2, 1).expand(2, 3), _SHARED, _SHARED),
    "without memory": _absent(lambda _: torch.empty(3, device="meta"), _ABSENT),
    "sparse": _absent(lambda rank: of(rank).to_sparse(), _LAYOUT.format("sparse_coo"), RIGHT),
    "sparse by rows": _absent(lambda rank: of(rank).view(2, 3).to_sparse_csr(), _LAYOUT.format("sparse_csr")),
}


@dataclass(frozen=True)
class Face:
    """The operations of a communicator; those of messages, to the next rank and from the one before, return work."""

    rank: int
    size: int
    all_reduce: Callable[[Tensor], object]
    broadcast: Callable[[Tensor, int], object]
    all_gather: Callable[[list[Tensor], Tensor], object]
    send: Callable[[Tensor], Any]
    recv: Callable[[Tensor], Any]
    is_dispatched: bool = False
    """Whether PyTorch's dispatcher comes first, and keeps some tensors from the backend."""


def dense(tensor: Tensor) -> Tensor:
    """Return a plain copy."""
    with torch.no_grad():
        plain = (tensor if tensor.layout is torch.strided else tensor.to_dense()).detach().as_subclass(torch.Tensor)
        return plain.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def _total(tensors: list[Tensor]) -> Tensor:
    plain = torch.stack([dense(tensor) for tensor in tensors])
    if plain.dtype is torch.bool:
        return plain.any(0)
    wider = {torch.uint16: torch.int32, torch.complex32: torch.complex64}.get(plain.dtype, plain.dtype)
    return plain.to(wider).sum(0).to(plain.dtype)


def _differ(found: Tensor, wanted: Tensor) -> bool:
    as_bytes = [dense(tensor).reshape(-1).view(torch.uint8) for tensor in (found, wanted)]
    return found.shape != wanted.shape or not torch.equal(*as_bytes)


def faults(face: Face) -> list[str]:
    """Perform operations of a face on every odd tensor; return what was wrong."""
    return [text for name, odd in TABLE.items() for text in _faults(face, name, odd)]


def _faults(face: Face, name: str, odd: Odd) -> Iterator[str]:
    size, last, before = face.size, face.size - 1, (face.rank - 1) % face.size
    own, all_of = odd.make(face.rank), [odd.make(rank) for rank in range(size)]

    def outcome(what: str, kind: str, call: Callable[[], list[tuple[Tensor, Tensor]]]) -> Iterator[str]:
        try:
            pairs = call()
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            is_wanted = isinstance(error, (ValueError, RuntimeError, TypeError)) and re.search(kind, str(error))
            if kind == RIGHT or not is_wanted:
                yield f"{what}, {name}: {told.splitlines()[0]}"
            return
        if kind != RIGHT:
            yield f"{what}, {name}: was not refused"
        for found, wanted in pairs if kind == RIGHT else ():
            if _differ(found, wanted):
                yield f"{what}, {name}: {found} in place of {wanted}"

    def all_reduce() -> list[tuple[Tensor, Tensor]]:
        tensor = odd.make(face.rank)
        face.all_reduce(tensor)
        return [(tensor, _total(all_of))]

    def broadcast() -> list[tuple[Tensor, Tensor]]:
        tensor = odd.make(face.rank)
        face.broadcast(tensor, last)
        return [(tensor, all_of[last])]

    def gathered() -> list[tuple[Tensor, Tensor]]:
        outputs = [torch.empty(own.shape, dtype=own.dtype) for _ in range(size)]
        face.all_gather(outputs, own)
        return list(zip(outputs, all_of, strict=True))

    def gathered_to() -> list[tuple[Tensor, Tensor]]:
        outputs = [odd.make(rank + 1) for rank in range(size)]
        face.all_gather(outputs, dense(own) if odd.written == RIGHT else torch.zeros(own.shape, dtype=own.dtype))
        return list(zip(outputs, all_of, strict=True))

    def sent() -> list[tuple[Tensor, Tensor]]:
        work = face.send(own)
        output = torch.empty(own.shape, dtype=own.dtype)
        face.recv(output).wait()
        work.wait()
        return [(output, all_of[before])]

    def received() -> list[tuple[Tensor, Tensor]]:
        output = odd.make(face.rank + 1)
        work = face.recv(output)
        face.send(dense(own)).wait()
        work.wait()
        return [(output, all_of[before])]

    reaches = not face.is_dispatched or odd.is_dispatched
    # The dispatcher refuses the conjugated before a backend sees it.
    if reaches and not (face.is_dispatched and own.is_conj()):
        yield from outcome("all_gather", odd.read, gathered)
        yield from outcome("send", odd.read, sent)
    if reaches and not (face.is_dispatched and odd.is_resolved):
        yield from outcome("broadcast", odd.written, broadcast)
        yield from outcome("all_gather to", odd.written, gathered_to)
        yield from outcome("recv", odd.written, received)
        yield from outcome("all_reduce", odd.reduced, all_reduce)
    elif odd.reduced == RIGHT and not odd.is_resolved:
        yield from outcome("all_reduce", RIGHT, all_reduce)
