"""What is measured: collectives, and training steps of a small model."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ._job import Job

Group = dist.ProcessGroup


class Case:
    """One case under one backend: ``call`` is timed, ``settle`` follows it untimed, ``right`` looks at the result."""

    def __init__(
        self,
        call: Callable[[], Any],
        right: Callable[[], bool] = lambda: True,
        settle: Callable[[], None] | None = None,
    ) -> None:
        self.call = call
        self.right = right
        self.settle = settle
        self.loss: float | None = None


def make(name: str, size: int, job: Job, group: Group) -> Case:
    """Return a case for a group; ``size`` in bytes."""
    if name in ("ddp", "fsdp2"):
        return _step(name, job, group)
    return _collective(name, size, job, group)


def _collective(name: str, size: int, job: Job, group: Group) -> Case:
    ranks, rank = group.size(), group.rank()
    block = max(1, -(-size // (4 * ranks)))
    count = block * ranks
    if name in ("all_reduce", "broadcast", "start"):
        count = max(1, size // 4)
    whole = torch.full((count,), float(rank + 1), device=job.device)
    part = torch.full((block,), float(rank + 1), device=job.device)
    total = ranks * (ranks + 1) / 2

    if name == "all_reduce":
        # A sum in place grows from call to call: looked at once, then of zeros.
        def reduced() -> bool:
            whole.fill_(float(rank + 1))
            dist.all_reduce(whole, group=group)
            right = bool((whole == total).all())
            whole.zero_()
            return right

        return Case(lambda: dist.all_reduce(whole, group=group), reduced)
    if name == "start":
        works: list[Any] = []

        def begin() -> None:
            works.append(dist.all_reduce(whole, group=group, async_op=True))

        def settle() -> None:
            works.pop().wait()

        whole.zero_()
        return Case(begin, settle=settle)
    if name == "broadcast":
        return Case(lambda: dist.broadcast(whole, 0, group=group), lambda: bool((whole == 1.0).all()))
    if name == "all_gather":
        expected = torch.arange(1, ranks + 1, device=job.device).float().repeat_interleave(block)
        return Case(
            lambda: dist.all_gather_into_tensor(whole, part, group=group), lambda: torch.equal(whole, expected)
        )
    if name == "reduce_scatter":
        return Case(
            lambda: dist.reduce_scatter_tensor(part, whole, group=group), lambda: bool((part == total).all())
        )
    if name == "all_to_all":
        out = torch.empty_like(whole)
        expected = torch.arange(1, ranks + 1, device=job.device).float().repeat_interleave(block)
        return Case(lambda: dist.all_to_all_single(out, whole, group=group), lambda: torch.equal(out, expected))
    if name == "exchange":
        return _exchange(max(1, size // 4), job, group)
    if name == "barrier":
        return Case(lambda: dist.barrier(group))
    raise ValueError(name)


def _exchange(count: int, job: Job, group: Group) -> Case:
    """Every rank sends to the next one, and receives from the one before."""
    ranks, rank = group.size(), group.rank()
    right, left = (rank + 1) % ranks, (rank - 1) % ranks
    out = torch.full((count,), float(rank), device=job.device)
    into = torch.empty_like(out)

    def call() -> None:
        if ranks == 1:
            into.copy_(out)
            return
        operations = [
            dist.P2POp(dist.isend, out, group=group, group_peer=right),
            dist.P2POp(dist.irecv, into, group=group, group_peer=left),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    return Case(call, lambda: bool((into == float(left)).all()))


def model(parameters: int, device: str) -> torch.nn.Module:
    """Return six square layers with about that number of parameters, the same on every rank."""
    torch.manual_seed(0)
    layers = 6
    width = max(8, round((parameters / layers) ** 0.5 / 8) * 8)
    parts: list[torch.nn.Module] = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts[:-1]).to(device)


def _step(name: str, job: Job, group: Group) -> Case:
    made = model(job.parameters, job.device)
    width = next(made.parameters()).shape[0]
    torch.manual_seed(1 + group.rank())
    data = torch.randn(job.batch, width, device=job.device)
    trained: Any
    if name == "ddp":
        trained = torch.nn.parallel.DistributedDataParallel(made, process_group=group)
    else:
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        mesh = DeviceMesh.from_group(group, job.device)
        for layer in made:  # type: ignore[attr-defined]
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh)
        trained = fully_shard(made, mesh=mesh)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)

    def call() -> None:
        optimizer.zero_grad()
        loss: Tensor = (trained(data) - data).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        case.loss = float(loss.detach())

    case = Case(call)
    return case


def collect() -> None:
    """Free what a case had: hooks make cycles, which hold models."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
