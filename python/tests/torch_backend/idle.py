"""A group whose memory goes back to the system until it is used again, on every rank of one job."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

COUNT = 300_000


def backend(group: Any = None) -> Any:
    group = group or dist.distributed_c10d._get_default_group()
    return group._get_backend(torch.device("cpu"))


def summed(rank: int, salt: int, group: Any = None) -> bool:
    """Sum into a poisoned tensor, and compare with what torch sums without a group."""
    n = dist.get_world_size()
    out = torch.full((COUNT,), -1.0)
    out.copy_(torch.arange(COUNT) % 1000 * float(rank + salt))
    dist.all_reduce(out, group=group)
    wanted = torch.arange(COUNT) % 1000 * float(n * salt + n * (n - 1) // 2)
    return bool(torch.equal(out, wanted))


def refusal() -> str:
    try:
        dist.all_reduce(torch.ones(3))
    except Exception as error:
        return str(error)
    return "nothing"


def phases(rank: int) -> list[Any]:
    """Calls, a suspension, what is refused meanwhile, and calls again."""
    seen: list[Any] = [summed(rank, 1)]
    before = dict(backend().memory_stats())
    backend().suspend()
    stats = dict(backend().memory_stats())
    seen += [before["suspended"], stats["suspended"]]
    seen += [stats["shared_bytes"] < before["shared_bytes"] // 2, stats["mapped_bytes"] < before["mapped_bytes"]]
    seen.append("suspended" in refusal())
    backend().resume()
    seen.append(summed(rank, 2))
    # A group of its own is suspended by itself.
    part = dist.new_group(list(range(dist.get_world_size())))
    seen.append(summed(rank, 3, part))
    backend(part).suspend()
    seen.append(summed(rank, 4))
    backend(part).resume()
    seen.append(summed(rank, 5, part))
    return seen
