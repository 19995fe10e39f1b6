"""Programs that end without waiting for what they have started; each is a rank of its own.

    python exits.py NAME RANK STORE [forked]

A forked rank is a child of a process that has loaded the backend, as those of a server are.
"""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import roundelay.torch

kept: list[Any] = []


def pending(rank: int) -> None:
    """Start many operations and end: they are completed first, on both ranks."""
    for number in range(20):
        work: Any = dist.all_reduce(torch.ones(200_000 + number), async_op=True)
        kept.append(work)
        if number % 2:
            work.get_future().then(lambda future: future.value()[0].sum())


def dropped(rank: int) -> None:
    """As `pending`, and nobody keeps the works."""
    for number in range(20):
        dist.all_reduce(torch.ones(200_000 + number), async_op=True)


def never(rank: int) -> None:
    """Rank 0 waits in the background for a message that never comes, and ends: after the timeout, in order."""
    roundelay.torch.set_timeout(timedelta(seconds=2))
    if rank == 0:
        kept.append(dist.irecv(torch.ones(10), 1, tag=4))


def raises(rank: int) -> None:
    """Rank 0 ends by an exception while rank 1 waits for it: rank 1 is told, long before its timeout."""
    if rank == 0:
        kept.append(dist.all_reduce(torch.ones(10), async_op=True))
        kept.append(dist.irecv(torch.ones(10), 1, tag=4))
        raise ValueError("no luck")
    dist.all_reduce(torch.ones(10))
    dist.all_reduce(torch.ones(10))


def interrupted(rank: int) -> None:
    """Rank 0 is ended by Ctrl-C in a wait while rank 1 waits for it: rank 1 is told."""
    import signal
    import threading

    if rank == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work: Any = dist.irecv(torch.ones(10), 1, tag=4)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        work.wait()
    dist.all_reduce(torch.ones(10))


def destroyed(rank: int) -> None:
    """A group is destroyed while an operation goes on, then the program ends."""
    kept.append(dist.all_reduce(torch.ones(500_000), async_op=True))
    dist.destroy_process_group()


def main() -> None:
    name, rank, store = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    roundelay.torch.register()
    if sys.argv[4:] == ["forked"]:
        if os.environ.get("ROUNDELAY_TORCH_COMPILED") == "1":
            from roundelay.torch import compiled

            compiled.module()
        child = os.fork()
        if child:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    dist.init_process_group(
        "roundelay", store=dist.FileStore(store, 2), rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    dist.barrier()
    globals()[name](rank)
    print("reached the end", flush=True)


if __name__ == "__main__":
    main()
