"""Faults of every kind in every face, and the error of each survivor: `campaign.py faults` runs these rounds.

A round is one job of three ranks, one of which is the victim. A survivor is right if it raises an error in time that
names the victim before any other rank. A rank that ended has a second or two, one that is stopped or late the timeout.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
from collections import defaultdict
from typing import Any

KINDS = {
    "killed": "SIGKILL at any moment",
    "stopped": "SIGSTOP at any moment",
    "exit": "os._exit between calls",
    "segfault": "a segmentation fault between calls",
    "memory": "a MemoryError that ends the program",
    "late": "it waits in a call of another group",
}
SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
WAITS = ("stopped", "late")
"""Faults that only a deadline shows."""
TRANSPORTS = ("shm", "tcp", "hosts")
NOTICE = 2.0
"""The seconds within which survivors are notified that a rank has ended."""
SLACK = 1.0
"""The seconds that a deadline may be late, on a machine that does other things too."""


def fields(number: int, options: argparse.Namespace, chance: random.Random) -> dict[str, Any]:
    """Return what is special about a round: face, kind and transport come by turns, the victim by chance."""
    faces, kinds = options.faces.split(","), list(KINDS)
    kind = kinds[number // len(faces) % len(kinds)]
    return {
        "face": faces[number % len(faces)],
        "kind": kind,
        "transport": TRANSPORTS[number // len(faces) // len(kinds) % len(TRANSPORTS)],
        "victim": chance.randrange(options.ranks),
        "how": SIGNALS.get(kind, 0),
        "where": "anywhere" if kind in SIGNALS else "itself",
        "timeout": options.timeout,
    }


STOPPED = re.compile(r"rank \d+ stopped because rank (\d+) failed: ")
"""The rank that reports the error of another one, and that one."""
LOCATION = re.compile(r"rank \d+, [\w.]+, step \d+")
"""The rank that reports an error, and where it was."""


def first_named(text: str, own: int) -> int | None:
    """Return the first rank of which an error says something, but for those that report it.

    A rank that failed by itself, as by an exception, is the one that others report.
    """
    reporter = STOPPED.search(text)
    named = [int(number) for number in re.findall(r"\brank (\d+)", LOCATION.sub("", STOPPED.sub("", text)))]
    if reporter:
        named.append(int(reporter[1]))
    return next((rank for rank in named if rank != own), None)


class FaultJudge:
    """The errors of the survivors of all rounds, by kind and face."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], dict[str, Any]] = defaultdict(
            lambda: {"faults": 0, "survivors": 0, "right": 0, "seconds": [], "texts": {}}
        )
        self.problems: list[str] = []

    def look(self, plan: Any, ends: list[Any]) -> None:
        """Judge one round."""
        row = self.rows[plan.kind, plan.face]
        row["faults"] += 1
        hurt = plan.board.get("hurt", plan.victim)
        where = f"round {plan.number} ({plan.kind} in {plan.face} over {plan.transport}, rank {plan.victim})"
        if not hurt:
            self.problems.append(f"{where}: it never came to the fault\n{ends[plan.victim].text[-2000:]}")
            return
        for rank, end in enumerate(ends):
            if rank == plan.victim:
                continue
            row["survivors"] += 1
            if end.code != 1 or end.error is None:
                self.problems.append(f"{where}, rank {rank}: ended with {end.code}\n{end.text[-2000:]}")
                continue
            text, took = end.error["text"], plan.board.get("raised", rank) - hurt
            limit = (plan.timeout if plan.kind in WAITS else NOTICE) + SLACK
            row["seconds"].append(took)
            plain = re.sub(r"\d+(\.\d+)?(ms|us|µs|s)?\b", "N", text)[:160]
            row["texts"][plain] = row["texts"].get(plain, 0) + 1
            if first_named(text, rank) == plan.victim and took <= limit:
                row["right"] += 1
            else:
                self.problems.append(f"{where}, rank {rank}: after {took:.2f} s: {text[:600]}")

    def result(self) -> dict[str, Any]:
        """Return a row for each kind and face, and what went wrong."""
        rows = []
        for (kind, face), row in self.rows.items():
            times = sorted(row.pop("seconds")) or [0.0]
            text = max(row.pop("texts").items(), key=lambda item: item[1], default=("", 0))[0]
            figures = {"median": round(times[len(times) // 2], 2), "most": round(times[-1], 2)}
            rows.append({"kind": kind, "face": face, **row, **figures, "text": text})
        return {"rows": rows, "problems": self.problems}
