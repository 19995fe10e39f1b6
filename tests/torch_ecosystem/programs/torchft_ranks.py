"""A rank of the programs that `train_torchft.py` runs: what it trains, and where it notes what it has done."""

from __future__ import annotations

import faulthandler
import hashlib
import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from common import layers
from torch.nn.functional import mse_loss
from torchft import Manager

PATIENCE = timedelta(seconds=20)
"""The longest time of a collective, and of a quorum's group to form."""
QUORUM = timedelta(seconds=120)
"""The longest time for a quorum: a new process starts meanwhile, on a machine with other work."""


@dataclass(frozen=True)
class TrainPlan:
    """How a program is run. Replica `lost` is killed in step `kill`; in step 0 and from `hold` on all have to be there.

    The first replica is the one whose store the quorum has.
    """

    replicas: int
    ranks: int
    least: int
    steps: int
    kill: int
    hold: int
    tolerance: float
    lost: int = 0


PLANS = {
    "hsdp": TrainPlan(replicas=2, ranks=2, least=1, steps=24, kill=8, hold=16, tolerance=0.0),
    "diloco": TrainPlan(replicas=2, ranks=1, least=2, steps=16, kill=6, hold=0, tolerance=0.0),
    "streaming": TrainPlan(replicas=3, ranks=1, least=2, steps=160, kill=20, hold=40, tolerance=1e-9),
}


@dataclass(frozen=True)
class RankPlace:
    """Which process this is, and what it needs to find the others. `life` counts the processes of a replica."""

    program: str
    plan: TrainPlan
    group: str
    recover: str
    fault: bool
    forget: bool
    replica: int
    rank: int
    life: int
    lighthouse: str
    port: int
    log: str

    def name(self) -> str:
        return f"replica {self.replica} rank {self.rank}" + (f" life {self.life}" if self.life else "")


class StepManager(Manager):  # type: ignore[misc]
    """torchft's manager, in which a rank is killed, waits for all replicas, or forgets what it recovers."""

    def __init__(self, job: RankJob, **settings: Any) -> None:
        self.job = job
        self.calls = 0
        super().__init__(**settings)

    def register_state_dict_fn(self, key: str, load_state_dict: Any, state_dict: Any) -> None:
        if self.job.place.forget and self.job.place.life:
            load_state_dict = lambda state: None  # noqa: E731
        super().register_state_dict_fn(key, load_state_dict, state_dict)

    def start_quorum(self, *arguments: Any, **settings: Any) -> None:
        self.calls = 0
        super().start_quorum(*arguments, **settings)
        until = time.monotonic() + QUORUM.total_seconds()
        plan = self.job.plan
        # After an error the step is to fail: no further quorum before that.
        while (
            (self.current_step() >= plan.hold or self.current_step() == 0)
            and self.num_participants() < plan.replicas
            and not self.errored()
        ):
            if time.monotonic() > until:
                raise TimeoutError(
                    f"{self.job.place.name()} has waited {QUORUM.total_seconds():g} s at step {self.current_step()}: "
                    f"{self.num_participants()} of {plan.replicas} replicas are there"
                )
            time.sleep(0.05)
            super().start_quorum(*arguments, **settings)

    def allreduce(self, *arguments: Any, **settings: Any) -> Any:
        self.calls += 1
        job = self.job
        fault = job.place.fault and job.place.replica == job.plan.lost and not job.place.life
        if fault and self.current_step() == job.plan.kill and self.calls == 2:
            job.note("kill", step=self.current_step())
            os.kill(os.getpid(), signal.SIGKILL)
        return super().allreduce(*arguments, **settings)


