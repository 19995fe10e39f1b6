"""Streaming DiLoCo under faults: replicas train apart, and average one of two fragments of the model at a time while
they go on training. A fault takes a replica's part out of some averages, so losses differ for a while; on this convex
problem they end alike.

python examples/torch/replicas/launch.py streaming_diloco --ranks 1 --steps 100 --kill 10
"""

from __future__ import annotations

from typing import Any

import torch
from replica import TrainReplica
from torch.nn.functional import mse_loss
from torchft.local_sgd import DiLoCo


class AddedFragments(torch.nn.Module):
    """A linear model of two fragments of two matrices, each of which takes a quarter of the columns."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        parts = [torch.nn.Linear(4, 4, bias=False, dtype=torch.float64) for _ in range(4)]
        self.fragments = torch.nn.ModuleList([torch.nn.ModuleList(parts[:2]), torch.nn.ModuleList(parts[2:])])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        parts = [part for fragment in self.fragments for part in fragment.children()]
        outputs = [part(columns) for part, columns in zip(parts, inputs.chunk(4, 1), strict=True)]
        return torch.stack(outputs).sum(0)


def own_data(replica: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a replica's inputs and targets; each has an error of its own in its targets."""
    made = torch.Generator().manual_seed(replica)
    inputs = torch.randn(256, 16, generator=made, dtype=torch.float64)
    noise = torch.randn(256, 4, generator=made, dtype=torch.float64)
    return inputs, inputs[:, :4] + inputs[:, 4:8] + noise


def main() -> None:
    """Train one replica of one rank."""
    replica = TrainReplica()
    device = replica.device
    model = AddedFragments().to(device)
    inner = torch.optim.SGD(model.parameters(), lr=0.8, weight_decay=0.01)
    outers = [torch.optim.SGD(each.parameters(), lr=0.7, momentum=0.9, nesterov=True) for each in model.fragments]

    def load(state: Any) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["inner"])

    manager = replica.manage(load, lambda: {"model": model.state_dict(), "inner": inner.state_dict()}, least=1)
    inputs, targets = (each.to(device) for each in own_data(replica.options.replica))
    # Every three local steps one of the fragments is sent, and its average comes in one step later.
    diloco = DiLoCo(manager, list(model.fragments), inner, outers, sync_every=6, fragment_sync_delay=1)
    with diloco:
        while (step := manager.current_step()) < replica.options.steps:
            local = diloco._local_step
            inner.zero_grad()
            loss = mse_loss(model(inputs), targets)
            loss.backward()
            inner.step()
            if diloco._local_step < local + 1:  # A fragment was due.
                event = "step" if manager.current_step() > step else "failed"
                replica.note(event, step=step, loss=loss.item(), replicas=manager.num_participants())
    # What replicas share: each has moved on by itself in the fragment that was not due last.
    for fragment, part in zip(model.fragments, diloco._fragments, strict=True):
        fragment.load_state_dict(part.original_parameters)
    with torch.no_grad():
        every = [[each.to(device) for each in own_data(number)] for number in range(replica.options.replicas)]
        replica.end(sum(mse_loss(model(inputs), targets).item() for inputs, targets in every) / len(every))


if __name__ == "__main__":
    main()
