"""The server and the clients of the parameter service, each in a process that a pipe commands."""

from __future__ import annotations

import faulthandler
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[3] / "examples" / "torchcomms"


def run(role: str, place: str, way: str, seconds: float, pipe: Any) -> None:
    """Serve four clients, or be the client of that number."""
    faulthandler.dump_traceback_later(60, exit=True)
    sys.path.insert(0, str(EXAMPLES))
    given = {"hints": {"transport": way, "interface": "127.0.0.1"}, "timeout": seconds}
    if role == "server":
        serve(place, given, pipe)
    else:
        push(place, int(role), given, pipe)


def serve(place: str, given: dict[str, Any], pipe: Any) -> None:
    """Serve until all clients have closed or are lost, and say who is lost."""
    import torch.distributed as dist
    from parameter_service import ParameterServer

    server = ParameterServer(dist.FileStore(place, -1), 4, **given)
    pipe.send({"ready": True})
    server.rpc.join(40)
    lost = {client: str(error) for client, error in server.rpc.lost.items()}
    pipe.send({"weights": server.weights.unique().tolist(), "lost": lost})


def push(place: str, index: int, given: dict[str, Any], pipe: Any) -> None:
    """Push ones as often as the pipe says, until it says 0; say the first error, and end."""
    import torch
    import torch.distributed as dist
    from parameter_service import ELEMENTS, ParameterClient

    from roundelay.errors import Error

    client = ParameterClient(dist.FileStore(place, -1), index, **given)
    change = torch.ones(ELEMENTS)
    while (pushes := pipe.recv()) > 0:
        try:
            for _ in range(pushes):
                count = client.push(change)
                assert client.get().unique().numel() == 1, "a read is torn"
            pipe.send({"count": count, "way": client.rpc.transport.transport()})
        except Error as error:
            transport = client.rpc.transport
            pipe.send({"error": str(error), "kind": type(error).__name__, "open": transport.connected()})
            return
    client.rpc.close()
