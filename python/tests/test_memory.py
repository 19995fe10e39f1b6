"""Memory that the ranks of a host map: arrays in it are as all others, live as long as they are used, and peers see it."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from ranks import processes, threads

import roundelay
from roundelay import Communicator

PAGE = 4096


def array(comm: Communicator, count: int) -> Any:
    return np.frombuffer(comm.alloc(4 * count), np.float32)


def shared(comm: Communicator) -> float:
    other = 1 - comm.rank
    mine = array(comm, 100_000)
    assert not mine.any() and mine.flags.writeable and mine.ctypes.data % PAGE == 0
    mine[:] = np.random.default_rng(comm.rank).standard_normal(100_000, np.float32)
    sums = mine + np.random.default_rng(other).standard_normal(100_000, np.float32)
    comm.all_reduce(mine)
    assert (mine == sums).all()

    window = comm.window(mine)
    assert window.is_mapped(other)
    theirs = np.frombuffer(window.view_remote(other), np.float32)
    assert theirs.ctypes.data == window.map_remote(other) != mine.ctypes.data
    mine[7] = comm.rank + 1
    window.signal(other)
    window.wait_signal(other)
    assert theirs[7] == other + 1 and (theirs[8:] == sums[8:]).all()
    comm.barrier()
    # A store is seen after the signal, too.
    theirs[9] = 50 + comm.rank
    window.signal(other)
    window.wait_signal(other)
    assert mine[9] == 50 + other
    window.free()
    # The memory of the peer stays, whatever lies in it now.
    assert theirs[9] == 50 + comm.rank
    return float(mine[7])


def test_ranks_see_each_other() -> None:
    assert threads(shared, 2) == [1, 2]
    assert processes(shared, 2) == [1, 2]


def refused(comm: Communicator) -> None:
    window = comm.window(array(comm, 10))
    assert not window.is_mapped(1 - comm.rank)
    with pytest.raises(roundelay.WindowError, match="served by its own process"):
        window.view_remote(1 - comm.rank)
    window.free()


def test_what_is_on_another_host_is_refused() -> None:
    processes(refused, 2, hints={"transport": "tcp"})


def test_rights_hold_for_views() -> None:
    def call(comm: Communicator) -> None:
        other = 1 - comm.rank
        window = comm.window(array(comm, 10), peers_may=["read"] if comm.rank else ["read", "write"])
        view = window.view_remote(other)
        assert view.readonly == (other == 1) and view.nbytes == 40
        if view.readonly:
            with pytest.raises(TypeError):
                view[0] = 1
        comm.barrier()
        if comm.rank == 0:
            window.set_timeout(0.05)
            with pytest.raises(roundelay.OperationTimeoutError):
                window.withdraw("write")
            window.set_timeout(60.0)
        comm.barrier()
        window.free()
        blind = comm.window(array(comm, 10), peers_may=["write"])
        with pytest.raises(roundelay.WindowError, match="and this needs `read`"):
            blind.view_remote(other)
        blind.free()

    threads(call, 2)


def test_it_lives_as_long_as_it_is_used() -> None:
    comm = Communicator.local(1)[0]
    first = array(comm, 1000)
    address = first.ctypes.data
    view = first[5:].view(np.int32)
    del first
    gc.collect()
    second = array(comm, 1000)
    assert second.ctypes.data != address
    view[:] = 3
    del view
    gc.collect()
    # It serves others now, and is zero again.
    third = array(comm, 1000)
    assert third.ctypes.data == address and not third.any()
    comm.shutdown()
    third[:] = 4
    assert third.sum() == 4000
    with pytest.raises(roundelay.UsageError, match="was shut down"):
        comm.alloc(1)


def test_what_cannot_be_had_is_refused() -> None:
    comm = Communicator.local(1)[0]
    assert comm.alloc(0).nbytes == 0
    with pytest.raises(roundelay.UsageError, match="counted from 0"):
        comm.alloc(-1)
    with pytest.raises(roundelay.UsageError, match="exceeds the address space"):
        comm.alloc(2**63)
    with pytest.raises(roundelay.Error, match="no room for a buffer") as full:
        comm.alloc(2**50)
    assert full.value.code == "RL0705"
    # What was started keeps its memory.
    work = comm.all_reduce(array(comm, 1 << 20), async_op=True)
    gc.collect()
    assert work is not None
    work.wait()
