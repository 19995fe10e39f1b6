"""Processes that are forked from a rank: they are none, are refused by name, and leave the rank unharmed."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import WAYS, forked
from ranks import processes

import roundelay
from roundelay import Communicator, Endpoint

REFUSED = r"(\w+): this (\w+) belongs to process (\d+), and process (\d+), which was forked from it, is no rank: "


def refused(said: str, kind: str = "UsageError") -> bool:
    """Return True if a child was refused by name: whose the object is, and which process has used it."""
    found = re.match(REFUSED, said)
    return found is not None and found[1] == kind and int(found[3]) == os.getpid() != int(found[4])


def sums(comm: Communicator) -> list[float]:
    """Return the sums of ones that the ranks come to, in calls of every size."""
    got = []
    for value, count in ((1, 4), (2, 4), (3, 1 << 18)):
        data = np.full(count, value, np.float32)
        comm.all_reduce(data)
        got.append(float(data[0]) / value)
        assert (data == data[0]).all()
    return got


def _hundreds(count: int = 4) -> Any:
    return np.full(count, 100.0, np.float32)


def calls(comm: Communicator) -> dict[str, Callable[[], Any]]:
    """Return all that a child may try, by name."""
    peer = 1 - comm.rank
    whole = list(range(comm.size))
    return {
        "all_reduce": lambda: comm.all_reduce(_hundreds(), timeout=3),
        "big": lambda: comm.all_reduce(_hundreds(1 << 18), timeout=3),
        "barrier": lambda: comm.barrier(timeout=3),
        "empty": lambda: comm.all_reduce(_hundreds(0)),
        "started": lambda: comm.all_reduce(_hundreds(), async_op=True, timeout=3),
        "send": lambda: comm.send(_hundreds(), peer, tag=1),
        "isend": lambda: comm.send(_hundreds(), peer, tag=1, async_op=True),
        "recv": lambda: comm.recv(_hundreds(), peer, tag=1, timeout=3),
        "recv any": lambda: comm.recv(_hundreds(), tag=1, timeout=3),
        "batch": lambda: comm.batch().send(_hundreds(), peer).recv(_hundreds(), peer).run(timeout=3),
        "split": lambda: comm.split(whole),
        "handle": comm.handle,
        "reconfigure": lambda: comm.reconfigure(["x"], timeout=3),
        "shrink": lambda: comm.shrink(timeout=3),
        "tolerant": lambda: comm.tolerant_all_reduce(_hundreds()),
        "alloc": lambda: comm.alloc(4096),
        "window": lambda: comm.window(_hundreds()),
        "hints": lambda: comm.set_hints({}),
        "timeout": lambda: comm.set_timeout(1),
        "explain": lambda: comm.explain("all_reduce", 8),
        "flight": comm.flight,
        "uninstall": lambda: comm.uninstall("all_reduce"),
        "cuda": lambda: comm.cuda(),
        "abort": lambda: comm.abort("the child ends it"),
        "shutdown": comm.shutdown,
    }


def every_call(comm: Communicator, way: str, only: bool) -> Any:
    assert sums(comm) == [2.0] * 3
    comm.all_reduce(_hundreds(), async_op=True).wait()  # type: ignore[union-attr]
    found = {}
    if comm.rank == 0 or not only:
        for name, call in calls(comm).items():
            said = forked(call, way)
            found[name] = refused(said) or said
    return found, sums(comm)


@pytest.mark.parametrize("hints", [{}, {"transport": "tcp"}], ids=["shm", "tcp"])
@pytest.mark.parametrize("only", [False, True], ids=["all", "one"])
@pytest.mark.parametrize("way", WAYS)
def test_a_child_is_refused_and_the_ranks_go_on(way: str, only: bool, hints: dict[str, str]) -> None:
    for rank, (found, got) in enumerate(processes(every_call, 2, way, only, hints=hints)):
        wrong = {name: said for name, said in found.items() if said is not True}
        assert not wrong and got == [2.0] * 3, (rank, wrong)
        assert bool(found) == (rank == 0 or not only)


def handles(comm: Communicator, way: str) -> Any:
    """A child uses what its parent has started, and windows, messages and memory of its parent."""
    peer, gone = 1 - comm.rank, {}
    one, more = np.ones(8, np.float32), np.ones(1 << 16, np.float32)
    exposed = np.frombuffer(comm.alloc(64), np.float32)
    windows = {"mapped": comm.window(exposed), "served": comm.window(np.zeros(16, np.float32))}
    pending: list[Any] = []
    if comm.rank == 0:
        # The other rank does not answer before the children were there.
        pending = [comm.recv(one, peer, tag=7, async_op=True), comm.all_reduce(more, async_op=True)]
    for at, work in enumerate(pending):
        gone[f"wait {at}"] = forked(lambda work=work: work.wait(20), way)
        gone[f"exception {at}"] = forked(lambda work=work: _raised(work.exception()), way)
        assert forked(lambda work=work: (work.done(), work), way) == "(True, <roundelay.Work: failed>)"
        assert forked(lambda work=work: [work.add_done_callback(print)], way) == "[None]"
    for name, window in windows.items():
        for what, call in {
            "put": lambda: window.put(_hundreds(), peer, 0),
            "put async": lambda: window.put(_hundreds(), peer, 0, async_op=True).wait(5),
            "get": lambda: window.get(_hundreds(), peer, 0),
            "accumulate": lambda: window.accumulate(_hundreds(), peer, 0),
            "fetch_add": lambda: window.fetch_add(1, peer, 0),
            "signal": lambda: window.signal(peer),
            "wait_signal": lambda: window.wait_signal(peer),
            "take_signal": lambda: window.take_signal(peer),
            "flush": lambda: window.flush(peer),
            "withdraw": lambda: window.withdraw("read", "write", "atomics"),
            "free": window.free,
        }.items():
            gone[f"{name} {what}"] = forked(call, way)
    assert forked(lambda: [windows.clear(), pending.clear(), gc.collect()] and 0, way) == "0"
    if comm.rank == 1:
        comm.send(np.full(8, 3, np.float32), peer, tag=7)
        comm.all_reduce(more)
    for work in pending:
        work.wait(60)
    assert comm.rank == 1 or ((one == 3).all() and (more == 2).all())
    comm.barrier()
    for window in windows.values():
        window.put(np.full(4, 9, np.float32), peer, 0)
        window.signal(peer)
        window.wait_signal(peer)
        got = np.zeros(16, np.float32)
        window.get(got, comm.rank, 0)
        assert got[:4].tolist() == [9] * 4 and not got[4:].any(), got
    comm.barrier()
    for window in windows.values():
        window.free()
    return {name: said for name, said in gone.items() if not refused(said)}, sums(comm)


def _raised(error: BaseException | None) -> None:
    if error is not None:
        raise error


@pytest.mark.parametrize("hints", [{}, {"transport": "tcp"}], ids=["shm", "tcp"])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_rank_has_made_and_started_is_not_for_its_children(way: str, hints: dict[str, str]) -> None:
    for wrong, got in processes(handles, 2, way, hints=hints):
        assert not wrong and got == [2.0] * 3


def own_job(comm: Communicator, way: str) -> Any:
    """Children, and children of these, make ranks of their own, and those of their parents stay refused."""

    def own() -> Any:
        ranks = Communicator.local(2)
        got: list[Any] = [None, None]

        def one(rank: int) -> None:
            got[rank] = sums(ranks[rank])
            work = ranks[rank].all_reduce(_hundreds(), async_op=True)
            assert work is not None
            work.wait(20)

        running = [threading.Thread(target=one, args=(rank,)) for rank in range(2)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join(30)
        parent = ranks[0]
        try:
            comm.all_reduce(_hundreds(), timeout=3)
            return "the communicator of the parent is not refused"
        except roundelay.UsageError:
            grandchild = forked(lambda: parent.barrier(timeout=3), way)
            return got, refused(grandchild), "is no rank" in forked(lambda: comm.barrier(timeout=3), way)

    def alone() -> Any:
        with Communicator.alone() as single:
            data = _hundreds()
            single.all_reduce(data)
            return data.tolist()

    return forked(own, way), forked(lambda: forked(alone, way), way), sums(comm)


@pytest.mark.parametrize("way", WAYS)
def test_a_child_may_make_ranks_of_its_own(way: str) -> None:
    expected = str(([[2.0] * 3] * 2, True, True)), repr(repr([100.0] * 4)), [2.0] * 3
    assert processes(own_job, 2, way) == [expected] * 2


def blocks(comm: Communicator) -> Any:
    """A block of the communicator that an exception leaves in a child is left, and the rank stays in it."""

    def leave() -> str:
        try:
            with comm:
                raise ValueError("of the child")
        except ValueError as error:
            return str(error)

    def end() -> None:
        with comm:
            pass

    return forked(leave), forked(end), sums(comm)


def test_a_child_leaves_a_block_alone() -> None:
    assert processes(blocks, 2) == [("'of the child'", "None", [2.0] * 3)] * 2


def queued(comm: Communicator) -> Any:
    """Workers of multiprocessing use a queue, fail, and end by their exit handlers."""
    context: Any = multiprocessing.get_context("fork")
    queue = context.Queue()

    def work() -> None:
        try:
            comm.all_reduce(_hundreds(), timeout=3)
            queue.put("no error")
        except roundelay.UsageError as error:
            queue.put(error.code)
        raise RuntimeError("of the child")

    children = [context.Process(target=work) for _ in range(2)]
    for child in children:
        child.start()
    said = [queue.get(timeout=40) for _ in children]
    for child in children:
        child.join(40)
    return said, [child.exitcode for child in children], sums(comm)


def test_workers_of_multiprocessing_are_refused_by_code() -> None:
    assert processes(queued, 2) == [(["RL0718"] * 2, [1, 1], [2.0] * 3)] * 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_links_and_regions_are_not_for_children(transport: str, way: str) -> None:
    hints = {"transport": transport, "interface": "127.0.0.1"}
    with Endpoint(hints=hints, timeout=60) as a, Endpoint(hints=hints, timeout=60) as b:
        begun = a.start_connect(b.address, 60), b.start_connect(a.address, 60)
        to_b, to_a = begun[0].wait(), begun[1].wait()
        assert to_a is not None and to_b is not None
        mine = np.zeros(64, np.uint8)
        region = b.register(mine)
        there = to_b.region(region.key)
        data = np.full(8, 7, np.uint8)
        tries: dict[str, Callable[[], Any]] = {
            "connect": lambda: a.start_connect(b.address, 3).wait(),
            "register": lambda: a.register(data),
            "close endpoint": a.close,
            "region": lambda: to_b.region(region.key),
            "write": lambda: there.write(data, 0),
            "write async": lambda: there.write(data, 0, async_op=True).wait(5),  # type: ignore[union-attr]
            "read": lambda: there.read(data, 0),
            "notify": lambda: to_b.notify(1),
            "wait_notification": lambda: to_a.wait_notification(3),
            "abort": lambda: to_b.abort(),
            "close link": to_b.close,
            "revoke": region.revoke,
        }
        said = {name: forked(call, way) for name, call in tries.items()}
        assert {name: text for name, text in said.items() if not refused(text)} == {}
        assert forked(lambda: (to_b.is_open, a.closed), way) == "(False, True)"
        assert to_b.is_open and not a.closed
        there.write(data, 0, notify=3)
        assert to_a.wait_notification(60) == 3 and mine[:9].tolist() == [7] * 8 + [0]


SURVIVOR = """
import os, select, signal, sys, time
import numpy as np, roundelay
sys.path.insert(0, sys.argv[4])
from test_fork import Folder
rank, size = int(sys.argv[1]), int(sys.argv[2])
comm = roundelay.Communicator.join(
    rank, size, Folder(sys.argv[3]), hints={"transport": "tcp"}, host=f"host {rank}", timeout=60
)
data = np.ones(4, np.float32)
comm.all_reduce(data)
comm.all_reduce(data, async_op=True).wait()
if rank == 1:
    for _ in range(2):
        if os.fork() == 0:
            # The children live until the test ends.
            os.close(1)
            sys.stdin.read()
            os._exit(0)
    print("ready", flush=True)
    sys.stdin.read()
