"""Communicators whose memory goes back to the system until they are used again."""

from __future__ import annotations

import numpy as np
import pytest
from ranks import processes, threads

from roundelay import Communicator, UsageError

COUNT = 300_000


def summed(comm: Communicator, salt: int) -> None:
    """Sum into a poisoned array, and compare with what NumPy sums."""
    own = np.arange(COUNT, dtype="float64") * (comm.rank + salt)
    out = np.full(COUNT, -1.0)
    out[:] = own
    comm.all_reduce(out)
    n = comm.size
    assert (out == np.arange(COUNT) * (n * salt + n * (n - 1) // 2)).all()


def resident() -> int:
    """Return the bytes of memory of this process."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) << 10


def phases(comm: Communicator) -> None:
    summed(comm, 1)
    before, had = comm.memory_stats(), resident()
    assert before["suspended"] == 0
    assert before["shared_bytes"] > 0
    comm.suspend()
    stats = comm.memory_stats()
    assert stats["suspended"] == 1
    assert stats["shared_bytes"] < before["shared_bytes"] // 2
    assert stats["mapped_bytes"] < before["mapped_bytes"]
    assert stats["arena_bytes"] == stats["staging_bytes"] == 0
    assert resident() < had
    with pytest.raises(UsageError, match="suspended"):
        comm.barrier()
    with pytest.raises(UsageError, match="suspended"):
        comm.send(np.zeros(3), (comm.rank + 1) % comm.size)
    with pytest.raises(UsageError, match="suspended already"):
        comm.suspend()
    comm.resume()
    summed(comm, 2)
    comm.set_hints({"suspended": "resume"})
    comm.suspend(connections=True)
    summed(comm, 3)
    assert comm.memory_stats()["suspended"] == 0


def test_memory_goes_and_comes_back() -> None:
    processes(phases, 3)


def differs(comm: Communicator) -> None:
    with pytest.raises(UsageError, match="must suspend alike"):
        comm.suspend(connections=comm.rank == 0)
    summed(comm, 1)


def test_ranks_that_differ_stay_as_they_are() -> None:
    threads(differs, 2)
