"""Ranks that are forked from one process which has imported torch, and what becomes of them.

    python campaign.py CASE --rounds N --ranks N [--backend NAME] [--seed N] --folder FOLDER

The cases are `hurt` (rounds of training in which a rank is killed or stopped), `faults` (rounds of every kind of fault in
each of `--faces`, see `faults.py`), and functions of `programs.py` that
count for themselves: `cycles`, `groups` and `leaky` (what is left of groups that were destroyed), `alive` (what those
cost that live). A round forks the ranks of a job, lets them run a function, does to them what the case says, and waits
for all of them. The first line of output that begins with `{` is the result; its `problems` say what is wrong. Nothing
outlives the program. `ROUNDELAY_TORCH_COMPILED=1` tries the face in C++.
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import random
import re
import select
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import faults

PATIENCE = 60.0
"""The seconds after which a rank that has not ended is one that hangs."""

JUDGED = ("hurt", "faults")
"""The cases with a victim."""

OPERATIONS = ("all_reduce", "broadcast")
"""What a step of training calls: gradients are summed, and the order of the buckets is rank 0's."""

CARRIED = re.compile(r"\b(LostRankError|OperationTimeoutError|AbortedError): roundelay: ")

WORDS = ("step", "hurt", "raised")
"""What a rank tells the others by shared memory: its step, when it was killed or stopped, when it raised its error."""


