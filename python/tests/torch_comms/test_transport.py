"""Transports by torchcomms' names: what its own tests do, on the CPU, and what its interface promises."""

from __future__ import annotations

import gc
import pickle
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="transports move tensors of torch")

import roundelay  # noqa: E402
from roundelay.torchcomms import _memory_table as tables  # noqa: E402
from roundelay.torchcomms._transport import RdmaMemory, RdmaRemoteBuffer, RdmaTransport  # noqa: E402

WAYS = ["shm", "tcp"]
LIMIT = 30.0


def make(way: str, **given: Any) -> RdmaTransport:
    return RdmaTransport("cpu", hints={"transport": way, "interface": "127.0.0.1"}, **{"timeout": LIMIT, **given})


def pair(way: str, **given: Any) -> tuple[RdmaTransport, RdmaTransport]:
    server, client = make(way, name="server", **given), make(way, name="client", **given)
    server_url, client_url = server.bind(), client.bind()
    assert server.connect(client_url) == 0 and client.connect(server_url) == 0
    assert server.connected() and client.connected()
    return server, client


@pytest.mark.parametrize("way", WAYS)
def test_bytes_are_written_and_read(way: str) -> None:
    server, client = pair(way)
    assert RdmaTransport.supported() and server.transport() == client.transport() == way
    source, target = torch.arange(1024).to(torch.uint8), torch.full((1024,), 7, dtype=torch.uint8)
    mine, theirs = RdmaMemory(source), RdmaMemory(target)
    assert server.write(mine.to_view(), theirs.to_remote_buffer()) == 0
    assert torch.equal(source, target)
    for protocol in (0, 1, pickle.HIGHEST_PROTOCOL):
        target.fill_(7)
        remote = pickle.loads(pickle.dumps(theirs.to_remote_buffer(), protocol=protocol))
        assert server.write(mine.to_view(), remote) == 0
        assert torch.equal(source, target)
    target.fill_(7)
    assert client.read(theirs.to_mutable_view(256, 512), mine.to_remote_buffer()) == 0
    expected = torch.full((1024,), 7, dtype=torch.uint8)
    expected[256:768] = source[:512]
    assert torch.equal(target, expected)
    large, empty = torch.randn(1 << 20), torch.full((1 << 20,), -1.0)
    from_large, to_empty = RdmaMemory(large), RdmaMemory(empty)
    server.write(from_large.to_view(), to_empty.to_remote_buffer())
    assert torch.equal(large, empty)
    empty.fill_(-1.0)
    client.read(to_empty.to_mutable_view(), from_large.to_remote_buffer())
    assert torch.equal(large, empty)


def test_views() -> None:
    memory = RdmaMemory(torch.zeros(1024, dtype=torch.uint8))
    for view in (memory.to_view, memory.to_mutable_view):
        assert view().size() == 1024 and view(offset=256).size() == 768 and view(length=512).size() == 512
        assert view(256, 512).size() == 512 and view(1024).size() == 0
        for wrong in ((1025, None), (-1, None), (0, 1025), (512, 513), (0, -1)):
            with pytest.raises(ValueError, match="outside of the 1024 bytes"):
                view(*wrong)
    assert not memory.reused_registration() and not memory.is_staged()
    assert RdmaMemory(memory._tensor).reused_registration()
    with pytest.raises(ValueError, match="not contiguous"):
        RdmaMemory(torch.zeros(4, 4).t())
    with pytest.raises(ValueError, match="no elements"):
        RdmaMemory(torch.zeros(0))
    with pytest.raises(ValueError, match="meta"):
        RdmaMemory(torch.zeros(4, device="meta"))


