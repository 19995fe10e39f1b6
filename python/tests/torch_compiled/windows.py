"""Windows of the backend in C++, by torch's interface for them (2.15 and later)."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from outcomes import told


def part(rank: int, round: int) -> torch.Tensor:
    return torch.rand(3000, generator=torch.Generator().manual_seed(1000 * rank + round))


def private(window: Any, peer: int) -> None:
    """Map memory that is not shared."""
    window.tensor_register(torch.zeros(4))
    try:
        window.map_remote_tensor(peer)
    finally:
        dist.barrier()
        window.tensor_deregister()


def every(rank: int) -> dict[str, Any]:
    """Put, signal and wait in a ring, and what is wrong."""
    c10d: Any = dist.distributed_c10d
    size = dist.get_world_size()
    after, before = (rank + 1) % size, (rank - 1) % size
    table = torch.full((size, 3000), -1.0)
    window = c10d._new_window(table)
    wrong = 0
    for round in range(20):
        given = part(rank, round)
        window.put(given, after, rank * 3000, False)
        given.fill_(-2.0)
        window.signal(after, False)
        work = window.wait_signal(before, round % 2 == 0)
        if work is not None:
            work.wait()
        wrong += int(not torch.equal(table[before], part(before, round)))
        untouched = [row for row in range(size) if row != before]
        wrong += int((table[untouched] != -1.0).sum())
        dist.barrier()
    results = {
        "supported": c10d._supports_window(),
        "wrong": wrong,
        "type": told(window.put, torch.zeros(1, dtype=torch.int32), after, 0, False),
        "beyond": told(window.put, torch.zeros(3000), after, size * 3000 - 2999, False),
        "again": told(window.tensor_register, table),
    }
    dist.barrier()
    window.tensor_deregister()
    results["none"] = told(window.signal, after, False)
    other = torch.zeros(4, dtype=torch.int64)
    window.tensor_register(other)
    window.put(torch.full((2,), rank), after, 1, False)
    window.signal(after, False)
    window.wait_signal(before, False)
    results["other"] = other.tolist()
    window.tensor_deregister()
    results["private"] = told(private, window, after)
    backend: Any = c10d._get_default_group()._get_backend(torch.device("cpu"))
    mine = backend.allocate_tensor(12, dtype=torch.bfloat16, device=torch.device("cpu")).view(3, 4)
    mine.fill_(rank + 1)
    window.tensor_register(mine)
    theirs = window.map_remote_tensor(after)
    results["mapped"] = [list(theirs.shape), str(theirs.dtype), theirs.unique().tolist()]
    dist.barrier()
    theirs[1] = 20 + rank
    window.signal(after, False)
    window.wait_signal(before, False)
    results["stored"] = mine[:, 0].tolist()
    window.tensor_deregister()
    dropped = c10d._new_window(torch.zeros(10))
    del dropped  # Ends on each rank by itself.
    dist.barrier()
    return results
