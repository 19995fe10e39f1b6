#!/usr/bin/env python3
"""Times requests and reads over RdmaTransport beside gRPC and Gloo, by turns, between two processes of this machine.

    tests/rpc.py [--turns 5] [--seconds 0.3] [--bytes 8,4096,1048576] [--least] [--out rows.jsonl]

A `call` passes the bytes to the server and back; a `get` has the server's bytes. Ours calls by
`examples/torchcomms/rpc.py`, and gets by a read of the server's memory. Gloo is `send` and `recv` of
torch.distributed, with 8 bytes to ask for a get. Each turn measures all systems at each point; a row is the median of
the calls of one turn, and the table has the median of the turns, or the best one.
Needs `roundelay`, `torch` and `grpcio`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent import futures
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc
import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "torchcomms"))
from rpc import RpcClient, RpcServer  # noqa: E402

from roundelay.torchcomms import RdmaMemory, RdmaRemoteBuffer  # noqa: E402

WAYS = ("shm", "tcp")
OPERATIONS = ("call", "get")
MOST = 1 << 20
UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


def hints(way: str) -> dict[str, Any]:
    """The arguments of a transport that goes one way."""
    return {"hints": {"transport": way, "interface": "127.0.0.1"}}


def join_gloo(store: Any, rank: int) -> None:
    """Make the process group of the two processes."""
    dist.init_process_group("gloo", store=dist.PrefixStore("gloo", store), rank=rank, world_size=2)


def serve(place: str) -> None:
    """Serve by all systems until the client has ended."""
    store = dist.FileStore(place, 2)
    weights = torch.arange(MOST).to(torch.uint8)
    memory = RdmaMemory(weights)
    remote = memory.to_remote_buffer()
    store.set("weights", json.dumps([remote.ptr, remote.len, remote.access_key]))
    ours = [RpcServer(way, store, 1, {"echo": bytes}, **hints(way)) for way in WAYS]
    whole = weights.numpy().tobytes()

    def get(request: bytes, _: Any) -> bytes:
        return whole[: int.from_bytes(request, "little")]

    methods = {"call": lambda request, _: request, "get": get}
    handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    server = grpc.server(futures.ThreadPoolExecutor(1), options=UNLIMITED)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench", handlers),))
    store.set("port", str(server.add_insecure_port("127.0.0.1:0")))
    server.start()
    join_gloo(store, 0)
    order = torch.zeros(3, dtype=torch.int64)
    asked = torch.zeros(1, dtype=torch.int64)
    while True:
        dist.recv(order, 1)
        operation, count, rounds = order.tolist()
        if rounds == 0:
            break
        data = weights[:count].clone()
        for _ in range(rounds):
            dist.recv(data if operation == 0 else asked, 1)
            dist.send(data, 1)
    for each in ours:
        each.join(30)
    server.stop(None)
    dist.destroy_process_group()


class Systems:
    """The client's ends: each makes a function of a point, which is called in a row."""

    def __init__(self, place: str) -> None:
        store = dist.FileStore(place, 2)
        pointer, length, key = json.loads(store.get("weights"))
        self.remote = RdmaRemoteBuffer(pointer, length, key)
        self.ours = {way: RpcClient(way, store, 0, **hints(way)) for way in WAYS}
        self.channel = grpc.insecure_channel(f"127.0.0.1:{store.get('port').decode()}", options=UNLIMITED)
        join_gloo(store, 1)
        self.names = (*(f"roundelay {way}" for way in WAYS), "gRPC", "Gloo")
        for way, client in self.ours.items():
            assert client.transport.transport() == way

    def rounds(self, name: str, operation: str, count: int, rounds: int) -> list[float]:
        """The microseconds of each call in a row, the last of which is checked."""
        if name == "Gloo":
            dist.send(torch.tensor([OPERATIONS.index(operation), count, rounds]), 0)
        make: Callable[[str, int], tuple[Callable[[], Any], Callable[[], bytes]]] = {
            "Gloo": self._gloo,
            "gRPC": self._grpc,
        }.get(name, lambda operation, count: self._ours(name.split()[1], operation, count))
        call, result = make(operation, count)
        times = []
        for _ in range(rounds):
            begun = time.perf_counter()
            call()
            times.append((time.perf_counter() - begun) * 1e6)
        expected = torch.arange(count).to(torch.uint8).numpy().tobytes()
        assert result() == expected, f"{name}, {operation} of {count} bytes: the answer is wrong"
        return times

    def _ours(self, way: str, operation: str, count: int) -> Any:
        client = self.ours[way]
        if operation == "call":
            payload, found = torch.arange(count).to(torch.uint8).numpy(), [b""]

            def call() -> None:
                found[0] = client.call("echo", payload)

            return call, lambda: bytes(found[0])
        target = torch.zeros(count, dtype=torch.uint8)
        view, transport, remote = RdmaMemory(target).to_mutable_view(), client.transport, self.remote
        return lambda: transport.read(view, remote), lambda: target.numpy().tobytes()

    def _grpc(self, operation: str, count: int) -> Any:
        method = self.channel.unary_unary(f"/bench/{operation}")
        get = count.to_bytes(8, "little")
        payload = torch.arange(count).to(torch.uint8).numpy().tobytes() if operation == "call" else get
        found = [b""]

        def call() -> None:
            found[0] = method(payload)

        return call, lambda: found[0]

    def _gloo(self, operation: str, count: int) -> Any:
        sent = torch.arange(count).to(torch.uint8) if operation == "call" else torch.zeros(1, dtype=torch.int64)
        received = torch.zeros(count, dtype=torch.uint8)

        def call() -> None:
            dist.send(sent, 0)
            dist.recv(received, 0)

        return call, lambda: received.numpy().tobytes()

    def close(self) -> None:
        """End the server."""
        for client in self.ours.values():
            client.close()
        dist.send(torch.zeros(3, dtype=torch.int64), 0)
        dist.destroy_process_group()


