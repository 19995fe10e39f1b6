"""The observer of a group: it records the calls of this rank, and raises the error of a verdict."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._profiler import gather_traceback

from ... import errors
from .. import _flight as flight
from .. import _record as record
from .._errors import face
from . import _flights as flights
from ._diagnosis import RankVerdict, details, diagnose
from ._entries import (
    BEGAN,
    ENDED,
    ERROR,
    LOCAL_SECONDS,
    NAME,
    NUMBER,
    STACK,
    TRACK,
    WORK,
    WORKS,
    CallDescription,
    Entry,
    age,
    describe,
)
from ._exchange import GroupExchange
from ._inquiry import GroupInquiry
from ._tracks import CallTrack
from ._watch import WATCH
from ._works import watch_class

_SLICE = timedelta(milliseconds=250)
"""The time for which a thread waits in a work of Gloo at once."""

_KEPT = 256
"""Calls of a kind that are kept: more of them do not stay in a core's cache, and a call costs half as much again."""

_KEPT_MIN = 64
"""The least number of calls of a kind that are kept, whatever the environment says."""

_MEETING_PAUSE = 0.002
"""The longest pause in seconds between two looks whether all ranks have come to a call."""

_KINDS: dict[str, tuple[type[errors.Error], str]] = {
    "mismatch": (errors.MismatchError, "RL0702"),
    "died": (errors.LostRankError, "RL0704"),
}
_TIMEOUT = (errors.OperationTimeoutError, "RL0703")

_now = time.monotonic_ns


