"""What a program does to a group that torch's own programs do as well: forks, threads, failing callbacks, Ctrl-C."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from outcomes import outcomes, told
from torch.nn.parallel import DistributedDataParallel


def started(data: torch.Tensor, group: Any = None) -> Any:
    """Start an all_reduce."""
    return dist.all_reduce(data, group=group, async_op=True)


def works(group: Any = None) -> bool:
    """Return True if a group goes on working."""
    data, more = torch.ones(1000), torch.ones(1000)
    dist.all_reduce(data, group=group)
    started(more, group).wait()
    return bool((data == dist.get_world_size()).all() and (more == dist.get_world_size()).all())


def _child(pipe: Any) -> None:
    """Be a process that is forked from a rank: it is none, and may be a rank of a group of its own."""
    dist.distributed_c10d._world.pg_map.clear()
    dist.distributed_c10d._world.default_pg = None
    gc.collect()
    dist.init_process_group("roundelay", store=dist.HashStore(), rank=0, world_size=1)
    data = torch.ones(10)
    dist.all_reduce(data)
    work = started(data)
    ended = threading.Event()
    work.get_future().then(lambda future: ended.set())
    pipe.send([data.sum().item(), ended.wait(20)])


def fork(rank: int) -> list[Any]:
    """A process that is forked from a rank ends as it likes, and hurts no group."""
    started(torch.ones(1000)).get_future().wait()  # The threads of the background are there.
    pending = started(torch.ones(100_000))
    context: Any = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    children = [context.Process(target=_child, args=(there,)), context.Process(target=gc.collect)]
    for child in children:
        child.start()
    told = here.recv() if here.poll(30) else "nothing"
    for child in children:
        child.join(30)
    pending.wait()
    return [[child.exitcode for child in children], told, works()]


class _Data(torch.utils.data.Dataset[Any]):
    """Items whose making uses the group of the rank, as a metric or a barrier in a data set does."""

    def __init__(self, pending: Any) -> None:
        self.pending = pending

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> dict[str, str]:
        group: Any = dist.group.WORLD
        tries: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda: dist.all_reduce(torch.full((4,), 100.0)),
            "long": lambda: dist.all_reduce(torch.full((1 << 18,), 100.0)),
            "started": lambda: started(torch.full((4,), 100.0)).wait(),
            "broadcast": lambda: dist.broadcast(torch.ones(4), 0),
            "barrier": lambda: dist.barrier(),
            "send": lambda: dist.send(torch.ones(4), 1 - dist.get_rank()),
            "recv": lambda: dist.recv(torch.ones(4), 1 - dist.get_rank()),
            "wait": lambda: self.pending.wait(),
            "future": lambda: self.pending.get_future().wait(),
            "new_group": lambda: dist.new_group(timeout=timedelta(seconds=5)),
            "abort": lambda: group._get_backend(torch.device("cpu")).abort(),
        }
        said = {name: told(call) for name, call in tries.items()}
        dist.destroy_process_group()
        return {name: text for name, text in said.items() if "was forked from it, is no rank" not in text}


def workers(rank: int) -> list[Any]:
    """Workers of a DataLoader that call the group of their rank are refused by name, and training goes on."""
    started(torch.ones(1000)).get_future().wait()
    pending = started(torch.ones(1000))
    loader = torch.utils.data.DataLoader(
        _Data(pending), batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60
    )
    wrong = [found for found in loader if found]
    pending.wait()
    return [wrong, works()]


def threads(rank: int) -> list[Any]:
    """Several threads use a group each, and send messages in one."""
    count, failed = 4, []
    groups: list[Any] = [dist.new_group() for _ in range(count)]

    def one(index: int) -> None:
        try:
            for number in range(40):
                data = torch.full((100 + number,), float(index + 1))
                dist.all_reduce(data, group=groups[index])
                work = started(data, groups[index])
                into = torch.empty(50)
                sent: Any = dist.isend(torch.full((50,), float(index)), 1 - rank, tag=index)
                got: Any = dist.irecv(into, 1 - rank, tag=index)
                for each in (got, sent, work):
                    each.wait()
                assert (data == 4.0 * (index + 1)).all() and (into == index).all()
        except Exception:
            failed.append(traceback.format_exc())

    running = [threading.Thread(target=one, args=(index,)) for index in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    return [[thread.is_alive() for thread in running], failed, works()]


def callbacks(rank: int) -> list[Any]:
    """An exception in a callback is that of its future; the group, and other callbacks, go on."""

    def fails(future: Any) -> None:
        raise ValueError("no luck")

    future = started(torch.ones(100)).get_future()
    bad, good = future.then(fails), future.then(lambda future: 7)
    try:
        bad.wait()
        told = "no error"
    except Exception as error:
        told = f"{type(error).__name__}: {error}".splitlines()[0]
    return ["no luck" in told, good.wait(), works()]


def awaited(rank: int) -> list[Any]:
    """A future that was asked for before ``wait`` is complete after it: callbacks run where they are added."""
    late = 0
    for _ in range(1000):
        work = started(torch.ones(10))
        future = work.get_future()
        work.wait()
        called: list[int] = []
        future.then(lambda _, here=called: here.append(threading.get_ident()))
        late += called != [threading.get_ident()]
    return [late, works()]


def hooks(rank: int) -> list[Any]:
    """An exception in a hook of DDP ends the backward pass on the rank, and its group goes on."""
    torch.manual_seed(0)
    told = []
    for where in ("at once", "in the callback"):
        model = DistributedDataParallel(torch.nn.Linear(20, 20))

        # Without annotations, which torch compares with its class: here they are texts.
        def hook(state, bucket, where=where):  # type: ignore[no-untyped-def]
            if where == "at once":
                raise ValueError("no luck")

            def fails(future: Any) -> torch.Tensor:
                raise ValueError("no luck")

            return started(bucket.buffer()).get_future().then(fails)

        model.register_comm_hook(None, hook)
        try:
            model(torch.ones(4, 20)).sum().backward()
            told.append("no error")
        except Exception as error:
            told.append("no luck" in str(error))
        del model
        gc.collect()
    return [*told, works()]


def interrupted(rank: int) -> list[Any]:
    """Ctrl-C ends a wait, and not the operation; a signal of the program's own does not end it."""
    into = torch.zeros(4)
    if rank == 1:
        dist.barrier()
        dist.send(torch.ones(4), 0, tag=3)
        return [works()]
    heard = []
    signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    work: Any = dist.irecv(into, 1, tag=3)
    waits = threading.Event()

    def disturb() -> None:
        waits.wait(20)
        os.kill(os.getpid(), signal.SIGUSR1)
        until = time.monotonic() + 20
        while not heard and time.monotonic() < until:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=disturb)
    other.start()
    try:
        waits.set()
        work.wait()
        told = "no error"
    except KeyboardInterrupt:
        told = "KeyboardInterrupt"
    other.join()
    dist.barrier()
    work.wait()
    return [told, len(heard), into.tolist(), works()]


