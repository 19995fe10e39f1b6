"""The transport of PyTorch 2.15: what its documentation does, and what its interface promises."""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
from datetime import timedelta
from typing import Any

import pytest
import torch

api = pytest.importorskip("torch.distributed._transport", reason="this torch has no transports")

WAYS = ["shm", "tcp"]
LIMIT = 60.0


def make(way: str, **given: Any) -> Any:
    hints = {"transport": way, "interface": "127.0.0.1"}
    return api.new_transport("roundelay", "cpu", hints=hints, timeout=LIMIT, **given)


def pair(way: str) -> tuple[Any, Any]:
    trainer, replica = make(way), make(way)
    urls = trainer.bind(), replica.bind()
    assert trainer.connect(urls[1]) == 0 and replica.connect(urls[0]) == 0
    return trainer, replica


@pytest.mark.parametrize("way", WAYS)
def test_the_example_of_the_documentation(way: str) -> None:
    assert "roundelay" in api.available_transports()
    with make(way) as trainer, make(way) as replica:
        trainer_url, replica_url = trainer.bind(), replica.bind()
        trainer.connect(replica_url)
        replica.connect(trainer_url)
        weights = torch.arange(8, dtype=torch.float32)
        received = torch.empty_like(weights)
        source = trainer.register_memory(weights)
        target = replica.register_memory(received)
        descriptor = target.to_remote_buffer()
        remote = type(descriptor).deserialize(descriptor.serialize())
        work = trainer.write(source.to_view(), remote, async_op=True)
        work.wait()
        torch.testing.assert_close(received, weights)

        async def push_weights(trainer: Any, source: Any, remote: Any) -> None:
            await trainer.write_async(source.to_view(), remote, timeout=30.0)
            await trainer.close_async(timeout=30.0)

        weights += 1
        asyncio.run(push_weights(trainer, source, remote))
        torch.testing.assert_close(received, weights)


@pytest.mark.parametrize("way", WAYS)
def test_the_interface(way: str) -> None:
    trainer, replica = pair(way)
    weights = torch.arange(1 << 20, dtype=torch.bfloat16)
    mine = torch.zeros(1 << 20, dtype=torch.bfloat16)
    source, target = trainer.register_memory(weights), replica.register_memory(mine)
    remote = target.to_remote_buffer()
    for value, protocol in (
        (source, api.Memory),
        (source.to_view(), api.MemoryView),
        (source.to_mutable_view(), api.MutableMemoryView),
        (remote, api.RemoteBuffer),
        (trainer, api.Transport),
    ):
        assert isinstance(value, protocol)
    assert trainer.write(source.to_view(2, 1000), remote) == 0
    assert (mine[:500] == weights[1:501]).all() and not mine[500:].any()
    assert trainer.connected() and replica.connected()

    work = trainer.read(source.to_mutable_view(0, 1000), remote, async_op=True)
    assert isinstance(work, torch.distributed.Work)
    assert work.wait(timedelta(seconds=LIMIT)) and work.is_completed() and work.is_success()
    assert work.get_future().wait() == [] and work.result() == []
    assert (weights[:500] == mine[:500]).all()

    with pytest.raises(ValueError, match="does not fit"):
        small = replica.register_memory(torch.zeros(4)).to_remote_buffer()
        trainer.write(source.to_view(), small)
    with pytest.raises(TypeError):
        trainer.read(source.to_view(), remote)
    with pytest.raises(TypeError):
        replica.write(source.to_view(), remote)
    with pytest.raises(ValueError):
        source.to_view(1 << 22)
    with pytest.raises(ValueError):
        trainer.write(source.to_view(), remote, timeout=-1.0)
    with pytest.raises(ValueError):
        type(remote).deserialize(remote.serialize()[:-1])
    with pytest.raises(RuntimeError, match="is connected"):
        trainer.connect(replica.bind())
    assert replica.register_memory(mine)._registration is target._registration

    replica.unregister_memory(target)
    replica.unregister_memory(target)
    with pytest.raises(RuntimeError, match="unregistered"):
        target.to_view()
    refused = trainer.write(source.to_view(), remote, async_op=True)
    with pytest.raises(RuntimeError, match="revoked"):
        refused.wait()
    with pytest.raises(RuntimeError, match="revoked"):
        refused.get_future().wait()
    assert not refused.is_success() and refused.exception() is not None

    trainer.close()
    trainer.close()
    with pytest.raises(RuntimeError, match="closed"):
        trainer.bind()
    assert not trainer.connected()
    replica.close()


def test_a_peer_that_does_not_come_is_an_error() -> None:
    with make("tcp") as alone, make("tcp") as other:
        alone.connect(other.bind(), timeout=0.5)
        memory = alone.register_memory(torch.zeros(4))
        with pytest.raises(RuntimeError):
            alone.write(memory.to_view(), memory.to_remote_buffer())
        with pytest.raises(ValueError, match="address"):
            other.connect(b"nonsense")
    with pytest.raises(RuntimeError, match="failed to create"):
        api.new_transport("roundelay", "cuda")


def rank(own: int, way: str, place: str, results: Any) -> None:
    store = torch.distributed.FileStore(place, 2)
    hints = {"transport": way, "interface": "127.0.0.1"}
    transport = api.new_transport_rank(
        "roundelay", "cpu", store=store, rank=own, peer_rank=1 - own, hints=hints, timeout=LIMIT
    )
    mine = torch.full((1000,), float(own))
    memory = transport.register_memory(mine)
    store.set(f"key{own}", memory.to_remote_buffer().serialize())
    remote = type(memory.to_remote_buffer()).deserialize(store.get(f"key{1 - own}"))
    got = torch.zeros(1000)
    transport.read(transport.register_memory(got).to_mutable_view(), remote)
    store.set(f"done{own}", b"1")
    store.wait([f"done{1 - own}"])
    results.put((own, got.unique().tolist()))
    transport.close()


@pytest.mark.parametrize("way", WAYS)
def test_two_processes_meet_by_a_store(way: str) -> None:
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank, args=(own, way, f"{folder}/store", results)) for own in range(2)]
        for process in ranks:
            process.start()
        said = dict(results.get(timeout=120) for _ in ranks)
        for process in ranks:
            process.join(60)
            assert process.exitcode == 0
    assert said == {0: [1.0], 1: [0.0]}
