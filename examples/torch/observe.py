"""A group of any backend that is observed: training under it, and the error of a rank that makes another call.

torchrun --nproc-per-node 4 examples/torch/observe.py gloo
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from job import Losses, main, model, train

import roundelay


def training() -> list[float]:
    """Train by DDP over a group that is observed."""
    group = roundelay.observe(dist.new_group(), timeout=60)
    trained = torch.nn.parallel.DistributedDataParallel(model(), process_group=group)
    losses = train(trained, torch.optim.SGD(trained.parameters(), 0.1))
    roundelay.observer_of(group).check()
    return losses


def mistake() -> list[float]:
    """Have the last rank call another operation: every rank gets an error that names it, before anything moves."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    group = roundelay.observe(dist.new_group(), timeout=60, check="before")
    tensor = torch.full((4,), float(rank))
    try:
        if rank == ranks - 1:
            dist.broadcast(tensor, 0, group=group)
        else:
            dist.all_reduce(tensor, group=group)
    except roundelay.MismatchError as error:
        if rank == 0:
            print(error)
        # Of two ranks neither is known to be right: the other one is named.
        assert error.peer is not None
        return [float(error.peer), tensor[0].item()]
    return []


def run() -> Losses:
    """Return losses, and what the error says."""
    return {"training": training(), "mistake": mistake()}


if __name__ == "__main__":
    main(run)
