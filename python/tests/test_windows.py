"""Windows: what is put is there after a signal, mistakes are refused, and arrays live as long as they are used."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np
import pytest
from ranks import processes, threads

import roundelay
from roundelay import Communicator, Work
from roundelay._buffers import _get_pointer, _Tensor


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


class OnCuda:
    """Memory of the host that says by DLPack that it is on a GPU: what is refused is not looked at."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.data.__dlpack__()
        _Tensor.from_address(_get_pointer(capsule, b"dltensor")).device_type = 2
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def test_memory_of_a_gpu_needs_one() -> None:
    def call(comm: Communicator) -> None:
        on_gpu, mine = OnCuda(np.zeros(10)), np.zeros(10)
        for device_comm in (comm, comm.cuda_mixed(False)):
            with pytest.raises(roundelay.UsageError, match="this communicator has no GPUs") as error:
                device_comm.window(on_gpu)
            assert error.value.code == "RL0712"
        with pytest.raises(roundelay.UnsupportedError, match="fewer rights than all") as refused:
            comm.window(on_gpu, peers_may=["read"])
        assert refused.value.code == "RL0706"
        window = comm.window(mine)
        for wrong in (
            lambda: window.put(on_gpu, 0),
            lambda: window.get(on_gpu, 0),
            lambda: window.accumulate(on_gpu, 0),
            lambda: window.put(on_gpu, 0, async_op=True),
        ):
            with pytest.raises(roundelay.UsageError, match="is of memory of this host, and the buffer") as usage:
                wrong()
            assert usage.value.code == "RL0712"
        with pytest.raises(roundelay.UsageError, match="it has no stream"):
            window.signal(0, stream=1)
        with pytest.raises(roundelay.UsageError, match="the word is returned"):
            window.fetch_add(1, 0, before=on_gpu)
        with pytest.raises(roundelay.WindowError, match="served by its own process"):
            window.map_remote(1 - comm.rank)
        comm.barrier()
        assert not mine.any()
        window.free()

    threads(call, 2)


def test_ranks_that_have_no_gpu_need_none() -> None:
    def call(comm: Communicator) -> tuple[str, int | None]:
        mixed = comm.cuda_mixed(False)
        data = np.full(10, comm.rank + 1.0)
        mixed.all_reduce(data)
        window = mixed.window(data)
        window.put(np.full(1, 7.0), 1 - mixed.rank, 9)
        window.signal(1 - mixed.rank)
        window.wait_signal(1 - mixed.rank)
        assert data.tolist() == [3.0] * 9 + [7.0]
        window.free()
        with pytest.raises(roundelay.UsageError, match="a rank without a GPU names none"):
            comm.cuda_mixed(False, 0)
        with pytest.raises(roundelay.CudaError) as error:
            comm.cuda_mixed(comm.rank == 1, 999 if comm.rank == 1 else None)
        return error.value.code, error.value.rank

    assert threads(call, 2) == [("RL0710", 1), ("RL0710", 1)]
