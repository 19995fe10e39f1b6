"""What programs get from one backend: the same programs run with each, and their results are compared.

Each case returns numbers; a case that fails says so, and the next one runs.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from rank import Rank
from torch import Tensor, nn

Case = Callable[[Rank], list[float]]
CASES: list[Case] = []


def case(function: Case) -> Case:
    """Add a case."""
    CASES.append(function)
    return function


def sums(*tensors: Tensor) -> list[float]:
    """Return numbers that change with any element or its place."""
    found = []
    for tensor in tensors:
        flat = tensor.detach().double().flatten().cpu()
        places = torch.arange(1, flat.numel() + 1, dtype=torch.float64) % 1009
        found += [flat.sum().item(), (flat * places).sum().item()]
    return found


@case
def collectives(job: Rank) -> list[float]:
    """Every collective, of several sizes, each with fresh data and a poisoned output."""
    n, found = job.size, []
    for salt, count in enumerate((1, 1000, 70_001, 1_500_000)):
        own, each = job.data(count, salt), job.data(n * count, 50 + salt)
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.AVG):
            if op == dist.ReduceOp.AVG and not job.on_gpu:
                continue
            x = own.clone()
            dist.all_reduce(x, op)
            found += sums(x)
        x = own.clone()
        dist.broadcast(x, n - 1)
        poisoned = torch.full((n * count,), float("nan"), device=job.device)
        dist.all_gather_into_tensor(poisoned, own)
        part = torch.full((count,), float("nan"), device=job.device)
        dist.reduce_scatter_tensor(part, each)
        exchanged = torch.full((n * count,), float("nan"), device=job.device)
        dist.all_to_all_single(exchanged, each)
        listed = [torch.full((count,), float("nan"), device=job.device) for _ in range(n)]
        dist.all_gather(listed, own)
        reduced = own.clone()
        dist.reduce(reduced, 0)
        scattered = torch.full((count,), float("nan"), device=job.device)
        dist.scatter(scattered, list(each.chunk(n)) if job.rank == 0 else None, 0)
        gathered = [torch.full((count,), float("nan"), device=job.device) for _ in range(n)] if job.rank == 0 else None
        dist.gather(own, gathered, 0)
        found += sums(x, poisoned, part, exchanged, scattered, *listed, *(gathered or []))
        found += sums(reduced) if job.rank == 0 else []
    for dtype in (torch.float16, torch.bfloat16, torch.int64, torch.float64):
        x = job.data(5000, 90).to(dtype)
        dist.all_reduce(x)
        found += sums(x)
    return found


@case
def uneven(job: Rank) -> list[float]:
    """all_to_all of unequal parts, and tensors that are not contiguous."""
    n = job.size
    sent = [100 * (job.rank + 1) + 7 * peer for peer in range(n)]
    received = [100 * (peer + 1) + 7 * job.rank for peer in range(n)]
    out = torch.full((sum(received),), float("nan"), device=job.device)
    dist.all_to_all_single(out, job.data(sum(sent), 3), received, sent)
    wide = job.data(64 * 48, 4).view(64, 48)
    # NCCL refuses what is not contiguous.
    strided = wide.t().contiguous() if job.backend == "nccl" else wide.t()
    dist.all_reduce(strided)
    return sums(out, strided.t())


@case
def streams(job: Rank) -> list[float]:
    """Work that starts in one stream, is waited for in another, or is dropped; memory that is freed and used anew."""
    found: list[float] = []
    first, second = (torch.cuda.Stream(job.device) if job.on_gpu else None for _ in range(2))
    dropped = torch.zeros(1, device=job.device)
    for number in range(60):
        with torch.cuda.stream(first) if job.on_gpu else nullcontext():
            # A kernel that takes long: the operation must not read before it.
            if job.on_gpu:
                torch.cuda._sleep(400_000)
            x = job.data(40_000 + number, number) * 2
            work = dist.all_reduce(x, async_op=True)
            assert work is not None
        with torch.cuda.stream(second) if job.on_gpu else nullcontext():
            work.wait()
            result = x * 3
            x.record_stream(second) if job.on_gpu else None
            future = dist.all_reduce(result, async_op=True)
            assert future is not None
            then = future.get_future().then(lambda done: done.value()[0] + 1)
            result = then.wait()
        # Nobody keeps this one, nor its work.
        dist.all_reduce(torch.ones(3000, device=job.device), async_op=True)
        torch.full((3000,), 9.0, device=job.device)
        if job.on_gpu:
            torch.cuda.current_stream().wait_stream(second)
        found += sums(result) if number % 20 == 0 else []
        dropped += result.sum() / 1000
    return found + sums(dropped)


@case
def messages(job: Rank) -> list[float]:
    """A batch of messages each way, and a chain of single ones."""
    n, rank = job.size, job.rank
    got, found = torch.full((5000,), float("nan"), device=job.device), []
    for number in range(3):
        ops = [
            dist.P2POp(dist.isend, job.data(5000, number), (rank + 1) % n),
            dist.P2POp(dist.irecv, got, (rank - 1) % n),
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        found += sums(got)
    token = torch.zeros(10, device=job.device)
    if rank > 0:
        dist.recv(token, rank - 1)
    token += rank + 1
    if rank < n - 1:
        dist.send(token, rank + 1)
    return found + sums(token)


def model_of(job: Rank, width: int = 64) -> nn.Module:
    """Return a small model, the same on every rank."""
    torch.manual_seed(5)
    parts: list[nn.Module] = []
    for _ in range(4):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts).to(job.device)


def trained(job: Rank, model: Any, steps: int = 4) -> list[float]:
    """Train, and return the losses and sums of the gradients' norms."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    found = []
    for step in range(steps):
        x = job.data(16 * 64, 200 + step).view(16, 64) / 50
        optimizer.zero_grad()
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@case
def ddp(job: Rank) -> list[float]:
    """DDP with small buckets; with the hook that compresses to half precision, which works on futures."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

    found = []
    for hook in (None, fp16_compress_hook):
        ids = [job.device.index] if job.on_gpu else None
        model = nn.parallel.DistributedDataParallel(model_of(job), device_ids=ids, bucket_cap_mb=0.02)
        if hook is not None:
            model.register_comm_hook(None, hook)
        found += trained(job, model)
    return found


@case
def fsdp2(job: Rank) -> list[float]:
    """fully_shard of each layer."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(job.device.type, (job.size,))
    model: Any = model_of(job)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    return trained(job, fully_shard(model, mesh=mesh))