class Board:
    """A few numbers of each rank, in memory that all processes of a round share."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, mmap.PAGESIZE)

    def put(self, word: str, rank: int, value: float) -> None:
        """Write a number of a rank."""
        struct.pack_into("d", self._map, 8 * (rank * len(WORDS) + WORDS.index(word)), value)

    def get(self, word: str, rank: int) -> float:
        """Return a number of a rank; 0 before it was written."""
        value: float = struct.unpack_from("d", self._map, 8 * (rank * len(WORDS) + WORDS.index(word)))[0]
        return value


@dataclass
class Round:
    """One job: what its ranks need to know, and what is done to them."""

    function: str
    number: int
    ranks: int
    folder: str
    backend: str
    count: int = 0
    timeout: float = 30.0
    victim: int = -1
    how: int = 0
    where: str = ""
    port: int = 0
    face: str = ""
    kind: str = ""
    transport: str = ""
    board: Board = field(default_factory=Board)

    def file(self, kind: str, rank: int) -> Path:
        """Return the path of a file of a rank."""
        return Path(self.folder) / f"{kind}-{self.number}-{rank}"


@dataclass
class End:
    """The end of a rank: its status (negative: the signal), when, what it wrote, and the error that it raised."""

    code: int
    at: float
    text: str
    error: dict[str, Any] | None
    result: Any


def plans(options: argparse.Namespace, port: int) -> list[Round]:
    """Return the rounds of a case."""
    chance = random.Random(options.seed)
    common: dict[str, Any] = dict(ranks=options.ranks, folder=options.folder, backend=options.backend, port=port)
    if options.case == "faults":
        rounds = range(options.rounds)
        return [Round("run_rank", n, **common, **faults.fields(n, options, chance)) for n in rounds]
    if options.case != "hurt":
        return [Round(options.case, 0, count=options.rounds, **common)]
    made = []
    for number in range(options.rounds):
        made.append(
            Round(
                "train",
                number,
                timeout=options.timeout,
                victim=chance.randrange(options.ranks),
                how=(signal.SIGKILL, signal.SIGSTOP)[number % 2],
                where=("anywhere", "hook", "anywhere", "backward")[number // 2 % 4],
                **common,
            )
        )
    return made


def watch(plan: Round, pids: list[int], chance: random.Random) -> list[End]:
    """Do to the ranks what the plan says; return the ends of all of them."""
    open_ = {os.pidfd_open(pid): rank for rank, pid in enumerate(pids)}
    ends: dict[int, tuple[int, float]] = {}

    def collect(seconds: float) -> None:
        for fd in select.select(list(open_), [], [], seconds)[0]:
            rank = open_.pop(fd)
            os.close(fd)
            ends[rank] = (os.waitstatus_to_exitcode(os.waitpid(pids[rank], 0)[1]), time.monotonic())

    until = time.monotonic() + PATIENCE + plan.count
    if plan.victim >= 0:
        victim = plan.victim
        if plan.where == "anywhere":
            # One that ends before it trains is told of below.
            ranks = range(plan.ranks)
            while not ends and min(plan.board.get("step", rank) for rank in ranks) < 2 and time.monotonic() < until:
                collect(0.001)
            time.sleep(chance.uniform(0, 0.03))
            plan.board.put("hurt", victim, time.monotonic())
            if victim not in ends:
                os.kill(pids[victim], plan.how)
        while len(open_) > 1 and time.monotonic() < until:
            collect(1.0)
        # The one that was stopped goes on when all others have ended, and is told as well; or it is killed.
        if victim not in ends:
            os.kill(pids[victim], signal.SIGCONT if chance.random() < 0.5 else signal.SIGKILL)
    while open_ and time.monotonic() < until:
        collect(1.0)
    for fd, rank in list(open_.items()):
        os.kill(pids[rank], signal.SIGABRT)  # Its stacks tell where it hangs.
        time.sleep(0.5)
        os.kill(pids[rank], signal.SIGKILL)
        os.close(fd)
        os.waitpid(pids[rank], 0)
        ends[rank] = (-1000, time.monotonic())
    found = []
    for rank in range(plan.ranks):
        error, result = plan.file("error", rank), plan.file("result", rank)
        found.append(
            End(
                *ends[rank],
                plan.file("log", rank).read_text(errors="replace") if plan.file("log", rank).exists() else "",
                json.loads(error.read_text()) if error.exists() else None,
                json.loads(result.read_text()) if result.exists() else None,
            )
        )
        for kind in ("error", "result", "log"):
            plan.file(kind, rank).unlink(missing_ok=True)
    return found


class Judge:
    """What the survivors of rounds with a victim did, and what of it is wrong."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.kinds: dict[str, int] = {}
        self.raised: dict[str, list[float]] = {"SIGKILL": [], "SIGSTOP": []}
        self.ended: list[float] = []

    def look(self, plan: Round, ends: list[End]) -> None:
        """Judge one round."""
        name = signal.Signals(plan.how).name
        hurt = plan.board.get("hurt", plan.victim)
        if plan.how == signal.SIGKILL and ends[plan.victim].code != -signal.SIGKILL:
            self.problems.append(f"round {plan.number}: the victim ended with {ends[plan.victim].code}")
        for rank, end in enumerate(ends):
            where = f"round {plan.number} ({name} of rank {plan.victim}, {plan.where}), rank {rank}"
            if rank == plan.victim:
                # Stopped, it was killed at the end, or it went on and was told.
                if plan.how == signal.SIGSTOP and end.code not in (-signal.SIGKILL, 1):
                    self.problems.append(f"{where}: ended with {end.code}\n{end.text[-3000:]}")
                continue
            if end.code != 1 or end.error is None:
                self.problems.append(f"{where}: ended with {end.code}\n{end.text[-3000:]}")
                continue
            text, kind = end.error["text"], end.error["type"]
            carried = CARRIED.search(text)
            if kind == "RuntimeError" and carried:
                # An error that a future carried: torch keeps its text, class included.
                kind = f"RuntimeError({carried[1]})"
                end.error["typed"] = True
            took = plan.board.get("raised", rank) - hurt
            self.kinds[f"{name} {kind}"] = self.kinds.get(f"{name} {kind}", 0) + 1
            self.raised[name].append(took)
            self.ended.append(end.at - plan.board.get("raised", rank))
            if not end.error["typed"] or f"rank {plan.victim}" not in text or not any(name in text for name in OPERATIONS):
                self.problems.append(f"{where}: {kind} does not name rank or operation: {text}")
            if took > plan.timeout + 1:
                self.problems.append(f"{where}: raised after {took:.2f} s, with a timeout of {plan.timeout} s: {text}")

    def result(self) -> dict[str, Any]:
        """Return the figures: seconds to the error, and from the error to the end of the process."""
        figures: dict[str, Any] = {"kinds": self.kinds, "problems": self.problems}
        for name, times in [*self.raised.items(), ("end", self.ended)]:
            if times:
                ordered = sorted(times)
                figures[name] = {"median": round(ordered[len(ordered) // 2], 3), "most": round(ordered[-1], 3)}
        return figures


SLACK = 4608
"""The bytes of a round that are no leak of ours: torch keeps some of all groups that there were (1.3 kB of a group of Gloo's,
3.8 kB where the default group is made anew)."""


def leaks(rank: int, rounds: int, seen: list[dict[str, int]]) -> list[str]:
    """Say what grew between half of the rounds and all of them, when everything was warm."""
    half, end = seen[-2:]
    found = []
    for what in ("descriptors", "threads", "mappings"):
        # A thread that ends by itself when it has nothing to do, and an arena of the allocator, come and go.
        if end[what] - half[what] > (2 if what == "mappings" else 0):
            found.append(f"rank {rank}: {what} grew from {half[what]} to {end[what]}")
    grown = (end["memory"] - half["memory"]) / (rounds - rounds // 2)
    if grown > SLACK + (1 << 20) / rounds:
        found.append(f"rank {rank}: memory grew by {grown:.0f} bytes a round")
    return found


def shared() -> set[str]:
    """Return what there is in shared memory by name, but for the semaphores of other programs in Python."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.mp-")}


def summary(options: argparse.Namespace, port: int) -> Any:
    """Run a case; return its result on the server, and the job of a rank on a forked process."""
    import programs

    # The ranks' collectors leave alone what the server has made: else each would copy all of it.
    gc.collect()
    gc.freeze()
    judge: Judge | faults.FaultJudge = faults.FaultJudge() if options.case == "faults" else Judge()
    chance = random.Random(options.seed + 1)
    threads = len(os.listdir("/proc/self/task"))
    before = shared()
    for plan in plans(options, port):
        pids = []
        for rank in range(plan.ranks):
            pid = os.fork()
            if pid == 0:
                return programs.Job(plan, rank)
            pids.append(pid)
        ends = watch(plan, pids, chance)
        if options.case in JUDGED:
            judge.look(plan, ends)
            if plan.number % 100 == 99:
                print(f"{plan.number + 1} rounds, {len(judge.problems)} problems", flush=True)
    result = judge.result() if options.case in JUDGED else {}
    result |= {"threads": threads, "shm": sorted(shared() - before)}
    if options.case not in JUDGED:
        problems = result["problems"] = []
        for rank, end in enumerate(ends):
            if end.code != 0 or end.result is None:
                problems.append(f"rank {rank} ended with {end.code}\n{end.text[-6000:]}")
            elif options.case != "alive":
                problems += leaks(rank, options.rounds, end.result)
        result["ranks"] = [end.result for end in ends]
    if result["shm"]:
        result["problems"].append(f"left in shared memory: {', '.join(result['shm'])}")
    return result


STORE = """
import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="roundelay")
    parser.add_argument("--faces", default="native,torch,compiled,torchcomms")
    parser.add_argument("--timeout", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", required=True)
    options = parser.parse_args()
    # The store is a process of its own: what it keeps is not counted as a rank's.
    store = subprocess.Popen([sys.executable, "-c", STORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert store.stdin is not None and store.stdout is not None
    server = os.getpid()
    found = summary(options, int(store.stdout.readline()))
    if os.getpid() != server:
        # A rank: what it raises ends its interpreter as it ends a program.
        found.run()
        return
    store.stdin.close()
    store.wait()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
