"""Measures calls of several backends by turns, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from rank import Rank
from torch import Tensor

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
WARM = 5


def sizes(job: Rank) -> list[int]:
    """Return the bytes of the larger buffer of a rank."""
    most = [4 << 20, 16 << 20, 64 << 20, 256 << 20] if job.on_gpu else []
    return [8, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, *most]


def call_of(name: str, size: int, job: Rank, group: Any) -> tuple[Callable[[], Any], Callable[[], bool]]:
    """Return a call of a collective, and a function that looks whether its result is right."""
    n, rank, device = job.size, job.rank, job.device
    block = max(1, size // 4 // n)
    count = max(1, size // 4) if name in ("all_reduce", "broadcast") else block * n
    whole = torch.full((count,), float(rank + 1), device=device)
    part = torch.full((block,), float(rank + 1), device=device)
    total = n * (n + 1) / 2

    def order(tensor: Tensor) -> bool:
        expected = torch.arange(1, n + 1, device=device).float().repeat_interleave(block)
        return torch.equal(tensor, expected)

    if name == "all_reduce":

        def reduced() -> bool:
            whole.fill_(float(rank + 1))
            dist.all_reduce(whole, group=group)
            right = bool((whole == total).all())
            whole.zero_()
            return right

        return lambda: dist.all_reduce(whole, group=group), reduced
    if name == "broadcast":
        return lambda: dist.broadcast(whole, 0, group=group), lambda: bool((whole == 1).all())
    if name == "all_gather":
        return lambda: dist.all_gather_into_tensor(whole, part, group=group), lambda: order(whole)
    if name == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(part, whole, group=group), lambda: bool((part == total).all())
    out = torch.full_like(whole, float("nan"))
    return lambda: dist.all_to_all_single(out, whole, group=group), lambda: order(out)


def timed(job: Rank, call: Callable[[], Any], calls: int) -> tuple[float, float]:
    """Return the microseconds of one call, of many in a row: on the stream, and of the host."""
    if not job.on_gpu:
        began = time.perf_counter()
        for _ in range(calls):
            call()
        taken = 1e6 * (time.perf_counter() - began) / calls
        return taken, taken
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    first.record()  # type: ignore[no-untyped-call]
    began = time.perf_counter()
    for _ in range(calls):
        call()
    host = 1e6 * (time.perf_counter() - began) / calls
    last.record()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    return 1e3 * first.elapsed_time(last) / calls, host


def measure(
    job: Rank, calls_of: dict[str, Callable[[], Any]], calls: int, rounds: int, between: Callable[[], Any]
) -> dict[str, dict[str, float]]:
    """Return, by backend, the median and the least over rounds: of the slowest rank's time, and of the host's."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls_of}
    order = list(calls_of)
    for name in order:
        for _ in range(WARM):
            calls_of[name]()
    for _ in range(rounds):
        for name in order:
            job.synchronize()
            between()
            taken[name].append(timed(job, calls_of[name], calls))
        order.append(order.pop(0))
    gathered = job.every(taken)
    found = {}
    for name in calls_of:
        by_round = list(zip(*(each[name] for each in gathered), strict=True))
        stream = [max(us for us, _ in each) for each in by_round]
        host = [max(us for _, us in each) for each in by_round]
        found[name] = {
            "us": statistics.median(stream),
            "least_us": min(stream),
            "host_us": statistics.median(host),
            "least_host_us": min(host),
        }
    return found
