"""What programs of users do to groups: Ctrl-C, factors of integers, groups that come and go."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


def descriptors(rank: int) -> dict[str, int]:
    """The descriptors of a process before, with and after groups to which it still refers."""
    data = torch.ones(1)
    dist.all_reduce(data)

    def held() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = held()
    groups = [dist.new_group() for _ in range(8)]
    for group in groups:
        dist.all_reduce(data, group=group)
        dist.all_reduce(data, group=group, async_op=True).wait()
    used = held()
    for group in groups:
        dist.destroy_process_group(group)
    return {"before": before, "used": used, "after": held()}


def factors(rank: int) -> list[str]:
    """premul_sum of integers by a whole number, and by another one, in turns."""
    found = []
    for factor in (2.0, 0.5, 3.0):
        data = torch.full((5,), rank + 1, dtype=torch.int32)
        try:
            dist.all_reduce(data, op=dist._make_nccl_premul_sum(factor))
            found.append(str(data.tolist()))
        except NotImplementedError as error:
            found.append(str(error))
    return found


def interrupted(rank: int) -> dict[str, Any]:
    """What Ctrl-C raises on rank 0, which waits for rank 1 in several ways, and after how long."""
    store: Any = dist.distributed_c10d._get_default_store()
    groups = [dist.new_group(timeout=timedelta(seconds=60)) for _ in range(6)]
    if rank == 1:
        store.wait(["done"], timedelta(seconds=100))
        return {}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    data = torch.ones(5)
    cases: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(data, group=groups[0]),
        "barrier": lambda: dist.barrier(group=groups[1]),
        "wait": lambda: dist.all_reduce(data, group=groups[2], async_op=True).wait(),
        "recv": lambda: dist.recv(data, 1, group=groups[3]),
        "monitored_barrier": lambda: dist.monitored_barrier(timeout=timedelta(seconds=60)),
        "new_group": lambda: dist.new_group(timeout=timedelta(seconds=60)),
    }
    found = {}
    sent = [0.0]

    def send() -> None:
        time.sleep(0.4)
        sent[0] = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    for name, case in cases.items():
        threading.Thread(target=send).start()
        try:
            case()
            error = "no error"
        except BaseException as raised:
            error = f"{type(raised).__name__}: {raised}"
        found[name] = [error, time.monotonic() - sent[0]]
    store.set("done", "")
    # The groups have ended, and what waits in them is not waited for.
    for group in groups:
        group.abort()
    return found
