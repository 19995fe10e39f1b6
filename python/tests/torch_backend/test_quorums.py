"""A group for torchft keeps its communicator: what comes after is a generation of it, and no other one."""

from __future__ import annotations

from typing import Any

import pytest
import ranks

pytest.importorskip("torch", reason="the backend of torch.distributed needs torch")


def follows(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Return True if the second is a later generation of the first's communicator."""
    is_same: bool = before["address"] == after["address"]
    return is_same and after["generation"] > before["generation"]


def test_one_communicator_lives_through_all_quorums() -> None:
    found = ranks.run("quorums", "lives", 3)
    places = [[step["place"] for step in steps] for steps in found]
    assert places[0] == [[0, 3], [0, 2], [0, 3], [0, 3], [2, 3], [0, 3]]
    assert places[1] == [[1, 3], [1, 3], [1, 3], [1, 3], [1, 3]]
    assert places[2] == [[2, 3], [1, 2], [2, 3], [2, 3], [0, 3], [2, 3]]
    for rank, steps in enumerate(found):
        pairs = list(zip(steps, steps[1:], strict=False))
        fresh = [not follows(*pair) for pair in pairs]
        # Rank 1 has shut its communicator down before the last one.
        assert fresh == [False] * (len(pairs) - 1) + [rank == 1], steps


def test_survivors_of_a_kill_keep_their_communicators() -> None:
    first, killed, last = ranks.run("quorums", "killed", 3)
    assert killed is None
    for place, outcome in enumerate((first, last)):
        kind = outcome["lost"].split()[0]
        assert kind in ("LostRankError", "AbortedError") and "rank 1" in outcome["lost"], outcome["lost"]
        assert "configure the group anew" in outcome["errored"]
        assert outcome["left"]["place"] == [place, 2]
        assert follows(outcome["first"], outcome["left"])


def test_a_quorum_with_a_rank_that_is_gone_fails_and_the_next_one_goes_on() -> None:
    first, killed, last = ranks.run("quorums", "gone", 3)
    assert killed is None
    for place, outcome in enumerate((first, last)):
        assert outcome["absent"].startswith(
            "StartError roundelay: Could not form the group: timeout after 1000ms: "
        ), outcome["absent"]
        assert "the handle of rank 1:" in outcome["absent"]
        kind = outcome["ended"].split()[0]
        assert kind in ("StartError", "LostRankError", "AbortedError", "OperationTimeoutError"), outcome["ended"]
        assert outcome["seconds"] < 11
        assert outcome["left"]["place"] == [place, 2]
        assert follows(outcome["first"], outcome["left"])


def test_quorums_of_torchft_form_by_either_of_its_calls() -> None:
    found = ranks.run("quorums", "torchft", 2)
    for rank, places in enumerate(found):
        assert places["configure"] == [[rank, 2, f"torchft_quorum_{n}"] for n in range(3)]
        assert places["reconfigure"] == [[rank, 2, f"torchft_quorum_{n}_rank_0"] for n in range(3)]