def measure(place: str, options: argparse.Namespace) -> None:
    """Print a row of each system at each point in each turn."""
    systems = Systems(place)
    points = [(operation, int(count)) for operation in OPERATIONS for count in options.bytes.split(",")]
    for turn in range(options.turns):
        names = systems.names if turn % 2 == 0 else systems.names[::-1]
        for operation, count in points:
            for name in names:
                first = statistics.median(systems.rounds(name, operation, count, 10))
                rounds = max(10, min(20_000, int(options.seconds * 1e6 / first)))
                found = statistics.median(systems.rounds(name, operation, count, rounds))
                row = {"system": name, "operation": operation, "bytes": count, "turn": turn, "rounds": rounds}
                print(json.dumps(row | {"us": float(f"{found:.4g}")}), flush=True)
    systems.close()


def table(rows: list[dict[str, Any]], of_turns: Callable[[list[float]], float]) -> str:
    """A figure of each point over the turns, in microseconds, with the bandwidth of large ones."""
    names = list(dict.fromkeys(row["system"] for row in rows))
    names.sort(key=lambda name: (not name.startswith("roundelay"), name))
    lines = ["| us | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for operation in OPERATIONS:
        for count in sorted({row["bytes"] for row in rows}):
            cells = []
            for name in names:
                here = (name, operation, count)
                found = [row["us"] for row in rows if (row["system"], row["operation"], row["bytes"]) == here]
                middle = of_turns(found)
                rate = count * (2 if operation == "call" else 1) / middle / 1e3
                shown = f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"
                cells.append(shown + (f" ({rate:.2g} GB/s)" if count >= 1 << 20 else ""))
            lines.append(f"| {operation}, {count:,} B | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run both processes, and print the rows and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="the time of a point in a turn")
    parser.add_argument("--bytes", default="8,4096,1048576")
    parser.add_argument("--least", action="store_true", help="show the best turn, not the median: for a busy machine")
    parser.add_argument("--out", help="where the rows are written")
    parser.add_argument("--role", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        torch.set_num_threads(1)
        role, place = options.role
        return serve(place) if role == "serve" else measure(place, options)
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/store"
        own = [sys.executable, __file__, *sys.argv[1:], "--role"]
        server = subprocess.Popen([*own, "serve", place])
        try:
            done = subprocess.run([*own, "measure", place], stdout=subprocess.PIPE, text=True, timeout=500, check=True)
            server.wait(60)
        finally:
            server.kill()
            server.wait()
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "")
    about = {"date": datetime.date.today().isoformat(), "processor": model or platform.processor()}
    about |= {name: version(name) for name in ("torch", "grpcio")}
    about |= {"python": platform.python_version(), "options": sys.argv[1:]}
    text = "".join(json.dumps(row) + "\n" for row in [about, *rows])
    if options.out:
        Path(options.out).write_text(text)
    print(json.dumps(about), table(rows, min if options.least else statistics.median), sep="\n")


if __name__ == "__main__":
    main()
