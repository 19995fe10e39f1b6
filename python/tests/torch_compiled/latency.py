"""Times all_reduce between two ranks by Gloo, the backend in Python and the backend in C++, in turns.

    torchrun --nproc-per-node 2 python/tests/torch_compiled/latency.py

Prints the least and the median time of a call over all turns, of a synchronous call and of one with a work.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist

import roundelay.torch

TURNS, CALLS = 30, 200


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
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