def dropped(rank: int) -> list[Any]:
    """Tensors that nobody keeps live until their operation has ended; copies are made though nobody waits."""
    strided = torch.ones(64, 32).t()
    count = 30
    for size in range(1, count):
        started(torch.ones(size * 900))
        dist.isend(torch.full((size * 900,), float(rank)), 1 - rank, tag=size)
        gc.collect(0)
    started(strided)
    started(torch.ones(50_000)).get_future().then(lambda future: future.value()[0].sum())
    right = True
    for size in range(1, count):
        into = torch.empty(size * 900)
        dist.recv(into, 1 - rank, tag=size)
        right = right and bool((into == 1 - rank).all())
    dist.barrier()
    until = time.monotonic() + 20
    while strided.sum() != 2048 * dist.get_world_size() and time.monotonic() < until:
        time.sleep(0.001)
    return [right, strided.min().item(), strided.max().item(), works()]


def aborted(rank: int) -> list[Any]:
    """abort() of another thread ends a call that waits, in each of the ways to wait."""
    told = []

    def in_call(group: Any) -> None:
        dist.all_reduce(torch.ones(1000), group=group)

    def in_wait(group: Any) -> None:
        started(torch.ones(1000), group).wait()

    def in_future(group: Any) -> None:
        started(torch.ones(1000), group).get_future().wait()

    def in_message(group: Any) -> None:
        dist.recv(torch.ones(10), group=group, group_src=1, tag=9)

    ways: list[Callable[[Any], None]] = [in_call, in_wait, in_future, in_message]
    for way in ways:
        group: Any = dist.new_group(timeout=timedelta(seconds=60))
        if rank == 0:
            begun = threading.Event()
            backend = group._get_backend(torch.device("cpu"))

            def end(begun: threading.Event = begun, backend: Any = backend) -> None:
                begun.wait(20)
                # The other thread is in its call by now, or comes to it later: both must end.
                time.sleep(0.05)
                backend.abort()

            other = threading.Thread(target=end)
            other.start()
            since = time.monotonic()
            try:
                begun.set()
                way(group)
                told.append("no error")
            except Exception as error:
                took = time.monotonic() - since
                told.append("abort() was called" in str(error) if took < 20 else f"{took:.0f} s")
            other.join()
        dist.barrier()
    return [*told, works()]


def every(rank: int) -> dict[str, Any]:
    """Return what each function returns, or the error that it ends with, as text."""
    return outcomes((fork, workers, threads, callbacks, awaited, hooks, interrupted, dropped, aborted), rank)
