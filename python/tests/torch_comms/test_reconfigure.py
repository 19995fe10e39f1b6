"""Communicators by the API of torchcomms that live on with other ranks; each rank is a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import jobs
import pytest

torch = pytest.importorskip("torch", reason="the API of torchcomms needs torch")

import roundelay.torchcomms as torchcomms  # noqa: E402
from roundelay.errors import AbortedError, OperationTimeoutError, StartError, UsageError  # noqa: E402

LIMIT = timedelta(seconds=20)


class Board:
    """Handles of ranks, by generation."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.notes: dict[tuple[int, int], str] = {}
        self.done: set[tuple[int, int]] = set()
        self.failed = False

    def handles(self, generation: int, number: int, comm: Any, ranks: list[int]) -> list[str]:
        with self.changed:
            self.notes[generation, number] = comm.get_init_handle()
            self.changed.notify_all()
            keys = [(generation, rank) for rank in ranks]
            self.changed.wait_for(lambda: self.failed or all(key in self.notes for key in keys), 60)
            return [self.notes[key] for key in keys]

    def finished(self, generation: int, number: int, ranks: list[int]) -> None:
        """Wait until these ranks have made their calls of a generation: a message is sent before it has arrived."""
        with self.changed:
            self.done.add((generation, number))
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.failed or all((generation, rank) in self.done for rank in ranks), 60)

    def fails(self) -> None:
        with self.changed:
            self.failed = True
            self.changed.notify_all()


def run_ranks(size: int, body: Callable[[int, Any, Board], Any]) -> list[Any]:
    """Return what ``body(number, comm, board)`` returns in each of so many threads."""
    board = Board(size)

    def rank(number: int) -> Any:
        try:
            comm = torchcomms.new_comm("roundelay", "cpu", "job", timeout=LIMIT, enable_reconfigure=True)
            result = body(number, comm, board)
            comm.finalize()
        except BaseException:
            board.fails()
            raise
        return result

    return jobs.threads(size, rank)


def told(comm: Any) -> list[Any]:
    """Return rank and size, and what a sum and a message give."""
    rank, size = comm.get_rank(), comm.get_size()
    tensor = torch.full((1000,), rank + 1.0)
    comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, async_op=True).wait()
    got = torch.full((3,), -1.0)
    if size > 1:
        sent = comm.send(torch.full((3,), float(rank)), (rank + 1) % size, async_op=True)
        comm.recv(got, (rank - 1) % size, async_op=False)
        sent.wait()
    assert (tensor == tensor[0]).all()
    return [rank, size, tensor[0].item(), got[0].item()]


def test_ranks_come_go_and_come_back() -> None:
    def body(number: int, comm: Any, board: Board) -> list[Any]:
        with pytest.raises(UsageError, match="call reconfigure first"):
            comm.barrier(async_op=False)
        seen = []
        comm.reconfigure(10 + number, [comm.get_init_handle()]).wait()
        seen.append(told(comm))
        with pytest.raises(UsageError, match="already used"):
            comm.reconfigure(10 + number, [comm.get_init_handle()])
        comm.reconfigure(1, board.handles(1, number, comm, [0, 1, 2]))
        seen.append(told(comm))
        board.finished(1, number, [0, 1, 2])
        if number != 1:
            comm.reconfigure(2, board.handles(2, number, comm, [0, 2]))
            seen.append(told(comm))
        comm.reconfigure(3, board.handles(3, number, comm, [2, 1, 0]), hints={"algorithm": "ring"})
        assert comm.get_backend_impl().explain("all_reduce", 4096, "f32", "sum")[1] == "ring"
        seen.append(told(comm))
        comm.reconfigure(4, set(board.handles(4, number, comm, [0, 1, 2])))
        seen.append([comm.get_size(), comm.get_ranks()])
        return seen

    results = run_ranks(3, body)
    for number, seen in enumerate(results):
        assert seen[0] == [0, 1, 1.0, -1.0]
        assert seen[1] == [number, 3, 6.0, float((number - 1) % 3)]
        if number != 1:
            assert seen[2] == [number // 2, 2, 3.0, 1.0 - number // 2]
        assert seen[-2] == [2 - number, 3, 6.0, float((1 - number) % 3)]
        assert seen[-1] == [3, [0, 1, 2]]


def test_a_communicator_lives_on_after_an_abort_and_a_failed_attempt() -> None:
    def body(number: int, comm: Any, board: Board) -> list[Any]:
        comm.reconfigure(1, board.handles(1, number, comm, [0, 1]))
        board.handles(0, number, comm, [0, 1])  # Both are there: an abort ends what the other does.
        comm.abort()
        with pytest.raises(AbortedError):
            comm.barrier(async_op=False)
        mine = board.handles(2, number, comm, [0, 1])
        # Each names itself first: they do not mean the same generation.
        wrong = mine if number == 0 else mine[::-1]
        with pytest.raises((StartError, OperationTimeoutError)):
            comm.reconfigure(2, wrong, timeout=timedelta(milliseconds=300))
        comm.reconfigure(3, board.handles(3, number, comm, [0, 1]))
        return told(comm)

    assert run_ranks(2, body) == [[0, 2, 3.0, 1.0], [1, 2, 3.0, 0.0]]


def test_what_has_no_store_has_no_parts() -> None:
    def body(number: int, comm: Any, board: Board) -> None:
        comm.reconfigure(1, [comm.get_init_handle()])
        with pytest.raises(UsageError, match="enable_reconfigure"):
            comm.split([0], "part")
        comm.finalize()
        with pytest.raises(UsageError, match="was finalized"):
            comm.get_init_handle()
        with pytest.raises(UsageError, match="was finalized"):
            comm.reconfigure(2, [])

    with pytest.raises(UsageError, match="was finalized"):  # By the test itself, in the end.
        run_ranks(1, body)
