"""Operations of a communicator of GPUs in the order of streams: what goes on beside the current one, and what waits.

Each case delays a stream by a kernel that does nothing for half a second, so that the order shows without luck.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from operations import ReduceOp, of, same, torchcomms
from torch import Tensor

IN_STREAMS: dict[str, Callable[[Any], None]] = {}
COUNT = 1 << 20


def case(function: Callable[[Any], None]) -> Callable[[Any], None]:
    IN_STREAMS[function.__name__] = function
    return function


def cycles(seconds: float) -> int:
    """Return how long a kernel has to wait, in cycles of this GPU's clock, which is measured once."""
    if not _RATE:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # The clock of a GPU that had nothing to do is slow.
        torch.cuda._sleep(500_000_000)
        begin.record()
        torch.cuda._sleep(200_000_000)
        end.record()
        end.synchronize()
        _RATE.append(200_000_000 / (begin.elapsed_time(end) / 1000))
    return int(seconds * _RATE[0])


_RATE: list[float] = []


def delay(seconds: float = 0.5) -> torch.cuda.Event:
    """Have the current stream do nothing for a while; returns the event that follows."""
    torch.cuda._sleep(cycles(seconds))
    passed = torch.cuda.Event()
    passed.record()
    return passed


def level(comm: Any) -> None:
    """Bring all ranks to the same point, with nothing left in their streams."""
    torch.cuda.synchronize()
    comm.barrier(False).wait_blocking()


def own(comm: Any, count: int = COUNT) -> Tensor:
    return of(comm.get_rank(), count)


def total(comm: Any, count: int = COUNT) -> Tensor:
    return torch.stack([of(rank, count) for rank in range(comm.get_size())]).sum(0)


def prepare(comm: Any) -> None:
    """Measure the clock, and have kernels compiled: what is timed below takes less than that."""
    cycles(0.0)
    for background in (False, True):
        for call in (reduction, batch):
            call(comm, background)[0].wait()


def every(comm: Any) -> dict[str, str]:
    """Perform all cases; returns what went wrong in each, or ''."""
    outcomes = {}
    assert torch.cuda.current_device() == comm.get_rank(), "the communicator's GPU is not the current one"
    with comm.get_device():
        prepare(comm)
        for name, function in IN_STREAMS.items():
            try:
                level(comm)
                function(comm)
                outcomes[name] = ""
            except Exception:
                outcomes[name] = traceback.format_exc()
    comm.finalize()
    return outcomes


def batch(comm: Any, background: bool) -> tuple[Any, Tensor, Tensor]:
    """Send around the ring of ranks; returns the work, what comes, and what it has to be."""
    n, rank = comm.get_size(), comm.get_rank()
    messages = comm.batch_op_create()
    received = torch.full((COUNT,), float("nan"))
    messages.send(own(comm), (rank + 1) % n)
    messages.recv(received, (rank - 1) % n)
    return messages.issue(background), received, of((rank - 1) % n, COUNT)


def reduction(comm: Any, background: bool) -> tuple[Any, Tensor, Tensor]:
    """Add up; returns the work, what comes, and what it has to be."""
    tensor, wanted = own(comm), total(comm)
    return comm.all_reduce(tensor, ReduceOp.SUM, background), tensor, wanted


def beside(comm: Any, call: Callable[[Any, bool], tuple[Any, Tensor, Tensor]]) -> None:
    """An asynchronous operation ends while the current stream is busy with what was put there after it."""
    # The first use of a kernel loads it, which may wait for all streams.
    work, tensor, wanted = call(comm, False)
    work.wait()
    same(tensor, wanted)
    level(comm)
    work, tensor, wanted = call(comm, True)
    apart = torch.cuda.Stream()
    passed = delay()
    with torch.cuda.stream(apart):
        work.wait()
        same(tensor, wanted)
    assert not passed.query(), "the operation has waited for what was put into the current stream after it"
    level(comm)
    # One that is not asynchronous is in the current stream, behind what it has: the same look tells them apart.
    passed = delay()
    work, tensor, wanted = call(comm, False)
    with torch.cuda.stream(apart):
        apart.wait_stream(torch.cuda.default_stream())
        same(tensor, wanted)
    assert passed.query(), "an operation of the current stream has gone before what is there"


@case
def collectives_go_on_beside(comm: Any) -> None:
    beside(comm, reduction)


@case
def messages_go_on_beside(comm: Any) -> None:
    beside(comm, batch)


@case
def work_is_in_two_streams_at_once(comm: Any) -> None:
    """Two streams are busy for half a second each, one of them with an operation behind: no second passes."""
    begin = time.monotonic()
    with torch.cuda.stream(torch.cuda.Stream()):
        delay()
        work, tensor, wanted = reduction(comm, True)
    delay()
    work.wait()
    same(tensor, wanted)
    assert 0.4 < time.monotonic() - begin < 0.9


