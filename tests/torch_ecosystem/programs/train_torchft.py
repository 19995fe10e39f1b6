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
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torchft.coordination import LighthouseServer
from torchft_ranks import PLANS, QUORUM, TRAIN, RankPlace, TrainPlan, run_rank

LIMIT = float(os.environ.get("TRAIN_LIMIT", "180"))
"""The seconds after which a run counts as hung."""
HEARTBEAT_MS = 2000
"""The lighthouse takes a replica for lost that is silent for this time."""


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
        run_rank(options.rank)
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