class GroupObserver:
    """The record of one rank's calls in a group, and what is known of those of the others.

    ``abort`` ends what the backend runs, as far as the backend can.
    """

    def __init__(
        self,
        exchange: GroupExchange,
        rank: int,
        size: int,
        *,
        name: str,
        backend: str,
        ranks: list[int],
        timeout: float,
        late: float,
        interval: float,
        before: bool,
        stacks: bool,
        flight: str | None,
        abort: Callable[[], object],
    ) -> None:
        self.rank = rank
        """The number of this rank."""
        self.size = size
        """The number of ranks."""
        self.name = name
        """The name of the group."""
        self.backend = backend
        """The name of the backend."""
        self.ranks = ranks
        """The numbers of the ranks in the job."""
        self.timeout = timeout
        """The time in seconds after which a call is overdue, and the rank at fault is looked for."""
        self.before = before
        """Calls are compared before they are made."""
        self.flight_prefix = flight
        """The prefix of the files of flight records; None: none are written."""
        kept = max(min(record.size(), _KEPT), _KEPT_MIN)
        # Gloo cannot be aborted: threads wait in parts, but for messages, whose timeout ends the connection.
        self._is_gloo = backend == "gloo"
        patience = (_SLICE, timedelta(seconds=timeout)) if self._is_gloo else (None, None)
        is_on_streams = torch.cuda.is_available() and not self._is_gloo
        self.collectives = CallTrack(kept, size, False, patience[0], is_on_streams)
        """The collectives."""
        self.messages = CallTrack(kept, size, True, patience[1], is_on_streams)
        """The sends and receives."""
        self.verdict: RankVerdict | None = None
        """Who is at fault, once that is known."""
        self.expired = False
        """A call has passed its deadline, or has failed."""
        self.written = ""
        """The path of the flight record, once it was written."""
        self.on_close: Callable[[], object] | None = None
        """What ends the record of calls."""
        self._stacks = stacks
        self._abort = abort
        self._lock = threading.Lock()
        self._is_over = False
        self._is_alert = False
        self._failed = threading.Event()
        self._exchange = exchange
        self._inquiry = GroupInquiry(self, exchange, late=late, interval=interval)
        for track in (self.collectives, self.messages):
            track.wait_on = self._wait_on
        self._set_prepare()
        WATCH.add(self)

    # The path of a call.

    def begin(self, track: CallTrack, name: str, sample: Any, options: Any) -> Entry:
        """Record a call that is about to be made, and return its entry.

        Raises the error of the verdict, if there is one, and with ``check="before"`` that of a call that differs.
        """
        track.count = number = track.count + 1
        entry = [number, name, sample, None, options, _now(), False, None, None, track, None]
        track.latest.append(entry)
        if track.prepare is not None:
            track.prepare(track, entry)
        return entry

    def started(self, entry: Entry, work: Any) -> None:
        """Record what a call has returned: its work, or None if it has ended."""
        if work is None:
            entry[ENDED] = True
            return
        entry[WORK] = work
        WORKS[id(work)] = entry
        watch_class(type(work))

    def _set_prepare(self) -> None:
        is_due = self.before or self._stacks or self._is_alert or self.verdict is not None
        for track in (self.collectives, self.messages):
            track.prepare = self._prepare if is_due else None

    def alert(self, is_alert: bool) -> None:
        """Look for a verdict before each call while the ranks ask each other: the others may have given this one up."""
        if is_alert != self._is_alert:
            self._is_alert = is_alert
            self._set_prepare()

    def _prepare(self, track: CallTrack, entry: Entry) -> None:
        """Do what is due before a call is made: refuse it, keep its stack, compare it with those of the others."""
        verdict = self.verdict
        if self._is_alert and verdict is None:
            verdict = self._exchange.verdict()
        if verdict is not None:
            track.cancel(entry)
            self.fail(verdict)
            raise self._error(verdict, f"calls {entry[NAME]}")
        if self._stacks:
            entry[STACK] = gather_traceback(True, False, False), threading.get_ident()
        if self.before and not track.is_message:
            self._meet(entry)

    def refused(self, entry: Entry, error: BaseException) -> BaseException:
        """Return the error of a call that was not started: its own, or that of a verdict."""
        # One that has raised at once has moved nothing.
        is_local = isinstance(error, errors.Error) or not isinstance(error, RuntimeError)
        if self.verdict is not None or not is_local and age(entry) > LOCAL_SECONDS:
            return self.explained(entry, error)
        entry[TRACK].cancel(entry)
        return error

    def _wait_on(
        self, own: Callable[..., Any], work: Any, timeout: timedelta | None, entry: Entry, error: BaseException
    ) -> Any:
        """Go on with a wait for a work that has raised; raise the error of the verdict if there is one."""
        while True:
            if isinstance(error, errors.AbortedError):
                # The verdict of another rank may have come by the backend first.
                self._failed.wait(self._inquiry.interval + 1.0)
            is_short = timeout is not None and timeout.total_seconds() < self.timeout
            if self.verdict is None and (is_short or isinstance(error, errors.Error)):
                # It may be waited for again.
                WORKS[id(work)] = entry
                raise error
            is_slice = self._is_gloo and timeout is None and not entry[TRACK].is_message
            if self.verdict is not None or not is_slice or work.is_completed():
                raise self.explained(entry, error) from error
            try:
                return own(work, _SLICE)
            except RuntimeError as raised:
                error = raised

    def _meet(self, entry: Entry) -> None:
        """Compare a call with those of the other ranks before it is made."""
        exchange, number = self._exchange, entry[NUMBER]
        described = describe(entry)
        exchange.arrive(number, described.digest, described.text)
        pause = 0.0
        while (met := exchange.met(number)) is None:
            if self._failed.wait(pause):
                break
            pause = min(pause + 0.0001, _MEETING_PAUSE)
            if age(entry) > self.timeout + self._inquiry.grace:
                raise self._unexplained(entry, None)
        if met is not None and self.verdict is None:
            exchange.leave(number - 1)
            self._inquiry.compare_meeting(number, met)
        if self.verdict is not None:
            raise self._error(self.verdict, self._words(entry))

    # Errors.

    def explained(self, entry: Entry, error: BaseException | None) -> BaseException:
        """Return the error of the verdict on a call that has failed or is overdue: wait for it for a bounded time."""
        if error is not None and entry[ERROR] is None:
            entry[ERROR] = str(error) or type(error).__name__
        self.expired = True
        WATCH.wake()
        if not self._failed.wait(self._inquiry.grace):
            return self._unexplained(entry, error)
        assert self.verdict is not None
        return self._error(self.verdict, self._words(entry))

    def _unexplained(self, entry: Entry, error: BaseException | None) -> BaseException:
        """Return the error where the other ranks cannot be asked: by what this host shows of their processes."""
        verdict = diagnose({self.rank: self._inquiry.report(0)}, self.size, self._exchange.conditions(), True)
        if verdict is None or verdict.kind == "unknown":
            said = "" if error is None else f": {error}"
            cause = f"the other ranks could not be asked through the store of group {self.name}{said}"
            verdict = RankVerdict("unknown", [], entry[NUMBER], cause)
        self.fail(verdict)
        return self._error(verdict, self._words(entry))

    def _words(self, entry: Entry) -> str:
        since = time.strftime("%H:%M:%S", time.localtime(time.time() - age(entry)))
        described = describe(entry)
        kind = "message" if described.text.startswith(("send ", "recv ")) else "call"
        return f"has made {kind} {entry[NUMBER]}, {described.text}, at {since}, {age(entry):.1f} s ago"

    def _error(self, verdict: RankVerdict, own: str) -> BaseException:
        kind, code = _KINDS.get(verdict.kind, _TIMEOUT)
        text = f"group {self.name}: {details(verdict, self.rank, own)}"
        if self.written:
            text += f"; flight record: {self.written}"
        peer = next((rank for rank in verdict.ranks if rank != self.rank), None)
        if peer is None and verdict.ranks:
            peer = verdict.ranks[0]
        return face(kind(text, code=code, rank=self.rank, peer=peer), self.timeout)

    def fail(self, verdict: RankVerdict) -> None:
        """End the group by a verdict: say it, write flight records, abort the backend, and wake those who wait."""
        with self._lock:
            is_first, self._is_over = not self._is_over, True
        if not is_first:
            self._failed.wait(self._inquiry.grace)
            return
        # Before any thread can see the verdict, so that errors name the file.
        self._write_flights(verdict)
        self.verdict = verdict
        self._set_prepare()
        self._failed.set()
        own = next(self.collectives.pending(), None) or next(self.messages.awaited(), None)
        said = details(verdict, self.rank, None if own is None else self._words(own))
        sys.stderr.write(f"roundelay: group {self.name} ({self.backend}): {said}\n")
        sys.stderr.flush()
        try:
            self._abort()
        except Exception as error:  # Not all backends can be aborted.
            sys.stderr.write(f"roundelay: {self.backend} was not aborted: {str(error).splitlines()[0]}\n")

    def _write_flights(self, verdict: RankVerdict) -> None:
        try:
            if self.flight_prefix is not None:
                self.written = str(flights.write(self, verdict, self._exchange.conditions()))
        except OSError as error:
            sys.stderr.write(f"roundelay: the flight record could not be written: {error}\n")
        flight.on_failure()

    # What programs call.

    def check(self, timeout: float | None = None) -> None:
        """Compare all recorded collectives with those of the other ranks now. Collective.

        Raises ``MismatchError`` if they differ, and ``OperationTimeoutError`` if a rank does not call it within
        ``timeout`` seconds (that of the observer).
        """
        self._inquiry.check(self.timeout if timeout is None else timeout)
        if self.verdict is not None:
            raise self._error(self.verdict, "calls check")

    def flight(self) -> dict[str, Any]:
        """Return the flight record of this rank, as ``roundelay doctor`` reads it."""
        return flights.dump(self, self.verdict, self._exchange.conditions())

    def close(self) -> None:
        """End the observation: calls are neither recorded nor compared any more."""
        WATCH.remove(self)
        if self.on_close is not None:
            self.on_close()

    def look(self) -> None:
        """Do what is due; the thread of the process calls it now and then."""
        for track in (self.collectives, self.messages):
            track.sweep(self._is_gloo)
        if self.verdict is None:
            self._inquiry.look()

    def waits_in(self) -> str:
        """Return the call that this rank has waited in for a second or more, in words; empty if there is none."""
        for track in (self.collectives, self.messages) if self.verdict is None else ():
            for entry in track.awaited():
                if age(entry) >= 1.0:
                    kind = "call" if track is self.collectives else "message"
                    return f"{kind} {entry[NUMBER]} of group {self.name}, {describe(entry).text}"
        return ""


