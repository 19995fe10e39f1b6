"""An operation of a program's own: an all-reduce that moves eight bits an element, over schedules of its own.

torchrun --nproc-per-node 2 examples/torchcomms/quantized.py

It is a method of a backend in Python, which `unsafe_get_backend()` returns. Each rank sums one part of the
vector: parts come to it by an all-to-all, and its sum goes to all ranks by an all-gather, as integers of 8 bits with a
scale for each block. All ranks have the same bits at the end. The error of an element is at most half a step for each
rank, and half a step of the sum.
"""

from __future__ import annotations

import torch
from torch import Tensor

import roundelay
import roundelay.torchcomms as torchcomms
from roundelay.lang import Ranks, data, each, input, output

BLOCK = 256
"""Elements that share a scale."""


@roundelay.algorithm("all_to_all")
def pairs(n: Ranks) -> None:
    """One partner at a time: in round s a rank sends to the one s after it."""
    for s in range(n):
        for r in each:
            r.to((r + s) % n).copy(input[(r + s) % n]).into(output[r])


@roundelay.algorithm("all_gather")
def around(n: Ranks) -> None:
    """Each part goes once round the ring."""
    for s in range(n - 1):
        for r in each:
            r.to((r + 1) % n).copy(data[(r - s) % n])


def packed(values: Tensor) -> Tensor:
    """Return blocks of float32 as bytes: an integer for each element, then the scale of each block."""
    blocks = values.view(-1, BLOCK)
    scales = blocks.abs().amax(1, keepdim=True) / 127
    steps = torch.where(scales > 0, blocks / scales, torch.zeros_like(blocks)).round().to(torch.int8)
    return torch.cat([steps.view(-1).view(torch.uint8), scales.view(-1).view(torch.uint8)])


def unpacked(packet: Tensor) -> Tensor:
    """Return the elements of such bytes."""
    blocks = packet.numel() // (BLOCK + 4)
    steps = packet[: blocks * BLOCK].view(torch.int8).view(blocks, BLOCK)
    scales = packet[blocks * BLOCK :].clone().view(torch.float32)
    return (steps * scales[:, None]).view(-1)


class QuantizedBackend(torchcomms.PythonBackend):
    """Roundelay's operations, two of them by the schedules above, and one operation more."""

    algorithms = (pairs, around)

    def quantized_all_reduce(self, tensor: Tensor) -> int:
        """Sum a float32 tensor of all ranks in place, by 8 bits an element; return the bytes that this rank sends."""
        comm, ranks = self.communicator, self.get_size()
        flat = tensor.reshape(-1)
        part = -(-flat.numel() // (ranks * BLOCK)) * BLOCK  # Elements of each rank's part: whole blocks.
        padded = torch.zeros(ranks * part)
        padded[: flat.numel()] = flat
        sent = torch.cat([packed(each) for each in padded.chunk(ranks)])
        received = torch.empty_like(sent)
        comm.all_to_all_single(received, sent, async_op=False)
        # In the order of the ranks: every rank would have the same sum.
        total = torch.zeros(part)
        for packet in received.chunk(ranks):
            total += unpacked(packet)
        own = packed(total)
        whole = torch.empty(ranks * own.numel(), dtype=torch.uint8)
        comm.all_gather_single(whole, own, async_op=False)
        summed = torch.cat([unpacked(packet) for packet in whole.chunk(ranks)])
        tensor.copy_(summed[: flat.numel()].view(tensor.shape))
        return 2 * (ranks - 1) * own.numel()


torchcomms.register_backend("quantized", QuantizedBackend)


def main() -> None:
    """Compare the sum with the exact one."""
    comm = torchcomms.new_comm("quantized", "cpu", name="main")
    backend = comm.unsafe_get_backend()
    assert isinstance(backend, QuantizedBackend)
    torch.manual_seed(comm.get_rank())
    tensor = torch.randn(1_000_000)
    exact = tensor.clone()
    sent = backend.quantized_all_reduce(tensor)
    comm.all_reduce(exact, torchcomms.ReduceOp.SUM, async_op=False)
    if comm.get_rank() == 0:
        error = (tensor - exact).abs().max().item()
        plain = 2 * (comm.get_size() - 1) * 4 * tensor.numel() // comm.get_size()
        print(f"largest error {error:.4f} of {exact.abs().max().item():.2f}; {sent} bytes sent instead of {plain}")
    comm.finalize()


if __name__ == "__main__":
    main()
