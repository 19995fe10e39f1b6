"""Messages between ranks: batches, in any order, with tags.

torchrun --nproc-per-node 2 examples/torch/messages.py roundelay
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from job import Losses, main


def _neighbours() -> tuple[int, int]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    return (rank + 1) % ranks, (rank - 1) % ranks


def batch() -> list[float]:
    """Send to both neighbours and receive from both, in one batch: the edges of a grid."""
    right, left = _neighbours()
    grid = torch.arange(6.0) * (dist.get_rank() + 1)
    edges = torch.zeros(2)
    # With two ranks both neighbours are one: the order says which message is which.
    operations = [
        dist.P2POp(dist.isend, grid[-1:], right),
        dist.P2POp(dist.irecv, edges[:1], left),
        dist.P2POp(dist.isend, grid[:1] - 1, left),
        dist.P2POp(dist.irecv, edges[1:], right),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return edges.tolist()


def receive_first() -> list[float]:
    """Start the receive before the send, on every rank."""
    right, left = _neighbours()
    got = torch.zeros(3)
    works = [dist.irecv(got, left), dist.isend(torch.full((3,), float(dist.get_rank() + 1)), right)]
    for work in works:
        assert work is not None
        work.wait()
    return got.tolist()


def tags() -> list[float]:
    """Receive by tag, in another order than it was sent."""
    right, left = _neighbours()
    sent = [torch.full((2,), 10.0 * tag + dist.get_rank()) for tag in (1, 2)]
    works = [dist.isend(each, right, tag=tag) for tag, each in zip((1, 2), sent, strict=True)]
    got = torch.zeros(2, 2)
    for tag in (2, 1):
        dist.recv(got[tag - 1], left, tag=tag)
    for work in works:
        assert work is not None
        work.wait()
    return got.flatten().tolist()


def run() -> Losses:
    """Return what was received."""
    return {each.__name__: each() for each in (batch, receive_first, tags)}


if __name__ == "__main__":
    main(run)
