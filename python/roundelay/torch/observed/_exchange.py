"""What the observers of a group pass each other through the group's store.

A question is a number that grows. Each rank looks for one now and then, and answers with its report. The first rank
that reaches a verdict keeps it in the store, and all others take it from there. No call waits for a key that is not
there.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ._diagnosis import RankReport, RankVerdict
from ._process import condition, host_name, start_of

_KEPT_SECONDS = 1.0
"""The longest time that another rank takes to keep its verdict."""


@dataclass(frozen=True)
class RankProcess:
    """The process of a rank."""

    pid: int
    host: str
    start: str


class GroupExchange:
    """The keys of one observed group, as one rank uses them."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store = store
        self._rank = rank
        self._size = size
        # Each rank counts how often it has observed the group: the calls are collective, so the counts are equal.
        self._prefix = f"roundelay/observed/{store.add(f'roundelay/observed/of/{rank}', 1)}"
        self._processes: dict[int, RankProcess] = {}
        self._own = RankProcess(os.getpid(), host_name(), start_of(os.getpid()))
        store.set(self._key("process", rank), json.dumps([self._own.pid, self._own.host, self._own.start]))
        # A connection of its own: the program may wait in a call of the store.
        self._thread_store = store
        with suppress(Exception):
            self._thread_store = store.clone()

    def _key(self, *parts: object) -> str:
        return "/".join((self._prefix, *map(str, parts)))

    def _all(self, name: str) -> list[str]:
        return [self._key(name, rank) for rank in range(self._size)]

    def _found(self, keys: Sequence[str]) -> dict[int, bytes]:
        """Return the values of those keys that are there, by their places."""
        store = self._thread_store
        there = range(len(keys)) if store.check(list(keys)) else [at for at, k in enumerate(keys) if store.check([k])]
        return {at: bytes(store.get(keys[at])) for at in there}

    # The thread of the process calls these.

    def ask(self) -> int:
        """Ask all ranks for their reports; return the number of the question."""
        return int(self._thread_store.add(self._key("asked"), 1))

    def asked(self) -> int:
        """Return the number of the latest question; 0 if there is none."""
        return int(self._thread_store.add(self._key("asked"), 0))

    def suspect(self, number: int) -> None:
        """Ask that reports have a call, of which two ranks differ."""
        self._thread_store.set(self._key("suspect"), str(number))

    def suspected(self) -> int:
        """Return the call that reports are to have; 0 if there is none."""
        key = self._key("suspect")
        return int(self._thread_store.get(key)) if self._thread_store.check([key]) else 0

    def answer(self, report: RankReport) -> None:
        """Publish the report of this rank."""
        self._thread_store.set(self._key("report", self._rank), report.encode())

    def answers(self, question: int) -> dict[int, RankReport]:
        """Return the reports that answer a question or a later one."""
        reports = [RankReport.decode(text) for text in self._found(self._all("report")).values()]
        return {report.rank: report for report in reports if report.answer >= question}

    def publish(self, first: int, digests: Sequence[int]) -> None:
        """Publish the digests of the latest calls, of which the first has a number."""
        text = struct.pack(f"<Q{len(digests)}I", first, *digests)
        self._thread_store.set(self._key("digests", self._rank), text.hex())

    def published(self, rank: int) -> tuple[int, tuple[int, ...]]:
        """Return what another rank has published: the number of the first call, and digests."""
        found = self._found([self._key("digests", rank)])
        if not found:
            return 1, ()
        text = bytes.fromhex(found[0].decode())
        first, *digests = struct.unpack(f"<Q{(len(text) - 8) // 4}I", text)
        return first, tuple(digests)

    def decide(self, verdict: RankVerdict) -> RankVerdict:
        """Keep a verdict if there is none so far; return the one that is kept."""
        if self._thread_store.add(self._key("decided"), 1) == 1:
            self._thread_store.set(self._key("verdict"), verdict.encode())
            self.ask()
            return verdict
        until = time.monotonic() + _KEPT_SECONDS
        while (found := self.verdict()) is None and time.monotonic() < until:
            time.sleep(0.002)
        return found or verdict

    def verdict(self) -> RankVerdict | None:
        """Return the verdict, if there is one."""
        found = self._found([self._key("verdict")])
        return RankVerdict.decode(found[0]) if found else None

    def look_at_processes(self) -> None:
        """Take note of the processes of the ranks, as far as they are known and were not noted before."""
        if len(self._processes) == self._size:
            return
        missing = [rank for rank in range(self._size) if rank not in self._processes]
        for at, text in self._found([self._key("process", rank) for rank in missing]).items():
            pid, host, start = json.loads(text)
            self._processes[missing[at]] = RankProcess(pid, host, start)

    def conditions(self) -> dict[int, tuple[str, int]]:
        """Return the condition and the process of each rank that is known to be on this host."""
        return {
            rank: (condition(process.pid, process.start), process.pid)
            for rank, process in self._processes.items()
            if process.host == self._own.host
        }

    # The thread of the call calls these.

    def arrive(self, number: int, digest: int, text: str) -> None:
        """Publish a call before it is made."""
        self._store.set(self._key("meeting", number, self._rank), f"{digest} {text}")

    def met(self, number: int) -> dict[int, tuple[int, str]] | None:
        """Return the calls of all ranks by a number, digest and text; None while some have not come."""
        keys = [self._key("meeting", number, rank) for rank in range(self._size)]
        if not self._store.check(keys):
            return None
        found: dict[int, tuple[int, str]] = {}
        for rank, text in enumerate(map(self._store.get, keys)):
            digest, _, said = bytes(text).decode().partition(" ")
            found[rank] = (int(digest), said)
        return found

    def leave(self, number: int) -> None:
        """Take this rank's part of a meeting away, once all ranks have come to the next one."""
        with suppress(Exception):  # A store of files may refuse.
            self._store.delete_key(self._key("meeting", number, self._rank))
