"""A group that lives on with other ranks, by torch's interface for it (2.15 and later)."""

from __future__ import annotations

import itertools
import os
import signal
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from outcomes import told
from torch._C import _distributed_c10d as c10d

_numbers = itertools.count()


class Job:
    """The default group of a rank, and a store by which the ranks meet."""

    def __init__(self, rank: int) -> None:
        self.number, self.size = rank, dist.get_world_size()
        whole: Any = dist.distributed_c10d._get_default_store()
        dist.barrier()
        dist.destroy_process_group()
        self.store = c10d.PrefixStore("meeting", whole)
        store = c10d.PrefixStore("group", whole)
        dist.init_process_group(
            "roundelay", store=store, rank=rank, world_size=self.size, enable_reconfigure=True,
            timeout=timedelta(seconds=20),
        )  # fmt: skip
        self.group: Any = dist.distributed_c10d._get_default_group()
        self.backend = self.group._get_backend(torch.device("cpu"))

    def handles(self, ranks: list[int]) -> list[str]:
        """Return the handles of some ranks, of which this is one."""
        key = f"handle-{next(_numbers)}-{len(ranks)}"
        self.store.set(f"{key}-{self.number}", dist.distributed_c10d._get_reconfigure_handle())
        return [self.store.get(f"{key}-{rank}").decode() for rank in ranks]

    def meet(self) -> None:
        """Wait until all ranks are here."""
        key = f"here-{next(_numbers)}"
        self.store.set(f"{key}-{self.number}", "")
        for rank in range(self.size):
            self.store.get(f"{key}-{rank}")

    def go_on(self, uuid: int, handles: Any) -> list[Any]:
        """Go on with these ranks; return rank, size, and what a sum and a message give there."""
        dist.distributed_c10d._reconfigure(uuid, handles, timeout=timedelta(seconds=20)).wait()
        rank, size = dist.get_rank(), dist.get_world_size()
        tensor = torch.full((1000,), rank + 1.0)
        dist.all_reduce(tensor)
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        got = torch.full((3,), -1.0)
        if size > 1:
            sent = dist.isend(torch.full((3,), float(rank)), (rank + 1) % size)
            dist.recv(got, (rank - 1) % size)
            sent.wait()
        assert (tensor == tensor[0]).all()
        return [rank, size, tensor[0].item(), got[0].item()]


def lives(rank: int) -> dict[str, Any]:
    """Three ranks: each alone, all, without the middle one, all again, and after an abort."""
    job = Job(rank)
    every = list(range(job.size))
    results: dict[str, Any] = {"supported": [dist.distributed_c10d._supports_reconfigure(), job.backend.rank()]}
    results["too early"] = told(dist.all_reduce, torch.ones(1))
    results["alone"] = job.go_on(100 + rank, [dist.distributed_c10d._get_reconfigure_handle()])
    results["used"] = told(job.go_on, 100 + rank, [dist.distributed_c10d._get_reconfigure_handle()])
    results["all"] = job.go_on(1, job.handles(every))
    job.meet()  # A message is sent before it has arrived.
    if rank != 1:
        results["fewer"] = job.go_on(2, job.handles([0, 2]))
    else:
        next(_numbers)
    # A set: the ranks that were together come first, in their order.
    results["set"] = job.go_on(3, set(job.handles(every)))
    results["backwards"] = job.go_on(4, job.handles(every[::-1]))
    job.meet()  # An abort ends what the others do.
    job.backend.abort()
    results["aborted"] = told(dist.all_reduce, torch.ones(1))
    results["after an abort"] = job.go_on(5, job.handles(every))
    dist.destroy_process_group()
    return results


def killed(rank: int) -> dict[str, Any]:
    """Rank 1 is killed while the others are in a call; they go on without it."""
    job = Job(rank)
    job.go_on(1, job.handles(list(range(job.size))))
    job.meet()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    lost = told(dist.all_reduce, torch.ones(100_000))
    return {"lost": lost, "left": job.go_on(2, job.handles([0, 2]))}
