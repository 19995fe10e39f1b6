"""What works answer while their operation goes on, and when it has ended, on every rank of one job."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

LIMIT = 30.0
"""Seconds in which an operation ends once the other rank has acted."""

TURNS_STRIDED = 6
SIDE = 2048
LONG = SIDE * SIDE
"""Elements of a message that its receiver reads from the sender's memory: its send does not end before. To copy them
into a tensor that is not contiguous takes longer than to ask."""


def store() -> Any:
    return dist.distributed_c10d._get_default_store()


def wait_for(key: str) -> str:
    store().wait([key], timedelta(seconds=LIMIT))
    return str(store().get(key).decode())


def poll(work: Any) -> None:
    """Ask a work until it has ended; never wait for it."""
    end = time.monotonic() + LIMIT
    while not work.is_completed():
        assert time.monotonic() < end, "the operation has not ended"
        time.sleep(0)


def random_of(rank: int, count: int) -> Tensor:
    """Return what a rank sends, which all ranks know: random numbers of a seed that is new in each run."""
    key = f"seed{rank}"
    seed = int.from_bytes(os.urandom(6), "little")
    seed = int(store().compare_set(key, "", str(seed)).decode())
    return torch.randint(-1000, 1000, (count,), generator=torch.Generator().manual_seed(seed)).float()


def completion(rank: int) -> dict[str, list[bool]]:
    """Rank 0 asks before rank 1 acts and after, and looks at the tensors without ``wait``."""
    sent, added = random_of(1, 12), random_of(0, 12)
    long, more = random_of(2, LONG), random_of(3, LONG)
    plain, any_source, batched, reduced = (torch.zeros(12) for _ in range(4))
    reduced.copy_(added)
    # In memory the columns of what is sent come one after the other.
    received, strided, summed = torch.zeros(LONG), torch.zeros(SIDE, SIDE).t(), torch.zeros(SIDE, SIDE).t()
    summed.copy_(more.view(SIDE, SIDE))
    cases: dict[str, tuple[Callable[[], Any], Callable[[], Any], Callable[[], Any]]] = {
        "recv": (
            lambda: dist.irecv(plain, 1),
            lambda: dist.send(sent, 0),
            lambda: torch.equal(plain, sent),
        ),
        "recv_strided": (
            lambda: dist.irecv(strided.zero_(), 1),
            lambda: dist.send(long, 0),
            lambda: torch.equal(strided, long.view(SIDE, SIDE)),
        ),
        "recv_any_source": (
            lambda: dist.irecv(any_source),
            lambda: dist.send(sent, 0),
            lambda: torch.equal(any_source, sent),
        ),
        "send": (
            lambda: dist.isend(long, 1),
            lambda: dist.recv(received, 0),
            lambda: True,
        ),
        "batch": (
            lambda: dist.batch_isend_irecv([dist.P2POp(dist.irecv, batched, 1)])[0],
            lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, 0)])[0].wait(),
            lambda: torch.equal(batched, sent),
        ),
        "all_reduce": (
            lambda: dist.all_reduce(reduced, async_op=True),
            lambda: dist.all_reduce(sent.clone()),
            lambda: torch.equal(reduced, sent + added),
        ),
        "all_reduce_strided": (
            lambda: dist.all_reduce(summed, async_op=True),
            lambda: dist.all_reduce(long.view(SIDE, SIDE).clone()),
            lambda: torch.equal(summed, (long + more).view(SIDE, SIDE)),
        ),
    }
    seen = {}
    # Whether the copy is not over yet when the message is there is a matter of luck.
    cases.update({f"recv_strided_{turn}": cases["recv_strided"] for turn in range(1, TURNS_STRIDED)})
    for name, (start, act, is_right) in cases.items():
        if rank == 1:
            wait_for(f"act {name}")
            act()
            continue
        work = start()
        before = [work.is_completed() for _ in range(20)]
        store().set(f"act {name}", "now")
        poll(work)
        seen[name] = [any(before), is_right(), work.is_success(), work.exception() is None]
        assert work.wait()
        assert work.is_completed()
    assert rank == 0 or torch.equal(received, long)
    return seen


def lost(rank: int) -> list[Any]:
    """Rank 1 is killed; the work of rank 0 says so without ``wait``, which raises the same."""
    tensor = torch.zeros(4)
    if rank == 1:
        wait_for("end")
        os.kill(os.getpid(), signal.SIGKILL)
    work: Any = dist.irecv(tensor, 1)
    before = [work.is_completed(), work.exception()]
    store().set("end", "now")
    poll(work)
    seen = [*before, work.is_success(), str(work.exception())]
    for call in (work.result, work.synchronize, work.wait):
        try:
            call()
            seen.append("nothing was raised")
        except dist.DistError as error:
            seen.append(str(error))
    return seen


TURNS = [1, 2, 2, 1, 2, 1, 1, 2]


def sources(rank: int) -> list[Any]:
    """Rank 0 receives from any rank: one that it names by the store first, then from both as they come."""
    found: list[Any] = []
    for turn, sender in enumerate(TURNS):
        if rank == sender:
            wait_for(f"turn {turn}")
            dist.send(torch.tensor([rank, turn]), 0, tag=turn % 2)
        if rank == 0:
            tensor = torch.zeros(2, dtype=torch.int64)
            work = dist.irecv(tensor, tag=turn % 2) if turn >= len(TURNS) // 2 else None
            store().set(f"turn {turn}", "now")
            if work is None:
                source = dist.recv(tensor, tag=turn % 2)
            else:
                work.wait()
                source = work._source_rank()
                assert work.source_rank() == source
            found.append([source, *tensor.tolist()])
    if rank > 0:
        for number in range(50):
            dist.send(torch.tensor([rank, number]), 0)
    else:
        tensor = torch.zeros(2, dtype=torch.int64)
        found += [[dist.recv(tensor), *tensor.tolist()] for _ in range(100)]
    # Of a group the number is that of the whole job.
    group = dist.new_group([1, 2])
    if rank == 1:
        dist.send(torch.tensor([7]), 2, group)
    if rank == 2:
        found.append(dist.recv(torch.zeros(1, dtype=torch.int64), group=group))
    return found


def threads(rank: int) -> list[int]:
    """Threads of rank 0 ask works that have ended and one that goes on, at the same time."""
    count = 6
    if rank == 1:
        for number in range(count):
            dist.send(torch.tensor([number]), 0, tag=number)
        wait_for("last")
        dist.send(torch.tensor([count]), 0, tag=count)
        return []
    tensors = [torch.zeros(1, dtype=torch.int64) for _ in range(count + 1)]
    works: list[Any] = [dist.irecv(tensor, tag=tag) for tag, tensor in enumerate(tensors)]
    for work in works[:-1]:
        poll(work)
    wrong = [0] * (count + 1)

    def ask(index: int) -> None:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            wrong[index] += works[index].is_completed() != (index < count)

    asking = [threading.Thread(target=ask, args=(index,)) for index in range(count + 1)]
    [thread.start() for thread in asking]
    [thread.join(LIMIT) for thread in asking]
    assert not any(thread.is_alive() for thread in asking)
    store().set("last", "now")
    works[-1].wait()
    return wrong


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def works_alive() -> int:
    gc.collect()
    return sum(isinstance(each, dist.Work) for each in gc.get_objects())


MESSAGES = 100_000


def leaks(rank: int) -> list[int]:
    """Messages and queries leave no works, no searches and no memory behind."""
    tensor = torch.zeros(2)
    counts = []
    for number in range(MESSAGES):
        work: Any = dist.isend(tensor, 0) if rank == 1 else dist.irecv(tensor)
        work.is_completed()
        work.wait()
        if rank == 0:
            assert work._source_rank() == 1
        if number in (MESSAGES // 5, MESSAGES - 1):
            del work
            counts += [works_alive(), resident()]
    return counts


def other_backends(rank: int) -> dict[str, Any]:
    """Works of Gloo, and those that torch makes of a future, answer as they did."""
    found: dict[str, Any] = {}
    group = dist.new_group(backend="gloo")
    tensor = torch.zeros(3)
    if rank == 1:
        wait_for("gloo")
        dist.send(torch.ones(3), 0, group)
    else:
        work: Any = dist.irecv(tensor, group=group)
        found["gloo"] = [work.is_completed()]
        store().set("gloo", "now")
        work.wait()
        found["gloo"] += [work.is_completed(), work.is_success(), work.source_rank(), tensor.tolist()]
    future: Any = torch.futures.Future()
    made: Any = torch._C._distributed_c10d._create_work_from_future(future)
    found["future"] = [made.is_completed()]
    future.set_result([tensor])
    found["future"] += [made.is_completed(), made.result()[0] is tensor]
    return found


def wrapping(rank: int) -> list[Any]:
    """A backend of others in Python that is made of ours keeps its own answers, and its futures complete."""
    from torch._C._distributed_c10d import Backend

    inner = dist.group.WORLD
    assert inner is not None

    class WrappingWork(dist.Work):
        def __init__(self, work: Any) -> None:
            super().__init__()
            self.work = work
            self.future: Any = None

        def wait(self, timeout: Any = None) -> bool:
            return bool(self.work.wait())

        def get_future(self) -> Any:
            if self.future is None:
                self.future = self.work.get_future().then(lambda done: done.value())
            return self.future

    class WrappingBackend(Backend):
        def getBackendName(self) -> str:
            return "wrapping"

        def allreduce(self, tensors: Any, opts: Any) -> Any:
            backend = inner._get_backend(torch.device("cpu"))
            opts.asyncOp = True
            # The work itself, as a backend in Python gets it from one that it holds.
            return WrappingWork(type(backend).allreduce(backend, tensors, opts))

    def create(options: Any, group_options: Any = None) -> Any:
        return WrappingBackend(options.group_rank, options.group_size)

    dist.Backend.register_backend("wrapping", create, extended_api=True, devices=["cpu"])
    group = dist.new_group(backend="wrapping")
    tensor = torch.full((3,), float(rank + 1))
    if rank == 1:
        wait_for("wrapping")
    work: Any = dist.all_reduce(tensor, group=group, async_op=True)
    before = work.is_completed()
    store().set("wrapping", "now")
    future = work.get_future()
    end = time.monotonic() + LIMIT
    while not future.done() and time.monotonic() < end:
        time.sleep(0.001)
    return [before, future.done(), work.is_completed(), tensor.tolist()]
