"""A rank of programs of torch.distributed on backends in Python: operations, parts, DDP and FSDP beside Gloo."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from distributed import losses, sharded
from own_backends import Everything, Mixed
from torch.nn.parallel import DistributedDataParallel

import roundelay.torchcomms as torchcomms

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def blank(*shape: int) -> torch.Tensor:
    return torch.full(shape, -7.0)


def operations() -> dict[str, Any]:
    """The results of the operations of torch.distributed."""
    mine = torch.arange(4.0) + 10 * RANK
    found: dict[str, Any] = {}
    tensor = mine.clone()
    dist.all_reduce(tensor)
    found["all_reduce"] = tensor.tolist()
    tensor = mine.clone()
    work = dist.all_reduce(tensor, op=dist.ReduceOp.MAX, async_op=True)
    assert work is not None and work.wait()
    found["max"] = tensor.tolist()
    tensor = mine.clone()
    dist.broadcast(tensor, 1)
    found["broadcast"] = tensor.tolist()
    tensor = mine.clone()
    dist.reduce(tensor, 0)
    # Gloo leaves sums of some ranks on the others.
    found["reduce"] = tensor.tolist() if RANK == 0 else mine.tolist()
    parts = [blank(4) for _ in range(SIZE)]
    dist.all_gather(parts, mine)
    found["all_gather"] = [part.tolist() for part in parts]
    output = blank(4 * SIZE)
    dist.all_gather_into_tensor(output, mine)
    found["all_gather_single"] = output.tolist()
    output = blank(4 // SIZE)
    dist.reduce_scatter_tensor(output, mine)
    found["reduce_scatter_single"] = output.tolist()
    output = blank(4)
    dist.reduce_scatter(output, [mine + part for part in range(SIZE)])
    found["reduce_scatter"] = output.tolist()
    output = blank(4)
    dist.all_to_all_single(output, mine)
    found["all_to_all_single"] = output.tolist()
    output = blank(SIZE * (RANK + 1))
    rows = [rank + 1 for rank in range(SIZE)]
    dist.all_to_all_single(output, torch.arange(float(sum(rows))) + RANK, [RANK + 1] * SIZE, rows)
    found["all_to_all_v_single"] = output.tolist()
    output = blank(4)
    dist.scatter(output, [mine + part for part in range(SIZE)] if RANK == 0 else None, 0)
    found["scatter"] = output.tolist()
    parts = [blank(4) for _ in range(SIZE)]
    dist.gather(mine, parts if RANK == 0 else None, 0)
    found["gather"] = [part.tolist() for part in parts]
    output = blank(4)
    if RANK == 0:
        dist.send(mine, 1)
        dist.recv(output, 1)
    else:
        dist.recv(output, 0)
        dist.send(mine, 0)
    found["messages"] = output.tolist()
    with dist._coalescing_manager():
        tensors = [mine.clone(), mine + 1]
        for tensor in tensors:
            dist.all_reduce(tensor)
    found["coalesced"] = [tensor.tolist() for tensor in tensors]
    part = dist.new_group([0, 1])
    tensor = mine.clone()
    dist.all_reduce(tensor, group=part)
    found["part"] = tensor.tolist()
    dist.barrier()
    return found


def unequal() -> list[list[list[float]]]:
    """The results of what Gloo has not: gathers of different sizes, lists of all_to_all and unequal scatters."""
    mine = torch.arange(4.0) + 10 * RANK
    gathered = [blank(rank + 1) for rank in range(SIZE)]
    dist.all_gather(gathered, mine[: RANK + 1].clone())
    exchanged = [blank(4) for _ in range(SIZE)]
    dist.all_to_all(exchanged, [mine + part for part in range(SIZE)])
    output = blank(RANK + 1)
    dist.reduce_scatter(output, [mine[: part + 1].clone() for part in range(SIZE)])
    return [[part.tolist() for part in parts] for parts in (gathered, exchanged, [output])]


def run(backend: str, store: dist.Store) -> dict[str, Any]:
    dist.init_process_group(backend, store=dist.PrefixStore(backend, store), rank=RANK, world_size=SIZE)
    found = operations()
    found["losses"] = [losses(DistributedDataParallel), losses(sharded)]
    group: Any = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    assert dist.get_backend() == backend
    if backend != "gloo":
        every = [torch.arange(4.0) + 10 * rank for rank in range(SIZE)]
        gathered = [each[: rank + 1].tolist() for rank, each in enumerate(every)]
        exchanged = [(each + RANK).tolist() for each in every]
        summed = torch.stack(every).sum(0)[: RANK + 1].tolist()
        assert unequal() == [gathered, exchanged, [summed]]
        found["called"] = dict(getattr(group.python_backend, "called", Counter()))
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    for kind in (Everything, Mixed):
        torchcomms.register_backend(kind.__name__.lower(), kind)
    base = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), SIZE, RANK == 0)
    print(json.dumps({backend: run(backend, base) for backend in ("gloo", "everything", "mixed")}))
