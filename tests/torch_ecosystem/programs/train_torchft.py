"""Trains with torchft through a replica that is killed and comes back, and compares with a run without a fault.

    python train_torchft.py hsdp|diloco|streaming [--process-group gloo|roundelay] [--recover http|group]
                            [--runs killed forgotten] [--kill STEP] [--lost REPLICA] [--json FILE]

A lighthouse runs here; replicas are processes of this machine. In `hsdp` each of two replicas is two ranks, which have
shards of the parameters (`fully_shard`), and gradients are averaged among replicas by torchft's manager. In `diloco`
two replicas train apart and average what they have learned after every round. In `streaming` three do, one of two
fragments at a time, while they go on training.

The run `without` has no fault. In `killed` all ranks of a replica end by SIGKILL in the middle of a step, between two
of its all_reduces, and new processes take the place: they recover from a replica that lives. Data depend on the step
alone, so both runs are to end alike, and all replicas with the same parameters:

- `hsdp`: the survivor goes on alone, with the data of both. A step adds two gradients, in whichever order, and all else
  is a power of two: each loss and the parameters are the same bit for bit.
- `diloco`: the survivor waits, and does its round again; the new process does it from the recovered parameters. The
  same bit for bit.
- `streaming`: two survivors go on without the third one's data, so parameters differ for a while. The problem is
  strictly convex: they come back to the one place where no replica moves, and losses are within 1e-9.

The new process is started once the survivors have made a step without it, where they do. In `forgotten` it recovers
the step, and none of the state: the comparison has to fail.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import faulthandler
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from common import layers
from torch.nn.functional import mse_loss
from torchft import Manager
from torchft.coordination import LighthouseServer

PATIENCE = timedelta(seconds=20)
"""The longest time of a collective, and of a quorum's group to form."""
QUORUM = timedelta(seconds=120)
"""The longest time for a quorum: a new process starts meanwhile, on a machine with other work."""
LIMIT = float(os.environ.get("TRAIN_LIMIT", "180"))
"""The seconds after which a run counts as hung."""
HEARTBEAT_MS = 2000
"""The lighthouse takes a replica for lost that is silent for this time."""


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


# In a rank's process.


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


# In the process that runs them.


@dataclass
class RankProcess:
    """A rank's process."""

    place: RankPlace
    process: subprocess.Popen[bytes]
    output: Path

    def events(self) -> list[dict[str, Any]]:
        lines = Path(self.place.log).read_text().split("\n")[:-1] if Path(self.place.log).exists() else []
        return [json.loads(line) for line in lines]

    def last(self) -> str:
        """Return what it has done last."""
        events = self.events()
        if not events:
            return "has not begun"
        what = events[-1]
        step = f" of step {what['step']}" if "step" in what else ""
        return f"has last noted '{what['event']}'{step}, {time.monotonic() - what['time']:.0f} s ago"

    def tail(self) -> str:
        return self.output.read_text(errors="replace")[-3000:]


@dataclass
class RunOutcome:
    """What came out of a run: losses by step and what they are of, and of each rank the last loss and a digest."""

    name: str
    seconds: float = 0.0
    losses: dict[str, float] = field(default_factory=dict)
    ends: dict[str, tuple[float, str]] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    error: str = ""


@contextlib.contextmanager
def quiet(log: Path) -> Iterator[None]:
    """Have what the lighthouse says, a line for every request, in a file."""
    sys.stderr.flush()
    saved = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