print("ready", flush=True)
try:
    comm.all_reduce(data)
except roundelay.LostRankError as error:
    print(time.time(), error.peer, flush=True)
"""


class Folder:
    """A store of files."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    def set(self, key: str, value: bytes, /) -> None:
        draft = self.path / f"draft {os.getpid()}"
        draft.write_bytes(value)
        draft.rename(self.path / key.replace("/", "-"))

    def get(self, key: str, /) -> bytes | None:
        place = self.path / key.replace("/", "-")
        return place.read_bytes() if place.exists() else None


def test_the_death_of_a_rank_alone_on_its_host_is_seen_though_its_children_live(tmp_path: Path) -> None:
    def start(rank: int) -> subprocess.Popen[str]:
        args = [sys.executable, "-c", SURVIVOR, str(rank), "3", str(tmp_path), str(Path(__file__).parent)]
        return subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    ranks = [start(rank) for rank in range(3)]
    try:
        for rank in ranks:
            assert rank.stdout is not None and rank.stdout.readline() == "ready\n"
        killed = time.time()
        ranks[1].send_signal(signal.SIGKILL)
        for rank in (ranks[0], ranks[2]):
            assert rank.stdout is not None
            at, peer = rank.stdout.readline().split()
            # It is the end of its connections that is seen: long before any deadline.
            assert peer == "1" and float(at) - killed < 20
    finally:
        for rank in ranks:
            rank.kill()
            assert rank.stdin is not None
            rank.stdin.close()
            rank.wait()
