"""Tensors whose memory is not simply their elements, and what every face must make of them: the same.

A face gives three functions of its own; ``faults`` returns where results differ from those of plain tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

Make = Callable[[int], Tensor]


def of(rank: int, count: int = 6, dtype: torch.dtype = torch.float32) -> Tensor:
    """Small whole numbers that differ by rank, so that every order of additions gives the same."""
    return (torch.arange(count) * (rank + 2) % 7 + rank + 1).to(dtype)


def _complex(rank: int, count: int = 6) -> Tensor:
    return torch.complex(of(rank, count), of(rank + 3, count))


class _Tagged(torch.Tensor):
    """A class of a user."""


REDUCED: dict[str, Make] = {
    "of no axis": lambda rank: torch.tensor(float(rank + 1)),
    "transposed": lambda rank: of(rank).view(2, 3).t(),
    "every other": lambda rank: of(rank, 12)[::2],
    "from the middle": lambda rank: of(rank, 12)[3:9],
    "channels last": lambda rank: of(rank, 24).view(1, 2, 3, 4).to(memory_format=torch.channels_last),
    "of 16 bits": lambda rank: of(rank, dtype=torch.int16),
    "of 16 bits, transposed": lambda rank: of(rank, dtype=torch.int16).view(2, 3).t(),
    "of truth": lambda rank: of(rank) > 4,
    "a parameter": lambda rank: torch.nn.Parameter(of(rank)),
    "with a gradient": lambda rank: of(rank).requires_grad_(),
    "of a class": lambda rank: of(rank).as_subclass(_Tagged),
    "empty": lambda rank: of(rank, 0).view(0, 3).t(),
}
"""What can be reduced, and written in place."""

RESOLVED: dict[str, Make] = {
    "negated": lambda rank: torch._neg_view(of(rank)),
    # Its memory has stride 2, which one element does not show.
    "negated, of one element": lambda rank: _complex(rank, 1).conj().imag,
    "negated, every other": lambda rank: _complex(rank).conj().imag,
    "conjugated": lambda rank: _complex(rank).conj(),
    "conjugated and transposed": lambda rank: _complex(rank).view(2, 3).conj().t(),
}
"""What is not as it lies in memory. Of what torch.distributed is given, its dispatcher refuses the conjugated and hands
a backend copies of the negated, whose results are lost, with Gloo too."""

COPIED: dict[str, Make] = {
    "of 8 bits": lambda rank: of(rank).to(torch.float8_e4m3fn),
    "of 8 bits, transposed": lambda rank: of(rank).to(torch.float8_e5m2).view(2, 3).t(),
}
"""What can only be copied: reductions refuse it."""

READ: dict[str, Make] = {
    "expanded": lambda rank: of(rank, 2).view(2, 1).expand(2, 3),
}
"""What can only be read: its elements share memory."""

REFUSED: dict[str, Make] = {
    "without memory": lambda _: torch.empty(3, device="meta"),
}
"""What every operation refuses. PyTorch's dispatcher makes it a call that does nothing."""


def dense(tensor: Tensor) -> Tensor:
    """Return a plain copy."""
    with torch.no_grad():
        plain = tensor.detach().as_subclass(torch.Tensor).resolve_conj().resolve_neg()
        return plain.clone(memory_format=torch.contiguous_format)


def _total(tensors: list[Tensor]) -> Tensor:
    plain = torch.stack([dense(tensor) for tensor in tensors])
    return plain.any(0) if plain.dtype is torch.bool else plain.sum(0).to(plain.dtype)


def _differ(found: Tensor, wanted: Tensor) -> bool:
    as_bytes = [dense(tensor).reshape(-1).view(torch.uint8) for tensor in (found, wanted)]
    return found.shape != wanted.shape or not torch.equal(*as_bytes)


def _refusals(what: str, call: Callable[[], object]) -> Iterator[str]:
    try:
        call()
    except (TypeError, ValueError, RuntimeError):
        return
    yield f"{what} was not refused"


def faults(
    rank: int,
    size: int,
    all_reduce: Callable[[Tensor], object],
    broadcast: Callable[[Tensor, int], object],
    all_gather: Callable[[list[Tensor], Tensor], object],
    is_dispatched: bool = False,
) -> list[str]:
    """Perform three operations on every odd tensor; return what was wrong.

    With ``is_dispatched`` those are left out that the dispatcher of PyTorch keeps from a backend.
    """
    found = []
    reduced = REDUCED if is_dispatched else REDUCED | RESOLVED
    refused = {} if is_dispatched else REFUSED
    last = size - 1
    for name, make in reduced.items():
        mine, wanted = make(rank), _total([make(r) for r in range(size)])
        all_reduce(mine)
        if _differ(mine, wanted):
            found.append(f"all_reduce, {name}: {mine} in place of {wanted}")
    for name, make in (reduced | COPIED).items():
        mine, wanted = make(rank), make(last)
        broadcast(mine, last)
        if _differ(mine, wanted):
            found.append(f"broadcast, {name}: {mine} in place of {wanted}")
    for name, make in (reduced | COPIED | READ).items():
        outputs = [dense(make(rank)) for _ in range(size)]
        all_gather(outputs, make(rank))
        for r, output in enumerate(outputs):
            if _differ(output, make(r)):
                found.append(f"all_gather, {name}: {output} in place of {make(r)} of rank {r}")
    for name, make in (COPIED | refused).items():
        found += _refusals(f"all_reduce, {name}", lambda make=make: all_reduce(make(rank)))  # type: ignore[misc]
    for name, make in refused.items():
        found += _refusals(f"broadcast, {name}", lambda make=make: broadcast(make(rank), last))  # type: ignore[misc]
    return found