@case
def tensor_parallel(job: Rank) -> list[float]:
    """A pair of layers, cut by columns and by rows."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh(job.device.type, (job.size,))
    torch.manual_seed(6)
    model: Any = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).to(job.device)
    model = parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    found = []
    for step in range(3):
        x = job.data(16 * 64, 300 + step, rank=0).view(16, 64) / 50
        optimizer.zero_grad()
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def functional_of(job: Rank) -> Callable[[Tensor], Tensor]:
    """Return a function of functional collectives."""
    from torch.distributed import _functional_collectives as functional

    group = dist.distributed_c10d._get_default_group()

    def function(x: Tensor) -> Tensor:
        y = functional.all_reduce(x * 2, "sum", group)
        z = functional.all_gather_tensor(y + job.rank, 0, group)
        r = functional.reduce_scatter_tensor(z * 3, "sum", 0, group)
        a = functional.all_to_all_single(z, None, None, group)
        return torch.cat([y, z, r, a])

    return function


@case
def functional(job: Rank) -> list[float]:
    """Functional collectives."""
    return sums(functional_of(job)(job.data(12 * job.size, 7)))


@case
def compiled(job: Rank) -> list[float]:
    """torch.compile of functional collectives."""
    backend = "inductor" if job.on_gpu else "aot_eager"
    function = torch.compile(functional_of(job), backend=backend, fullgraph=True)
    return sums(function(job.data(12 * job.size, 8)), function(job.data(12 * job.size, 9)))


@case
def graph(job: Rank) -> list[float]:
    """A CUDA graph of operations and kernels, captured once and replayed with other data, between other calls."""
    if not job.on_gpu:
        return []
    n, found = job.size, []
    for count in (1000, 300_000):
        x = torch.zeros(count, device=job.device)
        gathered = torch.zeros(n * count, device=job.device)
        part = torch.zeros(count, device=job.device)
        third = torch.zeros(count, device=job.device)

        def step(x: Tensor = x, gathered: Tensor = gathered, part: Tensor = part, third: Tensor = third) -> None:
            y = x * 2
            dist.all_reduce(y)
            work = dist.all_gather_into_tensor(gathered, y + 1, async_op=True)
            assert work is not None
            # Of another stream than the operation before, which nobody has waited for.
            torch.mul(x, 3, out=third)
            dist.all_reduce(third)
            work.wait()
            dist.reduce_scatter_tensor(part, gathered)

        side = torch.cuda.Stream(job.device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        made = torch.cuda.CUDAGraph()
        with torch.cuda.graph(made):
            step()
        for number in range(3):
            x.copy_(job.data(count, 400 + number))
            made.replay()
            other = job.data(999, number)
            dist.all_reduce(other)
            found += sums(part, gathered, third, other)
    return found


@case
def barrier(job: Rank) -> list[float]:
    """A barrier comes after what the GPU was given."""
    if job.on_gpu:
        torch.cuda._sleep(20_000_000)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()  # type: ignore[no-untyped-call]
        dist.barrier()
        assert event.query(), "the barrier came before what the GPU was given"  # type: ignore[no-untyped-call]
    dist.barrier()
    return [1.0]


def main(job: Rank) -> None:
    for function in CASES:
        began = time.perf_counter()
        print(function.__name__, flush=True)
        try:
            result, error = function(job), None
            job.synchronize()
        except Exception as failed:
            traceback.print_exc()
            result, error = [], f"rank {job.rank}: {type(failed).__name__}: {failed}".splitlines()[0][:300]
        job.say(case=function.__name__, result=result, error=error, seconds=time.perf_counter() - began)
        if error is not None:
            # The other ranks may be in another call by now: nothing of this job can be trusted from here on.
            raise SystemExit(1)