class TrainRun:
    """One run of a program: its lighthouse, and the processes of its replicas."""

    def __init__(self, program: str, plan: TrainPlan, group: str, recover: str, name: str, folder: Path) -> None:
        self.program, self.plan, self.group, self.recover = program, plan, group, recover
        self.name, self.folder = name, folder
        self.lighthouse: Any = None
        self.meeting = dist.TCPStore("127.0.0.1", 0, None, True, QUORUM, wait_for_workers=False)
        self.running: list[RankProcess] = []
        self.dead: list[RankProcess] = []
        self.again = False

    def start(self, replica: int, life: int) -> None:
        for rank in range(self.plan.ranks):
            stem = self.folder / f"{replica}.{rank}.{life}"
            place = RankPlace(
                program=self.program,
                plan=self.plan,
                group=self.group,
                recover=self.recover,
                fault=self.name != "without",
                forget=self.name == "forgotten",
                replica=replica,
                rank=rank,
                life=life,
                lighthouse=self.lighthouse.address(),
                port=self.meeting.port,
                log=f"{stem}.json",
            )
            output = Path(f"{stem}.txt")
            with output.open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, __file__, self.program, "--rank", json.dumps(asdict(place))],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            self.running.append(RankProcess(place, process, output))

    def run(self) -> RunOutcome:
        """Run all, and start the replica that was killed once more."""
        outcome = RunOutcome(self.name)
        begin = time.monotonic()
        try:
            self.lighthouse = LighthouseServer(
                bind="127.0.0.1:0",
                min_replicas=self.plan.least,
                heartbeat_timeout_ms=HEARTBEAT_MS,
                join_timeout_ms=60_000,
            )
            for replica in range(self.plan.replicas):
                self.start(replica, 0)
            outcome.error = self.watch(begin + LIMIT)
        finally:
            for each in self.running:
                each.process.kill()
                each.process.wait()
            if self.lighthouse is not None:
                self.lighthouse.shutdown()
        outcome.seconds = time.monotonic() - begin
        self.collect(outcome)
        return outcome

    def watch(self, until: float) -> str:
        """Wait for all; return what went wrong, if anything did, and who waited."""
        while True:
            alive = [each for each in self.running if each.process.poll() is None]
            ended = [each for each in self.running if each.process.returncode]
            if any(self.killed(each) for each in ended):
                self.reap()
                continue
            if self.dead and not self.again and self.continued():
                self.again = True
                self.start(self.plan.lost, 1)
                continue
            if ended:
                return f"{ended[0].place.name()} ended with {ended[0].process.returncode}:\n{ended[0].tail()}"
            if not alive:
                return ""
            if time.monotonic() > until:
                for each in alive:
                    each.process.send_signal(signal.SIGUSR1)  # Its stacks.
                time.sleep(1)
                states = [f"{each.place.name()} {each.last()}" for each in alive]
                stacks = [f"{each.place.name()}:\n{each.tail()}" for each in alive]
                return "\n".join([f"the run '{self.name}' has not ended in {LIMIT:g} s", *states, *stacks])
            time.sleep(0.02)

    def killed(self, each: RankProcess) -> bool:
        """Return if a rank was killed as planned."""
        place = each.place
        planned = place.fault and place.replica == self.plan.lost and not place.life
        return planned and each.process.returncode == -signal.SIGKILL

    def reap(self) -> None:
        """End what is left of the replica that was killed, as an agent does."""
        self.dead = [each for each in self.running if each.place.replica == self.plan.lost]
        for each in self.dead:
            each.process.kill()
            each.process.wait()
        self.running = [each for each in self.running if each.place.replica != self.plan.lost]

    def continued(self) -> bool:
        """Return if the survivors have made a step without the lost replica, where they can."""
        if self.plan.least == self.plan.replicas:
            return True
        return all(self.without(each) for each in self.running)

    def without(self, each: RankProcess) -> list[int]:
        """Return the steps that a survivor has made without the lost replica."""
        events = [event for event in each.events() if event["event"] == "step"]
        return [event["step"] for event in events if event["group"] < self.plan.replicas]

    def collect(self, outcome: RunOutcome) -> None:
        """Read what processes have noted."""
        for each in self.dead + self.running:
            for event in each.events():
                if event["event"] == "step":
                    # What a killed rank has done last counts only if it noted it: else others do it again.
                    outcome.losses |= {f"step {event['step']} {of}": loss for of, loss in event["losses"].items()}
                if event["event"] == "end":
                    name = f"replica {each.place.replica} rank {each.place.rank}"
                    outcome.ends[name] = (event["loss"], event["parameters"])
        times = [one["time"] for each in self.running for one in each.events() if one["event"] in ("step", "end")]
        outcome.figures = {"training_s": round(max(times) - min(times), 1)} if times else {}
        kills = [event["time"] for each in self.dead for event in each.events() if event["event"] == "kill"]
        if not kills:
            return
        kill = max(kills)
        survivors = [each for each in self.running if not each.place.life]
        newcomers = [each for each in self.running if each.place.life]
        rejoined = [one["step"] for each in newcomers for one in each.events() if one["event"] == "step"]

        def after(ranks: list[RankProcess], event: str) -> float | None:
            """Return when the last of these ranks first noted an event, in seconds after the kill."""
            times = [[one["time"] for one in each.events() if one["event"] == event] for each in ranks]
            first = [min((time for time in each if time > kill), default=math.inf) for each in times]
            last = max(first, default=math.inf)
            return round(last - kill, 3) if last < math.inf else None

        outcome.figures |= {
            "lost": self.plan.lost,
            "killed_in_step": self.plan.kill,
            "kill_to_failed_step_s": after(survivors, "failed"),
            "kill_to_next_step_s": after(survivors, "step"),
            "steps_without": len(self.without(survivors[0])),
            "kill_to_new_process_s": after(newcomers, "start"),
            "kill_to_rejoined_step_s": after(newcomers, "step"),
            "rejoined_in_step": min(rejoined, default=None),
        }


