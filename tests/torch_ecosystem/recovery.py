"""What torchft's `configure` takes after a rank was killed, with one communicator, with a new group, and with Gloo.

    python recovery.py [--ranks N] [--turns N]

Ranks are processes of this machine. In each turn, for each way, they are joined by one that is killed in the middle of
their calls. The others are notified, meet in a store, and configure without it. It prints medians over the turns, in
milliseconds, of the slowest rank's `configure`, and of that and the first all_reduce of 1,000 numbers.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torchft.process_group as torchft
from torch._C._distributed_c10d import _DistributedBackendOptions as DistributedBackendOptions

from roundelay.torch import _register
from roundelay.torch.torchft import ProcessGroupRoundelay

LIMIT = timedelta(seconds=30)


class Anew(torchft.ProcessGroupWrapper):
    """A new roundelay group for each quorum, which joins through the quorum's store."""

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Any:
        options = DistributedBackendOptions()
        options.store, options.group_rank, options.group_size = store, rank, world_size
        options.timeout, options.group_id = self._timeout, "anew"
        options.global_ranks_in_group = list(range(world_size))
        made = _register._create(options)
        if isinstance(made, dist.ProcessGroup):
            return made
        group = dist.ProcessGroup(store, rank, world_size)
        group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, made)
        return group


WAYS: dict[str, Callable[[], Any]] = {
    "reconfigured": lambda: ProcessGroupRoundelay(LIMIT),
    "new group": lambda: Anew(LIMIT),
    "Gloo": lambda: torchft.ProcessGroupGloo(LIMIT),
}


def summed(group: Any) -> None:
    data = torch.ones(1000)
    group.allreduce([data], dist.ReduceOp.SUM).wait()
    assert data[0].item() == group.size()


def forked(function: Callable[..., None], *args: Any) -> int:
    """Run a function in a process of its own; return its number. This process has no thread that it could need."""
    child = os.fork()
    if child:
        return child
    try:
        function(*args)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def connected(port: int) -> Any:
    return dist.TCPStore("127.0.0.1", port, None, False, LIMIT, wait_for_workers=False)


def victim(port: int, ranks: int, name: str, way: str) -> None:
    group = WAYS[way]()
    group.configure(f"127.0.0.1:{port}/{name}/with", "victim", ranks, ranks + 1)
    summed(group)
    store = connected(port)
    store.set(f"{name}/ready/{ranks}", "")
    store.wait([f"{name}/ready/{rank}" for rank in range(ranks)], LIMIT)
    os.kill(os.getpid(), signal.SIGKILL)


def survivor(port: int, rank: int, ranks: int, turns: int) -> None:
    store = connected(port)
    groups = {way: make() for way, make in WAYS.items()}
    for turn in range(turns):
        for way, group in groups.items():
            name = f"{turn}/{way.replace(' ', '_')}"
            group.configure(f"127.0.0.1:{port}/{name}/with", "survivor", rank, ranks + 1)
            summed(group)
            store.set(f"{name}/ready/{rank}", "")
            store.wait([f"{name}/ready/{each}" for each in range(ranks + 1)], LIMIT)
            try:
                while True:
                    summed(group)
            except RuntimeError:
                pass
            # The others are in calls that this rank has left: as the manager's, they end before the next quorum.
            store.set(f"{name}/notified/{rank}", "")
            store.wait([f"{name}/notified/{each}" for each in range(ranks)], LIMIT)
            begin = time.monotonic()
            group.configure(f"127.0.0.1:{port}/{name}/without", "survivor", rank, ranks)
            configured = time.monotonic()
            summed(group)
            store.set(f"{name}/took/{rank}", f"{configured - begin} {time.monotonic() - begin}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--turns", type=int, default=9)
    options = parser.parse_args()
    reading, writing = os.pipe()

    def serve() -> None:
        store = dist.TCPStore("127.0.0.1", 0, None, True, LIMIT, wait_for_workers=False)
        os.write(writing, f"{store.port}\n".encode())
        signal.pause()

    server = forked(serve)
    port = int(os.read(reading, 16))
    running = [forked(survivor, port, rank, options.ranks, options.turns) for rank in range(options.ranks)]
    running.append(forked(lead, port, options.ranks, options.turns))
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in running]
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    return max(codes)


def lead(port: int, ranks: int, turns: int) -> None:
    """Start those that are to be killed, one after the other, and print what the others took."""
    store = connected(port)
    took: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for turn in range(turns):
        for way in WAYS:
            name = f"{turn}/{way.replace(' ', '_')}"
            killed = forked(victim, port, ranks, name, way)
            store.wait([f"{name}/took/{rank}" for rank in range(ranks)], timedelta(minutes=5))
            os.waitpid(killed, 0)
            each = [store.get(f"{name}/took/{rank}").decode().split() for rank in range(ranks)]
            took[way].append([max(float(times[at]) for times in each) for at in (0, 1)])
    for way, times in took.items():
        row = [f"{statistics.median(each) * 1000:.1f}" for each in zip(*times, strict=True)]
        print(f"{way}: {row[0]} ms, with the first all_reduce {row[1]} ms; {len(times)} turns of {ranks} ranks", flush=True)


if __name__ == "__main__":
    sys.exit(main())
