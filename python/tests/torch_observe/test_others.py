"""Prototypes in Python and communicators of torchcomms are observed as Gloo is, and messages as collectives."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import jobs
import pytest

torch = pytest.importorskip("torch", reason="process groups are torch's")

RANKS = 3


CASES = ["coalesced", "torchcomms", "torchcomms_late", "message"]
if torch.__version__ >= "2.14":
    CASES.insert(0, "prototype")


@functools.cache
def results() -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        found = jobs.start("others.py", RANKS, Path(folder), ",".join(CASES), seconds=90)
        assert None not in found, jobs.logs(Path(folder), RANKS)
        return found


def found(case: str) -> list[Any]:
    if case not in CASES:
        pytest.skip(f"torch {torch.__version__} has no backends in Python")
    return [each[case] for each in results()]


def test_a_prototype_in_python() -> None:
    for result in found("prototype")[:2]:
        words = "rank 2 has not made call 2", "wait_for_others", "all_reduce of 3 x f32"
        jobs.named(result, "OperationTimeoutError", *words)


def test_messages_of_a_batch() -> None:
    *others, culprit = found("coalesced")
    for result in others:
        words = "rank 2 makes all_reduce of 4 x f32", "ranks 0 and 1 make all_reduce of 3 x f32"
        jobs.named(result, "MismatchError", *words)
    assert "this is rank 2" in culprit["text"]


def test_torchcomms_before_the_call() -> None:
    *others, culprit = found("torchcomms")
    for result in others:
        jobs.named(result, "MismatchError", "rank 2 makes all_reduce of 3 x f32 with max", "call 3")
    assert "this is rank 2" in culprit["text"]


def test_torchcomms_with_a_rank_that_hangs() -> None:
    for result in found("torchcomms_late")[:2]:
        jobs.named(result, "OperationTimeoutError", "rank 2 has not made call 2", "wait_for_others")


def test_a_message_that_is_not_sent() -> None:
    for result in found("message")[:2]:
        words = "rank 2 has not sent what rank 1 waits for: recv of 2 x f32 from rank 2"
        jobs.named(result, "OperationTimeoutError", words)
