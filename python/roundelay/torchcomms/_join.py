"""Finding the other ranks: by the variables of a launcher, and by a store."""

from __future__ import annotations

import os
import threading
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore, TCPStore

from ..errors import StartError, UsageError

_LAUNCHERS = (
    ("TORCHCOMM_RANK", "TORCHCOMM_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("ROUNDELAY_RANK", "ROUNDELAY_SIZE"),
)

_mutex = threading.Lock()
_stores: dict[tuple[str, int], Any] = {}
_generations: dict[tuple[str, int], int] = {}


def place(rank: int | None, size: int | None) -> tuple[int, int]:
    """Return the rank and the number of ranks: what is given, or what a launcher has left in the environment.

    Raises ``UsageError`` if they do not fit, ``StartError`` if there is no launcher.
    """
    if (rank is None) != (size is None):
        raise UsageError(f"rank is {rank} and size is {size}: give both, or neither")
    if rank is None or size is None:
        for rank_name, size_name in _LAUNCHERS:
            if rank_name in os.environ and size_name in os.environ:
                try:
                    rank, size = int(os.environ[rank_name]), int(os.environ[size_name])
                except ValueError:
                    raise UsageError(
                        f"{rank_name} is `{os.environ[rank_name]}` and {size_name} is `{os.environ[size_name]}`: both "
                        "must be numbers"
                    ) from None
                break
    if rank is None or size is None:
        raise StartError(
            "rank and size are not known: start the program by `torchrun`, `mpirun` or `python -m roundelay run`, set "
            "TORCHCOMM_RANK and TORCHCOMM_SIZE, or pass rank= and size=",
            code="RL0709",
        )
    if not 0 <= rank < size:
        raise UsageError(f"rank {rank} is not in [0, {size})")
    return rank, size


def store_of(store: Any, rank: int, timeout: timedelta) -> Any:
    """Return the given store, or the one at ``MASTER_ADDR`` and ``MASTER_PORT``, which rank 0 serves."""
    if store is not None:
        return store
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise StartError(
            f"there is no store to meet at: {' and '.join(missing)} are not set; start the program by `torchrun`, set "
            "them, or pass store=torch.distributed.TCPStore(…)",
            code="RL0709",
        )
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    # torchrun serves the store itself.
    serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    with _mutex:
        found = _stores.get((host, port))
        if found is None:
            found = TCPStore(host, port, None, serves, timeout, wait_for_workers=False, multi_tenant=True)
            _stores[host, port] = found
        return found


def below(store: Any, name: str, rank: int) -> Any:
    """Return a part of a store for a communicator: its name, and how many of that name this rank has made."""
    with _mutex:
        number = _generations[name, rank] = _generations.get((name, rank), -1) + 1
    return PrefixStore(f"torchcomms/{name}/{number}", store)
