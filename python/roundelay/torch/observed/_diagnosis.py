"""Finds the rank at fault when the calls of a group differ or do not end: a pure function of reports of the ranks.

The classes and the words are those of the flight recorder of the runtime (``trace::diagnose``), so that the error of a
rank and ``roundelay doctor`` say the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


SETTLED_SECONDS = 1.0
"""The time for which all ranks must be in a call before the backend is said to hang."""


@dataclass
class PendingCall:
    """A call of a rank that has not ended."""

    number: int
    text: str
    seconds: float
    """The time since its begin."""
    peer: int = -1
    """Of a message, the rank at the other end; -1 if it is a collective, or from any rank."""
    is_message: bool = False
    error: str = ""


@dataclass
class RankReport:
    """What a rank says of its calls."""

    rank: int
    answer: int = 0
    """The number of the question that it answers."""
    count: int = 0
    """Collectives that it has called."""
    calls: dict[int, tuple[int, str, float]] = field(default_factory=dict)
    """The latest of them, and those that were asked for: digest, text, and seconds since the begin, by number."""
    splits: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict)
    """The elements for and from each rank of exchanges of unequal parts, by number."""
    pending: list[PendingCall] = field(default_factory=list)
    expired: bool = False
    """A call has passed its deadline, or has failed."""
    place: str = ""
    """Where its main thread is."""
    elsewhere: str = ""
    """A call of another group that its process waits in."""

    def encode(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str | bytes) -> RankReport:
        """Return the report of a text of :meth:`encode`."""
        read = json.loads(text)
        read["calls"] = {int(number): tuple(call) for number, call in read["calls"].items()}
        read["splits"] = {int(number): tuple(both) for number, both in read["splits"].items()}
        read["pending"] = [PendingCall(**call) for call in read["pending"]]
        return cls(**read)


@dataclass
class RankVerdict:
    """Who is at fault."""

    kind: str
    """``mismatch``, ``died``, ``stopped``, ``late``, ``unknown`` or ``slow``, as ``roundelay doctor`` has them."""
    ranks: list[int]
    """The ranks at fault; none if that is not known."""
    call: int
    """The number of the call; 0 if it is a message."""
    cause: str
    """The cause in words."""
    calls: dict[int, str] = field(default_factory=dict)
    """What each rank has called by that number, as far as it is known."""

    def encode(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str | bytes) -> RankVerdict:
        """Return the verdict of a text of :meth:`encode`."""
        read = json.loads(text)
        read["calls"] = {int(rank): call for rank, call in read["calls"].items()}
        return cls(**read)


def names(ranks: Sequence[int]) -> str:
    """Name ranks: ``rank 1``, ``ranks 0, 2 and 3``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 8:
        return f"ranks {', '.join(map(str, ranks[:8]))} and {len(ranks) - 8} others"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


def diagnose(
    reports: Mapping[int, RankReport], size: int, conditions: Mapping[int, tuple[str, int]], is_over: bool
) -> RankVerdict | None:
    """Return the verdict, or None if nothing is wrong as far as is known.

    ``conditions`` has the condition (``running``, ``stopped`` or ``died``) and the process of ranks of this host.
    Ranks without a report have not answered. Unless ``is_over``, no deadline has passed, and only calls that differ are
    looked for.
    """
    found = mismatch(reports)
    dead = [rank for rank in range(size) if conditions.get(rank, ("", 0))[0] == "died"]
    if found is not None and dead:
        # Where lengths differ a backend may end the process that receives.
        found.cause += f"; {_gone('died', dead, conditions)}"
    if found is not None or not is_over:
        return found
    number = _overdue(reports)
    stopped = [rank for rank in range(size) if conditions.get(rank, ("", 0))[0] == "stopped"]
    for kind, gone in (("died", dead), ("stopped", stopped)):
        if gone:
            return RankVerdict(kind, gone, number, _gone(kind, gone, conditions), _calls(reports, number))
    silent = [rank for rank in range(size) if rank not in reports]
    late = [report for report in reports.values() if report.count < number]
    if silent:
        what = "what it does" if len(silent) == 1 else "what they do"
        has = "has" if len(silent) == 1 else "have"
        cause = f"{names(silent)} {has} not reported {what}: the process may be stopped, or its host out of reach"
        return RankVerdict("unknown", silent, number, cause, _calls(reports, number))
    if late:
        ranks = sorted(report.rank for report in late)
        number = min(report.count for report in late) + 1
        has = "has" if len(ranks) == 1 else "have"
        cause = f"{names(ranks)} {has} not made call {number}: " + "; ".join(_absence(report) for report in late[:8])
        return RankVerdict("late", ranks, number, cause, _calls(reports, number))
    return _message(reports) or _unfinished(reports, number)


def mismatch(reports: Mapping[int, RankReport]) -> RankVerdict | None:
    """Return the verdict on the first call that is not the same on all ranks, if there is one."""
    numbers = sorted({number for report in reports.values() for number in report.calls})
    for number in numbers:
        sides: dict[int, list[int]] = {}
        for rank, report in sorted(reports.items()):
            if number in report.calls:
                sides.setdefault(report.calls[number][0], []).append(rank)
        if len(sides) > 1:
            return _differs(reports, number, sorted(sides.values(), key=lambda ranks: (-len(ranks), ranks[0])))
        odd = _splits(reports, number)
        if odd:
            return odd
    return None