@case
def it_comes_after_what_the_stream_has(comm: Any) -> None:
    tensor, values, wanted = torch.full((COUNT,), float("nan")), own(comm), total(comm)
    level(comm)
    delay()
    tensor.copy_(values)
    comm.all_reduce(tensor, ReduceOp.SUM, True).wait()
    same(tensor, wanted)


@case
def wait_orders_the_current_stream(comm: Any) -> None:
    """Before ``wait`` the current stream has the old values, after it the new ones, whichever stream it is."""
    for another in (False, True):
        tensor, values, wanted = own(comm), own(comm), total(comm)
        level(comm)
        with torch.cuda.stream(torch.cuda.Stream()):
            delay()
            work = comm.all_reduce(tensor, ReduceOp.SUM, True)
        before = tensor.clone()
        with torch.cuda.stream(torch.cuda.Stream() if another else torch.cuda.current_stream()):
            work.wait()
            after = tensor.clone()
        # Both copies are queued by now, and the first one has not waited.
        same(before, values)
        torch.cuda.synchronize()
        same(after, wanted)
        assert work.is_completed()


@case
def wait_blocking_has_the_thread_wait(comm: Any) -> None:
    tensor = own(comm)
    begin = time.monotonic()
    with torch.cuda.stream(torch.cuda.Stream()):
        delay()
        work = comm.all_reduce(tensor, ReduceOp.SUM, True)
    assert time.monotonic() - begin < 0.25, "the call has waited"
    work.wait()
    assert time.monotonic() - begin < 0.25, "wait() has the thread wait"
    work.wait_blocking()
    assert time.monotonic() - begin > 0.4, "wait_blocking() has not waited"
    same(tensor, total(comm))
    tensor = own(comm)
    level(comm)
    passed = delay()
    comm.all_reduce(tensor, ReduceOp.SUM, False).wait_blocking()
    assert passed.query(), "wait_blocking() has not waited for an operation of the current stream"
    same(tensor, total(comm))


@case
def memory_is_not_used_anew_before_the_end(comm: Any) -> None:
    """Inputs and works that are dropped while the operation has not begun yet; their memory is asked for at once."""
    n = comm.get_size()
    outputs = [torch.full((n, COUNT), float("nan")) for _ in range(4)]
    inputs = [own(comm) + index for index in range(4)]
    level(comm)
    with torch.cuda.stream(torch.cuda.Stream()):
        delay()
        for index, output in enumerate(outputs):
            comm.all_gather_single(output, inputs.pop(0), True)
    for _ in range(16):
        torch.full((COUNT,), -1.0)
    torch.cuda.synchronize()
    for index, output in enumerate(outputs):
        for rank in range(n):
            same(output[rank], of(rank, COUNT) + index)


@case
def operations_keep_their_order_across_streams(comm: Any) -> None:
    tensor, n = torch.ones(COUNT), comm.get_size()
    level(comm)
    works = []
    for step in range(6):
        with torch.cuda.stream(torch.cuda.Stream() if step % 3 == 0 else torch.cuda.current_stream()):
            works.append(comm.all_reduce(tensor, ReduceOp.SUM, step % 2 == 0))
    for work in works:
        work.wait()
    same(tensor, torch.full((COUNT,), float(n**6)))


@case
def plain_copies_are_in_the_same_order(comm: Any) -> None:
    """Strided results, unequal lists and types without arithmetic are copied in the stream of the operation."""
    n, rank = comm.get_size(), comm.get_rank()
    whole = torch.full((COUNT, 2), float("nan"))
    whole[:, 0] = own(comm)
    short = own(comm).to(torch.int16)
    lists = [torch.full((each + 1,), float("nan")) for each in range(n)]
    level(comm)
    with torch.cuda.stream(torch.cuda.Stream()):
        delay()
        works = [
            comm.all_reduce(whole[:, 0], ReduceOp.SUM, True),
            comm.all_reduce(short, ReduceOp.SUM, True),
            comm.all_gather_v(lists, of(rank, rank + 1), True),
        ]
    for work in works:
        work.wait()
    same(whole[:, 0].contiguous(), total(comm))
    same(short, total(comm).to(torch.int16))
    for each in range(n):
        same(lists[each], of(each, each + 1))


def futures(comm: Any) -> dict[str, str]:
    """A future of torch.distributed through torchcomms has a stream that waits for it wait for the operation.

    Rank 0 asks for it long before the others come.
    """
    import torch.distributed as dist

    outcomes = {"futures": ""}
    try:
        with comm.get_device():
            prepare(comm)
            group = torchcomms._comms._BackendWrapper(comm)
            tensor, wanted = own(comm), total(comm)
            level(comm)
            if comm.get_rank() > 0:
                delay()
            work = group.allreduce([tensor], dist.AllreduceOptions())
            work.get_future().wait()
            same(tensor, wanted)
    except Exception:
        outcomes["futures"] = traceback.format_exc()
    return outcomes

