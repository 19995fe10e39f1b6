"""The verdict on reports of ranks that were made up: seeded, with a culprit that is known."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("torch", reason="the package of observers imports it")

from roundelay.torch.observed._diagnosis import PendingCall, RankReport, RankVerdict, diagnose  # noqa: E402

SUM, MAX = (1, "all_reduce of 4 x f32 with sum", 1.0), (2, "all_reduce of 4 x f32 with max", 1.0)


def reports(size: int, count: int) -> dict[int, RankReport]:
    """Return what ranks say that have all made and ended the same calls."""
    return {
        rank: RankReport(rank, count=count, calls={number: SUM for number in range(max(1, count - 5), count + 1)})
        for rank in range(size)
    }


def wait(report: RankReport, number: int, seconds: float = 9.0) -> None:
    report.count, report.expired = number, True
    report.calls[number] = (1, SUM[1], seconds)
    report.pending = [PendingCall(number, SUM[1], seconds)]


@pytest.mark.parametrize("seed", range(100))
def test_the_culprit_is_found(seed: int) -> None:
    draw = random.Random(seed)
    size, count = draw.randrange(3, 40), draw.randrange(1, 1000)
    culprit, kind = draw.randrange(size), draw.choice(["late", "mismatch", "died", "stopped", "unknown"])
    known, conditions = reports(size, count), {rank: ("running", 100 + rank) for rank in range(size)}
    for rank in range(size):
        if rank != culprit:
            wait(known[rank], count + 1, draw.uniform(2, 60))
    if kind == "mismatch":
        wait(known[culprit], count + 1)
        known[culprit].calls[count + 1] = MAX
    elif kind in ("died", "stopped"):
        conditions[culprit] = (kind, 100 + culprit)
        del known[culprit]
    elif kind == "unknown":
        del known[culprit], conditions[culprit]
    verdict = diagnose(known, size, conditions, True)
    assert verdict is not None and (verdict.kind, verdict.ranks, verdict.call) == (kind, [culprit], count + 1)
    assert f"rank {culprit} " in verdict.cause
    assert RankVerdict.decode(verdict.encode()) == verdict
    for report in known.values():
        assert RankReport.decode(report.encode()) == report


def test_ranks_that_wait_are_not_blamed_before_the_deadline() -> None:
    known = reports(4, 7)
    for rank in (0, 1, 2):
        wait(known[rank], 8, 0.5)
        known[rank].expired = False
    assert diagnose(known, 4, {}, False) is None
    assert diagnose(reports(4, 7), 4, {}, False) is None


def test_a_rank_that_waits_in_an_earlier_call_is_not_blamed() -> None:
    """A gather ends for ranks that only send: they wait in the next call, and the root in this one."""
    known = reports(3, 7)
    wait(known[0], 8, 0.9)
    known[0].expired = False
    wait(known[2], 9, 1.1)
    known[2].calls[8] = SUM
    verdict = diagnose(known, 3, {}, True)
    assert verdict is not None and (verdict.kind, verdict.ranks, verdict.call) == ("late", [1], 8)


def test_half_against_half_blames_both_sides() -> None:
    known = reports(2, 7)
    known[1].calls[7] = MAX
    verdict = diagnose(known, 2, {}, False)
    assert verdict is not None and verdict.kind == "mismatch" and verdict.ranks == [0, 1]


def test_parts_that_do_not_fit_blame_the_rank_that_has_them() -> None:
    known = reports(3, 7)
    for report in known.values():
        report.splits[7] = ([2, 2, 2], [2, 2, 2])
    assert diagnose(known, 3, {}, False) is None
    known[1].splits[7] = ([2, 2, 2], [3, 2, 3])
    verdict = diagnose(known, 3, {}, False)
    assert verdict is not None and (verdict.kind, verdict.ranks) == ("mismatch", [1])
    assert "rank 0 sends 2 elements to rank 1, which receives 3" in verdict.cause


def test_a_message_is_followed_to_the_rank_that_does_not_send() -> None:
    known = reports(3, 7)
    for rank, peer in ((0, 1), (1, 2)):
        known[rank].expired = rank == 0
        known[rank].pending = [PendingCall(3, f"recv of 4 x f32 from rank {peer}", 9.0, peer, True)]
    verdict = diagnose(known, 3, {}, True)
    assert verdict is not None and (verdict.kind, verdict.ranks) == ("late", [2])
    assert "rank 2 has not sent what rank 1 waits for" in verdict.cause


def test_a_backend_that_hangs_is_no_rank() -> None:
    known = reports(3, 7)
    for report in known.values():
        wait(report, 8)
    verdict = diagnose(known, 3, {}, True)
    assert verdict is not None and (verdict.kind, verdict.ranks) == ("slow", [])
    known[1].pending[0].error = "Connection reset by peer\nmore"
    verdict = diagnose(known, 3, {}, True)
    assert verdict is not None and verdict.cause.endswith("the backend of rank 1 says: Connection reset by peer")


def test_a_rank_that_its_backend_has_ended_is_beside_the_call_that_differs() -> None:
    known = reports(3, 7)
    known[1].calls[7] = MAX
    del known[2]
    verdict = diagnose(known, 3, {2: ("died", 4711)}, False)
    assert verdict is not None and (verdict.kind, verdict.ranks) == ("mismatch", [0, 1])
    assert verdict.cause.endswith("; rank 2 has died: process 4711 has ended")
