"""What calls of torch.distributed cost, from 8 bytes to 256 MiB, by turns with the reference."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import turns
from rank import Rank


def main(job: Rank) -> None:
    groups = job.open()
    for name in turns.COLLECTIVES:
        for size in turns.sizes(job):
            calls: dict[str, Any] = {}
            for backend, group in groups.items():
                call, right = turns.call_of(name, size, job, group)
                for _ in range(turns.WARM):
                    call()
                if all(job.every(right())):
                    calls[backend] = call
                else:
                    job.say(case=name, bytes=size, backend=backend, error="the result is wrong")
            first = next(iter(calls.values()))
            guess, _ = turns.timed(job, first, 10)
            count: int = job.every(max(3, min(100, round(3000 / guess))))[0]
            found = turns.measure(job, calls, count, 7, dist.barrier)
            for backend, figures in found.items():
                job.say(case=name, bytes=size, backend=backend, calls=count, rounds=7, **figures)
            calls.clear()
            if job.on_gpu:
                torch.cuda.empty_cache()
    background(job, groups)


def background(job: Rank, groups: dict[str, Any]) -> None:
    """What `async_op=True` costs the host: until the call returns, with the wait; and with a future, as DDP waits."""
    for size in (8, 64 << 20) if job.on_gpu else (8, 4 << 20):
        data = torch.zeros(size // 4, device=job.device)

        def started(group: Any, data: torch.Tensor = data) -> Any:
            work = dist.all_reduce(data, group=group, async_op=True)
            assert work is not None
            return work

        ways: dict[str, Callable[[Any], Any]] = {
            "async": lambda group: started(group).wait(),
            "future": lambda group: started(group).get_future().wait(),
        }
        for way, call in ways.items():
            calls = {backend: functools.partial(call, group) for backend, group in groups.items()}
            found = turns.measure(job, calls, 10, 7, dist.barrier)
            for backend, figures in found.items():
                job.say(case=f"all_reduce, {way}", bytes=size, backend=backend, calls=10, rounds=7, **figures)
