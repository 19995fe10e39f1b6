"""Data parallel: plain, with communication hooks, with uneven inputs, and with a sharded optimizer.

torchrun --nproc-per-node 2 examples/torch/ddp.py roundelay
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from job import Losses, data, main, model, train
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


def plain() -> list[float]:
    """Average gradients while the backward pass goes on."""
    parallel = DDP(model())
    return train(parallel, torch.optim.SGD(parallel.parameters(), lr=0.1))


def fp16() -> list[float]:
    """Send gradients as 16-bit numbers."""
    parallel = DDP(model())
    parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return train(parallel, torch.optim.SGD(parallel.parameters(), lr=0.1))


def power_sgd() -> list[float]:
    """Send gradients as products of narrow matrices; the hook starts collectives in callbacks of others."""
    parallel = DDP(model())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return train(parallel, torch.optim.SGD(parallel.parameters(), lr=0.1), steps=6)


def uneven() -> list[float]:
    """Have rank r train r steps more than rank 0: those that have ended shadow what the others call."""
    parallel = DDP(model())
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    losses = []
    with Join([parallel]):
        for inputs in data(3 + dist.get_rank()):
            optimizer.zero_grad()
            loss = (parallel(inputs) - inputs).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def zero() -> list[float]:
    """Keep the state of the optimizer once in all, not once a rank."""
    parallel = DDP(model())
    optimizer = ZeroRedundancyOptimizer(parallel.parameters(), torch.optim.Adam, lr=0.01)
    return train(parallel, optimizer)


def run() -> Losses:
    """Return the losses of each."""
    return {each.__name__: each() for each in (plain, fp16, power_sgd, uneven, zero)}


if __name__ == "__main__":
    main(run)
