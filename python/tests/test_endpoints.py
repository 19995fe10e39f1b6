"""Endpoints: arrays of single peers, between threads and between processes, over shared memory and TCP."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import roundelay
from roundelay import Endpoint, Link

WAYS = ["shm", "tcp"]
LIMIT = 60.0


def bind(way: str, **given: Any) -> Endpoint:
    return Endpoint(hints={"transport": way, "interface": "127.0.0.1"}, timeout=LIMIT, **given)


def connected(a: Endpoint, b: Endpoint) -> tuple[Link, Link]:
    begun = a.start_connect(b.address, LIMIT), b.start_connect(a.address, LIMIT)
    return begun[0].wait(), begun[1].wait()


@pytest.mark.parametrize("way", WAYS)
def test_arrays_are_written_and_read(way: str) -> None:
    with bind(way) as a, bind(way) as b:
        to_b, to_a = connected(a, b)
        assert (to_b.transport, to_b.is_open, {to_b.side, to_a.side}) == (way, True, {0, 1})
        mine = np.zeros(100_000, np.float32)
        region = b.register(mine)
        there = to_b.region(region.key)
        assert len(there) == mine.nbytes
        data = np.arange(50_000, dtype=np.float32)
        there.write(data, 400, notify=2**63 + 5)
        assert to_a.wait_notification(LIMIT) == 2**63 + 5
        assert (mine[100:50_100] == data).all() and not mine[:100].any() and not mine[50_100:].any()
        got = bytearray(800)
        there.read(got, 400)
        assert np.frombuffer(got, np.float32).tolist() == data[:200].tolist()
        works = [there.write(np.full(1000, i, np.float32), 4000 * i, async_op=True) for i in range(20)]
        gc.collect()
        for work in works:
            assert work is not None
            work.wait()
        assert (mine[:20_000] == np.repeat(np.arange(20, dtype=np.float32), 1000)).all()
        assert to_b.wait_notification(0.01) is None
        with pytest.raises(roundelay.WindowError, match="ends at byte 400000"):
            there.write(data, 400_000)
        with pytest.raises(roundelay.UsageError, match="counted from 0"):
            there.read(got, -1)
        read_only = to_b.region(b.register(b"constant", ["read"]).key)
        with pytest.raises(roundelay.WindowError):
            read_only.write(b"other", 0)
        region.revoke()
        with pytest.raises(roundelay.WindowError, match="revoked"):
            there.write(data, 0)


@pytest.mark.parametrize("way", WAYS)
def test_words_are_added_to_and_swapped(way: str) -> None:
    with bind(way) as a, bind(way) as b:
        to_b, _to_a = connected(a, b)
        mine = np.zeros(3, np.uint64)
        region = b.register(mine, ("read", "atomics"))
        there = to_b.region(region.key)
        assert there.fetch_add(5, 8) == 0
        assert there.fetch_add(-6, 8) == 5
        assert there.compare_swap(-1, 2**63, at=8) == 2**64 - 1
        assert there.compare_swap(0, 7, at=8) == 2**63
        assert there.fetch_add(1) == 0
        assert mine.tolist() == [1, 2**63, 0]
        with pytest.raises(roundelay.WindowError, match="multiple of 8"):
            there.fetch_add(1, 4)
        with pytest.raises(roundelay.WindowError, match="ends at byte 24"):
            there.compare_swap(0, 1, 24)
        with pytest.raises(roundelay.UsageError, match="counted from 0"):
            there.fetch_add(1, -8)
        with pytest.raises(roundelay.WindowError, match="write"):
            there.write(b"12345678")
        plain = b.register(np.zeros(1, np.uint64))
        with pytest.raises(roundelay.WindowError, match="atomics"):
            to_b.region(plain.key).fetch_add(1)
        with pytest.raises(roundelay.UsageError, match="multiple of 8"):
            b.register(mine.view(np.uint8)[4:20], ("atomics",))
        with pytest.raises(roundelay.UsageError):
            b.register(bytes(16), ("atomics",))
        assert mine.tolist() == [1, 2**63, 0]


@pytest.mark.parametrize("way", WAYS)
def test_a_close_ends_waits(way: str) -> None:
    a, b = bind(way), bind(way)
    to_b, to_a = connected(a, b)
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            to_b.wait_notification(LIMIT)
        except roundelay.Error as error:
            ended.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    a.close()
    thread.join(LIMIT)
    assert [type(error) for error in ended] == [roundelay.WindowError], ended
    assert a.closed and not to_b.is_open
    with pytest.raises(roundelay.LostRankError):
        to_a.wait_notification(LIMIT)


def test_another_secret_is_refused() -> None:
    a, b = bind("tcp", secret="one"), bind("tcp", secret="other")
    begun = a.start_connect(b.address, 10.0), b.start_connect(a.address, 10.0)
    said = []
    for connecting in begun:
        with pytest.raises(roundelay.Error) as error:
            connecting.wait()
        said.append(str(error.value))
    assert any("secret" in text for text in said), said
    with pytest.raises(roundelay.UsageError, match="not the address"):
        a.connect(b"nonsense")


PEER = """
import sys, numpy, roundelay
from pathlib import Path
folder, way = Path(sys.argv[1]), sys.argv[2]
endpoint = roundelay.Endpoint(hints={"transport": way, "interface": "127.0.0.1"}, timeout=60)
mine = numpy.zeros(1 << 20, numpy.uint8)
region = endpoint.register(mine)
(folder / "draft").write_bytes(region.key + endpoint.address)
(folder / "draft").rename(folder / "peer")
link = endpoint.connect((folder / "own").read_bytes(), 60)
assert link.wait_notification(60) == 1
assert (mine == 7).all()
mine[:] = 8
link.notify(2)
link.wait_notification(60)
print("not killed")
"""


@pytest.mark.parametrize("way", WAYS)
def test_a_process_that_is_killed_is_found_out(way: str, tmp_path: Path) -> None:
    with bind(way) as endpoint:
        (tmp_path / "own").write_bytes(endpoint.address)
        peer = subprocess.Popen([sys.executable, "-c", PEER, str(tmp_path), way])
        try:
            until = time.monotonic() + LIMIT
            while not (tmp_path / "peer").exists():
                assert peer.poll() is None and time.monotonic() < until
                time.sleep(0.01)
            said = (tmp_path / "peer").read_bytes()
            link = endpoint.connect(said[36:], LIMIT)
            there = link.region(said[:36])
            there.write(np.full(1 << 20, 7, np.uint8), notify=1)
            assert link.wait_notification(LIMIT) == 2
            got = np.zeros(1 << 20, np.uint8)
            there.read(got)
            assert (got == 8).all()
            peer.kill()
            peer.wait()
            with pytest.raises(roundelay.LostRankError):
                for _ in range(1000):
                    there.write(got)
            assert not link.is_open
        finally:
            peer.kill()
            peer.wait()
