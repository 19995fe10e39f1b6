"""Fully sharded data parallel: FSDP2, also with memory of the group for what is sent, FSDP1, and parameters sharded in
a group of ranks and the same in each group.

torchrun --nproc-per-node 2 examples/torch/fsdp.py roundelay
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from job import Losses, main, model, train
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard


def _sharded(mesh: DeviceMesh, of_group: bool = False) -> list[float]:
    sharded = model()
    for layer in sharded:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
            if of_group and hasattr(layer, "set_allocate_memory_from_process_group_for_comm"):
                layer.set_allocate_memory_from_process_group_for_comm(True)
    fully_shard(sharded, mesh=mesh)
    return train(sharded, torch.optim.Adam(sharded.parameters(), lr=0.01))


def fsdp2() -> list[float]:
    """Shard every layer over all ranks."""
    return _sharded(init_device_mesh("cpu", (dist.get_world_size(),)))


def allocated() -> list[float]:
    """Shard every layer, and have the group allocate what is gathered and scattered."""
    return _sharded(init_device_mesh("cpu", (dist.get_world_size(),)), of_group=True)


def hsdp() -> list[float]:
    """Shard in pairs of ranks where there are pairs of pairs; with two ranks, each has everything."""
    ranks = dist.get_world_size()
    shards = 2 if ranks >= 4 else 1
    return _sharded(init_device_mesh("cpu", (ranks // shards, shards), mesh_dim_names=("replicate", "shard")))


def fsdp1() -> list[float]:
    """Wrap the model in the older class."""
    device = torch.device("cpu")
    sharded = FullyShardedDataParallel(model(), device_id=device, sharding_strategy=ShardingStrategy.FULL_SHARD)
    return train(sharded, torch.optim.Adam(sharded.parameters(), lr=0.01))


def run() -> Losses:
    """Return the losses of each."""
    return {each.__name__: each() for each in (fsdp2, allocated, hsdp, fsdp1)}


if __name__ == "__main__":
    main(run)
