"""Functions on several processes, and programs that launchers start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import pytest
from ranks import LIMIT, processes

import roundelay
from roundelay import Communicator, LostRankError, UsageError


def hello(comm: Communicator, *words: str, end: str = "") -> tuple[int, str, int]:
    data = np.array([comm.rank + 1])
    comm.all_reduce(data)
    return comm.rank, " ".join(words) + end, int(data[0])


def test_results_come_by_rank() -> None:
    assert roundelay.launch(hello, 3, "good", "day", end="!") == [(rank, "good day!", 6) for rank in range(3)]
    assert roundelay.launch(hello, 1) == [(0, "", 1)]


def fail(comm: Communicator, who: list[int]) -> None:
    if comm.rank in who:
        raise KeyError(f"of rank {comm.rank}")
    comm.barrier()
    comm.barrier()


def test_the_first_error_by_rank_is_raised_with_its_traceback() -> None:
    with pytest.raises(KeyError, match="of rank 1") as error:
        processes(fail, 3, [1])
    cause = str(error.value.__cause__)
    assert "on rank 1" in cause and "test_launch.py" in cause and 'raise KeyError(f"of rank' in cause
    with pytest.raises(KeyError, match="of rank 0"):
        processes(fail, 2, [0, 1])


class Unpicklable(Exception):
    """An error that cannot travel."""

    def __init__(self) -> None:
        super().__init__("odd")
        self.lock = __import__("threading").Lock()


def fail_oddly(comm: Communicator) -> None:
    raise Unpicklable


def test_an_error_that_cannot_travel_is_told() -> None:
    with pytest.raises(roundelay.Error, match="rank 0 raised Unpicklable: odd"):
        processes(fail_oddly, 1)


def die(comm: Communicator, how: str) -> None:
    comm.barrier()
    if comm.rank == 0:
        if how == "exit":
            os._exit(7)
        os.kill(os.getpid(), 40 if how == "real-time" else signal.SIGSEGV)
    while True:  # Others do not look: they are ended.
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("how", "said"),
    [("exit", "ended with 7"), ("signal", "was ended by SIGSEGV"), ("real-time", "was ended by signal 40")],
)
def test_a_dead_rank_ends_the_others(how: str, said: str) -> None:
    begin = time.monotonic()
    with pytest.raises(LostRankError, match=f"rank 0 is gone: its process .* {said} before its function returned"):
        processes(die, 2, how)
    assert time.monotonic() - begin < 40


def leave(comm: Communicator, status: object) -> None:
    if comm.rank == 1:
        sys.exit(status)
    comm.barrier()


@pytest.mark.parametrize("status", [0, 5, "a reason"])
def test_a_rank_that_exits_does_not_end_the_program(status: object) -> None:
    with pytest.raises(LostRankError, match=f"rank 1 is gone: rank 1 raised SystemExit: {status}") as error:
        processes(leave, 2, status)
    assert error.value.peer == 1


IGNORED = """
import signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
import roundelay
from test_launch import die, hello
if __name__ == "__main__":
    print(roundelay.launch(hello, 2))
    try:
        roundelay.launcher(timeout=60)(die, 2, "exit")
    except roundelay.LostRankError as error:
        print(error)
