"""Backends in Python: one that overrides nothing, one that overrides everything, and one of several kinds of parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import roundelay
import roundelay.torchcomms as torchcomms
from roundelay.lang import Ranks, chunks, data, each
from roundelay.torchcomms._python_backend import OPERATIONS


class Plain(torchcomms.PythonBackend):
    """Ours, under another name."""


class Everything(torchcomms.PythonBackend):
    """Counts calls, and passes them on with what they were given."""

    def init(self, device: torch.device, name: str, options: Any) -> None:
        self.called: Counter[str] = Counter()


def counted(name: str) -> Callable[..., Any]:
    def call(self: Everything, *args: Any, hints: Any = None, timeout: Any = None) -> Any:
        self.called[name] += 1
        return getattr(self.communicator, name)(*args, hints=hints, timeout=timeout)

    return call


for _name in OPERATIONS:
    setattr(Everything, _name, counted(_name))


@roundelay.algorithm("all_reduce")
def line(n: Ranks) -> None:
    """Sum along a line of ranks, and copy the sum back."""
    chunks(1)
    for r in range(n - 1):
        r.to(r + 1).reduce(data)  # type: ignore[attr-defined]
    for r in range(n - 1):
        (n - 1 - r).to(n - 2 - r).copy(data)  # type: ignore[attr-defined]


class Mixed(torchcomms.PythonBackend):
    """A schedule, another backend's operation, work of another class, and Python."""

    algorithms = (line,)

    def init(self, device: torch.device, name: str, options: Any) -> None:
        self.called: Counter[str] = Counter()

    def broadcast(self, tensor: Tensor, root: int, async_op: bool) -> Any:
        self.called["broadcast"] += 1
        return self.peer_group("gloo").broadcast(tensor, root)

    def all_gather_single(self, output: Tensor, input: Tensor, async_op: bool) -> None:
        self.called["all_gather_single"] += 1
        mine = input.flatten().clone()  # FSDP's is a part of the output.
        output.zero_()
        output.view(self.get_size(), -1)[self.get_rank()] = mine
        self.all_reduce(output, torchcomms.ReduceOp.SUM, False)

    def reduce(self, tensor: Tensor, root: int, op: Any, async_op: bool) -> Any:
        self.called["reduce"] += 1
        return LateWork(self, tensor, root, op)


class OwnParts(torchcomms.PythonBackend):
    """Makes the objects of its parts by itself."""

    depth = 0

    def split(self, ranks: Any, name: str, options: Any) -> OwnParts | None:
        if self.get_rank() not in ranks:
            return None
        part = OwnParts()
        part.depth = self.depth + 1
        return part


class LateWork:
    """Work that is done when it is waited for."""

    def __init__(self, backend: Mixed, tensor: Tensor, root: int, op: Any) -> None:
        self.given = (backend, tensor, root, op)

    def wait(self) -> None:
        backend, tensor, root, op = self.given
        copy = tensor.clone()
        backend.all_reduce(copy, op, False)
        if root == backend.get_rank():
            tensor.copy_(copy)


class Wrong(torchcomms.PythonBackend):
    """One element of a gather is wrong, on one rank."""

    def all_gather_single(self, output: Tensor, input: Tensor, async_op: bool) -> Any:
        work = super().all_gather_single(output, input, async_op)
        if self.get_rank() == 1:
            output[-1] += 1
        return work