@pytest.mark.parametrize("way", WAYS)
def test_a_part_of_a_buffer_is_its_address(way: str) -> None:
    server, client = pair(way)
    target = torch.zeros(64, dtype=torch.int32)
    memory = RdmaMemory(target)
    whole = memory.to_remote_buffer()
    five = RdmaMemory(torch.full((5,), 9, dtype=torch.int32))
    part = RdmaRemoteBuffer(whole.ptr + 40, 20, whole.access_key)
    server.write(five.to_view(), part)
    assert target.nonzero().flatten().tolist() == [10, 11, 12, 13, 14]
    for ptr, length in ((whole.ptr - 4, 20), (whole.ptr + 240, 20), (0, 256)):
        with pytest.raises(ValueError, match="outside of the memory"):
            server.write(five.to_view(), RdmaRemoteBuffer(ptr, length, whole.access_key))
    with pytest.raises(ValueError, match="does not fit"):
        server.write(five.to_view(), RdmaRemoteBuffer(whole.ptr, 19, whole.access_key))
    with pytest.raises(ValueError, match="not to be written"):
        client.read(memory.to_view(), whole)  # type: ignore[arg-type]
    assert target.count_nonzero() == 5


@pytest.mark.parametrize("way", WAYS)
def test_memory_serves_transports_that_come_later(way: str) -> None:
    memory = RdmaMemory(torch.arange(8.0))
    remote = memory.to_remote_buffer()
    got = torch.full((8,), -1.0)
    mine = RdmaMemory(got)
    for _ in range(3):
        server, client = pair(way)
        got.fill_(-1.0)
        client.read(mine.to_mutable_view(), remote)
        assert got.tolist() == list(range(8))
        del server, client


def test_released_memory_is_refused_and_other_memory_is_not_found() -> None:
    server, client = pair("shm", timeout=5.0)
    target = torch.full((64,), 3.0)
    memory, data = RdmaMemory(target), RdmaMemory(torch.ones(64))
    remote = memory.to_remote_buffer()
    server.write(data.to_view(), remote)
    assert target.eq(1.0).all()
    fresh = RdmaTransport("cpu", hints={"transport": "shm"})
    del memory
    gc.collect()
    with pytest.raises(roundelay.WindowError, match=r"client \(process \d+ on .*revoked"):
        server.write(data.to_view(), remote)
    # On another transport, which has not used the memory before.
    other = RdmaTransport("cpu", hints={"transport": "shm"})
    fresh.connect(other.bind())
    other.connect(fresh.bind())
    with pytest.raises(roundelay.WindowError, match="it was released"):
        other.write(data.to_view(), remote)
    slot, secret = remote.access_key.split(":")[1:]
    kept = RdmaMemory(target)
    true = kept.to_remote_buffer()
    guess = f"rlm1:{true.access_key.split(':')[1]}:{secret}"
    target.fill_(3.0)
    with pytest.raises(roundelay.WindowError, match="it was released, or belongs to another process"):
        other.write(data.to_view(), RdmaRemoteBuffer(true.ptr, true.len, guess))
    for text in ("", "rlm1:1", f"rlm1:{slot}:00", f"rlm1:{tables.SLOTS}:{secret}", f"xxxx:{slot}:{secret}"):
        with pytest.raises(ValueError, match="access key"):
            other.write(data.to_view(), RdmaRemoteBuffer(true.ptr, true.len, text))
    assert target.eq(3.0).all()
    assert other.write(data.to_view(), true) == 0 and target.eq(1.0).all()
    # The first transport goes on after what was refused, too.
    target.fill_(3.0)
    assert server.write(data.to_view(), true) == 0 and target.eq(1.0).all()


def test_slots_are_used_again_and_are_limited() -> None:
    kept = [RdmaMemory(torch.zeros(8)) for _ in range(tables.SLOTS + 1)]
    before = len(tables.memories._memories)
    with pytest.raises(ValueError, match="1024 memories"):
        for memory in kept:
            memory.to_remote_buffer()
    del kept, memory
    gc.collect()
    assert len(tables.memories._memories) == before
    RdmaMemory(torch.zeros(8)).to_remote_buffer()


