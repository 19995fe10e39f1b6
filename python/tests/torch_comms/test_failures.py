"""Wrong arguments are refused before anything moves; failures of ranks come as typed errors, and never hang."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import jobs
import pytest

torch = pytest.importorskip("torch", reason="roundelay.torchcomms works on tensors of torch")

import roundelay  # noqa: E402
import roundelay.torchcomms as torchcomms  # noqa: E402
from roundelay.torchcomms import CommOptions, RedOpType, ReduceOp, TorchComm  # noqa: E402


@pytest.fixture
def alone() -> Iterator[TorchComm]:
    import torch.distributed as dist

    comm = torchcomms.new_comm("roundelay", "cpu", name="alone", store=dist.HashStore(), rank=0, size=1)
    yield comm
    if not comm._finalized:
        comm.finalize()


def ones(count: int = 4) -> Any:
    return torch.ones(count)


def mixed(comm: TorchComm) -> Any:
    batch = comm.batch_op_create()
    batch.recv(ones(), 0)
    batch.send(torch.empty(4, device="meta"), 0)
    return batch


WRONG: list[tuple[str, Callable[[TorchComm], Any]]] = [
    (r"root must be in range \[0, 1\), but got 1", lambda c: c.broadcast(ones(), 1, False)),
    (r"dst must be in range \[0, 1\), but got -1", lambda c: c.send(ones(), -1, False)),
    (r"src must be in range \[0, 1\), but got 7", lambda c: c.recv(ones(), 7, False)),
    (r"tensor_list has 2 tensors for 1 ranks", lambda c: c.all_gather([ones(), ones()], ones(), False)),
    (r"must have 4 elements", lambda c: c.all_gather([ones(3)], ones(), False)),
    (r"has 3 elements", lambda c: c.all_gather_single(ones(3), ones(), False)),
    (r"input has 5 elements", lambda c: c.reduce_scatter_single(ones(), ones(5), ReduceOp.SUM, False)),
    (r"output has 3 elements, the input 4", lambda c: c.all_to_all_single(ones(3), ones(), False)),
    (r"has 2 entries for 1 ranks", lambda c: c.all_to_all_v_single(ones(), ones(), [2, 2], [4], False)),
    (r"\[5\], but the input has 4 rows", lambda c: c.all_to_all_v_single(ones(), ones(), [4], [5], False)),
    (r"output has 3 elements", lambda c: c.gather_single(ones(3), ones(), 0, False)),
    (r"empty batch", lambda c: c.batch_op_create().issue(False)),
    (r"tensors on cpu and meta", lambda c: mixed(c).issue(False)),
    (r"rank must be in range", lambda c: c.split([1], "part")),
    (r"lists a rank twice", lambda c: c.split([0, 0], "part")),
    (r"timeout is negative", lambda c: c.barrier(False, timeout=timedelta(seconds=-1))),
    (r"timeout is negative", lambda c: c.set_timeout(timedelta(seconds=-1))),
]


@pytest.mark.parametrize(("words", "call"), WRONG, ids=[words[:30] for words, _ in WRONG])
def test_wrong_arguments(alone: TorchComm, words: str, call: Callable[[TorchComm], Any]) -> None:
    with pytest.raises(roundelay.UsageError, match=words):
        call(alone)
    tensor = ones()
    alone.all_reduce(tensor, ReduceOp.SUM, False)
    assert torch.equal(tensor, ones())


def test_unknown_hints(alone: TorchComm) -> None:
    """Those that are said to be ours are refused; others may be another backend's, of which one is told once."""
    with pytest.raises(roundelay.SettingsError, match="algoritm"):
        alone.all_reduce(ones(), ReduceOp.SUM, False, hints={"roundelay::algoritm": "ring"})
    with pytest.raises(roundelay.SettingsError, match="deterministic=perhaps"):
        alone.set_hints({"deterministic": "perhaps"})
    with pytest.warns(UserWarning, match="`alogrithm` is left out, as one of another backend: .* mean `algorithm`"):
        alone.all_reduce(ones(), ReduceOp.SUM, False, hints={"alogrithm": "ring"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone.all_reduce(ones(), ReduceOp.SUM, False, hints={"alogrithm": "ring"})
        alone.set_hints({"roundelay::algorithm": "ring", "ncclx::useCtran": "1", "persistent_store": "true"})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, whose memory can be allocated")
def test_without_a_gpu_there_is_no_allocator(alone: TorchComm) -> None:
    for call in (alone.get_mem_allocator, lambda: alone.mem_allocator):
        with pytest.raises(roundelay.UnsupportedError, match="torch sees no GPU"):
            call()
    with pytest.raises(roundelay.UsageError, match="only, not gloo"):
        torchcomms.get_mem_allocator("gloo")


def test_persistent_handles(alone: TorchComm) -> None:
    """A handle is good for its communicator until it is freed."""
    output = torch.full((4,), -1.0)
    handle = alone.all_gather_p_init(output, hints={"algorithm": "ring"})
    alone.all_gather_p_exec(handle, torch.arange(4.0), async_op=True).wait()
    assert output.tolist() == [0.0, 1.0, 2.0, 3.0]
    wrong = alone.all_gather_p_init(output, hints={"roundelay::algoritm": "ring"})
    with pytest.raises(roundelay.SettingsError, match="algoritm"):
        alone.all_gather_p_exec(wrong, ones(), False)
    alone.all_gather_p_free(handle)
    for call in (lambda: alone.all_gather_p_exec(handle, ones(), False), lambda: alone.all_gather_p_free(handle)):
        with pytest.raises(roundelay.UsageError, match="was freed"):
            call()


def test_after_finalize(alone: TorchComm) -> None:
    alone.finalize()
    for call in (lambda: alone.barrier(False), alone.finalize, lambda: alone.split([0], "part")):
        with pytest.raises(roundelay.UsageError, match="was finalized"):
            call()


def test_new_comm_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "TORCHCOMM_RANK", "ROUNDELAY_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(roundelay.UsageError, match="failed to find backend gloo"):
        torchcomms.new_comm("gloo", "cpu", name="x")
    with pytest.raises(roundelay.StartError, match="torchrun"):
        torchcomms.new_comm("roundelay", "cpu", name="x")
    with pytest.raises(roundelay.UsageError, match=r"rank 2 is not in \[0, 2\)"):
        torchcomms.new_comm("roundelay", "cpu", name="x", rank=2, size=2)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(roundelay.StartError, match="MASTER_ADDR"):
        torchcomms.new_comm("roundelay", "cpu", name="x", rank=0, size=1)
    with pytest.raises(roundelay.UsageError, match="meta"):
        torchcomms.new_comm("roundelay", "meta", name="x", rank=0, size=1)


def test_values() -> None:
    assert ReduceOp.SUM.type is RedOpType.SUM and ReduceOp.PREMUL_SUM(0.5) == ReduceOp.PREMUL_SUM(torch.tensor(0.5))
    assert ReduceOp.PREMUL_SUM(0.5) != ReduceOp.PREMUL_SUM(2) and repr(ReduceOp.AVG) == "ReduceOp.AVG"
    with pytest.raises(roundelay.UsageError, match="2 elements"):
        ReduceOp.PREMUL_SUM(torch.ones(2))
    options = CommOptions()
    assert (options.timeout, options.abort_process_on_timeout_or_error) == (timedelta(seconds=600), True)


def test_a_rank_that_does_not_come() -> None:
    seen, _ = jobs.run("failures", "absent", 2)
    assert seen[:4] == ["TIMEDOUT", False, True, "RL0703"]
    assert 0.4 <= seen[4] <= 5


def test_a_rank_that_dies() -> None:
    seen, _ = jobs.run("failures", "killed", 2, gone=(1,))
    assert seen[:2] == [True, 1] and seen[2] < 10


def test_abort_from_another_thread() -> None:
    assert jobs.run("failures", "aborted", 2) == [["ERROR", False, True, "told"], [True]]


def test_ranks_that_differ() -> None:
    for seen in jobs.run("failures", "mismatched", 2):
        assert seen != ["no error"]


def test_a_rank_without_elements() -> None:
    seen = jobs.run("failures", "empty", 2)
    assert [calls[:2] for calls in seen] == [[0, 4], [0, 4]] and all(len(calls) == 3 for calls in seen), seen
    assert [True] in [calls[2] for calls in seen], seen


def test_children_are_no_ranks() -> None:
    assert jobs.run("failures", "children", 2) == [[[], [4.0] * 4]] * 2
