"""Runs a function of ``operations.py`` or ``failures.py`` as the ranks of a job, in processes of their own.

``ROUNDELAY_TEST_DEVICE`` names the device, with the rank's number where it says ``{rank}``: ``cuda:{rank}``.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from place import search_path

HERE = Path(__file__).resolve().parent


def environment(**more: str) -> dict[str, str]:
    """Return the variables of a rank: no launcher's but those given, and the package under test."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHCOMM", "OMPI_", "PMI_"))}
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "ROUNDELAY_RANK", "ROUNDELAY_SIZE"):
        own.pop(name, None)
    own.update(PYTHONPATH=search_path(), OMP_NUM_THREADS="1")
    return own | more


def run(
    module: str, function: str, ranks: int, seconds: float = 50, gone: tuple[int, ...] = (), **more: str
) -> list[Any]:
    """Return what ``function(comm)`` of a module returns on each rank, as JSON passes it; None of ranks in ``gone``.

    Raises AssertionError with the output of a rank that fails or hangs; no process outlives the call.
    """
    with tempfile.TemporaryDirectory() as folder:
        processes: list[subprocess.Popen[bytes]] = []
        logs = [Path(folder) / f"log{rank}" for rank in range(ranks)]
        try:
            for rank in range(ranks):
                job = json.dumps([module, function, folder, seconds])
                variables = environment(RANK=str(rank), WORLD_SIZE=str(ranks), **more)
                with logs[rank].open("w") as log:
                    command = [sys.executable, __file__, job]
                    processes.append(subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT))
            # Each is reaped when it ends: one that nobody has waited for looks alive to the others.
            end = time.monotonic() + seconds
            while None in [process.poll() for process in processes]:
                if time.monotonic() > end:
                    raise subprocess.TimeoutExpired(function, seconds)
                time.sleep(0.02)
        except subprocess.TimeoutExpired:
            said = "\n----\n".join(log.read_text() for log in logs)
            raise AssertionError(f"{function} has not ended in {seconds} s\n{said}") from None
        finally:
            for process in processes:
                process.kill()
                process.wait()
        results: list[Any] = []
        for rank, process in enumerate(processes):
            if rank in gone:
                results.append(None)
                continue
            assert process.returncode == 0, f"rank {rank} ended with {process.returncode}\n{logs[rank].read_text()}"
            results.append(json.loads((Path(folder) / f"result{rank}").read_text()))
        return results


def forked(
    module: str, function: str, ranks: int, seconds: float = 50, imports: Sequence[str] = (), **more: str
) -> list[Any]:
    """Return what ``run`` returns, of ranks that are forked from one process, which has imported torch for all."""
    with tempfile.TemporaryDirectory() as folder:
        job = json.dumps([module, function, folder, seconds, ranks, ["torch", "torch.distributed", *imports]])
        place = free_place() | more
        done = subprocess.run(
            [sys.executable, __file__, job], env=environment(**place), capture_output=True, text=True, timeout=seconds + 30
        )
        said = "\n----\n".join(path.read_text() for path in sorted(Path(folder).glob("log*")))
        assert done.returncode == 0, f"{done.stderr}\n{said}"
        return [json.loads((Path(folder) / f"result{rank}").read_text()) for rank in range(ranks)]


def free_place() -> dict[str, str]:
    """Return the variables by which a launcher names a place that nobody has taken."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(listener.getsockname()[1])}


def launched(program: str, ranks: int, seconds: float = 100, **more: str) -> list[str]:
    """Return what each rank of a program here says; they meet by ``MASTER_ADDR`` and ``MASTER_PORT``."""
    place = free_place()
    started = []
    for rank in range(ranks):
        variables = environment(RANK=str(rank), WORLD_SIZE=str(ranks), **place, **more)
        variables.pop("TORCHELASTIC_USE_AGENT_STORE", None)
        command = [sys.executable, str(HERE / program)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen(command, env=variables, text=True, **pipes))  # type: ignore[call-overload]
    try:
        return [process.communicate(timeout=seconds)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


def threads(ranks: int, body: Callable[[int], Any]) -> list[Any]:
    """Return what ``body(rank)`` returns on ranks that are threads; raise the first error that came."""
    results: list[Any] = [None] * ranks
    errors: list[BaseException] = []

    def rank(number: int) -> None:
        try:
            results[number] = body(number)
        except BaseException as error:
            errors.append(error)

    started = [threading.Thread(target=rank, args=(number,), daemon=True) for number in range(ranks)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(100)
    assert errors or not any(thread.is_alive() for thread in started), "a rank has not ended in 100 s"
    if errors:
        raise errors[0]
    return results


def fork_ranks(ranks: int, folder: str, seconds: float, body: Callable[[int], object], name: str = "") -> list[int]:
    """Call ``body(rank)`` in a process for each rank, whose output goes to a file; return their exit statuses."""
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child:
            children.append(child)
            continue
        code = 1
        try:
            log = os.open(f"{folder}/log{rank}{name}", os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
            faulthandler.dump_traceback_later(seconds, exit=True)
            body(rank)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    end = time.monotonic() + seconds + 5
    codes = []
    for child in children:
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
            time.sleep(0.01)
        if ended == (0, 0):
            os.kill(child, 9)
            ended = os.waitpid(child, 0)
        codes.append(ended[1])
    return codes


def main() -> None:
    module, function, folder, seconds, *forks = json.loads(sys.argv[1])
    if not forks:
        run_rank(module, function, folder, seconds)
        return
    ranks, imports = forks
    for each in (*imports, module):
        importlib.import_module(each)
    sys.exit(int(any(fork_ranks(ranks, folder, seconds, lambda rank: run_rank(module, function, folder, seconds)))))


def run_rank(module: str, function: str, folder: str, seconds: float) -> None:
    """Call the function on this rank, and write what it returns."""
    import torch
    import torch.distributed as dist

    torchcomms: Any = importlib.import_module(os.environ.get("ROUNDELAY_TEST_TORCHCOMMS", "roundelay.torchcomms"))

    faulthandler.dump_traceback_later(seconds - 5)
    store = dist.FileStore(f"{folder}/store", int(os.environ["WORLD_SIZE"]))
    limit = timedelta(seconds=20)
    device = torch.device(os.environ.get("ROUNDELAY_TEST_DEVICE", "cpu").format(rank=os.environ["RANK"]))
    comm = torchcomms.new_comm("roundelay", device, name="main", store=store, timeout=limit)
    rank = comm.get_rank()
    result = getattr(importlib.import_module(module), function)(comm)
    Path(f"{folder}/result{rank}").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
