"""Finding the other ranks: by the variables of a launcher, and by a store."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed import DistNetworkError

from ..errors import StartError, UsageError
from ..store import wait_for

_LAUNCHERS = (
    ("TORCHCOMM_RANK", "TORCHCOMM_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("ROUNDELAY_RANK", "ROUNDELAY_SIZE"),
)

_mutex = threading.Lock()
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


@dataclass
class Meeting:
    """Where the ranks of a communicator meet: a store for it alone, and what they need until they have joined.

    ``first`` is the store at ``MASTER_PORT``, if this communicator's rank 0 served one there.
    """

    store: Any
    first: Any = None

    def over(self, rank: int, timeout: timedelta) -> None:
        """Leave ``MASTER_PORT``, after all ranks have joined. No rank goes on before it is free.

        Without that a rank that is ahead of rank 0 could take the store that is about to close for the one that the
        program serves there next.

        Raises ``StartError`` if rank 0 does not leave in time.
        """
        if self.first is None:
            return
        self.first = None
        if rank == 0:
            self.store.set("left", "")
            return
        try:
            wait_for(self.store, ["left"], timeout)
        except DistNetworkError:
            return  # Rank 0 has left, and has ended its communicator and with it the store.
        except RuntimeError as error:
            raise StartError(
                f"rank 0 has joined and did not close its store at {os.environ['MASTER_ADDR']}:"
                f"{os.environ['MASTER_PORT']} in {timeout.total_seconds():g} s: {error}",
                code="RL0709",
            ) from None


def meet(store: Any, name: str, rank: int, timeout: timedelta) -> Meeting:
    """Return a part of the given store; without one a store that rank 0 serves, found through ``MASTER_ADDR``.

    ``MASTER_PORT`` is taken only until the ranks have joined, so a program may serve a store of its own there. Raises
    ``StartError`` if the variables are not set, or if rank 0 does not come in time.
    """
    if store is not None:
        return Meeting(below(store, name, rank))
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not os.environ.get(name)]
    if missing:
        raise StartError(
            f"there is no store to meet at: {' and '.join(missing)} are not set; start the program by `torchrun`, set "
            "them, or pass store=torch.distributed.TCPStore(…)",
            code="RL0709",
        )
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])

    def there(at: int, serves: bool = False) -> Any:
        return TCPStore(host, at, None, serves, timeout, wait_for_workers=False)

    # torchrun serves a store itself, for as long as the job.
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return Meeting(below(there(port), name, rank))
    key = part(name, rank)
    if rank == 0:
        own = there(0, serves=True)
        try:
            first = there(port, serves=True)
        except RuntimeError:  # The program serves a store there.
            first = there(port)
        first.set(key, str(own.port))
        return Meeting(PrefixStore(key, own), first)
    until = time.monotonic() + timeout.total_seconds()
    while True:
        # A store that answers may be that of the communicator before, which rank 0 is about to close.
        try:
            first = there(port)
            wait_for(first, [key], timedelta(seconds=max(until - time.monotonic(), 0.001)))
            return Meeting(PrefixStore(key, there(int(first.get(key)))), first)
        except RuntimeError as error:
            if time.monotonic() >= until:
                raise StartError(
                    f"rank 0 did not come to the store at {host}:{port} in {timeout.total_seconds():g} s: {error}",
                    code="RL0709",
                ) from None
            time.sleep(0.02)


def part(name: str, rank: int) -> str:
    """Return the prefix of a communicator's keys: its name, and how many of that name this rank has made."""
    with _mutex:
        number = _generations[name, rank] = _generations.get((name, rank), -1) + 1
    return f"torchcomms/{name}/{number}"


def below(store: Any, name: str, rank: int) -> Any:
    """Return a part of a store for a communicator."""
    return PrefixStore(part(name, rank), store)
