"""What the ranks run. The server imports this module, with torch, before it forks them."""

import ctypes
import faulthandler
import gc
import itertools
import json
import mmap
import os
import time
from datetime import timedelta
from typing import Any

import fault_ranks
import torch
import torch._dynamo
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import roundelay.errors
import roundelay.torch

roundelay.torch.register()
if os.environ.get("ROUNDELAY_TORCH_COMPILED") == "1":
    from roundelay.torch import compiled

    compiled.module()


class Job:
    """One rank of a round."""

    def __init__(self, plan: Any, rank: int) -> None:
        self.plan, self.rank, self.ranks = plan, rank, plan.ranks

    def run(self) -> None:
        """Run the function of the round, and leave what it returns or raises in a file."""
        log = os.open(self.plan.file("log", self.rank), os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        faulthandler.enable()
        function = fault_ranks.run_rank if self.plan.face else globals()[self.plan.function]
        try:
            result = function(self)
        except BaseException as error:
            self.plan.board.put("raised", self.rank, time.monotonic())
            self.plan.file("error", self.rank).write_text(
                json.dumps(
                    dict(
                        type=type(error).__name__,
                        typed=isinstance(error, roundelay.errors.Error) and isinstance(error, dist.DistError),
                        text=str(error),
                    )
                )
            )
            raise
        self.plan.file("result", self.rank).write_text(json.dumps(result))

    def init(self, seconds: float = 30.0, name: str = "") -> None:
        """Make the default group."""
        store = dist.TCPStore("127.0.0.1", self.plan.port, None, False, timeout=timedelta(seconds=60))
        dist.init_process_group(
            self.plan.backend,
            store=dist.PrefixStore(f"{self.plan.number}/{name}", store),
            rank=self.rank,
            world_size=self.ranks,
            timeout=timedelta(seconds=seconds),
        )

    def hurt(self, place: str) -> None:
        """Kill or stop this rank if the plan says that it is to happen here."""
        plan = self.plan
        due = place == plan.where and self.rank == plan.victim and plan.board.get("step", self.rank) == 3
        if due and not plan.board.get("hurt", self.rank):
            plan.board.put("hurt", self.rank, time.monotonic())
            os.kill(os.getpid(), plan.how)


def model_of(width: int = 48) -> torch.nn.Module:
    """Return a small model of several layers."""
    torch.manual_seed(0)
    layers = [part for _ in range(4) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    return torch.nn.Sequential(*layers)


def train(job: Job) -> None:
    """Train without an end."""
    job.init()
    # Several buckets, so that a step has several operations.
    model = DistributedDataParallel(model_of(), bucket_cap_mb=0.01)

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        job.hurt("hook")
        work: Any = dist.all_reduce(bucket.buffer().div_(job.ranks), async_op=True)
        ended: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda future: future.value()[0])
        return ended

    if job.plan.where == "hook":
        model.register_comm_hook(None, hook)

    def on_gradient(gradient: torch.Tensor) -> None:
        job.hurt("backward")

    list(model.parameters())[3].register_hook(on_gradient)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(8, 48)
    # Making the group and the model may take long beside other programs; the steps may not.
    roundelay.torch.set_timeout(timedelta(seconds=job.plan.timeout))
    for step in itertools.count(1):
        job.plan.board.put("step", job.rank, step)
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()


def resources() -> dict[str, int]:
    """Return what this process holds: bytes of memory of its own and shared, file descriptors, threads, mappings."""
    # What a thread without the GIL has let go of is freed by the next call into the package.
    roundelay.Communicator.local(1)[0].shutdown()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status", encoding="utf-8") as file:
        status = dict(line.split(":", 1) for line in file)
    with open("/proc/self/maps", encoding="utf-8") as file:
        maps = len(file.readlines())
    return {
        "memory": 1024 * (int(status["RssAnon"].split()[0]) + int(status["RssShmem"].split()[0])),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "mappings": maps,
    }


def _measured(job: Job, one: Any) -> list[dict[str, int]]:
    """Return what a rank holds after a tenth of the rounds, after half of them, and at the end."""
    seen = []
    marks = {max(1, job.plan.count // 10), job.plan.count // 2, job.plan.count}
    for number in range(1, job.plan.count + 1):
        one(number)
        if number in marks:
            seen.append(_settled(seen[-1] if seen else None))
    return seen


def _settled(before: dict[str, int] | None) -> dict[str, int]:
    """Return what this process holds, once threads that end by themselves have let go of theirs."""
    until, held = time.monotonic() + 10, resources()
    while before and any(held[what] > before[what] for what in ("descriptors", "threads")) and time.monotonic() < until:
        time.sleep(0.05)
        held = resources()
    return held


def cycles(job: Job) -> list[dict[str, int]]:
    """Make the default group, use it and destroy it, many times."""
    # The store of each group is a client of its own, as a program that starts anew has it.
    def one(number: int) -> None:
        job.init(name=str(number))
        data = torch.full((1000,), float(job.rank + 1))
        dist.all_reduce(data)
        work: Any = dist.all_reduce(data, async_op=True)
        work.get_future().wait()
        assert data[0].item() == job.ranks * sum(range(1, job.ranks + 1))
        dist.destroy_process_group()

    return _measured(job, one)


def groups(job: Job) -> list[dict[str, int]]:
    """Make a group beside the default one, use it and destroy it, many times."""
    job.init()

    def one(number: int) -> None:
        group = dist.new_group(list(range(job.ranks)))
        data = torch.full((10,), float(job.rank + 1))
        dist.all_reduce(data, group=group)
        assert data[0].item() == sum(range(1, job.ranks + 1))
        dist.destroy_process_group(group)

    seen = _measured(job, one)
    dist.destroy_process_group()
    return seen


def leaky(job: Job) -> list[dict[str, int]]:
    """As `groups`, by a program that leaks a descriptor, a mapping and memory with each: what judges must see it."""
    kept: list[Any] = []
    job.init()

    def one(number: int) -> None:
        group = dist.new_group(list(range(job.ranks)))
        dist.barrier(group)
        dist.destroy_process_group(group)
        kept.append((open("/dev/null"), mmap.mmap(-1, mmap.PAGESIZE), bytearray(os.urandom(20_000))))

    return _measured(job, one)


def alive(job: Job) -> list[dict[str, int]]:
    """Make groups and keep all of them: what this process holds before, with one in ten of them, and with all."""
    job.init()
    dist.barrier()
    kept: list[Any] = []

    def one(number: int) -> None:
        group = dist.new_group(list(range(job.ranks)))
        # Two operations: what is made at first use is made.
        for count in (1000, 100_000):
            dist.all_reduce(torch.ones(count), group=group)
        work: Any = dist.all_reduce(torch.ones(1000), group=group, async_op=True)
        work.wait()
        kept.append(group)

    before = resources()
    return [before, *_measured(job, one)]
