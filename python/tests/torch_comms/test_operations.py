"""Every operation of ``roundelay.torchcomms``, with ranks that are processes and ranks that are threads."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import jobs
import pytest

pytest.importorskip("torch", reason="roundelay.torchcomms works on tensors of torch")

HERE = Path(__file__).parent
NAMES = re.findall(r"^@case\ndef (\w+)", (HERE / "operations.py").read_text(), re.MULTILINE)


@functools.cache
def outcomes(ranks: int) -> list[Any]:
    return jobs.run("operations", "every", ranks)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", NAMES)
def test_operation(name: str, ranks: int) -> None:
    for rank, outcome in enumerate(outcomes(ranks)):
        assert outcome[name] == "", f"rank {rank}"


def test_no_case_is_left_out() -> None:
    assert sorted(outcomes(2)[0]) == sorted(NAMES)


def test_ranks_as_threads() -> None:
    import operations
    import torch.distributed as dist

    import roundelay.torchcomms as torchcomms

    store = dist.HashStore()

    def rank(number: int) -> dict[str, str]:
        comm = torchcomms.new_comm(
            "roundelay", "cpu", name="threads", store=store, rank=number, size=2, timeout=timedelta(seconds=20)
        )
        return operations.every(comm)

    for found in jobs.threads(2, rank):
        assert {name: text for name, text in found.items() if text} == {}
        assert len(found) == len(NAMES)


def test_ranks_meet_by_a_launchers_variables() -> None:
    said = jobs.launched("meeting.py", 2)
    assert all(each.endswith("met\n") for each in said), "\n----\n".join(said)


def test_no_rank_goes_on_before_the_launchers_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed import TCPStore

    from roundelay.torchcomms import _join

    limit = timedelta(seconds=20)
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    for name, value in jobs.free_place().items():
        monkeypatch.setenv(name, value)
    found: list[Any] = [None, None]

    def meet(rank: int) -> None:
        found[rank] = _join.meet(None, "left", rank, limit)

    meetings = [threading.Thread(target=meet, args=(rank,), daemon=True) for rank in range(2)]
    for thread in meetings:
        thread.start()
    for thread in meetings:
        thread.join(30)
        assert not thread.is_alive(), "a rank does not meet the other"

    after: list[str] = []

    def leave() -> None:
        found[1].over(1, limit)
        try:
            TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), None, False, timedelta(seconds=1), False)
            after.append("taken")
        except RuntimeError:
            after.append("free")

    ahead = threading.Thread(target=leave, daemon=True)
    ahead.start()
    # Rank 0 is late: without the word that it has left, rank 1 would be through before.
    ahead.join(0.3)
    assert after == []
    found[0].over(0, limit)
    ahead.join(30)
    assert after == ["free"]


def test_rank_0_may_end_before_another_knows_that_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed import PrefixStore, TCPStore

    from roundelay.errors import StartError
    from roundelay.torchcomms import _join

    for name, value in jobs.free_place().items():
        monkeypatch.setenv(name, value)

    limit = timedelta(seconds=20)
    server = TCPStore("127.0.0.1", 0, None, True, limit, False)
    client = TCPStore("127.0.0.1", server.port, None, False, limit, False)
    meeting = _join.Meeting(PrefixStore("left", client), client)
    with pytest.raises(StartError, match="did not close its store"):
        meeting.over(1, timedelta(milliseconds=200))
    meeting = _join.Meeting(PrefixStore("left", client), client)
    del server
    meeting.over(1, limit)


def test_hints_of_a_communicator_decide_its_calls() -> None:
    import torch

    import roundelay.torchcomms as torchcomms

    store, hints = torch.distributed.HashStore(), {"algorithm": "all_reduce.compressed"}

    def rank(number: int) -> str:
        comm = torchcomms.new_comm("roundelay", "cpu", name="named", store=store, rank=number, size=2, hints=hints)
        try:
            comm.all_reduce(torch.ones(4), torchcomms.ReduceOp.SUM, False)
        except Exception as error:
            return str(error)
        return ""

    for said in jobs.threads(2, rank):
        assert "lossy=bf16 is not given" in said, said


def test_the_page_runs_by_torchrun(tmp_path: Path) -> None:
    page = (HERE.parents[2] / "docs" / "torchcomms.md").read_text(encoding="utf-8")
    block = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[0]
    (promised,) = re.findall(r"print\(.*\)  # with 2 ranks: (.*)$", block, re.MULTILINE)
    # A second communicator of the same name, once the first has ended.
    (tmp_path / "program.py").write_text(f"{block}\n{block.replace('print(', 'assert (')}")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(tmp_path / "program.py")], env=jobs.environment(), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, promised), done.stderr