def _recorded(observer: GroupObserver, stacks: bool) -> list[tuple[Any, ...]]:
    """Return the calls of an observer in the order of the fields of the flight recorder's calls."""
    from torch._C._profiler import symbolize_tracebacks

    found = []
    offset = time.time_ns() - _now()
    for track in (observer.collectives, observer.messages):
        entries = track.all()
        kept = [entry[STACK] for entry in entries]
        frames: list[Any] = [[] for _ in entries]
        if stacks and all(stack is not None for stack in kept):
            frames = symbolize_tracebacks([stack for stack, _ in kept])
        for entry, stack in zip(entries, frames, strict=True):
            described: CallDescription = describe(entry)
            found.append(
                (
                    observer.name,
                    flight.description_of(observer.name),
                    observer.ranks,
                    entry[NUMBER],
                    track is observer.messages,
                    flights.torch_name(entry[NAME], observer.rank, described),
                    flights.torch_sides(described.inputs),
                    flights.torch_sides(described.outputs),
                    round(observer.timeout * 1000),
                    entry[BEGAN] + offset,
                    entry[STACK][1] if entry[STACK] is not None else 0,
                    bool(entry[ENDED]),
                    bool(entry[ENDED]),
                    stack,
                    observer.backend,
                )
            )
    return found


def _all_recorded(stacks: bool) -> list[tuple[Any, ...]]:
    observers = [each for each in WATCH.all() if isinstance(each, GroupObserver)]
    return [call for observer in observers for call in _recorded(observer, stacks)]


record.sources.append(_all_recorded)