def compared(plan: TrainPlan, without: RunOutcome, other: RunOutcome) -> list[str]:
    """Return in what a run differs from the one without a fault, and its replicas from each other."""
    if other.error:
        return [other.error]
    found = []
    if other.name != "without":
        # Else there was no fault, or none that anybody met.
        if other.figures.get("kill_to_failed_step_s") is None:
            found.append("the step in which a replica was killed has not failed on every survivor")
        if plan.least < plan.replicas and not other.figures.get("steps_without"):
            found.append("the survivors have not made a step without the lost replica")
        if other.figures.get("rejoined_in_step") is None:
            found.append("the lost replica has not come back")
    for run in (without, other):
        if len({digest for _, digest in run.ends.values()}) != 1:
            found.append(f"the parameters of the replicas differ in the run '{run.name}': {run.ends}")
    one, two = (next(iter(run.ends.values())) for run in (without, other))
    if not math.isclose(one[0], two[0], rel_tol=plan.tolerance):
        found.append(f"the loss is {two[0]!r}, without a fault {one[0]!r}")
    if plan.tolerance:
        return found
    if one[1] != two[1]:
        found.append("the parameters are not those without a fault bit for bit")
    wrong = [key for key, loss in without.losses.items() if other.losses.get(key) != loss]
    if wrong or len(other.losses) != len(without.losses):
        found.append(f"{len(wrong)} of {len(without.losses)} losses differ, first that of {wrong[:1]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("program", choices=TRAIN)
    replaced = "roundelay" if os.environ.get("ROUNDELAY_REPLACE") else "gloo"
    parser.add_argument("--process-group", choices=("gloo", "roundelay"), default=replaced)
    parser.add_argument("--recover", choices=("http", "group"), default="http", help="how a new process gets the state")
    parser.add_argument("--runs", nargs="*", choices=("killed", "forgotten"), default=["killed", "forgotten"])
    parser.add_argument("--kill", type=int, help="the step in which a replica is killed")
    parser.add_argument("--lost", type=int, default=0, help="the replica that is killed")
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        values = json.loads(options.rank)
        place = RankPlace(**values | {"plan": TrainPlan(**values["plan"])})
        if place.group == "roundelay":
            import roundelay.torch  # noqa: F401
        job = RankJob(place)
        TRAIN[place.program](job)
        return 0
    rows, status = [], 0
    outcomes: dict[str, RunOutcome] = {}
    plan = PLANS[options.program]
    plan = dataclasses.replace(plan, kill=plan.kill if options.kill is None else options.kill, lost=options.lost)
    if not 0 < plan.kill < (plan.hold or plan.steps) or not 0 <= plan.lost < plan.replicas:
        parser.error(f"--kill is from 1 to {(plan.hold or plan.steps) - 1}, --lost to {plan.replicas - 1}")
    for name in ["without", *options.runs]:
        with tempfile.TemporaryDirectory() as folder, quiet(Path(folder) / "lighthouse.txt"):
            run = TrainRun(options.program, plan, options.process_group, options.recover, name, Path(folder)).run()
        outcomes[name] = run
        differences = compared(plan, outcomes["without"], run)
        # Of a run that recovers nothing, the comparison has to see both.
        seen = [any(part in each for each in differences) for part in ("parameters of the replicas", "the loss is")]
        ok = all(seen) if name == "forgotten" else not differences
        loss = next(iter(run.ends.values()), (math.nan, ""))[0]
        row = dict(
            program=options.program,
            group=options.process_group,
            recover=options.recover,
            run=name,
            replicas=plan.replicas,
            ranks=plan.ranks,
            steps=plan.steps,
            loss=loss,
            seconds=round(run.seconds, 1),
            ok=ok,
            differences=[each[:300] for each in differences],
            **run.figures,
        )
        rows.append(row)
        print("FIGURES " + json.dumps(row), flush=True)
        if not ok:
            unseen = ["the comparison does not see that nothing was recovered"] if name == "forgotten" else []
            print("\n".join(differences + unseen), flush=True)
            status = 1
            break
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")
    if "killed" in outcomes and not status:
        killed = outcomes["killed"]
        loss, digest = next(iter(killed.ends.values()))
        # The order in which three replicas are added is the group's own.
        result = {"losses": [loss], "parameters": digest if plan.replicas == 2 else ""}
        print("OUTCOME " + json.dumps(result), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
