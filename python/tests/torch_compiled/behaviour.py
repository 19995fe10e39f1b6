"""What the backend in C++ does beyond the cases of the backend in Python, on every rank of one job."""

from __future__ import annotations

import gc
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from outcomes import outcomes

import roundelay.torch


def face(group: Any = None) -> str:
    """Return which of our classes serves a group: the one in C++ has no class in Python."""
    group = group or dist.distributed_c10d._get_default_group()
    return type(group._get_backend(torch.device("cpu"))).__name__


def selection(rank: int) -> list[str]:
    """The environment chooses the backend; options of a group go before it."""
    python: Any = dist.new_group(pg_options=roundelay.torch.Options(compiled=False))
    compiled: Any = dist.new_group(pg_options=roundelay.torch.Options({"algorithm": "ring"}, compiled=True))
    dist.barrier(python)
    dist.barrier(compiled)
    return [face(), face(python), face(compiled)]


def any_source(rank: int) -> list[Any]:
    """Receives from any rank, by tag, in another order than that of the sends."""
    if rank:
        for tag in (1, 2):
            dist.isend(torch.full((4,), 10.0 * rank + tag), 0, tag=tag)
        dist.barrier()
        return []
    received = []
    for tag in (2, 1):
        for _ in range(dist.get_world_size() - 1):
            tensor = torch.empty(4)
            received.append([tag, dist.recv(tensor, tag=tag), tensor[0].item()])
    dist.barrier()
    return sorted(received)


def works(rank: int) -> list[Any]:
    """A work that nobody serves is not completed, a wait for it ends in time, and it can end well after that."""
    tensor = torch.zeros(3)
    if rank == 1:
        dist.barrier()
        dist.send(torch.ones(3), 0, tag=5)
        return []
    work = dist.irecv(tensor, 1, tag=5)
    assert work is not None
    before = work.is_completed()
    try:
        work.wait(timedelta(milliseconds=100))
        words = ""
    except dist.DistBackendError as error:
        words = f"{isinstance(error, TimeoutError)} {error}"
    dist.barrier()
    work.wait()
    return [before, words, work.is_completed(), work.is_success(), work._source_rank(), tensor.tolist()]


def callbacks(rank: int) -> list[float]:
    """Callbacks of futures wait for messages that other callbacks send: more of them than there are threads."""
    peer, count = 1 - rank, 12
    got = [torch.empty(2) for _ in range(count)]

    def then(index: int) -> Any:
        def callback(future: Any) -> torch.Tensor:
            if rank:
                dist.send(torch.full((2,), float(index)), peer, tag=index)
            else:
                # In the reverse order of what arrives.
                dist.recv(got[count - 1 - index], peer, tag=count - 1 - index)
            return torch.ones(1)

        return callback

    futures = []
    for index in range(count):
        work = dist.all_reduce(torch.ones(4), async_op=True)
        assert work is not None
        futures.append(work.get_future().then(then(index)))
    for future in futures:
        future.wait()
    dist.barrier()
    return [tensor[0].item() for tensor in got] if rank == 0 else []


def dropped(rank: int) -> list[float]:
    """Tensors that nobody keeps live until their operation has ended; copies are made though nobody waits."""
    strided = torch.ones(64, 32).t()
    for size in range(1, 30):
        dist.all_reduce(torch.ones(size * 500), async_op=True)
        gc.collect()
    dist.all_reduce(strided, async_op=True)
    dist.barrier()
    until = time.monotonic() + 20
    while strided.sum() != 2048 * dist.get_world_size() and time.monotonic() < until:
        time.sleep(0.01)
    return [strided.min().item(), strided.max().item()]


def errors(rank: int) -> list[str]:
    """Errors of arguments are found before anything moves, and the group goes on."""
    size = dist.get_world_size()
    attempts: list[Any] = [
        lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fn)),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), dist.ReduceOp.AVG),
        lambda: dist.all_gather([torch.ones(1)] * (size + 1), torch.ones(1)),
        lambda: dist.all_gather_into_tensor(torch.ones(size + 1), torch.ones(1)),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.complex64), dist.ReduceOp.PRODUCT),
    ]
    told = []
    for attempt in attempts:
        try:
            attempt()
            told.append("no error")
        except (TypeError, ValueError, RuntimeError) as error:
            told.append(f"{type(error).__name__}: {error}")
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert tensor[0] == size
    return told


def late(rank: int) -> list[str]:
    """A rank that does not come is named: by an operation, and by a monitored barrier."""
    told = []
    group: Any = dist.new_group(timeout=timedelta(milliseconds=400))
    if rank == 0:
        try:
            # The group's method: before 2.14 torch has the function for groups of the name gloo only.
            dist.group.WORLD.monitored_barrier(timedelta(milliseconds=200))
        except RuntimeError as error:
            told.append(str(error))
        try:
            dist.all_reduce(torch.ones(4), group=group)
        except RuntimeError as error:
            told.append(f"{type(error).__name__} {isinstance(error, dist.DistBackendError)} {error}")
        dist.distributed_c10d._get_default_store().set("late/done", "1")
    else:
        dist.distributed_c10d._get_default_store().wait(["late/done"], timedelta(seconds=30))
    return told


def aborted(rank: int) -> list[str]:
    """abort() of one rank ends the operations of another at once."""
    group: Any = dist.new_group()
    dist.barrier(group)
    # Who is through has not seen the others through: an abort would end their barrier.
    dist.barrier()
    backend = group._get_backend(torch.device("cpu"))
    began = time.monotonic()
    told = []
    if rank == 0:
        backend.abort()
    for _ in range(2):
        try:
            dist.all_reduce(torch.ones(4), group=group)
        except RuntimeError as error:
            told.append(f"{type(error).__name__} {error}")
    assert time.monotonic() - began < 20
    dist.barrier()
    return told


def split(rank: int) -> list[Any]:
    """split_group makes the backend of a part, in C++ too, and an operation after shutdown says so."""
    size = dist.get_world_size()
    whole: Any = dist.distributed_c10d._get_default_group()
    backend = whole._get_backend(torch.device("cpu"))
    store = torch._C._distributed_c10d.PrefixStore("part", dist.distributed_c10d._get_default_store())
    part = backend.split(store, [size - 1, 0], None) if rank in (0, size - 1) else None
    if part is None:
        return []
    tensor = torch.full((3,), float(rank + 1))
    part.allreduce([tensor], dist.AllreduceOptions()).wait()
    part.shutdown()
    try:
        part.barrier(dist.BarrierOptions())
        told = "no error"
    except RuntimeError as error:
        told = str(error)
    part.abort()
    return [part.rank(), part.size(), tensor.tolist(), told.splitlines()[0]]


def every(rank: int) -> dict[str, Any]:
    """Return what each function returns, or the error that it ends with, as text."""
    pairs = [works, callbacks, dropped, late, aborted]
    return outcomes([selection, errors, split, *(pairs if dist.get_world_size() == 2 else [any_source])], rank)
