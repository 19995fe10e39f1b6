"""Jobs of every face whose ranks call until a fault ends them. The server imports this module before it forks them.

Each face returns two functions: one calls all_reduce among all ranks, the other among all ranks of a second group.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import resource
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

import roundelay
import roundelay.torchcomms as torchcomms
from roundelay.torch import Options

if TYPE_CHECKING:
    from programs import Job

Call = Callable[[torch.Tensor], Any]

SIZES = (2, 16_384, 262_144)
"""Elements of the calls, by turns."""


def store_of(job: Job) -> Any:
    """Return the store at which the ranks of this round meet."""
    store = dist.TCPStore("127.0.0.1", job.plan.port, None, False, timeout=timedelta(seconds=60))
    return dist.PrefixStore(f"faults/{job.plan.number}", store)


def native(job: Job) -> tuple[Call, Call]:
    """Call the package's own communicators."""
    store, seconds = store_of(job), job.plan.timeout
    first, second = (
        roundelay.Communicator.join(job.rank, job.ranks, store, name=name, timeout=30) for name in ("first", "second")
    )
    for comm in (first, second):
        comm.set_timeout(seconds)
    return first.all_reduce, second.all_reduce


def torch_backend(job: Job, compiled: bool) -> tuple[Call, Call]:
    """Call the backend of torch.distributed."""
    options = Options(compiled=compiled)
    limit = timedelta(seconds=30)
    ranks: dict[str, Any] = {"rank": job.rank, "world_size": job.ranks}
    dist.init_process_group("roundelay", store=store_of(job), timeout=limit, pg_options=options, **ranks)
    group = dist.new_group(list(range(job.ranks)), pg_options=Options(compiled=compiled))
    for each in (None, group):
        roundelay.torch.set_timeout(timedelta(seconds=job.plan.timeout), each)
    return dist.all_reduce, lambda data: dist.all_reduce(data, group=group)


def torchcomms_object(job: Job) -> tuple[Call, Call]:
    """Call communicators of torchcomms' interface."""
    ranks: dict[str, Any] = {"rank": job.rank, "size": job.ranks, "timeout": timedelta(seconds=job.plan.timeout)}
    first, second = (
        torchcomms.new_comm("roundelay", "cpu", name=name, store=store_of(job), **ranks) for name in ("first", "second")
    )
    add = torchcomms.ReduceOp.SUM
    return (lambda data: first.all_reduce(data, add, False)), (lambda data: second.all_reduce(data, add, False))


class NcclError(RuntimeError):
    """A call of NCCL's interface that failed."""


def nccl(job: Job) -> tuple[Call, Call]:
    """Call NCCL's interface, on memory of the host."""
    os.environ["ROUNDELAY_NCCL_HOST"] = "1"
    os.environ["ROUNDELAY_HINTS"] += f",timeout={job.plan.timeout}s"
    library = ctypes.CDLL(os.environ["ROUNDELAY_TEST_NCCL"])
    library.ncclGetLastError.restype = ctypes.c_char_p
    unique = type("ncclUniqueId", (ctypes.Structure,), {"_fields_": [("internal", ctypes.c_char * 128)]})
    store = store_of(job)

    def opened(name: str) -> Call:
        own = unique()
        if job.rank == 0:
            checked(library.ncclGetUniqueId(ctypes.byref(own)))
            store.set(name, bytes(own))
        made, comm = unique.from_buffer_copy(store.get(name)), ctypes.c_void_p()
        checked(library.ncclCommInitRank(ctypes.byref(comm), job.ranks, made, job.rank))

        def all_reduce(data: torch.Tensor) -> None:
            at, count = ctypes.c_void_p(data.data_ptr()), ctypes.c_size_t(data.numel())
            checked(library.ncclAllReduce(at, at, count, 7, 0, comm, None), comm)

        return all_reduce

    def checked(code: int, comm: Any = None) -> None:
        if code != 0:
            raise NcclError((library.ncclGetLastError(comm) or b"").decode(errors="replace"))

    return opened("first"), opened("second")


FACES: dict[str, Callable[[Job], tuple[Call, Call]]] = {
    "native": native,
    "torch": lambda job: torch_backend(job, compiled=False),
    "compiled": lambda job: torch_backend(job, compiled=True),
    "torchcomms": torchcomms_object,
    "nccl": nccl,
}


def segfault() -> None:
    """Read where nothing is."""
    ctypes.string_at(8)


def out_of_memory() -> None:
    """Ask for more memory than this process may have; what is raised ends the program."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))
    bytearray(1 << 34)


OWN: dict[str, Callable[[], Any]] = {
    "exit": lambda: os._exit(7),
    "segfault": segfault,
    "memory": out_of_memory,
}
"""What a rank does to itself between two calls."""

AT = 4
"""The step before which it does so."""


def run_rank(job: Job) -> None:
    """Call until a fault ends it."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    plan = job.plan
    hosts = plan.transport == "hosts"
    os.environ["ROUNDELAY_HINTS"] = f"transport={'shm,tcp' if hosts else plan.transport}"
    if hosts:
        # Two ranks share the first host.
        os.environ["ROUNDELAY_HOST"] = f"host {max(0, job.rank - 1)}"
    call, other = FACES[plan.face](job)
    other(torch.ones(4))
    for step in itertools.count(1):
        plan.board.put("step", job.rank, step)
        if job.rank == plan.victim and step >= AT and plan.kind in ("late", *OWN):
            plan.board.put("hurt", job.rank, time.monotonic())
            if plan.kind == "late":
                other(torch.ones(4))
            else:
                OWN[plan.kind]()
        call(torch.ones(SIZES[step % len(SIZES)]))
