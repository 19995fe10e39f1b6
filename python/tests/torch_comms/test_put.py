"""Windows by the API of torchcomms; each rank is a thread."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import jobs
import pytest

torch = pytest.importorskip("torch", reason="the API of torchcomms needs torch")

import roundelay.torchcomms as torchcomms  # noqa: E402
from roundelay.errors import OperationTimeoutError, UsageError, WindowError  # noqa: E402

COUNT = 3000


def run_ranks(size: int, body: Callable[[int, Any], Any]) -> list[Any]:
    """Return what ``body(rank, comm)`` returns in each of so many threads."""
    store = torch.distributed.HashStore()

    def rank(number: int) -> Any:
        comm = torchcomms.new_comm(
            "roundelay", "cpu", "job", timeout=timedelta(seconds=20), store=store, rank=number, size=size
        )
        result = body(number, comm)
        comm.finalize()
        return result

    return jobs.threads(size, rank)


def part(rank: int, round: int) -> Any:
    return torch.rand(COUNT, generator=torch.Generator().manual_seed(1000 * rank + round), dtype=torch.float64)


def test_what_was_put_is_there_after_a_signal() -> None:
    size = 3

    def body(rank: int, comm: Any) -> None:
        table = torch.full((size, COUNT), -1.0, dtype=torch.float64)
        window = comm.new_window(table)
        after, before = (rank + 1) % size, (rank - 1) % size
        for round in range(20):
            given = part(rank, round)
            window.put(given, after, rank * COUNT, async_op=round % 2 == 1).wait()
            given.fill_(-2.0)  # It is handed over.
            window.signal(after, async_op=False)
            window.wait_signal(before, async_op=round % 3 == 0).wait()
            assert torch.equal(table[before], part(before, round))
            assert (table[after] == -1.0).all() and (table[rank] == -1.0).all()
            comm.barrier(async_op=False)
        assert window.get_size() == table.numel() * 8 and window.dtype == torch.float64
        assert window.get_attr(after).access_type is torchcomms.TorchCommWinAccessType.WIN_ACCESS_TYPE_UNIFIED
        window.tensor_deregister()
        other = torch.zeros(4, dtype=torch.int32)
        window.tensor_register(other)
        window.put(torch.full((2,), rank, dtype=torch.int32), after, 1, async_op=False)
        window.signal(after, async_op=False)
        window.wait_signal(before, async_op=False, timeout=timedelta(seconds=20))
        assert other.tolist() == [0, before, before, 0]
        window.tensor_deregister()

    run_ranks(size, body)


def test_tensors_are_mapped() -> None:
    def body(rank: int, comm: Any) -> None:
        other = 1 - rank
        mine = comm.allocate_tensor(12, dtype=torch.bfloat16).view(3, 4)
        assert not mine.any()
        mine.fill_(rank + 1)
        comm.all_reduce(mine, torchcomms.ReduceOp.SUM, async_op=False)
        assert (mine == 3).all()
        mine[1] = 10 + rank
        window = comm.new_window(mine)
        comm.barrier(async_op=False)
        theirs = window.map_remote_tensor(other)
        assert theirs.shape == (3, 4) and theirs.dtype == torch.bfloat16
        assert (theirs[1] == 10 + other).all() and (theirs[0] == 3).all()
        comm.barrier(async_op=False)
        theirs[2] = 20 + rank
        window.signal(other, async_op=False)
        window.wait_signal(other, async_op=False)
        assert (mine[2] == 20 + other).all()
        window.tensor_deregister()
        # Tensors of other lengths are vectors.
        window.tensor_register(comm.allocate_tensor(2 + rank))
        assert window.map_remote_tensor(other).shape == (2 + other,)
        window.tensor_deregister()

    run_ranks(2, body)


def test_wrong_use_is_refused_and_harms_nobody() -> None:
    def body(rank: int, comm: Any) -> None:
        window = comm.new_window()
        with pytest.raises(UsageError, match="tensor_register on all ranks"):
            window.signal(0, async_op=False)
        with pytest.raises(UsageError, match="must be contiguous"):
            window.tensor_register(torch.ones(4, 4).t())
        own = torch.zeros(8)
        window.tensor_register(own)
        with pytest.raises(UsageError, match="has a tensor already"):
            window.tensor_register(own)
        with pytest.raises(UsageError, match="float64"):
            window.put(torch.zeros(1, dtype=torch.float64), 1 - rank, 0, async_op=False)
        with pytest.raises(UsageError, match="counted from 0"):
            window.put(torch.zeros(1), 1 - rank, -1, async_op=False)
        with pytest.raises(UsageError, match="dst_rank must be in range"):
            window.put(torch.zeros(1), 2, 0, async_op=False)
        with pytest.raises(WindowError):
            window.put(torch.ones(8), 1 - rank, 1, async_op=False)
        with pytest.raises(WindowError, match="served by its own process"):
            window.map_remote_tensor(1 - rank)
        if rank == 0:
            waits = window.wait_signal(1, async_op=True, timeout=timedelta(milliseconds=50))
            assert not waits.is_completed()
            with pytest.raises(OperationTimeoutError, match="signal of rank 1"):
                waits.wait()
        comm.barrier(async_op=False)
        assert (own == 0.0).all()
        window.tensor_deregister()

    run_ranks(2, body)
