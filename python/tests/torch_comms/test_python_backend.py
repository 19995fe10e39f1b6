"""Backends in Python: by communicators, where ranks are threads, and by process groups, where they are processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import jobs
import pytest

torch = pytest.importorskip("torch", reason="backends in Python work on tensors of torch")

import operations  # noqa: E402
import own_backends  # noqa: E402
import torch.distributed as dist  # noqa: E402

import roundelay  # noqa: E402
import roundelay.torchcomms as torchcomms  # noqa: E402
from roundelay.torchcomms._python_backend import OPERATIONS  # noqa: E402

EXAMPLE = Path(__file__).parents[3] / "examples" / "torchcomms" / "own_backend.py"
LIMIT = timedelta(seconds=20)
VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
KINDS = [own_backends.Plain, own_backends.Everything, own_backends.Mixed, own_backends.Wrong, own_backends.OwnParts]
for _kind in KINDS:
    torchcomms.register_backend(_kind.__name__.lower(), _kind)


def ranks(name: str, body: Callable[[Any], Any], count: int = 2, **given: Any) -> list[Any]:
    """Return what ``body(comm)`` returns on ranks that are threads."""
    store = dist.HashStore()

    def rank(number: int) -> Any:
        place = {"store": store, "rank": number, "size": count, "timeout": LIMIT}
        comm = torchcomms.new_comm(name, "cpu", name=name, **{**place, **given})
        result = body(comm)
        comm.finalize()
        return result

    return jobs.threads(count, rank)


def test_a_program_may_call_this_module_torchcomms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchcomms", torchcomms)
    torchcomms.register_backend("renamed", own_backends.Plain)
    comm = torchcomms.new_comm("renamed", "cpu", name="renamed", store=dist.HashStore(), rank=0, size=1)
    assert type(comm.get_backend_impl()) is own_backends.Plain
    comm.finalize()
    torchcomms.register_backend("plain", own_backends.Plain)


def test_symmetric_memory_is_for_gpus() -> None:
    comm = torchcomms.new_comm("plain", "cpu", name="no_gpu", store=dist.HashStore(), rank=0, size=1)
    with pytest.raises(roundelay.UnsupportedError, match="torch has none on cpu"):
        comm.get_backend_impl().symmetric_memory(16, torch.float32)
    comm.finalize()


@pytest.mark.parametrize("name", ["plain", "everything"])
def test_every_operation(name: str) -> None:
    called: list[Any] = []

    def body(comm: Any) -> dict[str, str]:
        called.append(comm.get_backend_impl())
        return operations.every(comm)

    store = dist.HashStore()

    def rank(number: int) -> dict[str, str]:
        return body(torchcomms.new_comm(name, "cpu", name="all", store=store, rank=number, size=2, timeout=LIMIT))

    for found in jobs.threads(2, rank):
        assert {case: text for case, text in found.items() if text} == {}
        assert len(found) >= 20
    if name == "everything":
        for backend in called:
            assert set(backend.called) == set(OPERATIONS)


def test_a_backend_of_parts() -> None:
    def body(comm: Any) -> tuple[int, dict[str, int], str]:
        backend = comm.get_backend_impl()
        assert (comm.get_backend(), backend.get_backend_name()) == ("mixed", "mixed")
        assert type(backend) is own_backends.Mixed and comm.unsafe_get_backend() is backend
        checked = torchcomms.check_operations(comm, (1, 1000))
        chosen = backend.communicator.get_backend_impl().explain("all_reduce", 4000, "f32", "sum")
        return checked, dict(backend.called), str(chosen)

    for checked, called, chosen in ranks("mixed", body, 3):
        assert checked == 2 * 2 * 17
        assert called == {"broadcast": 8, "all_gather_single": 4, "reduce": 8}
        assert "line" in chosen
    plain = ranks("plain", lambda comm: str(comm.get_backend_impl().communicator.get_backend_impl().explain(
        "all_reduce", 4000, "f32", "sum")), 3)
    assert not any("line" in chosen for chosen in plain)


def test_the_check_finds_a_wrong_element() -> None:
    def body(comm: Any) -> str:
        try:
            torchcomms.check_operations(comm, (5,))
        except roundelay.Error as error:
            return f"{error.code} {error}"
        return ""

    store = dist.HashStore()

    def rank(number: int) -> str:
        comm = torchcomms.new_comm("wrong", "cpu", name="wrong", store=store, rank=number, size=2, timeout=LIMIT)
        said = body(comm)
        if said:
            comm.abort()
        return said

    first, second = jobs.threads(2, rank)
    assert second == (
        "RL0707 all_gather_single of backend wrong, 10 elements of torch.float32: on rank 1 of 2 element 9 is 60 and "
        "should be 59; 1 are wrong"
    )
    assert not first.startswith("RL0707")


def test_parts_and_options_are_those_of_the_class() -> None:
    def body(comm: Any) -> list[Any]:
        part = comm.split([1, 0], name="part")
        seen = [part.get_backend(), part.get_rank(), type(part.get_backend_impl()).__name__]
        torchcomms.check_operations(part, (3,))
        seen.append(part.get_backend_impl().called["broadcast"])
        alone = comm.split([comm.get_rank()], name=f"alone{comm.get_rank()}", timeout=timedelta(seconds=3))
        seen.append(alone.get_options().timeout.total_seconds())
        for made in (part, alone):
            made.finalize()
        comm.set_timeout(timedelta(seconds=7))
        seen.append(comm.get_backend_impl().communicator.get_options().timeout.total_seconds())
        return seen

    found = ranks("mixed", body)
    assert found == [["mixed", 1 - rank, "Mixed", 4, 3.0, 7.0] for rank in range(2)]


def test_an_object_that_split_makes_gets_a_communicator() -> None:
    def body(comm: Any) -> list[Any]:
        seen: list[Any] = []
        for ranks, name in [([1, 0], "both"), ([1], "one")]:
            part = comm.split(ranks, name=name)
            if part is None:
                seen.append(None)
                continue
            tensor = torch.full((3,), comm.get_rank() + 1.0)
            part.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)
            seen.append((part.get_rank(), part.get_size(), part.get_backend_impl().depth, tensor.tolist()))
            part.finalize()
        return seen

    assert ranks("ownparts", body) == [
        [(1, 2, 1, [3.0] * 3), None],
        [(0, 2, 1, [3.0] * 3), (0, 1, 1, [2.0] * 3)],
    ]


def test_reconfigure_prepares_the_class_anew() -> None:
    from test_reconfigure import Board

    board = Board(2)

    def rank(number: int) -> Any:
        comm = torchcomms.new_comm("mixed", "cpu", name="again", enable_reconfigure=True, timeout=LIMIT)
        comm.reconfigure(1, board.handles(1, number, comm, [0, 1])).wait()
        chosen = comm.get_backend_impl().communicator.get_backend_impl().explain("all_reduce", 4000, "f32", "sum")
        tensor = operations.of(comm.get_rank())
        comm.all_reduce(tensor, torchcomms.ReduceOp.SUM, False)
        return comm.get_size(), tensor.tolist(), "line" in str(chosen)

    total = (operations.of(0) + operations.of(1)).tolist()
    assert jobs.threads(2, rank) == [(2, total, True)] * 2


def test_what_is_wrong_is_refused() -> None:
    with pytest.raises(ValueError, match="no subclass"):
        torchcomms.register_backend("other", dict)  # type: ignore[arg-type]
    for name in ("gloo", "roundelay", "nccl"):
        with pytest.raises(ValueError, match=f"there is a backend {name} already"):
            torchcomms.register_backend(name, own_backends.Plain)
    with pytest.raises(ValueError, match="small letters"):
        torchcomms.register_backend("My Own", own_backends.Plain)
    with pytest.raises(ValueError, match="failed to find backend absent"):
        torchcomms.new_comm("absent", "cpu", name="absent", rank=0, size=1, store=dist.HashStore())

    class Forgetful(torchcomms.PythonBackend):
        def __init__(self) -> None:
            pass

    class Odd(torchcomms.PythonBackend):
        def barrier(self, async_op: bool) -> Any:
            return 5

    text = "algorithm mine implements all_reduce on n ranks { each r { r -> r : copy data } }"

    class Refused(torchcomms.PythonBackend):
        algorithms = (roundelay.algorithm(text),)

    for kind, words in ((Forgetful, "does not call super"), (Refused, "RL05"), (Odd, "barrier of Odd has returned 5")):
        torchcomms.register_backend("rough", kind)
        with pytest.raises((ValueError, RuntimeError), match=words):
            ranks("rough", lambda comm: comm.barrier(False))


def test_a_peer_that_cannot_be_made_is_named() -> None:
    def body(comm: Any) -> str:
        with pytest.raises(ValueError, match="'absent' is no backend that is here") as found:
            comm.get_backend_impl().peer_group("absent")
        return str(found.value)

    assert len(ranks("plain", body)) == 2


def test_process_groups() -> None:
    for said in jobs.launched("own_group.py", 2):
        found = json.loads(said.splitlines()[-1])
        called = {name: found[name].pop("called") for name in ("everything", "mixed")}
        for name in called:
            assert found[name] == found["gloo"], name
        # Torch has no call of that name.
        assert set(called["everything"]) == set(OPERATIONS) - {"gather_single"}, called["everything"]
        # FSDP broadcasts and gathers, too.
        assert called["mixed"]["reduce"] == 1 and called["mixed"]["broadcast"] >= 1
        assert called["mixed"]["all_gather_single"] > 3


def test_an_entry_point_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs.py").write_text(
        "import roundelay.torchcomms as torchcomms\n"
        "class Theirs(torchcomms.PythonBackend):\n    pass\n"
        "def register():\n    torchcomms.register_backend('theirs', Theirs)\n"
    )
    (tmp_path / "theirs_module.py").write_text("import theirs\ntheirs.register()\n")
    meta = tmp_path / "theirs-1.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (meta / "entry_points.txt").write_text(
        "[torchcomms.backends]\ntheirs = theirs_module\n\n[torch.distributed.backends]\ntheirs = theirs:register\n"
    )
    place = {"store": dist.HashStore(), "rank": 0, "size": 1}
    with pytest.raises(ValueError, match="failed to find backend theirs"):
        torchcomms.new_comm("theirs", "cpu", name="a", **place)
    monkeypatch.syspath_prepend(tmp_path)
    comm = torchcomms.new_comm("theirs", "cpu", name="a", **place)
    assert comm.get_backend() == "theirs"
    comm.finalize()
    if VERSION < (2, 14):
        pytest.skip("torch before 2.14 has no entry points of backends")
    group = (
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('theirs', store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.all_reduce(torch.ones(1)); print(dist.get_backend()); dist.destroy_process_group()\n"
    )
    variables = jobs.environment()
    variables["PYTHONPATH"] = os.pathsep.join([str(tmp_path), variables["PYTHONPATH"]])
    command = [sys.executable, "-c", group]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "theirs\n"), done.stderr


def test_torchcomms_itself_is_given_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in the place of torchcomms: it is passed a class of its own interface, by the name."""
    found: dict[str, Any] = {}
    module: Any = types.ModuleType("torchcomms")
    module.TorchCommBackend = type("TorchCommBackend", (), {})
    module.register_backend = found.__setitem__
    monkeypatch.setitem(sys.modules, "torchcomms", module)
    monkeypatch.delitem(sys.modules, "roundelay.torchcomms._trampoline", raising=False)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    torchcomms.register_backend("given", own_backends.Plain)
    made = found["given"]()
    assert isinstance(made, module.TorchCommBackend)
    made.init(torch.device("cpu"), "main", torchcomms.CommOptions(store=dist.HashStore()))
    assert (made.get_backend_name(), made.get_size(), made.get_comm_name()) == ("given", 1, "main")
    made.finalize()
    monkeypatch.delitem(sys.modules, "roundelay.torchcomms._trampoline")


def test_the_page_runs(tmp_path: Path) -> None:
    page = (EXAMPLE.parents[2] / "docs" / "torchcomms.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if "PythonBackend" in block]
    (promised,) = re.findall(r"print\(.*\)  # .*: (\d+)$", block, re.MULTILINE)
    (tmp_path / "program.py").write_text(block)
    for said in jobs.launched(str(tmp_path / "program.py"), 2):
        assert said == f"{promised}\n"


def test_the_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    import own_backend

    own_backend.main()
    assert capsys.readouterr().out == "102 results of backend mine are right on each of 4 ranks\n"