"""


def test_a_program_that_ignores_its_children_has_their_results(tmp_path: Any) -> None:
    file = tmp_path / "ignored.py"
    file.write_text(IGNORED)
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(__file__)}
    ran = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=LIMIT, env=environment, check=False
    )
    assert ran.returncode == 0, ran.stderr
    results, lost = ran.stdout.splitlines()
    assert results == "[(0, '', 3), (1, '', 3)]"
    assert "rank 0 is gone" in lost and "with a status that the system did not keep" in lost


def idle(comm: Communicator) -> None:
    time.sleep(600)


def test_a_launch_has_a_limit() -> None:
    with pytest.raises(roundelay.OperationTimeoutError, match="launch: after 2 s rank 0, 1 had not ended"):
        roundelay.launcher(timeout=2)(idle, 2)


def test_wrong_use() -> None:
    with pytest.raises(UsageError, match="`n` is 0"):
        roundelay.launch(hello, 0)
    with pytest.raises(roundelay.SettingsError, match="algoritm"):
        roundelay.launcher(hints={"algoritm": "ring"})(hello, 2)


def test_without_cloudpickle_a_function_must_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(UsageError, match="define the function at the top of a module, or install cloudpickle"):
        roundelay.launch(lambda comm: comm.rank, 2)
    assert roundelay.launch(hello, 1) == [(0, "", 1)]


def test_with_cloudpickle_any_function_goes() -> None:
    pytest.importorskip("cloudpickle", reason="it is what sends lambdas")
    offset = 10
    assert roundelay.launch(lambda comm: comm.rank + offset, 2) == [10, 11]


def test_what_ranks_print_appears(capsys: pytest.CaptureFixture[str]) -> None:
    assert roundelay.launch(prints, 2) == [None, None]
    captured = capsys.readouterr()
    assert sorted(captured.out.splitlines()) == ["out of 0", "out of 1"]
    assert sorted(captured.err.splitlines()) == ["err of 0", "err of 1"]


def prints(comm: Communicator) -> None:
    print("out of", comm.rank)
    print("err of", comm.rank, file=sys.stderr)


def test_environment_for_other_libraries() -> None:
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
    found = processes(environment, 2, names)
    assert [f[:3] for f in found] == [["0", "0", "2"], ["1", "1", "2"]]
    assert found[0][3:] == found[1][3:]


def environment(comm: Communicator, names: list[str]) -> list[str]:
    again = roundelay.init(timeout=20, hints={"deterministic": True})
    assert (again.rank, again.size) == (comm.rank, comm.size)
    again.barrier()
    again.shutdown()
    return [os.environ[name] for name in names]


SCRIPT = """
import numpy as np
import roundelay

def main(comm):
    data = np.full(5, comm.rank + 1)
    comm.all_reduce(data)
    return int(data[0])

if __name__ == "__main__":
    print(roundelay.launch(main, 2))
"""


@pytest.mark.parametrize("way", ["script", "module", "stdin"])
def test_a_program_launches(tmp_path: Any, way: str) -> None:
    (tmp_path / "program.py").write_text(SCRIPT)
    arguments = {"script": ["program.py"], "module": ["-m", "program"], "stdin": ["-"]}[way]
    if way == "stdin":
        pytest.importorskip("cloudpickle", reason="functions of no file need it")
    done = subprocess.run(
        [sys.executable, *arguments], input=SCRIPT, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT
    )
    assert (done.stdout, done.returncode) == ("[3, 3]\n", 0), done.stderr


ENVIRONMENT_SCRIPT = r"""
import sys
import numpy as np, roundelay
with roundelay.init() as comm:
    data = np.full(3, comm.rank + 1.0)
    comm.all_reduce(data)
    assert data[0] == comm.size * (comm.size + 1) / 2
    sys.stdout.write(f"rank {comm.rank} of {comm.size}\n")
"""


def test_init_by_the_environment(tmp_path: Any) -> None:
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        store = f"127.0.0.1:{s.getsockname()[1]}"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", ENVIRONMENT_SCRIPT],
            env=os.environ | {"ROUNDELAY_RANK": str(rank), "ROUNDELAY_SIZE": "2", "ROUNDELAY_STORE": store},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        assert [rank.communicate(timeout=LIMIT)[0] for rank in ranks] == ["rank 0 of 2\n", "rank 1 of 2\n"]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def test_init_under_torchrun(tmp_path: Any) -> None:
    pytest.importorskip("torch.distributed.run", reason="it is torchrun")
    (tmp_path / "program.py").write_text(ENVIRONMENT_SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT)
    assert sorted(done.stdout.splitlines()) == ["rank 0 of 2", "rank 1 of 2"], done.stderr
