"""What observation costs a call: by turns, calls of a group that is not observed and of one that is.

``python overhead.py [TURNS]`` prints a line an operation: the medians and their difference, then the least of both. The
backend is torch's ``fake``, whose operations do nothing, so that differences are those of the path of the calling rank;
the thread of the observer runs beside it.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.testing._internal.distributed.fake_pg  # noqa: F401 it registers the backend

import roundelay

CALLS = 200
"""Calls of a turn: few, so that some turns are not disturbed on a machine that others use."""


def seconds_of(call: Callable[[], Any]) -> float:
    """Return the seconds of one call, of many in a row."""
    begun = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begun) / CALLS


def measure(turns: int) -> dict[str, tuple[list[float], list[float]]]:
    """Return the seconds of a call without and with observation, a figure a turn, by operation."""
    store: Any = dist.HashStore()
    dist.init_process_group("fake", store=store, rank=0, world_size=2)
    bare: Any = dist.new_group([0, 1])
    observed = roundelay.observe(dist.new_group([0, 1]), store=store, timeout=60)
    tensor, whole = torch.ones(1024), torch.ones(2048)

    def calls(group: Any) -> dict[str, Callable[[], Any]]:
        def awaited() -> None:
            work = dist.all_reduce(tensor, group=group, async_op=True)
            if work is not None:
                work.wait()

        return {
            "all_reduce": lambda: dist.all_reduce(tensor, group=group),
            "all_reduce, async": awaited,
            "broadcast": lambda: dist.broadcast(tensor, 0, group=group),
            "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(whole, tensor, group=group),
            "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(tensor, whole, group=group),
            "barrier": lambda: dist.barrier(group=group),
        }

    of_bare, of_observed = calls(bare), calls(observed)
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in of_bare}
    for name, (without, with_it) in found.items():
        for at in range(turns):
            pair = [(of_bare[name], without), (of_observed[name], with_it)]
            for call, into in pair if at % 2 else reversed(pair):
                into.append(seconds_of(call))
    dist.destroy_process_group()
    return found


def main() -> None:
    median = statistics.median
    for name, (without, with_it) in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 300).items():
        for what, of in (("median", median), ("least", min)):
            bare, observed = of(without) * 1e6, of(with_it) * 1e6
            print(f"{name:24} {what:7} {bare:6.2f} us {observed:6.2f} us {observed - bare:+6.2f} us")


if __name__ == "__main__":
    main()
