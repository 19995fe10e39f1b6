"""Windows: what is put is there after a signal, mistakes are refused, and arrays live as long as they are used."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from ranks import processes, threads

import roundelay
from roundelay import Communicator, Work


def exchange(comm: Communicator) -> list[Any]:
    rng = np.random.default_rng(comm.rank)
    other = 1 - comm.rank
    mine = np.full(100_000, -1.0, np.float32)
    window = comm.window(mine)
    assert window.len(other) == 100_000 and not window.is_mapped(other) and window.is_mapped(comm.rank)
    data = rng.standard_normal(50_000, np.float32)
    window.put(data, other, 10)
    window.accumulate(data, other, 10)
    window.signal(other)
    window.wait_signal(other)
    theirs = np.random.default_rng(other).standard_normal(50_000, np.float32)
    assert (mine[10:50_010] == theirs + theirs).all() and (mine[:10] == -1).all() and (mine[50_010:] == -1).all()
    got = np.zeros(30, np.float32)
    window.get(got, other, 5)
    assert (got[5:] == (data + data)[:25]).all() and (got[:5] == -1).all()
    comm.barrier()
    if comm.rank == 0:
        assert window.compare_swap(0, 0, 1, 60_000) != 0
        zero = np.zeros(2, np.float32)
        window.put(zero, 1, 60_000)
        assert window.fetch_add(2**63 + 5, 1, 60_000) == 0
        assert window.compare_swap(2**63 + 5, 7, 1, 60_000) == 2**63 + 5
    comm.barrier()
    assert not window.take_signal(other)
    window.flush(other)
    window.free()
    return [float(mine[10:50_010].sum()), mine[60_000:60_002].view(np.uint64)[0]]


def test_threads_and_processes_exchange() -> None:
    for results in (
        threads(exchange, 2),
        processes(exchange, 2),
        processes(exchange, 2, hints={"transport": "tcp"}),
    ):
        assert results[1][1] == 7


def test_what_was_started_keeps_its_array() -> None:
    def call(comm: Communicator) -> None:
        other = 1 - comm.rank
        mine = np.zeros(1 << 20, np.int64)
        window = comm.window(mine)
        works = []
        for i in range(8):
            data = np.full(1 << 17, i + 1)
            works.append(window.put(data, other, i << 17, async_op=True))
            del data
        gc.collect()
        flushed = window.flush(other, async_op=True)
        assert isinstance(flushed, Work)
        flushed.wait()
        window.signal(other)
        window.wait_signal(other)
        assert (mine.reshape(8, -1) == np.arange(1, 9)[:, None]).all()
        for work in works:
            assert isinstance(work, Work)
            work.wait()
        got = np.zeros(1 << 20, np.int64)
        work = window.get(got, other, async_op=True)
        assert isinstance(work, Work)
        work.wait()
        assert (got == mine).all()
        comm.barrier()
        window.free()

    threads(call, 2)


def test_mistakes_are_refused_and_nothing_is_written() -> None:
    def call(comm: Communicator) -> None:
        other = 1 - comm.rank
        mine = np.full(10, 3, np.int32)
        window = comm.window(mine, peers_may=["read"])
        with pytest.raises(roundelay.WindowError, match="needs `write`") as error:
            window.put(mine, other)
        assert error.value.code == "RL0716" and error.value.rank == comm.rank
        with pytest.raises(roundelay.WindowError, match="ends at byte 40"):
            window.get(np.zeros(2, np.int32), other, 9)
        with pytest.raises(roundelay.UsageError, match="`data` has elements of f32, and the window of i32"):
            window.get(np.zeros(2, np.float32), other)
        with pytest.raises(roundelay.UsageError, match="counted from 0"):
            window.get(np.zeros(2, np.int32), other, -1)
        with pytest.raises(roundelay.UsageError, match="there is no rank 2"):
            window.get(np.zeros(2, np.int32), 2)
        window.withdraw("read")
        comm.barrier()
        with pytest.raises(roundelay.WindowError, match="`none`"):
            window.get(np.zeros(2, np.int32), other)
        comm.barrier()
        window.free()
        assert (mine == 3).all()
        with pytest.raises(roundelay.UsageError, match="was freed"):
            window.signal(other)
        with pytest.raises(roundelay.UsageError, match="`reed` is no right"):
            comm.window(mine, peers_may=["reed"])  # type: ignore[list-item]

    threads(call, 2)


def test_a_wait_ends_with_the_job() -> None:
    def call(comm: Communicator) -> str:
        window = comm.window(np.zeros(4))
        window.set_timeout(0.2 if comm.rank == 0 else 60.0)
        with pytest.raises(roundelay.Error) as error:
            window.wait_signal(1 - comm.rank)
        return error.value.code

    assert threads(call, 2) == ["RL0703", "RL0703"]