@pytest.mark.parametrize("way", WAYS)
def test_writes_notify(way: str) -> None:
    server, client = pair(way)
    inbox, seen = torch.zeros(16, dtype=torch.int64), []
    memory = RdmaMemory(inbox)
    remote = memory.to_remote_buffer()

    def serve() -> None:
        for _ in range(20):
            client.wait_for_write(LIMIT)
            seen.append(inbox.unique().tolist())
            client.write(mine.to_view(), back, notify=True)

    answer = torch.zeros(16, dtype=torch.int64)
    mine, back_memory = RdmaMemory(torch.ones(16, dtype=torch.int64)), RdmaMemory(answer)
    back = back_memory.to_remote_buffer()
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    for step in range(20):
        server.write(RdmaMemory(torch.full((16,), step)).to_view(), remote, notify=True)
        server.wait_for_write(LIMIT)
    thread.join(LIMIT)
    assert seen == [[step] for step in range(20)] and answer.eq(1).all()
    with pytest.raises(TimeoutError, match=r"client \(process \d+ on .*written nothing in 0.05 s"):
        server.wait_for_write(0.05)
    # A timeout of a wait leaves the transport as it is.
    assert server.write(mine.to_view(), remote) == 0 and inbox.eq(1).all()


def test_a_closed_peer_is_named() -> None:
    server, client = pair("tcp", timeout=5.0)
    data, target = RdmaMemory(torch.ones(4)), RdmaMemory(torch.zeros(4))
    remote = target.to_remote_buffer()
    client.write(data.to_view(), remote)
    begun = time.monotonic()
    server.close()
    with pytest.raises(roundelay.LostRankError, match=r"^server \(process \d+ on "):
        for _ in range(1000):
            client.write(data.to_view(), remote)
    assert time.monotonic() - begun < 5 and not client.connected() and not server.connected()
    with pytest.raises(ValueError, match="closed"):
        server.transport()


def test_wrong_calls_are_refused() -> None:
    transport, other = make("tcp"), make("tcp")
    data = RdmaMemory(torch.ones(4))
    with pytest.raises(ValueError, match="not connected"):
        transport.write(data.to_view(), data.to_remote_buffer())
    for url in (b"", b"nonsense", b"rlt1 " + other.bind(), b" ".join(other.bind().split(b" ")[:3] + [b"nowhere"])):
        with pytest.raises(ValueError):
            transport.connect(url)
    with pytest.raises(ValueError, match="own address"):
        transport.connect(transport.bind())
    assert not transport.connected()
    transport.connect(other.bind(), timeout=0.3)
    with pytest.raises(ValueError, match="is connected to process"):
        transport.connect(other.bind())
    with pytest.raises(roundelay.Error, match=r"process \d+ on "):
        transport.write(data.to_view(), data.to_remote_buffer())
    with pytest.raises(ValueError, match="has cpu and cuda"):
        RdmaTransport("meta")


def test_memory_that_moved_is_refused() -> None:
    server, client = pair("shm")
    tensor = torch.ones(4)
    memory, target = RdmaMemory(tensor), RdmaMemory(torch.zeros(4))
    tensor.resize_(100_000)
    with pytest.raises(ValueError, match="resized"):
        server.write(memory.to_view(), target.to_remote_buffer())


def test_memory_of_gpus_goes_by_way_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of staging, with memory of the CPU in the place of a GPU's."""
    server, client = pair("shm")
    source, target = torch.arange(256.0), torch.full((256,), -1.0)
    staged, theirs = RdmaMemory(source), RdmaMemory(target)
    monkeypatch.setattr(staged._registration, "staged", True)
    assert staged.is_staged()
    server.write(staged.to_view(64, 512), theirs.to_remote_buffer())
    assert target[:128].equal(source[16:144]) and target[128:].eq(-1.0).all()
    target.fill_(5.0)
    server.read(staged.to_mutable_view(0, 64), theirs.to_remote_buffer())
    assert source[:16].eq(5.0).all() and source[16:].equal(torch.arange(16.0, 256.0))
    with pytest.raises(roundelay.UnsupportedError, match="memory of hosts only"):
        staged.to_remote_buffer()


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "transport.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (promised,) = re.findall(r"print\(.*\)  # (.*)$", block, re.MULTILINE)
    exec(compile(block, "transport.md", "exec"), {})
    assert capsys.readouterr().out.strip() == promised
