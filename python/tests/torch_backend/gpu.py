"""Checks the backend on GPUs, where PyTorch and at least one GPU are: several ranks may share one.

    torchrun --nproc-per-node 2 python/tests/torch_backend/gpu.py

Every result is compared with what the CPU computes from the same random data. Prints one line an operation, and fails
with the first that is wrong.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import roundelay.torch


def data(rank: int, shape: tuple[int, ...], salt: int) -> torch.Tensor:
    """Return what a rank contributes, the same on every rank that asks: whole numbers, so that sums are exact."""
    seed = torch.Generator().manual_seed(1000 * salt + rank)
    return torch.randint(-50, 50, shape, generator=seed).float()


def main() -> None:
    roundelay.torch.register()
    dist.init_process_group("roundelay")
    rank, n = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    count = 0

    def check(name: str, got: torch.Tensor, want: torch.Tensor) -> None:
        nonlocal count
        count += 1
        if not torch.equal(got.cpu(), want):
            raise SystemExit(f"rank {rank}: {name} is wrong: {got.flatten()[:4]} instead of {want.flatten()[:4]}")

    def timed(name: str, call: Callable[[], object]) -> None:
        call()
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if rank == 0:
            print(f"{name:44} right, {1e6 * (time.perf_counter() - began):9.1f} us", flush=True)

    for elements in (1, 1000, 1_000_003):
        shape = (elements,)
        own = data(rank, shape, 1).to(device)
        whole = [data(r, shape, 1) for r in range(n)]
        total = torch.stack(whole).sum(0)

        def all_reduce() -> None:
            x = own.clone()
            dist.all_reduce(x)
            check("all_reduce", x, total)

        def asynchronous() -> None:
            x = own.clone()
            work = dist.all_reduce(x, op=dist.ReduceOp.MAX, async_op=True)
            assert work is not None
            work.wait()
            check("all_reduce, async", x, torch.stack(whole).amax(0))

        def broadcast() -> None:
            x = own.clone()
            dist.broadcast(x, n - 1)
            check("broadcast", x, whole[n - 1])

        def all_gather() -> None:
            out = torch.full((n * elements,), float("nan"), device=device)
            dist.all_gather_into_tensor(out, own)
            check("all_gather_into_tensor", out, torch.cat(whole))

        def reduce_scatter() -> None:
            given = torch.cat([data(rank, shape, 10 + r) for r in range(n)]).to(device)
            out = torch.full(shape, float("nan"), device=device)
            dist.reduce_scatter_tensor(out, given)
            check("reduce_scatter_tensor", out, torch.stack([data(r, shape, 10 + rank) for r in range(n)]).sum(0))

        def all_to_all() -> None:
            given = torch.cat([data(rank, shape, 20 + r) for r in range(n)]).to(device)
            out = torch.full((n * elements,), float("nan"), device=device)
            dist.all_to_all_single(out, given)
            check("all_to_all_single", out, torch.cat([data(r, shape, 20 + rank) for r in range(n)]))

        def messages() -> None:
            got = torch.full(shape, float("nan"), device=device)
            ops = [dist.P2POp(dist.isend, own, (rank + 1) % n), dist.P2POp(dist.irecv, got, (rank - 1) % n)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()
            check("batch_isend_irecv", got, whole[(rank - 1) % n])

        for call in (all_reduce, asynchronous, broadcast, all_gather, reduce_scatter, all_to_all, messages):
            timed(f"{call.__name__}, {elements} f32", call)

    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).to(device)
    parallel = torch.nn.parallel.DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    losses = []
    for step in range(5):
        x = data(rank, (16, 64), 100 + step).to(device) / 50
        loss = parallel(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    same = torch.cat([p.detach().flatten() for p in parallel.parameters()])
    others = [torch.empty_like(same) for _ in range(n)]
    dist.all_gather(others, same)
    if not all(torch.equal(same, other) for other in others):
        raise SystemExit(f"rank {rank}: the parameters of the ranks differ after 5 steps")
    if rank == 0:
        name = torch.cuda.get_device_name()
        print(f"DDP, 5 steps: losses {' '.join(f'{loss:.5f}' for loss in losses)}")
        print(f"{count} results right: {n} ranks, {torch.cuda.device_count()} x {name}, torch {torch.__version__}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
