"""A backend of one's own in one file: edit a line, run it, and every operation is checked on four ranks.

python examples/torchcomms/own_backend.py
"""

from __future__ import annotations

import multiprocessing
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import roundelay
import roundelay.torchcomms as torchcomms
from roundelay.lang import Ranks, chunks, data, each

RANKS = 4


@roundelay.algorithm("all_reduce")
def ring(n: Ranks) -> None:
    """Each chunk goes round once to be summed and once to be shared."""
    chunks(n)
    for s in range(n - 1):
        for r in each:
            r.to((r + 1) % n).reduce(data[(r - s) % n])
    for s in range(n - 1):
        for r in each:
            r.to((r + 1) % n).copy(data[(r + 1 - s) % n])


class Mine(torchcomms.PythonBackend):
    """Operations of three kinds; what is not here is roundelay's."""

    algorithms = (ring,)  # A schedule, which serves all_reduce once it is proved.

    def broadcast(self, tensor: Tensor, root: int, async_op: bool) -> None:
        """Use another backend."""
        self.peer_group("gloo").broadcast(tensor, root).wait()

    def all_gather_single(self, output: Tensor, input: Tensor, async_op: bool) -> Any:
        """Use anything else: each rank adds its part to zeros."""
        mine = input.flatten().clone()  # FSDP's is a part of the output.
        output.zero_()
        output.view(self.get_size(), -1)[self.get_rank()] = mine
        return self.all_reduce(output, torchcomms.ReduceOp.SUM, async_op)


torchcomms.register_backend("mine", Mine)


def run(rank: int, place: str, results: Any) -> None:
    """Check a communicator of the backend, and a process group."""
    torch.set_num_threads(1)
    store = dist.FileStore(place, RANKS)
    comm = torchcomms.new_comm("mine", "cpu", name="main", store=store, rank=rank, size=RANKS)
    checks = torchcomms.check_operations(comm)
    comm.finalize()
    dist.init_process_group("mine", store=dist.PrefixStore("group", store), rank=rank, world_size=RANKS)
    tensor = torch.full((1000,), rank + 1.0)
    dist.all_reduce(tensor)
    assert tensor.eq(RANKS * (RANKS + 1) / 2).all(), tensor
    dist.destroy_process_group()
    results.put(checks)


def main() -> None:
    """Run the ranks as processes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "roundelay.torchcomms._comm"])
    results: Any = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=run, args=(rank, f"{folder}/store", results)) for rank in range(RANKS)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(60)
        if any(process.exitcode != 0 for process in ranks):
            raise SystemExit(f"ranks ended with {[process.exitcode for process in ranks]}")
    print(f"{results.get()} results of backend mine are right on each of {RANKS} ranks")


if __name__ == "__main__":
    main()
