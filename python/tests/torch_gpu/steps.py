"""Training steps under each backend by turns: DDP of large layers and of many small ones, and FSDP2."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import turns
from rank import Rank
from torch import nn

MODELS = {"large": (8, 4096, 256), "small": (48, 512, 64)}
"""Square layers, their width, and the samples of a rank in a step."""


def model_of(job: Rank, layers: int, width: int) -> nn.Module:
    """Return a model, the same on every rank."""
    torch.manual_seed(11)
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width, device=job.device), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def step_of(job: Rank, kind: str, group: Any, layers: int, width: int, batch: int) -> tuple[Callable[[], Any], Any]:
    """Return a training step, and a list that gets the losses."""
    model: Any = model_of(job, layers, width)
    data = job.data(batch * width, 12).view(batch, width) / 50
    if kind == "ddp":
        ids = [job.device.index] if job.on_gpu else None
        model = nn.parallel.DistributedDataParallel(model, device_ids=ids, process_group=group)
    else:
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        mesh = DeviceMesh.from_group(group, job.device.type)
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        model = fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses: list[torch.Tensor] = []

    def step() -> None:
        optimizer.zero_grad()
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        if len(losses) < 4:
            losses.append(loss.detach())

    return step, losses


def collected() -> None:
    """Begin a turn without the garbage of the one before, on all ranks at once."""
    gc.collect()
    dist.barrier()


def main(job: Rank) -> None:
    groups = job.open()
    models = MODELS if job.on_gpu else {"small": (4, 128, 16)}
    for kind in ("ddp", "fsdp2"):
        for name, (layers, width, batch) in models.items():
            steps: dict[str, Callable[[], Any]] = {}
            losses: dict[str, list[float]] = {}
            memory: dict[str, float] = {}
            for backend, group in groups.items():
                if job.on_gpu:
                    torch.cuda.synchronize()
                    before = torch.cuda.mem_get_info()[0]
                step, told = step_of(job, kind, group, layers, width, batch)
                for _ in range(4):
                    step()
                job.synchronize()
                if job.on_gpu:
                    memory[backend] = (before - torch.cuda.mem_get_info()[0]) / (1 << 20)
                steps[backend], losses[backend] = step, [loss.item() for loss in told]
            # The garbage collector would walk all models again and again, in whichever backend's turn that falls.
            gc.collect()
            gc.freeze()
            found = turns.measure(job, steps, 5 if job.on_gpu else 2, 13 if job.on_gpu else 2, collected)
            gc.unfreeze()
            for backend, figures in found.items():
                row = dict(case=f"{kind}, {name}", bytes=0, backend=backend, losses=losses[backend])
                job.say(**row, memory_mib=memory.get(backend), **figures)
            steps.clear()
            gc.collect()
            if job.on_gpu:
                torch.cuda.empty_cache()
