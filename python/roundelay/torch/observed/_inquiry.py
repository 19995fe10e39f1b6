"""The inquiry of a group: when the other ranks are asked, what this rank answers, and when there is a verdict.

A question is asked when a call is late, in case the ranks have made different ones; when it has passed its deadline or
has failed; and when the digests of two ranks differ.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from ..._ending import exception
from ...errors import OperationTimeoutError
from .._errors import face
from ._diagnosis import PendingCall, RankReport, diagnose
from ._entries import ENDED, ERROR, LOCAL_SECONDS, NUMBER, WORK, Entry, age, describe
from ._exchange import GroupExchange
from ._process import main_thread, place
from ._watch import WATCH

if TYPE_CHECKING:
    from ._observer import GroupObserver

REPORTED = 64
"""Calls in a report: the latest ones."""

DIGESTS = 4096
"""Calls whose digests are kept and published: the latest ones."""

PENDING = 16
"""Pending calls in a report: the oldest ones."""

BUSY_SECONDS = 5.0
"""The time after a question in which a rank looks for others at each look of the thread."""

_URGENT_PAUSE = 0.5
"""The time between two questions of a rank with a call that has passed its deadline."""


class GroupInquiry:
    """The questions and answers of one rank about a group."""

    def __init__(self, observer: GroupObserver, exchange: GroupExchange, *, late: float, interval: float) -> None:
        self._observer = observer
        self._exchange = exchange
        self._late = late
        self.interval = interval
        """The time in seconds between two looks for questions of other ranks."""
        self.grace = 2 * interval + 3.0
        """The longest time in seconds that a rank waits for a verdict."""
        self._next = 0.0
        self._answered = 0
        self._answered_at = -60.0
        self._busy_until = 0.0
        self._question = 0
        self._asked_at = -60.0
        self._published = 0
        self._digests: deque[int] = deque(maxlen=DIGESTS)
        self._noted = 0
        self._checks = 0

    # What this rank says of itself.

    def report(self, question: int, suspect: int = 0) -> RankReport:
        """Return the report of this rank, which answers a question."""
        observer = self._observer
        track, now = observer.collectives, time.monotonic_ns()
        # What was called just now may be refused yet, and its number be that of another call.
        entries = [e for e in list(track.latest) if e[ENDED] or e[WORK] is not None or age(e, now) > LOCAL_SECONDS]
        shown = entries[-REPORTED:]
        if suspect and (found := track.find(suspect)) is not None and found not in shown:
            shown.insert(0, found)
        report = RankReport(observer.rank, question, track.count, expired=observer.expired)
        for entry in shown:
            described = describe(entry)
            report.calls[entry[NUMBER]] = (described.digest, described.text, age(entry, now))
            if described.splits is not None:
                report.splits[entry[NUMBER]] = described.splits
        for each, is_message in ((track, False), (observer.messages, True)):
            for entry in list(each.awaited())[:PENDING]:
                report.pending.append(self._pending(entry, is_message, now))
        report.place = exception() or place(main_thread())
        report.elsewhere = next((said for other in WATCH.others(observer) if (said := other.waits_in())), "")
        return report

    def _pending(self, entry: Entry, is_message: bool, now: int) -> PendingCall:
        described = describe(entry)
        peer = described.root if is_message else -1
        return PendingCall(entry[NUMBER], described.text, age(entry, now), peer, is_message, entry[ERROR] or "")

    # What the thread does.

    def look(self) -> None:
        """Ask, answer and decide, as far as it is due."""
        now = time.monotonic()
        if not self._observer.before:
            self._note_digests()
        oldest = self._oldest()
        if oldest > self._observer.timeout:
            self._observer.expired = True
        self._observer.alert(now < self._busy_until)
        if now >= self._next or now < self._busy_until or self._observer.expired:
            self._next = now + self.interval
            self._exchange.look_at_processes()
            self._listen(now)
            if self._observer.verdict is not None:
                return
        if self._question:
            self._conclude(now)
        elif oldest > self._late or self._observer.expired:
            self._ask(now)

    def _oldest(self) -> float:
        """Return the age in seconds of the oldest call that goes on, and note whether one has failed."""
        observer = self._observer
        oldest = 0.0
        for track in (observer.collectives, observer.messages):
            for entry in track.awaited():
                if entry[ERROR] is not None:
                    observer.expired = True
                oldest = max(oldest, age(entry))
                break
        return oldest

    def _ask(self, now: float) -> None:
        pause = _URGENT_PAUSE if self._observer.expired else self.interval
        # A rank that has just asked gets all answers, and its verdict is that of all.
        if now - self._asked_at < pause or now - self._answered_at < pause:
            return
        self._question, self._asked_at = self._exchange.ask(), now
        self._busy_until = now + BUSY_SECONDS

    def _listen(self, now: float) -> None:
        """Answer a question, take a verdict, and compare the digests of two ranks."""
        asked = self._exchange.asked()
        if asked > self._answered:
            self._busy_until = now + BUSY_SECONDS
            self._observer.alert(True)
            verdict = self._exchange.verdict()
            if verdict is not None:
                self._observer.fail(verdict)
                return
            self._exchange.answer(self.report(asked, self._exchange.suspected()))
            self._answered, self._answered_at = asked, now
        if not self._observer.before:
            self._compare(now)

    def _compare(self, now: float) -> None:
        """Publish the digests of the latest calls, and ask if the next rank has others."""
        observer = self._observer
        own = list(self._digests)
        if not own or observer.size == 1:
            return
        first = self._noted - len(own) + 1
        if self._noted != self._published:
            self._published = self._noted
            self._exchange.publish(first, own)
        other_first, others = self._exchange.published((observer.rank + 1) % observer.size)
        for number in range(max(first, other_first), min(first + len(own), other_first + len(others))):
            if own[number - first] != others[number - other_first]:
                self._exchange.suspect(number)
                self._ask(now)
                return

    def _note_digests(self) -> None:
        """Take note of the digests of calls since the last look, of which fewer are kept."""
        for entry in list(self._observer.collectives.latest):
            if entry[NUMBER] <= self._noted:
                continue
            if not entry[ENDED] and entry[WORK] is None:
                break  # It may be refused yet, and its number be that of another call.
            if entry[NUMBER] != self._noted + 1:
                self._digests.clear()
            self._noted = entry[NUMBER]
            self._digests.append(describe(entry).digest)

    def _conclude(self, now: float) -> None:
        """Reach a verdict by the answers to a question, once all are there or the time for them is over."""
        observer, exchange = self._observer, self._exchange
        answers = exchange.answers(self._question)
        is_whole = len(answers) == observer.size
        is_late = now - self._asked_at > self.grace - 1.0
        conditions = exchange.conditions()
        gone = any(state != "running" for state, _ in conditions.values())
        if not (is_whole or is_late or gone):
            return
        self._question = 0
        # A rank that is behind may still come until its deadline, too.
        is_over = any(report.expired for report in answers.values())
        verdict = diagnose(answers, observer.size, conditions, is_over)
        if verdict is not None:
            observer.fail(exchange.decide(verdict))

    # What calls do.

    def compare_meeting(self, number: int, met: dict[int, tuple[int, str]]) -> None:
        """Fail if a call that is about to be made is not the same on all ranks."""
        if len({digest for digest, _ in met.values()}) > 1:
            reports = {rank: RankReport(rank, count=number, calls={number: (*call, 0.0)}) for rank, call in met.items()}
            verdict = diagnose(reports, self._observer.size, {}, False)
            if verdict is not None:
                self._observer.fail(self._exchange.decide(verdict))

    def check(self, timeout: float) -> None:
        """Compare the records of all ranks, which all call this."""
        observer, exchange = self._observer, self._exchange
        self._checks += 1
        number, until = -self._checks, time.monotonic() + timeout
        entries = list(observer.collectives.latest)
        text = " ".join(f"{entry[NUMBER]}:{describe(entry).digest}" for entry in entries)
        exchange.arrive(number, observer.collectives.count, text)
        while (met := exchange.met(number)) is None:
            if time.monotonic() > until:
                error = OperationTimeoutError(
                    f"check of group {observer.name}: not all ranks have called it within {timeout:g} s",
                    code="RL0703",
                    rank=observer.rank,
                )
                raise face(error, timeout)
            time.sleep(0.001)
        reports = {}
        for rank, (count, digests) in met.items():
            pairs = (pair.partition(":") for pair in digests.split())
            calls = {int(call): (int(digest), "", 0.0) for call, _, digest in pairs}
            reports[rank] = RankReport(rank, count=count, calls=calls)
        verdict = diagnose(reports, observer.size, {}, False)
        if verdict is not None:
            # The texts of the call follow.
            exchange.arrive(number * 1_000_000, 0, self._text(verdict.call))
            while (said := exchange.met(number * 1_000_000)) is None and time.monotonic() < until:
                time.sleep(0.001)
            for rank, (_, text) in (said or {}).items():
                if verdict.call in reports[rank].calls:
                    digest, _, seconds = reports[rank].calls[verdict.call]
                    reports[rank].calls[verdict.call] = (digest, text, seconds)
            verdict = diagnose(reports, observer.size, {}, False)
            assert verdict is not None
            observer.fail(exchange.decide(verdict))

    def _text(self, number: int) -> str:
        entry = self._observer.collectives.find(number)
        return "" if entry is None else describe(entry).text
