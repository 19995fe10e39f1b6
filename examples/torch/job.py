"""What the examples have in common: the command line, a model, and its data."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist

Losses = dict[str, list[float]]


def model() -> torch.nn.Sequential:
    """Return a small model, the same on every rank."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))


def data(steps: int, rank: int | None = None) -> list[torch.Tensor]:
    """Return inputs of each step, which differ by rank."""
    made = torch.Generator().manual_seed(1 + (dist.get_rank() if rank is None else rank))
    return [torch.randn(8, 16, generator=made) for _ in range(steps)]


def train(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int = 4, rank: int | None = None
) -> list[float]:
    """Teach a model to return its input, and return the loss of each step."""
    losses = []
    for inputs in data(steps, rank):
        optimizer.zero_grad()
        loss = (model(inputs) - inputs).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(run: Callable[[], Losses]) -> None:
    """Run an example under torchrun, with the backend that the command line names, and print what rank 0 has."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("backend", nargs="?", default="roundelay", help="roundelay, gloo, …")
    dist.init_process_group(parser.parse_args().backend)
    results = run()
    if dist.get_rank() == 0:
        for name, losses in results.items():
            print(f"{name:24}", " ".join(f"{loss:.6f}" for loss in losses))
    dist.destroy_process_group()
