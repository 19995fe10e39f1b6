"""A parameter service: clients push gradients by requests, and read weights where they lie.

python examples/torchcomms/parameter_service.py [--clients 4] [--steps 100] [--transport tcp]

The server and each client are processes. A client that is killed leaves the others alone; the error of a client whose
server is gone names the server.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pickle
import struct
import tempfile
import threading
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from rpc import RpcClient, RpcServer, unpickle_buffers

from roundelay.torchcomms import RdmaMemory

NAME = "parameters"
ELEMENTS = 1 << 16


class ParameterServer:
    """One tensor of weights, and the number of times that it was changed: odd while that goes on."""

    def __init__(self, store: dist.Store, clients: int, **given: Any) -> None:
        self.weights = torch.zeros(ELEMENTS)
        self.version = torch.zeros(1, dtype=torch.int64)
        self._lock = threading.Lock()
        self._memories = {"weights": RdmaMemory(self.weights), "version": RdmaMemory(self.version)}
        handlers = {"describe": self._describe, "push": self._push, "put": self._put}
        self.rpc = RpcServer(NAME, store, clients, handlers, **given)

    def _describe(self, _: memoryview) -> bytes:
        return pickle.dumps({name: memory.to_remote_buffer() for name, memory in self._memories.items()})

    def _push(self, payload: memoryview) -> bytes:
        """Add a tensor to the weights."""
        with self._lock:
            self.version += 1
            self.weights += torch.frombuffer(payload, dtype=torch.float32)
            self.version += 1
            return struct.pack("<q", self.version.item() // 2)

    def _put(self, payload: memoryview) -> bytes:
        """Store a tensor as the weights."""
        with self._lock:
            self.version += 1
            self.weights.copy_(torch.frombuffer(payload, dtype=torch.float32))
            self.version += 1
            return struct.pack("<q", self.version.item() // 2)


class ParameterClient:
    """A client: ``get`` reads the server's memory, ``push`` and ``put`` are requests."""

    def __init__(self, store: dist.Store, index: int, **given: Any) -> None:
        self.rpc = RpcClient(NAME, store, index, **given)
        self._there = unpickle_buffers(self.rpc.call("describe"))
        self._weights, self._version = torch.empty(ELEMENTS), torch.empty(1, dtype=torch.int64)
        self._to_weights = RdmaMemory(self._weights).to_mutable_view()
        self._to_version = RdmaMemory(self._version).to_mutable_view()

    def get(self) -> torch.Tensor:
        """Return the weights as they were between two changes."""
        transport = self.rpc.transport
        while True:
            transport.read(self._to_version, self._there["version"])
            before = self._version.item()
            transport.read(self._to_weights, self._there["weights"])
            transport.read(self._to_version, self._there["version"])
            if before % 2 == 0 and before == self._version.item():
                return self._weights

    def push(self, change: torch.Tensor) -> int:
        """Add to the weights; return the number of changes so far."""
        return self._changed("push", change)

    def put(self, weights: torch.Tensor) -> int:
        """Store weights; return the number of changes so far."""
        return self._changed("put", weights)

    def _changed(self, method: str, tensor: torch.Tensor) -> int:
        count: int = struct.unpack("<q", self.rpc.call(method, tensor.numpy()))[0]
        return count


def serve(place: str, clients: int, given: dict[str, Any], results: Any) -> None:
    """Run the server until all clients have closed or are lost."""
    server = ParameterServer(dist.FileStore(place, -1), clients, **given)
    server.rpc.join(120)
    lost = {client: str(error) for client, error in server.rpc.lost.items()}
    results.put(("server", server.weights.unique().tolist(), server.version.item() // 2, lost))


def work(place: str, index: int, steps: int, given: dict[str, Any], results: Any) -> None:
    """Run a client, which adds its number and 1 to all weights in each step."""
    client = ParameterClient(dist.FileStore(place, -1), index, **given)
    change = torch.full((ELEMENTS,), float(index + 1))
    torn = 0
    for _ in range(steps):
        client.push(change)
        torn += client.get().unique().numel() != 1
    results.put((index, client.rpc.transport.transport(), torn))
    client.rpc.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Start the server and its clients, and check what they have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--transport", default="shm,tcp", help="what may carry the bytes: shm, tcp, rdma")
    options = parser.parse_args(arguments)
    given = {"hints": {"transport": options.transport, "interface": "127.0.0.1"}}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "roundelay.torchcomms._transport"])
    results: Any = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/store"
        started = [context.Process(target=serve, args=(place, options.clients, given, results))]
        for index in range(options.clients):
            started.append(context.Process(target=work, args=(place, index, options.steps, given, results)))
        for process in started:
            process.start()
        found = {said[0]: said[1:] for said in (results.get(timeout=150) for _ in started)}
        for process in started:
            process.join(30)
            assert process.exitcode == 0, process
    weights, changes, lost = found.pop("server")
    assert weights == [float(options.steps * sum(range(1, options.clients + 1)))] and not lost, (weights, lost)
    assert changes == options.clients * options.steps
    assert all(torn == 0 for _, torn in found.values()), found
    carried = ", ".join(sorted({transport for transport, _ in found.values()}))
    print(f"{options.clients} clients over {carried}: {changes} changes, the weights are {weights[0]:g}")


if __name__ == "__main__":
    main()
