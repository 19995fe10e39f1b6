"""A model trained on a mesh of communicators: shards over one dimension, layers in parts over the other.

torchrun --nproc-per-node 4 examples/torchcomms/mesh.py
"""

from __future__ import annotations

import torch
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import roundelay.torchcomms as torchcomms
from roundelay.torchcomms.device_mesh import init_device_mesh


def main() -> None:
    """Train, and print the losses of rank 0."""
    comm = torchcomms.new_comm("roundelay", "cpu", name="whole")
    rank, across = comm.get_rank(), 2 if comm.get_size() % 2 == 0 else 1
    rows = torch.arange(comm.get_size()).view(-1, across)
    row, column = next((at for at in rows.tolist() if rank in at)), next(at for at in rows.T.tolist() if rank in at)
    parts, shards = comm.split(row, "parts"), comm.split(column, "shards")
    assert parts is not None and shards is not None
    mesh = init_device_mesh((shards, parts), ("shards", "parts"), _global_comm=comm)

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    parallelize_module(model, mesh["parts"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["shards"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    torch.manual_seed(mesh["shards"].get_local_rank())
    inputs = torch.randn(32, 64)
    for step in range(10):
        optimizer.zero_grad()
        loss = (model(inputs) - inputs).square().mean()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.6f}")
    for each in (parts, shards, comm):
        each.finalize()


if __name__ == "__main__":
    main()
