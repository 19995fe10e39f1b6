"""Works answer ``is_completed``, ``exception``, ``source_rank`` and others as those of torch's own backends do."""

from __future__ import annotations

import faces
import pytest
import ranks

torch = pytest.importorskip("torch", reason="the backend of torch.distributed needs torch")

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
both = pytest.mark.parametrize("face", [faces.PYTHON, faces.COMPILED])
MIB = 1 << 20


@pytest.fixture(autouse=True)
def deadline() -> None:
    """Leave the deadline to the ranks."""


@both
def test_a_work_is_completed_after_the_other_rank_has_acted(face: str) -> None:
    import queries

    seen = ranks.run("queries", "completion", 2, **faces.environment(face))[0]
    names = ["recv", "recv_strided", "recv_any_source", "send", "batch", "all_reduce", "all_reduce_strided"]
    names += [f"recv_strided_{turn}" for turn in range(1, queries.TURNS_STRIDED)]
    # Not completed before; then the tensors are written, and the work has ended with success.
    assert seen == {name: [False, True, True, True] for name in names}


@both
def test_a_work_knows_its_error_without_a_wait(face: str) -> None:
    completed, error, success, *texts = ranks.run("queries", "lost", 2, **faces.environment(face))[0]
    assert not completed and error is None and not success
    assert len(texts) == 4
    for text in texts:
        assert "rank 1" in text, texts


@both
def test_a_message_from_any_rank_names_its_sender(face: str) -> None:
    import queries

    receiver, _, member = ranks.run("queries", "sources", 3, **faces.environment(face))
    turns = len(queries.TURNS)
    assert receiver[:turns] == [[sender, sender, turn] for turn, sender in enumerate(queries.TURNS)]
    for sender in (1, 2):
        assert [each for each in receiver[turns:] if each[0] == sender] == [[sender, sender, n] for n in range(50)]
    assert member == [1]


def test_threads_get_the_answers_of_their_own_works() -> None:
    assert ranks.run("queries", "threads", 2)[0] == [0] * 7


def test_messages_leave_no_works_behind() -> None:
    for early_works, early, works, late in ranks.run("queries", "leaks", 2, seconds=280):
        assert early_works <= 2 and works <= 2
        assert late - early < 4 * MIB, f"{(late - early) / MIB:.1f} MiB more after 80,000 messages"


def test_works_of_other_backends_answer_as_they_did() -> None:
    receiver, sender = ranks.run("queries", "other_backends", 2)
    assert receiver["gloo"] == [False, True, True, 1, [1.0] * 3]
    assert receiver["future"] == sender["future"] == [False, True, True]


@pytest.mark.skipif(VERSION < (2, 14), reason="torch has backends in Python since 2.14")
def test_a_backend_of_others_around_ours_keeps_its_answers() -> None:
    for found in ranks.run("queries", "wrapping", 2):
        assert found == [False, True, False, [3.0] * 3]
