"""Functional collectives, in a compiled function too, and a compiled data-parallel model.

torchrun --nproc-per-node 2 examples/torch/functional.py roundelay
"""

from __future__ import annotations

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from job import Losses, main, model, train
from torch.nn.parallel import DistributedDataParallel as DDP

# Graphs are captured with their collectives, and run without a C++ compiler.
COMPILER = "aot_eager"


def _mixed(inputs: torch.Tensor) -> torch.Tensor:
    group = dist.group.WORLD
    assert group is not None
    summed = collectives.all_reduce(inputs, "sum", group)
    gathered = collectives.all_gather_tensor(summed * 2, 0, group)
    scattered = collectives.reduce_scatter_tensor(gathered + 1, "sum", 0, group)
    return collectives.all_to_all_single(scattered, None, None, group).sin()


def _inputs() -> torch.Tensor:
    return torch.arange(8.0 * dist.get_world_size()).reshape(-1, 4) / (10 + dist.get_rank())


def eager() -> list[float]:
    """Collectives that return new tensors."""
    return [_mixed(_inputs()).sum().item()]


def compiled() -> list[float]:
    """The same in one graph."""
    function = torch.compile(_mixed, backend=COMPILER, fullgraph=True)
    return [function(_inputs()).sum().item() for _ in range(2)]


def compiled_ddp() -> list[float]:
    """Data parallel, compiled."""
    parallel = DDP(model())
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    parallel.compile(backend=COMPILER)
    return train(parallel, optimizer)


def run() -> Losses:
    """Return sums and losses."""
    torch._dynamo.reset()
    return {each.__name__: each() for each in (eager, compiled, compiled_ddp)}


if __name__ == "__main__":
    main(run)