def _differs(reports: Mapping[int, RankReport], number: int, sides: list[list[int]]) -> RankVerdict:
    undecided = all(len(side) == len(sides[0]) for side in sides)
    # If no side is larger than the others, none is known to be right.
    odd = sorted(rank for side in (sides if undecided else sides[1:]) for rank in side)
    said = []
    for side in reversed(sides):
        makes = "makes" if len(side) == 1 else "make"
        said.append(f"{names(side)} {makes} {reports[side[0]].calls[number][1]}")
    cause = f"call {number} is not the same on all ranks: {', '.join(said)}"
    return RankVerdict("mismatch", odd, number, cause, _calls(reports, number))


def _splits(reports: Mapping[int, RankReport], number: int) -> RankVerdict | None:
    """Return the verdict on an exchange of unequal parts whose two ends do not agree."""
    known = {rank: report.splits[number] for rank, report in reports.items() if number in report.splits}
    conflicts: list[tuple[int, int, int, int]] = []
    for sender, (sent, _) in sorted(known.items()):
        for receiver, (_, received) in sorted(known.items()):
            if receiver < len(sent) and sender < len(received) and sent[receiver] != received[sender]:
                conflicts.append((sender, receiver, sent[receiver], received[sender]))
    if not conflicts:
        return None
    blamed = {rank: sum(rank in conflict[:2] for conflict in conflicts) for rank in known}
    most = max(blamed.values())
    odd = sorted(rank for rank, count in blamed.items() if count == most)
    sender, receiver, sent_count, received_count = next(each for each in conflicts if set(each[:2]) & set(odd))
    cause = (
        f"call {number} is not the same on all ranks: rank {sender} sends {sent_count} elements to rank {receiver}, "
        f"which receives {received_count}"
    )
    return RankVerdict("mismatch", odd, number, cause, _calls(reports, number))


def _calls(reports: Mapping[int, RankReport], number: int) -> dict[int, str]:
    return {rank: report.calls[number][1] for rank, report in sorted(reports.items()) if number in report.calls}


def _overdue(reports: Mapping[int, RankReport]) -> int:
    """Return the number of the first collective that has not ended on a rank; 0 if it is a message."""
    # Also of ranks within their deadlines: one that waits in an earlier call has not made a later one without fault.
    waiting = [call.number for report in reports.values() for call in report.pending if not call.is_message]
    return min(waiting, default=0)


def _gone(kind: str, ranks: list[int], conditions: Mapping[int, tuple[str, int]]) -> str:
    pids = [conditions[rank][1] for rank in ranks]
    if kind == "stopped":
        goes = "its process" if len(ranks) == 1 else "their processes"
        is_ = "is" if len(ranks) == 1 else "are"
        return f"{names(ranks)} {is_} stopped: let {goes} go on with `kill -CONT {' '.join(map(str, pids))}`"
    has = "has" if len(ranks) == 1 else "have"
    return f"{names(ranks)} {has} died: process {', '.join(map(str, pids))} has ended"


def _absence(report: RankReport) -> str:
    """Say what a rank does in the place of a call."""
    last = report.calls.get(report.count)
    said = f"rank {report.rank} has made no call"
    if last is not None:
        state = "has ended"
        if any(call.number == report.count and not call.is_message for call in report.pending):
            state = "goes on"
        said = f"its last one is call {report.count}, {last[1]}, {last[2]:.1f} s ago, which {state}"
    if report.elsewhere:
        said += f"; its process waits in {report.elsewhere}"
    elif report.place:
        said += f"; its main thread is at {report.place}"
    return said


def _message(reports: Mapping[int, RankReport]) -> RankVerdict | None:
    """Return the verdict on a message that a rank waits for: follow the waits to a rank that waits for none."""
    waits: dict[int, PendingCall] = {}
    for rank, report in reports.items():
        due = [call for call in report.pending if call.is_message and call.peer in reports]
        if due:
            waits[rank] = max(due, key=lambda call: call.seconds)
    starts = [rank for rank in waits if reports[rank].expired]
    if not starts:
        return None
    rank, seen = min(starts), []
    while rank in waits and rank not in seen:
        seen.append(rank)
        rank = waits[rank].peer
    call = waits[seen[-1]]
    does = "sent" if call.text.startswith("recv") else "received"
    cause = f"rank {rank} has not {does} what rank {seen[-1]} waits for: {call.text}"
    if rank in waits:
        cause += f"; it waits itself: {waits[rank].text}"
    elif reports[rank].place:
        cause += f"; its main thread is at {reports[rank].place}"
    return RankVerdict("late", [rank], 0, cause, {each: waits[each].text for each in waits})


def _unfinished(reports: Mapping[int, RankReport], number: int) -> RankVerdict | None:
    """Return the verdict on a call that all ranks have made."""
    if number == 0:
        return None
    failed: list[tuple[float, int, str]] = []
    for rank, report in reports.items():
        failed += [(call.seconds, rank, call.error) for call in report.pending if call.error and call.number == number]
    waiting = {
        rank: call for rank, report in sorted(reports.items()) for call in report.pending if call.number == number
    }
    # The last rank may have come just now.
    if not failed and min((call.seconds for call in waiting.values()), default=0.0) < SETTLED_SECONDS:
        return None
    are = "is" if len(waiting) == 1 else "are"
    cause = f"all ranks have made the same calls, and {names(list(waiting))} {are} still in call {number}"
    if failed:
        _, rank, error = max(failed)
        cause += f"; the backend of rank {rank} says: {error.splitlines()[0]}"
    return RankVerdict("slow", [], number, cause, _calls(reports, number))


def details(verdict: RankVerdict, rank: int, own: Any) -> str:
    """Return the message of a rank: the cause, then what this rank has called and for how long."""
    text = verdict.cause
    if rank in verdict.ranks:
        text += f"; this is rank {rank}"
    if own is not None:
        text += f"; rank {rank} {own}"
    return text