class RankJob:
    """What a rank's process has: its place, its replica's store, and a file with what it has done."""

    def __init__(self, place: RankPlace) -> None:
        self.place = place
        self.plan = place.plan
        self.log = open(place.log, "w", buffering=1)
        self.note("start")
        self.meeting = dist.TCPStore("127.0.0.1", place.port, None, False, QUORUM, wait_for_workers=False)
        key = f"port/{place.replica}/{place.life}"
        if place.rank == 0:
            self.store = dist.TCPStore("127.0.0.1", 0, None, True, QUORUM, wait_for_workers=False)
            self.meeting.set(key, str(self.store.port))
        else:
            port = int(self.meeting.get(key))
            self.store = dist.TCPStore("127.0.0.1", port, None, False, QUORUM, wait_for_workers=False)
        self.manager: StepManager

    def note(self, event: str, **what: Any) -> None:
        """Leave a line for the process that runs this."""
        print(json.dumps({"event": event, "time": time.monotonic(), **what}), file=self.log, flush=True)

    def manage(self, load: Callable[[Any], None], state: Callable[[], Any]) -> StepManager:
        """Make the manager, with a process group among the replicas."""
        if self.place.group == "roundelay":
            from roundelay.torch.torchft import ProcessGroupRoundelay as ProcessGroup
        else:
            from torchft.process_group import ProcessGroupGloo as ProcessGroup
        group = ProcessGroup(timeout=PATIENCE)
        transport = None
        if self.place.recover == "group":
            from torchft.checkpointing.pg_transport import PGTransport

            transport = PGTransport(group, PATIENCE, torch.device("cpu"))
        self.manager = StepManager(
            self,
            pg=group,
            load_state_dict=load,
            state_dict=state,
            min_replica_size=self.plan.least,
            # Before the forward pass, for what a rank trains on depends on who is there.
            use_async_quorum=False,
            init_sync=False,
            timeout=2 * PATIENCE,
            quorum_timeout=QUORUM,
            connect_timeout=PATIENCE,
            checkpoint_transport=transport,
            rank=self.place.rank,
            world_size=self.plan.ranks,
            store_addr="127.0.0.1",
            store_port=self.store.port,
            lighthouse_addr=self.place.lighthouse,
            replica_id=f"replica_{self.place.replica}",
            hostname="127.0.0.1",
        )
        return self.manager

    def stepped(self, before: int, losses: dict[str, float]) -> None:
        """Note a step, if it counts, with its losses by what they are of."""
        after = self.manager.current_step()
        event = "step" if after > before else "failed"
        self.note(event, step=before, losses=losses, group=self.manager.num_participants())

    def finish(self, loss: float, parameters: Iterable[torch.Tensor]) -> None:
        """Note the outcome, and wait for the others: one that leaves would be a fault for those in their last step."""
        digest = hashlib.sha256()
        for each in parameters:
            digest.update(each.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        self.note("end", loss=loss, parameters=digest.hexdigest()[:16])
        place, plan = self.place, self.plan
        self.meeting.set(f"end/{place.replica}/{place.rank}", "")
        every = [f"end/{replica}/{rank}" for replica in range(plan.replicas) for rank in range(plan.ranks)]
        self.meeting.wait(every, QUORUM)
        self.manager.shutdown(wait=False)


def seeded(*numbers: int) -> torch.Generator:
    """Return random numbers that depend on these alone."""
    seed = 0
    for number in numbers:
        seed = seed * 1009 + number + 1
    return torch.Generator().manual_seed(seed)


def batch(*numbers: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return data and targets, of a function that can be learned."""
    teacher = torch.randn(32, 8, generator=seeded(0)) / 6
    data = torch.randn(16, 32, generator=seeded(1, *numbers))
    return data, torch.tanh(data @ teacher)


def train_hsdp(job: RankJob) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard
    from torchft.optim import OptimizerWrapper

    place, plan = job.place, job.plan
    parts = plan.replicas
    dist.init_process_group(place.group, store=job.store, rank=place.rank, world_size=plan.ranks, timeout=PATIENCE)
    mesh = init_device_mesh("cpu", (plan.ranks,), mesh_dim_names=("shard",))
    model = layers()
    for layer in model.children():
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)

    def load(state: Any) -> None:
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])

    manager = job.manage(load, lambda: {"model": model.state_dict(), "adam": adam.state_dict()})
    optimizer = OptimizerWrapper(manager, adam)
    for each in model.modules():
        if isinstance(each, FSDPModule):
            each.set_all_reduce_hook(lambda output: manager.allreduce(output).wait())
    while manager.current_step() < plan.steps:
        optimizer.zero_grad()
        step, first, group = manager.current_step(), manager.participating_rank(), manager.num_participants()
        losses = {}
        for part in range(first, parts, group):
            data, target = (each[place.rank :: plan.ranks] for each in batch(step, part))
            loss = mse_loss(model(data), target)
            (loss * group / parts).backward()
            losses[f"part {part} rank {place.rank}"] = float(loss.detach())
        optimizer.step()
        job.stepped(step, losses)
    data, target = batch(-1)
    loss = mse_loss(model(data), target)
    job.finish(float(loss.detach()), [each.full_tensor() for each in model.state_dict().values()])
    dist.destroy_process_group()


def train_diloco(job: RankJob) -> None:
    from torchft.local_sgd import DiLoCo

    place, plan = job.place, job.plan
    every = 4
    model = layers()
    inner = torch.optim.SGD(model.parameters(), lr=0.2)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    losses: dict[str, float] = {}
    begun: dict[str, torch.Tensor] = {}

    def round_of(step: int, optimizer: torch.optim.Optimizer) -> None:
        begun.update({name: each.detach().clone() for name, each in model.state_dict().items()})
        for local in range(every):
            data, target = batch(step, place.replica, local)
            optimizer.zero_grad()
            loss = mse_loss(model(data), target)
            loss.backward()
            losses[f"replica {place.replica} local {local}"] = float(loss.detach())
            optimizer.step()

    def load(state: Any) -> None:
        # The others have ended their round, and average what came of it: do this replica's now, from where they began.
        model.load_state_dict(state["begun"])
        round_of(manager.current_step(), torch.optim.SGD(model.parameters(), lr=0.2))

    manager = job.manage(load, lambda: {"begun": dict(begun)})
    with DiLoCo(manager, [model], inner, outer, sync_every=every):
        while manager.current_step() < plan.steps:
            # A new process learns only in its first quorum, at the end of the round, which step it is.
            before = manager.current_step()
            round_of(before, inner)
            after = manager.current_step()
            job.stepped(after - 1 if after > before else before, losses)
    data, target = batch(-1)
    job.finish(float(mse_loss(model(data), target).detach()), model.parameters())


class AddedFragments(torch.nn.Module):
    """A linear model in two fragments, which have two matrices each, every one of a fourth of the data's columns."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        parts = [torch.nn.Linear(4, 4, bias=False, dtype=torch.float64) for _ in range(4)]
        self.fragments = torch.nn.ModuleList([torch.nn.ModuleList(parts[:2]), torch.nn.ModuleList(parts[2:])])

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        parts = [part for fragment in self.fragments for part in fragment.children()]
        return sum((part(columns) for part, columns in zip(parts, data.chunk(4, 1), strict=True)), torch.zeros(()))


def own_data(replica: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a replica's data, which are of a function with an error of its own."""
    chance = seeded(2, replica)
    data = torch.randn(256, 16, generator=chance, dtype=torch.float64)
    teacher = torch.randn(16, 4, generator=seeded(3), dtype=torch.float64)
    return data, data @ teacher + torch.randn(256, 4, generator=chance, dtype=torch.float64)


def train_streaming(job: RankJob) -> None:
    from torchft.local_sgd import DiLoCo

    place, plan = job.place, job.plan
    model = AddedFragments()
    inner = torch.optim.SGD(model.parameters(), lr=0.8, weight_decay=0.01)
    outers = [torch.optim.SGD(each.parameters(), lr=0.7, momentum=0.9, nesterov=True) for each in model.fragments]

    def load(state: Any) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["inner"])

    manager = job.manage(load, lambda: {"model": model.state_dict(), "inner": inner.state_dict()})
    data, target = own_data(place.replica)
    diloco = DiLoCo(manager, list(model.fragments), inner, outers, sync_every=6, fragment_sync_delay=1)
    with diloco:
        while (step := manager.current_step()) < plan.steps:
            local = diloco._local_step
            inner.zero_grad()
            loss = mse_loss(model(data), target)
            loss.backward()
            inner.step()
            if diloco._local_step < local + 1:  # A fragment was due.
                after = manager.current_step()
                of = {f"replica {place.replica}": float(loss.detach())}
                job.stepped(after - 1 if after > step else step, of)
    # What the replicas share; beside it each has moved on by itself in the fragment that is not due.
    shared = [part.original_parameters for part in diloco._fragments]
    for fragment, parameters in zip(model.fragments, shared, strict=True):
        fragment.load_state_dict(parameters)
    with torch.no_grad():
        losses = [float(mse_loss(model(each), wanted)) for each, wanted in map(own_data, range(plan.replicas))]
    job.finish(math.fsum(losses) / len(losses), model.parameters())


TRAIN = {"hsdp": train_hsdp, "diloco": train_diloco, "streaming": train_streaming}


def run_rank(text: str) -> None:
    """Train as the rank whose place is given, as JSON."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    values = json.loads(text)
    place = RankPlace(**values | {"plan": TrainPlan(**values["plan"])})
    if place.group == "roundelay":
        import roundelay.torch  # noqa: F401
    TRAIN[place.program](RankJob(place))
