"""Hybrid sharding under faults: parameters are sharded over the ranks of a replica by FSDP2, and torchft averages the
gradients among replicas. The replicas that are there share the data of a step, so a fault does not change the loss.

python examples/torch/replicas/launch.py hsdp --ranks 2 --kill 4
"""

from __future__ import annotations

from typing import Any

import torch
from replica import TrainReplica
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torchft.optim import OptimizerWrapper

PARTS = 2
"""The parts of a step's data, which the replicas share."""


def data(*numbers: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets, which depend on these numbers alone."""
    made = torch.Generator().manual_seed(hash(numbers) % 2**31)
    inputs = torch.randn(16, 32, generator=made)
    return inputs, torch.tanh(inputs.roll(1, 1)[:, :8])


def main() -> None:
    """Train one rank of one replica."""
    replica = TrainReplica()
    device = replica.device
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)).to(device)
    mesh = init_device_mesh(device.type, (replica.ranks,), mesh_dim_names=("shard",))
    for layer in [*(each for each in model if isinstance(each, torch.nn.Linear)), model]:
        fully_shard(layer, mesh=mesh)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)

    def load(state: Any) -> None:
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])

    manager = replica.manage(load, lambda: {"model": model.state_dict(), "adam": adam.state_dict()}, least=1)
    optimizer = OptimizerWrapper(manager, adam)
    # The replicated dimension: FSDP has reduced a gradient over the replica's ranks, torchft averages the shard.
    for each in model.modules():
        if isinstance(each, FSDPModule):
            each.set_all_reduce_hook(lambda shard: manager.allreduce(shard).wait())

    def loss_of(*numbers: int) -> torch.Tensor:
        inputs, targets = (each[replica.rank :: replica.ranks].to(device) for each in data(*numbers))
        return torch.nn.functional.mse_loss(model(inputs), targets)

    while (step := manager.current_step()) < replica.options.steps:
        optimizer.zero_grad()  # It forms the quorum, and recovers the state where this process is new.
        step, there = manager.current_step(), manager.num_participants()
        for part in range(manager.participating_rank(), PARTS, there):
            (loss_of(step, part) * there / PARTS).backward()
        optimizer.step()  # Only if no replica had an error.
        if manager.current_step() > step:
            with torch.no_grad():
                replica.note("step", step=step, loss=loss_of(-1).item(), replicas=there)
        else:
            replica.note("failed", step=step)
    with torch.no_grad():
        replica.end(loss_of(-1).item())


if __name__ == "__main__":
    main()
