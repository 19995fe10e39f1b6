"""A rank of programs of torch.distributed that go through torchcomms: a sum, DDP and FSDP, with the losses of Gloo."""

from __future__ import annotations

import json
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def losses(wrap: Any) -> list[float]:
    torch.manual_seed(3)
    model = wrap(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for step in range(3):
        data = torch.randn(4, 8, generator=torch.Generator().manual_seed(100 * RANK + step))
        loss = model(data).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def sharded(model: nn.Module) -> nn.Module:
    return fully_shard(model, mesh=init_device_mesh("cpu", (SIZE,)))


def run(backend: str) -> list[list[float]]:
    dist.init_process_group(backend)
    wrapper = type(dist.group.WORLD._get_backend(torch.device("cpu"))).__name__  # type: ignore[union-attr]
    assert wrapper == "_BackendWrapper", f"{wrapper}: {backend} does not go through torchcomms"
    tensor = torch.arange(5.0) + RANK
    dist.all_reduce(tensor)
    found = [tensor.tolist(), losses(DistributedDataParallel), losses(sharded)]
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    print(json.dumps({backend: run(backend) for backend in ("roundelay", "cpu:roundelay", "gloo")}))
