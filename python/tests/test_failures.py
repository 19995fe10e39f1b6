"""Ranks that die, fail, or do something else: what the others are told, and when."""

from __future__ import annotations

import builtins
import os
import pickle
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from ranks import processes, threads

import roundelay
from roundelay import AbortedError, Communicator, LostRankError, MismatchError, OperationTimeoutError


def survive(comm: Communicator, folder: str, in_background: bool, how: int) -> None:
    """Rank 1 dies in the middle; every other rank writes what it is told, and after how long."""
    data = np.ones(1 << 16, "float32")
    comm.all_reduce(data)
    if comm.rank == 1:
        os.kill(os.getpid(), how)
    begin = time.monotonic()
    try:
        while True:
            work = comm.all_reduce(data, "max", async_op=in_background)
            if work is not None:
                work.wait()
    except LostRankError as error:
        took = time.monotonic() - begin
        said = f"{error.peer} {error.code} {took < 5} {isinstance(error, ConnectionError)} {error}"
    with open(os.path.join(folder, str(comm.rank)), "w", encoding="utf-8") as file:
        file.write(said)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("in_background", [False, True])
def test_survivors_of_a_killed_rank_are_told_who_died(tmp_path: Any, n: int, in_background: bool) -> None:
    begin = time.monotonic()
    with pytest.raises(LostRankError, match=r"rank 1 is gone: its process \d+ was ended by SIGKILL") as error:
        processes(survive, n, str(tmp_path), in_background, signal.SIGKILL)
    assert error.value.peer == 1
    assert time.monotonic() - begin < 60
    for rank in {0, n - 1} - {1}:
        said = (tmp_path / str(rank)).read_text()
        assert said.startswith("1 RL0704 True True ") and "rank 1 is gone" in said


def test_a_rank_that_stops_is_named_at_the_deadline() -> None:
    def call(comm: Communicator) -> Any:
        if comm.rank == 1:
            return None
        data = np.zeros(3)
        begin = time.monotonic()
        with pytest.raises(OperationTimeoutError, match="rank 1") as error:
            comm.all_reduce(data, timeout=0.3)
        assert time.monotonic() - begin < 20
        assert (error.value.rank, error.value.peer, error.value.code) == (0, 1, "RL0703")
        assert error.value.step is not None
        assert error.value.source is None or ":" in error.value.source
        # The communicator has ended.
        with pytest.raises(roundelay.Error):
            comm.barrier()

    ranks = Communicator.local(2)
    call(ranks[0])


@pytest.mark.parametrize("other", ["broadcast", "barrier"])
def test_ranks_that_call_different_things_are_told_both(other: str) -> None:
    for _ in range(5):  # Both find it out at once, or one is notified by the other.
        said: list[str] = []

        def call(comm: Communicator, said: list[str] = said) -> None:
            data = np.zeros(8)
            try:
                if comm.rank == 0:
                    comm.all_reduce(data)
                elif other == "barrier":
                    comm.barrier()
                else:
                    comm.broadcast(data)
            except (MismatchError, AbortedError) as error:
                said.append(str(error))
            else:
                raise AssertionError("different calls went through")

        threads(call, 2)
        assert len(said) == 2
        for text in said:
            assert "do not make the same call" in text
            assert "of rank 0 is all_reduce" in text and f"of rank 1 is {other}" in text, text


def test_different_counts_and_types_are_errors_on_all_ranks() -> None:
    for left, right in ((np.zeros(8), np.zeros(9)), (np.zeros(8), np.zeros(8, "int64"))):
        told = []

        def call(comm: Communicator, left: Any = left, right: Any = right, told: list[str] = told) -> None:
            with pytest.raises((MismatchError, AbortedError)) as error:
                comm.all_reduce(left if comm.rank == 0 else right)
            told.append(type(error.value).__name__)

        threads(call, 2)
        assert len(told) == 2 and "MismatchError" in told


def test_abort_from_another_thread() -> None:
    ranks = Communicator.local(2)
    work = ranks[0].all_reduce(np.zeros(4), async_op=True)
    assert work is not None and not ranks[1].aborted
    ranks[0].abort("the user went home")
    with pytest.raises(AbortedError, match="the user went home"):
        work.wait(60)
    assert isinstance(work.exception(), AbortedError)
    assert ranks[0].aborted and ranks[1].aborted
    with pytest.raises(AbortedError):
        ranks[1].barrier()


def test_a_context_that_raises_ends_the_others() -> None:
    def call(comm: Communicator) -> None:
        if comm.rank == 0:
            with pytest.raises(ZeroDivisionError), comm:
                raise ZeroDivisionError("of rank 0")
        else:
            with pytest.raises(AbortedError, match="rank 0 raised ZeroDivisionError: of rank 0"), comm:
                comm.barrier()
        with pytest.raises(roundelay.UsageError, match="was shut down: make a new one"):
            comm.barrier()

    threads(call, 2)


def test_the_flight_recorder_has_the_latest_calls() -> None:
    def call(comm: Communicator) -> dict[str, Any]:
        comm.all_reduce(np.zeros(8))
        return comm.flight()

    flight = threads(call, 2)[0]
    assert "all_reduce" in str(flight)


def test_errors_travel_between_processes() -> None:
    error = roundelay.OperationTimeoutError("late", code="RL0703", rank=1, peer=2, step=3, source="a.algo:1:2")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is roundelay.OperationTimeoutError and str(again) == "late"
    assert vars(again) == vars(error)


def test_names_that_shadowed_builtins_are_of_the_same_classes() -> None:
    for module in (roundelay, roundelay.errors):
        assert module.TimeoutError is module.OperationTimeoutError
        assert module.MemoryError is module.OutOfMemoryError
        assert not set(module.__all__) & set(vars(builtins)), module
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'KeyError'"):
            module.KeyError  # noqa: B018
    assert issubclass(roundelay.OperationTimeoutError, builtins.TimeoutError)
    assert not issubclass(roundelay.OutOfMemoryError, builtins.TimeoutError)
    # As it was pickled by a process that has the old name.
    assert pickle.loads(b"croundelay.errors\nTimeoutError\n.") is roundelay.OperationTimeoutError


ORPHANS = r"""
import os, sys, time
import roundelay

def main(comm, folder):
    with open(os.path.join(folder, str(comm.rank)), "w") as file:
        file.write(str(os.getpid()))
    comm.barrier()
    sys.stdout.write("up\n")
    sys.stdout.flush()
    time.sleep(600)

if __name__ == "__main__":
    roundelay.launch(main, 2, sys.argv[1])
"""


def test_ranks_end_with_their_launcher(tmp_path: Any) -> None:
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    child = subprocess.Popen([sys.executable, str(script), str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
    finally:
        child.kill()
        child.wait()
    until = time.monotonic() + 60
    pids = [int((tmp_path / rank).read_text()) for rank in "01"]
    while any(_alive(pid) for pid in pids):
        assert time.monotonic() < until, "a rank outlived its launcher"
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
