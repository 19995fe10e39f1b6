"""Tensor parallel layers, distributed tensors, and meshes of one and two dimensions.

torchrun --nproc-per-node 2 examples/torch/tensor_parallel.py roundelay
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from job import Losses, main, model, train
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

PLAN = {"0": ColwiseParallel(), "2": RowwiseParallel()}


def layers() -> list[float]:
    """Split the columns of the first layer and the rows of the second; every rank has the same inputs."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    parallel = parallelize_module(model(), mesh, PLAN)
    return train(parallel, torch.optim.SGD(parallel.parameters(), lr=0.1, foreach=False), rank=0)


def tensors() -> list[float]:
    """Lay a matrix out in several ways: scatter, all-to-all, all-gather, and a product that needs a sum."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(3)
    whole = torch.randn(8, 12)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    product = columns @ distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])
    assert isinstance(product, DTensor)
    results = [rows.full_tensor(), columns.full_tensor(), product.redistribute(mesh, [Replicate()]).to_local()]
    assert torch.equal(results[0], whole) and torch.equal(results[1], whole)
    return [result.sum().item() for result in results]


def two_dimensions() -> list[float]:
    """Shard data over one dimension of a mesh, and layers over the other."""
    ranks = dist.get_world_size()
    across = 2 if ranks >= 4 else 1
    mesh = init_device_mesh("cpu", (across, ranks // across), mesh_dim_names=("data", "layers"))
    parallel = parallelize_module(model(), mesh["layers"], PLAN)
    fully_shard(parallel, mesh=mesh["data"])
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, foreach=False)
    return train(parallel, optimizer, rank=mesh["data"].get_local_rank())


def run() -> Losses:
    """Return losses, and sums."""
    return {each.__name__: each() for each in (layers, tensors, two_dimensions)}


if __name__ == "__main__":
    main(run)
