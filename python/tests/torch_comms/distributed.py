"""A rank of programs of torch.distributed that go through torchcomms, with the losses of Gloo: a sum, DDP, FSDP, HSDP
and tensor parallel.
"""

from __future__ import annotations

import json
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def losses(wrap: Any, own_data: bool = True) -> list[float]:
    """Return the losses of three steps, on data of the rank's own or on the same ones."""
    torch.manual_seed(3)
    model = wrap(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for step in range(3):
        data = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * RANK * own_data + step))
        loss = model(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def sharded(model: nn.Module) -> nn.Module:
    return fully_shard(model, mesh=init_device_mesh("cpu", (SIZE,)))


def sharded_twice(model: nn.Module) -> nn.Module:
    """Shard over half of the ranks, and have the same in the other half: pairs of four ranks, one of two."""
    mesh = init_device_mesh("cpu", (2, SIZE // 2), mesh_dim_names=("replicate", "shard"))
    return fully_shard(model, mesh=mesh)


def in_parts(model: nn.Module) -> nn.Module:
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(model, init_device_mesh("cpu", (SIZE,)), plan)


def run(backend: str) -> list[list[float]]:
    dist.init_process_group(backend)
    wrapper = type(dist.group.WORLD._get_backend(torch.device("cpu"))).__name__  # type: ignore[union-attr]
    assert wrapper == "_BackendWrapper", f"{wrapper}: {backend} does not go through torchcomms"
    tensor = torch.arange(5.0) + RANK
    dist.all_reduce(tensor)
    found = [tensor.tolist(), losses(DistributedDataParallel), losses(sharded), losses(sharded_twice)]
    found.append(losses(in_parts, own_data=False))
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    print(json.dumps({backend: run(backend) for backend in ("roundelay", "cpu:roundelay", "gloo")}))
