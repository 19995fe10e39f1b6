"""What tools see of a group, on every rank of one job: profiler, hooks, sequence numbers, flight recorder."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from outcomes import outcomes


def names(prof: Any, prefix: str) -> list[Any]:
    """Return name, shapes of the inputs and whether it is asynchronous of each event of a backend, in order."""
    events = [event for event in prof.events() if event.name.startswith(f"{prefix}:")]
    return [[event.name, event.input_shapes, event.is_async] for event in events]


def profiler(rank: int) -> list[Any]:
    """Every operation is one event, the synchronous, the asynchronous, the failed one and the message."""
    size = dist.get_world_size()
    tensor = torch.ones(3, 2)
    dist.all_reduce(tensor)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as prof:
        dist.all_reduce(tensor)
        work = dist.all_gather_into_tensor(torch.empty(3 * size, 2), tensor, async_op=True)
        assert work is not None
        work.wait()
        dist.broadcast(torch.ones(5), 0)
        peer = (rank + 1) % size
        messages = [dist.isend(torch.ones(4), peer), dist.irecv(torch.ones(4), (rank - 1) % size)]
        for message in messages:
            assert message is not None
            message.wait()
        dist.barrier()
        try:
            dist.all_gather_into_tensor(torch.ones(1), tensor)
        except ValueError:
            pass
    return names(prof, "roundelay")


def profiled_train(rank: int) -> int:
    """The all_reduces of DDP, which begin on threads of autograd, have events too."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        for _ in range(3):
            model(torch.ones(2, 4)).sum().backward()
    return sum(event[0] == "roundelay:all_reduce" for event in names(prof, "roundelay"))


def abort_hooks(rank: int) -> list[Any]:
    """An abort hook is called on the rank that aborts, and where an operation fails; one that was dropped is not.

    The error does not wait for the hook, the end of the group does.
    """
    group: Any = dist.new_group()
    told: list[str] = []
    group.register_abort_hook(1, lambda: told.append("kept"))
    group.register_abort_hook(2, lambda: told.append("dropped"))
    group.unregister_abort_hook(2)
    dist.barrier(group)
    # Who is through has not seen the others through: an abort would end their barrier.
    dist.barrier()
    before = list(told)
    if rank == 0:
        group._get_backend(torch.device("cpu")).abort()
    error = ""
    try:
        dist.all_reduce(torch.ones(4), group=group)
    except dist.DistBackendError as failed:
        error = type(failed).__name__
    dist.destroy_process_group(group)
    return [before, sorted(set(told)), error]


def completion_hooks(rank: int) -> Any:
    """A completion hook is told of every operation, in order; waiting for what is pending waits for it."""
    group: Any = dist.new_group()
    told: list[Any] = []

    def hook(info: Any) -> None:
        told.append([str(info.op_type).rsplit(".", 1)[-1], info.seq, info.active_duration.total_seconds() >= 0])

    try:
        group._register_on_completion_hook(hook)
    except NotImplementedError as error:
        return str(error)
    works = [dist.all_reduce(torch.ones(50_000), group=group, async_op=True) for _ in range(3)]
    dist.barrier(group)
    group._wait_for_pending_works()
    del works
    try:
        group._register_on_completion_hook(hook)
        twice = "no error"
    except RuntimeError as error:
        twice = str(error)
    return [told, group._has_hooks(), twice]


def sequence(rank: int) -> list[int]:
    """Every collective counts one."""
    group: Any = dist.new_group()
    numbers = [group._get_sequence_number_for_group()]
    for _ in range(3):
        dist.all_reduce(torch.ones(2), group=group)
        numbers.append(group._get_sequence_number_for_group())
    return [number - numbers[0] for number in numbers]


def appears(path: str) -> bool:
    """Return true once a file is there and has content, false if there is none within half a minute."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if os.path.exists(path) and os.path.getsize(path):
            return True
        time.sleep(0.01)
    return False


def dumped(rank: int) -> Any:
    """The flight recorder shows which operation one rank has not begun, and the others have not ended."""
    import roundelay.torch

    group: Any = dist.new_group(timeout=timedelta(seconds=2), group_desc="trainers")
    dist.all_reduce(torch.ones(6), group=group)
    dist.barrier(group)
    store = dist.distributed_c10d._get_default_store()
    error = ""
    if rank:
        try:
            dist.all_gather_into_tensor(torch.ones(4 * dist.get_world_size()), torch.ones(4), group)
        except dist.DistBackendError as failed:
            error = f"{type(failed).__name__}: {failed}"
        # A thread that PyTorch has for hooks writes the file after the error.
        wrote = appears(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{rank}")
        store.set(f"dumped/{rank}", "1")
    else:
        store.wait([f"dumped/{other}" for other in range(1, dist.get_world_size())], timedelta(seconds=60))
        # The other ranks have written theirs, as the environment says.
        roundelay.torch.dump()
        wrote = appears(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{rank}")
    return [error, wrote]


def recorded(rank: int) -> Any:
    """The record has the latest calls of groups that live and that are gone, with the stacks of their callers."""
    import pickle

    import roundelay.torch

    group: Any = dist.new_group(group_desc="gone")
    size = dist.get_world_size()
    assert group.allreduce([torch.ones(3)], opts(async_op=False)) is None
    dist.all_gather_into_tensor(torch.ones(2 * size), torch.ones(2), group)
    dist.reduce_scatter_tensor(torch.ones(2), torch.ones(2 * size), group=group)
    dist.all_gather([torch.ones(4) for _ in range(size)], torch.ones(4), group)
    dist.destroy_process_group(group)
    work = dist.broadcast(torch.ones(5, dtype=torch.int64), 0, async_op=True)
    assert work is not None
    work.wait()
    peer = 1 - rank
    messages = [dist.isend(torch.ones(7), peer), dist.irecv(torch.ones(7), peer)]
    for message in messages:
        assert message is not None
        message.wait()
    path = roundelay.torch.dump(f"{os.environ['ROUNDELAY_TEST_TRACE']}-")
    trace = pickle.loads(path.read_bytes())
    calls = []
    for entry in trace["entries"]:
        mine = any(frame["filename"] == __file__ for frame in entry["frames"])
        calls.append(
            [
                entry["process_group"][1],
                entry["profiling_name"],
                entry["input_sizes"],
                entry["output_sizes"],
                entry["state"],
                mine,
            ]
        )
    hooked = len(dist.distributed_c10d._world.pg_flight_recorder_hooks)
    return [calls, hooked, sorted(config["desc"] for config in trace["pg_config"].values())]


def opts(async_op: bool) -> Any:
    """Return the options of an all_reduce."""
    made = dist.AllreduceOptions()
    made.asyncOp = async_op
    return made


def every(rank: int) -> dict[str, Any]:
    """Return what each function returns, or the error that it ends with, as text."""
    return outcomes((profiler, profiled_train, abort_hooks, completion_hooks, sequence), rank)
