"""A rank that meets the others by the variables of a launcher, again and again, and serves a store of its own there."""

from __future__ import annotations

import importlib
import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

torchcomms: Any = importlib.import_module(os.environ.get("ROUNDELAY_TEST_TORCHCOMMS", "roundelay.torchcomms"))
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def comm(name: str, store: Any = None) -> Any:
    limit = timedelta(seconds=30)
    return torchcomms.new_comm("roundelay", torch.device("cpu"), name=name, store=store, timeout=limit)


def check(of: Any) -> None:
    tensor = torch.full((3,), float(RANK + 1))
    of.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)
    assert tensor.tolist() == [SIZE * (SIZE + 1) / 2] * 3, tensor


def main() -> None:
    first, second = comm("first"), comm("second")
    # The port is free again: no communicator keeps it.
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, RANK == 0, timedelta(seconds=30))
    others = [comm("third", dist.PrefixStore("third", store)), comm("fourth")]
    part = first.split(list(range(SIZE)), "part")
    for each in (first, second, *others, part):
        check(each)
    for each in (part, first, second, *others):
        each.finalize()
    del store
    # One that has ended is no hindrance, though the ranks do not end it at once.
    for _ in range(10):
        again = comm("again")
        check(again)
        again.finalize()
    print("met")


if __name__ == "__main__":
    main()
