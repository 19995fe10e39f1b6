"""Calls without elements: counted on all ranks alike, and another call where one rank alone makes one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ranks import processes, threads

import roundelay
from roundelay import Communicator

ALL_MEET = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "hinted", "started")
ROOTED = ("broadcast", "reduce")


def call(comm: Communicator, what: str, size: int, step: int) -> tuple[float | None, float]:
    """Make a call of a number of elements; return an element of its result, and what that must be."""
    r, n, value = comm.rank, comm.size, 100 * step + 1
    x = np.full(size, value + r, np.float32)
    out, wide = np.zeros(size * n, np.float32), np.full(size * n, value + r, np.float32)
    total, last = n * value + n * (n - 1) // 2, value + n - 1
    wanted: float = total
    if what == "all_reduce":
        comm.all_reduce(x)
    elif what == "hinted":
        comm.all_reduce(x, hints={"algorithm": "ring"})
    elif what == "started":
        work = comm.all_reduce(x, async_op=True)
        assert work is not None
        work.wait()
    elif what == "reduce":
        comm.reduce(x, root=1)
        wanted = total if r == 1 or not size else x[0]
    elif what == "broadcast":
        comm.broadcast(x, root=1)
        wanted = value + 1
    elif what == "all_gather":
        comm.all_gather_single(out, x)
        x, wanted = out[-1:], last
    elif what == "reduce_scatter":
        comm.reduce_scatter_single(x, wide)
    else:
        comm.all_to_all_single(out, wide)
        x, wanted = out[-1:], last
    return (float(x[0]) if x.size else None), float(wanted)


def shifts(comm: Communicator, what: str, empty: list[int]) -> list[Any]:
    """Make calls of which one has no elements on some ranks; return whether each had the right result, or its error."""
    comm.set_timeout(60)
    made: list[Any] = []
    try:
        for step in range(4):
            got, wanted = call(comm, what, 0 if step == 1 and comm.rank in empty else 4, step)
            made.append(got is None or got == wanted)
        comm.barrier()
        made.append("met")
    except roundelay.Error as error:
        made.append(type(error).__name__)
    return made


@pytest.mark.parametrize("hints", [None, {"transport": "tcp"}], ids=["memory", "tcp"])
@pytest.mark.parametrize("what", ALL_MEET + ROOTED)
def test_one_rank_without_elements(what: str, hints: Any) -> None:
    made = processes(shifts, 3, what, [0], hints=hints)
    for rank, steps in enumerate(made):
        *right, error = steps
        assert error in ("MismatchError", "AbortedError"), made
        assert all(right), made
        # A rank that only sends learns of it behind the call.
        assert len(right) <= 1 or what in ROOTED and rank != 0, made
    assert "MismatchError" in [steps[-1] for steps in made], made


@pytest.mark.parametrize("what", ALL_MEET + ROOTED)
def test_all_ranks_without_elements(what: str) -> None:
    for made in threads(shifts, 3, what, [0, 1, 2]):
        assert made == [True, True, True, True, "met"]


def unequal(comm: Communicator) -> None:
    r, counts = comm.rank, [0, 2, 1]
    for _ in range(2):
        out = np.zeros(3, np.int64)
        comm.all_gather_v(out, np.full(counts[r], r), counts)
        assert out.tolist() == [1, 1, 2]
        sent = [[0, 0, 0], [1, 2, 0], [3, 1, 0]]
        received = [row[r] for row in sent]
        out = np.zeros(sum(received), np.int64)
        comm.all_to_all_v(out, received, np.full(sum(sent[r]), r), sent[r])
        assert out.tolist() == [rank for rank in range(3) for _ in range(received[rank])]
    x = np.ones(2)
    comm.all_reduce(x)
    assert x.tolist() == [3, 3]


def test_counts_that_differ_may_be_zero() -> None:
    threads(unequal, 3)


def odd_message(comm: Communicator) -> str:
    comm.set_timeout(60)
    try:
        if comm.rank == 0:
            comm.send(np.zeros(0, np.float32), 1)
        else:
            comm.recv(np.zeros(1, np.float32), 0)
        comm.barrier()
    except roundelay.Error as error:
        return type(error).__name__
    return "fine"


def test_a_message_without_elements_is_received_as_one() -> None:
    assert set(processes(odd_message, 2)) <= {"MismatchError", "AbortedError"}
