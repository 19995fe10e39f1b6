"""Observation over NCCL: calls that differ, a rank that hangs, DDP, and what it costs a call.

torchrun --nproc-per-node 2 python/tests/torch_gpu/observed.py [nccl|gloo]

Prints a line a rank and case with what was found, and ends with 1 if that is wrong. Over ``gloo`` it needs no GPU.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import roundelay

BACKEND = sys.argv[1] if len(sys.argv) > 1 else "nccl"
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"
CULPRIT = 1
PROBLEMS: list[str] = []


def settle() -> None:
    """Wait until the GPU has done what it was given."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def summed(group: Any, count: int = 1024, op: Any = dist.ReduceOp.SUM) -> Any:
    """Start an all_reduce; return its work."""
    return dist.all_reduce(torch.ones(count, device=DEVICE), op, group, async_op=True)


def case(name: str, check: str, wrong: Callable[[Any], Any], error: str, words: str) -> None:
    """Have one rank make another call, then go on; compare the error of this rank."""
    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    group = roundelay.observe(dist.new_group(), timeout=3, check=check, late=0.5, interval=0.2)
    summed(group).wait()
    settle()
    begun, found, text = time.monotonic(), "none", ""
    try:
        for turn in range(60):
            work = wrong(group) if (rank, turn) == (CULPRIT, 0) else summed(group)
            if work is not None:
                work.wait()
            time.sleep(0.2)
    except roundelay.Error as raised:
        found, text = type(raised).__name__, str(raised)
    print(f"rank {rank}, {name}, {time.monotonic() - begun:.1f} s: {found}: {text}", flush=True)
    if found != error or words not in text:
        PROBLEMS.append(name)
    store.add(name, 1)
    while int(store.add(name, 0)) < dist.get_world_size():
        time.sleep(0.01)


def cost() -> None:
    """Print the median and the least microseconds of the host for a call, bare and observed by turns."""
    tensor = torch.ones(1024, device=DEVICE)
    groups = {"bare": dist.new_group(), "observed": roundelay.observe(dist.new_group(), timeout=60)}
    found: dict[str, list[float]] = {name: [] for name in groups}
    for _ in range(60):
        for name, group in groups.items():
            begun = time.perf_counter()
            for _ in range(50):
                dist.all_reduce(tensor, group=group)
            found[name].append((time.perf_counter() - begun) / 50 * 1e6)
            settle()
    figures = {name: f"{statistics.median(each):.2f} {min(each):.2f}" for name, each in found.items()}
    print(f"rank {dist.get_rank()}, us of all_reduce (median, least): {figures}", flush=True)


def trained() -> None:
    """Train by DDP over an observed group; its calls end, and are the same on all ranks."""
    group = roundelay.observe(dist.new_group(), timeout=60)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).to(DEVICE), process_group=group)
    for _ in range(3):
        model(torch.ones(4, 64, device=DEVICE)).sum().backward()
    settle()
    observer = roundelay.observer_of(group)
    observer.check(20)
    until = time.monotonic() + 5
    while list(observer.collectives.pending()) and time.monotonic() < until:
        time.sleep(0.05)
    if list(observer.collectives.pending()) or observer.collectives.count < 3 or observer.verdict is not None:
        PROBLEMS.append("DDP")


def main() -> None:
    # The backend's own watchdog would end the process.
    os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(BACKEND, timeout=timedelta(seconds=30))
    cost()
    trained()
    differs = f"rank {CULPRIT} makes "
    case("operation", "before", lambda group: dist.barrier(group, async_op=True), "MismatchError", differs + "barrier")
    case("shape", "before", lambda group: summed(group, 1000), "MismatchError", differs + "all_reduce of 1000")
    maximum = dist.ReduceOp.MAX
    case("operator", "late", lambda group: summed(group, op=maximum), "MismatchError", "1024 x f32 with max")
    case("hang", "late", lambda group: time.sleep(8), "OperationTimeoutError", f"rank {CULPRIT} has not made call 2")
    sys.stdout.flush()
    # What hangs in the backend must not hold the end.
    os._exit(1 if PROBLEMS else 0)


if __name__ == "__main__":
    main()
