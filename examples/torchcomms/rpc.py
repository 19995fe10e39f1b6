"""Requests and responses over ``RdmaTransport``: each side writes into the other's inbox and notifies it.

``parameter_service.py`` is a service on it.
"""

from __future__ import annotations

import pickle
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist

from roundelay.errors import Error, OperationTimeoutError
from roundelay.torchcomms import RdmaMemory, RdmaRemoteBuffer, RdmaTransport

HEADER = struct.Struct("<IIQ")
"""Whether a response is an error, the bytes of a request's method, the bytes of the payload."""
CAPACITY = 2 << 20
"""The longest message, in bytes."""

Handler = Callable[[memoryview], "bytes | bytearray | memoryview"]


class RpcError(RuntimeError):
    """What the handler of a request raised at the server."""


class RpcChannel:
    """One end of a connection: an inbox into which the peer writes, and what is to be written into the peer's."""

    def __init__(self, transport: RdmaTransport, store: dist.Store, own: str, other: str) -> None:
        self.transport = transport
        self._inbox, self._outbox = bytearray(CAPACITY), bytearray(CAPACITY)
        self._received = RdmaMemory(torch.frombuffer(self._inbox, dtype=torch.uint8))
        self._sent = RdmaMemory(torch.frombuffer(self._outbox, dtype=torch.uint8))
        store.set(own, pickle.dumps((transport.bind(), self._received.to_remote_buffer())))
        url, self._remote = pickle.loads(store.get(other))
        transport.connect(url)

    def send(self, method: str, payload: Any, is_error: bool = False) -> None:
        """Write a message into the peer's inbox; it is there when this returns."""
        name, data = method.encode(), memoryview(payload).cast("B")
        begin = _begin(len(name))
        length = begin + len(data)
        if length > CAPACITY:
            raise ValueError(f"the message has {length} bytes, and an inbox {CAPACITY}: send it in parts")
        HEADER.pack_into(self._outbox, 0, is_error, len(name), len(data))
        self._outbox[HEADER.size : HEADER.size + len(name)] = name
        self._outbox[begin:length] = data
        self.transport.write(self._sent.to_view(0, length), self._remote, notify=True)

    def receive(self, timeout: float | None = None) -> tuple[str, memoryview, bool]:
        """Wait for a message of the peer; its payload lies in the inbox until the next one."""
        self.transport.wait_for_write(timeout)
        is_error, named, length = HEADER.unpack_from(self._inbox)
        method = self._inbox[HEADER.size : HEADER.size + named].decode()
        begin = _begin(named)
        return method, memoryview(self._inbox)[begin : begin + length], bool(is_error)


def _begin(named: int) -> int:
    """Return where the payload begins after a method's name: at a multiple of 8 bytes."""
    return HEADER.size + (named + 7) // 8 * 8


class RpcServer:
    """Serves clients, each on a thread of its own; those that die are left behind."""

    def __init__(
        self, name: str, store: dist.Store, clients: int, handlers: Mapping[str, Handler], **given: Any
    ) -> None:
        self.lost: dict[int, Error] = {}
        self._handlers = handlers
        self._threads: list[threading.Thread] = []
        self._channels: dict[int, RpcChannel] = {}
        for client in range(clients):
            transport = RdmaTransport("cpu", name=name, **given)
            arguments = (client, transport, store, f"{name}/server/{client}", f"{name}/client/{client}")
            thread = threading.Thread(target=self._serve, args=arguments, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, client: int, transport: RdmaTransport, store: dist.Store, own: str, other: str) -> None:
        channel = self._channels[client] = RpcChannel(transport, store, own, other)
        with transport:
            while True:
                try:
                    method, payload, _ = channel.receive()
                    if method == "close":
                        return self._close(channel)
                    channel.send(method, *self._answer(method, payload))
                except OperationTimeoutError:
                    if not transport.connected():
                        return
                except Error as error:
                    self.lost[client] = error
                    return

    def _close(self, channel: RpcChannel) -> None:
        # The client closes first, as soon as it has the response.
        with suppress(Error):
            channel.send("close", b"")
            channel.receive()

    def _answer(self, method: str, payload: memoryview) -> tuple[Any, bool]:
        try:
            return self._handlers[method](payload), False
        except Exception as error:
            return f"{type(error).__name__}: {error}".encode(), True

    def join(self, timeout: float) -> None:
        """Wait until all clients have closed or are lost. Raises ``TimeoutError`` if they have not by then."""
        for client, thread in enumerate(self._threads):
            thread.join(timeout)
            if thread.is_alive():
                raise TimeoutError(f"client {client} has not ended in {timeout:g} s")


class RpcClient:
    """Calls methods of a server. Errors of the connection name the server; no call takes longer than its timeout."""

    def __init__(self, name: str, store: dist.Store, index: int, **given: Any) -> None:
        self.transport = RdmaTransport("cpu", name=f"client {index}", **given)
        self._channel = RpcChannel(self.transport, store, f"{name}/client/{index}", f"{name}/server/{index}")

    def call(self, method: str, payload: Any = b"", timeout: float | None = None) -> memoryview:
        """Return the response, which lies in the inbox until the next call."""
        self._channel.send(method, payload)
        try:
            _, response, is_error = self._channel.receive(timeout)
        except OperationTimeoutError:
            # The response must not be taken for that of a later call.
            self.transport.close()
            raise
        if is_error:
            raise RpcError(f"{self.transport.peer()}: {bytes(response).decode()}")
        return response

    def close(self) -> None:
        """Say that there are no more calls, and close."""
        self.call("close")
        self.transport.close()


def unpickle_buffers(data: memoryview) -> dict[str, RdmaRemoteBuffer]:
    """Return what a server has pickled."""
    found: dict[str, RdmaRemoteBuffer] = pickle.loads(data)
    return found
