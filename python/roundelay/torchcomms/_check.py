"""A check of all operations of a communicator against values that are computed on each rank by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import Error
from ._types import ReduceOp

if TYPE_CHECKING:
    from ._comm import TorchComm

_POISON = 113
"""Where no value of a check is, in outputs before an operation."""


class OperationCheck:
    """The operations of one communicator, with inputs that each rank can compute for all."""

    def __init__(self, comm: TorchComm, dtype: torch.dtype) -> None:
        self.comm = comm
        self.dtype = dtype
        self.rank, self.size = comm.get_rank(), comm.get_size()
        self.done: list[str] = []

    def values(self, rank: int, count: int, part: int = 0) -> Tensor:
        """Return what a rank gives: whole numbers below 97, whose sums are exact in every type."""
        numbers = (torch.arange(count) * 7 + rank * 31 + part * 13) % 97
        return numbers.to(self.dtype).to(self.comm.get_device())

    def blank(self, count: int) -> Tensor:
        """Return an output, of values that no operation has."""
        return torch.full((count,), _POISON, dtype=self.dtype, device=self.comm.get_device())

    def compare(self, name: str, found: Tensor, expected: Tensor) -> None:
        """Raise ``Error`` at the first element that is another one."""
        wrong = (found != expected).nonzero().flatten()
        if wrong.numel():
            at = int(wrong[0])
            raise Error(
                f"{name} of backend {self.comm.get_backend()}, {found.numel()} elements of {self.dtype}: on rank "
                f"{self.rank} of {self.size} element {at} is {found[at].item():g} and should be "
                f"{expected[at].item():g}; {wrong.numel()} are wrong",
                code="RL0707",
            )
        self.done.append(name)

    def in_place(self, count: int) -> None:
        """Check ``all_reduce``, ``reduce`` and ``broadcast``."""
        every = torch.stack([self.values(rank, count) for rank in range(self.size)])
        for op, expected in ((ReduceOp.SUM, every.sum(0).to(self.dtype)), (ReduceOp.MAX, every.amax(0))):
            tensor = self.values(self.rank, count)
            self.comm.all_reduce(tensor, op, False)
            self.compare("all_reduce", tensor, expected)
        for root in {0, self.size - 1}:
            tensor = self.values(self.rank, count)
            self.comm.reduce(tensor, root, ReduceOp.SUM, False)
            self.compare("reduce", tensor, every.sum(0).to(self.dtype) if root == self.rank else every[self.rank])
            tensor = self.values(root, count) if root == self.rank else self.blank(count)
            self.comm.broadcast(tensor, root, False)
            self.compare("broadcast", tensor, every[root])

    def gathered(self, count: int) -> None:
        """Check the gathers."""
        mine = self.values(self.rank, count)
        expected = torch.cat([self.values(rank, count) for rank in range(self.size)])
        parts = [self.blank(count) for _ in range(self.size)]
        self.comm.all_gather(parts, mine, False)
        self.compare("all_gather", torch.cat(parts), expected)
        whole = self.blank(count * self.size)
        self.comm.all_gather_single(whole, mine, False)
        self.compare("all_gather_single", whole, expected)
        root = self.size - 1
        here = root == self.rank
        parts = [self.blank(count) for _ in range(self.size)] if here else []
        self.comm.gather(parts, mine, root, False)
        self.compare("gather", torch.cat(parts) if here else mine, expected if here else mine)
        lengths = [count + rank for rank in range(self.size)]
        parts = [self.blank(length) for length in lengths]
        self.comm.all_gather_v(parts, self.values(self.rank, lengths[self.rank]), False)
        uneven = torch.cat([self.values(rank, length) for rank, length in enumerate(lengths)])
        self.compare("all_gather_v", torch.cat(parts), uneven)

    def scattered(self, count: int) -> None:
        """Check the scatters and exchanges."""
        given = [self.values(self.rank, count, part) for part in range(self.size)]
        every = torch.stack([self.values(rank, count, self.rank) for rank in range(self.size)])
        summed = every.sum(0).to(self.dtype)
        output = self.blank(count)
        self.comm.reduce_scatter(output, given, ReduceOp.SUM, False)
        self.compare("reduce_scatter", output, summed)
        output = self.blank(count)
        self.comm.reduce_scatter_single(output, torch.cat(given), ReduceOp.SUM, False)
        self.compare("reduce_scatter_single", output, summed)
        output = self.blank(count * self.size)
        self.comm.all_to_all_single(output, torch.cat(given), False)
        self.compare("all_to_all_single", output, every.flatten())
        parts = [self.blank(count) for _ in range(self.size)]
        self.comm.all_to_all(parts, given, False)
        self.compare("all_to_all", torch.cat(parts), every.flatten())
        output = self.blank(count)
        self.comm.scatter(output, given, 0, False)
        self.compare("scatter", output, self.values(0, count, self.rank))

    def passed_on(self, count: int) -> None:
        """Check messages, from each rank to the next one, and the barrier."""
        if self.size > 1:
            after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
            output = self.blank(count)
            steps: Sequence[Callable[[], object]] = (
                lambda: self.comm.send(self.values(self.rank, count), after, False),
                lambda: self.comm.recv(output, before, False),
            )
            # One of the ranks receives first, so that sends may wait for receives.
            for step in steps if self.rank else reversed(steps):
                step()
            self.compare("recv", output, self.values(before, count))
        self.comm.barrier(False)
        self.done.append("barrier")


def check_operations(
    comm: TorchComm,
    counts: Sequence[int] = (1, 1000, 40_000),
    dtypes: Sequence[torch.dtype] = (torch.float32, torch.int64),
) -> int:
    """Run the operations of a communicator at some numbers of elements, and compare what comes; return the comparisons.

    All ranks call it. Raises ``Error`` (RL0707) at the first wrong element: it names the operation and the rank.
    """
    total = 0
    for dtype in dtypes:
        check = OperationCheck(comm, dtype)
        for count in counts:
            for part in (check.in_place, check.gathered, check.scattered, check.passed_on):
                part(count)
        total += len(check.done)
    return total
