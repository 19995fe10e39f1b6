"""The example of a parameter service: four clients, one that is killed, and a server that is killed or stopped."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the service has tensors of torch")

import service_roles  # noqa: E402
import torch.distributed as dist  # noqa: E402

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "roundelay.torchcomms._transport"])


class ServiceProcess:
    """A server or a client, which answers what it is asked."""

    def __init__(self, role: str, place: Path, way: str, seconds: float) -> None:
        self._pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=service_roles.run, args=(role, str(place), way, seconds, theirs))
        self.process.start()
        theirs.close()

    def ask(self, pushes: int) -> None:
        self._pipe.send(pushes)

    def said(self) -> dict[str, Any]:
        assert self._pipe.poll(40), "it says nothing"
        found: dict[str, Any] = self._pipe.recv()
        return found

    def stop(self) -> None:
        """Stop all its threads: the signal stops one of them, which stops the others when it is scheduled."""
        os.kill(self.process.pid or 0, signal.SIGSTOP)
        threads = Path(f"/proc/{self.process.pid}/task")
        deadline = time.monotonic() + 20
        while any(" T " not in (thread / "stat").read_text() for thread in threads.iterdir()):
            assert time.monotonic() < deadline, "it does not stop"
            time.sleep(0.001)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        self._pipe.close()


@pytest.fixture
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[ServiceProcess]]:
    """Start a server and four clients; the server is the first."""
    way, seconds = request.param
    started = [ServiceProcess(role, tmp_path / "store", way, seconds) for role in ("server", "0", "1", "2", "3")]
    try:
        assert started[0].said() == {"ready": True}
        yield started
    finally:
        for each in started:
            each.kill()


def test_the_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(service_roles.EXAMPLES)
    import parameter_service

    parameter_service.main(["--steps", "25"])
    assert capsys.readouterr().out == "4 clients over shm: 100 changes, the weights are 250\n"


def test_a_read_waits_for_the_end_of_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(service_roles.EXAMPLES)
    from parameter_service import ParameterClient, ParameterServer

    store = dist.HashStore()
    server = ParameterServer(store, 1, timeout=20.0)
    client = ParameterClient(store, 0, timeout=20.0)
    server.version += 1
    server.weights[:10] = 5.0
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(client.get().unique().tolist()), daemon=True)
    reader.start()
    reader.join(0.3)
    assert not found, "a weight of before a change and one of after it are read together"
    server.weights.fill_(5.0)
    server.version += 1
    reader.join(20)
    assert found == [[5.0]]
    with pytest.raises(RuntimeError, match=r"^parameters \(process \d+ on .*\): KeyError: 'absent'$"):
        client.rpc.call("absent")
    client.rpc.close()
    server.rpc.join(20)
    assert not server.rpc.lost


@pytest.mark.parametrize("service", [("tcp", 20.0)], indirect=True)
def test_a_client_that_is_killed_leaves_the_others_alone(service: list[ServiceProcess]) -> None:
    server, *clients = service
    for client in clients:
        client.ask(10)
    assert {client.said()["way"] for client in clients} == {"tcp"}
    clients[3].kill()
    for client in clients[:3]:
        client.ask(10)
    assert max(client.said()["count"] for client in clients[:3]) == 70
    for client in clients[:3]:
        client.ask(0)
    found = server.said()
    assert found["weights"] == [70.0]
    (lost,) = found["lost"].items()
    assert lost[0] == 3 and lost[1].startswith(f"client 3 (process {clients[3].process.pid} on "), lost


@pytest.mark.parametrize("service", [("shm", 20.0), ("tcp", 20.0)], indirect=True)
def test_a_server_that_is_killed_is_named(service: list[ServiceProcess]) -> None:
    server, *clients = service
    for client in clients:
        client.ask(1)
    for client in clients:
        assert client.said()["count"] >= 1
    for client in clients:
        client.ask(1_000_000)
    server.kill()
    begun = time.monotonic()
    for client in clients:
        found = client.said()
        assert found["kind"] == "LostRankError" and not found["open"], found
        assert found["error"].startswith(f"parameters (process {server.process.pid} on "), found
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("service", [("tcp", 2.0)], indirect=True)
def test_a_server_that_is_stopped_is_named_in_time(service: list[ServiceProcess]) -> None:
    server, *clients = service
    for client in clients:
        client.ask(1)
    for client in clients:
        assert client.said()["count"] >= 1
    server.stop()
    begun = time.monotonic()
    for client in clients:
        client.ask(1)
    for client in clients:
        found = client.said()
        assert found["kind"] == "OperationTimeoutError", found
        assert found["error"].startswith(f"parameters (process {server.process.pid} on "), found
    assert 1.5 < time.monotonic() - begun < 8
