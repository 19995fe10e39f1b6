"""Pipeline parallel: a stage of the model on each rank, and micro-batches that follow one another.

torchrun --nproc-per-node 2 examples/torch/pipeline.py roundelay
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from job import Losses, data, main
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe


def _trained(kind: type[ScheduleGPipe] | type[Schedule1F1B]) -> list[float]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    part = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh())
    stage = PipelineStage(part, rank, ranks, torch.device("cpu"))
    schedule = kind(stage, n_microbatches=4, loss_fn=lambda out, target: (out - target).square().mean())
    optimizer = torch.optim.SGD(part.parameters(), lr=0.1)
    means = []
    for inputs in data(3, rank=0):
        optimizer.zero_grad()
        losses: list[torch.Tensor] = []
        if rank == ranks - 1:
            schedule.step(*([inputs] if rank == 0 else []), target=inputs, losses=losses)
        else:
            schedule.step(*([inputs] if rank == 0 else []))
        optimizer.step()
        # The last stage has the loss.
        mean = torch.stack(losses).mean().detach() if losses else torch.zeros(())
        dist.broadcast(mean, ranks - 1)
        means.append(mean.item())
    return means


def gpipe() -> list[float]:
    """All forward passes, then all backward passes."""
    return _trained(ScheduleGPipe)


def one_f_one_b() -> list[float]:
    """Forward and backward passes by turns: messages of both directions at once."""
    return _trained(Schedule1F1B)


def run() -> Losses:
    """Return the losses of each schedule."""
    return {each.__name__: each() for each in (gpipe, one_f_one_b)}


if __name__ == "__main__":
    main(run)
