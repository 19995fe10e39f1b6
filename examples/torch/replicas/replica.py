"""What the examples have in common: a replica's place in the job, torchft's manager, a fault on request, and notes."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torchft import Manager

import roundelay.torch
from roundelay.torch.torchft import ProcessGroupRoundelay

TIMEOUT = timedelta(seconds=20)
"""The longest time without progress of a collective, and for the ranks of a quorum to meet."""
QUORUM_TIMEOUT = timedelta(seconds=120)
"""The longest time for a quorum, in which a process that was killed is started again."""


class TrainReplica:
    """One rank of a replica: torchrun has started it, and starts it again when a rank of the replica has ended.

    The replica's ranks have a process group of their own (the default one); `manager` has the group among replicas.
    """

    def __init__(self) -> None:
        parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
        parser.add_argument("--replica", type=int, default=0, help="the number of this replica")
        parser.add_argument("--replicas", type=int, default=2)
        parser.add_argument("--backend", choices=("roundelay", "gloo", "nccl"), default="roundelay")
        parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
        parser.add_argument("--steps", type=int, default=12)
        parser.add_argument("--kill", type=int, default=-1, help="the step in which replica 0 is killed")
        parser.add_argument("--alone", type=int, default=4, help="steps that are made without it, at most")
        parser.add_argument("--notes", default="/dev/stdout", help="a file for a line of JSON a step")
        self.options = options = parser.parse_args()
        self.life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        self.device = torch.device(options.device)
        if options.device == "cuda":
            place = options.replica * int(os.environ["WORLD_SIZE"]) + int(os.environ["RANK"])
            self.device = torch.device("cuda", place % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        roundelay.torch.register()  # For torch before 2.14.
        dist.init_process_group(options.backend, timeout=TIMEOUT)
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.manager: ReplicaManager

    def manage(self, load: Callable[[Any], None], state: Callable[[], Any], least: int) -> ReplicaManager:
        """Join the other replicas. A step counts where ``least`` of them made it, or more."""
        self.manager = ReplicaManager(
            self,
            pg=self.group_among_replicas(),
            load_state_dict=load,
            state_dict=state,
            min_replica_size=least,
            # The quorum is formed before the forward pass: the data of a step depend on who is there.
            use_async_quorum=False,
            init_sync=False,
            timeout=2 * TIMEOUT,
            quorum_timeout=QUORUM_TIMEOUT,
            connect_timeout=TIMEOUT,
            # Ranks, their number and their store are those that torchrun gives.
            replica_id=f"replica_{self.options.replica}",
            hostname="localhost",
        )
        return self.manager

    def group_among_replicas(self) -> Any:
        """Return the process group that torchft configures for each quorum."""
        if self.options.backend == "roundelay":
            return ProcessGroupRoundelay(timeout=TIMEOUT)
        from torchft import process_group

        name = "ProcessGroupNCCL" if self.options.backend == "nccl" else "ProcessGroupGloo"
        return getattr(process_group, name)(timeout=TIMEOUT)

    def note(self, event: str, **what: Any) -> None:
        """Have rank 0 append a line to the notes."""
        if self.rank == 0:
            line = {"event": event, "replica": self.options.replica, "life": self.life, "time": time.time(), **what}
            with Path(self.options.notes).open("a") as notes:
                notes.write(json.dumps(line) + "\n")

    def end(self, loss: float) -> None:
        """Note the loss, and leave once every replica has ended its last step: before, it would lose a peer in it."""
        self.note("end", loss=loss)
        self.manager.start_quorum()
        self.manager.allreduce(torch.zeros(1, device=self.device)).wait()
        self.manager.shutdown(wait=False)
        dist.destroy_process_group()


class ReplicaManager(Manager):  # type: ignore[misc, unused-ignore]
    """torchft's manager, for examples that end with the same loss each time.

    In the first step, and once `--alone` steps were made without a replica, it waits until all replicas are there;
    without that, a run this short would have ended before a killed process has started again.
    """

    def __init__(self, replica: TrainReplica, **settings: Any) -> None:
        self.replica = replica
        self.calls = 0
        super().__init__(**settings)

    def start_quorum(self, *arguments: Any, **settings: Any) -> None:
        options, self.calls = self.replica.options, 0
        super().start_quorum(*arguments, **settings)
        until = time.monotonic() + QUORUM_TIMEOUT.total_seconds()
        step = self.current_step()
        waits = step == 0 or (0 <= options.kill and options.kill + options.alone <= step)
        # After an error the step has to fail first.
        while waits and self.num_participants() < options.replicas and not self.errored():
            if time.monotonic() > until:
                raise TimeoutError(f"{self.num_participants()} of {options.replicas} replicas in step {step}")
            time.sleep(0.05)  # A quorum of those that are there forms at once.
            super().start_quorum(*arguments, **settings)

    def allreduce(self, *arguments: Any, **settings: Any) -> Any:
        replica, options = self.replica, self.replica.options
        self.calls += 1
        # Replica 0 has the lighthouse's first place, so the others also lose the store of the quorum.
        if self.current_step() == options.kill and options.replica == 0 and not replica.life and self.calls == 2:
            replica.note("kill", step=self.current_step())
            os.kill(os.getpid(), signal.SIGKILL)
        return super().allreduce(*arguments, **settings)
