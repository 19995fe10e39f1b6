"""Joining through stores of other people."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import roundelay
from roundelay import Communicator


class Board:
    """A store that waits for nothing, as a dict."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes:
        return self.values[key]


class Empty(Board):
    """A store that loses everything, and says None."""

    def get(self, key: str) -> Any:
        return None


class Broken(Board):
    """A store that fails."""

    def get(self, key: str) -> bytes:
        raise OSError("the disk is full")


def join(n: int, stores: list[Any], **options: Any) -> list[Any]:
    """Join ranks that are threads; return sums, or errors."""
    results: list[Any] = [None] * n

    def one(rank: int) -> None:
        try:
            comm = Communicator.join(rank, n, stores[rank], **options)
            data = np.full(100, rank + 1.0)
            comm.all_reduce(data)
            results[rank] = (comm.rank, comm.size, float(data[0]))
            comm.shutdown()
        except BaseException as error:
            results[rank] = error

    ranks = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(n)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(90)
        assert not rank.is_alive()
    return results


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_dict_is_enough(n: int) -> None:
    board = Board()
    for name in ("world", "again"):
        assert join(n, [board] * n, name=name) == [(rank, n, n * (n + 1) / 2) for rank in range(n)]
    assert n == 1 or set(board.values) == {"roundelay/world", "roundelay/again"}


def test_stores_of_torch(tmp_path: Any) -> None:
    distributed = pytest.importorskip("torch.distributed", reason="its stores are what is tried")
    file = [distributed.FileStore(str(tmp_path / "store"), 2) for _ in range(2)]
    hashed = [distributed.HashStore()] * 2
    for stores in (file, hashed, [distributed.PrefixStore("a", hashed[0])] * 2):
        assert join(2, stores) == [(0, 2, 3.0), (1, 2, 3.0)]


def test_hosts_and_hints_count_when_joining() -> None:
    board = Board()
    assert join(2, [board] * 2, hints={"transport": "tcp"}) == [(0, 2, 3.0), (1, 2, 3.0)]


def test_a_store_without_the_note_is_named() -> None:
    errors = join(2, [Empty()] * 2, timeout=0.5)
    assert isinstance(errors[1], roundelay.StartError)
    assert "the store has had no value at `roundelay/world` for 0.5 s" in str(errors[1])
    assert isinstance(errors[0], roundelay.Error)


def test_what_a_store_raises_is_the_cause() -> None:
    errors = join(2, [Board(), Broken()], timeout=1)
    assert isinstance(errors[1], roundelay.StartError)
    assert "the store of rank 1 failed: OSError: the disk is full" in str(errors[1])
    assert isinstance(errors[1].__cause__, OSError)


def test_wrong_ranks() -> None:
    with pytest.raises(roundelay.UsageError):
        Communicator.join(2, 2, Board())
    with pytest.raises((roundelay.UsageError, OverflowError)):
        Communicator.join(-1, 2, Board())
