"""Ranks on GPUs of which one is lost: the errors of the others, and when they come.

    python lost.py [--ranks 2] [--faces python,compiled] [--kinds killed,stopped,illegal] [--timeout 8]

A job has a process and a GPU a rank, and calls `all_reduce` and `torch.cuda.synchronize()` by turns over
`init_process_group("roundelay")`. One rank is killed, stopped, or makes an illegal access on its GPU. A survivor is right if
it raises an error that names that rank: within three seconds where the process ended, else within the timeout and two
seconds. Prints a line of JSON for each job; ends with 3 if a survivor is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

SLACK = {"killed": 3.0, "illegal": 3.0, "stopped": 2.0}
"""The seconds in which survivors are notified; those of a stopped rank after the timeout."""


def hurt(kind: str, rank: int) -> None:
    """Do to this rank what the kind says."""
    import torch

    if kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "illegal":
        # An index far outside ends the kernel, and with it this process.
        torch.zeros(4, device=rank)[torch.tensor([1 << 40], device=rank)].sum().item()


def run_rank(kind: str, victim: int, compiled: bool, timeout: float, folder: Path) -> None:
    """Call until the victim is lost, and keep the error of this rank and its time."""
    import torch
    import torch.distributed as dist

    import roundelay.torch

    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    roundelay.torch.register()
    options = roundelay.torch.Options(compiled=compiled)
    dist.init_process_group("roundelay", timeout=timedelta(seconds=60), pg_options=options)
    data = torch.ones(1 << 20, device=rank)
    for _ in range(5):
        dist.all_reduce(data)
        torch.cuda.synchronize()
    roundelay.torch.set_timeout(timedelta(seconds=timeout))
    dist.barrier()
    if rank == victim:
        (folder / "hurt").write_text(str(time.time()))
        hurt(kind, rank)
    try:
        while True:
            dist.all_reduce(data)
            torch.cuda.synchronize()
    except RuntimeError as error:
        text = f"{type(error).__name__}: {error}"
    (folder / f"error-{rank}").write_text(json.dumps({"at": time.time(), "text": text}))
    # What still waits on the GPU must not keep the process.
    os._exit(0)


def one_job(kind: str, face: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a job; return the errors of its survivors."""
    victim = options.ranks - 1
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(options.ranks)}
        started = []
        for rank in range(options.ranks):
            command = [sys.executable, __file__, "--rank", kind, str(victim), face, name, "--timeout", str(options.timeout)]
            started.append(subprocess.Popen(command, env={**os.environ, **place, "RANK": str(rank)}))
        until = time.monotonic() + 90
        survivors = [process for rank, process in enumerate(started) if rank != victim]
        while any(process.poll() is None for process in survivors) and time.monotonic() < until:
            time.sleep(0.1)
        for process in started:
            process.kill()
            process.wait()
        began = float((folder / "hurt").read_text()) if (folder / "hurt").exists() else None
        right, errors = began is not None, {}
        limit = SLACK[kind] + (options.timeout if kind == "stopped" else 0)
        for rank in range(options.ranks):
            file = folder / f"error-{rank}"
            if rank == victim:
                continue
            if began is None or not file.exists():
                right, errors[rank] = False, {"text": "no error within 90 s"}
                continue
            found = json.loads(file.read_text())
            errors[rank] = {"seconds": round(found["at"] - began, 2), "text": found["text"][:400]}
            right &= f"rank {victim}" in found["text"] and errors[rank]["seconds"] <= limit
    return {"kind": kind, "face": face, "ranks": options.ranks, "right": right, "errors": errors}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--faces", default="python,compiled")
    parser.add_argument("--kinds", default="killed,stopped,illegal")
    parser.add_argument("--timeout", type=float, default=8.0)
    parser.add_argument("--rank", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        kind, victim, face, folder = options.rank
        run_rank(kind, int(victim), face == "compiled", options.timeout, Path(folder))
        return
    if "compiled" in options.faces:
        from roundelay.torch import compiled

        compiled.module()
    wrong = False
    for face in options.faces.split(","):
        for kind in options.kinds.split(","):
            found = one_job(kind, face, options)
            wrong |= not found["right"]
            print(json.dumps(found), flush=True)
    sys.exit(3 if wrong else 0)


if __name__ == "__main__":
    main()
