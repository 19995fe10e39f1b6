"""One rank of a job of `main.py`: opens the groups, and runs one program."""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import roundelay.torch


class Rank:
    """What a program needs: who this rank is, its groups, and a file for what it finds."""

    def __init__(self, backend: str, file: str, device: str) -> None:
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.reference = "nccl" if device == "cuda" else "gloo"
        self.backend = backend
        self.file = file
        self._asked = 0
        self.device = torch.device(device)
        if self.on_gpu:
            self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
            torch.cuda.set_device(self.device)

    @property
    def on_gpu(self) -> bool:
        """True if tensors are on a GPU."""
        return self.device.type == "cuda"

    def open(self) -> dict[str, Any]:
        """Return the groups of all backends, by name: the default one is the reference's."""
        groups: dict[str, Any] = {self.reference: dist.distributed_c10d._get_default_group()}
        for face in filter(None, os.environ["ROUNDELAY_GPU_FACES"].split(",")):
            options = roundelay.torch.Options(compiled=face == "compiled")
            groups[face] = dist.new_group(
                backend="roundelay", pg_options=options, timeout=timedelta(seconds=40), use_local_synchronization=False
            )
        return groups

    def say(self, **row: Any) -> None:
        """Write a row, on rank 0."""
        if self.rank == 0:
            with open(self.file, "a", encoding="utf-8") as file:
                print(json.dumps(row), file=file)

    def every(self, value: Any) -> list[Any]:
        """Return a value of each rank, through the store: torch's collectives of objects need numpy."""
        store = dist.distributed_c10d._get_default_store()
        self._asked += 1
        store.set(f"every/{self._asked}/{self.rank}", json.dumps(value))
        return [json.loads(store.get(f"every/{self._asked}/{rank}")) for rank in range(self.size)]

    def synchronize(self) -> None:
        """Wait for this rank's GPU."""
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def data(self, count: int, salt: int, rank: int | None = None) -> torch.Tensor:
        """Return what a rank contributes, the same for all who ask: whole numbers, so that sums are exact."""
        seed = torch.Generator().manual_seed(1000 * salt + (self.rank if rank is None else rank))
        return torch.randint(-50, 50, (count,), generator=seed).float().to(self.device)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("backend")
    parser.add_argument("file")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=100.0)
    options = parser.parse_args()
    faulthandler.dump_traceback_later(options.seconds, exit=True)
    roundelay.torch.register()
    rank = Rank(options.backend, options.file, options.device)
    ours = options.backend in ("python", "compiled")
    dist.init_process_group("roundelay" if ours else rank.reference, timeout=timedelta(seconds=40))
    program: Callable[[Rank], None] = importlib.import_module(options.program).main
    if rank.rank == 0:
        rank.say(
            torch=torch.__version__,
            device=torch.cuda.get_device_name() if rank.on_gpu else "CPU",
            nccl=".".join(map(str, torch.cuda.nccl.version())) if rank.on_gpu else None,  # type: ignore[no-untyped-call]
            driver_cuda=torch.version.cuda,
        )
    program(rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
