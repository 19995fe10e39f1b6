"""Times all_reduce between two ranks by Gloo, the backend in Python and the backend in C++, in turns.

    torchrun --nproc-per-node 2 python/tests/torch_compiled/latency.py

Prints the least and the median time of a call over all turns, of a synchronous call and of one with a work; and the time
until `all_reduce(async_op=True)` of 64 MiB returns, after another one has emptied the caches, with that of the native
communicator of the package beside it.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

import roundelay
import roundelay.torch

TURNS, CALLS = 30, 200
LARGE = 64 << 20


def start(groups: dict[str, Any]) -> None:
    """Print how long it takes until a large operation in the background has been started."""
    data = torch.zeros(LARGE // 4)
    comm = roundelay.Communicator.join(
        dist.get_rank(), dist.get_world_size(), dist.PrefixStore("native", dist.distributed_c10d._get_default_store())
    )
    starts: dict[str, Any] = {"native": lambda: comm.all_reduce(data, async_op=True)}
    for name, group in groups.items():
        starts[name] = lambda group=group: dist.all_reduce(data, group=group, async_op=True)
    times: dict[str, list[float]] = {name: [] for name in starts}
    for _ in range(TURNS):
        for name, call in starts.items():
            dist.barrier()
            begun = time.perf_counter()
            work = call()
            times[name].append(1e6 * (time.perf_counter() - begun))
            work.wait()
    if dist.get_rank() == 0:
        for name, taken in times.items():
            least, median = min(taken), statistics.median(taken)
            print(f"64 MiB start {name:9} least {least:7.1f} us, median {median:7.1f} us", flush=True)


def main() -> None:
    roundelay.torch.register()
    dist.init_process_group("gloo")
    groups: dict[str, Any] = {"gloo": None}
    for name, compiled in (("python", False), ("compiled", True)):
        options = roundelay.torch.Options(compiled=compiled)
        groups[name] = dist.new_group(backend="roundelay", pg_options=options)

    for size in (8, 65536):
        data = torch.ones(size // 8, dtype=torch.float64)
        for background in (False, True):

            def call(group: Any, data: torch.Tensor = data, background: bool = background) -> None:
                work = dist.all_reduce(data, group=group, async_op=background)
                if work is not None:
                    work.wait()

            times: dict[str, list[float]] = {name: [] for name in groups}
            for _ in range(TURNS):
                for name, group in groups.items():
                    for _ in range(20):
                        call(group)
                    begun = time.perf_counter()
                    for _ in range(CALLS):
                        call(group)
                    times[name].append(1e6 * (time.perf_counter() - begun) / CALLS)
            if dist.get_rank() == 0:
                how = "async" if background else "sync"
                for name, taken in times.items():
                    least, median = min(taken), statistics.median(taken)
                    print(f"{size:6} B {how:5} {name:9} least {least:7.1f} us, median {median:7.1f} us", flush=True)
    start(groups)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
