"""Ranks that train the same models on meshes of communicators, and on those of ``torch.distributed``.

``meshes.py FOLDER SECONDS RANKS …`` forks the ranks: torch is imported once. Each writes the losses by program.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import jobs
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import roundelay.torch
import roundelay.torchcomms as torchcomms
from roundelay.torchcomms import device_mesh

LIMIT = timedelta(seconds=40)
STEPS = 4
PLAN: Any = {"0": ColwiseParallel(), "2": RowwiseParallel()}

Losses = list[float]
Program = Callable[[DeviceMesh], Losses]


def layers(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))


def inputs(part: int) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(1 + part)
    return [torch.randn(8, 16, generator=made) for _ in range(STEPS)]


def train(model: nn.Module, part: int) -> Losses:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    losses = []
    for each in inputs(part):
        optimizer.zero_grad()
        loss = (model(each) - each).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def sharded(mesh: DeviceMesh) -> Losses:
    """Parameters in shards: FSDP, or HSDP on a mesh of two dimensions."""
    model = layers()
    for each in (model[0], model[2], model):
        fully_shard(each, mesh=mesh)
    return train(model, mesh.get_rank())


def tensor_parallel(mesh: DeviceMesh) -> Losses:
    """Layers in parts; all ranks have the same inputs."""
    return train(parallelize_module(layers(), mesh, PLAN), 0)


def sharded_parts(mesh: DeviceMesh) -> Losses:
    """Shards over the first dimension, layers in parts over the second."""
    data, parts = (mesh[name] for name in mesh.mesh_dim_names or ())
    model = parallelize_module(layers(), parts, PLAN)
    fully_shard(model, mesh=data)
    return train(model, data.get_local_rank())


def pipeline(mesh: DeviceMesh) -> Losses:
    """A stage of the model on each rank of the first dimension; the others are for shards and layers in parts."""
    names = mesh.mesh_dim_names or ()
    line = mesh[names[0]]
    place, stages = line.get_local_rank(), line.size()
    model = layers(place)
    part = 0
    if len(names) == 3:
        model = parallelize_module(model, mesh[names[2]], PLAN)
        fully_shard(model, mesh=mesh[names[1]], reshard_after_forward=False)
        part = mesh[names[1]].get_local_rank()
    stage = PipelineStage(model, place, stages, torch.device("cpu"), group=line.get_group())
    schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda out, target: (out - target).square().mean())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    means = []
    for each in inputs(part):
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        given = [each] if place == 0 else []
        if place == stages - 1:
            schedule.step(*given, target=each, losses=losses)
        else:
            schedule.step(*given)
        optimizer.step()
        mean = torch.stack(losses).mean().detach() if losses else torch.zeros(())
        dist.all_reduce(mean, group=line.get_group())  # The last stage has the loss.
        means.append(mean.item())
    return means


Shape = tuple[int, ...]
MESHES: dict[int, dict[str, tuple[Shape, tuple[str, ...], Program]]] = {
    2: {
        "FSDP": ((2,), ("shard",), sharded),
        "tensor parallel": ((2,), ("parts",), tensor_parallel),
        "pipeline": ((2,), ("stages",), pipeline),
    },
    4: {
        "HSDP": ((2, 2), ("copies", "shard"), sharded),
        "FSDP and tensor parallel": ((2, 2), ("data", "parts"), sharded_parts),
    },
    8: {"pipeline of FSDP and tensor parallel": ((2, 2, 2), ("stages", "data", "parts"), pipeline)},
}


def by_groups(backend: str, store: Any, rank: int, shape: Shape, names: tuple[str, ...], program: Program) -> Losses:
    """Train on a mesh that torch makes of process groups."""
    size = torch.Size(shape).numel()
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=LIMIT)
    try:
        return program(init_device_mesh("cpu", shape, mesh_dim_names=names))
    finally:
        dist.destroy_process_group()


def by_comms(store: Any, rank: int, shape: Shape, names: tuple[str, ...], program: Program) -> Losses:
    """Train on a mesh of parts of one communicator."""
    size = torch.Size(shape).numel()
    whole = torchcomms.new_comm("roundelay", "cpu", "whole", store=store, timeout=LIMIT, rank=rank, size=size)
    if len(shape) == 1:
        mesh = device_mesh.init_device_mesh(mesh_dim_comms=(whole,), mesh_dim_names=names)
        parts = []
    else:
        every = torch.arange(size).view(shape)
        parts = []
        for dim, name in enumerate(names):
            rows = every.transpose(dim, -1).reshape(-1, shape[dim]).tolist()
            parts.append(whole.split(next(row for row in rows if rank in row), name))
        mesh = device_mesh.init_device_mesh(tuple(parts), names, _global_comm=whole)
    try:
        return program(mesh)
    finally:
        for each in (*parts, whole):
            each.finalize()
        assert not dist.is_initialized(), "a communicator has ended, and its process group has not"


KINDS = ("gloo", "roundelay", "comms")


def losses(ranks: int, rank: int, kind: str, folder: Path) -> dict[str, Any]:
    """Return the losses by program."""
    found: dict[str, Any] = {}
    for name, (shape, names, program) in MESHES[ranks].items():
        store = dist.FileStore(f"{folder}/{name}-{kind}", ranks)
        print(name, kind, flush=True)
        try:
            if kind == "comms":
                found[name] = by_comms(store, rank, shape, names, program)
            else:
                found[name] = by_groups(kind, store, rank, shape, names, program)
        except Exception:
            found[name] = traceback.format_exc()
    return found


def main() -> int:
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    torch.set_num_threads(1)
    roundelay.torch.register()
    end = time.monotonic() + seconds
    codes = []
    for ranks in map(int, sys.argv[3:]):
        for kind in KINDS:  # DTensor keeps what it knows of a mesh for all equal ones, so each kind has its processes.

            def body(rank: int, ranks: int = ranks, kind: str = kind) -> None:
                own = losses(ranks, rank, kind, folder)
                (folder / f"result{ranks}-{rank}-{kind}").write_text(json.dumps(own))

            left = max(end - time.monotonic(), 1)
            codes += jobs.fork_ranks(ranks, str(folder), left, body, f"-{ranks}-{kind}")
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
