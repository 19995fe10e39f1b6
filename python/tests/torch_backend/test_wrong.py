"""Wrong use across ranks ends with an error that names what differs, on every rank, by both faces."""

from __future__ import annotations

import functools
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import faces
import pytest
import ranks
import roundelay

pytest.importorskip("torch", reason="the backend of torch.distributed needs torch")

SOURCE = (Path(__file__).parent / "wrong.py").read_text()
NAMES = re.findall(r"^@case\ndef (\w+)", SOURCE, re.MULTILINE)
DIFFERS = {
    "types": r"all_reduce\.\w+ of 4 x f(32|64) with sum",
    "lengths": r"all_reduce\.\w+ of [456] x f32 with sum",
    "lengths_in_background": r"all_reduce\.\w+ of 1000(00|08|16) x f32 with sum",
    "operators": r"all_reduce\.\w+ of 4 x f32 with (sum|max)",
    "roots": r"broadcast\.\w+ of 4 x f32",
    "collectives": r"(all_reduce|broadcast)\.\w+ of 4 x f32",
    "order": r"(all_reduce|all_gather)\.\w+ of 4 x f32",
    "barrier": r"all_reduce\.\w+ of 4 x f32|is barrier",
    "gathered": r"all_gather\.\w+ of [345] x f32",
    "scattered": r"reduce_scatter\.\w+ of [345] x f32",
    "exchanged": r"rank 0 sends 12 bytes \(3 x f32\) instead",
    "several": r"all_reduce\.\w+ of 3 x f32|is barrier",
    "message": r"receive 24 bytes \(6 x f32\) from rank 0, tag 0`\): rank 0 sends 16 bytes \(4 x f32\)",
    "message_types": r"receive 16 bytes \(4 x i32\) from rank 0, tag 0`\): rank 0 sends 16 bytes \(4 x f32\)",
    "empty": r"all_reduce\.\w+ of [04] x f32 with sum",
    "empty_later": r"all_reduce\.\w+ of [04] x f32 with sum",
    "empty_gathered": r"all_gather\.\w+ of [04] x f32",
    "empty_gathered_single": r"all_gather\.\w+ of [04] x f32",
    "empty_scattered": r"reduce_scatter\.\w+ of [04] x f32",
    "empty_exchanged": r"all_to_all\.\w+ of [04] x f32",
    "empty_broadcast": r"broadcast\.\w+ of [04] x f32|is barrier",
    "empty_reduced": r"reduce\.\w+ of [04] x f32|is barrier",
    "empty_several": r"all_gather\.\w+ of [04] x f32|is barrier",
    "empty_message": r"receive 16 bytes \(4 x f32\) from rank 0, tag 0`\): rank 0 sends 0 bytes \(0 x f32\)",
}
"""What every rank's error says about the call of the rank that found out."""


@pytest.fixture(autouse=True)
def deadline() -> None:
    """Leave the deadline to the ranks: the first test of a face runs all of its cases."""


@functools.cache
def outcomes(face: str, count: int) -> list[Any]:
    return ranks.run("wrong", "every", count, seconds=280, **faces.environment(face))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("face", [faces.PYTHON, faces.COMPILED])
@pytest.mark.parametrize("name", NAMES)
def test_wrong_use(name: str, face: str, count: int) -> None:
    found = [outcome[name] for outcome in outcomes(face, count)]
    for rank, (kind, text, is_of_torch) in enumerate(found):
        assert kind in ("MismatchError", "AbortedError"), f"rank {rank}: {kind}: {text}"
        assert is_of_torch
        begin = "Collective mismatch across ranks: "
        if kind == "AbortedError":
            begin = "The group was aborted: Connection closed by peer: "
        # The operation stands first where the native error does not have it.
        assert re.match(f"roundelay: {begin}(\\w+( of \\d+ x \\w+)?: )?rank {rank}", text), f"rank {rank}: {text}"
        assert re.search(DIFFERS[name], text), f"rank {rank}: {text}"
        if kind == "AbortedError" and "do not make the same call" in text:
            assert re.search(r"; this rank had called (\w+ of \d+ x \w+|barrier)$", text), f"rank {rank}: {text}"
    assert any(kind == "MismatchError" for kind, _, _ in found)


def test_no_case_is_left_out() -> None:
    assert sorted(DIFFERS) == sorted(NAMES)


def test_a_rank_that_does_not_join_is_named() -> None:
    """Programs, as torchft's tests, look for the words with which Gloo says so."""
    import torch.distributed as dist

    from roundelay.torch._join import join

    with pytest.raises(dist.DistBackendError, match=r"form the group: timeout after 10ms: .*rank 1") as raised:
        join(dist.HashStore(), 0, 2, timedelta(milliseconds=10), [])
    assert isinstance(raised.value, roundelay.StartError)
