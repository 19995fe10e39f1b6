"""Ranks whose communicator goes on from quorum to quorum."""

from __future__ import annotations

import os
import signal
import sys
import time
import types
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from outcomes import told
from torch._C import _distributed_c10d as c10d

from roundelay.torch._elastic import Elastic

LIMIT = timedelta(seconds=20)


class Rank:
    """A rank of the job: its communicator, and a store in which each quorum has a part."""

    def __init__(self, rank: int) -> None:
        self.number, self.size = rank, dist.get_world_size()
        self.shared: Any = dist.distributed_c10d._get_default_store()
        dist.barrier()
        dist.destroy_process_group()
        self.elastic = Elastic([("timeout", "20s")])
        self.group: Any = None

    def store(self, quorum: str) -> Any:
        return c10d.PrefixStore(f"quorum/{quorum}", self.shared)

    def meet(self, name: str, ranks: list[int]) -> None:
        """Wait until these ranks are here."""
        self.shared.set(f"here/{name}/{self.number}", "")
        for rank in ranks:
            self.shared.get(f"here/{name}/{rank}")

    def configure(self, quorum: str, ranks: list[int], timeout: timedelta = LIMIT) -> None:
        place = ranks.index(self.number)
        self.group = self.elastic.configure(self.store(quorum), place, len(ranks), timeout)

    def go_on(self, quorum: str, ranks: list[int]) -> dict[str, Any]:
        """Go on with these ranks; return the rank's place there, and what its handle says of its communicator."""
        self.configure(quorum, ranks)
        tensor = torch.full((1000,), self.group.rank() + 1.0)
        self.group.allreduce([tensor]).wait()
        work = self.group.allreduce([tensor])
        work.wait()
        size = self.group.size()
        assert tensor.unique().tolist() == [size * size * (size + 1) / 2]
        return {"place": [self.group.rank(), size], **self.said()}

    def said(self) -> dict[str, Any]:
        """Return the generation and the address that the communicator's next handle has."""
        comm = self.elastic._comm
        assert comm is not None
        words, _, address = comm.handle().partition("@")
        return {"generation": int(words.split(".")[1]), "address": address}

    def sum(self) -> None:
        self.group.allreduce([torch.ones(100_000)]).wait()


def lives(rank: int) -> list[dict[str, Any]]:
    """All, without the middle one, all again, after an abort, backwards, and with one that comes as new."""
    job = Rank(rank)
    every = list(range(job.size))
    steps = [job.go_on("all", every)]
    # Those that go on without a rank end the calls that it is still in.
    job.meet("before the smaller quorum", every)
    if rank != 1:
        steps.append(job.go_on("fewer", [0, 2]))
    steps.append(job.go_on("again", every))
    assert job.elastic.errored() is None
    job.meet("before the abort", every)
    if rank == 1:
        job.elastic.abort("a test")
    lost = told(job.sum)
    assert lost.startswith("AbortedError roundelay: The group was aborted"), lost
    errored = job.elastic.errored()
    assert "aborted" in str(errored), errored
    steps.append(job.go_on("after an abort", every))
    # Others may have gone on to the next quorum: they wait for this rank before they end this one.
    time.sleep(0.2 * rank)
    assert job.elastic.errored() is None
    steps.append(job.go_on("backwards", every[::-1]))
    if rank == 1:
        job.elastic.shutdown()
    steps.append(job.go_on("with a new one", every))
    job.meet("the end", every)
    job.elastic.shutdown()
    return steps


def killed(rank: int) -> dict[str, Any]:
    """Rank 1 is killed while the others are in a call; they go on without it."""
    job = Rank(rank)
    every = list(range(job.size))
    first = job.go_on("all", every)
    job.meet("before the kill", every)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    lost = told(job.sum)
    errored = str(job.elastic.errored())
    return {"first": first, "lost": lost, "errored": errored, "left": job.go_on("left", [0, 2])}


def gone(rank: int) -> dict[str, Any]:
    """Rank 1 does not come to a quorum; to another one it gives its handle, and ends. The others go on without it."""
    job = Rank(rank)
    every = list(range(job.size))
    first = job.go_on("all", every)
    short = timedelta(seconds=1)
    absent = "" if rank == 1 else told(job.configure, "absent", every, short)
    job.meet("before the end", every)
    if rank == 1:
        comm: Any = job.elastic._comm
        comm.abort("a test")
        job.store("ended").set("roundelay/handle/1", comm.handle())
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    ended = told(job.configure, "ended", every, timedelta(seconds=10))
    return {
        "first": first,
        "absent": absent,
        "ended": ended,
        "seconds": time.monotonic() - begin,
        "left": job.go_on("left", [0, 2]),
    }


class Wrapper:
    """The part of torchft's wrapper that forms quorums: by ``configure``, and since 2026 by ``reconfigure``."""

    def __init__(self, timeout: timedelta) -> None:
        self._timeout, self._pg = timeout, None
        self._group_rank = self._group_world_size = self._global_ranks = None

    def configure(self, store: Any, rank: int, size: int, quorum: int) -> None:
        self._quorum_id = quorum
        self.abort(errored=False)
        self._pg = self._create_pg(store, rank, size)

    def reconfigure(self, store: Any, rank: int, size: int, uuid: int) -> None:
        self._uuid, self._group_rank, self._group_world_size = uuid, 0, 1
        self.abort(errored=False)
        self._pg = self._create_pg(store, rank, size)

    def _create_pg(self, store: Any, rank: int, size: int) -> Any:
        raise NotImplementedError

    def abort(self, errored: bool = True) -> None:
        if self._pg is not None:
            self._pg.abort()
        self._pg = None

    def shutdown(self) -> None:
        self._pg = None


def torchft(rank: int) -> dict[str, list[Any]]:
    """torchft's wrapper forms quorums by either of its calls, while a rank is still in the last call of the quorum before."""
    module: Any = types.ModuleType("torchft.process_group")
    module.ProcessGroupWrapper = Wrapper
    sys.modules.update({"torchft": types.ModuleType("torchft"), "torchft.process_group": module})
    from roundelay.torch.torchft import ProcessGroupRoundelay

    job = Rank(rank)
    places: dict[str, list[Any]] = {}
    for call in ("configure", "reconfigure"):
        group: Any = ProcessGroupRoundelay(LIMIT)
        places[call] = []
        for quorum in range(3):
            getattr(group, call)(job.store(f"{call}/{quorum}"), rank, job.size, quorum)
            tensor = torch.full((100_000,), 1.0)
            # Rank 0 comes late to the last call, and the others are not kept from it by those that go on.
            time.sleep(0.2 if rank == 0 else 0)
            group._pg.allreduce([tensor]).wait()
            assert tensor.unique().tolist() == [job.size] and group.errored() is None
            backend = group._elastic._backend
            places[call].append([group._pg.rank(), group._pg.size(), backend.options.group_name])
        group.shutdown()
    return places
