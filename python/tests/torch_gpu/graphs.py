"""What a collective costs inside a CUDA graph, where the host takes no part: twenty calls in each, by turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import turns
from rank import Rank

CALLS = 20


def captured(job: Rank, call: Callable[[], Any]) -> Callable[[], Any]:
    """Return what replays a graph of calls, and keeps their tensors: the next capture gives unused memory back."""
    side = torch.cuda.Stream(job.device)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(turns.WARM):
            call()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    dist.barrier()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()

    def replay(_kept: Callable[[], Any] = call) -> None:
        graph.replay()

    return replay


def main(job: Rank) -> None:
    if not job.on_gpu:
        job.say(case="graphs", error="graphs need a GPU")
        return
    groups = job.open()
    for name in turns.COLLECTIVES:
        for size in [size for size in turns.sizes(job) if size <= 1 << 20]:
            replays: dict[str, Callable[[], Any]] = {}
            for backend, group in groups.items():
                call, right = turns.call_of(name, size, job, group)
                replay = captured(job, call)
                replay()
                job.synchronize()
                # The call that looks at an all_reduce is one outside of the graph, of data of its own.
                if all(job.every(right())):
                    replays[backend] = replay
                else:
                    job.say(case=name, bytes=size, backend=backend, error="the result is wrong")
            found = turns.measure(job, replays, 5, 5, dist.barrier)
            for backend, figures in found.items():
                per_call = {key: figures[key] / CALLS for key in ("us", "least_us")}
                job.say(case=name, bytes=size, backend=backend, calls=5 * CALLS, rounds=5, **per_call)
