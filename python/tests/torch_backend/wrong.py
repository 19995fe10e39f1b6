"""Wrong use across ranks: the calls of the ranks do not fit together, each case in a group of its own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

LIMIT = timedelta(seconds=20)
"""The longest time without progress: a rank that waits for so long raises another error than those expected."""

Wrong = Callable[[int, Any], Any]
CASES: dict[str, Wrong] = {}


def case(function: Wrong) -> Wrong:
    CASES[function.__name__] = function
    return function


@case
def types(rank: int, group: Any) -> None:
    dist.all_reduce(torch.ones(4, dtype=torch.float64 if rank else torch.float32), group=group)


@case
def lengths(rank: int, group: Any) -> None:
    dist.all_reduce(torch.ones(4 + rank), group=group)


@case
def lengths_in_background(rank: int, group: Any) -> None:
    works = [dist.all_reduce(torch.ones(100_000 + 8 * rank), group=group, async_op=True) for _ in range(2)]
    for work in works:
        assert work is not None
        work.wait()


@case
def operators(rank: int, group: Any) -> None:
    dist.all_reduce(torch.ones(4), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM, group)


@case
def roots(rank: int, group: Any) -> None:
    dist.broadcast(torch.ones(4), 1 if rank else 0, group)


@case
def collectives(rank: int, group: Any) -> None:
    if rank:
        dist.broadcast(torch.ones(4), 0, group)
    else:
        dist.all_reduce(torch.ones(4), group=group)


@case
def order(rank: int, group: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: dist.all_reduce(torch.ones(4), group=group),
        lambda: dist.all_gather_into_tensor(torch.ones(4 * dist.get_world_size()), torch.ones(4), group),
    ]
    for call in reversed(calls) if rank else calls:
        call()


@case
def barrier(rank: int, group: Any) -> None:
    if rank:
        dist.barrier(group)
    else:
        dist.all_reduce(torch.ones(4), group=group)


@case
def gathered(rank: int, group: Any) -> None:
    size = dist.get_world_size()
    dist.all_gather([torch.ones(3 + rank) for _ in range(size)], torch.ones(3 + rank), group)


@case
def scattered(rank: int, group: Any) -> None:
    dist.reduce_scatter_tensor(torch.ones(3 + rank), torch.ones((3 + rank) * dist.get_world_size()), group=group)


@case
def exchanged(rank: int, group: Any) -> None:
    size = dist.get_world_size()
    sent, received = [2] * size, [2] * size
    if rank == 0:
        sent[1] = 3
    dist.all_to_all_single(torch.ones(sum(received)), torch.ones(sum(sent)), received, sent, group)
    # What was sent may be on its way still when the sender goes on.
    dist.barrier(group)


@case
def several(rank: int, group: Any) -> None:
    tensors = [torch.ones(3) for _ in range(3 if rank else 2)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    manager.wait()
    dist.barrier(group)


@case
def message(rank: int, group: Any) -> None:
    if rank == 0:
        dist.send(torch.ones(4), 1, group)
    elif rank == 1:
        dist.recv(torch.ones(6), 0, group)
    dist.barrier(group)


@case
def message_types(rank: int, group: Any) -> None:
    if rank == 0:
        dist.send(torch.ones(4), 1, group)
    elif rank == 1:
        dist.recv(torch.ones(4, dtype=torch.int32), 0, group)
    dist.barrier(group)


# Rank 0 has no elements.


@case
def empty(rank: int, group: Any) -> None:
    dist.all_reduce(torch.ones(4 if rank else 0), group=group)


@case
def empty_later(rank: int, group: Any) -> None:
    dist.all_reduce(torch.ones(4), group=group)
    work = dist.all_reduce(torch.ones(4 if rank else 0), group=group, async_op=True)
    assert work is not None
    work.wait()


@case
def empty_gathered(rank: int, group: Any) -> None:
    for count in (4, 4 if rank else 0):
        dist.all_gather([torch.ones(count) for _ in range(dist.get_world_size())], torch.ones(count), group)


@case
def empty_gathered_single(rank: int, group: Any) -> None:
    for count in (4, 4 if rank else 0):
        dist.all_gather_into_tensor(torch.ones(count * dist.get_world_size()), torch.ones(count), group)


@case
def empty_scattered(rank: int, group: Any) -> None:
    for count in (4, 4 if rank else 0):
        dist.reduce_scatter_tensor(torch.ones(count), torch.ones(count * dist.get_world_size()), group=group)


@case
def empty_exchanged(rank: int, group: Any) -> None:
    for count in (4, 4 if rank else 0):
        count *= dist.get_world_size()
        dist.all_to_all_single(torch.ones(count), torch.ones(count), group=group)


@case
def empty_broadcast(rank: int, group: Any) -> None:
    dist.broadcast(torch.ones(4), 1, group)
    dist.broadcast(torch.ones(4 if rank else 0), 1, group)
    dist.barrier(group)


@case
def empty_reduced(rank: int, group: Any) -> None:
    dist.reduce(torch.ones(4), 1, group=group)
    dist.reduce(torch.ones(4 if rank else 0), 1, group=group)
    dist.barrier(group)


@case
def empty_several(rank: int, group: Any) -> None:
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for count in (4, 4 if rank else 0, 4):
            dist.all_gather_into_tensor(torch.ones(count * dist.get_world_size()), torch.ones(count), group)
    manager.wait()
    dist.barrier(group)


@case
def empty_message(rank: int, group: Any) -> None:
    if rank == 0:
        dist.send(torch.ones(0), 1, group)
    elif rank == 1:
        dist.recv(torch.ones(4), 0, group)
    dist.barrier(group)


def every(rank: int) -> dict[str, Any]:
    """Return the class and the text of the error of each case, and whether it is one of torch's."""
    found: dict[str, Any] = {}
    for name, call in CASES.items():
        print(name, flush=True)
        group: Any = dist.new_group(timeout=LIMIT)
        try:
            call(rank, group)
            outcome = ("no error", "", False)
        except Exception as error:
            outcome = (type(error).__name__, str(error), isinstance(error, dist.DistBackendError))
        found[name] = outcome
        # The ranks go on together, over the group that nothing has happened to.
        dist.barrier()
    return found
