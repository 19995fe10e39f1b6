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
from collections.abc import Callable
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


def main() -> None:
    module, function, folder, seconds = json.loads(sys.argv[1])
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
