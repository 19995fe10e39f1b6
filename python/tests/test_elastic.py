"""Communicators that live on with other ranks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from ranks import LIMIT

import roundelay
from roundelay import Communicator, UnsupportedError, UsageError


def together(ranks: Sequence[Communicator], do: Callable[[Communicator], Any]) -> None:
    """Have every rank do something in a thread of its own."""
    errors: list[BaseException] = []

    def one(comm: Communicator) -> None:
        try:
            do(comm)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(comm,), daemon=True) for comm in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), "a rank hangs"
    for error in errors:
        raise error


def summed(comm: Communicator) -> None:
    data = np.arange(1000, dtype="float64") + comm.rank
    comm.all_reduce(data)
    n = comm.size
    assert (data == n * np.arange(1000) + n * (n - 1) / 2).all()


def test_ranks_leave_and_come() -> None:
    ranks = Communicator.local(3)
    together(ranks, summed)
    ranks[1].shutdown()
    assert ranks[0].abort("a rank left") in (True, False)
    ranks = [ranks[2], ranks[0]]
    handles = [comm.handle() for comm in ranks]
    together(ranks, lambda comm: comm.reconfigure(handles, id="two", timeout=LIMIT))
    assert [(comm.rank, comm.size, comm.aborted) for comm in ranks] == [(0, 2, False), (1, 2, False)]
    together(ranks, summed)
    # As a set: survivors keep their order, and the newcomer is behind them.
    ranks.insert(0, Communicator.alone())
    members = {comm.handle() for comm in ranks}
    together(ranks, lambda comm: comm.reconfigure(members, timeout=LIMIT))
    assert [(comm.rank, comm.size) for comm in ranks] == [(2, 3), (0, 3), (1, 3)]
    together(ranks, summed)


def test_what_makes_no_sense_is_refused_and_changes_nothing() -> None:
    ranks = Communicator.local(2)
    own, other = (comm.handle() for comm in ranks)
    for wrong in [[], [other], [own, other, other], [own, "nobody"]]:
        with pytest.raises(UsageError):
            ranks[0].reconfigure(wrong)
    with pytest.raises(roundelay.Error):
        ranks[0].reconfigure([own, other], timeout=0.2)
    together(ranks, summed)
    with pytest.raises(UsageError, match="had before"):
        ranks[0].reconfigure([own, other])


def test_those_that_are_left_count_themselves_and_go_on() -> None:
    ranks = Communicator.local(3)

    def summed_by(comm: Communicator) -> None:
        data = np.full(10, 1 << comm.rank, dtype="int64")
        counted = comm.tolerant_all_reduce(data)
        assert counted == list(range(comm.size))
        assert (data == 7).all()

    together(ranks, summed_by)
    with pytest.raises(UnsupportedError):
        ranks[0].tolerant_all_reduce(np.zeros(1, dtype="float32"), "xor")
    ranks[1].shutdown()
    left = [ranks[0], ranks[2]]

    def without(comm: Communicator) -> None:
        data = np.full(10, 1 << comm.rank, dtype="int64")
        counted = comm.tolerant_all_reduce(data)
        assert (counted, set(data.tolist())) == ([0, 2], {5})
        comm.shrink(LIMIT)

    together(left, without)
    assert [(comm.rank, comm.size) for comm in left] == [(0, 2), (1, 2)]
    together(left, summed)
